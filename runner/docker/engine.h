/* A Docker engine, or whatever speaks its API, over its Unix socket. Nothing here waits: every call
 * ends in its callback, with an answer or with the reason why there is none, after a bounded time.
 *
 * The version of the API is agreed upon first: 1.41, which is the oldest that says all that is
 * needed, or the oldest that the engine still knows when that is newer. While the engine does not
 * answer, calls fail at once; it is asked again and again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"

struct engine;
struct engine_call;

struct engine_config {
    struct loop *loop;          /* borrowed */
    const char *socket;         /* path; borrowed */
    void (*changed)(void *arg); /* it has come or gone: engine_health() */
    void *arg;
};

struct engine_request {
    const char *method;
    const char *path; /* without the version: "/containers/json" */
    const char *type; /* of the body; NULL = JSON */
    const void *body; /* copied */
    size_t len;
    uint64_t timeout_ms; /* 0 = the usual 10 s */
};

/* What came of a call: status 0 and *err, or an answer. */
struct engine_reply {
    long status; /* of HTTP */
    const char *body;
    size_t len;
    struct err err; /* with status 0: which layer, what was asked, and why nothing came */
};

typedef void engine_done(void *arg, const struct engine_reply *reply);

struct engine *engine_new(const struct engine_config *cfg, struct err *err);
/* Calls in progress end without their callbacks. NULL allowed. */
void engine_free(struct engine *e);

/* -1: nothing was begun, and no callback comes; ERR_STATE when the engine does not answer. The
 * callback never comes from within. */
int engine_ask(struct engine *e, const struct engine_request *q, engine_done *done, void *arg,
               struct err *err);

/* "" or one sentence: why it cannot be used now. */
const char *engine_health(const struct engine *e);
/* "/v1.41": what paths begin with. */
const char *engine_prefix(const struct engine *e);
/* "20.10.24 (API 1.41)", for people; "" before the first answer. */
const char *engine_version(const struct engine *e);
/* Podman: takes a filter as the path of a file only. False before the first answer. */
bool engine_is_podman(const struct engine *e);
/* How often it has come back: what was known of it before may be gone. */
uint64_t engine_life(const struct engine *e);

/* The sentence of an answer that is no success, in *err: "the Docker engine: No such image: x". */
int engine_error(const struct engine_reply *reply, const char *what, struct err *err);
