#include "store_usage.h"

#include "store_internal.h"

int store_usage_put(struct store *s, const struct store_usage *row, struct err *err) {
    static const char sql[] =
        "INSERT OR REPLACE INTO usage (user, token, day, cpu_ms, runs) VALUES (?, ?, ?, ?, ?)";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, row->user);
        store_sql_text(q, 2, row->token);
        store_sql_u64(q, 3, row->day);
        store_sql_u64(q, 4, row->cpu_ms);
        store_sql_u64(q, 5, row->runs);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_usage_read(struct store *s, uint32_t day,
                     void (*fn)(void *arg, const struct store_usage *row), void *arg,
                     struct err *err) {
    static const char sql[] = "SELECT user, token, cpu_ms, runs FROM usage WHERE day = ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    int rc = -1;
    if (q == NULL)
        return -1;
    store_sql_u64(q, 1, day);
    while ((rc = store_sql_row(s, q, err)) > 0) {
        struct store_usage row = {.user = store_sql_see_text(q, 0),
                                  .token = store_sql_see_text(q, 1),
                                  .day = day,
                                  .cpu_ms = store_sql_get_u64(q, 2),
                                  .runs = store_sql_get_u64(q, 3)};
        if (row.user != NULL && row.token != NULL)
            fn(arg, &row);
    }
    return rc;
}

int store_usage_trim(struct store *s, uint32_t today, struct err *err) {
    static const char sql[] = "DELETE FROM usage WHERE day < ?";
    if (today < STORE_USAGE_DAYS)
        return 0;
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL)
        store_sql_u64(q, 1, today - STORE_USAGE_DAYS);
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}
