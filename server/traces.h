/* Traces of requests: what a new run, execution or sandbox hangs under, and all that belongs to one
 * trace. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "http.h"
#include "trace.h"

struct server;

/* A span for what this request makes, under what it says and where its token came from. `inside` is
 * the sandbox's (NULL = none). *state (may be NULL) becomes "TRACESTATE=…", owned, or NULL. */
int traces_begin(struct server *s, struct http_req *req, const struct trace *inside,
                 struct trace *out, char **state, struct err *err);
/* An execution is about to be forgotten, a sandbox is gone: they stay in their traces, as rows, as
 * long as runs stay. When many go at once (a sandbox with hundreds of executions) the first are
 * written with the row of the sandbox and durable with it, the others by and by in the rounds after
 * that: milliseconds, in which they are seen all the same. Whoever deletes the sandbox is answered
 * when all are durable (traces_late_after()); a server that stops writes them; one that is killed
 * within those milliseconds loses some of a sandbox whose time was over, of which nobody was told.
 */
struct exec;
struct sandbox;
void traces_keep_exec(struct server *s, const struct exec *x);
void traces_keep_sandbox(struct server *s, const struct sandbox *sb);

/* The answer's header `traceparent`. */
void traces_answer(struct http_req *req, const struct trace *t);

/* The trace of a run or an execution of this user, also of one that is gone. false: there is none.
 */
bool traces_of_id(struct server *s, const char *user, const char *id, struct trace *out);
/* Of the caller's runs and executions the one whose span the request's traceparent names: its id,
 * borrowed, or NULL. Of those that are in memory, which all are that still go on. */
const char *traces_of_parent(struct server *s, struct http_req *req);

/* All that belongs to one trace. */
enum traces_kind { TRACES_RUN, TRACES_EXEC, TRACES_SANDBOX };
#define TRACES_MAX 5000u /* nodes that are looked at; the newest are left out */
#define TRACES_NODE_ID_SIZE 40

struct traces_node {
    enum traces_kind kind;
    char id[TRACES_NODE_ID_SIZE];
    char sandbox[TRACES_NODE_ID_SIZE]; /* of an execution */
    char label[TRACE_LABEL_SIZE];      /* what it runs */
    struct trace trace;
    const char *state;    /* static */
    char cause[24];       /* of the end that counts; "" = none yet */
    int64_t exit_code;    /* -1 = none, or not known any more */
    bool ok;              /* only when it is over */
    uint64_t created_ms;  /* since the epoch */
    uint64_t duration_ms; /* from then on; UINT64_MAX = it goes on */
};

struct traces_list {
    struct traces_node *nodes; /* owned; oldest first */
    size_t count, alloc;
    bool cut; /* there are more than TRACES_MAX */
};

/* Gathers what `user` has of a trace: `done` is called once, with the list (borrowed until it
 * returns), or with NULL and *err. What is little is there before traces_gather() returns, which is
 * NULL then; else the store is read piece by piece, and the gathering can be stopped until `done`.
 */
struct traces_gather;
struct traces_asker {
    void (*done)(void *arg, const struct traces_list *list, const struct err *err);
    void *arg;
};
struct traces_gather *traces_gather(struct server *s, const char *user,
                                    const uint8_t id[TRACEPARENT_ID],
                                    const struct traces_asker *asker);
void traces_gather_stop(struct traces_gather *g);
