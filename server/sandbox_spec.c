#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxes.h"

static void sandbox_spec_free_env(struct request_env *env) {
    for (size_t i = 0; i < env->count; i++)
        free((void *)(uintptr_t)env->items[i]);
    free((void *)(uintptr_t)env->items);
    *env = (struct request_env){0};
}

void sandbox_spec_done(struct sandbox_spec *spec) {
    if (spec == NULL)
        return;
    sandbox_spec_free_env(&spec->env);
    json_decref(spec->metadata);
    spec->metadata = NULL;
}

int sandbox_spec_set_env(struct sandbox_spec *spec, const struct request_env *env,
                         struct err *err) {
    struct request_env copy = {0};
    if (env->count > 0) {
        char **items = calloc(env->count, sizeof(*items));
        copy.items = (const char *const *)items;
        for (size_t i = 0; items != NULL && i < env->count; i++) {
            items[i] = strdup(env->items[i]);
            if (items[i] == NULL)
                break;
            copy.count++;
        }
        if (copy.count < env->count) {
            sandbox_spec_free_env(&copy);
            return err_set(err, ERR_SYSTEM, ENOMEM, "keeping the environment: out of memory");
        }
    }
    sandbox_spec_free_env(&spec->env);
    spec->env = copy;
    return 0;
}

int sandbox_spec_copy(const struct sandbox_spec *from, struct sandbox_spec *to, struct err *err) {
    struct sandbox_spec copy = *from;
    copy.env = (struct request_env){0};
    if (sandbox_spec_set_env(&copy, &from->env, err) < 0)
        return -1;
    copy.metadata = json_incref(from->metadata);
    *to = copy;
    return 0;
}
