/* The executions of one sandbox: the table by id, what is kept of finished ones, and their return
 * after a restart of the server.
 *
 * On disk, in the sandbox's directory: the journal (spool_log.h) and, for executions with more
 * output than fits there, a few files each (spool.h): exec.N.out, exec.N.err and exec.N.ev, where N
 * is the number of the execution in its jail. What a client was told is on disk before he is told;
 * nothing is synced, since a sandbox does not survive its host.
 *
 * Kept are the last EXECS_KEEP finished executions, and of those as many as have no more than
 * EXECS_KEEP_BYTES on disk together. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "execution.h"
#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "pipes.h"
#include "spool_log.h"

#define EXECS_KEEP 200u
#define EXECS_KEEP_BYTES ((uint64_t)64 * 1024 * 1024)
/* The journal is written anew when it is larger than this and than twice what is needed of it. */
#define EXECS_LOG_MIN ((uint64_t)1024 * 1024)
/* Descriptors of a sandbox in which nothing happens are closed after this. */
#define EXECS_REST_MS 500u

struct server;

/* What all sandboxes share. One per server. */
struct audit;

struct exec_hub {
    struct loop *loop; /* borrowed, as are log and metrics */
    struct log *log;
    struct metrics *metrics;
    /* An execution is over: recorded. May be NULL. */
    void (*ended)(struct audit *audit, const struct exec *x);
    struct audit *audit;
    /* One that is over is about to leave the table of its sandbox for good. May be NULL. */
    void (*leaves)(struct server *server, const struct exec *x);
    struct server *server;
    const struct accounts *accounts; /* whose tokens ask; borrowed; NULL = nobody's */
    struct pipes *pipes;             /* ready ones; borrowed; NULL = each is made when needed */
    int scratch[2];                  /* a pipe, to look into other ones; -1 = none */
    char copies[SPOOL_STREAMS][EXEC_INLINE_MAX];
};

struct execs {
    struct exec_hub *hub;
    struct sandbox *sandbox; /* NULL = it is gone */
    int dir;                 /* borrowed from the sandbox; -1 = it is gone. All spools look here */
    struct spool_log log;
    struct exec *newest, *oldest;
    size_t count, done, running;
    uint64_t bytes; /* of finished ones */
    size_t pins;    /* of all executions */
    bool freed;     /* by the sandbox; lives on for the pins */
    struct loop_timer rest;
    struct loop_defer tidy;
};

struct exec_hub *execs_hub_new(struct loop *loop, struct log *log, struct metrics *metrics,
                               struct err *err);
void execs_hub_free(struct exec_hub *hub); /* NULL allowed; after all sandboxes */

/* A fresh pipe in place of the one there was, whatever that holds. */
int execs_hub_scratch(struct exec_hub *hub, struct err *err);

/* Gives the sandbox its executions (SANDBOX_EXECS): call it when the directory is there, and before
 * adoption; again it does nothing. Reads the journal of a sandbox that is not new. */
int execs_attach(struct server *s, struct sandbox *sb, struct err *err);
/* As that, without a server. */
struct execs *execs_new(struct exec_hub *hub, struct sandbox *sb, struct err *err);
extern const struct sandbox_part_ops execs_part_ops;

struct execs *execs_of(const struct sandbox *sb);
struct exec *execs_find(const struct execs *set, const char *id);

/* Puts it into the table, in front. */
void execs_insert(struct execs *set, struct exec *x);
/* Out of the table, its files too; freed with its last pin. `record`: for good, also after a
 * restart. */
void execs_forget(struct exec *x, bool record);
/* Those that are too many leave a moment after the answer to who made them so: before anybody looks
 * at what is there, they leave now. */
void execs_settle(struct execs *set);
/* The journal has grown: it is written anew when it has become too large. */
void execs_written(struct execs *set);
/* For exec.c: a pin is gone; the set may be freed. It is over. */
void execs_unpinned(struct execs *set);
void execs_finished(struct exec *x);
void execs_log(const struct exec *x, const struct err *err);
