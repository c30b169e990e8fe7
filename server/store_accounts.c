#include "store_accounts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "accounts_quota.h"
#include "buf.h"
#include "json_memory.h"
#include "store_internal.h"

#define STORE_ACCOUNTS_QUOTA_MAX 1024u

/* Codecs of columns. */

static int store_accounts_quota(const struct quota_limits *q, struct buf *out, struct err *err) {
    struct json_out j;
    buf_init(out, STORE_ACCOUNTS_QUOTA_MAX);
    json_out_init(&j, out);
    accounts_quota_write(&j, NULL, q, false);
    return json_out_end(&j, err);
}

/* A JSON array of names into the form of accounts_token.policies. */
static int store_accounts_policies(const char *text, char **out, struct err *err) {
    json_t *list = json_memory_load(text, strlen(text), 0, NULL);
    size_t size = 1, at = 0, i;
    json_t *item;
    bool good = json_is_array(list);
    json_array_foreach(list, i, item) {
        good = good && json_is_string(item);
        size += json_string_length(item) + 1;
    }
    char *names = good ? calloc(1, size) : NULL;
    if (names != NULL) {
        json_array_foreach(list, i, item) {
            memcpy(names + at, json_string_value(item), json_string_length(item));
            at += json_string_length(item) + 1;
        }
    }
    json_decref(list);
    if (names == NULL)
        return err_set(err, ERR_INVALID, 0, "a stored list of policies is not a list of names");
    *out = names;
    return 0;
}

static char *store_accounts_policies_text(const char *policies) {
    json_t *list = json_array();
    for (const char *p = policies; *p != '\0'; p += strlen(p) + 1)
        json_array_append_new(list, json_string(p));
    char *text = json_memory_dump(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

/* Reading. */

static int store_accounts_load_users(struct store *s, struct accounts *a, uint64_t *seen,
                                     struct err *err) {
    static const char sql[] =
        "SELECT name, admin, disabled, cancel_running, deleted, weight, quota, created_ms, touched "
        "FROM users WHERE touched > ?1 ORDER BY created_ms";
    sqlite3_stmt *q = store_sql(s, sql, err);
    uint64_t newest = *seen;
    int rc = q == NULL ? -1 : 0;
    if (q != NULL)
        store_sql_u64(q, 1, *seen);
    while (rc == 0 && (rc = store_sql_row(s, q, err)) > 0) {
        struct accounts_user u = {.admin = store_sql_get_u64(q, 1) != 0,
                                  .disabled = store_sql_get_u64(q, 2) != 0,
                                  .cancel_running = store_sql_get_u64(q, 3) != 0,
                                  .deleted = store_sql_get_u64(q, 4) != 0,
                                  .weight = (uint32_t)store_sql_get_u64(q, 5),
                                  .created_ms = store_sql_get_u64(q, 7)};
        uint64_t touched = store_sql_get_u64(q, 8);
        newest = touched > newest ? touched : newest;
        rc = -1;
        if (!store_sql_get_text(q, 0, u.name, sizeof(u.name)))
            err_set(err, ERR_INVALID, 0, "a stored user has too long a name");
        else if (accounts_quota_read(store_sql_see_text(q, 6), &u.quota, err) == 0 &&
                 accounts_put_user(a, &u, err) != NULL)
            rc = 0;
        if (rc < 0)
            store_sql_reset(q);
    }
    if (rc == 0)
        *seen = newest;
    return rc;
}

static int store_accounts_put_token(sqlite3_stmt *q, struct accounts *a, struct err *err) {
    char user[ACCOUNTS_NAME_SIZE], parent[ACCOUNTS_TOKEN_ID_SIZE] = "";
    struct accounts_token t = {.scopes = (unsigned)store_sql_get_u64(q, 6),
                               .expires_ms = store_sql_get_u64(q, 7),
                               .until_ms = store_sql_get_u64(q, 8),
                               .cpu_budget_ms = store_sql_get_u64(q, 11),
                               .runs_budget = store_sql_get_u64(q, 12),
                               .cpu_spent_ms = store_sql_get_u64(q, 13),
                               .runs_spent = store_sql_get_u64(q, 14),
                               .withdrawn = store_sql_get_u64(q, 15) != 0,
                               .cancel_running = store_sql_get_u64(q, 16) != 0,
                               .from_file = store_sql_get_u64(q, 17) != 0,
                               .created_ms = store_sql_get_u64(q, 18)};
    bool child = sqlite3_column_type(q, 3) != SQLITE_NULL;
    size_t len = 0;
    const void *hash = store_sql_see_blob(q, 1, &len);
    if (len != sizeof(t.hash.bytes) || !store_sql_get_text(q, 0, t.id, sizeof(t.id)) ||
        !store_sql_get_text(q, 2, user, sizeof(user)) ||
        (child && !store_sql_get_text(q, 3, parent, sizeof(parent))) ||
        !store_sql_get_text(q, 4, t.from_run, sizeof(t.from_run)) ||
        !store_sql_get_text(q, 5, t.label, sizeof(t.label)))
        return err_set(err, ERR_INVALID, 0, "a stored token is damaged");
    memcpy(t.hash.bytes, hash, sizeof(t.hash.bytes));
    const void *trace = store_sql_see_blob(q, 20, &len);
    if (len == sizeof(t.from_trace))
        memcpy(t.from_trace, trace, len);
    if (accounts_quota_read(store_sql_see_text(q, 10), &t.quota, err) < 0)
        return -1;
    if (sqlite3_column_type(q, 9) != SQLITE_NULL &&
        store_accounts_policies(store_sql_see_text(q, 9), &t.policies, err) < 0)
        return -1;
    int rc = accounts_put_token(a, &t, user, child ? parent : NULL, err) != NULL ? 0 : -1;
    free(t.policies);
    return rc;
}

static int store_accounts_load_tokens(struct store *s, struct accounts *a, uint64_t *seen,
                                      struct err *err) {
    /* Parents before their children. */
    static const char sql[] =
        "SELECT id, hash, user, parent, from_run, name, scopes, expires_ms, until_ms, policies,"
        " quota, cpu_budget_ms, runs_budget, cpu_spent_ms, runs_spent, revoked, cancel_running,"
        " from_file, created_ms, touched, from_trace FROM tokens WHERE touched > ?1 ORDER BY "
        "depth, created_ms";
    sqlite3_stmt *q = store_sql(s, sql, err);
    uint64_t newest = *seen;
    int rc = q == NULL ? -1 : 0;
    if (q != NULL)
        store_sql_u64(q, 1, *seen);
    while (rc == 0 && (rc = store_sql_row(s, q, err)) > 0) {
        uint64_t touched = store_sql_get_u64(q, 19);
        newest = touched > newest ? touched : newest;
        rc = store_accounts_put_token(q, a, err);
        if (rc < 0)
            store_sql_reset(q);
    }
    if (rc == 0)
        *seen = newest;
    return rc;
}

int store_accounts_load(struct store *s, struct accounts *a, struct store_accounts_seen *seen,
                        struct err *err) {
    if (store_accounts_load_users(s, a, &seen->users, err) < 0)
        return -1;
    return store_accounts_load_tokens(s, a, &seen->tokens, err);
}

/* Writing. */

/* The same numbers in both statements: ?1 name … ?8 created_ms. */
static int store_accounts_write_user(struct store *s, const char *sql,
                                     const struct accounts_user *u, struct err *err) {
    struct buf quota;
    int rc = store_accounts_quota(&u->quota, &quota, err);
    if (rc == 0 && store_begin(s, err) == 0) {
        sqlite3_stmt *q = store_sql(s, sql, err);
        if (q != NULL) {
            store_sql_text(q, 1, u->name);
            store_sql_u64(q, 2, u->admin);
            store_sql_u64(q, 3, u->disabled);
            store_sql_u64(q, 4, u->cancel_running);
            store_sql_u64(q, 5, u->deleted);
            store_sql_u64(q, 6, u->weight);
            store_sql_text(q, 7, quota.data);
            store_sql_u64(q, 8, u->created_ms);
        }
        rc = store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
    } else {
        rc = -1;
    }
    buf_done(&quota);
    return rc;
}

int store_accounts_add_user(struct store *s, const struct accounts_user *u, struct err *err) {
    static const char sql[] =
        "INSERT INTO users (name, admin, disabled, cancel_running, deleted, weight, quota,"
        " created_ms, touched) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
        "(SELECT coalesce(max(touched), 0) + 1 FROM users))";
    return store_accounts_write_user(s, sql, u, err);
}

int store_accounts_change_user(struct store *s, const struct accounts_user *u, struct err *err) {
    static const char sql[] =
        "UPDATE users SET admin = ?2, disabled = ?3, cancel_running = ?4, deleted = ?5,"
        " weight = ?6, quota = ?7, created_ms = ?8,"
        " touched = (SELECT max(touched) + 1 FROM users) WHERE name = ?1";
    return store_accounts_write_user(s, sql, u, err);
}

static int store_accounts_insert_token(struct store *s, const struct accounts_token *t,
                                       const char *const names[4], struct err *err) {
    static const char sql[] =
        "INSERT INTO tokens (id, hash, user, parent, from_run, name, scopes, expires_ms,"
        " until_ms, policies, quota, cpu_budget_ms, runs_budget, from_file, created_ms, from_trace,"
        " depth, touched)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,"
        " coalesce((SELECT depth + 1 FROM tokens WHERE id = ?4), 0),"
        " (SELECT coalesce(max(touched), 0) + 1 FROM tokens))";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, t->id);
        store_sql_blob(q, 2, t->hash.bytes, sizeof(t->hash.bytes));
        store_sql_text(q, 3, names[0]);
        store_sql_text(q, 4, names[1]);
        store_sql_text(q, 5, t->from_run);
        store_sql_text(q, 6, t->label);
        store_sql_u64(q, 7, t->scopes);
        store_sql_u64(q, 8, t->expires_ms);
        store_sql_u64(q, 9, t->until_ms);
        store_sql_text(q, 10, names[2]);
        store_sql_text(q, 11, names[3]);
        store_sql_u64(q, 12, t->cpu_budget_ms);
        store_sql_u64(q, 13, t->runs_budget);
        store_sql_u64(q, 14, t->from_file);
        store_sql_u64(q, 15, t->created_ms);
        store_sql_blob(q, 16, t->from_trace, sizeof(t->from_trace));
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_accounts_add_token(struct store *s, const struct accounts_token *t, const char *user,
                             const char *parent, struct err *err) {
    struct buf quota;
    char *policies = t->policies != NULL ? store_accounts_policies_text(t->policies) : NULL;
    int rc = store_accounts_quota(&t->quota, &quota, err);
    if (t->policies != NULL && policies == NULL)
        rc = err_set(err, ERR_SYSTEM, 0, "writing a list of policies: out of memory");
    if (rc == 0) {
        const char *const names[4] = {user, parent, policies, quota.data};
        rc = store_accounts_insert_token(s, t, names, err);
    }
    free(policies);
    buf_done(&quota);
    return rc;
}

int store_accounts_withdraw(struct store *s, const char *id, bool cancel_running, struct err *err) {
    static const char sql[] = "UPDATE tokens SET revoked = 1, cancel_running = ?2,"
                              " touched = (SELECT max(touched) + 1 FROM tokens) WHERE id = ?1";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, id);
        store_sql_u64(q, 2, cancel_running);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_accounts_spent(struct store *s, const struct accounts_token *t, struct err *err) {
    static const char sql[] = "UPDATE tokens SET cpu_spent_ms = ?2, runs_spent = ?3 WHERE id = ?1";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL) {
        store_sql_text(q, 1, t->id);
        store_sql_u64(q, 2, t->cpu_spent_ms);
        store_sql_u64(q, 3, t->runs_spent);
    }
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}

int store_accounts_purge(struct store *s, uint64_t before_ms, struct err *err) {
    static const char sql[] = "DELETE FROM tokens WHERE parent IS NOT NULL AND created_ms < ?1 AND"
                              " (revoked OR expires_ms < ?1)";
    if (store_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *q = store_sql(s, sql, err);
    if (q != NULL)
        store_sql_u64(q, 1, before_ms);
    return store_end(s, q != NULL ? store_sql_run(s, q, err) : -1, err);
}
