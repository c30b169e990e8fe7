/* The terminal of a command.
 *
 * That a descriptor does not block is a property of the open file, and all who have it can change
 * that: whoever had taken process 1 over and kept the master could make the server, which reads and
 * writes for all users, wait for ever. So the child says where terminals of its jail are made, the
 * master is opened here, and the child is given the other side. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "exec.h"
#include "fd.h"
#include "jail.h"

#define EXEC_PTMX makedev(5, 2)

/* Process 1 may be anything's: to open something else could have any effect. */
bool exec_is_ptmx(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == EXEC_PTMX;
}

/* It belongs to the child's user, as if that had opened it. */
static int exec_terminal_open(int ptmx, const struct ucred *child, int *slave) {
    char path[64];
    int unlock = 0;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", ptmx);
    int master = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (master < 0) {
        return -1;
    }
    *slave = ioctl(master, TIOCSPTLCK, &unlock) == 0
                 ? ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)
                 : -1;
    if (*slave < 0 || fchown(*slave, child->uid, child->gid) != 0) {
        int code = errno;
        fd_close(slave);
        fd_close(&master);
        errno = code;
        return -1;
    }
    return master;
}

void exec_terminal(struct exec *x, int ptmx, const struct ucred *child) {
    struct err err;
    int slave = -1;
    int master = exec_terminal_open(ptmx, child, &slave);
    const struct initmsg_word word = {.type = INITMSG_SLAVE,
                                      .first = master < 0 ? (uint32_t)errno : 0};
    /* Who does not listen has no command to start either. */
    (void)fd_send(x->sock, &word, sizeof word, &slave, master < 0 ? 0 : 1, &err);
    fd_close(&slave);
    if (master >= 0) {
        jail_exec_terminal(x->jail, x, master);
    }
}
