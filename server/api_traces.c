#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "json_out.h"
#include "str.h"
#include "traces.h"

#define API_TRACES_DEFAULT 200u
#define API_TRACES_MAX 1000u
#define API_TRACES_BYTES ((size_t)4 * 1024 * 1024)

static void api_traces_span(struct json_out *j, const char *key, const uint8_t *span, bool there) {
    char text[TRACEPARENT_SPAN_TEXT];
    traceparent_hex(span, TRACEPARENT_SPAN, text);
    if (there)
        json_out_str(j, key, text);
    else
        json_out_null(j, key);
}

static void api_traces_end(struct json_out *j, const struct traces_node *n) {
    if (n->cause[0] == '\0') {
        json_out_null(j, "cause");
        return;
    }
    json_out_bool(j, "ok", n->ok);
    json_out_str(j, "cause", n->cause);
    if (n->exit_code >= 0)
        json_out_i64(j, "exit_code", n->exit_code);
}

static void api_traces_node(struct json_out *j, const struct traces_node *n) {
    static const char *const kinds[] = {
        [TRACES_RUN] = "run", [TRACES_EXEC] = "execution", [TRACES_SANDBOX] = "sandbox"};
    json_out_open(j, NULL, '{');
    json_out_str(j, "kind", kinds[n->kind]);
    json_out_str(j, "id", n->id);
    if (n->kind == TRACES_EXEC)
        json_out_str(j, "sandbox", n->sandbox);
    api_traces_span(j, "span", n->trace.span, true);
    api_traces_span(j, "parent", n->trace.parent, trace_has_parent(&n->trace));
    if (n->trace.from[0] != '\0')
        json_out_str(j, "from", n->trace.from);
    if (n->kind != TRACES_SANDBOX)
        json_out_str(j, "label", n->label);
    json_out_str(j, "state", n->state);
    api_traces_end(j, n);
    json_out_u64(j, "created_at", n->created_ms);
    if (n->duration_ms != UINT64_MAX)
        json_out_u64(j, "duration_ms", n->duration_ms);
    else
        json_out_null(j, "duration_ms");
    json_out_close(j, '}');
}

static void api_traces_none(struct http_req *req) {
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL, "There is no such trace.");
    http_reply_error(req, &error);
}

/* Where the page behind `after` begins; count + 1: there is no such node. */
static size_t api_traces_first(const struct traces_list *list, const char *after) {
    if (after == NULL || after[0] == '\0')
        return 0;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->nodes[i].id, after) == 0)
            return i + 1;
    return list->count + 1;
}

static void api_traces_reply(struct http_req *req, const char *id, const struct traces_list *list,
                             size_t first, size_t limit) {
    struct buf out;
    struct json_out j;
    size_t end = list->count - first < limit ? list->count : first + limit;
    buf_init(&out, API_TRACES_BYTES);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_str(&j, "id", id);
    json_out_open(&j, "spans", '[');
    for (size_t i = first; i < end; i++)
        api_traces_node(&j, &list->nodes[i]);
    json_out_close(&j, ']');
    json_out_bool(&j, "cut", list->cut);
    if (end < list->count)
        json_out_str(&j, "next", list->nodes[end - 1].id);
    else
        json_out_null(&j, "next");
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

struct api_traces {
    struct server *server;
    struct http_req *req;
    char id[2 * TRACEPARENT_ID + 1];
    size_t limit;
    struct traces_gather *gather;
};

static void api_traces_gathered(void *arg, const struct traces_list *list, const struct err *err) {
    struct api_traces *t = arg;
    struct http_req *req = t->req;
    struct api_error error = {0};
    req->gone = NULL;
    if (list == NULL) {
        log_err(&t->server->log, LOG_ERROR, "trace_unreadable", err);
        api_error_set(&error, 500, "internal", NULL, "The trace could not be read.");
        http_reply_error(req, &error);
    } else {
        size_t first = api_traces_first(list, http_query(req, "after"));
        if (list->count == 0 || first > list->count)
            api_traces_none(req);
        else
            api_traces_reply(req, t->id, list, first, t->limit);
    }
    free(t);
}

static void api_traces_gone(struct http_req *req) {
    struct api_traces *t = req->owner;
    traces_gather_stop(t->gather);
    free(t);
}

void api_traces_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    uint8_t id[TRACEPARENT_ID];
    uint64_t limit = API_TRACES_DEFAULT;
    if (route_query_u64(req, "limit", 1, API_TRACES_MAX, &limit, &error) < 0) {
        http_reply_error(req, &error);
        return;
    }
    if (!traceparent_parse_id(args->value[0], id)) {
        api_traces_none(req);
        return;
    }
    struct api_traces *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    t->server = s;
    t->req = req;
    t->limit = (size_t)limit;
    (void)str_copy(t->id, sizeof(t->id), args->value[0]);
    const struct traces_asker asker = {.done = api_traces_gathered, .arg = t};
    struct traces_gather *gather = traces_gather(s, req->user_name, id, &asker);
    if (gather == NULL)
        return; /* it is answered */
    t->gather = gather;
    req->owner = t;
    req->gone = api_traces_gone;
}
