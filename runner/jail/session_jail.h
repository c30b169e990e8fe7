/* Inside of the session: a connection, the jails that it opened (session_jail.c), what runs in them
 * (session_exec.c), what is asked of sandboxes as a whole (session_sandbox.c), and what is
 * told to whoever looks (session_look.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fd.h"
#include "jail.h"
#include "loop.h"
#include "session.h"
#include "session_out.h"
#include "wire.h"

#define SESSION_BUCKETS 1024u
#define SESSION_KEEP 4 /* bits of WIRE_FD_KEEP */

struct session_exec {
    struct session_exec *next;
    struct exec_request wish; /* number, kind and flags stay valid; the rest until it has started */
    char *spec;               /* owned copy, until it has started */
    int fd[FD_PASS_MAX];      /* those for the command, until it has started */
    int keep[SESSION_KEEP];   /* the server's: ends of stdin, stdout, stderr, and what was taken for
                                 stdin; -1 = none */
    bool started;             /* the command was handed over */
    bool ended;               /* `end` waits for a server to hear of it, or was told */
    uint64_t told_ns;         /* when, 0 = not yet */
    struct wire_end end;
};

/* FREEZE, SNAPSHOT or RESTORE: one after the other. */
struct session_control {
    struct session_control *next;
    uint32_t what; /* enum wire_type */
    bool frozen;
    bool orphan; /* whoever asked is gone: it is finished, and nobody told */
    char key[WIRE_NAME_MAX];
    uint64_t deadline_ns; /* to come to a stop */
};

/* A jail that the server opened. */
struct session_jail {
    const struct session_config *cfg; /* what outlives the connection: loop, pool, layers, hold */
    struct session *session;          /* NULL: a sandbox that is held */
    struct session_jail *next;        /* of all */
    struct session_jail *hash_next;   /* of those with a like number */
    struct session_jail *wait_next;
    bool waiting; /* for the pool to make it a jail */
    bool modest;  /* of what is ready, it leaves the last half to others */
    uint64_t id;
    struct jail *jail; /* NULL before it was got and after it is gone */
    const struct policy *policy;
    char image[WIRE_NAME_MAX];
    uint8_t image_sha256[32];
    struct limits limits;
    uint64_t opened_ns;
    bool limits_set;            /* the limits are in force in the jail */
    uint32_t shares;            /* of processors, still to be set in the jail; 0 = none */
    bool failed;                /* FAILED was sent, or would have been */
    bool dying;                 /* it was killed by us */
    bool used;                  /* an EXEC has come */
    struct session_exec *execs; /* in the order in which they came */
    unsigned exec_count;
    struct session_exec *told; /* sandbox: commands whose END was sent a moment ago, oldest first */
    unsigned told_count;
    struct loop_timer told_timer;

    bool sandbox;
    bool preparing, opened; /* its files are as OPEN wants them; of a sandbox, OPENED was sent */
    bool frozen;            /* commands stand still */
    bool busy_layers;       /* an operation on its volume: nothing starts */
    enum wire_disk disk;
    char key[WIRE_NAME_MAX], from[WIRE_NAME_MAX];
    uint64_t lost_cpu_ns;             /* of what ran when it ended; for CLOSED */
    uint64_t looked;                  /* the last look that told of it */
    struct session_control *controls; /* the first is in progress */
    bool controlling;
    struct loop_timer timer;      /* looks whether all has come to a stop */
    struct loop_timer hold_timer; /* the end of waiting for a server */
};

/* Is there something to do before the first command: a sandbox is more than a jail, and what is to
 * be written may not be as process 1 made it. */
static inline bool session_jail_opens(const struct session_jail *e) {
    return e->sandbox || e->disk != WIRE_DISK_MEMORY || e->from[0] != '\0';
}

/* Those that wait for jails, in the order in which they came. */
struct session_line {
    struct session_jail *first, *last;
};

struct session {
    const struct session_config *cfg; /* borrowed */
    int sock;
    struct loop_source src;
    bool greeted;
    bool closing;
    bool state_dirty, room;
    uint64_t state_sent_ns;
    struct loop_timer state_timer;
    uint32_t look_what; /* what is still to be told to whoever looks */
    uint64_t look_serial;
    struct loop_timer look_timer;
    struct session_line line, modest; /* all of the first come before those of the second */
    bool writing;                     /* waits for EPOLLOUT */
    struct loop_defer defer;
    struct session_out out;
    struct session_jail *jails;
    unsigned jail_count;
    struct session_jail *bucket[SESSION_BUCKETS]; /* the same, by their numbers */
    _Alignas(
        8) char packet[sizeof(struct wire_open) + sizeof(struct wire_exec) + WIRE_SPEC_INLINE_MAX];
};

/* Sends a packet, or queues it; a broken connection closes the session. Nobody there: nothing. */
void session_send(struct session *s, const void *data, size_t size);
void session_send_fds(struct session *s, const void *data, size_t size, const int *fds,
                      size_t nfds);
/* Frees the session at the end of the round if it is closed and its jails are gone. */
void session_free_if_done(struct session *s);
struct session_jail *session_find(const struct session *s, uint64_t id);
/* Into, and out of, the connection's list; not in any list otherwise. */
void session_add(struct session *s, struct session_jail *e);
void session_remove(struct session *s, struct session_jail *e);
/* Limits of a policy as this host can give them. */
struct limits session_ceiling(const struct session_config *cfg, const struct policy *p);

/* session_hello.c */
int session_hello(struct session *s, struct err *err);

/* session_look.c */
void session_look(struct session *s, const struct wire_look *q);

/* session_jail.c */
int session_open(struct session *s, const struct wire_open *q, struct err *err);
void session_weigh(struct session *s, const struct wire_weigh *q);
/* What the kernel was not told of that, as soon as there is a jail. */
void session_weigh_now(struct session_jail *e);
void session_close_jail(struct session *s, uint64_t id);
/* Kills its jail; what runs is told nothing more. */
void session_kill_jail(struct session_jail *e);
void session_list_remove(struct session_jail **list, struct session_jail *e);
/* Releases the memory of one that is in no list. */
void session_jail_free(struct session_jail *e);
/* Serves the lines for jails, first come, first served, until the pool says later. */
void session_admit_waiting(struct session *s);

/* session_exec.c */
void session_fds_close(int *fds, size_t n);
int session_exec(struct session *s, const struct wire_exec *q, int *fds, size_t nfds,
                 struct err *err);
void session_kill(struct session *s, const struct wire_kill *q);
void session_signal(struct session *s, const struct wire_signal *q);
/* Starts what waits, as far as the jail is ready for it. */
void session_try(struct session_jail *e);
/* From the jail. */
void session_exec_ended(struct session_jail *e, struct session_exec *x, const struct wire_end *end);
void session_exec_terminal(struct session_jail *e, struct session_exec *x, int master);
/* Ends those that have not started. */
void session_exec_stop_waiting(struct session_jail *e, enum cause cause);
/* A server that dies may not have read the ENDs that were sent to it last: for a while they are
 * kept to be told to the next one, which forgets what it knows. */
void session_exec_hold(struct session_jail *e);
/* KEPT_EXEC for each, to the server that has adopted the jail; then their ENDs. */
void session_exec_tell_kept(struct session_jail *e);
void session_exec_tell_ends(struct session_jail *e);
/* Forgets all: the jail is gone. */
void session_exec_drop_all(struct session_jail *e);

/* session_sandbox.c */
/* The jail is ready: makes a sandbox of it, and says OPENED when that is done. */
void session_sandbox_prepare(struct session_jail *e);
int session_sandbox_ask(struct session *s, uint64_t id, const struct session_control *wish,
                        struct err *err);
void session_sandbox_drop(struct session *s, const struct wire_key *q);
int session_sandbox_adopt(struct session *s, const struct wire_key *q, struct err *err);
/* The connection is over. True when the sandbox is held now. */
bool session_sandbox_hold(struct session_jail *e);
void session_sandbox_forget_controls(struct session_jail *e);
