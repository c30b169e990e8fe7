/* Theory of operation. A helper process with a mount and a process namespace of its own assembles
 * the root by descriptors (mnt.h), stacks it on the old root, pivots into it and drops the old
 * root, and sends the mount namespace back as a descriptor. The table of steps is the whole story;
 * each step fails closed under its own name. The helper is process 1 of its process namespace, so
 * the procfs that it mounts shows nobody once it is gone. It holds whatever it opened until it
 * exits, which is soon. */
#include "rootfs.h"

#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "rootfs_steps.h"
#include "str.h"

/* A /usr on a dead network file system must not hang the runner. */
#define ROOTFS_TIMEOUT_MS 30000

/* What the helper sends: the number of the step that failed with its error, or rootfs_step_count
 * with the namespace attached. */
struct rootfs_report {
    size_t step;
    struct err err;
};

static void rootfs_helper(const struct rootfs_config *cfg, int sock) {
    struct rootfs_build b = {cfg, -1, -1, -1, -1, {-1, -1}, {-1, -1}};
    struct rootfs_report report = {0};
    bool host = strcmp(cfg->image, ROOTFS_IMAGE_HOST) == 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)umask(0);
    for (report.step = 0; report.step < rootfs_step_count; report.step++) {
        const struct rootfs_step *step = &rootfs_steps[report.step];
        if ((step->kind & (host ? ROOTFS_HOST : ROOTFS_IMAGE)) && step->run(&b, &report.err) != 0) {
            break;
        }
    }
    bool done = report.step == rootfs_step_count;
    int rc = fd_send(sock, &report, sizeof report, &b.mnt_ns, done ? 1 : 0, NULL);
    _exit(rc == 0 && done ? 0 : 1);
}

/* fork() into a process namespace of its own. */
static pid_t rootfs_fork(void) {
    struct clone_args args = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static int rootfs_wait_report(int sock, struct err *err) {
    uint64_t due = clock_mono_ms() + ROOTFS_TIMEOUT_MS;
    for (;;) {
        struct pollfd p = {.fd = sock, .events = POLLIN};
        uint64_t now = clock_mono_ms();
        int rc = now < due ? poll(&p, 1, (int)(due - now)) : 0;
        if (rc > 0) {
            return 0;
        }
        if (rc == 0) {
            return err_set(err, ERR_SYSTEM, ETIMEDOUT, "no answer within %d s",
                           ROOTFS_TIMEOUT_MS / 1000);
        }
        if (errno != EINTR) {
            return err_sys(err, "wait for the helper");
        }
    }
}

/* -> the namespace, or -1 with the helper's error under the name of its step. */
static int rootfs_take_report(int sock, struct err *err) {
    struct rootfs_report report;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    if (rootfs_wait_report(sock, err) != 0) {
        return -1;
    }
    ssize_t n = fd_recv(sock, &report, sizeof report, fds, &nfds, NULL, err);
    if (n < 0) {
        return -1;
    }
    if ((size_t)n == sizeof report && nfds == 1 && report.step == rootfs_step_count) {
        return fds[0];
    }
    for (size_t i = 0; i < nfds; i++) {
        fd_close(&fds[i]);
    }
    if ((size_t)n != sizeof report || report.step >= rootfs_step_count) {
        return err_set(err, ERR_PROTOCOL, 0, "the helper ended without a report");
    }
    if (err != NULL) {
        *err = report.err;
    }
    return err_wrap(err, "step %s", rootfs_steps[report.step].name);
}

int rootfs_build(const struct rootfs_config *cfg, struct rootfs *out, struct err *err) {
    int pair[2];
    if (!str_is_name(cfg->image)) {
        return err_set(err, ERR_INVALID, EINVAL, "that is not the name of an image");
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "template of image %s: make a socket pair", cfg->image);
    }
    fd_cleanup int ours = pair[0];
    fd_cleanup int theirs = pair[1];
    pid_t pid = rootfs_fork();
    if (pid < 0) {
        return err_sys(err, "template of image %s: start the helper", cfg->image);
    }
    if (pid == 0) {
        rootfs_helper(cfg, theirs);
    }
    fd_close(&theirs); /* so that the end of the helper is the end of the file */
    int ns = rootfs_take_report(ours, err);
    (void)kill(pid, SIGKILL); /* it is done, or must be: nothing it could still do is wanted */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    if (ns < 0) {
        return err_wrap(err, "template of image %s", cfg->image);
    }
    out->mnt_ns = ns;
    return 0;
}

void rootfs_done(struct rootfs *r) {
    if (r != NULL) {
        fd_close(&r->mnt_ns);
    }
}
