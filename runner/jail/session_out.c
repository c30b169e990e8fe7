#include "session_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"

#define SESSION_OUT_MAX 8192

struct session_packet {
    struct session_packet *next;
    size_t size;
    char data[];
};

static int session_out_queue(struct session_out *q, const void *data, size_t size,
                             struct err *err) {
    if (q->count == SESSION_OUT_MAX) {
        return err_set(err, ERR_LIMIT, 0, "the server does not read its answers");
    }
    struct session_packet *p = malloc(sizeof *p + size);
    if (p == NULL) {
        return err_sys(err, "queueing an answer");
    }
    p->next = NULL;
    p->size = size;
    memcpy(p->data, data, size);
    if (q->tail != NULL) {
        q->tail->next = p;
    } else {
        q->head = p;
    }
    q->tail = p;
    q->count++;
    return 0;
}

int session_out_send(struct session_out *q, int sock, const void *data, size_t size,
                     struct err *err) {
    struct err why;
    if (q->head == NULL) {
        if (fd_send(sock, data, size, NULL, 0, &why) == 0) {
            return 0;
        }
        if (why.code != EAGAIN) {
            if (err != NULL) {
                *err = why;
            }
            return -1;
        }
    }
    return session_out_queue(q, data, size, err);
}

static void session_out_pop(struct session_out *q) {
    struct session_packet *p = q->head;
    q->head = p->next;
    if (q->head == NULL) {
        q->tail = NULL;
    }
    q->count--;
    free(p);
}

int session_out_flush(struct session_out *q, int sock, struct err *err) {
    struct err why;
    while (q->head != NULL) {
        if (fd_send(sock, q->head->data, q->head->size, NULL, 0, &why) != 0) {
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
