#include "store_trace.h"

#include <string.h>

#include "store_internal.h"

int store_trace_runs(struct store *s, const char *user, const uint8_t trace_id[16],
                     bool (*fn)(void *arg, const struct store_trace_run *run), void *arg,
                     struct err *err) {
    static const char sql[] = "SELECT r.id, x.summary, x.duration_ms, x.trace, x.label "
                              "FROM runs r CROSS JOIN records x ON x.seq = r.seq "
                              "WHERE r.trace_id = ? AND r.user = ? AND r.state = 2 ORDER BY r.id";
    int rc;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_blob(q, 1, trace_id, 16);
    store_sql_text(q, 2, user);
    while ((rc = store_sql_row(s, q, err)) > 0) {
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
    return rc;
}

int store_trace_of(struct store *s, const char *user, const char *id, void *trace, size_t size,
                   struct err *err) {
    static const char sql[] = "SELECT x.trace FROM runs r CROSS JOIN records x ON x.seq = r.seq "
                              "WHERE r.user = ? AND r.id = ?";
    size_t len = 0;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, user);
    store_sql_text(q, 2, id);
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    const void *found = store_sql_see_blob(q, 0, &len);
    rc = found != NULL && len == size ? 1 : 0;
    if (rc == 1)
        memcpy(trace, found, size);
    store_sql_reset(q);
    return rc;
}
