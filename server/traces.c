#include "traces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "execs.h"
#include "server.h"
#include "store_trace.h"
#include "traces_late.h"

static const char traces_state_name[] = "TRACESTATE=";

/* The list may be spread over several headers; the parts are joined. One that is too long or not
 * well formed is not passed on; that is no error. */
static int traces_read_state(struct http_req *req, char **state, struct err *err) {
    const size_t head = sizeof(traces_state_name) - 1;
    char text[sizeof(traces_state_name) + TRACEPARENT_STATE_MAX];
    *state = NULL;
    if (http_header_join(req, "tracestate", text + head, sizeof(text) - head) == 0 ||
        !traceparent_state_ok(text + head))
        return 0;
    memcpy(text, traces_state_name, head);
    *state = strdup(text);
    return *state != NULL ? 0 : err_set(err, ERR_SYSTEM, ENOMEM, "keeping tracestate");
}

/* The request's traceparent. Two of them are as good as none. */
static bool traces_read_header(struct http_req *req, struct traceparent *out) {
    char text[2 * TRACEPARENT_TEXT + 16];
    const char *first = http_header(req, "traceparent");
    return first != NULL && http_header_join(req, "traceparent", text, sizeof(text)) == 1 &&
           traceparent_parse(first, out);
}

_Static_assert(ACCOUNTS_TRACE_SIZE == TRACEPARENT_ID + TRACEPARENT_SPAN, "what a token keeps");

static const struct trace *traces_of_exec(struct server *s, const char *user, const char *id) {
    for (const struct sandbox *sb = s->sandboxes.newest; sb != NULL; sb = sandbox_older(sb)) {
        const struct execs *set = execs_of(sb);
        if (set == NULL || strcmp(sandbox_owner(sb), user) != 0)
            continue;
        const struct exec *x = execs_find(set, id);
        if (x != NULL)
            return &x->trace;
    }
    return NULL;
}

/* A run need not be in memory any more. */
bool traces_of_id(struct server *s, const char *user, const char *id, struct trace *out) {
    const struct run *run = runs_find(&s->runs, id);
    const struct trace *found = NULL;
    if (run != NULL && strcmp(run->owner, user) == 0)
        found = &run->trace;
    else if (run == NULL && strncmp(id, "ex_", 3) == 0)
        found = traces_of_exec(s, user, id);
    if (found != NULL)
        *out = *found;
    else if (run == NULL && traces_late_find(s, user, id, out))
        return true;
    return found != NULL || (run == NULL && s->runs.store != NULL &&
                             (strncmp(id, "run_", 4) == 0 || strncmp(id, "ex_", 3) == 0) &&
                             store_trace_of(s->runs.store, user, id, out, sizeof(*out), NULL) == 1);
}

/* What the token was made in may be gone, with its sandbox for example. */
static bool traces_of_token(const struct accounts_token *t, struct trace *out) {
    *out = (struct trace){0};
    memcpy(out->id, t->from_trace, sizeof(out->id));
    memcpy(out->span, t->from_trace + sizeof(out->id), sizeof(out->span));
    return trace_is_set(out);
}

/* Where the token comes from, or one that it was made with. */
static void traces_look_above(struct server *s, const struct http_req *req,
                              struct trace_above *above, struct trace *from) {
    const struct accounts_token *t = req->token;
    while (t != NULL && t->from_run[0] == '\0')
        t = t->parent;
    if (t == NULL)
        return;
    above->from_id = t->from_run;
    if (traces_of_id(s, req->user_name, t->from_run, from) || traces_of_token(t, from))
        above->from = from;
}

int traces_begin(struct server *s, struct http_req *req, const struct trace *inside,
                 struct trace *out, char **state, struct err *err) {
    struct traceparent header;
    struct trace_above above = {.inside = inside};
    struct trace from;
    if (traces_read_header(req, &header))
        above.header = &header;
    traces_look_above(s, req, &above, &from);
    if (trace_begin(&s->trace_pool, &above, out, err) < 0)
        return -1;
    if (state == NULL)
        return 0;
    *state = NULL;
    /* It belongs to the trace of the header, which may not have counted. */
    if (above.header == NULL || memcmp(header.id, out->id, sizeof(header.id)) != 0)
        return 0;
    return traces_read_state(req, state, err);
}

void traces_answer(struct http_req *req, const struct trace *t) {
    char text[TRACEPARENT_TEXT];
    trace_header(t, text);
    http_add_header(req, "traceparent", "%s", text);
}

static bool traces_is_parent(const struct trace *t, const struct traceparent *p) {
    return memcmp(t->span, p->span, sizeof(t->span)) == 0 &&
           memcmp(t->id, p->id, sizeof(t->id)) == 0;
}

const char *traces_of_parent(struct server *s, struct http_req *req) {
    struct traceparent p;
    if (!traces_read_header(req, &p))
        return NULL;
    for (const struct run *run = trace_index_find(&s->runs.by_trace, p.id); run != NULL;
         run = trace_index_next(run))
        if (traces_is_parent(&run->trace, &p) && strcmp(run->owner, req->user_name) == 0)
            return run->id;
    for (const struct sandbox *sb = s->sandboxes.newest; sb != NULL; sb = sandbox_older(sb)) {
        const struct execs *set = execs_of(sb);
        if (set == NULL || strcmp(sandbox_owner(sb), req->user_name) != 0)
            continue;
        for (const struct exec *x = set->newest; x != NULL; x = x->older)
            if (traces_is_parent(&x->trace, &p))
                return x->id;
    }
    return NULL;
}
