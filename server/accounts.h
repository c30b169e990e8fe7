/* Users and their tokens, in memory, as the store has them.
 *
 * The store is the truth; this is its copy for the path of a request, which makes no query.
 * Commands of the administrator (`pinfold-server user …`, `token …`) change the store from another
 * process and then touch STATE/server/accounts.changed, which the server watches: it reads again at
 * once.
 *
 * An account or a token that somebody points to (a request, a run, a sandbox) stays valid: both are
 * counted, and one that is revoked, expired or deleted is only marked.
 *
 *   user ──< token ──< child token ──< …      a child can do less than its parent, never more
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "quota.h"
#include "token.h"

#define ACCOUNTS_NAME_SIZE TOKEN_NAME_SIZE /* of a user, NUL included */
#define ACCOUNTS_TOKEN_ID_SIZE 32          /* "tok_" and 24 of [a-z0-9] */
#define ACCOUNTS_DEPTH_MAX 8               /* of child tokens */

/* What a token may be used for; bits. */
enum accounts_scope {
    ACCOUNTS_RUN = 1,     /* make, cancel and read its runs */
    ACCOUNTS_SANDBOX = 2, /* sandboxes, executions, snapshots */
    ACCOUNTS_FILES = 4,   /* files, archives, sync and blobs of sandboxes */
    ACCOUNTS_ADMIN = 8,   /* users, tokens, everybody's table */
    ACCOUNTS_METRICS = 16,
    ACCOUNTS_READ = 32, /* GET of everything that is the user's own */
};

struct accounts_user {
    char name[ACCOUNTS_NAME_SIZE];
    bool disabled;
    uint32_t weight; /* of its share of the queue; 100 is usual */
    struct quota_limits quota;
    struct quota_use use;
    void *flow; /* the queue's; NULL = nothing of it has waited yet */
    unsigned refs;
};

struct accounts_token {
    char id[ACCOUNTS_TOKEN_ID_SIZE];
    struct token_hash hash;
    struct accounts_user *user;    /* counted */
    struct accounts_token *parent; /* counted; NULL = made by an administrator */
    char from_run[32];             /* the run or execution inside which it was made; "" = none */
    unsigned scopes;               /* enum accounts_scope */
    uint64_t expires_ms;           /* since the epoch; UINT64_MAX = never */
    char *policies;                /* names, each followed by NUL, then one more NUL; NULL = all */
    struct quota_limits quota;
    struct quota_use use;
    uint64_t cpu_budget_ms, runs_budget; /* for its whole life; UINT64_MAX = no bound */
    uint64_t cpu_spent_ms, runs_spent;
    bool revoked; /* or its parent is, or its user is disabled, or it has expired */
    unsigned refs;
};
