/* The body of POST /v1/runs, decoded.
 *
 * Pure: bytes in, struct out; knows the shape of the API and the bounds that hold for everybody
 * (limit_info()), nothing of policies, images or what the host can do. Safe on any thread.
 *
 * Strict: an unknown field, a duplicate key, a wrong type (null included) and a value out of range
 * are errors that name the field. Values that a run sets and a step does not (env, cwd, stdin,
 * merge_stderr, limits) are the step's defaults. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "backend.h"
#include "cause.h"
#include "limit.h"

#define REQUEST_STEPS_MAX 256u    /* a policy allows at most this many, mostly fewer */
#define REQUEST_STEP_NAME_MAX 64u /* characters */
#define REQUEST_ARGS_MAX 8192u    /* entries of argv */
#define REQUEST_STRING_MAX                                                                         \
    131071u                    /* bytes of one argument, script or NAME=VALUE: the kernel's bound */
#define REQUEST_ENV_MAX 1024u  /* entries of env, of the run and of each step */
#define REQUEST_PATH_MAX 4095u /* bytes of a path or pattern */
#define REQUEST_COMPONENT_MAX 255u /* bytes between two slashes */
#define REQUEST_FILES_MAX 32768u
#define REQUEST_COLLECT_MAX 256u
#define REQUEST_STDIN_MAX (64u * 1024 * 1024) /* bytes, decoded */

/* What the caller wished; what it left open has set[id] == false. */
struct request_limits {
    struct limits values;
    bool set[LIMIT_COUNT];
};

struct request_bytes {
    const char *data; /* NULL = not given; may hold NULs; data[len] is NUL */
    size_t len;
    const uint8_t *sha256; /* 32 bytes, borrowed; NULL = nobody has hashed it yet */
};

struct request_env {
    const char *const *items; /* "NAME=VALUE" */
    size_t count;
};

struct request_step {
    const char *name; /* UTF-8, printable; "main", or "step-<index>" when not given */
    bool shell;       /* argv[0] is a script for the shell, argc == 1 */
    bool continue_on_error;
    bool merge_stderr;       /* the run's when the step says nothing */
    const char *const *argv; /* argc strings, then NULL */
    size_t argc;
    struct request_env env;     /* on top of the run's */
    const char *cwd;            /* absolute; NULL = the run's */
    struct request_bytes input; /* stdin; data NULL = the run's */
    struct request_limits limits;
};

struct request_file {
    const char *path; /* relative to /workspace, normalised: bundle_path_ok() holds */
    const char *data; /* never NULL */
    size_t size;
    uint32_t mode; /* 0…0777 */
};

/* Words that `network` may be. Which of them a policy allows is not decided here. */
enum request_network { REQUEST_NETWORK_NONE, REQUEST_NETWORK_EGRESS };

/* Which of the user's own runs go first. Nobody else's turn is taken by it. */
enum request_priority { REQUEST_PRIORITY_NORMAL, REQUEST_PRIORITY_LOW, REQUEST_PRIORITY_HIGH };

struct request_mem;
struct json_t;

/* Everything in it is owned by it and lives until request_done(). The struct may be moved (copied,
 * the old one forgotten): nothing in it points into itself. */
struct run_request {
    const char *policy;       /* "default" when not given; str_is_name() holds */
    const char *image;        /* "host" when not given; str_is_name() holds */
    enum backend backend;     /* BACKEND_NONE when not given */
    const char *image_digest; /* "sha256:" and 64 hex digits, or NULL: any */
    enum request_network network;
    bool wait;   /* default true */
    bool stream; /* default false */
    bool cancel_on_disconnect;
    bool keep_steps; /* a snapshot before every step */
    enum request_priority priority;
    bool end_on_set; /* false: the policy's default */
    uint32_t end_on; /* mask of enum end_on */
    struct request_limits limits;
    struct request_env env;
    const char *cwd;            /* absolute; "/workspace" when not given */
    struct request_bytes input; /* stdin of every step without its own; data NULL = none */
    struct request_step *steps; /* 1…REQUEST_STEPS_MAX */
    size_t step_count;
    struct request_file *files; /* no path twice, none below another */
    size_t file_count;
    const char *const *collect; /* relative patterns, normalised like paths */
    size_t collect_count;
    size_t bytes; /* memory held, for accounting */

    struct request_mem *mem; /* private */
    struct json_t *root;     /* private: strings are borrowed from it */
};

/* Decodes `len` bytes of JSON. 0: the caller owns *out (request_done()). -1: *error is filled
 * (status 400, 413 or, when memory is short, 500), *out is untouched. Codes: bad_json,
 * unknown_field, duplicate_field, missing_field, wrong_type, out_of_range, invalid_value, conflict,
 * too_large. */
int request_decode(const char *json, size_t len, struct run_request *out, struct api_error *error);

/* Frees what it holds and zeroes it. Accepts NULL and a zeroed struct. */
void request_done(struct run_request *r);

/* What step `index` really gets: its own or the run's. */
const char *request_cwd(const struct run_request *r, size_t index);
struct request_bytes request_input(const struct run_request *r, size_t index);
