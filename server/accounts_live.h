/* Keeps the table of accounts as the state directory has it, while the server runs.
 *
 * STATE/server/accounts.changed is watched (inotify): whoever changes users or tokens from another
 * process writes to it afterwards. So is STATE/server/tokens, the list that `pinfold-server init`
 * makes. There is no look at any file in the path of a request. */
#pragma once

#include "accounts.h"
#include "err.h"
#include "log.h"
#include "loop.h"

struct accounts_live {
    struct loop *loop;         /* borrowed */
    struct log *log;           /* borrowed */
    struct accounts *accounts; /* owned */
    /* Tokens were revoked, have expired, or their users were disabled. */
    void (*revoked)(void *arg);
    void *arg;

    int notify, watch_changed, watch_tokens; /* private, as is the rest */
    struct loop_source source;
    struct loop_timer expiry;
};

/* Relative to the current directory, which is the state directory. On failure accounts_live_stop()
 * is still to be called. */
int accounts_live_start(struct accounts_live *l, struct loop *loop, struct log *log,
                        struct err *err);
void accounts_live_stop(struct accounts_live *l);

/* Reads everything again now. */
int accounts_live_read(struct accounts_live *l, struct err *err);
