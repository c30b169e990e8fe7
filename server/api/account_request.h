/* The bodies of requests about users and tokens, decoded: pure and strict, as request.h. What
 * scopes, policies and quotas there are, the caller knows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "request.h"

#define ACCOUNT_REQUEST_QUOTAS_MAX 16u
#define ACCOUNT_REQUEST_LIST_MAX 64u   /* scopes, policies */
#define ACCOUNT_REQUEST_LABEL_MAX 127u /* bytes */
#define ACCOUNT_REQUEST_WEIGHT_MAX 10000u
#define ACCOUNT_REQUEST_NO_BOUND UINT64_MAX

enum account_request_kind {
    ACCOUNT_REQUEST_USER,        /* POST /v1/users */
    ACCOUNT_REQUEST_USER_CHANGE, /* PATCH /v1/users/{} */
    ACCOUNT_REQUEST_TOKEN,       /* POST /v1/tokens */
    ACCOUNT_REQUEST_CHILD,       /* POST /v1/tokens/children */
};

struct account_request_list {
    size_t count;
    const char *item[ACCOUNT_REQUEST_LIST_MAX];
};

/* What the caller left open is NULL, 0, false, or ACCOUNT_REQUEST_NO_BOUND. */
struct account_request {
    const char *name; /* a user: USER (always), TOKEN (as `user`, always) */
    const char *label, *from_run;
    bool admin, admin_set;
    bool disabled, disabled_set, cancel_running;
    uint64_t weight;
    bool scopes_set, policies_set;
    struct account_request_list scopes, policies;
    uint64_t expires_at; /* since the epoch */
    uint64_t ttl_ms;     /* the same, as how long from now */
    bool quota_set[ACCOUNT_REQUEST_QUOTAS_MAX];
    uint64_t quota[ACCOUNT_REQUEST_QUOTAS_MAX];
    uint64_t cpu_ms, runs, until; /* the budget */

    struct request_mem *mem; /* private */
    struct json_t *root;     /* private */
};

/* `quotas` are the names of quotas, NULL at the end: quota[i] is the value of quotas[i]. 0: the
 * caller owns *out. -1: *error is filled, *out is untouched. */
int account_request_decode(const char *json, size_t len, enum account_request_kind kind,
                           const char *const *quotas, struct account_request *out,
                           struct api_error *error);
void account_request_done(struct account_request *r);
