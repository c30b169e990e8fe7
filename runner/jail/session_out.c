#include "session_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"

#define SESSION_OUT_MAX 8192

struct session_packet {
    struct session_packet *next;
    size_t size, nfds;
    int fds[FD_PASS_MAX];
    char data[];
};

static void session_out_free(struct session_packet *p) {
    for (size_t i = 0; i < p->nfds; i++) {
        fd_close(&p->fds[i]);
    }
    free(p);
}

static int session_out_queue(struct session_out *q, const struct session_message *msg,
                             struct err *err) {
    if (q->count == SESSION_OUT_MAX) {
        return err_set(err, ERR_LIMIT, 0, "the server does not read its answers");
    }
    struct session_packet *p = malloc(sizeof *p + msg->size);
    if (p == NULL) {
        return err_sys(err, "queueing an answer");
    }
    p->next = NULL;
    p->size = msg->size;
    p->nfds = 0;
    memcpy(p->data, msg->data, msg->size);
    for (; p->nfds < msg->nfds; p->nfds++) {
        p->fds[p->nfds] = fcntl(msg->fds[p->nfds], F_DUPFD_CLOEXEC, 0);
        if (p->fds[p->nfds] < 0) {
            (void)err_sys(err, "queueing a descriptor");
            session_out_free(p);
            return -1;
        }
    }
    if (q->tail != NULL) {
        q->tail->next = p;
    } else {
        q->head = p;
    }
    q->tail = p;
    q->count++;
    return 0;
}

int session_out_put(struct session_out *q, int sock, const struct session_message *msg,
                    struct err *err) {
    struct err why;
    if (q->head == NULL) {
        if (fd_send(sock, msg->data, msg->size, msg->fds, msg->nfds, &why) == 0) {
            return 0;
        }
        if (why.code != EAGAIN) {
            if (err != NULL) {
                *err = why;
            }
            return -1;
        }
    }
    return session_out_queue(q, msg, err);
}

static void session_out_pop(struct session_out *q) {
    struct session_packet *p = q->head;
    q->head = p->next;
    if (q->head == NULL) {
        q->tail = NULL;
    }
    q->count--;
    session_out_free(p);
}

int session_out_flush(struct session_out *q, int sock, struct err *err) {
    struct err why;
    while (q->head != NULL) {
        const struct session_packet *p = q->head;
        if (fd_send(sock, p->data, p->size, p->fds, p->nfds, &why) != 0) {
            if (why.code == EAGAIN) {
                return 0;
            }
            if (err != NULL) {
                *err = why;
            }
            return -1;
        }
        session_out_pop(q);
    }
    return 1;
}

void session_out_done(struct session_out *q) {
    while (q->head != NULL) {
        session_out_pop(q);
    }
}
