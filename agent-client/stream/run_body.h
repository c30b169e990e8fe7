/* The body of POST /v1/runs, made from the options and the local files they name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "run_options.h"

#define RUN_BODY_MAX ((size_t)256 * 1024 * 1024)
#define RUN_BODY_STDIN_MAX ((size_t)64 * 1024 * 1024)

struct json_t;

struct run_body {
    struct buf json;
    /* What the caller must know of the steps to talk about them later. */
    size_t step_count;
    struct json_t *steps; /* owned; the array of --steps, NULL for a single command */
};

/* Reads the files that the options name: regular files only, no symbolic link, each once. Nothing
 * of the environment goes in. On success the caller owns *out. */
int run_body_make(const struct run_options *o, struct run_body *out, struct err *err);
void run_body_done(struct run_body *b); /* NULL and zeroed allowed */

/* The name of step `index`, as given or as the server will call it; `space` holds made-up ones. */
const char *run_body_step_name(const struct run_body *b, size_t index, char *space, size_t size);
/* Does the run go on when step `index` fails? */
bool run_body_continues(const struct run_body *b, size_t index);
