/* The request decoder against any bytes: it never crashes, what it lets through keeps the promises
 * of request.h, and what it refuses comes with a sound error. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api_error.h"
#include "bundle.h"
#include "request.h"
#include "str.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth) {
    if (!truth)
        abort();
}

static void check_limits(const struct request_limits *l, int of_step) {
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = limit_info((enum limit_id)id);
        if (!l->set[id])
            continue;
        require(l->values.v[id] >= info->min && l->values.v[id] <= info->max);
        require(!of_step || info->per_step);
    }
}

static void check_env(const struct request_env *env) {
    require(env->count <= REQUEST_ENV_MAX);
    for (size_t i = 0; i < env->count; i++) {
        const char *equals = strchr(env->items[i], '=');
        require(equals != NULL && equals != env->items[i]);
        require(strlen(env->items[i]) <= REQUEST_STRING_MAX);
    }
}

static void check_step(const struct run_request *r, size_t index) {
    const struct request_step *s = &r->steps[index];
    require(s->argc >= 1 && s->argc <= REQUEST_ARGS_MAX && s->argv[s->argc] == NULL);
    require(!s->shell || s->argc == 1);
    require(s->argv[0][0] != '\0');
    for (size_t i = 0; i < s->argc; i++)
        require(strlen(s->argv[i]) <= REQUEST_STRING_MAX);
    require(s->name[0] != '\0' && text_is_utf8(s->name, strlen(s->name)));
    require(strlen(s->name) <= 4 * REQUEST_STEP_NAME_MAX);
    require(request_cwd(r, index)[0] == '/' && strlen(request_cwd(r, index)) <= REQUEST_PATH_MAX);
    struct request_bytes input = request_input(r, index);
    require(input.len <= REQUEST_STDIN_MAX &&
            (input.data == NULL || input.data[input.len] == '\0'));
    check_env(&s->env);
    check_limits(&s->limits, 1);
}

static void check_request(const struct run_request *r) {
    require(str_is_name(r->policy) && str_is_name(r->image));
    require(r->wait || !r->stream);
    require((r->end_on & ~(uint32_t)END_ON_ALL) == 0);
    require(r->step_count >= 1 && r->step_count <= REQUEST_STEPS_MAX);
    for (size_t i = 0; i < r->step_count; i++)
        check_step(r, i);
    for (size_t i = 0; i < r->file_count; i++) {
        const struct request_file *f = &r->files[i];
        require(bundle_path_ok(f->path, strlen(f->path)) && f->mode <= 0777);
        require(f->data[f->size] == '\0');
        for (size_t j = 0; j < i && r->file_count < 32; j++)
            require(strcmp(f->path, r->files[j].path) != 0);
    }
    for (size_t i = 0; i < r->collect_count; i++)
        require(bundle_path_ok(r->collect[i], strlen(r->collect[i])));
    check_env(&r->env);
    check_limits(&r->limits, 0);
}

static void check_error(const struct api_error *e) {
    require(e->status == 400 || e->status == 413);
    require(e->code[0] != '\0' && e->message[0] != '\0');
    require(text_is_utf8(e->message, strlen(e->message)) &&
            text_is_utf8(e->field, strlen(e->field)));
    char *json = api_error_encode(e, NULL);
    require(json != NULL);
    free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run_request r;
    struct api_error error = {0};
    if (request_decode((const char *)data, size, &r, &error) == 0) {
        check_request(&r);
        request_done(&r);
    } else {
        check_error(&error);
    }
    return 0;
}
