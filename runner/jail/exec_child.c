/* From the request for a child to the moment when it waits to exec. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec.h"
#include "fd.h"
#include "jail.h"

#define EXEC_OOM_ADJ "500" /* above every process of the host, as in setup.c */

bool exec_is_ours(const struct exec *x) {
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)x->outside_pid);
    return stat(path, &st) == 0 && st.st_ino == x->jail->pid_ns;
}

/* Process 1 of a container is in the group whose memory runs out, and a command can be smaller than
 * it: the kernel is to take the command all the same. Nothing inside can write this. */
static int exec_offer(const struct exec *x, pid_t pid, struct err *err) {
    char path[64];
    if (!x->jail->host->maker->contained) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    return fd_write_kernel(AT_FDCWD, path, EXEC_OOM_ADJ, strlen(EXEC_OOM_ADJ), err);
}

static void exec_hello(struct exec *x, const struct initmsg_report *r, const struct ucred *cred) {
    struct err err;
    const struct initmsg_word go = {.type = INITMSG_GO, .first = x->ordinal == 0};
    if (x->state != EXEC_FORKED || cred->pid <= 0) {
        jail_fail(x->jail, "hello", EPROTO, "an unexpected process spoke on a child's socket");
        return;
    }
    x->inside_pid = r->pid;
    x->outside_pid = cred->pid;
    /* Its number comes from the kernel, so this can only fail if it has died since. First of all:
     * whoever has that number by then must not come into a group that is about to be killed. */
    if (!exec_is_ours(x)) {
        jail_fail(x->jail, "hello", ESRCH, "a child vanished while it was set up");
        return;
    }
    if (cgroup_step_attach(x->jail->host->cgroups, &x->jail->cgroup, &x->cgroup, cred->pid, &err) !=
        0) {
        if (err.code == ESRCH) {
            loop_del(x->jail->host->loop, &x->src); /* it died meanwhile: process 1 reports it */
            return;
        }
        if (!jail_displaces(x->jail, x, &err)) {
            jail_fail(x->jail, "cgroup attach", err.code, err.text);
        }
        return;
    }
    if (exec_offer(x, cred->pid, &err) != 0) {
        jail_fail(x->jail, "oom score", err.code, err.text);
        return;
    }
    x->state = EXEC_CONFINED;
    if (fd_send(x->sock, &go, sizeof go, NULL, 0, &err) != 0 && err.code != EPIPE) {
        jail_fail(x->jail, "go", err.code, err.text);
    } else if (go.first) {
        jail_seal(x->jail);
    }
}

static void exec_setup_event(void *arg, uint32_t events) {
    struct exec *x = arg;
    struct initmsg_report r;
    struct ucred cred = {0};
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    struct err err;
    (void)events;
    ssize_t n = fd_recv(x->sock, &r, sizeof r, fds, &nfds, &cred, &err);
    fd_drop(fds, n > 0 ? nfds : 0);
    if (n < 0 && err.code == EAGAIN) {
        return;
    }
    if (n < 0 && err.code != ECONNRESET) {
        jail_fail(x->jail, "child", err.code != 0 ? err.code : EPROTO, err.text); /* it waits */
        return;
    }
    if (n <= 0) {
        loop_del(x->jail->host->loop, &x->src); /* process 1 reports why, or dies itself */
        return;
    }
    if (n != (ssize_t)sizeof r || nfds != 0) {
        jail_fail(x->jail, "child", EPROTO, "a child sent a malformed message");
        return;
    }
    if (r.type == INITMSG_HELLO) {
        exec_hello(x, &r, &cred);
    } else if (r.type == INITMSG_READY && x->state == EXEC_CONFINED) {
        x->state = EXEC_READY;
        loop_del(x->jail->host->loop, &x->src); /* nothing more to hear before it has ended */
        jail_exec_ready(x->jail, x);
    } else {
        r.stage[sizeof r.stage - 1] = '\0';
        jail_fail(x->jail, r.type == INITMSG_REFUSED ? r.stage : "child", r.code,
                  "a child could not be confined");
    }
}

static int exec_fork(struct exec *x, int child_sock, struct err *err) {
    const struct initmsg_fork msg = {.type = INITMSG_FORK, .exec = x->ordinal};
    return fd_send(x->jail->control, &msg, sizeof msg, &child_sock, 1, err);
}

int exec_connect(struct exec *x, struct err *err) {
    int pair[2];
    int on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "making a child's socket");
    }
    x->sock = pair[0];
    fd_cleanup int child = pair[1];
    if (setsockopt(x->sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        fcntl(x->sock, F_SETFL, O_NONBLOCK) != 0) {
        return err_sys(err, "preparing a child's socket");
    }
    if (loop_add(x->jail->host->loop, &x->src, x->sock, EPOLLIN, exec_setup_event, x, err) != 0) {
        return -1;
    }
    return exec_fork(x, child, err);
}

struct exec *exec_new(struct jail *jail, unsigned ordinal, struct err *err) {
    struct exec *x = calloc(1, sizeof *x);
    if (x == NULL) {
        (void)err_sys(err, "making an execution");
        return NULL;
    }
    x->jail = jail;
    x->ordinal = ordinal;
    x->sock = x->pidfd = -1;
    x->src.fd = x->pid_src.fd = -1;
    cgroup_step_init(&x->cgroup);
    return x;
}

int exec_make_cgroup(struct exec *x, struct err *err) {
    const struct cgroup_host *host = x->jail->host->cgroups;
    if (cgroup_step_make(host, &x->jail->cgroup, x->ordinal, x->jail->sandbox, &x->cgroup, err) !=
        0) {
        return -1;
    }
    if (cgroup_step_limit(host, &x->cgroup, &x->jail->limits, err) != 0) {
        return -1;
    }
    if (x->jail->sandbox) {
        return 0;
    }
    return cgroup_step_watch(host, &x->cgroup, err) != 0
               ? -1
               : cgroup_step_expect(host, &x->jail->cgroup, &x->cgroup, err);
}

/* The directory in /proc stands for the very process that was looked at. */
static void exec_signal_child(const struct exec *x, int sig) {
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)x->outside_pid);
    fd_cleanup int child = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (child >= 0 && fstatat(child, "ns/pid", &st, 0) == 0 && st.st_ino == x->jail->pid_ns) {
        (void)syscall(SYS_pidfd_send_signal, child, sig, NULL, 0);
    }
}

/* Where jail_shares_user(), other commands of the sandbox can stop the child that waits. */
void exec_wake(const struct exec *x) {
    exec_signal_child(x, SIGCONT);
}

void exec_kill_child(const struct exec *x) {
    exec_signal_child(x, SIGKILL);
}
