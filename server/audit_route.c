#include "audit_route.h"

#include <stdio.h>
#include <string.h>

#include "accounts.h"
#include "audit.h"
#include "clock.h"

/* Recorded by their handlers, or too small to speak of: what is typed, the size of a window. */
static const char *const audit_route_others[] = {
    "/v1/runs",
    "/v1/runs/{}/replay",
    "/v1/sandboxes/{}/exec",
    "/v1/sandboxes/{}/exec/{}/stdin",
    "/v1/sandboxes/{}/exec/{}/resize",
    NULL,
};

static bool audit_route_is(const struct route *r) {
    if (strcmp(r->method, "GET") == 0 || (r->flags & ROUTE_PUBLIC) != 0)
        return false;
    for (size_t i = 0; audit_route_others[i] != NULL; i++)
        if (strcmp(r->pattern, audit_route_others[i]) == 0)
            return false;
    return true;
}

/* What starts work and what changes who may do what is recorded each time, or something could be
 * hidden behind a flood of requests. What is left touches only what its user has already: files
 * that come one by one, a longer life, a signal, an end that is asked for again and again.
 * Thousands of such records a minute would say less than their number, and cost whoever asks
 * nothing. */
static bool audit_route_is_bounded(const char *what) {
    static const char *const bounded[] = {"files", "mkdir", "move",   "archive", "sync", "blobs",
                                          "ttl",   "pause", "resume", "exec",    "runs", NULL};
    for (size_t i = 0; bounded[i] != NULL; i++)
        if (strcmp(what, bounded[i]) == 0)
            return true;
    return false;
}

/* "files" of "/v1/sandboxes/{}/files/{*}", else the word behind "/v1/". */
static void audit_route_what(const char *pattern, char what[32]) {
    static const char sandboxes[] = "/v1/sandboxes/{}/", api[] = "/v1/";
    if (strncmp(pattern, sandboxes, sizeof(sandboxes) - 1) == 0)
        pattern += sizeof(sandboxes) - 1;
    else if (strncmp(pattern, api, sizeof(api) - 1) == 0)
        pattern += sizeof(api) - 1;
    snprintf(what, 32, "%.*s", (int)strcspn(pattern, "/"), pattern);
}

/* What fails costs nothing but two records of the log, which would so grow as fast as somebody can
 * ask. To leave some out would hide among them what did not fail: so who has failed that often is
 * refused for the rest of the minute, and refusals are summed up. */
#define AUDIT_ROUTE_FAILED_MOST 1000u
#define AUDIT_ROUTE_WINDOW_MS 60000u

static struct accounts_user *audit_route_user(const struct http_req *req, uint64_t now_ms) {
    struct accounts_user *user = req->token != NULL ? req->token->user : NULL;
    if (user != NULL &&
        (now_ms < user->failed_from_ms || now_ms - user->failed_from_ms >= AUDIT_ROUTE_WINDOW_MS)) {
        user->failed_from_ms = now_ms;
        user->failed = 0;
    }
    return user;
}

static int audit_route_check(const struct http_req *req, struct api_error *error) {
    const struct accounts_user *user = audit_route_user(req, clock_real_ms());
    if (user == NULL || user->failed < AUDIT_ROUTE_FAILED_MOST)
        return 0;
    return api_error_set(
        error, 429, "too_many_failures", NULL,
        "%u of your requests to change something have failed within a minute. Wait "
        "until it is over.",
        user->failed);
}

int audit_route_begin(struct server *s, struct http_req *req, const struct route *r,
                      const struct route_args *args, struct api_error *error) {
    char what[32], op[128];
    struct audit_mark mark;
    req->audit_seq = 0;
    if (!audit_route_is(r))
        return 0;
    if (audit_route_check(req, error) < 0)
        return -1;
    bool sandbox = strncmp(r->pattern, "/v1/sandboxes/{}", 16) == 0;
    audit_route_what(r->pattern, what);
    snprintf(op, sizeof(op), "%s %s", r->method, r->pattern);
    struct audit_asked asked = {.type = "asked",
                                .what = what,
                                .op = op,
                                .user = req->user_name,
                                .token = req->token != NULL ? req->token->id : NULL,
                                .sandbox = sandbox && args->count > 0 ? args->value[0] : NULL,
                                .path = args->rest[0] != '\0' ? args->rest : NULL};
    if (args->count > (sandbox ? 1u : 0u))
        asked.id = args->value[sandbox ? 1 : 0];
    int rc = audit_route_is_bounded(what) ? audit_accepted_bounded(&s->audit, &asked, &mark, error)
                                          : audit_accepted(&s->audit, &asked, &mark, error);
    if (rc < 0 && strcmp(r->method, "DELETE") == 0) {
        audit_asked_to_end(&s->audit, &asked, &mark);
        rc = 0;
    }
    if (rc < 0)
        return -1;
    req->audit_seq = mark.seq;
    return 0;
}

void audit_route_ended(struct server *s, struct http_req *req) {
    struct audit_answer x = {.user = req->user_name,
                             .method = req->method,
                             .route = req->route != NULL ? req->route->pattern : "-",
                             .status = req->status,
                             .code = req->error_code};
    if (req->audit_seq != 0 && req->status >= 400) {
        struct accounts_user *user = audit_route_user(req, clock_real_ms());
        if (user != NULL && req->status < 500)
            user->failed++;
        audit_failed(&s->audit, req->audit_seq, &x);
    } else if (req->status == 401 || req->status == 403 || req->status == 429) {
        x.client = http_client(req);
        audit_denied(&s->audit, &x);
    }
    req->audit_seq = 0;
}
