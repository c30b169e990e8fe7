#include "route.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "accounts_scope.h"
#include "api.h"
#include "audit_route.h"
#include "clock.h"
#include "idempotency.h"
#include "seen.h"
#include "server.h"
#include "str.h"

/* A body that nobody asked for, and one that is decoded on the loop's thread: a few hundred bytes
 * would do, and what takes the decoder longest (a number without end) stays about a millisecond. */
#define ROUTE_IDLE_BODY_MAX (64u * 1024)
/* A user may have so many times as many requests open as there are connections left, and this part
 * of all of them in any case: when many users are busy they wait, and nobody is refused. */
#define ROUTE_SHARE 2u
#define ROUTE_PART 8u
/* But this part of all is for who has next to nothing open: so few users, each with what he may
 * have, do not keep out everybody else together. */
#define ROUTE_RESERVE 16u
#define ROUTE_FEW 2u
/* With fewer than this in that part, everybody waits for his turn instead. */
#define ROUTE_RESERVE_LEAST 16u

/* What belongs to the caller may be looked at with the scope of its family, or with `read`. */
#define ROUTE_RUN ACCOUNTS_RUN
#define ROUTE_RUN_GET (ACCOUNTS_RUN | ACCOUNTS_READ)
#define ROUTE_SANDBOX ACCOUNTS_SANDBOX
#define ROUTE_SANDBOX_GET (ACCOUNTS_SANDBOX | ACCOUNTS_READ)
#define ROUTE_FILES ACCOUNTS_FILES
#define ROUTE_FILES_GET (ACCOUNTS_FILES | ACCOUNTS_READ)

const struct route route_table[] = {
    {"POST", "/v1/runs", ROUTE_BODY | ROUTE_LARGE | ROUTE_KEYED, api_runs_create, ROUTE_RUN},
    {"GET", "/v1/runs", 0, api_runs_list, ROUTE_RUN_GET},
    {"GET", "/v1/runs/{}", 0, api_runs_get, ROUTE_RUN_GET},
    {"DELETE", "/v1/runs/{}", 0, api_runs_delete, ROUTE_RUN},
    {"POST", "/v1/runs/{}/replay", 0, api_replay, ROUTE_RUN},
    {"GET", "/v1/runs/{}/events", 0, api_events_get, ROUTE_RUN_GET},
    {"GET", "/v1/runs/{}/steps/{}/stdout", 0, api_raw_stdout, ROUTE_RUN_GET},
    {"GET", "/v1/runs/{}/steps/{}/stderr", 0, api_raw_stderr, ROUTE_RUN_GET},
    {"POST", "/v1/sandboxes", ROUTE_BODY | ROUTE_LARGE | ROUTE_KEYED, api_sandboxes_create,
     ROUTE_SANDBOX},
    {"GET", "/v1/sandboxes", 0, api_sandboxes_list, ROUTE_SANDBOX_GET},
    {"GET", "/v1/sandboxes/{}", 0, api_sandboxes_get, ROUTE_SANDBOX_GET},
    {"DELETE", "/v1/sandboxes/{}", 0, api_sandbox_life_delete, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/ttl", ROUTE_BODY, api_sandbox_life_ttl, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/pause", 0, api_sandbox_life_pause, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/resume", 0, api_sandbox_life_resume, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/restore", ROUTE_BODY, api_sandbox_life_restore, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/snapshots", ROUTE_BODY | ROUTE_KEYED, api_snapshots_create,
     ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/fork", ROUTE_BODY | ROUTE_KEYED, api_fork, ROUTE_SANDBOX},
    {"GET", "/v1/snapshots", 0, api_snapshots_list, ROUTE_SANDBOX_GET},
    {"GET", "/v1/snapshots/{}", 0, api_snapshots_get, ROUTE_SANDBOX_GET},
    {"DELETE", "/v1/snapshots/{}", 0, api_snapshots_delete, ROUTE_SANDBOX},
    {"GET", "/v1/sandboxes/{}/files/{*}", 0, api_files_get, ROUTE_FILES_GET},
    {"PUT", "/v1/sandboxes/{}/files/{*}", ROUTE_UPLOAD, api_files_put, ROUTE_FILES},
    {"DELETE", "/v1/sandboxes/{}/files/{*}", 0, api_files_delete, ROUTE_FILES},
    {"GET", "/v1/sandboxes/{}/stat/{*}", 0, api_files_stat, ROUTE_FILES_GET},
    {"GET", "/v1/sandboxes/{}/list/{*}", 0, api_files_list, ROUTE_FILES_GET},
    {"POST", "/v1/sandboxes/{}/mkdir/{*}", 0, api_files_mkdir, ROUTE_FILES},
    {"POST", "/v1/sandboxes/{}/move", ROUTE_BODY, api_files_move, ROUTE_FILES},
    {"GET", "/v1/sandboxes/{}/watch/{*}", 0, api_files_watch, ROUTE_FILES_GET},
    {"GET", "/v1/sandboxes/{}/archive/{*}", 0, api_archive_get, ROUTE_FILES_GET},
    {"PUT", "/v1/sandboxes/{}/archive/{*}", ROUTE_UPLOAD, api_archive_put, ROUTE_FILES},
    {"POST", "/v1/sandboxes/{}/exec", ROUTE_BODY | ROUTE_LARGE, api_exec_create, ROUTE_SANDBOX},
    {"GET", "/v1/sandboxes/{}/exec", 0, api_exec_list, ROUTE_SANDBOX_GET},
    {"GET", "/v1/sandboxes/{}/exec/{}", 0, api_exec_get, ROUTE_SANDBOX_GET},
    {"DELETE", "/v1/sandboxes/{}/exec/{}", 0, api_exec_delete, ROUTE_SANDBOX},
    {"GET", "/v1/sandboxes/{}/exec/{}/events", 0, api_exec_events_get, ROUTE_SANDBOX_GET},
    {"GET", "/v1/sandboxes/{}/exec/{}/receipt", 0, api_exec_receipt, ROUTE_SANDBOX_GET},
    {"GET", "/v1/sandboxes/{}/exec/{}/stdout", 0, api_exec_stdout, ROUTE_SANDBOX_GET},
    {"GET", "/v1/sandboxes/{}/exec/{}/stderr", 0, api_exec_stderr, ROUTE_SANDBOX_GET},
    {"POST", "/v1/sandboxes/{}/exec/{}/stdin", ROUTE_RAW, api_exec_stdin_post, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/exec/{}/signal", 0, api_exec_signal, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/exec/{}/resize", 0, api_exec_resize, ROUTE_SANDBOX},
    {"POST", "/v1/sandboxes/{}/sync", ROUTE_BODY | ROUTE_LARGE, api_sync_post, ROUTE_FILES},
    {"GET", "/v1/sandboxes/{}/changes", 0, api_sync_changes, ROUTE_FILES_GET},
    {"PUT", "/v1/blobs/{}", ROUTE_UPLOAD, api_blobs_put, ROUTE_FILES},
    {"GET", "/v1/blobs/{}", 0, api_blobs_get, ROUTE_FILES_GET},
    {"GET", "/v1/top", 0, api_top_get,
     ACCOUNTS_READ | ACCOUNTS_RUN | ACCOUNTS_SANDBOX | ACCOUNTS_ADMIN},
    {"GET", "/v1/traces/{}", 0, api_traces_get, ACCOUNTS_READ | ACCOUNTS_RUN | ACCOUNTS_SANDBOX},
    {"GET", "/v1/receipt-key", ROUTE_PUBLIC, api_receipt_key, 0},
    {"GET", "/v1/policies", 0, api_policies_list, 0},
    {"GET", "/v1/policies/{}", 0, api_policies_get, 0},
    {"GET", "/v1/capabilities", 0, api_info_capabilities, 0},
    {"GET", "/v1/images", 0, api_info_images, 0},
    {"POST", "/v1/users", ROUTE_BODY, api_users_create, ACCOUNTS_ADMIN},
    {"GET", "/v1/users", 0, api_users_list, ACCOUNTS_ADMIN},
    {"GET", "/v1/users/{}", 0, api_users_get, ACCOUNTS_ADMIN},
    {"POST", "/v1/users/{}", ROUTE_BODY, api_users_change, ACCOUNTS_ADMIN},
    {"PATCH", "/v1/users/{}", ROUTE_BODY, api_users_change, ACCOUNTS_ADMIN},
    {"DELETE", "/v1/users/{}", 0, api_users_delete, ACCOUNTS_ADMIN},
    {"POST", "/v1/tokens", ROUTE_BODY, api_tokens_create, ACCOUNTS_ADMIN},
    {"GET", "/v1/tokens", 0, api_tokens_list, 0},
    {"POST", "/v1/tokens/children", ROUTE_BODY, api_tokens_child, 0},
    {"DELETE", "/v1/tokens/{}", 0, api_tokens_delete, 0},
    {"GET", "/v1/me", 0, api_me_get, 0},
    {"GET", "/metrics", 0, api_metrics_get, ACCOUNTS_METRICS | ACCOUNTS_ADMIN},
    {"GET", "/healthz", ROUTE_PUBLIC, api_info_healthz, 0},
    {"GET", "/readyz", ROUTE_PUBLIC, api_info_readyz, 0},
    {"GET", "/openapi.json", ROUTE_PUBLIC, openapi_get, 0},
    {0},
};

static bool route_holds_token(const char *text) {
    for (const char *at = text; (at = strstr(at, TOKEN_PREFIX)) != NULL; at++)
        if (strlen(at) >= TOKEN_TEXT_LEN && token_is_form(at, TOKEN_TEXT_LEN))
            return true;
    return false;
}

/* URLs end up in logs and histories, here and on the way. */
static bool route_is_secret(const char *name, const char *value) {
    static const char *const names[] = {"token",  "access_token", "api_key",
                                        "apikey", "bearer",       "authorization"};
    if (value != NULL && route_holds_token(value))
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

#define ROUTE_NO_SECRET_IN_URL                                                                     \
    "A token does not belong into a URL, where logs keep it: Authorization: Bearer TOKEN. Revoke " \
    "the one that was sent."

/* In the path, too (`args` NULL: it is none of ours): DELETE /v1/tokens/TOKEN is what somebody
 * types who has no id at hand. */
static bool route_in_url(struct http_req *req, const struct route_args *args) {
    bool found = http_query_any(req, route_is_secret);
    if (args == NULL)
        return found;
    found = found || route_holds_token(args->rest);
    for (size_t i = 0; i < args->count && !found; i++)
        found = route_holds_token(args->value[i]);
    return found;
}

/* Streams and long answers stay as long as their clients like. Whoever has many of them open leaves
 * some connections to everybody else. */
static int route_check_share(const struct server *s, const struct accounts_user *user,
                             struct api_error *error) {
    size_t left = http_connections_left(s->http), all = left + http_connections(s->http);
    bool fits = user->open <= all / ROUTE_PART || user->open < ROUTE_SHARE * left;
    bool scarce = all / ROUTE_RESERVE >= ROUTE_RESERVE_LEAST && left < all / ROUTE_RESERVE;
    if (fits && (!scarce || user->open <= ROUTE_FEW))
        return 0;
    return api_error_set(error, 429, "connections", NULL,
                         "%zu of your requests are open, and the connections that are left are for "
                         "others. End some of them, or try again later.",
                         user->open);
}

static int route_authenticate(struct server *s, struct http_req *req, const struct route_args *args,
                              struct api_error *error) {
    const char *header = http_header(req, "Authorization");
    struct accounts_token *token = accounts_check(s->accounts.accounts, header, clock_real_ms());
    bool in_url = route_in_url(req, args);
    /* Its making may be an event of this very round that is not handled yet. */
    if (token == NULL && accounts_live_look(&s->accounts))
        token = accounts_check(s->accounts.accounts, header, clock_real_ms());
    if (token == NULL)
        return api_error_set(error, 401, "unauthorized", NULL, "%s",
                             in_url ? ROUTE_NO_SECRET_IN_URL
                                    : "This needs a valid token: Authorization: Bearer TOKEN.");
    if (in_url)
        return api_error_set(error, 400, "token_in_url", NULL, "%s", ROUTE_NO_SECRET_IN_URL);
    if (route_check_share(s, token->user, error) < 0)
        return -1;
    req->token = accounts_token_ref(token);
    req->token->user->open++;
    str_copy(req->user_name, sizeof(req->user_name), token->user->name);
    req->user = req->user_name;
    req->user_admin = (token->scopes & ACCOUNTS_ADMIN) != 0;
    return 0;
}

static int route_check_scope(const struct route *r, const struct http_req *req,
                             struct api_error *error) {
    char names[ACCOUNTS_SCOPE_NAMES_SIZE];
    if (r->scopes == 0 || (req->token->scopes & r->scopes) != 0)
        return 0;
    accounts_scope_names(r->scopes, " or ", names);
    return api_error_set(error, 403, "scope", NULL, "This needs a token with the scope %s.", names);
}

/* application/json, with or without parameters, and application/…+json. Also what curl -d says when
 * it is not told otherwise: the body decides then. (A token in a header is asked for anyway, so a
 * form in a browser gains nothing.) */
static bool route_is_json(const char *type) {
    static const char form[] = "application/x-www-form-urlencoded";
    size_t len = strcspn(type, "; \t");
    if (len == sizeof form - 1 && strncasecmp(type, form, len) == 0)
        return true;
    if (len == 16 && strncasecmp(type, "application/json", 16) == 0)
        return true;
    return len > 17 && strncasecmp(type, "application/", 12) == 0 &&
           strncasecmp(type + len - 5, "+json", 5) == 0;
}

static int route_check_body(struct http_req *req, bool json, struct api_error *error) {
    const char *type = http_header(req, "Content-Type");
    if (json && type != NULL && !route_is_json(type))
        return api_error_set(error, 415, "not_json", NULL,
                             "The body must be JSON (Content-Type: application/json).");
    const char *coding = http_header(req, "Content-Encoding");
    if (coding != NULL && strcasecmp(coding, "identity") != 0)
        return api_error_set(error, 415, "content_coding", NULL,
                             "A compressed body is not understood.");
    return 0;
}

int route_begin(void *server, struct http_req *req, uint64_t *body_max, struct api_error *error) {
    struct server *s = server;
    struct route_args args;
    struct api_error missing = {0};
    const struct route *r = route_find(route_table, req->method, req->target, &args, &missing);
    /* Who has no token does not learn what there is. */
    if ((r == NULL || (r->flags & ROUTE_PUBLIC) == 0) &&
        route_authenticate(s, req, r != NULL ? &args : NULL, error) < 0)
        return -1;
    if (r == NULL) {
        if (missing.status == 405)
            http_add_header(req, "Allow", "%s", args.allow);
        *error = missing;
        return -1;
    }
    req->route = r;
    if ((r->flags & ROUTE_PUBLIC) == 0 && route_check_scope(r, req, error) < 0)
        return -1;
    if ((r->flags & (ROUTE_BODY | ROUTE_UPLOAD)) != 0 &&
        route_check_body(req, (r->flags & ROUTE_BODY) != 0, error) < 0)
        return -1;
    if ((r->flags & (ROUTE_BODY | ROUTE_UPLOAD)) != 0 && s->draining)
        return api_error_set(error, 503, "draining", NULL,
                             "The server is about to stop and takes no new work.");
    *body_max = (r->flags & ROUTE_LARGE) != 0 ? SERVER_BODY_MAX
                : (r->flags & ROUTE_RAW) != 0 ? SERVER_RAW_MAX
                                              : ROUTE_IDLE_BODY_MAX;
    if ((r->flags & ROUTE_UPLOAD) != 0) {
        req->early = true;
        *body_max = UINT64_MAX - 1; /* it takes no memory; the handler has its own idea */
    }
    return 0;
}

void route_handle(void *server, struct http_req *req) {
    struct route_args args;
    const struct route *r = route_find(route_table, req->method, req->target, &args, NULL);
    struct api_error error = {0};
    if (audit_route_begin(server, req, r, &args, &error) < 0)
        http_reply_error(req, &error);
    else if ((r->flags & ROUTE_KEYED) == 0 || !idempotency_take(server, req, &args))
        r->handle(server, req, &args);
}

void route_ended(void *server, struct http_req *req) {
    struct server *s = server;
    idempotency_over(s, req);
    seen_request(s, req);
    audit_route_ended(s, req);
    idle_later(&s->idle);
    if (req->token != NULL)
        req->token->user->open--;
    accounts_token_unref(req->token);
    req->token = NULL;
}
