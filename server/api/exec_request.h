/* The body of POST /v1/sandboxes/{id}/exec, decoded: one step's fields, and how to run it and to
 * answer. Pure and strict, as request.h, which has the bounds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "request.h"

#define EXEC_REQUEST_ID_MIN 23u /* characters: "ex_" and 20 to 32 of [a-z0-9] */
#define EXEC_REQUEST_ID_MAX 35u
#define EXEC_REQUEST_SIZE_MAX 4096u /* rows, and columns, of a terminal */

struct exec_request {
    /* One step; files, wait, stream, cancel_on_disconnect and end_on as of a run; what is missing
     * there is not read: policy, image, network, collect. */
    struct run_request run;
    const char *id;      /* chosen by the client; NULL = not */
    bool background;     /* answer at once; implies wait == false */
    bool stdin_open;     /* more stdin will come; always so with a terminal */
    uint16_t rows, cols; /* of the terminal; 0 = none */
};

/* 0: the caller owns *out (exec_request_done()). -1: *error is filled, as by request_decode(). */
int exec_request_decode(const char *json, size_t len, struct exec_request *out,
                        struct api_error *error);
/* Accepts NULL and a zeroed struct. */
void exec_request_done(struct exec_request *r);

/* Names what is to be done: two requests have the same hash when they ask for the same command with
 * the same input and limits, however they want to be answered. */
#define EXEC_REQUEST_HASH_SIZE 32u
void exec_request_hash(const struct exec_request *r, uint8_t out[EXEC_REQUEST_HASH_SIZE]);

/* {"rows": 24, "cols": 80}; {"signal": 15} or {"signal": "SIGTERM"}. 0, or -1 with *error. */
int exec_request_resize(const char *json, size_t len, uint16_t *rows, uint16_t *cols,
                        struct api_error *error);
int exec_request_signal(const char *json, size_t len, int *signal, struct api_error *error);

/* May an execution have this id? */
bool exec_request_id_ok(const char *id);
