/* One execution in a jail: the process that waits to exec, its cgroup, its limits, its end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cgroup.h"
#include "end.h"
#include "err.h"
#include "initmsg.h"
#include "limit.h"
#include "loop.h"
#include "wire.h"

struct jail;

enum exec_state {
    EXEC_FORKED,   /* process 1 was asked to fork; no word from the child yet */
    EXEC_CONFINED, /* in its cgroup, giving up its ids and capabilities */
    EXEC_READY,    /* waits to exec */
    EXEC_RUNNING,
    EXEC_DRAINING, /* its first process is gone, others are still there */
    EXEC_OVER,     /* its end was told; its cgroup goes */
};

struct exec_request {
    uint32_t number;
    uint32_t kind;
    uint32_t fds; /* mask of enum wire_exec_fd */
    uint32_t flags;
    uint32_t end_on;
    uint32_t probe; /* enum initmsg_probe: set by the runner's own self-test only */
    struct limits limits;
    uint64_t collect_bytes;
    uint32_t collect_files;
    uint32_t spec_size;
    uint16_t rows, cols; /* WIRE_EXEC_PTY */
    int upper;           /* FILES: the live upper directory, else 0 or -1; borrowed for the call */
    const char *spec;    /* inline bytes or NULL; borrowed for the call */
    const int *fd;       /* borrowed for the call */
    size_t nfds;
    uint64_t received_ns;
};

struct exec {
    struct jail *jail;
    struct exec *next; /* of its jail, in the order of their starts */
    void *owner;       /* the caller's, from jail_exec() */
    enum exec_state state;
    unsigned ordinal; /* the n-th child of its jail: names the cgroup */
    uint32_t number;  /* the server's */
    int sock;
    uint32_t inside_pid;
    pid_t outside_pid;
    int pidfd; /* of the command, while it runs */
    struct loop_source src, pid_src;
    struct loop_timer wall_timer, cpu_timer, watch_timer, drain_timer, signal_timer;
    struct cgroup_step cgroup;
    struct end_facts facts;
    uint64_t cpu_before_ns;                  /* used by the child before exec */
    uint64_t received_ns, sent_ns, began_ns; /* began: at exec */
    uint64_t drain_deadline_ns;
    uint64_t alive_ns; /* when it was stopped, and seen to be alive; 0 = not */
    bool expected;     /* the report of its death is due */
    unsigned said;     /* messages of its child since it was told to begin */
    unsigned looks;    /* since then, or since it was killed and the rest must go */
    unsigned stuck;    /* of these, the last ones in which nothing stood in the way of the report */
    uint64_t cpu_seen_ns, cpu_wait_ns; /* at the last look at the CPU usage */
    uint32_t kind;
    uint32_t end_on;
    uint32_t stragglers;
    bool dismissed;     /* never used: its process was told to go, and is not reaped yet */
    bool killed;        /* cgroup.kill was written */
    bool emptied;       /* what its group held was given back */
    bool terminal;      /* it was asked for, and has not come */
    bool frozen;        /* cgroup.freeze was written */
    uint64_t frozen_ns; /* since when */
    bool measured;      /* `usage` and the facts of it are those of its end */
    struct wire_usage usage;
    uint64_t signals; /* mask of those that wait for its start */
    uint32_t pids_seen;
    uint32_t filtered; /* calls that the filter ended a process for */
};

/* An execution needs a child of process 1 and a cgroup. The two may be asked for in either order:
 * the child waits until it hears from this process, which is when both are there.
 * exec_make_cgroup() fails with ENOMEM when the memory of the jail is full. */
struct exec *exec_new(struct jail *jail, unsigned ordinal, struct err *err);
int exec_connect(struct exec *exec, struct err *err);
int exec_make_cgroup(struct exec *exec, struct err *err);

/* Is its process, by the number, one of the jail still? A child that is dead may be reaped without
 * a word, and its number be anybody's. */
bool exec_is_ours(const struct exec *exec);

/* Lets a READY child go on that others of its user may have stopped. From here and not by process
 * 1: the signal must be there before the command is, which would count it as one of its own. */
void exec_wake(const struct exec *exec);
/* Kills a child that has said hello and executes nothing yet; process 1 reports its end. */
void exec_kill_child(const struct exec *exec);

/* Hands the command to a READY child and arms its limits. */
int exec_start(struct exec *exec, const struct exec_request *request, struct err *err);

/* What somebody inside calls an errno, if there is such a one, else EPROTO: a server that is told
 * something else gives up the whole shard. */
int exec_errno(int code);

/* Process 1 reports the end of the child. */
void exec_exited(struct exec *exec, int status, uint64_t mono_ns);

/* Stops its processes, or lets them go on; its wall clock stands still meanwhile. */
int exec_freeze(struct exec *exec, bool frozen, struct err *err);
/* CPU time that it has used so far; 0 before it began, and when nobody can tell any more. */
uint64_t exec_cpu_ns(const struct exec *exec);
/* Has it come to what exec_freeze() asked for? 1, 0, or -1. */
int exec_settled(const struct exec *exec, struct err *err);
/* A signal to its process group, as soon as the command has started. */
void exec_signal(struct exec *exec, int signal);

/* The filter caught a call of another architecture by process `pid` (outside number): its number
 * and AUDIT_ARCH_…. The process gets a SIGSYS; here it is noted, and the execution is ended when
 * that does not stop it. */
void exec_filtered(struct exec *exec, pid_t pid, int nr, uint32_t arch);

/* Ends it for a cause that is not its own. The first cause counts. */
void exec_stop(struct exec *exec, enum cause cause);

/* exec_terminal.c: is it what terminals are opened by? Opens one in the jail's name, gives the
 * child its own side, and the jail the other. */
struct ucred;
bool exec_is_ptmx(int fd);
void exec_terminal(struct exec *exec, int ptmx, const struct ucred *child);

/* exec_held.c: it is dead, or will be in no time; from now on the report of process 1 is waited
 * for.
 */
void exec_held_expect(struct exec *exec);

/* Stops timers, closes descriptors. Its cgroup is removed by exec_remove(), 0 when gone, -1 when it
 * must be tried again. */
void exec_close(struct exec *exec);
int exec_remove(struct exec *exec, struct err *err);
void exec_free(struct exec *exec); /* NULL allowed */
