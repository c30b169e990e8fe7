#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account_request.h"
#include "accounts_json.h"
#include "accounts_make.h"
#include "accounts_scope.h"
#include "api.h"
#include "clock.h"
#include "id.h"
#include "json_out.h"
#include "store_accounts.h"
#include "traces.h"

#define API_TOKENS_LIST_DEFAULT 100u
#define API_TOKENS_LIST_MAX 1000u
#define API_TOKENS_BYTES ((size_t)16 * 1024 * 1024)

int api_tokens_check_env(struct http_req *req, const struct request_env *env, const char *field,
                         struct api_error *error) {
    const char *text = env->count > 0 ? accounts_bearer(http_header(req, "Authorization")) : NULL;
    for (size_t i = 0; text != NULL && i < env->count; i++)
        if (strstr(env->items[i], text) != NULL)
            return api_error_set(error, 400, "token_in_env", field,
                                 "The environment holds the token of this request, and what runs "
                                 "inside could do all that you can. Make a child token for it: "
                                 "POST /v1/tokens/children.");
    return 0;
}

static void api_tokens_reply(struct http_req *req, const struct accounts_token *t,
                             const char *text) {
    struct buf out;
    struct json_out j;
    buf_init(&out, API_TOKENS_BYTES);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "token", text);
    accounts_json_token_members(&j, t, clock_real_ms());
    json_out_close(&j, '}');
    http_add_header(req, "Location", "/v1/tokens/%s", t->id);
    api_reply_buf(req, 201, "application/json", &out, json_out_end(&j, NULL));
}

static void api_tokens_none(struct http_req *req) {
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL, "There is no such token.");
    http_reply_error(req, &error);
}

/* What was asked for, as a wish. *policies is to be freed. */
static int api_tokens_wish(const struct account_request *r, struct accounts_wish *w,
                           char **policies, struct api_error *error) {
    char field[32];
    uint64_t now = clock_real_ms();
    accounts_make_wish(w);
    w->label = r->label != NULL ? r->label : "";
    w->from_run = r->from_run != NULL ? r->from_run : "";
    for (size_t i = 0; i < r->scopes.count; i++) {
        unsigned bit = accounts_scope_bit(r->scopes.item[i], strlen(r->scopes.item[i]));
        snprintf(field, sizeof(field), "/scopes/%zu", i);
        if (bit == 0)
            return api_error_set(error, 400, "unknown_scope", field,
                                 "There is no scope %s; there are run, sandbox, files, admin, "
                                 "metrics and read.",
                                 r->scopes.item[i]);
        w->scopes |= bit;
    }
    w->expires_ms = r->ttl_ms < ACCOUNTS_NEVER - now ? now + r->ttl_ms : r->expires_at;
    w->until_ms = r->until;
    w->cpu_budget_ms = r->cpu_ms;
    w->runs_budget = r->runs;
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        w->quota.v[i] = r->quota[i];
    if (!r->policies_set)
        return 0;
    size_t size = 1;
    for (size_t i = 0; i < r->policies.count; i++)
        size += strlen(r->policies.item[i]) + 1;
    char *at = *policies = calloc(1, size);
    if (at == NULL)
        return api_error_memory(error);
    for (size_t i = 0; i < r->policies.count; i++)
        at = stpcpy(at, r->policies.item[i]) + 1;
    w->policies = *policies;
    return 0;
}

/* Stores it, puts it into the table, answers. */
static void api_tokens_add(struct server *s, struct http_req *req, const struct accounts_wish *w,
                           const struct accounts_user *user, const struct accounts_token *parent) {
    const char *above = parent != NULL ? parent->id : NULL;
    const struct accounts_token *t = NULL;
    struct accounts_token row;
    char text[TOKEN_TEXT_LEN + 1] = "";
    struct err err;
    err_clear(&err);
    if (accounts_make_token(w, user, &row, text, &err) == 0 &&
        store_accounts_add_token(s->store, &row, user->name, above, &err) == 0)
        t = accounts_put_token(s->accounts.accounts, &row, user->name, above, &err);
    if (t == NULL) {
        api_users_not_stored(s, req, &err);
    } else {
        api_tokens_reply(req, t, text);
        accounts_live_added(&s->accounts, t);
    }
    token_wipe(text, sizeof(text));
}

static int api_tokens_decode(const struct http_req *req, enum account_request_kind kind,
                             struct account_request *r, struct api_error *error) {
    const char *names[ACCOUNT_REQUEST_QUOTAS_MAX + 1];
    bool empty = req->body_len == 0 && kind == ACCOUNT_REQUEST_CHILD;
    api_users_quota_names(names);
    return account_request_decode(empty               ? "{}"
                                  : req->body != NULL ? req->body
                                                      : "",
                                  empty ? 2 : req->body_len, kind, names, r, error);
}

/* An administrator's child token is bounded, and what it makes must be, too. */
static const struct accounts_user *api_tokens_user(struct server *s, const struct http_req *req,
                                                   const char *name, struct api_error *error) {
    const struct accounts_user *u = accounts_user_find(s->accounts.accounts, name);
    if (req->token->parent != NULL)
        api_error_set(error, 403, "child_token", NULL,
                      "A child token makes only child tokens: POST /v1/tokens/children.");
    else if (accounts_full(s->accounts.accounts))
        api_error_set(error, 429, "full", NULL,
                      "There are as many users and tokens as there may be.");
    else if (u == NULL || u->deleted)
        api_error_set(error, 404, "not_found", "/user", "There is no user named %s.", name);
    else
        return u;
    return NULL;
}

void api_tokens_create(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct account_request r;
    struct accounts_wish wish;
    char *policies = NULL;
    if (api_tokens_decode(req, ACCOUNT_REQUEST_TOKEN, &r, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    const struct accounts_user *user = api_tokens_user(s, req, r.name, &error);
    if (user != NULL && api_tokens_wish(&r, &wish, &policies, &error) == 0)
        api_tokens_add(s, req, &wish, user, NULL);
    else
        http_reply_error(req, &error);
    free(policies);
    account_request_done(&r);
}

/* The run or execution that it is made in: the one that is named, which must be the caller's, else
 * the one of the request's traceparent, which is what TRACEPARENT says inside. */
static int api_tokens_from(struct server *s, struct http_req *req, struct accounts_wish *wish,
                           struct api_error *error) {
    struct trace trace = {0};
    const char *id = wish->from_run[0] == '\0' ? traces_of_parent(s, req) : wish->from_run;
    if (id == NULL || strlen(id) >= ACCOUNTS_RUN_ID_SIZE)
        id = "";
    bool found = id[0] != '\0' && traces_of_id(s, req->user_name, id, &trace);
    if (!found && wish->from_run[0] != '\0')
        return api_error_set(error, 404, "not_found", "/from_run", "There is no such run.");
    wish->from_run = id;
    memcpy(wish->from_trace, trace.id, sizeof(trace.id));
    memcpy(wish->from_trace + sizeof(trace.id), trace.span, sizeof(trace.span));
    return 0;
}

void api_tokens_child(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct account_request r;
    struct accounts_wish wish;
    char *policies = NULL;
    if (api_tokens_decode(req, ACCOUNT_REQUEST_CHILD, &r, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (api_tokens_wish(&r, &wish, &policies, &error) == 0 &&
        api_tokens_from(s, req, &wish, &error) == 0 &&
        accounts_make_narrow(s->accounts.accounts, req->token, &wish, &error) == 0)
        api_tokens_add(s, req, &wish, req->token->user, req->token);
    else
        http_reply_error(req, &error);
    free(policies);
    account_request_done(&r);
}

/* An administrator sees all of them, everybody else those that were made with his own. */
static bool api_tokens_visible(const struct http_req *req, const struct accounts_token *t) {
    return req->user_admin || accounts_is_below(t, req->token);
}

void api_tokens_delete(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    bool cancel = false;
    struct err err;
    err_clear(&err);
    struct accounts_token *t = accounts_token_find(s->accounts.accounts, args->value[0]);
    if (route_query_bool(req, "cancel_running", &cancel, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    /* Once more changes nothing: it is a request that fails, of which there are only so many. */
    if (t == NULL || !api_tokens_visible(req, t) ||
        (t->withdrawn && (t->cancel_running || !cancel))) {
        api_tokens_none(req);
        return;
    }
    if (store_accounts_withdraw(s->store, t->id, cancel, &err) < 0) {
        api_users_not_stored(s, req, &err);
        return;
    }
    t->withdrawn = true;
    t->cancel_running = cancel;
    struct http_body nothing = {.data = "", .len = 0};
    http_reply(req, 204, "application/json", &nothing);
    accounts_live_written(&s->accounts);
}

static void api_tokens_write_list(struct server *s, struct http_req *req,
                                  const struct accounts_token *after, uint64_t limit) {
    const char *user = http_query(req, "user");
    const struct accounts_token *t = after, *last = NULL;
    uint64_t n = 0, now = clock_real_ms();
    struct buf out;
    struct json_out j;
    buf_init(&out, API_TOKENS_BYTES);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_open(&j, "tokens", '[');
    while ((t = accounts_token_next(s->accounts.accounts, t)) != NULL) {
        if (!api_tokens_visible(req, t) || (user != NULL && strcmp(t->user->name, user) != 0))
            continue;
        if (n++ == limit)
            break;
        accounts_json_token(&j, NULL, t, now);
        last = t;
    }
    json_out_close(&j, ']');
    if (t != NULL && last != NULL)
        json_out_str(&j, "next", last->id);
    else
        json_out_null(&j, "next");
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

void api_tokens_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    uint64_t limit = API_TOKENS_LIST_DEFAULT;
    const char *after = http_query(req, "after");
    const struct accounts_token *from = NULL;
    if (route_query_u64(req, "limit", 1, API_TOKENS_LIST_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (after != NULL && after[0] != '\0') {
        from = accounts_token_find(s->accounts.accounts, after);
        if (from == NULL || !api_tokens_visible(req, from)) {
            api_tokens_none(req);
            return;
        }
    }
    api_tokens_write_list(s, req, from, limit);
}
