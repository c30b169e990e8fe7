/* Keeps the table of accounts as the store has it, while the server runs.
 *
 * STATE/server/accounts.changed is watched (inotify): whoever changes users or tokens from another
 * process writes to it afterwards. So is STATE/server/tokens, the list that `pinfold-server init`
 * makes (accounts_import.h). There is no look at any file in the path of a request with a known
 * token. */
#pragma once

#include "accounts.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "store_accounts.h"

struct accounts_live {
    struct loop *loop;         /* borrowed */
    struct store *store;       /* borrowed */
    struct log *log;           /* borrowed */
    struct accounts *accounts; /* owned */
    /* Tokens were revoked, have expired, or their users were disabled. */
    void (*revoked)(void *arg);
    void *arg;

    struct store_accounts_seen seen; /* private, as is the rest */
    int notify, watch_changed, watch_tokens;
    struct loop_source source;
    struct loop_timer expiry, purge;
    struct store_waiter waiter;
};

/* Relative to the current directory, which is the state directory. On failure accounts_live_stop()
 * is still to be called. */
int accounts_live_start(struct accounts_live *l, struct loop *loop, struct store *store,
                        struct log *log, struct err *err);
void accounts_live_stop(struct accounts_live *l);

/* Users or tokens were changed, in the table and in the store, within this round: works out who may
 * go on, and takes it back should the store not keep it. */
void accounts_live_written(struct accounts_live *l);
/* Likewise, but all that was done is that a user (NULL), or this token, was added: agents add many
 * tokens, and nobody has to be looked at for that. */
void accounts_live_added(struct accounts_live *l, const struct accounts_token *t);
/* Reads now what has changed, if an event says that something has, which the loop has not come to
 * yet; -> whether one did. Costs one read() otherwise: good enough for every token that is not
 * known. */
bool accounts_live_look(struct accounts_live *l);
