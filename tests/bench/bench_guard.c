#include "bench_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_cgroup.h"
#include "bench_proc.h"
#include "bench_service.h"
#include "clock.h"

#define BENCH_GUARD_CHILDREN 64
#define BENCH_GUARD_ROUNDS 8 /* the children of those that end become ours in turn */
#define BENCH_GUARD_STOP_MS 15000u

/* Waits for the end of `pid`. -> its exit code. */
static int bench_guard_watch(pid_t pid, const sigset_t *set) {
    uint64_t give_up = clock_mono_ms() + BENCH_GUARD_LIMIT_S * 1000;
    int status = 0;
    pid_t rc;
    while ((rc = waitpid(pid, &status, WNOHANG)) == 0) {
        struct timespec second = {.tv_sec = 1};
        int sig = sigtimedwait(set, NULL, &second);
        if (sig > 0 && sig != SIGCHLD) {
            fprintf(stderr, "bench: stopped by a signal\n");
            kill(pid, SIGKILL);
        }
        if (clock_mono_ms() > give_up) {
            fprintf(stderr, "bench: not done after %d s\n", BENCH_GUARD_LIMIT_S);
            kill(pid, SIGKILL);
        }
    }
    return rc == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Processes whose parent has ended are ours now: services that nobody could stop in order. */
static void bench_guard_clean(void) {
    pid_t pid[BENCH_GUARD_CHILDREN];
    for (int round = 0; round < BENCH_GUARD_ROUNDS; round++) {
        size_t count = bench_proc_children(pid, BENCH_GUARD_CHILDREN);
        if (!count)
            break;
        for (size_t i = 0; i < count; i++)
            kill(pid[i], SIGTERM);
        for (size_t i = 0; i < count; i++)
            bench_service_reap(pid[i], BENCH_GUARD_STOP_MS);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    bench_cgroup_sweep();
}

int bench_guard_split(struct err *err) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaddset(&set, signals[i]);
    if (sigprocmask(SIG_BLOCK, &set, &before) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return err_sys(err, "become the guard");
    pid_t guard = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "start the worker");
    if (pid == 0) {
        /* A terminal's Ctrl-C goes to the whole group; the guard decides what becomes of it. */
        if (setpgid(0, 0) < 0 || sigprocmask(SIG_SETMASK, &before, NULL) < 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            return err_sys(err, "set up the worker");
        return getppid() == guard ? 0 : err_set(err, ERR_STATE, 0, "the guard is gone");
    }
    int code = bench_guard_watch(pid, &set);
    bench_guard_clean();
    exit(code);
}
