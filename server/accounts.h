/* Users and their tokens, in memory, as the store has them.
 *
 * The store is the truth; this is its copy for the path of a request, which makes no query.
 * Commands of the administrator (`pinfold-server user …`, `token …`) change the store from another
 * process and then touch STATE/server/accounts.changed, which the server watches: it reads again at
 * once (accounts_live.h).
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
#define ACCOUNTS_LABEL_SIZE 128            /* NUL included */
#define ACCOUNTS_RUN_ID_SIZE 32
#define ACCOUNTS_DEPTH_MAX 8       /* of child tokens */
#define ACCOUNTS_POLICIES_MAX 64u  /* names that one token lists */
#define ACCOUNTS_USERS_MAX 100000u /* deleted ones included */
#define ACCOUNTS_TRACE_SIZE 24u
#define ACCOUNTS_TOKENS_MAX 200000u /* of everybody */
#define ACCOUNTS_ENDED_MAX 10000u   /* child tokens of one user, also those that are over */
#define ACCOUNTS_CHILDREN_MAX 1000u /* live ones of one user */
#define ACCOUNTS_WEIGHT_DEFAULT 100u
#define ACCOUNTS_WEIGHT_MAX 10000u
#define ACCOUNTS_NEVER UINT64_MAX

/* What a token may be used for; bits. */
enum accounts_scope {
    ACCOUNTS_RUN = 1,     /* make, cancel and read its runs */
    ACCOUNTS_SANDBOX = 2, /* sandboxes, executions, snapshots */
    ACCOUNTS_FILES = 4,   /* files, archives, sync and blobs of sandboxes */
    ACCOUNTS_ADMIN = 8,   /* users, tokens, everybody's table */
    ACCOUNTS_METRICS = 16,
    ACCOUNTS_READ = 32, /* GET of everything that is the user's own */
};
#define ACCOUNTS_SCOPES_ALL 63u
/* What a token has when nothing is said. */
#define ACCOUNTS_SCOPES_USER (ACCOUNTS_RUN | ACCOUNTS_SANDBOX | ACCOUNTS_FILES | ACCOUNTS_READ)

struct accounts_user {
    char name[ACCOUNTS_NAME_SIZE];
    bool admin; /* its tokens have all scopes when nothing is said */
    bool disabled;
    bool cancel_running; /* when it is disabled: what runs is ended, too */
    bool deleted;        /* its name is never used again: runs and the audit log carry it */
    uint32_t weight;     /* of its share of the queue; 100 is usual */
    uint64_t created_ms;
    struct quota_limits quota;
    struct quota_use use;
    unsigned refs;

    size_t children, live_children; /* child tokens in the table, and those not revoked */
    size_t open;                    /* requests that are being answered; counted by route.c */
    uint64_t failed_from_ms;        /* of what he asked to change in the minute from here on, … */
    unsigned failed;                /* … so many failed; counted by audit_route.c */
    struct accounts_user *hash_next; /* private, as is the rest */
    struct accounts_user *next, *prev;
    bool seen;
};

struct accounts_token {
    char id[ACCOUNTS_TOKEN_ID_SIZE];
    struct token_hash hash;
    char label[ACCOUNTS_LABEL_SIZE]; /* for people; "" = none */
    struct accounts_user *user;      /* counted */
    struct accounts_token *parent;   /* counted; NULL = made by an administrator */
    unsigned depth;                  /* of parents above it */
    /* The run or execution inside which it was made; "" = none. */
    char from_run[ACCOUNTS_RUN_ID_SIZE];
    /* Its trace and span, for when it is not kept any more; zeros = not known. */
    uint8_t from_trace[ACCOUNTS_TRACE_SIZE];
    unsigned scopes;     /* enum accounts_scope */
    uint64_t created_ms; /* since the epoch, as are the next two */
    uint64_t expires_ms; /* it is refused from then on; ACCOUNTS_NEVER */
    uint64_t until_ms;   /* it starts nothing new from then on; ACCOUNTS_NEVER */
    char *policies;      /* names, each followed by NUL, then one more NUL; NULL = all */
    struct quota_limits quota;
    struct quota_use use;
    uint64_t cpu_budget_ms, runs_budget; /* for its whole life; UINT64_MAX = no bound */
    uint64_t cpu_spent_ms, runs_spent;
    uint64_t cpu_held_ms; /* of what is not over: accounts_budget.h */
    bool withdrawn;       /* it was revoked itself */
    bool cancel_running;  /* when it is revoked: what runs is ended, too */
    bool from_file;       /* STATE/server/tokens lists it */
    bool revoked;         /* or its parent is, or its user is disabled, or it has expired */
    unsigned refs;

    struct accounts *all; /* NULL: it is out of the table; private, as is the rest */
    struct accounts_token *hash_next, *id_next;
    struct accounts_token *next, *prev; /* all, by age */
    bool seen;
};

struct accounts;

struct accounts *accounts_new(struct err *err);
void accounts_free(struct accounts *a); /* NULL allowed; what others count lives on */

struct accounts_user *accounts_user_ref(struct accounts_user *user); /* NULL allowed -> `user` */
void accounts_user_unref(struct accounts_user *user);                /* NULL allowed */
struct accounts_token *accounts_token_ref(struct accounts_token *token);
void accounts_token_unref(struct accounts_token *token);

/* The token in "Bearer TOKEN": NULL when the header (which may be NULL) has any other form. Points
 * into `header`. */
const char *accounts_bearer(const char *header);
/* Whose an Authorization header is at this time (clock_real_ms()) -> borrowed, or NULL: unknown,
 * revoked, expired, or of a user that is disabled; which of them is nobody's business. */
struct accounts_token *accounts_check(struct accounts *a, const char *header, uint64_t now_ms);

/* -> borrowed, or NULL. Deleted users and revoked tokens are found, too. */
struct accounts_user *accounts_user_find(const struct accounts *a, const char *name);
struct accounts_token *accounts_token_find(const struct accounts *a, const char *id);
struct accounts_token *accounts_token_of_hash(const struct accounts *a,
                                              const struct token_hash *hash);
/* All of them, oldest first: NULL -> the first; NULL at the end. */
struct accounts_user *accounts_user_next(const struct accounts *a, const struct accounts_user *u);
struct accounts_token *accounts_token_next(const struct accounts *a,
                                           const struct accounts_token *t);
/* Are there as many users or tokens as there may be? */
bool accounts_full(const struct accounts *a);
/* Tokens that are not revoked. */
size_t accounts_live_tokens(const struct accounts *a);
/* Is `below` made with `above`, or with a token that was, and so on? */
bool accounts_is_below(const struct accounts_token *below, const struct accounts_token *above);

/* A new reading of the store: what is not put between begin and end is gone. Those that are known
 * keep their place, their counts and their use. */
void accounts_begin(struct accounts *a);
/* The fields up to `quota` are copied. -> borrowed, or NULL. */
struct accounts_user *accounts_put_user(struct accounts *a, const struct accounts_user *row,
                                        struct err *err);
/* Who owns it (`user`) and who made it (`parent`, NULL = nobody) must have been put before. `row`
 * is copied but for user, parent, depth, use and counts; a new one of somebody who is disabled, or
 * below one that is revoked, is `revoked` from the start. -> borrowed, or NULL. */
struct accounts_token *accounts_put_token(struct accounts *a, const struct accounts_token *row,
                                          const char *user, const char *parent, struct err *err);
/* Both work out `revoked` of all of them. -> how many have become so, and when the next one expires
 * (ACCOUNTS_NEVER: none). */
size_t accounts_end(struct accounts *a, uint64_t now_ms, uint64_t *next_ms);
size_t accounts_mark(struct accounts *a, uint64_t now_ms, uint64_t *next_ms);

/* What a token has spent has changed: whoever keeps that is told. Does nothing for one that has no
 * bound of its own. */
void accounts_spent(struct accounts_token *t);
void accounts_tell_spent(struct accounts *a, void (*spent)(void *arg, struct accounts_token *t),
                         void *arg);

/* Was it, or one above it, or its user, taken back by somebody (and has not only expired)? `t` may
 * be NULL. *running: whoever did wants what runs to end, too. */
bool accounts_is_withdrawn(const struct accounts_user *u, const struct accounts_token *t,
                           bool *running);
/* May it be used with this policy? */
bool accounts_may_use_policy(const struct accounts_token *t, const char *policy);
