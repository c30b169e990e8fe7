#include "bench_floor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_cgroup.h"
#include "bench_floor_child.h"
#include "bench_floor_root.h"
#include "clock.h"
#include "fd.h"

#define BENCH_FLOOR_STACK 65536u
#define BENCH_FLOOR_ID_BASE 1879048192u /* of the outside ids */
#define BENCH_FLOOR_ID_COUNT 2000u

/* The phases of the parent; those of the child follow. */
enum bench_floor_phase_id {
    BENCH_FLOOR_MAKE,
    BENCH_FLOOR_LIMIT,
    BENCH_FLOOR_CLONE,
    BENCH_FLOOR_MAPS,
    BENCH_FLOOR_ATTACH,
    BENCH_FLOOR_REMOVE,
    BENCH_FLOOR_EXEC, /* from the child's last step to the end of wait() */
    BENCH_FLOOR_PARENT,
};

static const char *const bench_floor_names[BENCH_FLOOR_PARENT] = {
    [BENCH_FLOOR_MAKE] = "cgroup: make",           [BENCH_FLOOR_LIMIT] = "cgroup: limits",
    [BENCH_FLOOR_CLONE] = "clone with namespaces", [BENCH_FLOOR_MAPS] = "id maps",
    [BENCH_FLOOR_ATTACH] = "cgroup: attach",       [BENCH_FLOOR_REMOVE] = "cgroup: remove",
    [BENCH_FLOOR_EXEC] = "exec true, exit, wait",
};

struct bench_floor {
    const struct bench_floor_config *config;
    struct bench_cgroups cgroups;
    struct bench_child child;
    void *stack;
    uint64_t phase_ns[BENCH_FLOOR_PARENT];
};

const char *bench_floor_phase(unsigned phase) {
    if (phase < BENCH_FLOOR_PARENT)
        return bench_floor_names[phase];
    return bench_child_step(phase - BENCH_FLOOR_PARENT);
}

static void bench_floor_end(void *state) {
    struct bench_floor *f = state;
    bench_cgroup_done(&f->cgroups);
    if (f->stack != MAP_FAILED)
        munmap(f->stack, BENCH_FLOOR_STACK);
    free(f);
}

static void *bench_floor_begin(const void *config, struct err *err) {
    struct bench_floor *f = calloc(1, sizeof(*f));
    if (!f) {
        errno = ENOMEM;
        err_sys(err, "room for the floor loop");
        return NULL;
    }
    char name[32];
    snprintf(name, sizeof(name), BENCH_CGROUP_PREFIX "%d", getpid());
    f->config = config;
    bench_child_init(&f->child, &f->config->filter);
    f->stack = mmap(NULL, BENCH_FLOOR_STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (f->stack == MAP_FAILED)
        err_sys(err, "map a stack");
    else if (bench_cgroup_init(&f->cgroups, name, err) == 0 && bench_floor_root_enter(err) == 0)
        return f;
    bench_floor_end(f);
    return NULL;
}

/* The step after which the last time stamp was taken ended now. */
static void bench_floor_mark(struct bench_floor *f, unsigned phase, uint64_t *last_ns) {
    uint64_t now = clock_mono_ns();
    f->phase_ns[phase] = now - *last_ns;
    *last_ns = now;
}

static int bench_floor_map(pid_t pid, struct err *err) {
    static const char *const files[] = {"uid_map", "gid_map"};
    char path[48], text[64];
    int len = snprintf(text, sizeof(text), "0 %u %u\n", BENCH_FLOOR_ID_BASE, BENCH_FLOOR_ID_COUNT);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
        if (fd_write_kernel(AT_FDCWD, path, text, (size_t)len, err) < 0)
            return -1;
    }
    return 0;
}

static int bench_floor_lead(struct bench_floor *f, const struct bench_cgroup_jail *jail, pid_t pid,
                            uint64_t *last_ns, struct err *err) {
    if (bench_floor_map(pid, err) < 0)
        return -1;
    bench_child_open(&f->child, BENCH_CHILD_MAPPED);
    bench_floor_mark(f, BENCH_FLOOR_MAPS, last_ns);
    if (bench_cgroup_attach(&f->cgroups, jail, pid, err) < 0)
        return -1;
    bench_child_open(&f->child, BENCH_CHILD_ATTACHED);
    bench_floor_mark(f, BENCH_FLOOR_ATTACH, last_ns);
    return 0;
}

static int bench_floor_wait(struct bench_floor *f, pid_t pid, struct err *err) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for the floor's child");
    const struct bench_child *c = &f->child;
    if (c->failed) {
        const char *step = bench_child_step(c->failed - 1);
        return err_set(err, ERR_SYSTEM, c->code, "the floor's jail: step %s: %s",
                       step ? step : "exec", strerror(c->code));
    }
    if (status)
        return err_set(err, ERR_STATE, 0, "the floor's child ended with wait status %#x",
                       (unsigned)status);
    return 0;
}

static int bench_floor_jail(struct bench_floor *f, const struct bench_cgroup_jail *jail,
                            uint64_t *last_ns, struct err *err) {
    const int flags = CLONE_VM | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                      CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD;
    atomic_store(&f->child.gate, BENCH_CHILD_WAIT);
    f->child.failed = 0;
    pid_t pid = clone(bench_child_main, (char *)f->stack + BENCH_FLOOR_STACK, flags, &f->child);
    if (pid < 0)
        return err_sys(err, "clone the floor's child");
    bench_floor_mark(f, BENCH_FLOOR_CLONE, last_ns);
    if (bench_floor_lead(f, jail, pid, last_ns, err) < 0) {
        kill(pid, SIGKILL);
        (void)bench_floor_wait(f, pid, NULL);
        return -1;
    }
    return bench_floor_wait(f, pid, err);
}

static void bench_floor_record(struct bench_floor *f, uint64_t wait_ns) {
    struct bench_floor_phases *p = f->config->phases;
    if (!p || p->laps == BENCH_FLOOR_PHASE_LAPS)
        return;
    const uint64_t *mark = f->child.mark_ns;
    unsigned steps = 0;
    for (; bench_child_step(steps); steps++)
        p->ns[BENCH_FLOOR_PARENT + steps][p->laps] = mark[steps + 1] - mark[steps];
    f->phase_ns[BENCH_FLOOR_EXEC] = wait_ns - mark[steps];
    for (unsigned i = 0; i < BENCH_FLOOR_PARENT; i++)
        p->ns[i][p->laps] = f->phase_ns[i];
    p->laps++;
}

static int bench_floor_once(void *state, struct bench_lap *lap, struct err *err) {
    struct bench_floor *f = state;
    struct bench_cgroup_jail jail;
    uint64_t start = clock_mono_ns(), last = start;
    int rc = bench_cgroup_make(&f->cgroups, &jail, err);
    bench_floor_mark(f, BENCH_FLOOR_MAKE, &last);
    if (rc == 0)
        rc = bench_cgroup_limit(&f->cgroups, &jail, err);
    bench_floor_mark(f, BENCH_FLOOR_LIMIT, &last);
    if (rc == 0)
        rc = bench_floor_jail(f, &jail, &last, err);
    uint64_t done = clock_mono_ns();
    last = done;
    if (bench_cgroup_remove(&f->cgroups, &jail, rc < 0 ? NULL : err) < 0)
        rc = -1;
    bench_floor_mark(f, BENCH_FLOOR_REMOVE, &last);
    lap->done_ns = done - start;
    lap->removed_ns = last - start;
    bench_floor_record(f, done);
    return rc;
}

struct bench_subject bench_floor_subject(const struct bench_floor_config *config) {
    return (struct bench_subject){
        .begin = bench_floor_begin,
        .once = bench_floor_once,
        .end = bench_floor_end,
        .config = config,
    };
}
