#include "request.h"

#include <errno.h>
#include <string.h>

#include "json_memory.h"
#include "request_internal.h"
#include "str.h"

/* The body as read field by field, before what depends on more than one field is looked at. */
struct request_body {
    struct request_command command;
    json_t *steps, *files, *collect, *end_on, *network;
    json_t *wait; /* kept: an explicit false conflicts with stream */
    struct run_request run;
};

#define REQUEST_KEEP(name, member)                                                                 \
    { name, request_keep, offsetof(struct request_body, member) }
#define REQUEST_READ(name, reader, member)                                                         \
    { name, reader, offsetof(struct request_body, run.member) }

static int request_priority(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                            void *slot) {
    static const char *const words[] = {[REQUEST_PRIORITY_NORMAL] = "normal",
                                        [REQUEST_PRIORITY_LOW] = "low",
                                        [REQUEST_PRIORITY_HIGH] = "high"};
    const char *text;
    if (request_text(ctx, at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0) {
            *(enum request_priority *)slot = (enum request_priority)i;
            return 0;
        }
    return request_fail(ctx, at, 400, "invalid_value", "must be \"low\", \"normal\" or \"high\".");
}

static const struct request_field request_body_fields[] = {
    REQUEST_KEEP("argv", command.argv),
    REQUEST_KEEP("sh", command.sh),
    REQUEST_KEEP("steps", steps),
    REQUEST_READ("limits", request_run_limits, limits),
    REQUEST_KEEP("files", files),
    REQUEST_KEEP("env", command.env),
    REQUEST_KEEP("cwd", command.cwd),
    REQUEST_KEEP("stdin", command.input),
    REQUEST_KEEP("stdin_encoding", command.input_encoding),
    REQUEST_READ("policy", request_name, policy),
    REQUEST_READ("image", request_name, image),
    REQUEST_READ("backend", request_backend, backend),
    REQUEST_READ("image_digest", request_digest, image_digest),
    REQUEST_KEEP("network", network),
    REQUEST_READ("priority", request_priority, priority),
    REQUEST_KEEP("collect", collect),
    REQUEST_KEEP("wait", wait),
    REQUEST_READ("stream", request_flag, stream),
    REQUEST_READ("cancel_on_disconnect", request_flag, cancel_on_disconnect),
    REQUEST_READ("keep_steps", request_flag, keep_steps),
    REQUEST_KEEP("merge_stderr", command.merge_stderr),
    REQUEST_KEEP("end_on", end_on),
    {NULL, NULL, 0},
};

int request_network(struct request_ctx *ctx, json_t *value, enum request_network *out) {
    struct request_path at = {.key = "network"};
    const char *text;
    if (request_text(ctx, &at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    if (strcmp(text, "none") == 0)
        *out = REQUEST_NETWORK_NONE;
    else if (strcmp(text, "egress") == 0)
        *out = REQUEST_NETWORK_EGRESS;
    else
        return request_fail(ctx, &at, 400, "invalid_value", "must be \"none\" or \"egress\".");
    return 0;
}

static uint32_t request_end_on_bit(const char *word) {
    static const struct {
        const char *word;
        uint32_t bit;
    } words[] = {{"pids", END_ON_PIDS}, {"disk", END_ON_DISK}, {"output", END_ON_OUTPUT}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].bit;
    return 0;
}

int request_end_on(struct request_ctx *ctx, json_t *value, struct run_request *out) {
    struct request_path at = {.key = "end_on"};
    if (!json_is_array(value))
        return request_wrong_type(ctx, &at, "an array of strings");
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct request_path here = {.up = &at, .index = i};
        const char *word;
        if (request_text(ctx, &here, json_array_get(value, i), REQUEST_STRING_MAX, &word) != 0)
            return -1;
        uint32_t bit = request_end_on_bit(word);
        if (bit == 0)
            return request_fail(ctx, &here, 400, "invalid_value",
                                "must be \"pids\", \"disk\" or \"output\".");
        if (out->end_on & bit)
            return request_fail(ctx, &here, 400, "invalid_value", "is there twice.");
        out->end_on |= bit;
    }
    out->end_on_set = true;
    return 0;
}

/* argv or sh of the body: one step named "main". */
static int request_main_step(struct request_ctx *ctx, const struct request_command *c,
                             bool merge_stderr, struct run_request *out) {
    struct request_step *step = request_alloc(ctx, 1, sizeof(*step));
    if (!step)
        return -1;
    *step = (struct request_step){.name = "main", .merge_stderr = merge_stderr};
    if (request_program(ctx, NULL, c, step) != 0)
        return -1;
    out->steps = step;
    out->step_count = 1;
    return 0;
}

static int request_what_to_run(struct request_ctx *ctx, struct request_body *body) {
    const struct request_command *c = &body->command;
    int given = (c->argv != NULL) + (c->sh != NULL) + (body->steps != NULL);
    bool merge = false;
    if (given != 1)
        return request_fail(ctx, NULL, 400, given ? "conflict" : "missing_field",
                            "must have exactly one of steps, argv and sh.");
    if (c->merge_stderr && request_flag(ctx, &(struct request_path){.key = "merge_stderr"},
                                        c->merge_stderr, &merge) != 0)
        return -1;
    if (body->steps)
        return request_steps(ctx, &(struct request_path){.key = "steps"}, body->steps, merge,
                             &body->run);
    return request_main_step(ctx, c, merge, &body->run);
}

/* Wishes about the connection that contradict each other. */
static int request_how_to_answer(struct request_ctx *ctx, struct request_body *body) {
    struct run_request *run = &body->run;
    struct request_path at = {.key = "wait"};
    if (body->wait && request_flag(ctx, &at, body->wait, &run->wait) != 0)
        return -1;
    if (!run->wait && run->stream)
        return request_fail(ctx, &at, 400, "conflict", "must not be false when stream is true.");
    if (!run->wait && run->cancel_on_disconnect)
        return request_fail(ctx, &at, 400, "conflict",
                            "must not be false when cancel_on_disconnect is true.");
    return 0;
}

static int request_build(struct request_ctx *ctx, json_t *root, struct request_body *body) {
    struct run_request *run = &body->run;
    if (request_object(ctx, NULL, root, request_body_fields, body) != 0 ||
        request_what_to_run(ctx, body) != 0 || request_how_to_answer(ctx, body) != 0)
        return -1;
    if (request_setting(ctx, NULL, &body->command, &run->input, &run->env, &run->cwd) != 0)
        return -1;
    if (body->network && request_network(ctx, body->network, &run->network) != 0)
        return -1;
    if (body->end_on && request_end_on(ctx, body->end_on, run) != 0)
        return -1;
    if (body->files &&
        request_files(ctx, &(struct request_path){.key = "files"}, body->files, run) != 0)
        return -1;
    if (body->collect &&
        request_collect(ctx, &(struct request_path){.key = "collect"}, body->collect, run) != 0)
        return -1;
    return 0;
}

/* What the JSON library found wrong, with the field where it can be told. */
static int request_json_error(const char *json, size_t len, const json_error_t *e,
                              struct api_error *error) {
    char field[API_ERROR_FIELD_MAX];
    size_t position = e->position > 0 ? (size_t)e->position : 0;
    request_where(json, len, position, field, sizeof(field));
    switch (json_error_code(e)) {
    case json_error_out_of_memory:
        return api_error_memory(error);
    case json_error_duplicate_key:
        return api_error_set(error, 400, "duplicate_field", field,
                             "The same field is there twice (line %d, column %d).", e->line,
                             e->column);
    case json_error_numeric_overflow:
        return api_error_set(error, 400, "out_of_range", field,
                             "The number at line %d, column %d is too large.", e->line, e->column);
    default:
        return api_error_set(error, 400, "bad_json", field,
                             "The body is not valid JSON (line %d, column %d): %s.", e->line,
                             e->column, e->text);
    }
}

/* Is there an object at all? Checked first, since the library would read a huge string to its end
 * before it says that no string may be here. */
static int request_begins(const char *json, size_t len, struct api_error *error) {
    size_t i = 0;
    while (i < len && (json[i] == ' ' || json[i] == '\t' || json[i] == '\n' || json[i] == '\r'))
        i++;
    if (i == len)
        return api_error_set(error, 400, "bad_json", NULL,
                             "The body is empty; it must be a JSON object.");
    if (len - i >= 3 && memcmp(json + i, "\xEF\xBB\xBF", 3) == 0)
        return api_error_set(error, 400, "bad_json", NULL,
                             "The body begins with a byte order mark; JSON has none.");
    if (json[i] != '{')
        return api_error_set(error, 400, "bad_json", NULL,
                             "The body must be a JSON object: it must begin with '{' (line 1, "
                             "column %zu).",
                             i + 1);
    return 0;
}

json_t *request_parse(const char *json, size_t len, struct api_error *error) {
    json_error_t e;
    if (request_begins(json, len, error) != 0 || request_scan(json, len, error) != 0)
        return NULL;
    json_t *root = json_memory_load(json, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!root && errno == ENOMEM)
        api_error_memory(error);
    else if (!root)
        request_json_error(json, len, &e, error);
    return root;
}

int request_decode(const char *json, size_t len, struct run_request *out, struct api_error *error) {
    json_t *root = request_parse(json, len, error);
    if (!root)
        return -1;
    struct request_ctx ctx = {.error = error};
    struct request_body body = {
        .run = {.policy = "default", .image = "host", .wait = true, .cwd = "/workspace"}};
    if (request_build(&ctx, root, &body) != 0) {
        request_mem_free(ctx.mem);
        json_decref(root);
        return -1;
    }
    body.run.mem = ctx.mem;
    body.run.root = root;
    body.run.bytes = len + request_mem_total(ctx.mem);
    *out = body.run;
    return 0;
}

void request_done(struct run_request *r) {
    if (!r)
        return;
    request_mem_free(r->mem);
    json_decref(r->root);
    memset(r, 0, sizeof(*r));
}

const char *request_cwd(const struct run_request *r, size_t index) {
    return r->steps[index].cwd ? r->steps[index].cwd : r->cwd;
}

struct request_bytes request_input(const struct run_request *r, size_t index) {
    return r->steps[index].input.data ? r->steps[index].input : r->input;
}
