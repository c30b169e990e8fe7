/* What the parts of the request decoder share. Not for others: use request.h. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "request.h"

/* --- request_mem.c: memory that is freed all at once ------------------------------------------ */

/* 16-aligned, not zeroed; NULL when memory is short. *mem starts as NULL. */
void *request_mem_alloc(struct request_mem **mem, size_t size);
void request_mem_free(struct request_mem *mem); /* NULL allowed */
size_t request_mem_total(const struct request_mem *mem);

/* --- request_scan.c: the bytes, before the JSON library builds a tree of them ------------------
 */

#define REQUEST_DEPTH_MAX 16u      /* the deepest place of the API is 5 levels down */
#define REQUEST_MEMBERS_MAX 4096u  /* of one object: env has the most, 1,024 */
#define REQUEST_TOKENS_MAX 262144u /* values, roughly: bounds the tree's memory */

/* Refuses, in one cheap pass, what would cost the JSON library far more memory or time than its
 * bytes: deep nesting, millions of tiny values, huge strings where only short ones are allowed.
 * What it lets through may still not be JSON. */
int request_scan(const char *json, size_t len, struct api_error *error);

/* The JSON pointer of the place that byte `position` is in, as far as it can be told. */
void request_where(const char *json, size_t len, size_t position, char *field, size_t size);

/* --- request.c ---------------------------------------------------------------------------------
 */

/* The body as a tree, or NULL with *error: it must be one JSON object. */
json_t *request_parse(const char *json, size_t len, struct api_error *error);

/* --- request_field.c: paths, errors, typed fields ----------------------------------------------
 */

/* Where we are, linked up the C stack; turned into text only when something is wrong. */
struct request_path {
    const struct request_path *up; /* NULL = the body itself is above */
    const char *key;               /* NULL: an array index */
    size_t index;
};

struct request_ctx {
    struct request_mem *mem;
    struct api_error *error;
};

/* Fills ctx->error; the message is the place ("steps[1].argv[0]") followed by the text. Returns -1.
 */
int request_fail(struct request_ctx *ctx, const struct request_path *at, int status,
                 const char *code, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
int request_wrong_type(struct request_ctx *ctx, const struct request_path *at,
                       const char *expected);

/* Memory of ctx; on NULL ctx->error is filled. */
void *request_alloc(struct request_ctx *ctx, size_t count, size_t size);

/* Reads one value into `slot`, whose type the function knows. */
typedef int request_reader(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                           void *slot);

struct request_field {
    const char *name; /* NULL ends the table */
    request_reader *read;
    size_t offset; /* of the slot in the struct that is filled */
};

/* Reads an object by its table into `target`; a field that is not in the table is an error. */
int request_object(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                   const struct request_field *table, void *target);

/* The error for the field `at`, which is not in the table, with the name that was meant if one is
 * near. Only the names of the table are looked at. */
int request_unknown(struct request_ctx *ctx, const struct request_path *at,
                    const struct request_field *table);

request_reader request_keep;    /* json_t **: borrowed, read later */
request_reader request_flag;    /* bool * */
request_reader request_name;    /* const char **: str_is_name() */
request_reader request_backend; /* enum backend * */
request_reader request_digest;  /* const char **: "sha256:" and 64 hex digits */

/* A string without NUL, of at most `max` bytes. */
int request_text(struct request_ctx *ctx, const struct request_path *at, json_t *value, size_t max,
                 const char **text);

/* Bytes by encoding; `encoding` may be NULL (utf-8). Takes the text out of the tree when it is
 * base64, so that large ones are not held twice. */
struct request_source {
    json_t *value;
    json_t *encoding;
    const char *key;          /* "stdin" */
    const char *encoding_key; /* "stdin_encoding" */
    size_t max;               /* bytes, decoded */
};
int request_blob(struct request_ctx *ctx, const struct request_path *up,
                 const struct request_source *source, struct request_bytes *out);

/* --- request_limits.c --------------------------------------------------------------------------
 */

request_reader request_run_limits;  /* struct request_limits * */
request_reader request_step_limits; /* the same, only those that a step may set */
request_reader request_exec_limits; /* the same, of an execution in a sandbox */

/* --- request_step.c ----------------------------------------------------------------------------
 */

/* Fields that a run and a step have alike, before they are read. */
struct request_command {
    json_t *argv, *sh;
    json_t *input, *input_encoding;
    json_t *env, *cwd, *merge_stderr;
};

/* argv or sh into `step`. */
int request_program(struct request_ctx *ctx, const struct request_path *up,
                    const struct request_command *c, struct request_step *step);
/* stdin, env and cwd into what a run and a step have alike. */
int request_setting(struct request_ctx *ctx, const struct request_path *up,
                    const struct request_command *c, struct request_bytes *input,
                    struct request_env *env, const char **cwd);
/* The name of step `index`; value NULL: one is made. */
int request_step_name(struct request_ctx *ctx, const struct request_path *up, json_t *value,
                      size_t index, const char **name);
/* The array of steps. `merge_stderr` is the run's. */
int request_steps(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                  bool merge_stderr, struct run_request *out);

/* The word of `network` (request.c). */
int request_network(struct request_ctx *ctx, json_t *value, enum request_network *out);
/* The array of words of `end_on` (request.c). */
int request_end_on(struct request_ctx *ctx, json_t *value, struct run_request *out);

/* --- request_env.c -----------------------------------------------------------------------------
 */

int request_env(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                struct request_env *out);

/* --- request_path.c ----------------------------------------------------------------------------
 */

/* Normalises a path or pattern below /workspace into out[len + 1]: "./a//b" and "/workspace/a/b"
 * are "a/b". NULL when all is well, else what it must be ("must not contain '..'"). */
const char *request_path_clean(const char *path, size_t len, char *out);

/* --- request_files.c ---------------------------------------------------------------------------
 */

int request_files(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                  struct run_request *out);
int request_collect(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                    struct run_request *out);
