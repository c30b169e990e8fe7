/* What the files of the store share: the connection, its prepared statements, and how a write is
 * made. The only header that knows sqlite3.h.
 *
 * A function of the store that writes:
 *
 *     int store_THING_add(struct store *s, const char *name, struct err *err) {
 *         static const char sql[] = "INSERT INTO things (name) VALUES (?)";
 *         if (store_begin(s, err) < 0)
 *             return -1;
 *         sqlite3_stmt *q = store_sql(s, sql, err);
 *         if (q != NULL)
 *             store_sql_text(q, 1, name);
 *         return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
 *     }
 *
 * and one that reads:
 *
 *     sqlite3_stmt *q = store_sql(s, sql, err);
 *     while (q != NULL && (rc = store_sql_row(s, q, err)) > 0)
 *         … sqlite3_column_int64(q, 0) …
 *     (store_sql_reset(q) when it stops before the last row) */
#pragma once

#include <sqlite3.h>

#include "store.h"

#define STORE_FILE "pinfold.db"
#define STORE_STATEMENTS 256u /* prepared at once; a power of two */

struct store_checkpoint;

struct store_statement {
    const char *sql; /* its address is the key */
    sqlite3_stmt *stmt;
};

struct store_health {
    bool sick, full;
    char why[200];
    uint64_t looked_ms; /* at the free space; monotonic */
    struct loop_timer probe;
};

struct store {
    struct loop *loop;
    struct log *log;
    int dir;
    sqlite3 *db;
    sqlite3_vfs vfs; /* SQLite's own, but it takes paths as they are */
    char vfs_name[40], path[64];
    struct store_statement statements[STORE_STATEMENTS];
    unsigned depth;  /* of store_begin(), without a loop */
    bool begun;      /* a transaction is open */
    bool early;      /* a part of this round was committed before its end, and failed */
    bool doomed;     /* it will be rolled back, because of … */
    struct err why;  /* … this */
    uint64_t writes; /* transactions committed */
    struct loop_defer flush;
    struct store_waiter *first, *last;
    struct store_health health;
    struct store_checkpoint *checkpoint;
    void (*well)(void *arg); /* it was sick and is not any more; may be NULL */
    void *well_arg;
};

/* store.c: writing. */
/* Opens the transaction of this round, unless it is open. */
int store_begin(struct store *s, struct err *err);
/* Passes `rc` on. Without a loop, the outermost one commits, or rolls back when rc is -1.
 *
 * With a loop, a statement that violates a constraint has changed nothing and the round goes on;
 * any other failure dooms the whole round. So of several statements the one that may violate a
 * constraint comes first. */
int store_end(struct store *s, int rc, struct err *err);

/* store_sql.c: statements. */
/* A literal's prepared statement, reset and without bindings; borrowed. NULL on failure. */
sqlite3_stmt *store_sql(struct store *s, const char *sql, struct err *err);
/* Runs it to its end. Several statements in `sql`, without values: store_sql_exec(). */
int store_sql_run(struct store *s, sqlite3_stmt *q, struct err *err);
int store_sql_exec(struct store *s, const char *sql, struct err *err);
/* 1 = there is a row, 0 = there are no more, -1 = it failed. In the last two cases it is reset. */
int store_sql_row(struct store *s, sqlite3_stmt *q, struct err *err);
void store_sql_reset(sqlite3_stmt *q); /* NULL allowed */
/* Values, numbered from 1. Text and blobs must live until the statement has run. */
void store_sql_text(sqlite3_stmt *q, int at, const char *text); /* NULL = NULL */
void store_sql_blob(sqlite3_stmt *q, int at, const void *data, size_t len);
void store_sql_u64(sqlite3_stmt *q, int at, uint64_t value); /* UINT64_MAX = NULL: "no limit" */
/* Columns, numbered from 0. */
uint64_t store_sql_get_u64(sqlite3_stmt *q, int at);                      /* NULL = UINT64_MAX */
bool store_sql_get_text(sqlite3_stmt *q, int at, char *dst, size_t size); /* false: too long */
const char *store_sql_see_text(sqlite3_stmt *q, int at);                  /* until the next row */
const void *store_sql_see_blob(sqlite3_stmt *q, int at, size_t *len);     /* likewise */
/* SQLite said `rc`: fills *err (ERR_LIMIT ENOSPC: no space; ERR_STATE EEXIST: a constraint; else
 * ERR_SYSTEM), and within a transaction dooms it. Returns -1. */
int store_sql_failed(struct store *s, int rc, const char *what, struct err *err);
void store_sql_done(struct store *s);

/* Drops what the statement's one parameter names. */
int store_drop_row(struct store *s, const char *sql, const char *id, struct err *err);

/* store_migrate.c: the tables, and how an older database gets them. */
/* Refuses a database of a newer version (ERR_STATE); changes nothing. */
int store_migrate_check(struct store *s, struct err *err);
int store_migrate(struct store *s, struct err *err);

/* store_health.c */
/* A write has succeeded, or failed with this. */
void store_health_well(struct store *s);
void store_health_failed(struct store *s, const struct err *why);
void store_health_stop(struct store *s);

/* store_checkpoint.c: a thread that brings the log into the database. */
struct store_checkpoint *store_checkpoint_start(struct store *s, struct err *err);
/* The log has this many pages now. */
void store_checkpoint_tell(struct store_checkpoint *c, unsigned pages);
void store_checkpoint_stop(struct store_checkpoint *c); /* NULL allowed */
/* Opens one more connection to the same file. */
int store_connect(struct store *s, sqlite3 **out, struct err *err);
