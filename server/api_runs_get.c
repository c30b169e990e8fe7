#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "api.h"
#include "traces.h"

#define API_RUNS_LIST_DEFAULT 50u
#define API_RUNS_LIST_MAX 1000u
#define API_RUNS_LIST_BYTES ((size_t)1024 * 1024)

/* A request that waits for a run to be read from the store. */
struct api_runs_wish {
    struct run_store_wish wish;
    struct server *server;
    struct http_req *req;
    struct route_args args;
    void (*fn)(struct server *s, struct http_req *req, struct run *run,
               const struct route_args *args);
};

static void api_runs_gone(struct http_req *req) {
    struct api_runs_wish *w = req->owner;
    run_store_fetch_stop(&w->wish);
    free(w);
}

static void api_runs_found(void *arg, struct run *run, const struct api_error *error) {
    struct api_runs_wish *w = arg;
    w->req->gone = NULL;
    if (run == NULL) {
        http_reply_error(w->req, error);
    } else {
        runs_pin(run);
        w->fn(w->server, w->req, run, &w->args);
        runs_unpin(run);
    }
    free(w);
}

void api_runs_with(struct server *s, struct http_req *req, const struct route_args *args,
                   void (*fn)(struct server *s, struct http_req *req, struct run *run,
                              const struct route_args *args)) {
    struct run *run = runs_find(&s->runs, args->value[0]);
    if (run != NULL && strcmp(run->owner, req->user_name) == 0) {
        runs_pin(run);
        fn(s, req, run, args);
        runs_unpin(run);
        return;
    }
    struct api_runs_wish *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        struct api_error error = {0};
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    w->server = s;
    w->req = req;
    w->args = *args;
    w->fn = fn;
    w->wish.fn = api_runs_found;
    w->wish.arg = w;
    req->owner = w;
    req->gone = api_runs_gone;
    run_store_fetch(&s->runs, req->user_name, args->value[0], &w->wish);
}

static void api_runs_show(struct server *s, struct http_req *req, struct run *run,
                          const struct route_args *args) {
    (void)args;
    traces_answer(req, &run->trace);
    api_answer_now(s, req, run);
}

void api_runs_get(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_runs_show);
}

static void api_runs_cancel(struct server *s, struct http_req *req, struct run *run,
                            const struct route_args *args) {
    (void)args;
    if (run->phase == RUN_DONE)
        run_keep_drop(run);
    run_cancel(run, CAUSE_CANCELLED);
    api_answer_when_done(s, req, run);
}

void api_runs_delete(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_runs_cancel);
}

/* The list: what is over is in the store; what is not, or could not be stored, is in memory. Both
 * are in the order of their ids. */
struct api_runs_list {
    const char *owner;
    const struct run *run; /* the next one in memory */
    uint64_t left;
    char last[RUN_ID_SIZE]; /* that is in it */
    bool more, failed;
    struct buf out;
};

/* The newest in memory from `run` on that the store does not list, older than `before`. */
static const struct run *api_runs_in_memory(const struct run *run, const char *owner,
                                            const char *before) {
    while (run != NULL && (run->store.stored || strcmp(run->owner, owner) != 0 ||
                           (before != NULL && strcmp(run->id, before) >= 0)))
        run = run->older;
    return run;
}

/* Room for one more? Then the comma in front of it. */
static bool api_runs_list_next(struct api_runs_list *l, const char *id) {
    if (l->left == 0) {
        l->more = true;
        return false;
    }
    if (l->last[0] != '\0' && buf_puts(&l->out, ",", NULL) < 0)
        l->failed = true;
    l->left--;
    memcpy(l->last, id, strnlen(id, RUN_ID_SIZE - 1) + 1);
    l->last[RUN_ID_SIZE - 1] = '\0';
    return true;
}

/* Those in memory that are newer than `id`; all of them when it is NULL. */
static bool api_runs_list_memory(struct api_runs_list *l, const char *id) {
    while (l->run != NULL && (id == NULL || strcmp(l->run->id, id) > 0)) {
        if (!api_runs_list_next(l, l->run->id))
            return false;
        if (answer_encode_summary(l->run, false, &l->out, NULL) < 0)
            l->failed = true;
        l->run = api_runs_in_memory(l->run->older, l->owner, NULL);
    }
    return true;
}

static bool api_runs_list_line(void *arg, const struct store_run_line *line) {
    struct api_runs_list *l = arg;
    if (!api_runs_list_memory(l, line->id) || !api_runs_list_next(l, line->id))
        return false;
    if (buf_puts(&l->out, line->summary, NULL) < 0)
        l->failed = true;
    return !l->failed;
}

static int api_runs_list_fill(struct server *s, struct api_runs_list *l, const char *after) {
    if (buf_puts(&l->out, "{\"runs\":[", NULL) < 0)
        return -1;
    if (s->runs.store != NULL &&
        store_runs_list(s->runs.store, l->owner, after, api_runs_list_line, l, NULL) < 0)
        return -1;
    if (!l->more)
        (void)api_runs_list_memory(l, NULL);
    if (l->failed)
        return -1;
    if (l->more)
        return buf_printf(&l->out, NULL, "],\"next\":\"%s\"}", l->last);
    return buf_puts(&l->out, "],\"next\":null}", NULL);
}

static int api_runs_check_after(struct server *s, struct http_req *req, const char *after,
                                struct api_error *error) {
    const struct run *run = runs_find(&s->runs, after);
    if (run != NULL && strcmp(run->owner, req->user_name) == 0)
        return 0;
    if (s->runs.store != NULL && store_runs_has(s->runs.store, req->user_name, after, NULL) > 0)
        return 0;
    return api_error_set(error, 404, "not_found", NULL, "There is no such run.");
}

void api_runs_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct api_error error = {0};
    struct api_runs_list l = {.owner = req->user_name, .left = API_RUNS_LIST_DEFAULT};
    const char *after = http_query(req, "after");
    if (after != NULL && after[0] == '\0')
        after = NULL;
    if (route_query_u64(req, "limit", 1, API_RUNS_LIST_MAX, &l.left, &error) < 0 ||
        (after != NULL && api_runs_check_after(s, req, after, &error) < 0)) {
        http_reply_error(req, &error);
        return;
    }
    l.run = api_runs_in_memory(s->runs.newest, req->user_name, after);
    buf_init(&l.out, API_RUNS_LIST_BYTES);
    int rc = api_runs_list_fill(s, &l, after);
    api_reply_buf(req, 200, "application/json", &l.out, rc);
}
