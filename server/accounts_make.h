/* New tokens: what was wished for, whether the parent may give it, and the token itself. */
#pragma once

#include "accounts.h"
#include "api_error.h"

#define ACCOUNTS_MAKE_ID_PREFIX "tok_"

struct accounts_wish {
    const char *label, *from_run; /* "" = none */
    uint8_t from_trace[ACCOUNTS_TRACE_SIZE];
    unsigned scopes;      /* 0 = as is usual, or as the parent has, but not admin */
    const char *policies; /* in the form of accounts_token; NULL = all, or the parent's */
    uint64_t expires_ms, until_ms;
    struct quota_limits quota;
    uint64_t cpu_budget_ms, runs_budget; /* UINT64_MAX, and never: no bound, or the parent's */
};

/* Everything as is usual. */
void accounts_make_wish(struct accounts_wish *w);
/* Fills what the wish leaves open from the parent. -1: it asks for more than the parent has; *error
 * is 403, or 429 when the user has too many, and names the field. */
int accounts_make_narrow(const struct accounts *a, const struct accounts_token *parent,
                         struct accounts_wish *w, struct api_error *error);
/* Makes the token: *row is what goes into the store and the table (its policies are borrowed from
 * the wish, user and parent are not set); the caller wipes `text` with token_wipe(). */
int accounts_make_token(const struct accounts_wish *w, const struct accounts_user *user,
                        struct accounts_token *row, char text[TOKEN_TEXT_LEN + 1], struct err *err);

/* "a,b" -> names in the form of accounts_token, malloc'ed. */
int accounts_make_policies(const char *list, char **out, struct err *err);
/* "never", "90m", "30d", "2027-01-31", "2027-01-31T12:00:00Z" -> milliseconds since the epoch. */
int accounts_make_time(const char *text, uint64_t now_ms, uint64_t *out, struct err *err);
