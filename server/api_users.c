#include <string.h>

#include "account_request.h"
#include "accounts_json.h"
#include "accounts_quota.h"
#include "api.h"
#include "clock.h"
#include "json_out.h"
#include "store_accounts.h"
#include "str.h"

#define API_USERS_LIST_DEFAULT 100u
#define API_USERS_LIST_MAX 1000u
#define API_USERS_BYTES ((size_t)4 * 1024 * 1024)

_Static_assert(QUOTA_COUNT < ACCOUNT_REQUEST_QUOTAS_MAX, "a request can name every quota");

void api_users_quota_names(const char *names[]) {
    for (unsigned i = 0; i <= ACCOUNT_REQUEST_QUOTAS_MAX; i++)
        names[i] = i < QUOTA_COUNT ? quota_name(i) : NULL;
}

static int api_users_decode(const struct http_req *req, enum account_request_kind kind,
                            struct account_request *r, struct api_error *error) {
    const char *names[ACCOUNT_REQUEST_QUOTAS_MAX + 1];
    api_users_quota_names(names);
    return account_request_decode(req->body != NULL ? req->body : "", req->body_len, kind, names, r,
                                  error);
}

static void api_users_reply(struct http_req *req, int status, const struct accounts_user *u) {
    struct buf out;
    struct json_out j;
    buf_init(&out, API_USERS_BYTES);
    json_out_init(&j, &out);
    accounts_json_user(&j, NULL, u);
    api_reply_buf(req, status, "application/json", &out, json_out_end(&j, NULL));
}

void api_users_not_stored(struct server *s, struct http_req *req, const struct err *why) {
    struct api_error error = {0};
    log_err(&s->log, LOG_ERROR, "account_not_stored", why);
    server_no_store(s, why, &error);
    http_reply_error(req, &error);
}

static struct accounts_user *api_users_named(struct server *s, struct http_req *req,
                                             const char *name) {
    struct api_error error = {0};
    struct accounts_user *u = accounts_user_find(s->accounts.accounts, name);
    if (u != NULL && !u->deleted)
        return u;
    api_error_set(&error, 404, "not_found", NULL, "There is no such user.");
    http_reply_error(req, &error);
    return NULL;
}

static void api_users_set(struct accounts_user *u, const struct account_request *r) {
    if (r->admin_set)
        u->admin = r->admin;
    if (r->weight != 0)
        u->weight = (uint32_t)r->weight;
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        if (r->quota_set[i])
            u->quota.v[i] = r->quota[i];
}

static int api_users_check_new(const struct accounts *a, const char *name,
                               struct api_error *error) {
    const struct accounts_user *known = accounts_user_find(a, name);
    if (accounts_full(a))
        return api_error_set(error, 429, "full", NULL,
                             "There are as many users and tokens as there may be.");
    if (known == NULL)
        return 0;
    if (known->deleted)
        return api_error_set(error, 409, "name_used", "/name",
                             "A user of that name was deleted; its runs and the audit log carry "
                             "the name, so choose another.");
    return api_error_set(error, 409, "exists", "/name", "There is a user of that name already.");
}

void api_users_create(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct account_request r;
    struct err err;
    err_clear(&err);
    if (api_users_decode(req, ACCOUNT_REQUEST_USER, &r, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    struct accounts_user row = {.weight = ACCOUNTS_WEIGHT_DEFAULT, .created_ms = clock_real_ms()};
    struct accounts *a = s->accounts.accounts;
    const struct accounts_user *u = NULL;
    accounts_quota_unlimited(&row.quota);
    str_copy(row.name, sizeof(row.name), r.name);
    api_users_set(&row, &r);
    account_request_done(&r);
    if (api_users_check_new(a, row.name, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (store_accounts_add_user(s->store, &row, &err) == 0)
        u = accounts_put_user(a, &row, &err);
    if (u == NULL) {
        api_users_not_stored(s, req, &err);
        return;
    }
    http_add_header(req, "Location", "/v1/users/%s", u->name);
    api_users_reply(req, 201, u);
    accounts_live_added(&s->accounts, NULL);
}

/* A change to a copy, which is then stored and put. NULL: an error was answered. Else the caller
 * answers, and then calls accounts_live_written(): somebody may have disabled himself. */
static const struct accounts_user *api_users_put(struct server *s, struct http_req *req,
                                                 const struct accounts_user *row) {
    struct err err;
    err_clear(&err);
    const struct accounts_user *u = NULL;
    if (store_accounts_change_user(s->store, row, &err) == 0)
        u = accounts_put_user(s->accounts.accounts, row, &err);
    if (u == NULL)
        api_users_not_stored(s, req, &err);
    return u;
}

void api_users_change(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    struct account_request r;
    const struct accounts_user *u = api_users_named(s, req, args->value[0]);
    if (u == NULL)
        return;
    if (api_users_decode(req, ACCOUNT_REQUEST_USER_CHANGE, &r, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    struct accounts_user row = *u;
    api_users_set(&row, &r);
    if (r.disabled_set) {
        row.disabled = r.disabled;
        row.cancel_running = r.disabled && r.cancel_running;
    }
    account_request_done(&r);
    u = api_users_put(s, req, &row);
    if (u == NULL)
        return;
    api_users_reply(req, 200, u);
    accounts_live_written(&s->accounts);
}

void api_users_delete(struct server *s, struct http_req *req, const struct route_args *args) {
    const struct accounts_user *u = api_users_named(s, req, args->value[0]);
    if (u == NULL)
        return;
    struct accounts_user row = *u;
    row.disabled = row.deleted = true;
    struct http_body nothing = {.data = "", .len = 0};
    if (api_users_put(s, req, &row) == NULL)
        return;
    http_reply(req, 204, "application/json", &nothing);
    accounts_live_written(&s->accounts);
}

void api_users_get(struct server *s, struct http_req *req, const struct route_args *args) {
    const struct accounts_user *u = api_users_named(s, req, args->value[0]);
    if (u != NULL)
        api_users_reply(req, 200, u);
}

void api_users_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    uint64_t limit = API_USERS_LIST_DEFAULT, n = 0;
    const char *after = http_query(req, "after");
    const struct accounts *a = s->accounts.accounts;
    const struct accounts_user *u = NULL, *last = NULL;
    if (route_query_u64(req, "limit", 1, API_USERS_LIST_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (after != NULL && after[0] != '\0') {
        u = accounts_user_find(a, after);
        if (u == NULL) {
            api_error_set(&error, 404, "not_found", NULL, "There is no such user.");
            http_reply_error(req, &error);
            return;
        }
    }
    struct buf out;
    struct json_out j;
    buf_init(&out, API_USERS_BYTES);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_open(&j, "users", '[');
    while ((u = accounts_user_next(a, u)) != NULL) {
        if (u->deleted)
            continue;
        if (n++ == limit)
            break;
        accounts_json_user(&j, NULL, u);
        last = u;
    }
    json_out_close(&j, ']');
    if (u != NULL && last != NULL)
        json_out_str(&j, "next", last->name);
    else
        json_out_null(&j, "next");
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}
