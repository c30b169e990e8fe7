#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "store_internal.h"
#include "str.h"

/* Somebody else writes: a command line tool, or a checkpoint that has to finish. Both are short. */
#define STORE_BUSY_MS 250
#define STORE_CACHE_KIB 4096

/* Opening. */

/* SQLite would resolve links and make the path absolute, and so would have to be able to walk from
 * the root directory to the file, which a server that has given up root perhaps cannot. The path is
 * /proc/self/fd/N/…, as good from everywhere. */
static int store_full_path(sqlite3_vfs *vfs, const char *name, int size, char *out) {
    (void)vfs;
    return str_copy(out, (size_t)size, name) ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int store_make_vfs(struct store *s, struct err *err) {
    /* Counting memory takes a lock for each allocation. Refused when SQLite is in use already. */
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    const sqlite3_vfs *unix_vfs = sqlite3_vfs_find(NULL);
    if (unix_vfs == NULL)
        return err_set(err, ERR_SYSTEM, 0, "SQLite has no access to files");
    snprintf(s->vfs_name, sizeof(s->vfs_name), "pinfold-%p", (void *)s);
    s->vfs = *unix_vfs;
    s->vfs.pNext = NULL;
    s->vfs.zName = s->vfs_name;
    s->vfs.xFullPathname = store_full_path;
    if (sqlite3_vfs_register(&s->vfs, 0) == SQLITE_OK)
        return 0;
    s->vfs.zName = NULL;
    return err_set(err, ERR_SYSTEM, ENOMEM, "starting SQLite: out of memory");
}

/* A tool that root has started must not leave files that the server cannot write. */
static int store_check_owner(int dir, struct err *err) {
    struct stat st;
    if (fstat(dir, &st) < 0)
        return err_sys(err, "looking at the server's directory");
    if (st.st_uid == geteuid())
        return 0;
    return err_set(err, ERR_STATE, EPERM,
                   "the server's directory belongs to user %u and we are user %u: the database "
                   "would get the wrong owner",
                   (unsigned)st.st_uid, (unsigned)geteuid());
}

int store_connect(struct store *s, sqlite3 **out, struct err *err) {
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(s->path, &db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                             s->vfs_name);
    if (rc != SQLITE_OK) {
        int code = db != NULL ? sqlite3_system_errno(db) : ENOMEM;
        err_set(err, code == ENOSPC ? ERR_LIMIT : ERR_SYSTEM, code, "opening the database: %s",
                db != NULL ? sqlite3_errmsg(db) : "out of memory");
        sqlite3_close(db);
        return -1;
    }
    sqlite3_busy_timeout(db, STORE_BUSY_MS);
    /* A statement that a file of somebody else brings along must do no harm. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    *out = db;
    return 0;
}

/* auto_vacuum only has an effect before the first table is made. */
static int store_set_up(struct store *s, struct err *err) {
    static const char pragmas[] = "PRAGMA auto_vacuum=INCREMENTAL;"
                                  "PRAGMA journal_mode=WAL;"
                                  "PRAGMA synchronous=NORMAL;"
                                  "PRAGMA wal_autocheckpoint=0;"
                                  "PRAGMA foreign_keys=ON;"
                                  "PRAGMA temp_store=MEMORY;"
                                  "PRAGMA journal_size_limit=67108864;";
    char cache[48];
    snprintf(cache, sizeof(cache), "PRAGMA cache_size=-%d", STORE_CACHE_KIB);
    if (store_sql_exec(s, pragmas, err) < 0 || store_sql_exec(s, cache, err) < 0)
        return err_wrap(err, "the database %s", STORE_FILE);
    return 0;
}

static int store_wal_hook(void *arg, sqlite3 *db, const char *name, int pages) {
    struct store *s = arg;
    (void)db;
    (void)name;
    if (s->checkpoint != NULL)
        store_checkpoint_tell(s->checkpoint, (unsigned)pages);
    return SQLITE_OK;
}

static int store_start(struct store *s, struct err *err) {
    if (store_make_vfs(s, err) < 0 || store_check_owner(s->dir, err) < 0 ||
        store_connect(s, &s->db, err) < 0)
        return -1;
    /* A newer database is left alone, its journal mode included. */
    if (store_migrate_check(s, err) < 0 || store_set_up(s, err) < 0 || store_migrate(s, err) < 0)
        return -1;
    sqlite3_wal_hook(s->db, store_wal_hook, s);
    if (s->loop == NULL)
        return 0;
    s->checkpoint = store_checkpoint_start(s, err);
    return s->checkpoint == NULL ? -1 : 0;
}

int store_open(const struct store_options *options, struct store **out, struct err *err) {
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "opening the database: out of memory");
    s->loop = options->loop;
    s->log = options->log;
    /* The log and its index are opened, and removed, by their paths later on. */
    s->dir = fcntl(options->dir, F_DUPFD_CLOEXEC, 0);
    if (s->dir < 0) {
        free(s);
        return err_sys(err, "opening the database");
    }
    snprintf(s->path, sizeof(s->path), "/proc/self/fd/%d/" STORE_FILE, s->dir);
    if (store_start(s, err) < 0) {
        store_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

/* The round's transaction. */

static void store_rollback(struct store *s) {
    (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}

/* Ends the transaction: 0, or -1 with s->why. */
static int store_commit(struct store *s) {
    static const char sql[] = "COMMIT";
    struct err err;
    int rc = -1;
    err_clear(&err);
    if (!s->doomed) {
        sqlite3_stmt *q = store_sql(s, sql, &err);
        rc = q != NULL ? store_sql_run(s, q, &err) : -1;
    }
    if (rc < 0) {
        if (!s->doomed)
            s->why = err;
        store_rollback(s);
        store_health_failed(s, &s->why);
    } else {
        s->writes++;
        store_health_well(s);
    }
    s->begun = s->doomed = false;
    return rc;
}

/* Whoever has waited for what this commit was about. Once failed is failed. */
static void store_settle(struct store *s, int rc) {
    for (struct store_waiter *w = s->first; w != NULL; w = w->next) {
        w->failed |= !w->settled && rc < 0;
        w->settled = true;
    }
}

static void store_flush(void *arg) {
    struct store *s = arg;
    int rc = s->begun ? store_commit(s) : 0;
    /* Of who came after a part that failed nobody knows which part he speaks of. */
    store_settle(s, s->early ? -1 : rc);
    s->early = false;
    struct err why = s->why;
    /* Who waits from now on waits for the next one. */
    struct store_waiter *end = s->last;
    while (s->first != NULL) {
        struct store_waiter *w = s->first;
        bool last = w == end;
        store_then_stop(s, w);
        w->fn(w->arg, w->failed ? -1 : 0, w->failed ? &why : NULL);
        if (last)
            return;
    }
}

int store_begin(struct store *s, struct err *err) {
    static const char sql[] = "BEGIN IMMEDIATE";
    if (s->begun && s->doomed) {
        if (err != NULL)
            *err = s->why;
        return -1;
    }
    if (s->begun) {
        s->depth++;
        return 0;
    }
    struct err own;
    err_clear(&own);
    sqlite3_stmt *q = store_sql(s, sql, &own);
    if (q == NULL || store_sql_run(s, q, &own) < 0) {
        store_health_failed(s, &own);
        if (err != NULL)
            *err = own;
        return -1;
    }
    s->begun = true;
    s->depth = 1;
    if (s->loop != NULL)
        loop_defer_first(s->loop, &s->flush, store_flush, s);
    return 0;
}

int store_end(struct store *s, int rc, struct err *err) {
    if (s->depth > 0)
        s->depth--;
    if (s->loop != NULL || s->depth > 0 || !s->begun)
        return rc;
    if (rc < 0 && !s->doomed) {
        store_rollback(s);
        s->begun = false;
        return rc;
    }
    if (store_commit(s) == 0)
        return rc;
    if (err != NULL)
        *err = s->why;
    return -1;
}

int store_drop_row(struct store *s, const char *sql, const char *id, struct err *err) {
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL)
        store_sql_text(q, 1, id);
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_commit_now(struct store *s, struct err *err) {
    if (!s->begun)
        return 0;
    int rc = store_commit(s);
    store_settle(s, rc);
    if (rc == 0)
        return 0;
    s->early = true;
    if (err != NULL)
        *err = s->why;
    return -1;
}

uint64_t store_round(const struct store *s) {
    return s->writes;
}

void store_rest(struct store *s) {
    if (!s->begun)
        (void)sqlite3_db_release_memory(s->db);
}

void store_failed(struct store *s, const struct err *why) {
    store_health_failed(s, why);
}

void store_on_well(struct store *s, void (*fn)(void *arg), void *arg) {
    s->well = fn;
    s->well_arg = arg;
}

bool store_writing(const struct store *s) {
    return s->begun;
}

void store_then(struct store *s, struct store_waiter *w) {
    if (w->waiting) {
        w->settled &= !s->begun; /* for more than before */
        return;
    }
    if (s->loop == NULL || (!s->begun && !s->flush.pending)) {
        w->fn(w->arg, 0, NULL);
        return;
    }
    w->waiting = true;
    w->settled = w->failed = false;
    w->next = NULL;
    if (s->last != NULL)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
}

void store_then_stop(struct store *s, struct store_waiter *w) {
    struct store_waiter *before = NULL;
    if (!w->waiting)
        return;
    w->waiting = false;
    for (struct store_waiter *i = s->first; i != NULL; before = i, i = i->next) {
        if (i != w)
            continue;
        if (before != NULL)
            before->next = w->next;
        else
            s->first = w->next;
        if (s->last == w)
            s->last = before;
        return;
    }
}

void store_close(struct store *s) {
    if (s == NULL)
        return;
    if (s->loop != NULL) {
        store_flush(s);
        loop_defer_stop(s->loop, &s->flush);
    } else if (s->begun) {
        store_rollback(s);
    }
    store_health_stop(s);
    store_checkpoint_stop(s->checkpoint);
    store_sql_done(s);
    /* The last one to close brings the log into the database. */
    sqlite3_close(s->db);
    if (s->vfs.zName != NULL)
        sqlite3_vfs_unregister(&s->vfs);
    fd_close(&s->dir);
    free(s);
}
