/* One jail: from the clone of its process 1 to the removal of its last cgroup.
 *
 *   BUILDING  process 1 sets up; the first child confines itself
 *   READY     sealed; the first child waits to exec. A warm jail is one that stays here.
 *   BUSY      an execution is in progress
 *   DYING     killed; its processes end, its cgroups go
 * then `gone` is called and the memory is the caller's to free with jail_free().
 *
 * Everything is driven by the loop; no call here blocks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cgroup.h"
#include "err.h"
#include "exec.h"
#include "initmsg.h"
#include "limit.h"
#include "loop.h"
#include "seccomp_filter.h"
#include "spawn.h"
#include "wire.h"

enum jail_state { JAIL_BUILDING, JAIL_READY, JAIL_BUSY, JAIL_DYING };

/* What all jails of a shard share. Borrowed by every jail; outlives them. */
struct jail_host {
    struct loop *loop;
    struct cgroup_host *cgroups;
    int init_fd;         /* sealed memfd of pinfold-init */
    int home_ns;         /* the runner's own mount namespace */
    unsigned cpus;       /* online processors */
    uint32_t core_bytes; /* jail_core_limit() */
    uint64_t serial;     /* names of cgroups: counts up, never reused within a life */
};

/* What one jail is made of. */
struct jail_plan {
    int template_ns;                   /* borrowed for the call */
    const struct seccomp_program *bpf; /* borrowed for the call */
    uint32_t writable;
    struct limits limits;
    struct limits ceiling; /* hard rlimits: what a later execution may ask for at most */
    uint32_t id_base, id_count;
    unsigned slot; /* the owner's number for that range of ids */
};

struct jail;

/* The RLIMIT_CORE that keeps this host from dumping core: 1 where core_pattern names a program,
 * else 0. */
uint32_t jail_core_limit(void);

/* Called from the loop. `ready` when a child waits to exec and none did before; `ended` once per
 * execution; `gone` once, last. `failed` comes when set-up or process 1 broke; the jail is DYING
 * then. */
struct jail_events {
    void (*ready)(void *arg, struct jail *jail);
    void (*failed)(void *arg, struct jail *jail, const char *stage, int code, const char *text);
    void (*ended)(void *arg, struct jail *jail, const struct wire_end *end);
    void (*gone)(void *arg, struct jail *jail);
};

struct jail {
    struct jail_host *host;
    const struct jail_events *events;
    void *arg;
    enum jail_state state;
    unsigned slot;
    bool fresh; /* for the pool: still counted as being made */
    pid_t pid;  /* process 1, outside */
    int pidfd;
    int control;
    int writable_fd; /* O_PATH of the writable file system's root */
    int filter_fd;   /* listener of its system call filter */
    ino_t pid_ns;    /* inode of its pid namespace */
    uint64_t disk_base, inodes_base;
    struct spawn *spawn; /* until process 1 has executed */
    struct loop_source control_src, pid_src, filter_src;
    struct loop_timer build_timer, remove_timer;
    uint64_t remove_deadline_ns;
    struct cgroup_jail cgroup;
    struct limits limits;  /* in force for the whole jail */
    struct limits applied; /* last written to the jail's cgroup (steps may narrow) */
    struct exec *current;  /* ready or in progress */
    struct exec *next;     /* being prepared while `current` runs */
    unsigned execs;        /* forked so far */
    unsigned lost;         /* children in a row that died before they were used */
    bool reported;         /* failed() was called */
};

/* Starts a jail. On success `ready` or `failed` follows from the loop. On failure nothing is left.
 */
struct jail *jail_new(struct jail_host *host, const struct jail_plan *plan,
                      const struct jail_events *events, void *arg, struct err *err);

/* Narrows (or widens back) the limits of a READY jail that has run nothing: memory, pids, cpu
 * share, and size and inode count of its writable file system. */
int jail_set_limits(struct jail *jail, const struct limits *limits, struct err *err);

/* Does a child wait to exec? If the last execution is over and no other child was announced for
 * after it (jail_is_spent()), jail_renew() asks for one. `ready` follows, as it does when a child
 * that was announced (WIRE_EXEC_MORE) is not ready yet. */
bool jail_is_ready(const struct jail *jail);
bool jail_is_spent(const struct jail *jail);
/* Is there no room left in the jail's memory for another child? The files of the run have filled
 * it. */
bool jail_is_full(const struct jail *jail, uint64_t *peak_bytes);
int jail_renew(struct jail *jail, struct err *err);

/* Starts an execution in a jail that jail_is_ready(). Descriptors and spec of the request stay the
 * caller's. A failure is reported through `ended` or `failed`, not here; -1 means that the request
 * does not fit the state (ERR_STATE). */
int jail_exec(struct jail *jail, const struct exec_request *request, struct err *err);

/* Ends the execution in progress for this cause; harmless when there is none. */
void jail_stop(struct jail *jail, enum cause cause);

/* Kills everything. `gone` follows. Idempotent. */
void jail_kill(struct jail *jail);

/* Releases the memory of a jail after `gone`. NULL allowed. */
void jail_free(struct jail *jail);

/* Bytes and inodes in use in the writable file system beyond what set-up took; *full is set when
 * one of the two has nothing left. */
int jail_disk(const struct jail *jail, uint64_t *bytes, uint64_t *inodes, bool *full);

/* For exec.c: the jail cannot go on. */
void jail_fail(struct jail *jail, const char *stage, int code, const char *text);
/* For exec.c: the current execution is over. */
void jail_exec_done(struct jail *jail, const struct wire_end *end);
/* For exec.c: the child of `exec` is confined. */
void jail_exec_ready(struct jail *jail, struct exec *exec);
/* For jail.c: the listener of the filter has something to tell. `arg` is the jail. */
void jail_filtered(void *arg, uint32_t events);
