/* One jail: from the clone of its process 1 to the removal of its last cgroup.
 *
 *   BUILDING  process 1 sets up; the first child confines itself
 *   READY     sealed. A child, the spare, waits to exec, or is being made; commands run, one in a
 *             run, any number in a sandbox. A warm jail is one that has run nothing.
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

enum jail_state { JAIL_BUILDING, JAIL_READY, JAIL_DYING };

#define JAIL_STAGE_IMAGE "image" /* failed() with it: the image is not what it should be */
#define JAIL_IMAGE_MAX 128       /* how an engine names an image, with NUL */

struct jail;
struct jail_plan;

/* How process 1 of a jail comes to be, and what goes with it. From its birth on all jails are the
 * same: what is said to process 1, what is measured and how it ends. */
struct jail_maker {
    /* Process 1 is in a container: its user, root and control groups are not made by us. */
    bool contained;
    void *arg;
    /* Begins to make it. jail_born() follows, from within or from the loop, unless jail_fail()
     * does. `plan` is borrowed for the call, except for what struct jail_plan says. -1: there is
     * nothing of it. */
    int (*begin)(void *arg, struct jail *jail, const struct jail_plan *plan, struct err *err);
    /* Process 1 is dead, or was never born, and our control groups are gone: takes away what else
     * there is, then calls jail_removed(), from the loop. NULL: there is nothing else. */
    void (*end)(void *arg, struct jail *jail);
    /* Contained: what the engine is to be asked for, and the image's digest. ERR_INVALID: there is
     * no such image. */
    int (*image)(void *arg, const char *name, char ref[JAIL_IMAGE_MAX], uint8_t sha256[32],
                 struct err *err);
    /* Contained: "" or why no jail can be made now. */
    const char *(*health)(void *arg);
};

/* The maker of native jails: jail_new() clones process 1. */
extern const struct jail_maker jail_native;

/* The outside ids of jails: jail number n has those from first + n * count on; with SPAWN_IDS_ONE
 * all jails have the same one. */
struct jail_ids {
    uint32_t first;
    uint32_t count; /* SPAWN_IDS_… */
};

uint32_t jail_ids_base(const struct jail_ids *ids, uint32_t n);

/* jail_sockets.c: answers in a window of time. */
struct jail_sockets {
    uint64_t since_ns;
    unsigned answers;
};

/* What all jails of a shard share. Borrowed by every jail; outlives them. */
struct jail_host {
    struct loop *loop;
    struct cgroup_host *cgroups;
    int init_fd;         /* sealed memfd of pinfold-init */
    int home_ns;         /* the runner's own mount namespace */
    unsigned cpus;       /* online processors */
    uint32_t core_bytes; /* jail_core_limit() */
    uint64_t serial; /* names of cgroups: counts up; what is left of an earlier life has others */
    const struct jail_maker *maker; /* borrowed */
    unsigned building;              /* jails that are being made; kept by the pool */
    const struct jail *newest;      /* jail_newest(); only to compare with: it may be gone */
    uint64_t newest_ns;
    struct jail_ids ids;
    bool rootless; /* root of a user namespace only: see main/rootless.h */
    struct cgroup_dying dying;
    struct jail_sockets sockets; /* to all jails */
    struct netns_set *networks;  /* for jails to come; borrowed. NULL: each has a new one */
};

/* What one jail is made of. */
struct jail_plan {
    int template_ns;                   /* native: borrowed for the call */
    const char *image;                 /* contained: what jail_maker.image() gave */
    const char *image_name;            /* contained: what it was asked for */
    enum policy_syscalls syscalls;     /* contained: whose program `bpf` is */
    const struct seccomp_program *bpf; /* borrowed; must stay until jail_born() */
    uint32_t writable;
    struct limits limits;
    struct limits ceiling; /* hard rlimits: what a later execution may ask for at most */
    uint32_t id_base, id_count;
    unsigned slot; /* the owner's number for that range of ids */
    bool left;     /* native: made to get what others leave (cgroup_left_init()) */
};

struct jail;

/* The RLIMIT_CORE that keeps this host from dumping core: 1 where core_pattern names a program,
 * else 0. */
uint32_t jail_core_limit(void);

/* Called from the loop. `ready` when a child waits to exec and none did before, or when the one
 * that waited has died; `ended` once per execution, with the owner that jail_exec() was given;
 * `terminal` before that, when one was asked for: the descriptor is the callee's; `gone` once,
 * last. `failed` comes when set-up or process 1 broke; the jail is DYING then. */
struct jail_events {
    void (*ready)(void *arg, struct jail *jail);
    void (*failed)(void *arg, struct jail *jail, const char *stage, int code, const char *text);
    void (*ended)(void *arg, struct jail *jail, void *owner, const struct wire_end *end);
    void (*terminal)(void *arg, struct jail *jail, void *owner, int master); /* may be NULL */
    void (*gone)(void *arg, struct jail *jail);
};

struct jail {
    struct jail_host *host;
    const struct jail_events *events;
    void *arg;
    enum jail_state state;
    unsigned slot;
    uint32_t id_base, id_count, writable;
    bool left;                         /* as in the plan */
    bool one_id;                       /* process 1 is the user of the commands */
    const struct seccomp_program *bpf; /* until it is born */
    struct limits ceiling;
    void *made; /* the maker's; it has one as long as this is not NULL */
    bool fresh; /* for the pool: still counted as being made */
    bool stays; /* for the pool: it is counted as a sandbox */
    pid_t pid;  /* process 1, outside */
    int pidfd;
    int control;
    int writable_fd; /* O_PATH of the writable file system's root */
    int filter_fd;   /* listener of its system call filter */
    int net_fd;      /* its network namespace, if that may be used again */
    bool net_old;    /* that is from another jail */
    bool net_told;   /* it asked for what leaves something there (netns.h) */
    ino_t pid_ns;    /* inode of its pid namespace */
    uint64_t disk_base, inodes_base;
    struct spawn *spawn; /* native: until process 1 has executed */
    struct loop_source control_src, pid_src, filter_src;
    struct loop_timer build_timer, remove_timer;
    uint64_t remove_deadline_ns;
    struct cgroup_jail cgroup;
    struct limits limits;  /* in force for the whole jail */
    struct limits applied; /* last written to the jail's cgroup (steps may narrow) */
    struct exec *spare;    /* wait to exec, or are being prepared, the oldest first; NULL = none */
    struct exec *execs;    /* started, also those whose cgroup is still there */
    struct loop_timer sweep_timer, stock_timer, sockets_timer;
    struct jail_sockets sockets;
    uint64_t used_ns;             /* the last start */
    unsigned running;             /* started and not over */
    unsigned forked;              /* so far */
    unsigned lost;                /* children in a row that died before they were used */
    uint64_t lost_ns;             /* the last of them */
    unsigned displaced;           /* … that lost their groups, see jail_displaces() */
    bool sandbox;                 /* several at once: each has its own pids and CPU share */
    bool sealed;                  /* process 1 has no power any more */
    bool reported;                /* failed() was called */
    uint64_t lost_cpu_ns;         /* of executions that ended with it */
    struct layers_volume *volume; /* NULL = it is the tmpfs that set-up made */
};

/* Starts a jail. On success `ready` or `failed` follows from the loop. On failure nothing is left.
 */
struct jail *jail_new(struct jail_host *host, const struct jail_plan *plan,
                      const struct jail_events *events, void *arg, struct err *err);

/* Narrows (or widens back) the limits of a READY jail that has run nothing: memory, pids, cpu
 * share, and size and inode count of its writable file system. */
int jail_set_limits(struct jail *jail, const struct limits *limits, struct err *err);

/* From now on several executions may run at once, each with limits of its own for everything, and a
 * child is made ready for the next one after each start. For a READY jail that has run nothing. */
int jail_make_sandbox(struct jail *jail, struct err *err);

/* Does a child wait to exec? If there is none (jail_is_spent()), jail_renew() asks for one. `ready`
 * follows, as it does when a child that was announced (WIRE_EXEC_MORE) is not ready yet. */
bool jail_is_ready(const struct jail *jail);
bool jail_is_spent(const struct jail *jail);
/* Is there no room left in the jail's memory for another child? The files of the run have filled
 * it. */
bool jail_is_full(const struct jail *jail, uint64_t *peak_bytes);
int jail_renew(struct jail *jail, struct err *err);

/* Starts an execution in a jail that jail_is_ready(). Descriptors and spec of the request stay the
 * caller's. A failure is reported through `ended` or `failed`, not here; -1 means that the request
 * does not fit the state (ERR_STATE). */
int jail_exec(struct jail *jail, const struct exec_request *request, void *owner, struct err *err);

/* The execution of this owner: ends it for this cause, or sends it a signal; harmless when there is
 * none. */
void jail_stop(struct jail *jail, const void *owner, enum cause cause);
void jail_signal(struct jail *jail, const void *owner, int signal);
/* Ends all of them. */
void jail_stop_all(struct jail *jail, enum cause cause);

/* Stops the processes of all commands, or lets them go on; and those of file operations. */
int jail_freeze(struct jail *jail, bool commands, bool files, struct err *err);
/* 1 when every execution has come to that, 0 when not yet, -1 on error. */
int jail_settled(const struct jail *jail, struct err *err);

/* Have process 1 and the children that wait the user of the commands, who may signal them? In
 * containers, and where all jails have one id. */
bool jail_shares_user(const struct jail *jail);

/* How many commands run: executions without file operations. */
unsigned jail_commands(const struct jail *jail);

/* What layers.h wants to know of it. */
struct layers_jail;
void jail_describe(const struct jail *jail, struct layers_jail *out);

/* Kills everything. `gone` follows. Idempotent. */
void jail_kill(struct jail *jail);

/* Releases the memory of a jail after `gone`. NULL allowed. */
void jail_free(struct jail *jail);

/* For makers: process 1 is there. Takes over the descriptors, also on failure, after which the
 * maker calls jail_fail() (from the loop) or returns -1 (from begin()). */
struct jail_birth {
    pid_t pid;
    int pidfd, control;
    int writable_fd;  /* contained: O_PATH of the writable file system's root; else -1 */
    bool one_id;      /* contained: process 1 is the user of the commands */
    uint32_t id_base; /* contained: outside id of user 0 */
};
int jail_born(struct jail *jail, const struct jail_birth *birth, struct err *err);
/* For makers: what end() was to do is done. The jail may be freed within. */
void jail_removed(struct jail *jail);

/* Bytes and inodes in use in the writable file system beyond what set-up took; *full is set when
 * one of the two has nothing left. */
int jail_disk(const struct jail *jail, uint64_t *bytes, uint64_t *inodes, bool *full);

/* What goes on in it at this moment. */
struct jail_sight {
    uint64_t cpu_ns, mem_bytes;
    uint32_t running;
};
int jail_look(const struct jail *jail, struct jail_sight *out, struct err *err);

/* Its part of processors that are wanted by more jails than there are: struct wire_weigh. Only of a
 * jail that is ready; what runs in it goes on. */
int jail_weigh(struct jail *jail, uint32_t shares, struct err *err);

/* For exec.c: the jail cannot go on. */
void jail_fail(struct jail *jail, const char *stage, int code, const char *text);
/* For exec.c: it is over. */
void jail_exec_done(struct jail *jail, struct exec *exec, const struct wire_end *end);
/* For exec.c: its terminal has come; takes over the descriptor. */
void jail_exec_terminal(struct jail *jail, struct exec *exec, int master);
/* For exec.c: the first child is in its control group; process 1 gives up its powers as soon as
 * that child has the namespace. */
void jail_seal(struct jail *jail);
/* For exec.c: the child of `exec` is confined. */
void jail_exec_ready(struct jail *jail, struct exec *exec);
/* For jail.c: the listener of the filter has something to tell. `arg` is the jail. */
void jail_filtered(void *arg, uint32_t events);
/* For jail_filter.c (jail_sockets.c): is it about sockets that are bounded, or an option of one of
 * which the runner is only told? Lets the call go on or, where there is a bound, answers ENOBUFS.
 * Before: has it, or have all, got so many answers that it is not heard for a while? */
struct seccomp_notif;
bool jail_sockets_wait(struct jail *jail);
bool jail_sockets_asked(const struct seccomp_notif *note);
void jail_sockets_answer(struct jail *jail, const struct seccomp_notif *note);
/* For jail.c (jail_run.c): a child of process 1 has ended. */
void jail_exited(struct jail *jail, const struct initmsg_report *report);
/* Reads what process 1 has said, if it has: for who knows that it is about to. */
void jail_hear(struct jail *jail);
/* For jail_run.c (jail_spare.c): the spare that jail_is_ready() found; looks after the spares of a
 * sandbox a little later, and after the groups of what is over, now; was it a spare that ended? */
struct exec *jail_take_spare(struct jail *jail);
/* Of all sandboxes of the shard this one began, or got its first command, last. */
void jail_newest(struct jail *j);
void jail_stock(struct jail *jail, uint64_t wait_ns);
void jail_sweep(void *arg);
bool jail_spare_exited(struct jail *jail, uint32_t pid);
/* A child cannot come into its groups. When somebody outside has removed them (they were empty
 * until now), a sandbox goes on with another child: true, and `exec` is dismissed. False: it is not
 * that, or it was so several times in a row. Without all its groups no child ever executes
 * anything. */
bool jail_displaces(struct jail *jail, struct exec *exec, const struct err *err);
/* For jail.c: the end of all executions, used or not. */
void jail_close_execs(struct jail *jail);
int jail_remove_execs(struct jail *jail, struct err *err);
void jail_free_execs(struct jail *jail);
