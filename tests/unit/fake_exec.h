/* What exec.c and end.c stand in, played: the jail, its control groups, the clock and the processes
 * of an execution. For one file of a program. */
#pragma once

#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"
#include "unit.h"

#define MS CLOCK_NS_PER_MS
#define WALL_MS 50u
#define CPU_MS 20u
#define MEM ((uint64_t)64 << 20)

/* The world outside of exec.c, and what is true of it. */
struct world {
    uint64_t now_ns;
    struct jail jail;
    struct jail_host host;
    struct cgroup_host cgroups;
    struct exec *x;
    int child; /* its end of the socket */
    bool started, refused, alive, stragglers, frozen, reported;
    int status; /* once it is dead */
    uint64_t died_ns, start_ns, frozen_since_ns, frozen_ns;
    uint64_t cpu_ns, oom_kills, peak;
    uint32_t first; /* enum cause that came first; 0 = nothing yet */
    bool typing;    /* a terminal was asked for */
    unsigned ends, fails, kills, terminals;
    struct wire_end end;
};

static struct world w;

uint64_t clock_mono_ns(void) {
    return w.now_ns;
}

uint64_t clock_mono_ms(void) {
    return w.now_ns / MS;
}

uint64_t clock_real_ms(void) {
    return w.now_ns / MS;
}

/* The jail. */

void jail_fail(struct jail *jail, const char *stage, int code, const char *text) {
    (void)jail;
    (void)stage;
    (void)code;
    (void)text;
    w.fails++;
}

void jail_hear(struct jail *jail) {
    (void)jail;
}

void jail_exec_done(struct jail *jail, struct exec *exec, const struct wire_end *end) {
    assert_ptr_equal(jail, &w.jail);
    assert_ptr_equal(exec, w.x);
    w.ends++;
    w.end = *end;
}

void jail_exec_terminal(struct jail *jail, struct exec *exec, int master) {
    (void)jail;
    (void)exec;
    assert_true(w.typing); /* else nobody asked for a terminal */
    w.terminals++;
    fd_close(&master);
}

void jail_seal(struct jail *jail) {
    (void)jail;
}

bool jail_displaces(struct jail *jail, struct exec *exec, const struct err *err) {
    (void)jail, (void)exec, (void)err;
    return false;
}

void jail_exec_ready(struct jail *jail, struct exec *exec) {
    (void)jail;
    (void)exec;
}

bool jail_shares_user(const struct jail *jail) {
    return jail->host->maker->contained;
}

int jail_disk(const struct jail *jail, uint64_t *bytes, uint64_t *inodes, bool *full) {
    (void)jail;
    *bytes = *inodes = 0;
    *full = false;
    return 0;
}

/* Its groups. */

void cgroup_step_init(struct cgroup_step *step) {
    memset(step, 0, sizeof(*step));
}

int cgroup_step_make(const struct cgroup_host *host, struct cgroup_jail *jail, unsigned n, bool own,
                     struct cgroup_step *step, struct err *err) {
    (void)host, (void)jail, (void)n, (void)own, (void)step, (void)err;
    return 0;
}

int cgroup_step_limit(const struct cgroup_host *host, const struct cgroup_step *step,
                      const struct limits *limits, struct err *err) {
    (void)host, (void)step, (void)limits, (void)err;
    return 0;
}

int cgroup_step_watch(const struct cgroup_host *host, struct cgroup_step *step, struct err *err) {
    (void)host, (void)step, (void)err;
    return 0;
}

int cgroup_step_expect(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err) {
    (void)host, (void)jail, (void)step, (void)err;
    return 0;
}

int cgroup_step_attach(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err) {
    (void)host, (void)jail, (void)step, (void)pid, (void)err;
    return 0;
}

int cgroup_jail_mark(const struct cgroup_host *host, struct cgroup_jail *jail, struct err *err) {
    (void)host, (void)jail, (void)err;
    return 0;
}

int cgroup_jail_read(const struct cgroup_host *host, const struct cgroup_jail *jail,
                     const struct cgroup_step *step, struct cgroup_jail_usage *usage,
                     struct err *err) {
    (void)host, (void)jail, (void)step, (void)err;
    *usage = (struct cgroup_jail_usage){.pids_peak = 2};
    return 0;
}

int cgroup_jail_peak(const struct cgroup_jail *jail, uint64_t *bytes, struct err *err) {
    (void)jail, (void)err;
    *bytes = w.peak;
    return 0;
}

int cgroup_step_cpu(const struct cgroup_step *step, uint64_t *cpu_ns, struct err *err) {
    (void)step, (void)err;
    *cpu_ns = w.cpu_ns;
    return 0;
}

int cgroup_step_read(const struct cgroup_step *step, struct cgroup_usage *usage, struct err *err) {
    (void)step, (void)err;
    *usage = (struct cgroup_usage){
        .cpu_ns = w.cpu_ns, .mem_peak_bytes = w.peak, .oom_kills = w.oom_kills};
    return 0;
}

int cgroup_step_populated(const struct cgroup_step *step, struct err *err) {
    (void)step, (void)err;
    return w.alive || w.stragglers;
}

int cgroup_step_count(const struct cgroup_host *host, const struct cgroup_step *step,
                      uint32_t *count, struct err *err) {
    (void)host, (void)step, (void)err;
    *count = (uint32_t)w.alive + w.stragglers;
    return 0;
}

static void dies(int status, enum cause cause) {
    assert_true(w.alive);
    w.alive = false;
    w.status = status;
    w.died_ns = w.now_ns;
    if (w.first == CAUSE_NONE)
        w.first = cause;
}

/* What is killed dies at once, frozen or not. */
int cgroup_step_kill(const struct cgroup_host *host, const struct cgroup_step *step,
                     struct err *err) {
    (void)host, (void)step, (void)err;
    w.kills++;
    w.stragglers = false;
    if (w.alive)
        dies(SIGKILL, CAUSE_SIGNAL);
    return 0;
}

int cgroup_step_freeze(const struct cgroup_host *host, const struct cgroup_step *step, bool frozen,
                       struct err *err) {
    (void)host, (void)step, (void)err;
    w.frozen = frozen;
    return 0;
}

int cgroup_step_frozen(const struct cgroup_step *step, struct err *err) {
    (void)step, (void)err;
    return w.frozen;
}

int cgroup_step_remove(const struct cgroup_host *host, struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err) {
    (void)host, (void)jail, (void)step, (void)err;
    return 0;
}
