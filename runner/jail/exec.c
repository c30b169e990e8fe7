#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"
#include "str.h"

#define EXEC_DRAIN_NS (100 * CLOCK_NS_PER_MS) /* for what flushes after its parent is gone */
#define EXEC_EMPTY_NS (5 * CLOCK_NS_PER_S)    /* from kill to an empty cgroup */
#define EXEC_POLL_NS (2 * CLOCK_NS_PER_MS)    /* while waiting for either */
#define EXEC_WATCH_NS (20 * CLOCK_NS_PER_MS)  /* counters that a request wants to end on */
#define EXEC_PREPARE_NS (60 * CLOCK_NS_PER_S) /* to unpack files, at most */
#define EXEC_FILTERED_MAX 64
#define EXEC_CPU_IDLE_NS (8 * CLOCK_NS_PER_MS)
#define EXEC_CPU_STEP_NS CLOCK_NS_PER_MS /* grain of the CPU limit */

static struct loop *exec_loop(const struct exec *x) {
    return x->jail->host->loop;
}

/* Is the process that says HELLO one of this jail's? Its number comes from the kernel, so this can
 * only fail if it died and the number was given away in between. */
static bool exec_is_ours(const struct exec *x, pid_t pid) {
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
    return stat(path, &st) == 0 && st.st_ino == x->jail->pid_ns;
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
    if (cgroup_step_attach(x->jail->host->cgroups, &x->jail->cgroup, &x->cgroup, cred->pid, &err) !=
        0) {
        if (err.code == ESRCH) {
            loop_del(exec_loop(x), &x->src); /* it died meanwhile: process 1 reports it */
            return;
        }
        jail_fail(x->jail, "cgroup attach", err.code, err.text);
        return;
    }
    if (!exec_is_ours(x, cred->pid)) {
        jail_fail(x->jail, "hello", ESRCH, "a child vanished while it was set up");
        return;
    }
    x->state = EXEC_CONFINED;
    if (fd_send(x->sock, &go, sizeof go, NULL, 0, &err) != 0 && err.code != EPIPE) {
        jail_fail(x->jail, "go", err.code, err.text);
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
    for (size_t i = 0; i < nfds && n > 0; i++) {
        fd_close(&fds[i]);
    }
    if (n < 0 && err.code == EAGAIN) {
        return;
    }
    if (n <= 0) {
        loop_del(exec_loop(x), &x->src); /* process 1 reports why, or dies itself */
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
        loop_del(exec_loop(x), &x->src); /* nothing more to hear before it has ended */
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
    if (loop_add(exec_loop(x), &x->src, x->sock, EPOLLIN, exec_setup_event, x, err) != 0) {
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
    x->sock = -1;
    x->src.fd = -1;
    cgroup_step_init(&x->cgroup);
    return x;
}

int exec_make_cgroup(struct exec *x, struct err *err) {
    const struct cgroup_host *host = x->jail->host->cgroups;
    if (cgroup_step_make(host, &x->jail->cgroup, x->ordinal, &x->cgroup, err) != 0) {
        return -1;
    }
    return cgroup_step_limit(host, &x->cgroup, &x->jail->limits, err);
}

/* Reads what the child said before exec: when it started, or what it refused. */
static void exec_hear(struct exec *x) {
    struct end_facts *f = &x->facts;
    struct initmsg_report r;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    while (x->sock >= 0) {
        ssize_t n = fd_recv(x->sock, &r, sizeof r, fds, &nfds, NULL, NULL);
        for (size_t i = 0; n > 0 && i < nfds; i++) {
            fd_close(&fds[i]);
        }
        if (n != (ssize_t)sizeof r) {
            return;
        }
        if (r.type == INITMSG_STARTED && !f->started) {
            f->started = true;
            f->start_ns = r.mono_ns;
            x->cpu_before_ns = r.cpu_ns;
        } else if (r.type == INITMSG_REFUSED && !f->refused) {
            f->refused = true;
            f->refused_code = r.code;
            r.stage[sizeof r.stage - 1] = '\0';
            r.path[sizeof r.path - 1] = '\0';
            (void)str_copy(f->refused_stage, sizeof f->refused_stage, r.stage);
            (void)str_copy(f->refused_path, sizeof f->refused_path, r.path);
        }
    }
}

static void exec_kill(struct exec *x) {
    struct err err;
    x->killed = true;
    x->drain_deadline_ns = clock_mono_ns() + EXEC_EMPTY_NS; /* also when it drains already */
    if (cgroup_step_kill(x->jail->host->cgroups, &x->cgroup, &err) != 0) {
        jail_fail(x->jail, "kill", err.code, err.text);
    }
}

void exec_stop(struct exec *x, enum cause cause) {
    if (x->facts.imposed != CAUSE_NONE || x->state < EXEC_RUNNING) {
        return;
    }
    x->facts.imposed = cause;
    x->facts.imposed_ns = clock_mono_ns();
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

static void exec_wall(void *arg) {
    struct exec *x = arg;
    uint64_t wall_ns = x->facts.limits.v[LIMIT_WALL_MS] * CLOCK_NS_PER_MS;
    uint64_t now = clock_mono_ns();
    exec_hear(x);
    uint64_t due = x->facts.started ? x->facts.start_ns + wall_ns : now + wall_ns;
    if (!x->facts.started && now > x->sent_ns + EXEC_PREPARE_NS) {
        exec_stop(x, CAUSE_INTERNAL);
        return;
    }
    if (due > now) {
        (void)loop_timer_at(exec_loop(x), &x->wall_timer, due, exec_wall, x, NULL);
        return;
    }
    exec_stop(x, CAUSE_WALL_TIME);
}

/* CPU that the command itself has used. */
static int exec_cpu_used(struct exec *x, uint64_t *ns) {
    uint64_t total = 0;
    if (cgroup_step_cpu(&x->cgroup, &total, NULL) != 0) {
        return -1;
    }
    *ns = total > x->cpu_before_ns ? total - x->cpu_before_ns : 0;
    return 0;
}

/* Where the kernel keeps no peak of processes, what is seen now and then has to do. */
static void exec_sample(struct exec *x) {
    struct cgroup_jail_usage u;
    const struct cgroup_host *host = x->jail->host->cgroups;
    if (!host->pids_peak && cgroup_jail_read(host, &x->jail->cgroup, &u, NULL) == 0 &&
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
    (void)loop_timer_at(exec_loop(x), &x->cpu_timer, clock_mono_ns() + wait, exec_cpu, x, NULL);
}

/* pids and disk are counters; a request may want to end on them. */
static void exec_watch(void *arg) {
    struct exec *x = arg;
    struct cgroup_jail_usage u;
    uint64_t bytes = 0;
    uint64_t inodes = 0;
    bool full = false;
    if ((x->end_on & END_ON_PIDS) &&
        cgroup_jail_read(x->jail->host->cgroups, &x->jail->cgroup, &u, NULL) == 0 &&
        u.pids_refused > 0) {
        exec_stop(x, CAUSE_PIDS);
        return;
    }
    if ((x->end_on & END_ON_DISK) && jail_disk(x->jail, &bytes, &inodes, &full) == 0 && full) {
        exec_stop(x, CAUSE_DISK);
        return;
    }
    (void)loop_timer_at(exec_loop(x), &x->watch_timer, clock_mono_ns() + EXEC_WATCH_NS, exec_watch,
                        x, NULL);
}

static int exec_arm(struct exec *x, struct err *err) {
    uint64_t now = clock_mono_ns();
    const uint64_t *v = x->facts.limits.v;
    struct loop *loop = exec_loop(x);
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

static int exec_send(struct exec *x, const struct exec_request *q, struct err *err) {
    _Alignas(8) char packet[sizeof(struct initmsg_exec) + WIRE_SPEC_INLINE_MAX];
    struct initmsg_exec *msg = (struct initmsg_exec *)(void *)packet;
    size_t inline_size = q->spec != NULL ? q->spec_size : 0;
    *msg = (struct initmsg_exec){
        .type = INITMSG_EXEC,
        .kind = q->kind,
        .fds = q->fds,
        .flags = q->flags & WIRE_EXEC_SHELL,
        .probe = q->probe,
        .collect_files = q->collect_files,
        .collect_bytes = q->collect_bytes,
        .open_files = q->limits.v[LIMIT_OPEN_FILES],
        .file_bytes = q->limits.v[LIMIT_FILE_BYTES],
        .stack_bytes = q->limits.v[LIMIT_STACK_BYTES],
        .spec_size = q->spec_size,
    };
    if (inline_size > WIRE_SPEC_INLINE_MAX) {
        return err_set(err, ERR_PROTOCOL, 0, "an inline spec is too large");
    }
    if (inline_size > 0) {
        memcpy(packet + sizeof *msg, q->spec, inline_size);
    }
    return fd_send(x->sock, packet, sizeof *msg + inline_size, q->fd, q->nfds, err);
}

/* An earlier command of the jail may not signal the child that waits, but its effective id is
 * enough to change how that is scheduled. It starts as if nobody had. */
static void exec_reset_scheduling(pid_t pid) {
    const struct sched_param param = {.sched_priority = 0};
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    (void)sched_setscheduler(pid, SCHED_OTHER, &param);
    (void)setpriority(PRIO_PROCESS, (id_t)pid, 0);
    (void)sched_setaffinity(pid, sizeof all, &all);
}

int exec_start(struct exec *x, const struct exec_request *q, struct err *err) {
    struct jail *jail = x->jail;
    const struct cgroup_host *host = jail->host->cgroups;
    x->number = q->number;
    x->received_ns = q->received_ns;
    x->end_on = q->end_on;
    x->facts.end_on = q->end_on;
    x->facts.limits = q->limits;
    x->facts.jail_mem_limit = jail->limits.v[LIMIT_MEM_BYTES];
    if (q->limits.v[LIMIT_MEM_BYTES] != jail->limits.v[LIMIT_MEM_BYTES] &&
        cgroup_step_limit(host, &x->cgroup, &q->limits, err) != 0) {
        return -1;
    }
    if (x->ordinal > 0 && cgroup_jail_mark(host, &jail->cgroup, err) != 0) {
        return -1;
    }
    if (x->ordinal > 0) {
        exec_reset_scheduling(x->outside_pid);
    }
    x->sent_ns = clock_mono_ns();
    if (exec_send(x, q, err) != 0) {
        return -1;
    }
    x->state = EXEC_RUNNING;
    x->pids_seen = 1;
    return exec_arm(x, err);
}

static int exec_usage(struct exec *x, struct wire_end *end, struct err *err) {
    struct cgroup_usage u;
    struct cgroup_jail_usage ju;
    struct end_facts *f = &x->facts;
    const struct cgroup_host *host = x->jail->host->cgroups;
    if (cgroup_step_read(&x->cgroup, &u, err) != 0 ||
        cgroup_jail_read(host, &x->jail->cgroup, &ju, err) != 0) {
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
    end->usage = (struct wire_usage){
        .wall_ns = f->started && f->exit_ns > f->start_ns ? f->exit_ns - f->start_ns : 0,
        .cpu_user_ns = user,
        .cpu_system_ns = f->cpu_ns - user,
        .mem_peak_bytes = u.mem_peak_bytes,
        .throttled_ns = ju.throttled_ns,
        .disk_bytes = f->disk_bytes,
        .inodes = f->inodes,
        .pids_peak = (uint32_t)(ju.pids_peak > x->pids_seen ? ju.pids_peak : x->pids_seen),
        .oom_kills = (uint32_t)u.oom_kills,
        .pids_refused = (uint32_t)ju.pids_refused,
        .stragglers_killed = x->stragglers,
    };
    return 0;
}

static void exec_finish(struct exec *x) {
    struct err err;
    struct wire_end end;
    memset(&end, 0, sizeof end);
    if (exec_usage(x, &end, &err) != 0) {
        jail_fail(x->jail, "usage", err.code, err.text);
        return;
    }
    end_decide(&x->facts, &end);
    end.head.exec = x->number;
    end.setup_ns = x->facts.started && x->facts.start_ns > x->received_ns
                       ? x->facts.start_ns - x->received_ns
                       : 0;
    jail_exec_done(x->jail, &end);
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
    if (now >= x->drain_deadline_ns) {
        if (x->killed) {
            jail_fail(x->jail, "kill", EBUSY, "processes of a step did not die");
            return;
        }
        (void)cgroup_step_count(x->jail->host->cgroups, &x->cgroup, &x->stragglers, NULL);
        exec_kill(x);
    }
    (void)loop_timer_at(exec_loop(x), &x->drain_timer, now + EXEC_POLL_NS, exec_drain, x, NULL);
}

void exec_exited(struct exec *x, int status, uint64_t mono_ns) {
    struct loop *loop = exec_loop(x);
    if (x->state != EXEC_RUNNING) {
        jail_fail(x->jail, "child", ECHILD, "a child ended before it was used");
        return;
    }
    x->state = EXEC_DRAINING;
    exec_hear(x);
    x->facts.exited = true;
    x->facts.status = status;
    x->facts.exit_ns = mono_ns;
    loop_timer_stop(loop, &x->wall_timer);
    loop_timer_stop(loop, &x->cpu_timer);
    loop_timer_stop(loop, &x->watch_timer);
    x->drain_deadline_ns = clock_mono_ns() + (x->killed ? EXEC_EMPTY_NS : EXEC_DRAIN_NS);
    exec_drain(x);
}

void exec_close(struct exec *x) {
    struct loop *loop = exec_loop(x);
    loop_timer_stop(loop, &x->wall_timer);
    loop_timer_stop(loop, &x->cpu_timer);
    loop_timer_stop(loop, &x->watch_timer);
    loop_timer_stop(loop, &x->drain_timer);
    loop_del(loop, &x->src);
    fd_close(&x->sock);
}

int exec_remove(struct exec *x, struct err *err) {
    return cgroup_step_remove(x->jail->host->cgroups, &x->jail->cgroup, &x->cgroup, err);
}

void exec_free(struct exec *x) {
    free(x);
}
