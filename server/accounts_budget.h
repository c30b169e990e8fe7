/* Budgets: CPU time, runs, and until when, for the whole life of a token.
 *
 * What a token spends is spent by all tokens above it; each of them must have something left. While
 * a run or an execution is not over, as much CPU time as its limit allows is held, so that several
 * at once cannot spend the same rest; the limit is lowered to what there is. */
#pragma once

#include "accounts.h"
#include "api_error.h"

/* Embedded in a run or an execution; zeroed = holds nothing. */
struct accounts_hold {
    struct accounts_token *token; /* counted; NULL = nothing is held */
    uint64_t cpu_ms;
};

/* For a run or an execution that wants up to *cpu_ms, which is lowered to what is left. -1: 429
 * `budget` names the one that is used up. A token without any bound holds nothing. */
int accounts_budget_hold(struct accounts_token *t, uint64_t now_ms, uint64_t *cpu_ms,
                         struct accounts_hold *hold, struct api_error *error);
/* For one that an earlier server has counted: only its CPU time is held, what of it is left. */
void accounts_budget_again(struct accounts_token *t, uint64_t cpu_ms, struct accounts_hold *hold);
/* It is over and has used this much. Idempotent, as is the next. */
void accounts_budget_settle(struct accounts_hold *hold, uint64_t used_ms);
/* It was never begun. */
void accounts_budget_release(struct accounts_hold *hold);
/* Some of what was settled turns out not to have been used. NULL allowed. */
void accounts_budget_refund(struct accounts_token *t, uint64_t unused_ms);
/* The next server begins it (accounts_budget_again()): it stays counted. */
void accounts_budget_leave(struct accounts_hold *hold);
/* May it start anything at this time? (Sandboxes use nothing of the other two by themselves.) */
int accounts_budget_open(const struct accounts_token *t, uint64_t now_ms, struct api_error *error);
