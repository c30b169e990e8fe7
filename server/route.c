#include "route.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "api.h"
#include "server.h"
#include "str.h"

/* A body that nobody asked for. */
#define ROUTE_IDLE_BODY_MAX (64u * 1024)

const struct route route_table[] = {
    {"POST", "/v1/runs", ROUTE_BODY, api_runs_create},
    {"GET", "/v1/runs", 0, api_runs_list},
    {"GET", "/v1/runs/{}", 0, api_runs_get},
    {"DELETE", "/v1/runs/{}", 0, api_runs_delete},
    {"GET", "/v1/runs/{}/events", 0, api_events_get},
    {"GET", "/v1/runs/{}/steps/{}/stdout", 0, api_raw_stdout},
    {"GET", "/v1/runs/{}/steps/{}/stderr", 0, api_raw_stderr},
    {"POST", "/v1/sandboxes", ROUTE_BODY, api_sandboxes_create},
    {"GET", "/v1/sandboxes", 0, api_sandboxes_list},
    {"GET", "/v1/sandboxes/{}", 0, api_sandboxes_get},
    {"DELETE", "/v1/sandboxes/{}", 0, api_sandbox_life_delete},
    {"POST", "/v1/sandboxes/{}/ttl", ROUTE_BODY, api_sandbox_life_ttl},
    {"POST", "/v1/sandboxes/{}/pause", 0, api_sandbox_life_pause},
    {"POST", "/v1/sandboxes/{}/resume", 0, api_sandbox_life_resume},
    {"POST", "/v1/sandboxes/{}/restore", ROUTE_BODY, api_sandbox_life_restore},
    {"POST", "/v1/sandboxes/{}/snapshots", ROUTE_BODY, api_snapshots_create},
    {"POST", "/v1/sandboxes/{}/fork", ROUTE_BODY, api_fork},
    {"GET", "/v1/snapshots", 0, api_snapshots_list},
    {"GET", "/v1/snapshots/{}", 0, api_snapshots_get},
    {"DELETE", "/v1/snapshots/{}", 0, api_snapshots_delete},
    {"GET", "/v1/sandboxes/{}/files/{*}", 0, api_files_get},
    {"PUT", "/v1/sandboxes/{}/files/{*}", ROUTE_UPLOAD, api_files_put},
    {"DELETE", "/v1/sandboxes/{}/files/{*}", 0, api_files_delete},
    {"GET", "/v1/sandboxes/{}/stat/{*}", 0, api_files_stat},
    {"GET", "/v1/sandboxes/{}/list/{*}", 0, api_files_list},
    {"POST", "/v1/sandboxes/{}/mkdir/{*}", 0, api_files_mkdir},
    {"POST", "/v1/sandboxes/{}/move", ROUTE_BODY, api_files_move},
    {"GET", "/v1/sandboxes/{}/watch/{*}", 0, api_files_watch},
    {"GET", "/v1/sandboxes/{}/archive/{*}", 0, api_archive_get},
    {"PUT", "/v1/sandboxes/{}/archive/{*}", ROUTE_UPLOAD, api_archive_put},
    {"POST", "/v1/sandboxes/{}/exec", ROUTE_BODY, api_exec_create},
    {"GET", "/v1/sandboxes/{}/exec", 0, api_exec_list},
    {"GET", "/v1/sandboxes/{}/exec/{}", 0, api_exec_get},
    {"DELETE", "/v1/sandboxes/{}/exec/{}", 0, api_exec_delete},
    {"GET", "/v1/sandboxes/{}/exec/{}/events", 0, api_exec_events_get},
    {"GET", "/v1/sandboxes/{}/exec/{}/stdout", 0, api_exec_stdout},
    {"GET", "/v1/sandboxes/{}/exec/{}/stderr", 0, api_exec_stderr},
    {"POST", "/v1/sandboxes/{}/exec/{}/stdin", ROUTE_RAW, api_exec_stdin_post},
    {"POST", "/v1/sandboxes/{}/exec/{}/signal", 0, api_exec_signal},
    {"POST", "/v1/sandboxes/{}/exec/{}/resize", 0, api_exec_resize},
    {"POST", "/v1/sandboxes/{}/sync", ROUTE_BODY, api_sync_post},
    {"GET", "/v1/sandboxes/{}/changes", 0, api_sync_changes},
    {"PUT", "/v1/blobs/{}", ROUTE_UPLOAD, api_blobs_put},
    {"GET", "/v1/blobs/{}", 0, api_blobs_get},
    {"GET", "/v1/policies", 0, api_policies_list},
    {"GET", "/v1/policies/{}", 0, api_policies_get},
    {"GET", "/v1/capabilities", 0, api_info_capabilities},
    {"GET", "/v1/images", 0, api_info_images},
    {"GET", "/v1/me", 0, api_info_me},
    {"GET", "/metrics", ROUTE_ADMIN, api_info_metrics},
    {"GET", "/healthz", ROUTE_PUBLIC, api_info_healthz},
    {"GET", "/readyz", ROUTE_PUBLIC, api_info_readyz},
    {"GET", "/openapi.json", ROUTE_PUBLIC, openapi_get},
    {0},
};

static int route_authenticate(struct server *s, struct http_req *req, struct api_error *error) {
    const struct token_record *who = auth_check(&s->auth, http_header(req, "Authorization"));
    if (who == NULL)
        return api_error_set(error, 401, "unauthorized", NULL,
                             "This needs a valid token: Authorization: Bearer TOKEN.");
    str_copy(req->user_name, sizeof(req->user_name), who->name);
    req->user = req->user_name;
    req->user_admin = who->admin;
    return 0;
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
    if ((r == NULL || (r->flags & ROUTE_PUBLIC) == 0) && route_authenticate(s, req, error) < 0)
        return -1;
    if (r == NULL) {
        if (missing.status == 405)
            http_add_header(req, "Allow", "%s", args.allow);
        *error = missing;
        return -1;
    }
    if ((r->flags & ROUTE_ADMIN) != 0 && !req->user_admin)
        return api_error_set(error, 403, "forbidden", NULL, "This needs an administrator's token.");
    if ((r->flags & (ROUTE_BODY | ROUTE_UPLOAD)) != 0 &&
        route_check_body(req, (r->flags & ROUTE_BODY) != 0, error) < 0)
        return -1;
    if ((r->flags & (ROUTE_BODY | ROUTE_UPLOAD)) != 0 && s->draining)
        return api_error_set(error, 503, "draining", NULL,
                             "The server is about to stop and takes no new work.");
    *body_max = (r->flags & ROUTE_BODY) != 0  ? SERVER_BODY_MAX
                : (r->flags & ROUTE_RAW) != 0 ? SERVER_RAW_MAX
                                              : ROUTE_IDLE_BODY_MAX;
    if ((r->flags & ROUTE_UPLOAD) != 0) {
        req->early = true;
        *body_max = UINT64_MAX - 1; /* it takes no memory; the handler has its own idea */
    }
    req->route = r;
    return 0;
}

void route_handle(void *server, struct http_req *req) {
    struct route_args args;
    const struct route *r = route_find(route_table, req->method, req->target, &args, NULL);
    r->handle(server, req, &args);
}

void route_ended(void *server, struct http_req *req) {
    struct server *s = server;
    if (req->status > 0 && req->status < METRICS_STATUS_MAX)
        s->metrics.responses[req->status / 100]++;
    if (s->draining && s->quiet != NULL && http_in_flight(s->http) == 0)
        s->quiet(s->quiet_arg);
}
