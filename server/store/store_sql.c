#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "store_internal.h"
#include "str.h"

static struct store_statement *store_sql_slot(struct store *s, const char *sql) {
    uintptr_t at = ((uintptr_t)sql >> 3) * 0x9e3779b9u;
    for (unsigned i = 0; i < STORE_STATEMENTS; i++) {
        struct store_statement *slot = &s->statements[(at + i) % STORE_STATEMENTS];
        if (slot->sql == sql || slot->sql == NULL)
            return slot;
    }
    return NULL;
}

sqlite3_stmt *store_sql(struct store *s, const char *sql, struct err *err) {
    struct store_statement *slot = store_sql_slot(s, sql);
    if (slot == NULL) {
        err_set(err, ERR_LIMIT, 0, "the store has more than %u statements", STORE_STATEMENTS);
        return NULL;
    }
    if (slot->stmt == NULL) {
        int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &slot->stmt, NULL);
        if (rc != SQLITE_OK) {
            store_sql_failed(s, rc, "preparing a statement", err);
            return NULL;
        }
        slot->sql = sql;
    }
    return slot->stmt;
}

void store_sql_done(struct store *s) {
    for (unsigned i = 0; i < STORE_STATEMENTS; i++)
        sqlite3_finalize(s->statements[i].stmt);
    memset(s->statements, 0, sizeof(s->statements));
}

static bool store_sql_no_space(struct store *s, int rc) {
    int code = sqlite3_system_errno(s->db);
    return (rc & 0xff) == SQLITE_FULL ||
           ((rc & 0xff) == SQLITE_IOERR && (code == ENOSPC || code == EDQUOT));
}

int store_sql_failed(struct store *s, int rc, const char *what, struct err *err) {
    struct err own;
    if (err == NULL)
        err = &own;
    if ((rc & 0xff) == SQLITE_CONSTRAINT) {
        err_set(err, ERR_STATE, EEXIST, "%s: %s", what, sqlite3_errmsg(s->db));
        return -1;
    }
    if (store_sql_no_space(s, rc))
        err_set(err, ERR_LIMIT, ENOSPC, "there is no space left for the database");
    else
        err_set(err, ERR_SYSTEM, (rc & 0xff) == SQLITE_BUSY ? EBUSY : EIO, "%s: %s", what,
                sqlite3_errmsg(s->db));
    if (s->begun && !s->doomed) {
        s->doomed = true;
        s->why = *err;
    }
    return -1;
}

int store_sql_row(struct store *s, sqlite3_stmt *q, struct err *err) {
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc != SQLITE_DONE)
        store_sql_failed(s, rc, "reading the database", err);
    store_sql_reset(q);
    return rc == SQLITE_DONE ? 0 : -1;
}

int store_sql_run(struct store *s, sqlite3_stmt *q, struct err *err) {
    int rc;
    do
        rc = sqlite3_step(q);
    while (rc == SQLITE_ROW);
    if (rc != SQLITE_DONE)
        store_sql_failed(s, rc, "writing the database", err);
    store_sql_reset(q);
    return rc == SQLITE_DONE ? 0 : -1;
}

int store_sql_exec(struct store *s, const char *sql, struct err *err) {
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_sql_failed(s, rc, "changing the database", err);
}

void store_sql_reset(sqlite3_stmt *q) {
    if (q == NULL)
        return;
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
}

void store_sql_text(sqlite3_stmt *q, int at, const char *text) {
    if (text == NULL)
        sqlite3_bind_null(q, at);
    else
        sqlite3_bind_text(q, at, text, -1, SQLITE_STATIC);
}

void store_sql_blob(sqlite3_stmt *q, int at, const void *data, size_t len) {
    /* A NULL pointer would be a NULL, which is something else than no bytes. */
    sqlite3_bind_blob64(q, at, data != NULL ? data : "", len, SQLITE_STATIC);
}

void store_sql_u64(sqlite3_stmt *q, int at, uint64_t value) {
    if (value == UINT64_MAX)
        sqlite3_bind_null(q, at);
    else
        sqlite3_bind_int64(q, at, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

uint64_t store_sql_get_u64(sqlite3_stmt *q, int at) {
    if (sqlite3_column_type(q, at) == SQLITE_NULL)
        return UINT64_MAX;
    int64_t value = sqlite3_column_int64(q, at);
    return value < 0 ? 0 : (uint64_t)value;
}

const char *store_sql_see_text(sqlite3_stmt *q, int at) {
    const char *text = (const char *)sqlite3_column_text(q, at);
    return text != NULL ? text : "";
}

bool store_sql_get_text(sqlite3_stmt *q, int at, char *dst, size_t size) {
    return str_copy(dst, size, store_sql_see_text(q, at));
}

const void *store_sql_see_blob(sqlite3_stmt *q, int at, size_t *len) {
    const void *data = sqlite3_column_blob(q, at);
    *len = (size_t)sqlite3_column_bytes(q, at);
    return data != NULL ? data : "";
}
