/* The connection to one runner shard: the server's half of the conversation that wire.h describes.
 *
 * A table says which replies are permitted in which state; anything else, and any reply that does
 * not fit a jail that is open here, ends the connection. When a connection ends, every jail of it
 * is dead (the runner sees to that), and each jail's owner is told by `lost`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "image_ref.h"
#include "log.h"
#include "loop.h"
#include "wire.h"

#define LINK_NAME_MAX 64
#define LINK_SLOTS_MAX 65536u     /* runs and sandboxes of a shard together */
#define LINK_SNAPSHOTS_MAX 65536u /* that a shard may have kept */

/* Descriptors of a kept execution, in the order of their bits on the wire. */
enum link_keep {
    LINK_KEEP_STDIN,
    LINK_KEEP_STDOUT, /* or a terminal's master */
    LINK_KEEP_STDERR,
    LINK_KEEP_INPUT, /* what was taken for its stdin: inlet.h */
    LINK_KEEP_FDS,
};

enum link_state {
    LINK_CLOSED,   /* no connection */
    LINK_HELLO,    /* HELLO sent, nothing heard */
    LINK_GREETING, /* WELCOME heard; POLICY and CAPABILITY until READY */
    LINK_READY,
    LINK_STATES
};

struct link;
struct link_jail;

/* What a jail's owner is told. After `lost`, and once it has called link_close_jail(), the owner
 * must not use the jail any more. No callback comes from within a call of the owner's. */
struct link_jail_ops {
    void (*ended)(void *owner, const struct wire_end *end);
    void (*failed)(void *owner, const struct wire_failed *failed); /* the jail is gone with it */
    void (*lost)(void *owner);
    /* The rest is for jails that were opened as sandboxes (done: for every one that is asked for a
     * snapshot). NULL: such a reply breaks the protocol. */
    void (*opened)(void *owner);
    void (*started)(void *owner, uint32_t number, int master); /* takes over the descriptor */
    void (*done)(void *owner, const struct wire_done *done);
    /* After link_adopt(), before its `done`: takes over the descriptors, of which those that are
     * not kept are -1. */
    void (*kept_exec)(void *owner, const struct wire_kept_exec *kept, const int fds[LINK_KEEP_FDS]);
};

struct link_policy {
    struct wire_policy head;
    char *text; /* head.text_size bytes and a NUL; owned */
    bool any_image;
    struct image_ref *images; /* else only these; owned */
    size_t image_count;
    enum backend backend;    /* of the shard that has it … */
    uint8_t host_sha256[32]; /* … and what image "host" is there; zeros: it has no digest */
};

/* What the holder of the links is told. */
struct link_watch {
    void (*ready)(void *arg, struct link *l);
    void (*down)(void *arg, struct link *l, const struct err *why);
    void (*slot_free)(void *arg, struct link *l); /* a jail is gone, or its health changed */
    void (*looked)(void *arg, struct link *l);    /* link_look() was answered; may be NULL */
    void *arg;
};

/* Numbers of jails: those of runs and those of sandboxes do not compete. */
enum link_pool_kind { LINK_RUNS, LINK_SANDBOXES, LINK_POOLS };
struct link_pool {
    uint32_t *free_list;
    uint32_t free_count;
    uint32_t in_use;
};

/* What a runner kept of an earlier connection. */
struct link_kept {
    struct wire_kept *items;
    size_t count, alloc;
};

/* Jails of a shard that are ready and wait to be given away. */
#define LINK_KINDS_MAX 64u
struct link_kind {
    char policy[WIRE_NAME_MAX], image[WIRE_NAME_MAX];
    uint32_t warm;
};

struct link_kinds {
    struct link_kind items[LINK_KINDS_MAX];
    size_t count;
};

/* What the last link_look() found. */
struct link_look {
    uint32_t what;         /* is being asked for; 0 = nothing is … */
    uint32_t again;        /* … and this then */
    uint64_t began, ended; /* the looks at jails are counted */
    struct link_kinds kinds, next;
};

struct link {
    char name[LINK_NAME_MAX]; /* path of the socket, relative to the state directory */
    enum link_state state;
    bool greeted;      /* this connection, or the one that has just ended, came as far as READY */
    struct loop *loop; /* borrowed */
    struct log *log;   /* borrowed */
    const struct link_watch *watch; /* borrowed */
    struct loop_source source;
    struct loop_timer greeting; /* until READY */
    int fd;
    struct wire_welcome welcome;
    struct link_policy *policies;
    size_t policy_count;
    struct wire_capability *capabilities;
    size_t capability_count;
    struct wire_state shard; /* the last STATE heard */
    struct link_look look;
    struct link_kept kept, kept_snapshots; /* until watch.ready() has seen them */
    struct link_jail *jails;
    uint32_t jail_count; /* welcome.slots and welcome.sandboxes */
    struct link_pool pools[LINK_POOLS];
    uint64_t serial;
    struct link_packet *out_first, *out_last; /* what the socket would not take yet */
    size_t out_count;
    struct loop_defer fail;    /* a send failed: end the connection after the current round */
    struct loop_defer close;   /* CLOSE is to be sent … */
    struct link_jail *closing; /* … for these */
    struct err fail_why;
    uint64_t *packet; /* WIRE_PACKET_MAX bytes, aligned */
};

/* Fills in the struct: no connection yet. */
void link_init(struct link *l, const char *name, struct loop *loop, struct log *log,
               const struct link_watch *watch);
/* Ends the connection without telling anybody, frees everything. */
void link_done(struct link *l);

/* Connects to the socket (in the current directory, which is the state directory) and says HELLO.
 * Only for LINK_CLOSED. */
int link_connect(struct link *l, struct err *err);
/* Ends the connection as if the runner had: owners are told. */
void link_drop(struct link *l, const struct err *why);

/* Can it take another run, another sandbox now? */
bool link_has_room(const struct link *l);
bool link_has_sandbox_room(const struct link *l);
/* The policy as this shard knows it, or NULL. */
const struct link_policy *link_policy(const struct link *l, const char *name);

/* Reserves a jail; sends nothing yet: its OPEN goes with the first link_exec(). NULL when there is
 * no room. */
struct link_jail *link_open_jail(struct link *l, const struct link_jail_ops *ops, void *owner);

/* The same for a sandbox: link_open() or link_adopt() follows. */
struct link_jail *link_open_sandbox(struct link *l, const struct link_jail_ops *ops, void *owner);
/* Sends OPEN alone; open->head is filled in here. -1 only when memory is short: nothing was sent.
 */
int link_open(struct link_jail *j, const struct wire_open *open, struct err *err);
/* The kept sandbox `key` is this jail from now on. */
void link_adopt(struct link_jail *j, const char *key);

struct link_exec {
    const struct wire_open *open; /* not NULL: the jail's OPEN, sent in front */
    struct wire_exec *exec;       /* head is filled in here */
    uint32_t number;              /* of the execution within the jail */
    const void *spec;             /* exec->spec_size bytes, inline; NULL with WIRE_FD_SPEC */
    const int *fds;               /* borrowed: the kernel copies them */
    size_t fd_count;
};
/* Sends EXEC. Never blocks; what the socket does not take waits here. A connection that turns out
 * to be dead shows later, through `lost`. -1 only when memory is short: nothing was sent. */
int link_exec(struct link_jail *j, const struct link_exec *x, struct err *err);
void link_kill(struct link_jail *j, uint32_t number, enum cause cause);
void link_signal(struct link_jail *j, uint32_t number, int signal);
/* Its part of the processors, as in struct wire_weigh. False: the runner does not know of the jail
 * yet; nothing was sent. */
bool link_weigh(struct link_jail *j, uint32_t shares);
/* Each is answered by `done`, in the order of the requests. */
void link_freeze(struct link_jail *j, bool frozen);
void link_snapshot(struct link_jail *j, const char *key);
void link_restore(struct link_jail *j, const char *key);
/* Asks what goes on: watch.looked() tells that it is known. Nothing happens when it is not READY.
 */
void link_look(struct link *l, uint32_t what);
/* Forgets a snapshot of this shard, if there is a connection. */
void link_drop_snapshot(struct link *l, const char *key);
/* Gives back a jail of which nothing was sent. */
void link_abandon(struct link_jail *j);
/* The shard does not do what it should: ends the connection, after the current round. */
void link_fail(struct link_jail *j, const char *why);
/* The owner is done with the jail: nothing is heard of it any more. CLOSE is sent at the end of the
 * current round, after what the owner still does in it: its client's answer comes first. */
void link_close_jail(struct link_jail *j);
/* As link_close_jail(); closed() is called when everything in it is dead, with the CPU time of what
 * had no END, or (UINT64_MAX: nobody knows) when the connection has ended. */
void link_close_then(struct link_jail *j, void (*closed)(void *arg, uint64_t cpu_ns), void *arg);
/* The same jail: nobody waits for it any more. Its number is taken until the runner says that it is
 * gone. */
void link_close_forget(struct link_jail *j);
struct link *link_of(const struct link_jail *j);

/* What a jail used when somebody looked last. */
struct link_sight {
    uint64_t cpu_ns, mem_bytes; /* CPU: of what runs, since each execution began */
    uint64_t at_ns;             /* monotonic */
    uint32_t running;
    uint32_t cpus_milli; /* between the last two looks; UINT32_MAX = not known */
};
/* False: nobody has looked yet, or the last look did not see it. NULL allowed. */
bool link_seen(const struct link_jail *j, struct link_sight *out);
/* What any look has seen of it, however long ago: at_ns says when. False: none has. NULL allowed.
 */
bool link_sighted(const struct link_jail *j, struct link_sight *out);
