#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "clock.h"
#include "execs.h"
#include "json_memory.h"
#include "server.h"
#include "store_trace.h"
#include "str.h"
#include "traces.h"
#include "traces_late.h"

/* Rows that are read of the store in a round of the loop: less than a millisecond's work. */
#define TRACES_GATHER_PART 64u

static bool traces_gather_is(const struct trace *t, const uint8_t *id) {
    return memcmp(t->id, id, sizeof(t->id)) == 0;
}

/* Room for one more, zeroed. NULL: memory is short, or (out->cut is set) there are enough. */
static struct traces_node *traces_gather_node(struct traces_list *out) {
    if (out->count == TRACES_MAX) {
        out->cut = true;
        return NULL;
    }
    if (out->count == out->alloc) {
        size_t alloc = out->alloc > 0 ? out->alloc * 2 : 16;
        struct traces_node *more = realloc(out->nodes, alloc * sizeof(*more));
        if (more == NULL)
            return NULL;
        out->nodes = more;
        out->alloc = alloc;
    }
    struct traces_node *n = &out->nodes[out->count++];
    memset(n, 0, sizeof(*n));
    n->exit_code = -1;
    n->duration_ms = UINT64_MAX;
    return n;
}

static void traces_gather_end(struct traces_node *n, const struct step_end *end) {
    (void)str_copy(n->cause, sizeof(n->cause), cause_name(end->cause));
    n->exit_code = end->exit_code;
}

static bool traces_gather_run(const struct run *run, struct traces_list *out) {
    struct traces_node *n = traces_gather_node(out);
    if (n == NULL)
        return false;
    n->kind = TRACES_RUN;
    (void)str_copy(n->id, sizeof(n->id), run->id);
    memcpy(n->label, run->label, sizeof(n->label));
    n->trace = run->trace;
    n->created_ms = run->created_ms;
    n->state = run->phase == RUN_QUEUED ? "queued" : run->phase == RUN_DONE ? "done" : "running";
    if (run->phase != RUN_DONE)
        return true;
    const struct step_end *end = answer_run_end(run);
    if (end != NULL)
        traces_gather_end(n, end);
    n->ok = run->ok;
    n->duration_ms = (run->ended_ns - run->created_ns) / CLOCK_NS_PER_MS;
    return true;
}

static bool traces_gather_exec(const struct exec *x, const char *sandbox, struct traces_list *out) {
    struct traces_node *n = traces_gather_node(out);
    const char *const command[] = {x->command};
    if (n == NULL)
        return false;
    n->kind = TRACES_EXEC;
    (void)str_copy(n->id, sizeof(n->id), x->id);
    (void)str_copy(n->sandbox, sizeof(n->sandbox), sandbox);
    trace_label(n->label, command, 1);
    n->trace = x->trace;
    n->created_ms = x->created_ms;
    n->state = x->state == EXEC_DONE ? "done" : "running";
    if (x->state != EXEC_DONE)
        return true;
    traces_gather_end(n, &x->end);
    n->ok = x->ok;
    n->duration_ms = x->ended_ms > x->created_ms ? x->ended_ms - x->created_ms : 0;
    return true;
}

static bool traces_gather_sandbox(const struct sandbox *sb, struct traces_list *out) {
    static const char *const states[] = {[SANDBOX_OPENING] = "opening",
                                         [SANDBOX_READY] = "ready",
                                         [SANDBOX_PAUSED] = "paused",
                                         [SANDBOX_GONE] = "gone"};
    struct traces_node *n = traces_gather_node(out);
    if (n == NULL)
        return false;
    n->kind = TRACES_SANDBOX;
    (void)str_copy(n->id, sizeof(n->id), sandbox_id(sb));
    n->trace = *sandbox_trace(sb);
    struct sandbox_sight times = sandbox_sight(sb);
    n->created_ms = times.created_ms;
    n->state = states[sandbox_state(sb)];
    if (sandbox_state(sb) == SANDBOX_GONE && times.gone_ms >= times.created_ms)
        n->duration_ms = times.gone_ms - times.created_ms;
    return true;
}

static bool traces_gather_in(const struct sandbox *sb, const uint8_t *id, struct traces_list *out) {
    const struct execs *set = execs_of(sb);
    if (traces_gather_is(sandbox_trace(sb), id) && !traces_gather_sandbox(sb, out))
        return false;
    for (const struct exec *x = set != NULL ? set->oldest : NULL; x != NULL; x = x->newer)
        if (traces_gather_is(&x->trace, id) && !traces_gather_exec(x, sandbox_id(sb), out))
            return false;
    return true;
}

struct traces_gather {
    struct server *server;
    struct traces_asker asker;
    char user[ACCOUNTS_NAME_SIZE];
    uint8_t id[TRACEPARENT_ID];
    struct traces_list list;
    bool failed;  /* memory is short */
    bool later;   /* it is another round than that in which what is in memory was looked at */
    bool no_runs; /* all of the store's are there */
    char after_id[TRACES_NODE_ID_SIZE];
    uint64_t after_seq;
    struct loop_defer turn;
};

/* Runs that are not in memory any more. */

static void traces_gather_summary(struct traces_node *n, const char *summary) {
    json_t *line = json_memory_load(summary, strlen(summary), 0, NULL);
    const char *cause = json_string_value(json_object_get(line, "cause"));
    const json_t *code = json_object_get(line, "exit_code");
    n->created_ms = (uint64_t)json_integer_value(json_object_get(line, "created_at"));
    n->ok = json_is_true(json_object_get(line, "ok"));
    if (cause != NULL)
        (void)str_copy(n->cause, sizeof(n->cause), cause);
    if (json_is_integer(code))
        n->exit_code = json_integer_value(code);
    json_decref(line);
}

static bool traces_gather_row(void *arg, const struct store_trace_run *row) {
    struct traces_gather *g = arg;
    (void)str_copy(g->after_id, sizeof(g->after_id), row->id);
    if (row->trace_len != sizeof(struct trace) ||
        (!g->later && runs_find(&g->server->runs, row->id) != NULL))
        return true; /* what is in memory is there already */
    struct traces_node *n = traces_gather_node(&g->list);
    if (n == NULL) {
        g->failed = !g->list.cut;
        return false;
    }
    n->kind = TRACES_RUN;
    (void)str_copy(n->id, sizeof(n->id), row->id);
    memcpy(&n->trace, row->trace, sizeof(n->trace));
    n->trace.from[sizeof(n->trace.from) - 1] = '\0';
    n->state = "done";
    n->duration_ms = row->duration_ms;
    if (row->label != NULL)
        (void)str_copy(n->label, sizeof(n->label), row->label);
    traces_gather_summary(n, row->summary);
    return true;
}

/* Executions and sandboxes that are not in memory any more. */

static bool traces_gather_is_here(const struct server *s, const struct store_span *span) {
    const struct sandbox *sb =
        sandboxes_find(&s->sandboxes, span->sandbox[0] != '\0' ? span->sandbox : span->id);
    if (sb == NULL || span->sandbox[0] == '\0')
        return sb != NULL;
    const struct execs *set = execs_of(sb);
    return set != NULL && execs_find(set, span->id) != NULL;
}

static bool traces_gather_span(void *arg, const struct store_span *span) {
    struct traces_gather *g = arg;
    g->after_seq = span->seq;
    if (span->trace_len != sizeof(struct trace) ||
        (!g->later && traces_gather_is_here(g->server, span)))
        return true;
    struct traces_node *n = traces_gather_node(&g->list);
    if (n == NULL) {
        g->failed = !g->list.cut;
        return false;
    }
    n->kind = span->sandbox[0] != '\0' ? TRACES_EXEC : TRACES_SANDBOX;
    n->state = n->kind == TRACES_EXEC ? "done" : "gone";
    (void)str_copy(n->id, sizeof(n->id), span->id);
    (void)str_copy(n->sandbox, sizeof(n->sandbox), span->sandbox);
    (void)str_copy(n->label, sizeof(n->label), span->label);
    (void)str_copy(n->cause, sizeof(n->cause), span->cause);
    memcpy(&n->trace, span->trace, sizeof(n->trace));
    n->trace.from[sizeof(n->trace.from) - 1] = '\0';
    n->created_ms = span->created_ms;
    n->duration_ms = span->duration_ms;
    n->exit_code = span->exit_code <= INT32_MAX ? (int64_t)span->exit_code : -1;
    n->ok = span->ok;
    return true;
}

static bool traces_gather_all(struct server *s, const char *user, const uint8_t *id,
                              struct traces_list *out) {
    for (const struct run *run = trace_index_find(&s->runs.by_trace, id); run != NULL;
         run = trace_index_next(run))
        if (strcmp(run->owner, user) == 0 && !traces_gather_run(run, out))
            return false;
    for (const struct sandbox *sb = s->sandboxes.newest; sb != NULL; sb = sandbox_older(sb))
        if (strcmp(sandbox_owner(sb), user) == 0 && !traces_gather_in(sb, id, out))
            return false;
    return true;
}

static int traces_gather_order(const void *a, const void *b) {
    const struct traces_node *x = a, *y = b;
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int traces_gather_by_id(const void *a, const void *b) {
    const struct traces_node *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    if (order != 0)
        return order;
    /* What is over goes first. */
    return (x->duration_ms == UINT64_MAX) - (y->duration_ms == UINT64_MAX);
}

/* What was in memory in the beginning may have come from the store as well. */
static void traces_gather_once(struct traces_list *list) {
    size_t kept = 1;
    qsort(list->nodes, list->count, sizeof(list->nodes[0]), traces_gather_by_id);
    for (size_t i = 1; i < list->count; i++)
        if (strcmp(list->nodes[i].id, list->nodes[kept - 1].id) != 0)
            list->nodes[kept++] = list->nodes[i];
    list->count = kept;
}

/* 1: there is more, for the next round. */
static int traces_gather_part(struct traces_gather *g, struct err *err) {
    struct store *store = g->server->runs.store;
    struct store_trace_part part = {.user = g->user,
                                    .trace_id = g->id,
                                    .after_id = g->after_id,
                                    .after_seq = g->after_seq,
                                    .max = TRACES_GATHER_PART};
    int rc = 0;
    if (store == NULL || g->list.cut || g->failed)
        return 0;
    if (!g->no_runs) {
        rc = store_trace_runs(store, &part, traces_gather_row, g, err);
        g->no_runs = rc == 0;
        if (rc != 0 || g->list.cut || g->failed)
            return rc;
    }
    rc = store_trace_spans(store, &part, traces_gather_span, g, err);
    if (rc == 0 && !g->list.cut && !g->failed)
        traces_late_each(g->server, g->user, g->id, traces_gather_span, g);
    return rc;
}

static void traces_gather_free(struct traces_gather *g) {
    free(g->list.nodes);
    free(g);
}

static void traces_gather_over(struct traces_gather *g, int rc, struct err *err) {
    struct traces_list *list = &g->list;
    if (rc == 0 && g->failed)
        rc = err_set(err, ERR_SYSTEM, ENOMEM, "gathering a trace: out of memory");
    if (rc == 0 && list->count > 0 && g->later)
        traces_gather_once(list);
    if (rc == 0 && list->count > 0)
        qsort(list->nodes, list->count, sizeof(list->nodes[0]), traces_gather_order);
    g->asker.done(g->asker.arg, rc == 0 ? list : NULL, rc == 0 ? NULL : err);
    traces_gather_free(g);
}

static void traces_gather_turn(void *arg) {
    struct traces_gather *g = arg;
    struct err err;
    err_clear(&err);
    g->later = true;
    int rc = traces_gather_part(g, &err);
    if (rc > 0)
        loop_defer(g->server->loop, &g->turn, traces_gather_turn, g);
    else
        traces_gather_over(g, rc, &err);
}

struct traces_gather *traces_gather(struct server *s, const char *user,
                                    const uint8_t id[TRACEPARENT_ID],
                                    const struct traces_asker *asker) {
    struct traces_gather *g = calloc(1, sizeof(*g));
    struct err err;
    err_clear(&err);
    if (g == NULL) {
        err_set(&err, ERR_SYSTEM, ENOMEM, "gathering a trace: out of memory");
        asker->done(asker->arg, NULL, &err);
        return NULL;
    }
    g->server = s;
    g->asker = *asker;
    (void)str_copy(g->user, sizeof(g->user), user);
    memcpy(g->id, id, sizeof(g->id));
    g->failed = !traces_gather_all(s, user, id, &g->list) && !g->list.cut;
    int rc = traces_gather_part(g, &err);
    if (rc <= 0) {
        traces_gather_over(g, rc, &err);
        return NULL;
    }
    loop_defer(s->loop, &g->turn, traces_gather_turn, g);
    return g;
}

void traces_gather_stop(struct traces_gather *g) {
    loop_defer_stop(g->server->loop, &g->turn);
    traces_gather_free(g);
}
