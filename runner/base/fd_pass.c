/* Packets with descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds, struct err *err) {
    /* A datagram without bytes looks like an end of file to the receiver. */
    if (len == 0 || nfds > FD_PASS_MAX)
        return err_set(err, ERR_INVALID, 0, "cannot send %zu bytes with %zu descriptors", len,
                       nfds);
    union {
        char bytes[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = control.bytes;
        msg.msg_controllen = (socklen_t)CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = (socklen_t)CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, "cannot send a packet of %zu bytes", len);
    return 0;
}

#define FD_KERNEL_MAX 253 /* SCM_MAX_FD: what did not fit the kernel would close, and wait for */

/* Process 1 of a jail hears nobody but the runner, and goes without. */
#pragma weak fd_drop

/* What came beside the bytes. */
struct fd_control {
    int fds[FD_KERNEL_MAX];
    size_t nfds;
    struct ucred cred;
};

/* musl's macro mixes signs; the warning is about its inside. */
static struct cmsghdr *fd_control_next(struct msghdr *msg, struct cmsghdr *c) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
    return CMSG_NXTHDR(msg, c);
#pragma GCC diagnostic pop
}

static void fd_control_take(struct fd_control *got, struct msghdr *msg) {
    got->nfds = 0;
    got->cred = (struct ucred){.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = fd_control_next(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len >= CMSG_LEN(sizeof(got->cred)))
            memcpy(&got->cred, CMSG_DATA(c), sizeof(got->cred));
        if (c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && got->nfds < FD_KERNEL_MAX; i++)
            memcpy(&got->fds[got->nfds++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
}

static ssize_t fd_take(int sock, void *data, size_t size, struct fd_control *got, int *flags) {
    union {
        char bytes[CMSG_SPACE(FD_KERNEL_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control)};
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        fd_control_take(got, &msg);
    *flags = msg.msg_flags;
    return n;
}

ssize_t fd_recv(int sock, void *data, size_t size, int fds[FD_PASS_MAX], size_t *nfds,
                struct ucred *cred, struct err *err) {
    struct fd_control got;
    int flags = 0;
    ssize_t n = fd_take(sock, data, size, &got, &flags);
    if (n < 0)
        return err_sys(err, "cannot receive a packet");
    const char *wrong = NULL;
    if (flags & MSG_TRUNC)
        wrong = "a packet was longer than any may be";
    else if (got.nfds > FD_PASS_MAX || (flags & MSG_CTRUNC))
        wrong = "a packet came with more descriptors than any may have";
    else if (n == 0 && got.nfds)
        wrong = "a packet came with descriptors and no bytes";
    if (wrong) {
        for (size_t i = 0; i < got.nfds && !fd_drop; i++)
            fd_close(&got.fds[i]);
        if (fd_drop)
            fd_drop(got.fds, got.nfds);
        return err_set(err, ERR_PROTOCOL, 0, "%s", wrong);
    }
    memcpy(fds, got.fds, got.nfds * sizeof(int));
    *nfds = got.nfds;
    if (cred)
        *cred = got.cred;
    return n;
}
