#include "store_idempotency.h"

#include <string.h>

#include "store_internal.h"

int store_idempotency_put(struct store *s, const struct store_idempotency *row, struct err *err) {
    static const char sql[] =
        "INSERT INTO idempotency (user, key, hash, at_ms, thing, status, location, answer) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user, key) DO UPDATE SET "
        "hash = excluded.hash, at_ms = excluded.at_ms, thing = excluded.thing, "
        "status = excluded.status, location = excluded.location, answer = excluded.answer";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, row->user);
        store_sql_text(q, 2, row->key);
        store_sql_blob(q, 3, row->hash, STORE_IDEMPOTENCY_HASH);
        store_sql_u64(q, 4, row->at_ms);
        store_sql_text(q, 5, row->thing);
        store_sql_u64(q, 6, row->status);
        store_sql_text(q, 7, row->location);
        if (row->answer != NULL)
            store_sql_blob(q, 8, row->answer, row->answer_len);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_idempotency_get(struct store *s, const char *user, const char *key, uint64_t since_ms,
                          struct store_idempotency_found *out, struct err *err) {
    static const char sql[] = "SELECT hash, thing, status, location, answer FROM idempotency "
                              "WHERE user = ? AND key = ? AND at_ms >= ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, user);
    store_sql_text(q, 2, key);
    store_sql_u64(q, 3, since_ms);
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    memset(out, 0, sizeof(*out));
    size_t len = 0;
    const void *hash = store_sql_see_blob(q, 0, &len);
    if (len == sizeof(out->hash))
        memcpy(out->hash, hash, len);
    store_sql_get_text(q, 1, out->thing, sizeof(out->thing));
    out->status = (unsigned)store_sql_get_u64(q, 2);
    store_sql_get_text(q, 3, out->location, sizeof(out->location));
    rc = 0;
    if (sqlite3_column_type(q, 4) != SQLITE_NULL) {
        const void *answer = store_sql_see_blob(q, 4, &len);
        buf_init(&out->answer, len + 1);
        rc = buf_append(&out->answer, answer, len, err);
    }
    store_sql_reset(q);
    return rc < 0 ? -1 : 1;
}

int store_idempotency_drop(struct store *s, uint64_t before_ms, size_t max, struct err *err) {
    static const char sql[] = "DELETE FROM idempotency WHERE (user, key) IN (SELECT user, key FROM "
                              "idempotency WHERE at_ms < ? ORDER BY at_ms LIMIT ?)";
    static const char any[] = "SELECT 1 FROM idempotency WHERE at_ms < ? LIMIT 1";
    sqlite3_stmt *q = store_sql(s, any, err);
    if (q == NULL)
        return -1;
    store_sql_u64(q, 1, before_ms);
    int rc = store_sql_row(s, q, err);
    store_sql_reset(q);
    if (rc <= 0)
        return rc;
    if (store_begin(s, err) < 0)
        return -1;
    q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_u64(q, 1, before_ms);
        store_sql_u64(q, 2, max);
    }
    rc = store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
    return rc < 0 ? -1 : sqlite3_changes(s->db);
}
