#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api_exec.h"
#include "clock.h"
#include "execs.h"
#include "json_out.h"
#include "sandbox.h"

/* What may wait for one execution's pipe. */
#define API_EXEC_STDIN_MAX ((size_t)SERVER_RAW_MAX)

/* A part that is on its way into the pipe. It goes on when its client has left: he may not have
 * heard that it did, and asks how far it came. */
struct api_exec_stdin {
    struct exec_feed feed;
    struct http_req *req; /* NULL = the client is gone */
    struct exec *x;       /* pinned */
    char *body;
    struct http_hold hold; /* of the body */
};

static void api_exec_stdin_reply(struct http_req *req, const struct exec *x) {
    struct json_out j;
    struct buf out;
    buf_init(&out, 1024);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "stdin_bytes", x->input.bytes);
    json_out_bool(&j, "closed", !x->input.open);
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

static void api_exec_stdin_closed(struct http_req *req, const struct exec *x) {
    struct api_error error = {0};
    const char *why = x->state == EXEC_DONE ? "The command has ended"
                      : (x->flags & (EXEC_STDIN_OPEN | EXEC_PTY)) == 0
                          ? "The stdin of this execution was never open (stdin_open)"
                          : "Its stdin is closed";
    api_error_set(&error, 409, "stdin_closed", NULL, "%s; %" PRIu64 " bytes were taken altogether.",
                  why, x->input.bytes);
    http_reply_error(req, &error);
}

static void api_exec_stdin_free(struct api_exec_stdin *p) {
    exec_unpin(p->x);
    free(p->body);
    http_hold_end(&p->hold);
    free(p);
}

static void api_exec_stdin_over(struct exec_feed *f, bool taken) {
    struct api_exec_stdin *p = (struct api_exec_stdin *)(void *)f;
    if (p->req != NULL) {
        p->req->gone = NULL;
        if (taken)
            api_exec_stdin_reply(p->req, p->x);
        else
            api_exec_stdin_closed(p->req, p->x);
    }
    api_exec_stdin_free(p);
}

static void api_exec_stdin_gone(struct http_req *req) {
    struct api_exec_stdin *p = req->owner;
    p->req = NULL;
}

/* Bytes at the front of the body that were sent before. */
static int api_exec_stdin_skip(struct http_req *req, const struct exec *x, uint64_t *skip,
                               struct api_error *error) {
    uint64_t offset = x->input.queued;
    if (route_query_u64(req, "offset", 0, UINT64_MAX / 2, &offset, error) < 0)
        return -1;
    if (offset > x->input.queued)
        return api_error_set(error, 409, "stdin_gap", NULL,
                             "The part begins at byte %" PRIu64 ", but only %" PRIu64
                             " were sent before.",
                             offset, x->input.queued);
    uint64_t old = x->input.queued - offset;
    *skip = old < req->body_len ? old : req->body_len;
    return 0;
}

static void api_exec_stdin_feed(struct http_req *req, struct exec *x, size_t skip, bool close) {
    struct api_error error = {0};
    struct api_exec_stdin *p = calloc(1, sizeof(*p));
    size_t len = 0;
    if (p == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    p->req = req;
    p->x = x;
    p->body = http_take_body(req, &len, &p->hold);
    p->feed.data = p->body + skip;
    p->feed.len = len - skip;
    p->feed.close = close;
    p->feed.over = api_exec_stdin_over;
    exec_pin(x);
    int rc = exec_stdin_feed(x, &p->feed);
    if (rc == 0) {
        req->owner = p;
        req->gone = api_exec_stdin_gone;
        return;
    }
    if (rc > 0)
        api_exec_stdin_reply(req, x);
    else
        api_exec_stdin_closed(req, x);
    api_exec_stdin_free(p);
}

void api_exec_stdin_post(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    bool close = false;
    uint64_t skip = 0;
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    /* What is fed to a shell is as much as an execution of one's own. */
    if (api_runs_check_policy(req, sandbox_policy(x->set->sandbox)->name, &error) < 0 ||
        accounts_budget_open(req->token, clock_real_ms(), &error) < 0 ||
        route_query_bool(req, "close", &close, &error) < 0 ||
        api_exec_stdin_skip(req, x, &skip, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (x->input.waiting + req->body_len > API_EXEC_STDIN_MAX) {
        api_error_set(&error, 429, "stdin_busy", NULL,
                      "The command has not read what was sent before; try again later.");
        http_reply_error(req, &error);
        return;
    }
    api_exec_stdin_feed(req, x, (size_t)skip, close);
}

/* Signals and the size of a terminal. */

static void api_exec_no_content(struct http_req *req) {
    static const struct http_body nothing = {.data = "", .len = 0};
    http_reply(req, 204, "application/json", &nothing);
}

static int api_exec_running(const struct exec *x, struct api_error *error) {
    if (x->state == EXEC_RUNNING && x->task.sandbox != NULL)
        return 0;
    return api_error_set(error, 409, "not_running", NULL, "This execution is over.");
}

void api_exec_signal(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    int number = 0;
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    if (exec_request_signal(req->body != NULL ? req->body : "", req->body_len, &number, &error) <
            0 ||
        api_exec_running(x, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    sandbox_task_signal(&x->task, number);
    api_exec_no_content(req);
}

void api_exec_resize(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    uint16_t rows = 0, cols = 0;
    struct exec *x = api_exec_mine(s, req, args);
    if (x == NULL)
        return;
    int rc = exec_request_resize(req->body != NULL ? req->body : "", req->body_len, &rows, &cols,
                                 &error);
    if (rc == 0 && (x->flags & EXEC_PTY) == 0)
        rc = api_error_set(&error, 409, "no_terminal", NULL, "This execution has no terminal.");
    if (rc == 0)
        rc = api_exec_running(x, &error);
    if (rc == 0 && exec_resize(x, rows, cols, NULL) < 0)
        rc = api_error_set(&error, 500, "internal", NULL, "The size could not be changed.");
    if (rc < 0)
        http_reply_error(req, &error);
    else
        api_exec_no_content(req);
}
