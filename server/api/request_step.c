#include <stdio.h>
#include <string.h>

#include "request_internal.h"

#define REQUEST_WORKSPACE "/workspace"

struct request_raw_step {
    struct request_command command;
    json_t *name;
    bool continue_on_error;
    struct request_limits limits;
};

#define REQUEST_COMMAND_FIELD(name, member)                                                        \
    { name, request_keep, offsetof(struct request_raw_step, command.member) }

static const struct request_field request_step_fields[] = {
    REQUEST_COMMAND_FIELD("argv", argv),
    REQUEST_COMMAND_FIELD("sh", sh),
    {"name", request_keep, offsetof(struct request_raw_step, name)},
    {"limits", request_step_limits, offsetof(struct request_raw_step, limits)},
    REQUEST_COMMAND_FIELD("stdin", input),
    REQUEST_COMMAND_FIELD("stdin_encoding", input_encoding),
    {"continue_on_error", request_flag, offsetof(struct request_raw_step, continue_on_error)},
    REQUEST_COMMAND_FIELD("env", env),
    REQUEST_COMMAND_FIELD("cwd", cwd),
    REQUEST_COMMAND_FIELD("merge_stderr", merge_stderr),
    {NULL, NULL, 0},
};

static int request_argv(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                        struct request_step *step) {
    if (!json_is_array(value))
        return request_wrong_type(ctx, at, "an array of strings");
    size_t count = json_array_size(value);
    if (count == 0)
        return request_fail(ctx, at, 400, "invalid_value", "must not be empty.");
    if (count > REQUEST_ARGS_MAX)
        return request_fail(ctx, at, 400, "too_large", "has %zu entries; at most %u are allowed.",
                            count, REQUEST_ARGS_MAX);
    const char **argv = request_alloc(ctx, count + 1, sizeof(*argv));
    if (!argv)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct request_path here = {.up = at, .index = i};
        if (request_text(ctx, &here, json_array_get(value, i), REQUEST_STRING_MAX, &argv[i]) != 0)
            return -1;
    }
    argv[count] = NULL;
    if (argv[0][0] == '\0')
        return request_fail(ctx, &(struct request_path){.up = at}, 400, "invalid_value",
                            "must name a program.");
    step->argv = argv;
    step->argc = count;
    return 0;
}

static int request_script(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                          struct request_step *step) {
    const char **argv = request_alloc(ctx, 2, sizeof(*argv));
    if (!argv || request_text(ctx, at, value, REQUEST_STRING_MAX, &argv[0]) != 0)
        return -1;
    if (argv[0][0] == '\0')
        return request_fail(ctx, at, 400, "invalid_value", "must not be empty.");
    argv[1] = NULL;
    step->argv = argv;
    step->argc = 1;
    step->shell = true;
    return 0;
}

int request_program(struct request_ctx *ctx, const struct request_path *up,
                    const struct request_command *c, struct request_step *step) {
    struct request_path at = {.up = up, .key = c->argv ? "argv" : "sh"};
    return c->argv ? request_argv(ctx, &at, c->argv, step) : request_script(ctx, &at, c->sh, step);
}

/* Relative to /workspace; whether it exists is found out inside the jail. */
static int request_read_cwd(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                            const char **cwd) {
    const char *text;
    if (request_text(ctx, at, value, REQUEST_PATH_MAX, &text) != 0)
        return -1;
    if (text[0] == '\0')
        return request_fail(ctx, at, 400, "invalid_value", "must not be empty.");
    if (text[0] == '/') {
        *cwd = text;
        return 0;
    }
    size_t size = sizeof(REQUEST_WORKSPACE "/") + strlen(text);
    char *path = request_alloc(ctx, size, 1);
    if (!path)
        return -1;
    (void)snprintf(path, size, REQUEST_WORKSPACE "/%s", text);
    if (size - 1 > REQUEST_PATH_MAX)
        return request_fail(ctx, at, 400, "too_large",
                            "has more than %u bytes below " REQUEST_WORKSPACE ".",
                            REQUEST_PATH_MAX);
    *cwd = path;
    return 0;
}

int request_setting(struct request_ctx *ctx, const struct request_path *up,
                    const struct request_command *c, struct request_bytes *input,
                    struct request_env *env, const char **cwd) {
    struct request_source source = {.value = c->input,
                                    .encoding = c->input_encoding,
                                    .key = "stdin",
                                    .encoding_key = "stdin_encoding",
                                    .max = REQUEST_STDIN_MAX};
    struct request_path env_at = {.up = up, .key = "env"};
    struct request_path cwd_at = {.up = up, .key = "cwd"};
    if ((c->input || c->input_encoding) && request_blob(ctx, up, &source, input) != 0)
        return -1;
    if (c->env && request_env(ctx, &env_at, c->env, env) != 0)
        return -1;
    return c->cwd ? request_read_cwd(ctx, &cwd_at, c->cwd, cwd) : 0;
}

/* Number of characters of a UTF-8 text, or -1 when it has a control character. */
static int request_printable(const char *text) {
    int count = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] < 0xA0))
            return -1;
        count += (*p & 0xC0) != 0x80;
    }
    return count;
}

int request_step_name(struct request_ctx *ctx, const struct request_path *up, json_t *value,
                      size_t index, const char **name) {
    struct request_path at = {.up = up, .key = "name"};
    if (!value) {
        char *text = request_alloc(ctx, 16, 1);
        if (!text)
            return -1;
        (void)snprintf(text, 16, "step-%u", (unsigned)index);
        *name = text;
        return 0;
    }
    if (request_text(ctx, &at, value, REQUEST_STRING_MAX, name) != 0)
        return -1;
    int count = request_printable(*name);
    if (count < 1 || count > (int)REQUEST_STEP_NAME_MAX)
        return request_fail(ctx, &at, 400, "invalid_value",
                            "must have 1 to %u printable characters.", REQUEST_STEP_NAME_MAX);
    return 0;
}

static int request_one_step(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                            bool merge_stderr, struct request_step *out) {
    struct request_raw_step raw = {0};
    struct request_step step = {.merge_stderr = merge_stderr};
    const struct request_command *c = &raw.command;
    struct request_path merge_at = {.up = at, .key = "merge_stderr"};
    if (request_object(ctx, at, value, request_step_fields, &raw) != 0)
        return -1;
    if (!c->argv == !c->sh)
        return request_fail(ctx, at, 400, c->argv ? "conflict" : "missing_field",
                            "must have exactly one of argv and sh.");
    if (request_program(ctx, at, c, &step) != 0 ||
        request_setting(ctx, at, c, &step.input, &step.env, &step.cwd) != 0)
        return -1;
    if (c->merge_stderr && request_flag(ctx, &merge_at, c->merge_stderr, &step.merge_stderr) != 0)
        return -1;
    if (request_step_name(ctx, at, raw.name, at->index, &step.name) != 0)
        return -1;
    step.continue_on_error = raw.continue_on_error;
    step.limits = raw.limits;
    *out = step;
    return 0;
}

int request_steps(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                  bool merge_stderr, struct run_request *out) {
    if (!json_is_array(value))
        return request_wrong_type(ctx, at, "an array");
    size_t count = json_array_size(value);
    if (count == 0 || count > REQUEST_STEPS_MAX)
        return request_fail(ctx, at, 400, count ? "too_large" : "invalid_value",
                            "has %zu entries but must have 1 to %u.", count, REQUEST_STEPS_MAX);
    struct request_step *steps = request_alloc(ctx, count, sizeof(*steps));
    if (!steps)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct request_path here = {.up = at, .index = i};
        if (request_one_step(ctx, &here, json_array_get(value, i), merge_stderr, &steps[i]) != 0)
            return -1;
    }
    out->steps = steps;
    out->step_count = count;
    return 0;
}
