#include "bench_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

/* What a worker hands back, in memory shared with its parent. */
struct bench_worker {
    pid_t pid; /* 0 = not running */
    uint32_t laps;
    uint64_t end_ns; /* of the last lap */
    struct err err;
    struct bench_lap lap[BENCH_LOOP_LAPS_MAX];
};

/* A call of bench_loop_run(). Workers say that they are ready by one byte; closing `go` starts all
 * of them at the same moment. */
struct bench_loop {
    const struct bench_subject *subject;
    const struct bench_plan *plan;
    struct bench_worker *worker; /* [plan->workers] */
    int ready[2];
    int go[2];
    uint64_t start_ns;
};

void bench_times_done(struct bench_times *t) {
    if (!t)
        return;
    bench_series_done(&t->done);
    bench_series_done(&t->removed);
}

static void bench_sleep_until(uint64_t due_ns) {
    struct timespec ts = {.tv_sec = (time_t)(due_ns / CLOCK_NS_PER_S),
                          .tv_nsec = (long)(due_ns % CLOCK_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        continue;
}

static int bench_worker_laps(struct bench_worker *w, const struct bench_loop *l, void *state) {
    const struct bench_plan *plan = l->plan;
    uint64_t start = clock_mono_ns();
    uint64_t due = start;
    for (;;) {
        uint64_t now = clock_mono_ns();
        if (w->laps == (plan->count ? plan->count : BENCH_LOOP_LAPS_MAX))
            return 0;
        if (!plan->count && now - start >= plan->span_ns)
            return 0;
        if (plan->step_ns) {
            due += plan->step_ns;
            while (due < now)
                due += plan->step_ns;
            bench_sleep_until(due);
        }
        struct bench_lap lap = {0};
        if (l->subject->once(state, &lap, &w->err) < 0)
            return -1;
        w->lap[w->laps++] = lap;
        w->end_ns = clock_mono_ns();
    }
}

/* The worker process. Its exit code is 0 when all went well; else w->err says why. */
static int bench_worker_main(struct bench_worker *w, struct bench_loop *l) {
    signal(SIGALRM, SIG_DFL);
    alarm(BENCH_LOOP_ALARM_S);
    fd_close(&l->ready[0]);
    fd_close(&l->go[1]);
    void *state = l->subject->begin(l->subject->config, &w->err);
    if (!state)
        return 1;
    char byte = 0;
    int rc = -1;
    if (write(l->ready[1], &byte, 1) != 1)
        err_sys(&w->err, "tell that a worker is ready");
    else if (read(l->go[0], &byte, 1) != 0)
        err_sys(&w->err, "wait for the common start");
    else
        rc = bench_worker_laps(w, l, state);
    l->subject->end(state);
    return rc < 0 ? 1 : 0;
}

static int bench_worker_start(struct bench_worker *w, struct bench_loop *l, struct err *err) {
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "start a worker process");
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
            _exit(1);
        _exit(bench_worker_main(w, l));
    }
    w->pid = pid;
    return 0;
}

static int bench_worker_wait(struct bench_worker *w, struct err *err) {
    int status = 0;
    pid_t pid = w->pid;
    w->pid = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for a worker process");
    if (w->err.kind != ERR_NONE) {
        if (err)
            *err = w->err;
        return -1;
    }
    if (WIFSIGNALED(status))
        return err_set(err, ERR_STATE, 0, "a worker process was killed by signal %d",
                       WTERMSIG(status));
    if (status)
        return err_set(err, ERR_STATE, 0, "a worker process failed");
    return 0;
}

static int bench_loop_start(struct bench_loop *l, struct err *err) {
    if (pipe2(l->ready, O_CLOEXEC) < 0 || pipe2(l->go, O_CLOEXEC) < 0)
        return err_sys(err, "make a pipe");
    for (unsigned i = 0; i < l->plan->workers; i++)
        if (bench_worker_start(&l->worker[i], l, err) < 0)
            return -1;
    /* Without our own copies, a worker that dies early is an end of file and not a hang. */
    fd_close(&l->ready[1]);
    fd_close(&l->go[0]);
    for (unsigned i = 0; i < l->plan->workers; i++) {
        char byte;
        if (read(l->ready[0], &byte, 1) != 1)
            break; /* bench_worker_wait() knows more */
    }
    l->start_ns = clock_mono_ns();
    fd_close(&l->go[1]);
    return 0;
}

static int bench_loop_collect(const struct bench_worker *w, struct bench_times *times,
                              struct err *err) {
    for (uint32_t i = 0; times && i < w->laps; i++) {
        if (bench_series_add(&times->done, w->lap[i].done_ns, err) < 0)
            return -1;
        if (w->lap[i].removed_ns &&
            bench_series_add(&times->removed, w->lap[i].removed_ns, err) < 0)
            return -1;
    }
    return 0;
}

int bench_loop_run(const struct bench_subject *subject, const struct bench_plan *plan,
                   struct bench_times *times, uint64_t *laps, uint64_t *elapsed_ns,
                   struct err *err) {
    if (plan->workers < 1 || plan->workers > BENCH_LOOP_WORKERS_MAX ||
        plan->count > BENCH_LOOP_LAPS_MAX)
        return err_set(err, ERR_INVALID, 0, "no such plan");
    struct bench_loop l = {.subject = subject, .plan = plan, .ready = {-1, -1}, .go = {-1, -1}};
    size_t size = plan->workers * sizeof(*l.worker);
    l.worker = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (l.worker == MAP_FAILED)
        return err_sys(err, "map %zu bytes for samples", size);
    int rc = bench_loop_start(&l, err);
    for (int i = 0; i < 2; i++) {
        fd_close(&l.ready[i]);
        fd_close(&l.go[i]);
    }
    uint64_t count = 0, end_ns = l.start_ns;
    for (unsigned i = 0; i < plan->workers; i++) {
        struct bench_worker *w = &l.worker[i];
        if (w->pid && rc < 0)
            kill(w->pid, SIGKILL);
        if (w->pid && bench_worker_wait(w, rc < 0 ? NULL : err) < 0)
            rc = -1;
        if (rc == 0)
            rc = bench_loop_collect(w, times, err);
        count += w->laps;
        if (w->end_ns > end_ns)
            end_ns = w->end_ns;
    }
    if (elapsed_ns)
        *elapsed_ns = end_ns - l.start_ns;
    if (laps)
        *laps = count;
    munmap(l.worker, size);
    return rc;
}
