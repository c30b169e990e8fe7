#include "exec_request.h"

#include <sodium.h>
#include <string.h>

#include "request_internal.h"

/* The body as read field by field, before what depends on more than one field is looked at. */
struct exec_request_body {
    struct request_command command;
    json_t *name, *files, *end_on, *wait, *pty, *id;
    struct request_limits limits;
    struct exec_request exec;
};

struct exec_request_pty {
    json_t *rows, *cols;
};

#define EXEC_REQUEST_KEEP(name, member)                                                            \
    { name, request_keep, offsetof(struct exec_request_body, member) }
#define EXEC_REQUEST_FLAG(name, member)                                                            \
    { name, request_flag, offsetof(struct exec_request_body, exec.member) }

static const struct request_field exec_request_fields[] = {
    EXEC_REQUEST_KEEP("argv", command.argv),
    EXEC_REQUEST_KEEP("sh", command.sh),
    EXEC_REQUEST_KEEP("name", name),
    {"limits", request_exec_limits, offsetof(struct exec_request_body, limits)},
    EXEC_REQUEST_KEEP("stdin", command.input),
    EXEC_REQUEST_KEEP("stdin_encoding", command.input_encoding),
    EXEC_REQUEST_KEEP("env", command.env),
    EXEC_REQUEST_KEEP("cwd", command.cwd),
    EXEC_REQUEST_KEEP("merge_stderr", command.merge_stderr),
    EXEC_REQUEST_KEEP("end_on", end_on),
    EXEC_REQUEST_KEEP("files", files),
    EXEC_REQUEST_KEEP("wait", wait),
    EXEC_REQUEST_FLAG("stream", run.stream),
    EXEC_REQUEST_FLAG("cancel_on_disconnect", run.cancel_on_disconnect),
    EXEC_REQUEST_FLAG("background", background),
    EXEC_REQUEST_FLAG("stdin_open", stdin_open),
    EXEC_REQUEST_KEEP("pty", pty),
    EXEC_REQUEST_KEEP("id", id),
    {NULL, NULL, 0},
};

static const struct request_field exec_request_pty_fields[] = {
    {"rows", request_keep, offsetof(struct exec_request_pty, rows)},
    {"cols", request_keep, offsetof(struct exec_request_pty, cols)},
    {NULL, NULL, 0},
};

bool exec_request_id_ok(const char *id) {
    if (strncmp(id, "ex_", 3) != 0)
        return false;
    size_t len = 3 + strspn(id + 3, "abcdefghijklmnopqrstuvwxyz0123456789");
    return len >= EXEC_REQUEST_ID_MIN && len <= EXEC_REQUEST_ID_MAX && id[len] == '\0';
}

static int exec_request_read_id(struct request_ctx *ctx, json_t *value, const char **id) {
    struct request_path at = {.key = "id"};
    const char *text;
    if (request_text(ctx, &at, value, REQUEST_STRING_MAX, &text) != 0)
        return -1;
    if (!exec_request_id_ok(text))
        return request_fail(ctx, &at, 400, "invalid_value",
                            "must be \"ex_\" and 20 to 32 characters of a-z and 0-9.");
    *id = text;
    return 0;
}

static int exec_request_edge(struct request_ctx *ctx, const struct request_path *up,
                             const char *key, json_t *value, uint16_t *out) {
    struct request_path at = {.up = up, .key = key};
    if (value == NULL)
        return request_fail(ctx, &at, 400, "missing_field", "is missing.");
    if (!json_is_integer(value))
        return request_wrong_type(ctx, &at, "a whole number");
    json_int_t n = json_integer_value(value);
    if (n < 1 || n > (json_int_t)EXEC_REQUEST_SIZE_MAX)
        return request_fail(ctx, &at, 400, "out_of_range",
                            "is %" JSON_INTEGER_FORMAT " but must be from 1 to %u.", n,
                            EXEC_REQUEST_SIZE_MAX);
    *out = (uint16_t)n;
    return 0;
}

static int exec_request_size(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                             uint16_t *rows, uint16_t *cols) {
    struct exec_request_pty pty = {0};
    if (request_object(ctx, at, value, exec_request_pty_fields, &pty) != 0)
        return -1;
    return exec_request_edge(ctx, at, "rows", pty.rows, rows) != 0 ||
                   exec_request_edge(ctx, at, "cols", pty.cols, cols) != 0
               ? -1
               : 0;
}

static int exec_request_terminal(struct request_ctx *ctx, struct exec_request_body *body) {
    struct request_path at = {.key = "pty"};
    if (exec_request_size(ctx, &at, body->pty, &body->exec.rows, &body->exec.cols) != 0)
        return -1;
    if (body->command.input)
        return request_fail(ctx, &(struct request_path){.key = "stdin"}, 400, "conflict",
                            "must not be there with a terminal: send it to the execution's stdin.");
    body->exec.stdin_open = true;
    return 0;
}

/* Wishes about the connection that contradict each other. */
static int exec_request_how(struct request_ctx *ctx, struct exec_request_body *body) {
    struct exec_request *x = &body->exec;
    struct request_path wait_at = {.key = "wait"}, at = {.key = "background"};
    if (body->wait && request_flag(ctx, &wait_at, body->wait, &x->run.wait) != 0)
        return -1;
    if (x->background && body->wait && x->run.wait)
        return request_fail(ctx, &at, 400, "conflict", "must not be true when wait is true.");
    const struct request_path *which = x->background ? &at : &wait_at;
    bool detached = x->background || !x->run.wait;
    if (detached && (x->run.stream || x->run.cancel_on_disconnect))
        return request_fail(ctx, which, 400, "conflict", "must not be %s when %s is true.",
                            x->background ? "true" : "false",
                            x->run.stream ? "stream" : "cancel_on_disconnect");
    x->run.wait = !detached;
    return 0;
}

static int exec_request_step(struct request_ctx *ctx, struct exec_request_body *body) {
    const struct request_command *c = &body->command;
    struct request_path merge_at = {.key = "merge_stderr"};
    if (!c->argv == !c->sh)
        return request_fail(ctx, NULL, 400, c->argv ? "conflict" : "missing_field",
                            "must have exactly one of argv and sh.");
    struct request_step *step = request_alloc(ctx, 1, sizeof(*step));
    if (!step)
        return -1;
    *step = (struct request_step){.name = "main", .limits = body->limits};
    if (request_program(ctx, NULL, c, step) != 0 ||
        request_setting(ctx, NULL, c, &step->input, &step->env, &step->cwd) != 0)
        return -1;
    if (c->merge_stderr && request_flag(ctx, &merge_at, c->merge_stderr, &step->merge_stderr) != 0)
        return -1;
    if (body->name && request_step_name(ctx, NULL, body->name, 0, &step->name) != 0)
        return -1;
    body->exec.run.steps = step;
    body->exec.run.step_count = 1;
    return 0;
}

static int exec_request_build(struct request_ctx *ctx, json_t *root,
                              struct exec_request_body *body) {
    struct run_request *run = &body->exec.run;
    if (request_object(ctx, NULL, root, exec_request_fields, body) != 0 ||
        exec_request_step(ctx, body) != 0 || exec_request_how(ctx, body) != 0)
        return -1;
    if (body->pty && exec_request_terminal(ctx, body) != 0)
        return -1;
    if (body->id && exec_request_read_id(ctx, body->id, &body->exec.id) != 0)
        return -1;
    if (body->end_on && request_end_on(ctx, body->end_on, run) != 0)
        return -1;
    if (body->files &&
        request_files(ctx, &(struct request_path){.key = "files"}, body->files, run) != 0)
        return -1;
    return 0;
}

int exec_request_decode(const char *json, size_t len, struct exec_request *out,
                        struct api_error *error) {
    json_t *root = request_parse(json, len, error);
    if (!root)
        return -1;
    struct request_ctx ctx = {.error = error};
    struct exec_request_body body = {.exec.run = {.wait = true, .cwd = "/workspace"}};
    if (exec_request_build(&ctx, root, &body) != 0) {
        request_mem_free(ctx.mem);
        json_decref(root);
        return -1;
    }
    body.exec.run.mem = ctx.mem;
    body.exec.run.root = root;
    body.exec.run.bytes = len + request_mem_total(ctx.mem);
    *out = body.exec;
    return 0;
}

void exec_request_done(struct exec_request *r) {
    if (!r)
        return;
    request_done(&r->run);
    memset(r, 0, sizeof(*r));
}

/* The hash. Every part goes in with its length, so that no two requests look alike. */

static void exec_request_mix(crypto_generichash_state *h, const void *data, size_t len) {
    uint64_t size = len;
    crypto_generichash_update(h, (const unsigned char *)&size, sizeof(size));
    if (len > 0)
        crypto_generichash_update(h, data, len);
}

static void exec_request_mix_number(crypto_generichash_state *h, uint64_t number) {
    crypto_generichash_update(h, (const unsigned char *)&number, sizeof(number));
}

static void exec_request_mix_texts(crypto_generichash_state *h, const char *const *items,
                                   size_t count) {
    exec_request_mix_number(h, count);
    for (size_t i = 0; i < count; i++)
        exec_request_mix(h, items[i], strlen(items[i]));
}

static void exec_request_mix_limits(crypto_generichash_state *h, const struct request_limits *l) {
    for (int id = 0; id < LIMIT_COUNT; id++)
        exec_request_mix_number(h, l->set[id] ? l->values.v[id] : UINT64_MAX);
}

void exec_request_hash(const struct exec_request *r, uint8_t out[EXEC_REQUEST_HASH_SIZE]) {
    const struct request_step *s = &r->run.steps[0];
    const char *cwd = request_cwd(&r->run, 0);
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, EXEC_REQUEST_HASH_SIZE);
    exec_request_mix_number(&h, (s->shell ? 1u : 0u) | (s->merge_stderr ? 2u : 0u) |
                                    (r->stdin_open ? 4u : 0u) | (r->run.end_on_set ? 8u : 0u) |
                                    (s->input.data != NULL ? 16u : 0u));
    exec_request_mix_number(&h, r->run.end_on);
    exec_request_mix_number(&h, (uint64_t)r->rows << 16 | r->cols);
    exec_request_mix(&h, s->name, strlen(s->name));
    exec_request_mix(&h, cwd, strlen(cwd));
    exec_request_mix_texts(&h, s->argv, s->argc);
    exec_request_mix_texts(&h, s->env.items, s->env.count);
    exec_request_mix(&h, s->input.data, s->input.len);
    exec_request_mix_limits(&h, &s->limits);
    exec_request_mix_number(&h, r->run.file_count);
    for (size_t i = 0; i < r->run.file_count; i++) {
        const struct request_file *f = &r->run.files[i];
        exec_request_mix(&h, f->path, strlen(f->path));
        exec_request_mix(&h, f->data, f->size);
        exec_request_mix_number(&h, f->mode);
    }
    crypto_generichash_final(&h, out, EXEC_REQUEST_HASH_SIZE);
}

/* What the small bodies of an execution's own routes say. */

int exec_request_resize(const char *json, size_t len, uint16_t *rows, uint16_t *cols,
                        struct api_error *error) {
    json_t *root = request_parse(json, len, error);
    if (!root)
        return -1;
    struct request_ctx ctx = {.error = error};
    int rc = exec_request_size(&ctx, NULL, root, rows, cols);
    request_mem_free(ctx.mem);
    json_decref(root);
    return rc;
}

static const struct request_field exec_request_signal_fields[] = {
    {"signal", request_keep, 0},
    {NULL, NULL, 0},
};

static int exec_request_signal_number(struct request_ctx *ctx, json_t *value, int *signal) {
    struct request_path at = {.key = "signal"};
    const char *name;
    if (value == NULL)
        return request_fail(ctx, &at, 400, "missing_field", "is missing.");
    if (json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        if (n < 1 || n > 64)
            return request_fail(ctx, &at, 400, "out_of_range",
                                "is %" JSON_INTEGER_FORMAT " but must be from 1 to 64.", n);
        *signal = (int)n;
        return 0;
    }
    if (!json_is_string(value))
        return request_wrong_type(ctx, &at, "a number or a name such as \"SIGTERM\"");
    if (request_text(ctx, &at, value, REQUEST_STRING_MAX, &name) != 0)
        return -1;
    const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;
    for (int n = 1; n < 32; n++) {
        const char *known = sigabbrev_np(n);
        if (known != NULL && strcmp(known, bare) == 0) {
            *signal = n;
            return 0;
        }
    }
    return request_fail(ctx, &at, 400, "invalid_value", "is not the name of a signal.");
}

int exec_request_signal(const char *json, size_t len, int *signal, struct api_error *error) {
    json_t *value = NULL, *root = request_parse(json, len, error);
    if (!root)
        return -1;
    struct request_ctx ctx = {.error = error};
    int rc = request_object(&ctx, NULL, root, exec_request_signal_fields, &value);
    if (rc == 0)
        rc = exec_request_signal_number(&ctx, value, signal);
    request_mem_free(ctx.mem);
    json_decref(root);
    return rc;
}
