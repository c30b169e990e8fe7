#include "accounts_import.h"

#include <errno.h>

#include "accounts_quota.h"
#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "id.h"
#include "state.h"
#include "store_accounts.h"
#include "str.h"

#define ACCOUNTS_IMPORT_MAX ((size_t)1024 * 1024)

static int accounts_import_user(struct store *s, const struct accounts *a,
                                const struct token_record *record, struct err *err) {
    struct accounts_user u = {
        .admin = record->admin, .weight = ACCOUNTS_WEIGHT_DEFAULT, .created_ms = clock_real_ms()};
    if (accounts_user_find(a, record->name) != NULL)
        return 0;
    str_copy(u.name, sizeof(u.name), record->name);
    accounts_quota_unlimited(&u.quota);
    if (store_accounts_add_user(s, &u, err) == 0)
        return 0;
    /* Two lines may name the same user. */
    return err->kind == ERR_STATE ? 0 : -1;
}

static int accounts_import_token(struct store *s, const struct token_record *record,
                                 struct err *err) {
    struct accounts_token t = {.hash = record->hash,
                               .scopes = record->admin ? ACCOUNTS_SCOPES_ALL : ACCOUNTS_SCOPES_USER,
                               .created_ms = clock_real_ms(),
                               .expires_ms = ACCOUNTS_NEVER,
                               .until_ms = ACCOUNTS_NEVER,
                               .cpu_budget_ms = UINT64_MAX,
                               .runs_budget = UINT64_MAX,
                               .from_file = true};
    accounts_quota_unlimited(&t.quota);
    if (id_make(t.id, sizeof(t.id), "tok_", err) < 0)
        return -1;
    return store_accounts_add_token(s, &t, record->name, NULL, err);
}

static bool accounts_import_lists(const struct token_list *list, const struct token_hash *hash) {
    bool found = false;
    for (size_t i = 0; i < list->count; i++)
        found |= token_equal(&list->items[i].hash, hash);
    return found;
}

static int accounts_import_list(struct store *s, const struct accounts *a,
                                const struct token_list *list, bool *changed, struct err *err) {
    for (size_t i = 0; i < list->count; i++) {
        const struct token_record *r = &list->items[i];
        const struct accounts_user *u = accounts_user_find(a, r->name);
        if (accounts_token_of_hash(a, &r->hash) != NULL || (u != NULL && u->deleted))
            continue;
        *changed = true;
        if (accounts_import_user(s, a, r, err) < 0 || accounts_import_token(s, r, err) < 0)
            return -1;
    }
    for (const struct accounts_token *t = NULL; (t = accounts_token_next(a, t)) != NULL;) {
        if (!t->from_file || t->withdrawn || accounts_import_lists(list, &t->hash))
            continue;
        *changed = true;
        if (store_accounts_withdraw(s, t->id, false, err) < 0)
            return -1;
    }
    return 0;
}

int accounts_import(int dir, struct store *s, const struct accounts *a, bool *changed,
                    struct err *err) {
    struct token_list list = {0};
    struct buf text;
    struct err own;
    err_clear(&own);
    if (err == NULL)
        err = &own;
    buf_init(&text, ACCOUNTS_IMPORT_MAX);
    int rc = fd_read_file(dir, STATE_TOKENS, &text, err);
    if (rc < 0 && err->kind == ERR_SYSTEM && err->code == ENOENT) {
        err_clear(err);
        buf_done(&text);
        return 0;
    }
    if (rc == 0)
        rc = token_list_parse(text.data != NULL ? text.data : "", text.len, &list, err);
    buf_done(&text);
    if (rc < 0)
        return err_wrap(err, STATE_TOKENS);
    rc = accounts_import_list(s, a, &list, changed, err);
    token_list_done(&list);
    return rc;
}
