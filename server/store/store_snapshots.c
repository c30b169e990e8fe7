#include "store_snapshots.h"

#include "store_internal.h"

int store_snapshots_put(struct store *s, const struct store_snapshot *row, struct err *err) {
    static const char sql[] =
        "INSERT OR REPLACE INTO snapshots (id, user, token, shard, image, policy, source, name, "
        "disk, bytes, files, added_bytes, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "?)";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        const char *const texts[] = {row->id,    row->user,   row->token,  row->shard,
                                     row->image, row->policy, row->source, row->name};
        const uint64_t numbers[] = {row->disk, row->bytes, row->files, row->added_bytes,
                                    row->created_ms};
        int at = 1;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
            store_sql_text(q, at++, texts[i]);
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
            store_sql_u64(q, at++, numbers[i]);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_snapshots_drop(struct store *s, const char *id, struct err *err) {
    static const char sql[] = "DELETE FROM snapshots WHERE id = ?";
    return store_drop_row(s, sql, id, err);
}

int store_snapshots_read(struct store *s, void (*fn)(void *arg, const struct store_snapshot *row),
                         void *arg, struct err *err) {
    static const char sql[] = "SELECT id, user, token, shard, image, policy, source, name, disk, "
                              "bytes, files, added_bytes, created_ms FROM snapshots ORDER BY id";
    sqlite3_stmt *q = store_sql(s, sql, err);
    int rc = -1;
    while (q != NULL && (rc = store_sql_row(s, q, err)) > 0) {
        struct store_snapshot row = {.id = store_sql_see_text(q, 0),
                                     .user = store_sql_see_text(q, 1),
                                     .token = store_sql_see_text(q, 2),
                                     .shard = store_sql_see_text(q, 3),
                                     .image = store_sql_see_text(q, 4),
                                     .policy = store_sql_see_text(q, 5),
                                     .source = store_sql_see_text(q, 6),
                                     .name = store_sql_see_text(q, 7),
                                     .disk = (uint32_t)store_sql_get_u64(q, 8),
                                     .bytes = store_sql_get_u64(q, 9),
                                     .files = store_sql_get_u64(q, 10),
                                     .added_bytes = store_sql_get_u64(q, 11),
                                     .created_ms = store_sql_get_u64(q, 12)};
        fn(arg, &row);
    }
    return rc;
}
