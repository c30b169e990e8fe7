/* Requests to one Pinfold server, over libcurl. One connection is kept and used again.
 *
 * There is no time-out on the whole of a request: the server's limits decide how long a run takes.
 * Connecting has 5 seconds, and a peer that has silently gone away is noticed by TCP keepalive and
 * TCP_USER_TIMEOUT. Redirects are not followed: the token goes to the server that was named. */
#pragma once

#include <poll.h>
#include <stddef.h>

#include "api_error.h"
#include "err.h"
#include "target.h"

struct rest;

#define REST_WAIT_MAX 4

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
    const void *body; /* borrowed; NULL = none. Sent as application/json */
    size_t body_len;
    unsigned timeout_ms; /* of the whole; 0 = none */
    /* Gets the body of an answer with a status below 400, as it arrives. -1 (with *err) abandons.
     */
    int (*on_data)(void *arg, const char *data, size_t len, struct err *err);
    void *arg;

    /* Answers: */
    int status;             /* HTTP status; 0 = no answer came */
    struct api_error error; /* of a status of 400 and more */
};

/* `hooks` may be NULL; both are borrowed for the life of the object. */
struct rest *rest_new(const struct target *target, const struct rest_hooks *hooks, struct err *err);
void rest_free(struct rest *h); /* NULL allowed */

/* 0: an answer came, whole; see status and error. -1: none, or it was cut short, or abandoned. The
 * kinds: ERR_SYSTEM with code ECONNREFUSED when no connection was made (nothing was sent), else
 * ERR_SYSTEM with code ECONNRESET; or what a callback said. */
int rest_perform(struct rest *h, struct rest_call *call, struct err *err);

struct json_t;
/* A GET whose answer is one JSON object of at most `max` bytes. -> new reference, or NULL: *err
 * holds a sentence, the server's own when it answered with an error. */
struct json_t *rest_get_json(struct rest *h, const char *path, size_t max, struct err *err);

/* The sentence for an error answer: message and field. */
int rest_refusal(const struct rest_call *call, struct err *err);
