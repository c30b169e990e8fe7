#include "accounts_budget.h"

static bool accounts_budget_none(const struct accounts_token *t) {
    return t->cpu_budget_ms == UINT64_MAX && t->runs_budget == UINT64_MAX && t->parent == NULL;
}

static uint64_t accounts_budget_minus(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static int accounts_budget_used_up(const struct accounts_token *asked,
                                   const struct accounts_token *t, const char *name,
                                   const char *held, struct api_error *error) {
    return api_error_set(error, 429, "budget", NULL,
                         "The budget %s of %s is used up%s; a new token is needed to go on.", name,
                         t == asked ? "this token" : "a token above this one", held);
}

int accounts_budget_open(const struct accounts_token *t, uint64_t now_ms, struct api_error *error) {
    for (const struct accounts_token *at = t; at != NULL; at = at->parent)
        if (at->until_ms <= now_ms)
            return accounts_budget_used_up(t, at, "until", " (its time is over)", error);
    return 0;
}

int accounts_budget_hold(struct accounts_token *t, uint64_t now_ms, uint64_t *cpu_ms,
                         struct accounts_hold *hold, struct api_error *error) {
    uint64_t cpu = *cpu_ms;
    if (accounts_budget_open(t, now_ms, error) < 0)
        return -1;
    if (accounts_budget_none(t))
        return 0;
    for (const struct accounts_token *at = t; at != NULL; at = at->parent) {
        uint64_t left = accounts_budget_minus(at->cpu_budget_ms, at->cpu_spent_ms);
        if (at->runs_spent >= at->runs_budget)
            return accounts_budget_used_up(t, at, "runs", "", error);
        if (at->cpu_budget_ms == UINT64_MAX)
            continue;
        if (left <= at->cpu_held_ms)
            return accounts_budget_used_up(
                t, at, "cpu_ms", left == 0 ? "" : " (what is left is held by what runs now)",
                error);
        if (cpu > left - at->cpu_held_ms)
            cpu = left - at->cpu_held_ms;
    }
    for (struct accounts_token *at = t; at != NULL; at = at->parent) {
        at->cpu_held_ms += cpu;
        at->runs_spent++;
        accounts_spent(at);
    }
    hold->token = accounts_token_ref(t);
    hold->cpu_ms = *cpu_ms = cpu;
    return 0;
}

void accounts_budget_again(struct accounts_token *t, uint64_t cpu_ms, struct accounts_hold *hold) {
    if (accounts_budget_none(t))
        return;
    for (const struct accounts_token *at = t; at != NULL; at = at->parent) {
        uint64_t left = accounts_budget_minus(at->cpu_budget_ms, at->cpu_spent_ms);
        left = accounts_budget_minus(left, at->cpu_held_ms);
        if (at->cpu_budget_ms != UINT64_MAX && cpu_ms > left)
            cpu_ms = left;
    }
    for (struct accounts_token *at = t; at != NULL; at = at->parent)
        at->cpu_held_ms += cpu_ms;
    hold->token = accounts_token_ref(t);
    hold->cpu_ms = cpu_ms;
}

void accounts_budget_leave(struct accounts_hold *hold) {
    struct accounts_token *t = hold->token;
    for (struct accounts_token *at = t; at != NULL; at = at->parent)
        at->cpu_held_ms = accounts_budget_minus(at->cpu_held_ms, hold->cpu_ms);
    *hold = (struct accounts_hold){0};
    accounts_token_unref(t);
}

void accounts_budget_settle(struct accounts_hold *hold, uint64_t used_ms) {
    for (struct accounts_token *at = hold->token; at != NULL; at = at->parent) {
        at->cpu_spent_ms += used_ms;
        accounts_spent(at);
    }
    accounts_budget_leave(hold);
}

void accounts_budget_refund(struct accounts_token *t, uint64_t unused_ms) {
    for (struct accounts_token *at = t; at != NULL; at = at->parent) {
        at->cpu_spent_ms = accounts_budget_minus(at->cpu_spent_ms, unused_ms);
        accounts_spent(at);
    }
}

void accounts_budget_release(struct accounts_hold *hold) {
    for (struct accounts_token *at = hold->token; at != NULL; at = at->parent)
        at->runs_spent = accounts_budget_minus(at->runs_spent, 1);
    accounts_budget_settle(hold, 0);
}
