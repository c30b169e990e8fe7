/* What the subcommands about sandboxes share: paths, one request each, times for people. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "rest.h"
#include "simple_cmd.h"

struct json_t;

#define SANDBOX_API_ANSWER_MAX ((size_t)16 * 1024 * 1024)

/* "/v1/sandboxes/ID" and `more` into dst. `id` is checked: it becomes a part of a path. */
int sandbox_api_path(char *dst, size_t size, const char *id, const char *more, struct err *err);
/* The same for "/v1/sandboxes/ID/exec/EX" and `more`. */
int sandbox_api_exec_path(char *dst, size_t size, const char *const ids[2], const char *more,
                          struct err *err);
/* 0 when it can be an id; `what`: "a sandbox". */
int sandbox_api_check(const char *id, const char *what, struct err *err);

/* One request; `body` (stolen, may be NULL) is sent. -> new reference (null for an empty answer).
 */
struct json_t *sandbox_api_call(struct rest *rest, const char *method, const char *path,
                                struct json_t *body, struct err *err);

/* One line of JSON on stdout. */
void sandbox_api_print(const struct json_t *object);
/* A field of `object` that is an id, alone on a line. -1: it has none. */
int sandbox_api_print_id(const struct json_t *object, struct err *err);
/* The name of a sandbox's policy: "policy" is {"name", …}, or the name itself. NULL = not told. */
const char *sandbox_api_policy(const struct json_t *sandbox);
/* Milliseconds since the epoch as "2026-01-02T03:04:05Z"; "-" when it is not a number. */
void sandbox_api_time(const struct json_t *value, char *dst, size_t size);
