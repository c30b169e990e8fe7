/* How to be rid of descriptors that others have chosen. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"

#define FD_DROP_MAX 256 /* the kernel passes 253 at once */

static bool fd_is_plain(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) != 0 && !S_ISSOCK(st.st_mode);
}

/* For want of a process: of a socket itself, at least, the close does not wait. */
static void fd_close_now(int *fds, size_t n) {
    const struct linger none = {.l_onoff = 0};
    for (size_t i = 0; i < n; i++) {
        (void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &none, sizeof none);
        fd_close(&fds[i]);
    }
}

/* The other process has them, too, until they are closed here, and exits then. */
static void fd_bury(int *fds, size_t n) {
    int gate[2];
    pid_t pid = pipe2(gate, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0) {
        char byte;
        close(gate[1]);
        while (read(gate[0], &byte, 1) < 0 && errno == EINTR) {
        }
        _exit(0);
    }
    if (pid < 0) {
        fd_close_now(fds, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        fd_close(&fds[i]);
    close(gate[0]);
    close(gate[1]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void fd_drop(int *fds, size_t n) {
    size_t rest = 0;
    int saved = errno;
    int odd[FD_DROP_MAX];
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0 && !fd_is_plain(fds[i]) && rest < FD_DROP_MAX)
            odd[rest++] = fd_steal(&fds[i]);
        fd_close(&fds[i]);
    }
    if (rest > 0)
        fd_bury(odd, rest);
    errno = saved;
}

void fd_hang_up(int *sock) {
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    char byte;
    int on = 1;
    int saved = errno;
    if (*sock < 0)
        return;
    /* Nothing is added from here on; and credentials tell a packet without bytes from the end. */
    (void)shutdown(*sock, SHUT_RD);
    (void)setsockopt(*sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    for (;;) {
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(*sock, &msg, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 || msg.msg_controllen == 0) {
            fd_close(sock);
            break;
        }
        /* There was no room for descriptors: some are there, and stay in the queue. */
        if (msg.msg_flags & MSG_CTRUNC) {
            fd_drop(sock, 1);
            break;
        }
        (void)!read(*sock, &byte, 1);
    }
    errno = saved;
}
