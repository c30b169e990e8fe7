#include "execs.h"
#include "server.h"
#include "store_trace.h"
#include "traces.h"
#include "traces_late.h"

/* Where results are kept in memory only, so is this. */
static void traces_keep(struct server *s, struct store_span *span, const struct trace *t) {
    if (s->runs.store == NULL || !trace_is_set(t))
        return;
    span->trace_id = t->id;
    span->trace = t;
    span->trace_len = sizeof(*t);
    traces_late_add(s, span);
}

void traces_keep_exec(struct server *s, const struct exec *x) {
    const struct sandbox *sb = x->set->sandbox;
    const char *const command[] = {x->command};
    char label[TRACE_LABEL_SIZE];
    if (sb == NULL || x->state != EXEC_DONE)
        return;
    trace_label(label, command, 1);
    struct store_span span = {
        .user = sandbox_owner(sb),
        .id = x->id,
        .sandbox = sandbox_id(sb),
        .label = label,
        .cause = cause_name(x->end.cause),
        .created_ms = x->created_ms,
        .duration_ms = x->ended_ms > x->created_ms ? x->ended_ms - x->created_ms : 0,
        .exit_code = x->end.exit_code >= 0 ? (uint64_t)x->end.exit_code : UINT64_MAX,
        .ok = x->ok};
    traces_keep(s, &span, &x->trace);
}

void traces_keep_sandbox(struct server *s, const struct sandbox *sb) {
    struct sandbox_sight times = sandbox_sight(sb);
    struct store_span span = {
        .user = sandbox_owner(sb),
        .id = sandbox_id(sb),
        .sandbox = "",
        .label = "",
        .cause = "",
        .created_ms = times.created_ms,
        .duration_ms = times.gone_ms > times.created_ms ? times.gone_ms - times.created_ms : 0,
        .exit_code = UINT64_MAX};
    traces_keep(s, &span, sandbox_trace(sb));
}
