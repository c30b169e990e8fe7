#include "account_request.h"

#include <inttypes.h>
#include <string.h>

#include "request_internal.h"

struct account_request_body {
    json_t *label, *from_run, *weight, *scopes, *policies, *expires_at, *ttl, *quota, *budget;
    json_t *admin, *disabled;
    json_t *cpu, *runs, *until; /* of the budget */
    struct account_request r;
};

#define ACCOUNT_REQUEST_KEEP(name, member)                                                         \
    { name, request_keep, offsetof(struct account_request_body, member) }
#define ACCOUNT_REQUEST_READ(name, reader, member)                                                 \
    { name, reader, offsetof(struct account_request_body, r.member) }
#define ACCOUNT_REQUEST_END                                                                        \
    { NULL, NULL, 0 }

static const struct request_field account_request_user[] = {
    ACCOUNT_REQUEST_READ("name", request_name, name), ACCOUNT_REQUEST_KEEP("admin", admin),
    ACCOUNT_REQUEST_KEEP("weight", weight), ACCOUNT_REQUEST_KEEP("quota", quota),
    ACCOUNT_REQUEST_END};

static const struct request_field account_request_change[] = {
    ACCOUNT_REQUEST_KEEP("admin", admin),
    ACCOUNT_REQUEST_KEEP("disabled", disabled),
    ACCOUNT_REQUEST_READ("cancel_running", request_flag, cancel_running),
    ACCOUNT_REQUEST_KEEP("weight", weight),
    ACCOUNT_REQUEST_KEEP("quota", quota),
    ACCOUNT_REQUEST_END};

#define ACCOUNT_REQUEST_TOKEN_FIELDS                                                               \
    ACCOUNT_REQUEST_KEEP("label", label), ACCOUNT_REQUEST_KEEP("scopes", scopes),                  \
        ACCOUNT_REQUEST_KEEP("policies", policies),                                                \
        ACCOUNT_REQUEST_KEEP("expires_at", expires_at), ACCOUNT_REQUEST_KEEP("ttl_ms", ttl),       \
        ACCOUNT_REQUEST_KEEP("quota", quota), ACCOUNT_REQUEST_KEEP("budget", budget)

static const struct request_field account_request_token[] = {
    ACCOUNT_REQUEST_READ("user", request_name, name), ACCOUNT_REQUEST_TOKEN_FIELDS,
    ACCOUNT_REQUEST_END};

static const struct request_field account_request_child[] = {
    ACCOUNT_REQUEST_KEEP("from_run", from_run), ACCOUNT_REQUEST_TOKEN_FIELDS, ACCOUNT_REQUEST_END};

static const struct request_field account_request_budget[] = {
    ACCOUNT_REQUEST_KEEP("cpu_ms", cpu), ACCOUNT_REQUEST_KEEP("runs", runs),
    ACCOUNT_REQUEST_KEEP("until", until), ACCOUNT_REQUEST_END};

static const struct request_field *const account_request_tables[] = {
    [ACCOUNT_REQUEST_USER] = account_request_user,
    [ACCOUNT_REQUEST_USER_CHANGE] = account_request_change,
    [ACCOUNT_REQUEST_TOKEN] = account_request_token,
    [ACCOUNT_REQUEST_CHILD] = account_request_child,
};

/* A number of at least `min`, or null for no bound. */
static int account_request_bound(struct request_ctx *ctx, const struct request_path *at,
                                 json_t *value, uint64_t min, uint64_t *out) {
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_integer(value))
        return request_wrong_type(ctx, at, "a whole number, or null for no bound");
    json_int_t n = json_integer_value(value);
    if (n < 0 || (uint64_t)n < min)
        return request_fail(ctx, at, 400, "out_of_range",
                            "is %" JSON_INTEGER_FORMAT " but must be at least %" PRIu64 ".", n,
                            min);
    *out = (uint64_t)n;
    return 0;
}

static int account_request_text(struct request_ctx *ctx, const char *key, json_t *value, size_t max,
                                const char **out) {
    struct request_path at = {.key = key};
    if (value == NULL)
        return 0;
    if (request_text(ctx, &at, value, max, out) != 0)
        return -1;
    for (const char *p = *out; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return request_fail(ctx, &at, 400, "invalid_value",
                                "must not contain control characters.");
    return 0;
}

/* An array of names; null as if it were not there. */
static int account_request_names(struct request_ctx *ctx, const char *key, json_t *value,
                                 struct account_request_list *out, bool *set) {
    struct request_path at = {.key = key};
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_array(value))
        return request_wrong_type(ctx, &at, "an array of names");
    if (json_array_size(value) == 0 || json_array_size(value) > ACCOUNT_REQUEST_LIST_MAX)
        return request_fail(ctx, &at, 400, "out_of_range", "must have 1 to %u names.",
                            ACCOUNT_REQUEST_LIST_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct request_path here = {.up = &at, .index = i};
        if (request_name(ctx, &here, json_array_get(value, i), &out->item[i]) != 0)
            return -1;
    }
    out->count = json_array_size(value);
    *set = true;
    return 0;
}

static int account_request_quotas(struct request_ctx *ctx, json_t *value, const char *const *names,
                                  struct account_request *r) {
    struct request_field table[ACCOUNT_REQUEST_QUOTAS_MAX + 1] = {0};
    json_t *found[ACCOUNT_REQUEST_QUOTAS_MAX] = {0};
    struct request_path at = {.key = "quota"};
    if (value == NULL)
        return 0;
    for (size_t i = 0; i < ACCOUNT_REQUEST_QUOTAS_MAX && names[i] != NULL; i++)
        table[i] = (struct request_field){names[i], request_keep, i * sizeof(found[0])};
    if (request_object(ctx, &at, value, table, found) != 0)
        return -1;
    for (size_t i = 0; i < ACCOUNT_REQUEST_QUOTAS_MAX; i++) {
        struct request_path here = {.up = &at, .key = table[i].name};
        r->quota_set[i] = found[i] != NULL;
        if (account_request_bound(ctx, &here, found[i], 0, &r->quota[i]) != 0)
            return -1;
    }
    return 0;
}

static int account_request_budgets(struct request_ctx *ctx, struct account_request_body *b) {
    struct request_path at = {.key = "budget"};
    if (b->budget == NULL || json_is_null(b->budget))
        return 0;
    if (request_object(ctx, &at, b->budget, account_request_budget, b) != 0)
        return -1;
    if (account_request_bound(ctx, &(struct request_path){.up = &at, .key = "cpu_ms"}, b->cpu, 0,
                              &b->r.cpu_ms) != 0 ||
        account_request_bound(ctx, &(struct request_path){.up = &at, .key = "runs"}, b->runs, 0,
                              &b->r.runs) != 0)
        return -1;
    return account_request_bound(ctx, &(struct request_path){.up = &at, .key = "until"}, b->until,
                                 1, &b->r.until);
}

static int account_request_switch(struct request_ctx *ctx, const char *key, json_t *value,
                                  bool *out, bool *set) {
    if (value == NULL)
        return 0;
    *set = true;
    return request_flag(ctx, &(struct request_path){.key = key}, value, out);
}

static int account_request_weight(struct request_ctx *ctx, json_t *value, uint64_t *out) {
    struct request_path at = {.key = "weight"};
    if (value == NULL)
        return 0;
    if (!json_is_integer(value))
        return request_wrong_type(ctx, &at, "a whole number");
    json_int_t n = json_integer_value(value);
    if (n < 1 || n > (json_int_t)ACCOUNT_REQUEST_WEIGHT_MAX)
        return request_fail(ctx, &at, 400, "out_of_range",
                            "is %" JSON_INTEGER_FORMAT " but must be from 1 to %u.", n,
                            ACCOUNT_REQUEST_WEIGHT_MAX);
    *out = (uint64_t)n;
    return 0;
}

static int account_request_times(struct request_ctx *ctx, struct account_request_body *b) {
    struct account_request *r = &b->r;
    if (account_request_bound(ctx, &(struct request_path){.key = "expires_at"}, b->expires_at, 1,
                              &r->expires_at) != 0 ||
        account_request_bound(ctx, &(struct request_path){.key = "ttl_ms"}, b->ttl, 1,
                              &r->ttl_ms) != 0)
        return -1;
    if (r->expires_at != ACCOUNT_REQUEST_NO_BOUND && r->ttl_ms != ACCOUNT_REQUEST_NO_BOUND)
        return request_fail(ctx, &(struct request_path){.key = "ttl_ms"}, 400, "conflict",
                            "cannot be there together with expires_at.");
    return 0;
}

static int account_request_build(struct request_ctx *ctx, enum account_request_kind kind,
                                 const char *const *quotas, json_t *root,
                                 struct account_request_body *b) {
    struct account_request *r = &b->r;
    r->expires_at = r->ttl_ms = r->cpu_ms = r->runs = r->until = ACCOUNT_REQUEST_NO_BOUND;
    for (size_t i = 0; i < ACCOUNT_REQUEST_QUOTAS_MAX; i++)
        r->quota[i] = ACCOUNT_REQUEST_NO_BOUND;
    if (request_object(ctx, NULL, root, account_request_tables[kind], b) != 0)
        return -1;
    if (r->name == NULL && (kind == ACCOUNT_REQUEST_USER || kind == ACCOUNT_REQUEST_TOKEN)) {
        struct request_path at = {.key = kind == ACCOUNT_REQUEST_USER ? "name" : "user"};
        return request_fail(ctx, &at, 400, "missing_field", "is missing.");
    }
    if (account_request_text(ctx, "label", b->label, ACCOUNT_REQUEST_LABEL_MAX, &r->label) != 0 ||
        account_request_text(ctx, "from_run", b->from_run, REQUEST_STRING_MAX, &r->from_run) != 0 ||
        account_request_switch(ctx, "admin", b->admin, &r->admin, &r->admin_set) != 0 ||
        account_request_switch(ctx, "disabled", b->disabled, &r->disabled, &r->disabled_set) != 0 ||
        account_request_weight(ctx, b->weight, &r->weight) != 0 ||
        account_request_names(ctx, "scopes", b->scopes, &r->scopes, &r->scopes_set) != 0 ||
        account_request_names(ctx, "policies", b->policies, &r->policies, &r->policies_set) != 0)
        return -1;
    if (account_request_times(ctx, b) != 0 || account_request_quotas(ctx, b->quota, quotas, r) != 0)
        return -1;
    return account_request_budgets(ctx, b);
}

int account_request_decode(const char *json, size_t len, enum account_request_kind kind,
                           const char *const *quotas, struct account_request *out,
                           struct api_error *error) {
    json_t *root = request_parse(json, len, error);
    if (!root)
        return -1;
    struct request_ctx ctx = {.error = error};
    struct account_request_body body = {0};
    if (account_request_build(&ctx, kind, quotas, root, &body) != 0) {
        request_mem_free(ctx.mem);
        json_decref(root);
        return -1;
    }
    body.r.mem = ctx.mem;
    body.r.root = root;
    *out = body.r;
    return 0;
}

void account_request_done(struct account_request *r) {
    if (!r)
        return;
    request_mem_free(r->mem);
    json_decref(r->root);
    memset(r, 0, sizeof(*r));
}
