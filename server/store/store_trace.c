#include "store_trace.h"

#include <string.h>

#include "store_internal.h"

int store_trace_runs(struct store *s, const struct store_trace_part *part,
                     bool (*fn)(void *arg, const struct store_trace_run *run), void *arg,
                     struct err *err) {
    static const char sql[] = "SELECT r.id, x.summary, x.duration_ms, x.trace, x.label "
                              "FROM runs r CROSS JOIN records x ON x.seq = r.seq "
                              "WHERE r.trace_id = ? AND r.user = ? AND r.id > ? AND r.state = 2 "
                              "ORDER BY r.id LIMIT ?";
    size_t left = part->max;
    int rc;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_blob(q, 1, part->trace_id, 16);
    store_sql_text(q, 2, part->user);
    store_sql_text(q, 3, part->after_id);
    store_sql_u64(q, 4, part->max);
    while ((rc = store_sql_row(s, q, err)) > 0) {
        left--;
        struct store_trace_run run = {.id = store_sql_see_text(q, 0),
                                      .summary = store_sql_see_text(q, 1),
                                      .duration_ms = store_sql_get_u64(q, 2)};
        run.trace = store_sql_see_blob(q, 3, &run.trace_len);
        run.label = store_sql_see_text(q, 4);
        if (run.trace == NULL || fn(arg, &run))
            continue;
        store_sql_reset(q);
        return 0;
    }
    return rc == 0 && left == 0 ? 1 : rc;
}

int store_trace_put(struct store *s, const struct store_span *span, uint64_t now_ms,
                    struct err *err) {
    static const char sql[] =
        "INSERT INTO spans (user, id, sandbox, at_ms, created_ms, duration_ms, label, cause, "
        "exit_code, ok, trace_id, trace) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return store_end(s, -1, err);
    store_sql_text(q, 1, span->user);
    store_sql_text(q, 2, span->id);
    store_sql_text(q, 3, span->sandbox);
    store_sql_u64(q, 4, now_ms);
    store_sql_u64(q, 5, span->created_ms);
    store_sql_u64(q, 6, span->duration_ms);
    store_sql_text(q, 7, span->label);
    store_sql_text(q, 8, span->cause);
    store_sql_u64(q, 9, span->exit_code);
    store_sql_u64(q, 10, span->ok);
    store_sql_blob(q, 11, span->trace_id, 16);
    store_sql_blob(q, 12, span->trace, span->trace_len);
    return store_end(s, store_sql_run(s, q, err), err);
}

int store_trace_spans(struct store *s, const struct store_trace_part *part,
                      bool (*fn)(void *arg, const struct store_span *span), void *arg,
                      struct err *err) {
    static const char sql[] = "SELECT id, sandbox, created_ms, duration_ms, label, cause, "
                              "exit_code, ok, trace, seq FROM spans WHERE trace_id = ? AND "
                              "user = ? AND seq > ? ORDER BY seq LIMIT ?";
    size_t left = part->max;
    int rc;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_blob(q, 1, part->trace_id, 16);
    store_sql_text(q, 2, part->user);
    store_sql_u64(q, 3, part->after_seq);
    store_sql_u64(q, 4, part->max);
    while ((rc = store_sql_row(s, q, err)) > 0) {
        left--;
        struct store_span span = {.id = store_sql_see_text(q, 0),
                                  .sandbox = store_sql_see_text(q, 1),
                                  .created_ms = store_sql_get_u64(q, 2),
                                  .duration_ms = store_sql_get_u64(q, 3),
                                  .label = store_sql_see_text(q, 4),
                                  .cause = store_sql_see_text(q, 5),
                                  .exit_code = store_sql_get_u64(q, 6),
                                  .ok = store_sql_get_u64(q, 7) != 0,
                                  .seq = store_sql_get_u64(q, 9)};
        span.trace = store_sql_see_blob(q, 8, &span.trace_len);
        if (fn(arg, &span))
            continue;
        store_sql_reset(q);
        return 0;
    }
    return rc == 0 && left == 0 ? 1 : rc;
}

int store_trace_drop(struct store *s, uint64_t before_ms, uint64_t keep, size_t max,
                     struct err *err) {
    /* Only the oldest go, so how many there are is in their numbers. */
    static const char sql[] =
        "DELETE FROM spans WHERE seq IN (SELECT seq FROM (SELECT seq, at_ms FROM spans ORDER BY "
        "seq LIMIT ?3) WHERE at_ms < ?1 OR (SELECT max(seq) FROM spans) - seq >= ?2) RETURNING 1";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    int n = 0, rc = -1;
    if (q != NULL) {
        store_sql_u64(q, 1, before_ms);
        store_sql_u64(q, 2, keep < INT64_MAX ? keep : INT64_MAX);
        store_sql_u64(q, 3, max);
        while ((rc = store_sql_row(s, q, err)) > 0)
            n++;
    }
    return store_end(s, rc, err) < 0 ? -1 : n;
}

struct store_trace_wanted {
    const char *user, *id;
    void *trace;
    size_t size;
};

static int store_trace_find(struct store *s, const char *sql, const struct store_trace_wanted *w,
                            struct err *err) {
    size_t len = 0;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, w->user);
    store_sql_text(q, 2, w->id);
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    const void *found = store_sql_see_blob(q, 0, &len);
    rc = found != NULL && len == w->size ? 1 : 0;
    if (rc == 1)
        memcpy(w->trace, found, w->size);
    store_sql_reset(q);
    return rc;
}

int store_trace_of(struct store *s, const char *user, const char *id, void *trace, size_t size,
                   struct err *err) {
    static const char run[] = "SELECT x.trace FROM runs r CROSS JOIN records x ON x.seq = r.seq "
                              "WHERE r.user = ? AND r.id = ?";
    static const char span[] =
        "SELECT trace FROM spans WHERE user = ? AND id = ? ORDER BY seq DESC LIMIT 1";
    const struct store_trace_wanted wanted = {user, id, trace, size};
    int rc = store_trace_find(s, run, &wanted, err);
    return rc != 0 ? rc : store_trace_find(s, span, &wanted, err);
}
