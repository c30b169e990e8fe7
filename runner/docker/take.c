#include "take.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "initmsg.h"

/* Looked at after the process was opened: if that one had died and its number had gone to another
 * process before, it is that one's groups that are seen. */
int take_process(pid_t pid, const char *id, struct err *err) {
    char path[64];
    struct buf groups;
    fd_cleanup int pidfd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pidfd < 0) {
        return err_sys(err, "opening process 1 of a container");
    }
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    buf_init(&groups, 65536);
    bool ours = fd_read_file(AT_FDCWD, path, &groups, NULL) == 0 && groups.len > 0 &&
                strlen(id) >= 32 && strstr(groups.data, id) != NULL;
    buf_done(&groups);
    if (!ours) {
        return err_set(
            err, ERR_STATE, ESRCH,
            "the process that the engine calls process 1 of a container is in no control "
            "group of it");
    }
    return fd_steal(&pidfd);
}

static bool take_option(int fd, int option, int want) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 && value == want;
}

/* What stands at that number may still be the engine's, which has not executed it yet: only a pair
 * that the process made itself will do. */
int take_control(int pidfd, pid_t pid, struct err *err) {
    struct ucred cred = {0};
    socklen_t len = sizeof cred;
    fd_cleanup int fd = (int)syscall(SYS_pidfd_getfd, pidfd, INITMSG_FAR_FD, 0);
    if (fd < 0 && errno == EBADF) {
        return err_set(err, ERR_STATE, EAGAIN, "process 1 of a container has not begun yet");
    }
    if (fd < 0) {
        return err_sys(err, "taking the control socket of process 1 of a container");
    }
    if (!take_option(fd, SO_DOMAIN, AF_UNIX) || !take_option(fd, SO_TYPE, SOCK_SEQPACKET) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.pid != pid) {
        return err_set(err, ERR_STATE, EAGAIN, "process 1 of a container has not begun yet");
    }
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return err_sys(err, "preparing the control socket of a container");
    }
    return fd_steal(&fd);
}
