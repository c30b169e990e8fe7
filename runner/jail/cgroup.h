/* Control groups: where the limits of a jail are enforced and its usage is counted.
 *
 * Hosts differ: all controllers in one tree (v2), each in a tree of its own (v1), or v1 controllers
 * beside a cgroup2 tree that has none (hybrid). All three are the same here: a list of trees, each
 * with a mask of what it does for us. A tree gets a directory per jail if it limits something of
 * the whole jail, and a directory per step if it counts or kills a single step:
 *
 *     <base>/<jail>/            memory and cpu and pids limits of the run or sandbox
 *     <base>/<jail>/s<n>/       memory limit and peak, CPU usage, oom kills, kill of step n; in a
 *                               sandbox, where several run at once, cpu and pids limits too
 *
 * where <base> is "pinfold-<id>/<shard>" (in the tree of processors also "…/<shard>/left":
 * cgroup_left_init()) below the runner's own group (v2: below the first ancestor
 * that may have children with controllers). Process 1 of a jail stays outside, in the runner's own
 * group: the memory limit of a command can never kill it.
 *
 * libcgroup makes the base groups, which live long. What it lacks is done with plain system calls:
 *  - the groups of a jail, on held directory descriptors: libcgroup resolves every path anew and
 *    takes 680 µs for what takes 270 µs here, and its attach writes one thread to `tasks`;
 *  - cgroup.kill, cgroup.events, memory.peak and a cgroup2 tree without controllers, for which it
 *    has no interface;
 *  - removal: it moves the processes that it finds to the parent group, out of their limits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "limit.h"

#define CGROUP_TREES_MAX 5
#define CGROUP_NAME_MAX 64

enum cgroup_role {
    CGROUP_MEMORY = 1,
    CGROUP_PIDS = 2,
    CGROUP_CPU = 4,     /* the share: quota per period */
    CGROUP_CPUACCT = 8, /* the usage */
    CGROUP_KILL = 16,   /* cgroup.kill and cgroup.events: always a cgroup2 tree */
    CGROUP_ROLES = 31,
};

/* Roles for which a jail has a directory, and a step has one. */
#define CGROUP_JAIL_ROLES (CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU)
#define CGROUP_STEP_ROLES (CGROUP_MEMORY | CGROUP_CPUACCT | CGROUP_KILL)

struct cgroup_tree {
    uint32_t roles;
    bool v2;
    int base_fd;         /* directory of <base> */
    char base_path[512]; /* for messages and for the record that the next start reads */
    char mount_point[256];
    char mount_root[256];    /* what of the tree is mounted there */
    char mount_options[256]; /* of the file system */
};

/* The group of jails that get what others leave: cgroup_left_init(). */
struct cgroup_left {
    bool can;
    int dir;         /* "<base>/left" in the tree with CGROUP_CPU, or -1: nobody is in it */
    uint64_t shares; /* those in it that do not get what others leave weigh this together */
};

struct cgroup_host {
    struct cgroup_tree tree[CGROUP_TREES_MAX];
    size_t count;
    bool swap_limited; /* swap is limited too, or the host has none */
    bool tcp_limit;    /* v1: buffers of sockets have a limit of their own */
    bool pids_peak;    /* the kernel keeps the peak; else it is sampled */
    bool rootless;
    char aside[512]; /* the group that cgroup_host_init() stepped out of, for cgroup_aside_end() */
    uint32_t lacks;  /* roles that nothing here plays: no limit, and the counters say 0 */
    struct cgroup_left left;
};

#define CGROUP_KEPT_MAX 8
struct cgroup_kept {
    int fd;
    char name[CGROUP_NAME_MAX];
};

struct cgroup_jail {
    int fd[CGROUP_TREES_MAX]; /* directory, or -1 where the tree has none per jail */
    char name[CGROUP_NAME_MAX];
    int pids_fd;           /* pids.peak, or pids.current where the kernel keeps no peak */
    int refused_fd;        /* pids.events */
    int share_fd;          /* cpu.stat */
    int peak_fd;           /* memory peak of all steps together */
    bool adopted;          /* its directories are an engine's, which made them and removes them */
    char adopted_as[80];   /* … and calls them so */
    uint32_t lacks;        /* as of the host */
    bool idle;             /* cpu.idle is set */
    bool left;             /* it is in the group of those that get what others leave … */
    uint32_t left_shares;  /* … and adds this to what that weighs */
    uint64_t refused_base; /* pids.events when the current step began */
    uint64_t throttled_base;
    struct cgroup_kept kept[CGROUP_KEPT_MAX]; /* memory groups of steps: cgroup_keep_put() */
    size_t kept_count;
};

struct cgroup_step {
    int fd[CGROUP_TREES_MAX];
    char name[CGROUP_NAME_MAX];
    char mem_name[CGROUP_NAME_MAX]; /* of its memory group, which may be an earlier step's */
    uint64_t ooms_base;             /* … and what was counted there before */
    bool keep;                      /* it may be a later one's: cgroup_keep_put() */
    bool own;                       /* limits and counts pids and CPU share itself */
    uint32_t lacks;
    int pids_fd;    /* with `own`: as in struct cgroup_jail */
    int refused_fd; /* also without `own`, in a tree that has all controllers */
    int share_fd;
    int usage_fd;                   /* cpuacct.usage, or cpu.stat */
    int user_fd;                    /* cpuacct.usage_user; -1 on v2, where cpu.stat has it */
    int peak_fd;                    /* memory.max_usage_in_bytes, or memory.peak */
    int oom_fd;                     /* memory.oom_control, or memory.events */
    int events_fd;                  /* cgroup.events */
    int procs_fd[CGROUP_TREES_MAX]; /* cgroup_step_expect() */
    bool usage_v2;
};

struct cgroup_usage {
    uint64_t cpu_ns;
    uint64_t cpu_user_ns;
    uint64_t cpu_system_ns;
    uint64_t mem_peak_bytes;
    uint64_t oom_kills;
};

struct cgroup_jail_usage {
    uint64_t pids_peak; /* where the kernel doesn't keep it: the number now */
    uint64_t pids_refused;
    uint64_t throttled_ns;
};

/* Finds the trees and makes the base groups "<name>" (such as "pinfold-1a2b3c4d/0"). `mount_dir` is
 * an existing empty directory on which a cgroup2 tree is mounted if the host has none (the caller
 * is in a private mount namespace). Fails when a role cannot be had, naming it and the remedy. */
int cgroup_host_init(struct cgroup_host *host, const char *name, const char *mount_dir,
                     struct err *err);
/* The same without root, in a group of a cgroup2 tree that was delegated to this user and in which
 * nobody else is. The roles in `may_lack` (of CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU) may be
 * missing: host->lacks says which are. */
int cgroup_host_init_rootless(struct cgroup_host *host, const char *name, uint32_t may_lack,
                              struct err *err);
/* Removes the (empty) base groups and closes everything. */
void cgroup_host_done(struct cgroup_host *host);
/* Where a group that has processes can hand nothing on (v2), cgroup_host_init() has moved this
 * process, and so those that it forks, into a leaf of its group: undoes that when the base groups
 * and all those processes are gone. Nothing to do with "". */
void cgroup_aside_end(const char *dir);

/* Removes the group directory `path` (a base_path that an earlier life recorded) with everything
 * below it: kills what still runs in it, waits at most so long, removes the directories. EBUSY: not
 * all of it has died. A path that is not there is fine; one that is not on a cgroup file system is
 * refused. */
#define CGROUP_SWEEP_NS 5000000000ULL
int cgroup_sweep(const char *path, uint64_t patience_ns, struct err *err);

/* Makes the attach of a process cheap: without "favordynmods" a kernel that has been idle waits for
 * an RCU grace period, 10 to 20 ms, in every attach. The option is the host's, and stays. Returns 1
 * when set, 0 when the kernel doesn't know it (before 6.0). */
int cgroup_favor_dynmods(const struct cgroup_host *host);

/* `left`: in the group of those that get what others leave, and idle; there must be one. */
int cgroup_jail_make(struct cgroup_host *host, const char *name, bool left,
                     struct cgroup_jail *jail, struct err *err);
/* The same of a container: its own groups, in which process `pid` is, become the jail's. Where a
 * group that has processes cannot hand on controllers (v2), `pid` is moved to a leaf of it. A group
 * that is ours, or that others are in as well, is refused; so is a process that has died (`pidfd`),
 * whose number may be somebody else's. */
int cgroup_jail_adopt(const struct cgroup_host *host, const char *name, pid_t pid, int pidfd,
                      struct cgroup_jail *jail, struct err *err);
/* Removes what is left of adopted groups, which the engine cannot remove while there are groups of
 * steps in them; closes the rest. */
void cgroup_jail_return(struct cgroup_jail *jail);
/* Sets memory (without swap), pids and cpu share of the whole jail; may be called again. */
int cgroup_jail_limit(const struct cgroup_host *host, const struct cgroup_jail *jail,
                      const struct limits *limits, struct err *err);
/* Its part of processors that are wanted by more jails than there are; `shares` as in struct
 * wire_weigh. Without a group for processors there is nothing to do. WIRE_SHARES_LEFT is cpu.idle
 * (Linux 5.15, v1 and v2): for the kernel a processor with nothing but such work is free, and who
 * wakes need not wait for a turn to end; before, it is the least weight there is. */
int cgroup_jail_weigh(struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                      struct err *err);

/* Can there be a group "<base>/left", for jails that are made to get what others leave? It is there
 * while there are such jails. Beside several idle groups somebody who wakes may have to wait all
 * the same: who wakes is put at the mean of what all had (EEVDF), and an idle group that is behind
 * the others, for which a turn of 4 ms weighs as much as one of 1.4 s, is before it until it has
 * caught up; 30 ms where it cannot run without a pause. Beside a single one who wakes is first.
 * While all jails in it get what others leave, the group is idle; else it weighs what the others
 * weigh together (cgroup_jail_weigh()). -1: there can be none, with ERR_STATE where processors have
 * no groups, or ERR_SYSTEM, ENOENT before Linux 5.15. */
int cgroup_left_init(struct cgroup_host *host, struct err *err);
/* For cgroup.c: before a jail is made in it, and after one is gone; what the jail adds to what the
 * group weighs, 0 = nothing. */
int cgroup_left_enter(struct cgroup_host *host, struct err *err);
void cgroup_left_leave(struct cgroup_host *host);
int cgroup_left_add(struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                    struct err *err);
/* For cgroup_left.c: shares as in struct wire_weigh, less WIRE_SHARES_LEFT; cpu.idle. */
int cgroup_weigh_shares(bool v2, int dir, uint64_t shares, struct err *err);
int cgroup_weigh_idle(int dir, bool idle, struct err *err);
/* Forgets what earlier steps counted in the jail's own files. */
int cgroup_jail_mark(const struct cgroup_host *host, struct cgroup_jail *jail, struct err *err);
/* What is counted of pids and CPU share: by the step's own group if it has one, else by the jail's.
 */
int cgroup_jail_read(const struct cgroup_host *host, const struct cgroup_jail *jail,
                     const struct cgroup_step *step, struct cgroup_jail_usage *usage,
                     struct err *err);
/* Memory that the whole jail uses now. */
int cgroup_jail_memory(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       uint64_t *bytes, struct err *err);
/* Memory peak of the whole jail, all its steps. */
int cgroup_jail_peak(const struct cgroup_jail *jail, uint64_t *bytes, struct err *err);

/* `own`: with limits of its own for pids and CPU share. */
int cgroup_step_make(const struct cgroup_host *host, struct cgroup_jail *jail, unsigned n, bool own,
                     struct cgroup_step *step, struct err *err);
/* Makes a step's group `own` after process `pid` was attached to it. */
int cgroup_step_extend(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err);
/* Opens the counters, which cgroup_step_cpu(), _read() and _populated() need, as far as they are
 * not open: in a sandbox not before the step starts, so that one that only waits holds few
 * descriptors.
 */
int cgroup_step_watch(const struct cgroup_host *host, struct cgroup_step *step, struct err *err);
/* Closes the counters that the steps of a sandbox make unnecessary in the jail's own groups, and
 * those of a step that only waits: many sandboxes rest, and each descriptor counts. */
void cgroup_jail_rest(struct cgroup_jail *jail);
void cgroup_step_rest(struct cgroup_step *step);
/* The step's own limits, at most the jail's: memory, and if it is `own`, pids and CPU share. v1
 * does not count the buffers of sockets (TCP and UDP) as memory: there they get a quarter of it on
 * top, and nothing beyond. */
int cgroup_step_limit(const struct cgroup_host *host, const struct cgroup_step *step,
                      const struct limits *limits, struct err *err);
/* Opens what moves a process into the step's group, for when one is about to come: to look for the
 * files takes as long as to write to them. cgroup_step_attach() does it else, and closes them. */
int cgroup_step_expect(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err);
void cgroup_step_unexpect(struct cgroup_step *step);
/* Moves a process into the step's group in every tree. */
int cgroup_step_attach(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err);
/* CPU used so far, nanoseconds: one read, for the CPU limit. */
int cgroup_step_cpu(const struct cgroup_step *step, uint64_t *cpu_ns, struct err *err);
int cgroup_step_read(const struct cgroup_step *step, struct cgroup_usage *usage, struct err *err);
/* 1 while a live process is in it, 0 when none is, -1 on error. */
int cgroup_step_populated(const struct cgroup_step *step, struct err *err);
/* Number of processes in it now. */
int cgroup_step_count(const struct cgroup_host *host, const struct cgroup_step *step,
                      uint32_t *count, struct err *err);
/* SIGKILL to everything in it, atomically against fork (cgroup.kill, Linux 5.14). */
int cgroup_step_kill(const struct cgroup_host *host, const struct cgroup_step *step,
                     struct err *err);

/* Stops all its processes, or lets them go on. They are stopped, or going, when
 * cgroup_step_frozen() says so: a moment later. */
int cgroup_step_freeze(const struct cgroup_host *host, const struct cgroup_step *step, bool frozen,
                       struct err *err);
/* 1, 0, or -1 on error. */
int cgroup_step_frozen(const struct cgroup_step *step, struct err *err);

/* Remove the directories. 0 when gone; -1 with EBUSY in err->code while a dead process is not yet
 * reaped: call again a little later. Idempotent; accept half-made groups. */
int cgroup_step_remove(const struct cgroup_host *host, struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err);
int cgroup_jail_remove(struct cgroup_host *host, struct cgroup_jail *jail, struct err *err);

/* What removed groups cost. A page that is charged to one keeps it in the kernel, 200 KB that
 * nobody counts, until that page is gone. While the kernel has more than `most` of them (v2: of
 * this shard's; v1: groups of all kinds, those that live as well, since it counts no others):
 *  - what is charged to the group of a step that is over (files of images that it was the first to
 *    read) is given back before it is removed;
 *  - in a sandbox, where files in memory stay, the memory group of a step that has left little is
 *    kept for a later step of that jail (v1);
 *  - v2 counts those of each jail: a sandbox in which they cost as much as its memory limit starts
 *    nothing more. */
#define CGROUP_DYING_MOST 4096u
#define CGROUP_DYING_BYTES 204800u
struct cgroup_dying {
    uint64_t looked_ns, count; /* looked at once a second */
    uint64_t most;
};
bool cgroup_dying_many(struct cgroup_dying *dying, const struct cgroup_host *host);
/* What those of a jail cost in bytes; 0 where the kernel does not count them by jail (v1). */
uint64_t cgroup_jail_dying(const struct cgroup_host *host, const struct cgroup_jail *jail);
/* Gives back the pages of files that are charged to a step in which nobody is; a few MiB at most,
 * since this waits. */
void cgroup_step_empty(const struct cgroup_host *host, const struct cgroup_step *step);
/* For cgroup.c: keeps the step's memory group, in which nobody is; gives a step one that was kept;
 * false: neither. Removes those that are kept. */
bool cgroup_keep_put(const struct cgroup_host *host, struct cgroup_jail *jail,
                     struct cgroup_step *step);
bool cgroup_keep_take(const struct cgroup_host *host, struct cgroup_jail *jail,
                      struct cgroup_step *step);
void cgroup_keep_done(const struct cgroup_host *host, struct cgroup_jail *jail);

/* Closes every descriptor and leaves the directories: the next start sweeps them. */
void cgroup_step_abandon(struct cgroup_step *step);
void cgroup_jail_abandon(struct cgroup_jail *jail);

/* For the other files: the tree that plays a role (the first one where none does: whoever may meet
 * such a role looks at host->lacks first); a number goes into a group's file. */
size_t cgroup_find(const struct cgroup_host *host, uint32_t role);
int cgroup_put(int dir, const char *file, uint64_t value, struct err *err);
/* For cgroup_adopt.c: a group hands its controllers on; the counters of a jail are opened. */
int cgroup_delegate(const struct cgroup_tree *tree, int dir, struct err *err);
int cgroup_jail_counters(const struct cgroup_host *host, struct cgroup_jail *jail, struct err *err);
/* For cgroup_adopt.c: the directory of the group that `proc_cgroup`, the text of a process's
 * /proc/PID/cgroup, names in this tree. */
int cgroup_tree_dir(const struct cgroup_tree *tree, const char *proc_cgroup, char *out, size_t size,
                    struct err *err);
/* For cgroup_host.c: into the leaf of `dir`; back, and the leaf is removed unless others are in it
 * (who is on the way out is waited for). The path of a group without that leaf; false: it had none.
 */
int cgroup_aside_step(const char *dir, struct err *err);
void cgroup_aside_back(const char *dir);
bool cgroup_aside_without_leaf(char *below);
/* For cgroup_host.c: hands the controllers of these roles on to the groups below `dir` (v2). */
int cgroup_enable(int dir, uint32_t roles, struct err *err);

/* All descriptors -1: what remove() accepts before make() was called. */
void cgroup_jail_init(struct cgroup_jail *jail);
void cgroup_step_init(struct cgroup_step *step);
