/* Requests to one Pinfold server, over libcurl. Connections are kept and used again.
 *
 * There is no time-out on the whole of a request: the server's limits decide how long a run takes.
 * Connecting has 5 seconds, and a peer that has silently gone away is noticed by TCP keepalive and
 * TCP_USER_TIMEOUT. Redirects are not followed: the token goes to the server that was named.
 *
 * One request is performed at a time; a second one may go on beside it (what is typed, while the
 * output is followed). */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "api_error.h"
#include "buf.h"
#include "err.h"
#include "target.h"

struct rest;

#define REST_WAIT_MAX 6

/* What else to do while waiting. Both functions are called in every round. */
struct rest_hooks {
    /* Fills up to REST_WAIT_MAX descriptors to wait on besides the connection, returns their count.
     */
    size_t (*want)(void *arg, struct pollfd fds[REST_WAIT_MAX]);
    /* Never blocks. -1 (with *err) abandons the request. */
    int (*ready)(void *arg, struct err *err);
    void *arg;
};

struct rest_call {
    const char *method;
    const char *path; /* "/v1/runs" with its query */
    const void *body; /* borrowed; NULL = none */
    size_t body_len;
    /* Gives a body piece by piece instead; `body` is NULL. -> bytes put into data[size], 0 = the
     * end, -1 (with *err) abandons. */
    ssize_t (*on_read)(void *arg, char *data, size_t size, struct err *err);
    int64_t read_len;    /* bytes that it will give; -1 = not known */
    bool raw;            /* the body is application/octet-stream, not application/json */
    unsigned timeout_ms; /* of the whole; 0 = none */
    /* The headers of an answer with a status below 400 are there; its body may take long. NULL =
     * nobody wants to know. */
    void (*on_answer)(void *arg);
    /* Gets the body of an answer with a status below 400, as it arrives. -1 (with *err) abandons.
     */
    int (*on_data)(void *arg, const char *data, size_t len, struct err *err);
    void *arg;

    /* Answers: */
    int status;             /* HTTP status; 0 = no answer came */
    bool anonymous;         /* it was sent without a token */
    struct api_error error; /* of a status of 400 and more */
};

/* `hooks` may be NULL; both are borrowed for the life of the object. */
struct rest *rest_new(const struct target *target, const struct rest_hooks *hooks, struct err *err);
void rest_free(struct rest *h); /* NULL allowed */

/* 0: an answer came, whole; see status and error. -1: none, or it was cut short, or abandoned. The
 * kinds: ERR_SYSTEM with code ECONNREFUSED when no connection was made (nothing was sent), else
 * ERR_SYSTEM with code ECONNRESET; or what a callback said. */
int rest_perform(struct rest *h, struct rest_call *call, struct err *err);
/* A header of the answer that rest_perform() got last, or NULL. Valid until the next request. */
const char *rest_header(struct rest *h, const char *name);

/* What a request beside is told when it is over: rc as rest_perform() returns it. */
typedef void rest_beside_fn(void *arg, int rc, const struct err *err);

/* Starts a request beside; `call` is borrowed until `done` was called, which happens from within
 * rest_perform() and rest_idle(), the only places where it advances. ERR_STATE when one goes on. */
int rest_beside(struct rest *h, struct rest_call *call, rest_beside_fn *done, void *arg,
                struct err *err);
bool rest_beside_busy(const struct rest *h);
/* Performs nothing but what is beside, and the hooks, for up to `ms`; returns early when one of
 * them had something to do. -1: a hook said so. */
int rest_idle(struct rest *h, int ms, struct err *err);

struct json_t;
/* A request whose answer is one JSON object of at most `max` bytes; `body` (may be NULL) is sent.
 * -> new reference (JSON null when the answer has no body), or NULL: *err holds a sentence, the
 * server's own when it answered with an error (then err->code is the HTTP status). */
struct json_t *rest_json(struct rest *h, const char *method, const char *path,
                         const struct json_t *body, size_t max, struct err *err);
struct json_t *rest_get_json(struct rest *h, const char *path, size_t max, struct err *err);

/* An on_data that appends to the struct buf in `arg`. */
int rest_gather(void *arg, const char *data, size_t len, struct err *err);

/* The sentence for an error answer: message and field. err->code is the HTTP status. */
int rest_refusal(const struct rest_call *call, struct err *err);
