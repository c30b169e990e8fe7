#include "link_send.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "fd.h"

struct link_packet {
    struct link_packet *next;
    size_t fd_count;
    int fds[FD_PASS_MAX]; /* owned: duplicates */
    size_t len;
    char data[];
};

union link_send_control {
    char bytes[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
    struct cmsghdr align;
};

static void link_send_packet_free(struct link_packet *p) {
    for (size_t i = 0; i < p->fd_count; i++)
        fd_close(&p->fds[i]);
    free(p);
}

void link_send_drop(struct link *l) {
    while (l->out_first != NULL) {
        struct link_packet *p = l->out_first;
        l->out_first = p->next;
        link_send_packet_free(p);
    }
    l->out_last = NULL;
    l->out_count = 0;
}

static void link_send_failed(void *arg) {
    struct link *l = arg;
    if (l->state != LINK_CLOSED)
        link_drop(l, &l->fail_why);
}

void link_send_fail(struct link *l, const struct err *why) {
    if (l->fail.pending)
        return;
    l->fail_why = *why;
    loop_defer(l->loop, &l->fail, link_send_failed, l);
}

static void link_send_fail_errno(struct link *l) {
    struct err err;
    err_sys(&err, "sending to %s", l->name);
    link_send_fail(l, &err);
}

static int link_send_keep(struct link *l, const struct link_send_item *item, struct err *err) {
    size_t len = 0;
    for (size_t i = 0; i < item->part_count; i++)
        len += item->parts[i].iov_len;
    struct link_packet *p = malloc(sizeof(*p) + len);
    if (p == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "keeping a packet for %s: out of memory", l->name);
    *p = (struct link_packet){.len = len};
    size_t at = 0;
    for (size_t i = 0; i < item->part_count; i++) {
        memcpy(p->data + at, item->parts[i].iov_base, item->parts[i].iov_len);
        at += item->parts[i].iov_len;
    }
    for (size_t i = 0; i < item->fd_count; i++) {
        int fd = fcntl(item->fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            err_sys(err, "keeping a descriptor for %s", l->name);
            link_send_packet_free(p);
            return -1;
        }
        p->fds[p->fd_count++] = fd;
    }
    if (l->out_first == NULL) {
        l->out_first = p;
        loop_mod(l->loop, &l->source, EPOLLIN | EPOLLOUT, NULL);
    } else {
        l->out_last->next = p;
    }
    l->out_last = p;
    l->out_count++;
    return 0;
}

static void link_send_attach(struct msghdr *msg, union link_send_control *control, const int *fds,
                             size_t count) {
    if (count == 0)
        return;
    memset(control, 0, sizeof(*control));
    msg->msg_control = control->bytes;
    msg->msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, count * sizeof(int));
}

int link_send(struct link *l, struct link_send_item *item, struct err *err) {
    if (l->fail.pending)
        return 0; /* the connection is dead; its end is about to be told */
    if (l->out_first != NULL)
        return link_send_keep(l, item, err);
    union link_send_control control;
    struct msghdr msg = {.msg_iov = item->parts, .msg_iovlen = item->part_count};
    link_send_attach(&msg, &control, item->fds, item->fd_count);
    ssize_t n;
    do
        n = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return 0;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
        return link_send_keep(l, item, err);
    link_send_fail_errno(l);
    return 0;
}

void link_send_flush(struct link *l) {
    while (l->out_first != NULL) {
        struct link_packet *p = l->out_first;
        struct err err;
        if (fd_send(l->fd, p->data, p->len, p->fds, p->fd_count, &err) < 0) {
            if (err.code != EAGAIN && err.code != ENOBUFS && err.code != ETOOMANYREFS)
                link_send_fail(l, &err);
            return;
        }
        l->out_first = p->next;
        l->out_count--;
        link_send_packet_free(p);
    }
    l->out_last = NULL;
    loop_mod(l->loop, &l->source, EPOLLIN, NULL);
}
