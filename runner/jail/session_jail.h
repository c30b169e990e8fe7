/* Inside of session.c: a connection, and the jails that it opened (session_jail.c). */
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

/* A jail that the server opened. */
struct session_jail {
    struct session *session;
    struct session_jail *next;
    struct session_jail *wait_next;
    bool waiting; /* for the pool to make it a jail */
    uint64_t id;
    struct jail *jail; /* NULL before it was got and after it is gone */
    const struct policy *policy;
    char image[WIRE_NAME_MAX];
    struct limits limits;
    bool limits_set; /* the run's limits are in force in the jail */
    bool failed;     /* FAILED was sent */
    bool busy;       /* an EXEC was accepted and has not ended */
    bool started;    /* … and its command was handed over */
    uint64_t opened_ns;
    /* An EXEC that waits for the jail. */
    struct exec_request wish;
    char *spec; /* owned copy */
    int fd[FD_PASS_MAX];
    enum cause stopped; /* KILL came before it started */
};

struct session {
    struct session_config cfg;
    int sock;
    struct loop_source src;
    bool greeted;
    bool closing;
    bool state_dirty, room;
    uint64_t state_sent_ns;
    struct loop_timer state_timer;
    struct session_jail *wait_first, *wait_last;
    bool writing; /* waits for EPOLLOUT */
    struct loop_defer defer;
    struct session_out out;
    struct session_jail *jails;
    _Alignas(
        8) char packet[sizeof(struct wire_open) + sizeof(struct wire_exec) + WIRE_SPEC_INLINE_MAX];
};

/* Sends a packet, or queues it; a broken connection closes the session. */
void session_send(struct session *s, const void *data, size_t size);
/* Frees the session at the end of the round if it is closed and its jails are gone. */
void session_free_if_done(struct session *s);
void session_fds_close(int *fds, size_t n);

/* Drops an EXEC that waits: its descriptors and its spec. */
void session_wish_drop(struct session_jail *e);
/* FAILED: the jail cannot go on. */
void session_send_failed(struct session_jail *e, const char *stage, int code, const char *text);
/* CLOSED: everything of it is gone. Frees `e`. */
void session_send_closed(struct session_jail *e);
/* END with the cause that stopped it, for an EXEC whose command never began. */
void session_end_early(struct session_jail *e);
/* Starts the EXEC that waits, if there is one and the jail is ready for it. */
void session_try(struct session_jail *e);

/* Gets `e` a jail, or puts it at the end of the line for one. */
void session_admit_or_wait(struct session_jail *e);
/* Serves the line, first come, first served, until the pool says later. */
void session_admit_waiting(struct session *s);
void session_wait_remove(struct session *s, struct session_jail *e);
