#include "store_runs.h"

#include <string.h>

#include "store_internal.h"
#include "str.h"

/* A body that is used again and again is noted once an hour. */
#define STORE_RUNS_TOUCH_MS 3600000u
#define STORE_RUNS_SHRINK_PAGES "16"

static int store_runs_put_record(struct store *s, struct store_run *row, struct err *err) {
    static const char insert[] =
        "INSERT INTO records (duration_ms, label, cause, trace, summary, file, record, user, id, "
        "at_ms, input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    static const char update[] = "UPDATE records SET duration_ms = ?1, label = ?2, cause = ?3, "
                                 "trace = ?4, summary = ?5, file = ?6, record = ?7 WHERE seq = ?8";
    sqlite3_stmt *q = store_sql(s, row->seq == 0 ? insert : update, err);
    if (q == NULL)
        return -1;
    store_sql_u64(q, 1, row->duration_ms);
    store_sql_text(q, 2, row->label);
    store_sql_text(q, 3, row->cause);
    if (row->trace != NULL)
        store_sql_blob(q, 4, row->trace, row->trace_len);
    store_sql_text(q, 5, row->summary);
    store_sql_text(q, 6, row->file);
    if (row->record != NULL)
        store_sql_blob(q, 7, row->record, row->record_len);
    if (row->seq == 0) {
        store_sql_text(q, 8, row->user);
        store_sql_text(q, 9, row->id);
        store_sql_u64(q, 10, row->at_ms);
        if (row->input != NULL)
            store_sql_blob(q, 11, row->input, STORE_RUNS_HASH_SIZE);
    } else {
        store_sql_u64(q, 8, row->seq);
    }
    if (store_sql_run(s, q, err) < 0)
        return -1;
    if (row->seq == 0)
        row->seq = (uint64_t)sqlite3_last_insert_rowid(s->db);
    return 0;
}

static int store_runs_put_row(struct store *s, const struct store_run *row, struct err *err) {
    static const char sql[] =
        "INSERT INTO runs (user, id, state, seq, bytes, trace_id) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (user, id) DO UPDATE SET state = excluded.state, seq = excluded.seq, "
        "bytes = excluded.bytes";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, row->user);
    store_sql_text(q, 2, row->id);
    store_sql_u64(q, 3, row->state);
    store_sql_u64(q, 4, row->seq);
    store_sql_u64(q, 5, row->bytes);
    if (row->trace_id != NULL)
        store_sql_blob(q, 6, row->trace_id, 16);
    return store_sql_run(s, q, err);
}

int store_runs_put(struct store *s, struct store_run *row, struct err *err) {
    if (store_begin(s, err) < 0)
        return -1;
    int rc = store_runs_put_record(s, row, err);
    if (rc == 0)
        rc = store_runs_put_row(s, row, err);
    return store_end(s, rc, err);
}

int store_runs_launch(struct store *s, const char *user, const char *id, struct err *err) {
    static const char sql[] = "UPDATE runs SET state = 1 WHERE user = ? AND id = ?";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, user);
        store_sql_text(q, 2, id);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_runs_get(struct store *s, const char *user, const char *id, struct store_run_found *out,
                   struct err *err) {
    static const char sql[] =
        "SELECT r.state, r.seq, r.bytes, x.input, x.file, x.record FROM runs r "
        "JOIN records x ON x.seq = r.seq WHERE r.user = ? AND r.id = ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, user);
    store_sql_text(q, 2, id);
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    size_t len = 0;
    const void *input = store_sql_see_blob(q, 3, &len);
    memset(out, 0, sizeof(*out));
    out->state = (enum store_run_state)store_sql_get_u64(q, 0);
    out->seq = store_sql_get_u64(q, 1);
    out->bytes = store_sql_get_u64(q, 2);
    out->has_input = len == STORE_RUNS_HASH_SIZE;
    if (out->has_input)
        memcpy(out->input, input, len);
    store_sql_get_text(q, 4, out->file, sizeof(out->file));
    const void *record = store_sql_see_blob(q, 5, &len);
    buf_init(&out->record, len + 1);
    rc = buf_append(&out->record, record, len, err);
    store_sql_reset(q);
    return rc < 0 ? -1 : 1;
}

int store_runs_list(struct store *s, const char *user, const char *before,
                    bool (*fn)(void *arg, const struct store_run_line *line), void *arg,
                    struct err *err) {
    static const char sql[] =
        "SELECT r.id, x.summary FROM runs r CROSS JOIN records x ON x.seq = r.seq "
        "WHERE r.user = ?1 AND r.id < ?2 AND r.state = 2 ORDER BY r.id DESC";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, user);
    store_sql_text(q, 2, before != NULL ? before : "run_~");
    int rc;
    while ((rc = store_sql_row(s, q, err)) > 0) {
        struct store_run_line line = {.id = store_sql_see_text(q, 0),
                                      .summary = store_sql_see_text(q, 1)};
        if (fn(arg, &line))
            continue;
        store_sql_reset(q);
        return 0;
    }
    return rc;
}

int store_runs_has(struct store *s, const char *user, const char *id, struct err *err) {
    static const char sql[] = "SELECT 1 FROM runs WHERE user = ? AND id = ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, user);
    store_sql_text(q, 2, id);
    int rc = store_sql_row(s, q, err);
    store_sql_reset(q);
    return rc;
}

int store_runs_next_open(struct store *s, const char *after, char user[STORE_RUNS_NAME_SIZE],
                         char id[STORE_RUNS_NAME_SIZE], struct err *err) {
    static const char sql[] =
        "SELECT user, id FROM runs WHERE state < 2 AND id > ? ORDER BY id LIMIT 1";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, after);
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    bool fits = store_sql_get_text(q, 0, user, STORE_RUNS_NAME_SIZE) &&
                store_sql_get_text(q, 1, id, STORE_RUNS_NAME_SIZE);
    store_sql_reset(q);
    return fits ? 1 : err_set(err, ERR_INVALID, 0, "a stored run has a name that is too long");
}

/* Retention. */

int store_runs_began(struct store *s, uint64_t *at_ms, struct err *err) {
    static const char sql[] = "SELECT at_ms FROM records ORDER BY seq LIMIT 1";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    *at_ms = store_sql_get_u64(q, 0);
    store_sql_reset(q);
    return 1;
}

int store_runs_oldest(struct store *s, struct store_run_old *out, size_t max, struct err *err) {
    static const char sql[] =
        "SELECT x.seq, x.at_ms, r.bytes, x.user, x.id, x.file, i.file IS NOT NULL FROM records x "
        "JOIN runs r ON r.user = x.user AND r.id = x.id "
        "LEFT JOIN inputs i ON i.hash = x.input WHERE r.state = 2 ORDER BY x.seq LIMIT ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_u64(q, 1, max);
    int n = 0, rc;
    while ((rc = store_sql_row(s, q, err)) > 0) {
        struct store_run_old *old = &out[n++];
        memset(old, 0, sizeof(*old));
        old->seq = store_sql_get_u64(q, 0);
        old->at_ms = store_sql_get_u64(q, 1);
        old->bytes = store_sql_get_u64(q, 2);
        store_sql_get_text(q, 3, old->user, sizeof(old->user));
        store_sql_get_text(q, 4, old->id, sizeof(old->id));
        store_sql_get_text(q, 5, old->file, sizeof(old->file));
        old->filed = store_sql_get_u64(q, 6) != 0;
    }
    return rc < 0 ? -1 : n;
}

/* Large bodies would else outlive what `bytes` allows: those of rows are noted once an hour only,
 * and go by that. */
static int store_runs_drop_input(struct store *s, struct store_run_old *old, uint64_t now_ms,
                                 struct err *err) {
    static const char sql[] = "DELETE FROM inputs WHERE hash = (SELECT input FROM records WHERE "
                              "seq = ?1) AND file IS NOT NULL AND at_ms <= ?2 RETURNING file";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    uint64_t rested = now_ms > STORE_RUNS_INPUT_REST_MS ? now_ms - STORE_RUNS_INPUT_REST_MS : 0;
    store_sql_u64(q, 1, old->seq);
    store_sql_u64(q, 2, old->at_ms < rested ? old->at_ms : rested);
    int rc;
    while ((rc = store_sql_row(s, q, err)) > 0)
        store_sql_get_text(q, 0, old->input, sizeof(old->input));
    return rc;
}

int store_runs_drop(struct store *s, struct store_run_old *old, uint64_t now_ms, struct err *err) {
    static const char record[] = "DELETE FROM records WHERE seq = ?";
    static const char row[] = "DELETE FROM runs WHERE user = ? AND id = ?";
    if (store_begin(s, err) < 0)
        return -1;
    old->input[0] = '\0';
    int rc = store_runs_drop_input(s, old, now_ms, err);
    sqlite3_stmt *q = rc == 0 ? store_sql(s, record, err) : NULL;
    rc = -1;
    if (q != NULL) {
        store_sql_u64(q, 1, old->seq);
        rc = store_sql_run(s, q, err);
    }
    q = rc == 0 ? store_sql(s, row, err) : NULL;
    rc = -1;
    if (q != NULL) {
        store_sql_text(q, 1, old->user);
        store_sql_text(q, 2, old->id);
        rc = store_sql_run(s, q, err);
    }
    return store_end(s, rc, err);
}

int store_runs_drop_inputs(struct store *s, uint64_t before_ms, char (*files)[STORE_RUNS_FILE_SIZE],
                           size_t max, struct err *err) {
    static const char sql[] = "DELETE FROM inputs WHERE hash IN (SELECT hash FROM inputs "
                              "WHERE at_ms < ? ORDER BY at_ms LIMIT ?) RETURNING file";
    if (store_begin(s, err) < 0)
        return -1;
    int n = 0, rc = -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_u64(q, 1, before_ms);
        store_sql_u64(q, 2, max);
        while ((rc = store_sql_row(s, q, err)) > 0 && n < (int)max)
            store_sql_get_text(q, 0, files[n++], STORE_RUNS_FILE_SIZE);
    }
    return store_end(s, rc, err) < 0 ? -1 : n;
}

int store_runs_shrink(struct store *s, struct err *err) {
    static const char sql[] = "PRAGMA incremental_vacuum(" STORE_RUNS_SHRINK_PAGES ")";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_runs_totals(struct store *s,
                      void (*fn)(void *arg, const char *user, uint64_t count, uint64_t bytes),
                      void *arg, struct err *err) {
    static const char sql[] =
        "SELECT user, count(*), sum(bytes) FROM runs WHERE state = 2 GROUP BY user";
    sqlite3_stmt *q = store_sql(s, sql, err);
    int rc = -1;
    while (q != NULL && (rc = store_sql_row(s, q, err)) > 0)
        fn(arg, store_sql_see_text(q, 0), store_sql_get_u64(q, 1), store_sql_get_u64(q, 2));
    return rc;
}

int store_runs_knows_file(struct store *s, const char *file, struct err *err) {
    static const char sql[] = "SELECT 1 FROM records WHERE file = ?1 "
                              "UNION ALL SELECT 1 FROM inputs WHERE file = ?1 LIMIT 1";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_text(q, 1, file);
    int rc = store_sql_row(s, q, err);
    store_sql_reset(q);
    return rc;
}

/* Bodies. */

int store_runs_put_input(struct store *s, const struct store_input *input, struct err *err) {
    static const char sql[] =
        "INSERT INTO inputs (hash, at_ms, bytes, file, body) VALUES (?1, ?2, ?3, ?4, ?5) "
        "ON CONFLICT (hash) DO UPDATE SET at_ms = excluded.at_ms WHERE at_ms < excluded.at_ms - ?6";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_blob(q, 1, input->hash, STORE_RUNS_HASH_SIZE);
        store_sql_u64(q, 2, input->now_ms);
        store_sql_u64(q, 3, input->len);
        store_sql_text(q, 4, input->file);
        if (input->file == NULL)
            store_sql_blob(q, 5, input->body, input->len);
        store_sql_u64(q, 6, input->file != NULL ? 0 : STORE_RUNS_TOUCH_MS);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_runs_get_input(struct store *s, const uint8_t hash[STORE_RUNS_HASH_SIZE], struct buf *out,
                         char file[STORE_RUNS_FILE_SIZE], struct err *err) {
    static const char sql[] = "SELECT file, body FROM inputs WHERE hash = ?";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL)
        return -1;
    store_sql_blob(q, 1, hash, STORE_RUNS_HASH_SIZE);
    int rc = store_sql_row(s, q, err);
    if (rc <= 0)
        return rc;
    size_t len = 0;
    const void *body = store_sql_see_blob(q, 1, &len);
    store_sql_get_text(q, 0, file, STORE_RUNS_FILE_SIZE);
    rc = buf_append(out, body, len, err);
    store_sql_reset(q);
    return rc < 0 ? -1 : 1;
}
