#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"
#include "str.h"

#define EXEC_DRAIN_NS (100 * CLOCK_NS_PER_MS) /* for what flushes after its parent is gone */
/* As in exec_held.c: it counts looks, for this process waits for its turn, too. */
#define EXEC_EMPTY_LOOKS (60 * 500u)          /* of EXEC_POLL_NS, from kill to an empty cgroup */
#define EXEC_POLL_NS (2 * CLOCK_NS_PER_MS)    /* while waiting for either */
#define EXEC_WATCH_NS (20 * CLOCK_NS_PER_MS)  /* counters that a request wants to end on */
#define EXEC_PREPARE_NS (60 * CLOCK_NS_PER_S) /* to unpack files, at most */
#define EXEC_SIGNAL_NS (1 * CLOCK_NS_PER_MS)  /* between looks for the start of a command */
#define EXEC_FILTERED_MAX 64
#define EXEC_SAYS_MAX 4                       /* TERMINAL, STARTED, REFUSED, and one to spare */
#define EXEC_CPU_WAIT_NS (1 * CLOCK_NS_PER_S) /* to be made and confined, at most */
#define EXEC_CPU_IDLE_NS (8 * CLOCK_NS_PER_MS)
#define EXEC_CPU_STEP_NS CLOCK_NS_PER_MS /* grain of the CPU limit */

int exec_errno(int code) {
    return code >= 0 && code <= WIRE_ERRNO_MAX ? code : EPROTO;
}

static void exec_refused(struct end_facts *f, struct initmsg_report *r) {
    f->refused = true;
    f->refused_code = exec_errno(r->code);
    r->stage[sizeof r->stage - 1] = '\0';
    r->path[sizeof r->path - 1] = '\0';
    (void)str_copy(f->refused_stage, sizeof f->refused_stage, r->stage);
    (void)str_copy(f->refused_path, sizeof f->refused_path, r->path);
}

/* From here on its limits count, and who has taken process 1 over says what he likes: it began
 * between the word to begin and now, and has not worked longer than that. */
static void exec_began(struct exec *x, const struct initmsg_report *r) {
    uint64_t now = clock_mono_ns();
    uint64_t last = x->sent_ns + EXEC_PREPARE_NS;
    last = now < last ? now : last;
    uint64_t at = r->mono_ns < last ? r->mono_ns : last;
    at = at > x->sent_ns ? at : x->sent_ns;
    uint64_t most = at - x->sent_ns + EXEC_CPU_WAIT_NS;
    x->facts.started = true;
    x->facts.start_ns = x->began_ns = at;
    x->cpu_before_ns = r->cpu_ns < most ? r->cpu_ns : most;
}

static void exec_heard(struct exec *x, struct initmsg_report *r, int *fds, size_t nfds,
                       const struct ucred *cred) {
    struct end_facts *f = &x->facts;
    if (r->type == INITMSG_TERMINAL && x->terminal && nfds == 1 && exec_is_ptmx(fds[0])) {
        x->terminal = false;
        exec_terminal(x, fds[0], cred);
    } else if (r->type == INITMSG_STARTED && !f->started) {
        exec_began(x, r);
    } else if (r->type == INITMSG_REFUSED && !f->refused) {
        exec_refused(f, r);
    }
}

/* Reads what the child said before exec: when it started, or what it refused. */
static void exec_hear(struct exec *x) {
    struct initmsg_report r;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    struct err err;
    struct ucred cred = {0};
    /* A child says no more than this; who goes on talking is not heard, for what comes with it has
     * to be got rid of. */
    while (x->said < EXEC_SAYS_MAX && x->sock >= 0) {
        ssize_t n = fd_recv(x->sock, &r, sizeof r, fds, &nfds, &cred, &err);
        x->said += n >= 0 || err.code != EAGAIN;
        if (n == (ssize_t)sizeof r) {
            exec_heard(x, &r, fds, nfds, &cred);
        }
        fd_drop(fds, n > 0 ? nfds : 0); /* one that was taken is -1 by now */
        if (n != (ssize_t)sizeof r) {
            return;
        }
    }
}

/* A terminal is waited for: somebody wants to type. */
static void exec_talk(void *arg, uint32_t events) {
    struct exec *x = arg;
    exec_hear(x);
    if (!x->terminal || (events & EPOLLHUP) || x->said >= EXEC_SAYS_MAX) {
        loop_del(x->jail->host->loop, &x->src);
    }
}

static void exec_kill(struct exec *x) {
    struct err err;
    x->killed = true;
    x->looks = 0;
    if (cgroup_step_kill(x->jail->host->cgroups, &x->cgroup, &err) != 0) {
        jail_fail(x->jail, "kill", err.code, err.text);
        return;
    }
    exec_held_expect(x);
}

/* Of its first process, by the kernel's word. */
static bool exec_is_seen_alive(const struct exec *x) {
    struct pollfd dead = {.fd = x->pidfd, .events = POLLIN};
    return x->state == EXEC_RUNNING && x->pidfd >= 0 && poll(&dead, 1, 0) == 0;
}

void exec_stop(struct exec *x, enum cause cause) {
    if (x->facts.imposed != CAUSE_NONE || x->state < EXEC_RUNNING || x->state == EXEC_OVER) {
        return;
    }
    x->facts.imposed = cause;
    x->facts.imposed_ns = clock_mono_ns();
    x->alive_ns = exec_is_seen_alive(x) ? x->facts.imposed_ns : 0;
    exec_kill(x);
}

/* Whoever catches its SIGSYS and goes on like that only keeps the runner busy. */
void exec_filtered(struct exec *x, pid_t pid, int nr, uint32_t arch) {
    if (pid == x->outside_pid && !x->facts.filtered) {
        x->facts.filtered = true;
        x->facts.syscall_nr = nr;
        x->facts.syscall_arch = arch;
    }
    if (++x->filtered > EXEC_FILTERED_MAX) {
        exec_stop(x, CAUSE_SYSCALL);
    }
}

/* To init, whose number for the process is good as long as it has not been reaped. */
static void exec_signal_due(void *arg) {
    struct exec *x = arg;
    exec_hear(x);
    if (x->state != EXEC_RUNNING) {
        return;
    }
    if (!x->facts.started) { /* it must not die of it before it is the command */
        (void)loop_timer_at(x->jail->host->loop, &x->signal_timer, clock_mono_ns() + EXEC_SIGNAL_NS,
                            exec_signal_due, x, NULL);
        return;
    }
    for (uint32_t n = 1; n <= 64; n++) {
        const struct initmsg_signal msg = {
            .type = INITMSG_SIGNAL, .pid = x->inside_pid, .signal = n};
        struct err err;
        if ((x->signals & (1ULL << (n - 1))) &&
            fd_send(x->jail->control, &msg, sizeof msg, NULL, 0, &err) != 0) {
            jail_fail(x->jail, "signal", err.code, err.text);
            return;
        }
    }
    x->signals = 0;
}

void exec_signal(struct exec *x, int signal) {
    x->signals |= 1ULL << (signal - 1);
    exec_signal_due(x);
}

static void exec_wall(void *arg) {
    struct exec *x = arg;
    uint64_t wall_ns = x->facts.limits.v[LIMIT_WALL_MS] * CLOCK_NS_PER_MS;
    uint64_t now = clock_mono_ns();
    exec_hear(x);
    if (x->frozen) {
        return; /* its clock stands still */
    }
    uint64_t due = x->facts.started ? x->facts.start_ns + wall_ns : now + wall_ns;
    if (!x->facts.started && now > x->sent_ns + EXEC_PREPARE_NS) {
        exec_stop(x, CAUSE_INTERNAL);
        return;
    }
    if (due > now) {
        (void)loop_timer_at(x->jail->host->loop, &x->wall_timer, due, exec_wall, x, NULL);
        return;
    }
    exec_stop(x, CAUSE_WALL_TIME);
}

/* CPU that the command itself has used. */
static int exec_cpu_used(const struct exec *x, uint64_t *ns) {
    uint64_t total = 0;
    if (cgroup_step_cpu(&x->cgroup, &total, NULL) != 0) {
        return -1;
    }
    *ns = total > x->cpu_before_ns ? total - x->cpu_before_ns : 0;
    return 0;
}

/* What it said before exec need not have been read yet: until then a millisecond too much. */
uint64_t exec_cpu_ns(const struct exec *x) {
    uint64_t used = 0;
    if (x->state < EXEC_RUNNING || x->measured) {
        return x->usage.cpu_user_ns + x->usage.cpu_system_ns;
    }
    return x->cgroup.usage_fd >= 0 && exec_cpu_used(x, &used) == 0 ? used : 0;
}

/* Where the kernel keeps no peak of processes, what is seen now and then has to do. */
static void exec_sample(struct exec *x) {
    struct cgroup_jail_usage u;
    const struct cgroup_host *host = x->jail->host->cgroups;
    if (!host->pids_peak && cgroup_jail_read(host, &x->jail->cgroup, &x->cgroup, &u, NULL) == 0 &&
        u.pids_peak > x->pids_seen) {
        x->pids_seen = (uint32_t)u.pids_peak;
    }
}

/* The next look is when the budget could be gone at the earliest, on every processor at once. */
static void exec_cpu(void *arg) {
    struct exec *x = arg;
    uint64_t limit = x->facts.limits.v[LIMIT_CPU_MS] * CLOCK_NS_PER_MS;
    uint64_t used = 0;
    exec_hear(x);
    exec_sample(x);
    if (exec_cpu_used(x, &used) != 0) {
        jail_fail(x->jail, "cpu usage", EIO, "the CPU usage of a step cannot be read");
        return;
    }
    if (x->facts.started && used >= limit) {
        exec_stop(x, CAUSE_CPU_TIME);
        return;
    }
    uint64_t wait = (used < limit ? limit - used : 0) / x->jail->host->cpus;
    /* One that sleeps with a small rest of its budget is looked at less and less often. */
    uint64_t least =
        used != x->cpu_seen_ns || x->cpu_wait_ns == 0 ? EXEC_CPU_STEP_NS : x->cpu_wait_ns * 2;
    least = least > EXEC_CPU_IDLE_NS ? EXEC_CPU_IDLE_NS : least;
    x->cpu_seen_ns = used;
    x->cpu_wait_ns = least;
    wait = wait < least ? least : wait;
    (void)loop_timer_at(x->jail->host->loop, &x->cpu_timer, clock_mono_ns() + wait, exec_cpu, x,
                        NULL);
}

/* pids and disk are counters; a request may want to end on them. */
static void exec_watch(void *arg) {
    struct exec *x = arg;
    struct cgroup_jail_usage u;
    uint64_t bytes = 0;
    uint64_t inodes = 0;
    bool full = false;
    if ((x->end_on & END_ON_PIDS) &&
        cgroup_jail_read(x->jail->host->cgroups, &x->jail->cgroup, &x->cgroup, &u, NULL) == 0 &&
        u.pids_refused > 0) {
        exec_stop(x, CAUSE_PIDS);
        return;
    }
    if ((x->end_on & END_ON_DISK) && jail_disk(x->jail, &bytes, &inodes, &full) == 0 && full) {
        exec_stop(x, CAUSE_DISK);
        return;
    }
    (void)loop_timer_at(x->jail->host->loop, &x->watch_timer, clock_mono_ns() + EXEC_WATCH_NS,
                        exec_watch, x, NULL);
}

static int exec_arm(struct exec *x, struct err *err) {
    uint64_t now = clock_mono_ns();
    const uint64_t *v = x->facts.limits.v;
    struct loop *loop = x->jail->host->loop;
    if (loop_timer_at(loop, &x->wall_timer, now + v[LIMIT_WALL_MS] * CLOCK_NS_PER_MS, exec_wall, x,
                      err) != 0) {
        return -1;
    }
    uint64_t cpu = v[LIMIT_CPU_MS] * CLOCK_NS_PER_MS / x->jail->host->cpus;
    if (loop_timer_at(loop, &x->cpu_timer, now + cpu, exec_cpu, x, err) != 0) {
        return -1;
    }
    if (x->end_on & (END_ON_PIDS | END_ON_DISK)) {
        return loop_timer_at(loop, &x->watch_timer, now + EXEC_WATCH_NS, exec_watch, x, err);
    }
    return 0;
}

int exec_freeze(struct exec *x, bool frozen, struct err *err) {
    uint64_t now = clock_mono_ns();
    struct loop *loop = x->jail->host->loop;
    if (x->frozen == frozen || (x->state != EXEC_RUNNING && x->state != EXEC_DRAINING)) {
        return 0;
    }
    if (cgroup_step_freeze(x->jail->host->cgroups, &x->cgroup, frozen, err) != 0) {
        return -1;
    }
    x->frozen = frozen;
    if (frozen && x->state == EXEC_DRAINING) {
        return 0;
    }
    if (frozen) {
        exec_hear(x);
        x->frozen_ns = now;
        loop_timer_stop(loop, &x->wall_timer);
        loop_timer_stop(loop, &x->cpu_timer);
        return 0;
    }
    if (x->state == EXEC_DRAINING) {
        return 0; /* it is over; what is left of it has little time */
    }
    /* As if it had begun later by what it lost; who was killed meanwhile has lost no more. */
    uint64_t until = x->facts.imposed != CAUSE_NONE ? x->facts.imposed_ns : now;
    uint64_t lost = until > x->frozen_ns ? until - x->frozen_ns : 0;
    x->sent_ns += lost;
    if (x->facts.started) {
        x->facts.start_ns += lost;
    }
    exec_wall(x);
    if (x->state == EXEC_RUNNING && x->facts.imposed == CAUSE_NONE) {
        exec_cpu(x);
    }
    return 0;
}

int exec_settled(const struct exec *x, struct err *err) {
    if (x->state != EXEC_RUNNING && x->state != EXEC_DRAINING) {
        return 1;
    }
    int frozen = cgroup_step_frozen(&x->cgroup, err);
    return frozen < 0 ? -1 : (frozen == 1) == x->frozen;
}

static int exec_send(struct exec *x, const struct exec_request *q, struct err *err) {
    _Alignas(8) char packet[sizeof(struct initmsg_exec) + WIRE_SPEC_INLINE_MAX];
    struct initmsg_exec *msg = (struct initmsg_exec *)(void *)packet;
    size_t inline_size = q->spec != NULL ? q->spec_size : 0;
    *msg = (struct initmsg_exec){
        .type = INITMSG_EXEC,
        .kind = q->kind,
        .fds = q->fds,
        .flags = q->flags & (WIRE_EXEC_SHELL | WIRE_EXEC_PTY),
        .probe = q->probe,
        .collect_files = q->collect_files,
        .collect_bytes = q->collect_bytes,
        .open_files = q->limits.v[LIMIT_OPEN_FILES],
        .file_bytes = q->limits.v[LIMIT_FILE_BYTES],
        .stack_bytes = q->limits.v[LIMIT_STACK_BYTES],
        .spec_size = q->spec_size,
        .upper = q->upper > 0,
        .rows = q->rows,
        .cols = q->cols,
    };
    int fds[FD_PASS_MAX];
    size_t nfds = q->nfds;
    if (nfds + msg->upper > FD_PASS_MAX) {
        return err_set(err, ERR_PROTOCOL, 0, "too many descriptors");
    }
    memcpy(fds, q->fd, nfds * sizeof *fds);
    if (msg->upper) {
        fds[nfds++] = q->upper;
    }
    if (inline_size > WIRE_SPEC_INLINE_MAX) {
        return err_set(err, ERR_PROTOCOL, 0, "an inline spec is too large");
    }
    if (inline_size > 0) {
        memcpy(packet + sizeof *msg, q->spec, inline_size);
    }
    return fd_send(x->sock, packet, sizeof *msg + inline_size, fds, nfds, err);
}

/* An earlier command of the jail may not signal the child that waits, but its effective id is
 * enough to change how that is scheduled. It starts as if nobody had. A command of a jail that gets
 * what others leave is idle itself as well: where that is not in the group for them
 * (cgroup_left_init()), some kernels lose whoever wakes beside several idle groups for 50 ms
 * (deploy/SECURITY.md), and beside processes that are they do not. */
static void exec_reset_scheduling(pid_t pid, bool idle) {
    const struct sched_param param = {.sched_priority = 0};
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    (void)sched_setscheduler(pid, idle ? SCHED_IDLE : SCHED_OTHER, &param);
    (void)setpriority(PRIO_PROCESS, (id_t)pid, 0);
    (void)sched_setaffinity(pid, sizeof all, &all);
}

static int exec_measure(struct exec *x, struct err *err) {
    struct cgroup_usage u;
    struct cgroup_jail_usage ju;
    struct end_facts *f = &x->facts;
    const struct cgroup_host *host = x->jail->host->cgroups;
    if (cgroup_step_read(&x->cgroup, &u, err) != 0 ||
        cgroup_jail_read(host, &x->jail->cgroup, &x->cgroup, &ju, err) != 0) {
        return -1;
    }
    f->cpu_ns = u.cpu_ns > x->cpu_before_ns ? u.cpu_ns - x->cpu_before_ns : 0;
    f->oom_kills = u.oom_kills;
    f->mem_peak_bytes = u.mem_peak_bytes;
    f->pids_refused = ju.pids_refused;
    if (u.oom_kills > 0 && cgroup_jail_peak(&x->jail->cgroup, &f->jail_mem_peak_bytes, err) != 0) {
        return -1;
    }
    if (jail_disk(x->jail, &f->disk_bytes, &f->inodes, &f->disk_full) != 0) {
        return err_sys(err, "reading the use of the writable file system");
    }
    uint64_t user = u.cpu_user_ns < f->cpu_ns ? u.cpu_user_ns : f->cpu_ns;
    x->usage = (struct wire_usage){
        .cpu_user_ns = user,
        .cpu_system_ns = f->cpu_ns - user,
        .mem_peak_bytes = u.mem_peak_bytes,
        .throttled_ns = ju.throttled_ns,
        .disk_bytes = f->disk_bytes,
        .inodes = f->inodes,
        .pids_peak = (uint32_t)(ju.pids_peak > x->pids_seen ? ju.pids_peak : x->pids_seen),
        .oom_kills = (uint32_t)u.oom_kills,
        .pids_refused = (uint32_t)ju.pids_refused,
    };
    return 0;
}

/* The command's first process is gone, and process 1 is about to report it. If nothing of the step
 * is left, what it used is known now, and need not be looked up when the report is here; by the
 * time it is known, the report mostly is. */
static void exec_gone(void *arg, uint32_t events) {
    struct exec *x = arg;
    (void)events;
    if (x->state != EXEC_RUNNING) {
        return;
    }
    exec_hear(x);
    x->measured = cgroup_step_populated(&x->cgroup, NULL) == 0 && exec_measure(x, NULL) == 0;
    exec_held_expect(x);
    jail_hear(x->jail); /* last: with it, the execution may be over */
}

/* Only to be quick: without it the end is told just as well. It stays true and is told once: to
 * take it out of the loop is left for when somebody else has been told. */
static void exec_expect(struct exec *x) {
    x->pidfd = (int)syscall(SYS_pidfd_open, x->outside_pid, 0);
    if (x->pidfd >= 0) {
        (void)loop_add(x->jail->host->loop, &x->pid_src, x->pidfd, EPOLLIN | EPOLLONESHOT,
                       exec_gone, x, NULL);
    }
}

/* Does the step have less of something than the jail? */
static bool exec_is_narrow(const struct exec *x, const struct limits *step) {
    const struct limits *jail = &x->jail->limits;
    return step->v[LIMIT_MEM_BYTES] != jail->v[LIMIT_MEM_BYTES] ||
           (x->cgroup.own && (step->v[LIMIT_PIDS] != jail->v[LIMIT_PIDS] ||
                              step->v[LIMIT_CPUS_MILLI] != jail->v[LIMIT_CPUS_MILLI]));
}

int exec_start(struct exec *x, const struct exec_request *q, struct err *err) {
    struct jail *jail = x->jail;
    const struct cgroup_host *host = jail->host->cgroups;
    x->number = q->number;
    x->kind = q->kind;
    x->received_ns = q->received_ns;
    x->end_on = q->end_on;
    x->facts.end_on = q->end_on;
    x->facts.limits = q->limits;
    x->facts.jail_mem_limit = jail->limits.v[LIMIT_MEM_BYTES];
    if (exec_is_narrow(x, &q->limits) &&
        cgroup_step_limit(host, &x->cgroup, &q->limits, err) != 0) {
        return -1;
    }
    if (x->ordinal > 0 && !x->cgroup.own && cgroup_jail_mark(host, &jail->cgroup, err) != 0) {
        return -1;
    }
    if ((x->ordinal > 0 || jail->cgroup.idle) && exec_is_ours(x)) {
        exec_reset_scheduling(x->outside_pid, jail->cgroup.idle);
    }
    if (x->ordinal > 0 && jail_shares_user(jail)) {
        exec_wake(x);
    }
    x->sent_ns = clock_mono_ns();
    if (exec_send(x, q, err) != 0) {
        return -1;
    }
    x->state = EXEC_RUNNING;
    x->pids_seen = 1;
    x->terminal = q->flags & WIRE_EXEC_PTY;
    if (x->terminal &&
        loop_add(x->jail->host->loop, &x->src, x->sock, EPOLLIN, exec_talk, x, err) != 0) {
        return -1;
    }
    /* The command is on its way; this is the time to get ready for its end. */
    if (cgroup_step_watch(host, &x->cgroup, err) != 0 || exec_arm(x, err) != 0) {
        return -1;
    }
    exec_expect(x);
    return 0;
}

static void exec_finish(struct exec *x) {
    struct err err;
    struct wire_end end;
    const struct end_facts *f = &x->facts;
    memset(&end, 0, sizeof end);
    if (!x->measured && exec_measure(x, &err) != 0) {
        jail_fail(x->jail, "usage", err.code, err.text);
        return;
    }
    end.usage = x->usage;
    end.usage.wall_ns = f->started && f->exit_ns > f->start_ns ? f->exit_ns - f->start_ns : 0;
    end.usage.stragglers_killed = x->stragglers;
    end_decide(&x->facts, &end);
    end.head.exec = x->number;
    end.setup_ns =
        x->facts.started && x->began_ns > x->received_ns ? x->began_ns - x->received_ns : 0;
    x->state = EXEC_OVER;
    jail_exec_done(x->jail, x, &end);
}

/* After the first process: what is left may flush for a moment (a tee at the end of a pipe); then
 * it is killed; then the group must become empty. */
static void exec_drain(void *arg) {
    struct exec *x = arg;
    struct err err;
    uint64_t now = clock_mono_ns();
    int populated = cgroup_step_populated(&x->cgroup, &err);
    if (populated < 0) {
        jail_fail(x->jail, "populated", err.code, err.text);
        return;
    }
    if (populated == 0) {
        exec_finish(x);
        return;
    }
    if (x->killed && ++x->looks > EXEC_EMPTY_LOOKS) {
        jail_fail(x->jail, "kill", EBUSY, "processes of a step did not die");
        return;
    }
    if (!x->killed && now >= x->drain_deadline_ns) {
        (void)cgroup_step_count(x->jail->host->cgroups, &x->cgroup, &x->stragglers, NULL);
        exec_kill(x);
    }
    (void)loop_timer_at(x->jail->host->loop, &x->drain_timer, now + EXEC_POLL_NS, exec_drain, x,
                        NULL);
}

void exec_exited(struct exec *x, int status, uint64_t mono_ns) {
    struct loop *loop = x->jail->host->loop;
    if (x->state != EXEC_RUNNING) {
        jail_fail(x->jail, "child", ECHILD, "a child ended before it was used");
        return;
    }
    x->state = EXEC_DRAINING;
    exec_hear(x);
    uint64_t now = clock_mono_ns();
    mono_ns = mono_ns < now ? mono_ns : now; /* whatever process 1 says */
    mono_ns = mono_ns > x->alive_ns ? mono_ns : x->alive_ns;
    if (x->frozen && x->facts.started && mono_ns > x->frozen_ns) {
        x->facts.start_ns += mono_ns - x->frozen_ns; /* killed where it stood */
    }
    x->facts.exited = true;
    x->facts.status = status;
    x->facts.exit_ns = mono_ns;
    loop_timer_stop(loop, &x->wall_timer);
    loop_timer_stop(loop, &x->cpu_timer);
    loop_timer_stop(loop, &x->watch_timer);
    x->drain_deadline_ns = now + EXEC_DRAIN_NS;
    x->looks = 0;
    if (x->measured) {
        exec_finish(x); /* its group was empty, and nobody enters it again */
    } else {
        exec_drain(x);
    }
}

void exec_close(struct exec *x) {
    struct loop *loop = x->jail->host->loop;
    loop_timer_stop(loop, &x->wall_timer);
    loop_timer_stop(loop, &x->cpu_timer);
    loop_timer_stop(loop, &x->watch_timer);
    loop_timer_stop(loop, &x->drain_timer);
    loop_timer_stop(loop, &x->signal_timer);
    loop_del(loop, &x->src);
    loop_del(loop, &x->pid_src);
    fd_hang_up(&x->sock);
    fd_close(&x->pidfd);
}

int exec_remove(struct exec *x, struct err *err) {
    struct jail_host *host = x->jail->host;
    if (!x->emptied && cgroup_dying_many(&host->dying, host->cgroups)) {
        x->emptied = x->cgroup.keep = true;
        cgroup_step_empty(host->cgroups, &x->cgroup);
    }
    return cgroup_step_remove(x->jail->host->cgroups, &x->jail->cgroup, &x->cgroup, err);
}

void exec_free(struct exec *x) {
    free(x);
}
