#include <inttypes.h>

#include "request_internal.h"

static int request_limit(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                         const struct limit_info *info, uint64_t *out) {
    if (!json_is_integer(value))
        return request_fail(ctx, at, 400, "wrong_type",
                            "must be a whole number from %" PRIu64 " to %" PRIu64 ".", info->min,
                            info->max);
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number < info->min || (uint64_t)number > info->max)
        return request_fail(ctx, at, 400, "out_of_range",
                            "is %" JSON_INTEGER_FORMAT " but must be from %" PRIu64 " to %" PRIu64
                            ".",
                            number, info->min, info->max);
    *out = (uint64_t)number;
    return 0;
}

static int request_unknown_limit(struct request_ctx *ctx, const struct request_path *at) {
    struct request_field names[LIMIT_COUNT + 1] = {0};
    for (int id = 0; id < LIMIT_COUNT; id++)
        names[id].name = limit_info((enum limit_id)id)->name;
    return request_unknown(ctx, at, names);
}

/* `whole`: of what it is a part, NULL = it may set all of them. */
static int request_read_limits(struct request_ctx *ctx, const struct request_path *at,
                               json_t *value, const char *whole, struct request_limits *out) {
    if (!json_is_object(value))
        return request_wrong_type(ctx, at, "an object");
    for (void *it = json_object_iter(value); it; it = json_object_iter_next(value, it)) {
        struct request_path here = {.up = at, .key = json_object_iter_key(it)};
        int id = limit_by_name(here.key);
        if (id < 0)
            return request_unknown_limit(ctx, &here);
        const struct limit_info *info = limit_info((enum limit_id)id);
        if (whole != NULL && !info->per_step)
            return request_fail(ctx, &here, 400, "conflict",
                                "belongs to the whole %s: set it in the %s's limits.", whole,
                                whole);
        if (request_limit(ctx, &here, json_object_iter_value(it), info, &out->values.v[id]) != 0)
            return -1;
        out->set[id] = true;
    }
    return 0;
}

int request_run_limits(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                       void *slot) {
    return request_read_limits(ctx, at, value, NULL, slot);
}

int request_step_limits(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                        void *slot) {
    return request_read_limits(ctx, at, value, "run", slot);
}

int request_exec_limits(struct request_ctx *ctx, const struct request_path *at, json_t *value,
                        void *slot) {
    return request_read_limits(ctx, at, value, "sandbox", slot);
}
