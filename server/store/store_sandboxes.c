#include "store_sandboxes.h"

#include "store_internal.h"

int store_sandboxes_put(struct store *s, const struct store_sandbox *row, struct err *err) {
    static const char sql[] =
        "INSERT INTO sandboxes (id, user, gone, created_ms, record) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET gone = excluded.gone, record = excluded.record";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, row->id);
        store_sql_text(q, 2, row->user);
        store_sql_u64(q, 3, row->gone);
        store_sql_u64(q, 4, row->created_ms);
        store_sql_blob(q, 5, row->record, row->record_len);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_sandboxes_drop(struct store *s, const char *id, struct err *err) {
    static const char sql[] = "DELETE FROM sandboxes WHERE id = ?";
    return store_drop_row(s, sql, id, err);
}

int store_sandboxes_has(struct store *s, const char *id, struct err *err) {
    static const char sql[] = "SELECT 1 FROM sandboxes WHERE id = ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, id);
    int rc = store_sql_row(s, q, err);
    store_sql_reset(q);
    return rc;
}

int store_sandboxes_read(struct store *s, void (*fn)(void *arg, const struct store_sandbox *row),
                         void *arg, struct err *err) {
    static const char sql[] =
        "SELECT id, user, gone, created_ms, record FROM sandboxes ORDER BY id";
    sqlite3_stmt *q = store_sql(s, sql, err);
    int rc = -1;
    while (q != NULL && (rc = store_sql_row(s, q, err)) > 0) {
        struct store_sandbox row = {.id = store_sql_see_text(q, 0),
                                    .user = store_sql_see_text(q, 1),
                                    .gone = store_sql_get_u64(q, 2) != 0,
                                    .created_ms = store_sql_get_u64(q, 3)};
        row.record = store_sql_see_blob(q, 4, &row.record_len);
        fn(arg, &row);
    }
    return rc;
}
