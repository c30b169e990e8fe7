/* Users and tokens in the store. */
#pragma once

#include "accounts.h"
#include "store.h"

/* Up to which change they were read; zeroed = nothing was. */
struct store_accounts_seen {
    uint64_t users, tokens;
};

/* Puts into `a` those that were made or changed since *seen, and moves it on. With it zeroed that
 * is all of them: then between accounts_begin() and accounts_end(). */
int store_accounts_load(struct store *s, struct accounts *a, struct store_accounts_seen *seen,
                        struct err *err);

/* ERR_STATE when the name is taken. */
int store_accounts_add_user(struct store *s, const struct accounts_user *u, struct err *err);
/* Everything but the name and the time. */
int store_accounts_change_user(struct store *s, const struct accounts_user *u, struct err *err);
/* `user` and `parent` (NULL = none) instead of what `t` points to. */
int store_accounts_add_token(struct store *s, const struct accounts_token *t, const char *user,
                             const char *parent, struct err *err);
int store_accounts_withdraw(struct store *s, const char *id, bool cancel_running, struct err *err);
/* What it has spent of its budget. */
int store_accounts_spent(struct store *s, const struct accounts_token *t, struct err *err);
/* Forgets child tokens that were over at `before_ms`: those of agents are many. What an
 * administrator made is kept, also when it was revoked. */
int store_accounts_purge(struct store *s, uint64_t before_ms, struct err *err);
