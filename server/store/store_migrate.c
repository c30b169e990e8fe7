/* The tables. PRAGMA user_version counts the steps below that a database has had; each is one
 * transaction, so a server that dies within one begins it anew. A step that was released is never
 * changed: what must differ is one more step at the end.
 *
 * Times are milliseconds since the epoch. NULL where a number is a bound: there is none. */
#include <stdio.h>

#include "store_internal.h"

struct store_migration {
    const char *name;
    const char *sql;
};

static const struct store_migration store_migrations[] = {
    {"probe", "CREATE TABLE probe (id INTEGER PRIMARY KEY, filler BLOB, count INTEGER NOT NULL "
              "DEFAULT 0);"},
    /* Quotas are JSON objects by quota_name(). */
    {"accounts", "CREATE TABLE users ("
                 "    name TEXT PRIMARY KEY NOT NULL,"
                 "    disabled INTEGER NOT NULL DEFAULT 0,"
                 "    weight INTEGER NOT NULL DEFAULT 100,"
                 "    quota TEXT NOT NULL DEFAULT '{}',"
                 "    created_ms INTEGER NOT NULL"
                 ") WITHOUT ROWID;"
                 "CREATE TABLE tokens ("
                 "    id TEXT PRIMARY KEY NOT NULL,"
                 "    hash BLOB NOT NULL UNIQUE,"
                 "    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,"
                 "    parent TEXT REFERENCES tokens (id) ON DELETE CASCADE,"
                 "    from_run TEXT NOT NULL DEFAULT '',"
                 "    name TEXT NOT NULL DEFAULT ''," /* for people */
                 "    scopes INTEGER NOT NULL,"
                 "    expires_ms INTEGER,"
                 "    policies TEXT," /* JSON array; NULL = all */
                 "    quota TEXT NOT NULL DEFAULT '{}',"
                 "    cpu_budget_ms INTEGER, runs_budget INTEGER,"
                 "    cpu_spent_ms INTEGER NOT NULL DEFAULT 0,"
                 "    runs_spent INTEGER NOT NULL DEFAULT 0,"
                 "    revoked INTEGER NOT NULL DEFAULT 0,"
                 "    created_ms INTEGER NOT NULL"
                 ") WITHOUT ROWID;"
                 "CREATE INDEX tokens_by_user ON tokens (user);"
                 "CREATE INDEX tokens_by_parent ON tokens (parent) WHERE parent IS NOT NULL;"
                 "CREATE TABLE usage (" /* of a day (UTC); token '' = of the user as a whole */
                 "    user TEXT NOT NULL, token TEXT NOT NULL DEFAULT '', day INTEGER NOT NULL,"
                 "    cpu_ms INTEGER NOT NULL DEFAULT 0,"
                 "    runs INTEGER NOT NULL DEFAULT 0,"
                 "    PRIMARY KEY (user, token, day)"
                 ") WITHOUT ROWID;"},
    /* Ids begin with the time, so newer rows come behind older ones and a write touches the last
     * page only. What is counted and looked for is apart from what is read then. */
    {"runs", "CREATE TABLE runs ("
             "    user TEXT NOT NULL, id TEXT NOT NULL,"
             "    state INTEGER NOT NULL," /* enum store_run_state */
             "    seq INTEGER NOT NULL,"   /* its record */
             "    bytes INTEGER NOT NULL," /* of what is kept of it */
             "    trace_id BLOB,"
             "    PRIMARY KEY (user, id)"
             ") WITHOUT ROWID;"
             "CREATE INDEX runs_open ON runs (id) WHERE state < 2;"
             "CREATE INDEX runs_by_trace ON runs (trace_id) WHERE trace_id IS NOT NULL;"
             "CREATE TABLE records ("
             "    seq INTEGER PRIMARY KEY,"
             "    user TEXT NOT NULL, id TEXT NOT NULL, at_ms INTEGER NOT NULL,"
             "    duration_ms INTEGER, label TEXT, cause TEXT, trace BLOB,"
             "    input BLOB,"   /* hash of its request's body */
             "    summary TEXT," /* its line in the list */
             "    file TEXT,"    /* in STATE/server/results; NULL = it is here */
             "    record BLOB"   /* run_record.h */
             ");"
             "CREATE INDEX records_by_file ON records (file) WHERE file IS NOT NULL;"
             "CREATE TABLE inputs (" /* request bodies, by content */
             "    hash BLOB PRIMARY KEY NOT NULL,"
             "    at_ms INTEGER NOT NULL, bytes INTEGER NOT NULL,"
             "    file TEXT, body BLOB"
             ") WITHOUT ROWID;"
             "CREATE INDEX inputs_by_age ON inputs (at_ms);"
             "CREATE INDEX inputs_by_file ON inputs (file) WHERE file IS NOT NULL;"
             "CREATE TABLE idempotency ("
             "    user TEXT NOT NULL, key TEXT NOT NULL,"
             "    hash BLOB NOT NULL," /* of method, path and body */
             "    at_ms INTEGER NOT NULL,"
             "    thing TEXT NOT NULL DEFAULT ''," /* the run that it became */
             "    status INTEGER NOT NULL DEFAULT 0,"
             "    location TEXT,"
             "    answer BLOB,"
             "    PRIMARY KEY (user, key)"
             ") WITHOUT ROWID;"
             "CREATE INDEX idempotency_by_age ON idempotency (at_ms);"},
    {"tokens",
     "ALTER TABLE users ADD COLUMN admin INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE users ADD COLUMN cancel_running INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE users ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE tokens ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;" /* parents above it */
     "ALTER TABLE tokens ADD COLUMN until_ms INTEGER;"                 /* starts nothing later */
     "ALTER TABLE tokens ADD COLUMN cancel_running INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE tokens ADD COLUMN from_file INTEGER NOT NULL DEFAULT 0;"},
    /* Grows with every change: a server that is told of one reads only what is new. */
    {"touched", "ALTER TABLE users ADD COLUMN touched INTEGER NOT NULL DEFAULT 1;"
                "ALTER TABLE tokens ADD COLUMN touched INTEGER NOT NULL DEFAULT 1;"
                "CREATE INDEX users_by_touch ON users (touched);"
                "CREATE INDEX tokens_by_touch ON tokens (touched);"},
    /* Today's is read at the start, and what is too long ago goes once a day. */
    {"days", "CREATE INDEX usage_by_day ON usage (day);"},
    /* They were files, which the server brings in when it starts (sandbox_import.c, snapshots.c).
     */
    {"sandboxes", "CREATE TABLE sandboxes ("
                  "    id TEXT PRIMARY KEY NOT NULL,"
                  "    user TEXT NOT NULL,"
                  "    gone INTEGER NOT NULL," /* remembered for a while */
                  "    created_ms INTEGER NOT NULL,"
                  "    record BLOB NOT NULL" /* JSON */
                  ");"
                  "CREATE TABLE snapshots ("
                  "    id TEXT PRIMARY KEY NOT NULL,"
                  "    user TEXT NOT NULL, token TEXT NOT NULL, shard TEXT NOT NULL,"
                  "    image TEXT NOT NULL, policy TEXT NOT NULL,"
                  "    source TEXT NOT NULL, name TEXT NOT NULL,"
                  "    disk INTEGER NOT NULL," /* enum wire_disk */
                  "    bytes INTEGER NOT NULL, files INTEGER NOT NULL,"
                  "    added_bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL"
                  ") WITHOUT ROWID;"},
    /* Of the run or execution that it was made in, which may be gone before it. */
    {"traces", "ALTER TABLE tokens ADD COLUMN from_trace BLOB;"},
    /* Executions and sandboxes that are gone, for traces; the newest behind. */
    {"spans",
     "CREATE TABLE spans ("
     "    seq INTEGER PRIMARY KEY,"
     "    user TEXT NOT NULL, id TEXT NOT NULL,"
     "    sandbox TEXT NOT NULL,"  /* of an execution; '' = it is a sandbox */
     "    at_ms INTEGER NOT NULL," /* when it came here */
     "    created_ms INTEGER NOT NULL, duration_ms INTEGER NOT NULL,"
     "    label TEXT NOT NULL, cause TEXT NOT NULL, exit_code INTEGER, ok INTEGER NOT NULL,"
     "    trace_id BLOB NOT NULL, trace BLOB NOT NULL"
     ");"
     "CREATE INDEX spans_by_trace ON spans (trace_id);"
     "CREATE INDEX spans_by_id ON spans (id);"},
};
#define STORE_MIGRATIONS (sizeof(store_migrations) / sizeof(store_migrations[0]))

static int store_migrate_version(struct store *s, uint64_t *version, struct err *err) {
    static const char sql[] = "PRAGMA user_version";
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q == NULL || store_sql_row(s, q, err) < 1)
        return err_wrap(err, "the database " STORE_FILE);
    *version = store_sql_get_u64(q, 0);
    store_sql_reset(q);
    return 0;
}

int store_migrate_check(struct store *s, struct err *err) {
    uint64_t version = 0;
    if (store_migrate_version(s, &version, err) < 0)
        return -1;
    if (version > STORE_MIGRATIONS)
        return err_set(err, ERR_STATE, 0,
                       "the database " STORE_FILE " has version %llu and this program knows only "
                       "%zu: a newer Pinfold wrote it",
                       (unsigned long long)version, STORE_MIGRATIONS);
    return 0;
}

static int store_migrate_step(struct store *s, size_t i, struct err *err) {
    char version[48];
    snprintf(version, sizeof(version), "PRAGMA user_version=%zu; COMMIT", i + 1);
    if (store_sql_exec(s, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    /* Somebody else may have made the step meanwhile. */
    uint64_t now = 0;
    int rc = store_migrate_version(s, &now, err);
    if (rc == 0 && now > i) {
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return 0;
    }
    if (rc == 0)
        rc = store_sql_exec(s, store_migrations[i].sql, err);
    if (rc == 0)
        rc = store_sql_exec(s, version, err);
    if (rc == 0)
        return 0;
    (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return err_wrap(err, "making the tables of version %zu (%s)", i + 1, store_migrations[i].name);
}

int store_migrate(struct store *s, struct err *err) {
    uint64_t version = 0;
    if (store_migrate_version(s, &version, err) < 0)
        return -1;
    for (size_t i = (size_t)version; i < STORE_MIGRATIONS; i++)
        if (store_migrate_step(s, i, err) < 0)
            return -1;
    return 0;
}
