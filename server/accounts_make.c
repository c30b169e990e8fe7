#include "accounts_make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accounts_quota.h"
#include "accounts_scope.h"
#include "clock.h"
#include "id.h"
#include "str.h"

#define ACCOUNTS_MAKE_DAY_MS ((uint64_t)24 * 60 * 60 * 1000)

void accounts_make_wish(struct accounts_wish *w) {
    *w = (struct accounts_wish){.label = "",
                                .from_run = "",
                                .expires_ms = ACCOUNTS_NEVER,
                                .until_ms = ACCOUNTS_NEVER,
                                .cpu_budget_ms = UINT64_MAX,
                                .runs_budget = UINT64_MAX};
    accounts_quota_unlimited(&w->quota);
}

/* A number that may only become smaller; what is left open is inherited. */
static int accounts_make_less(uint64_t parent, uint64_t *value, const char *field,
                              struct api_error *error) {
    if (*value == UINT64_MAX)
        *value = parent;
    if (*value <= parent)
        return 0;
    return api_error_set(error, 403, "wider_than_parent", field,
                         "%s is %llu, but the token that asks has %llu; a child token can have "
                         "less, never more.",
                         field + 1, (unsigned long long)*value, (unsigned long long)parent);
}

static int accounts_make_scopes(const struct accounts_token *parent, struct accounts_wish *w,
                                struct api_error *error) {
    char names[ACCOUNTS_SCOPE_NAMES_SIZE];
    if (w->scopes == 0)
        w->scopes = parent->scopes & ACCOUNTS_SCOPES_USER;
    if (w->scopes == 0)
        w->scopes = parent->scopes & ~(unsigned)ACCOUNTS_ADMIN;
    /* None at all would mean those that a new token of the user gets. */
    if (w->scopes == 0)
        return api_error_set(error, 400, "missing", "/scopes",
                             "The token that asks has no scope but admin, which a child token gets "
                             "only when it is named.");
    unsigned more = w->scopes & ~parent->scopes;
    if (more == 0)
        return 0;
    accounts_scope_names(more, ", ", names);
    return api_error_set(error, 403, "wider_than_parent", "/scopes",
                         "The token that asks does not have the scope %s itself; a child token can "
                         "have less, never more.",
                         names);
}

static int accounts_make_allowed(const struct accounts_token *parent, struct accounts_wish *w,
                                 struct api_error *error) {
    if (w->policies == NULL)
        w->policies = parent->policies;
    for (const char *p = w->policies; p != NULL && *p != '\0'; p += strlen(p) + 1)
        if (!accounts_may_use_policy(parent, p))
            return api_error_set(error, 403, "wider_than_parent", "/policies",
                                 "The token that asks may not use the policy %s itself; a child "
                                 "token can have less, never more.",
                                 p);
    return 0;
}

static int accounts_make_quota(const struct accounts_token *parent, struct accounts_wish *w,
                               struct api_error *error) {
    char field[64];
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        snprintf(field, sizeof(field), "/quota/%s", quota_name(i));
        if (accounts_make_less(parent->quota.v[i], &w->quota.v[i], field, error) < 0)
            return -1;
    }
    return 0;
}

static int accounts_make_room(const struct accounts *a, const struct accounts_token *parent,
                              struct api_error *error) {
    size_t live = parent->user->live_children, all = parent->user->children;
    if (parent->depth >= ACCOUNTS_DEPTH_MAX)
        return api_error_set(error, 403, "too_deep", NULL,
                             "There are %u tokens above this one already; a child of it would be "
                             "one too many.",
                             parent->depth);
    if (live < ACCOUNTS_CHILDREN_MAX && (all >= ACCOUNTS_ENDED_MAX || accounts_full(a)))
        return api_error_set(error, 429, "quota", NULL,
                             "Too many child tokens were made today (quota: child_tokens); make "
                             "fewer that live longer.");
    if (live >= ACCOUNTS_CHILDREN_MAX)
        return api_error_set(error, 429, "quota", NULL,
                             "You have %zu child tokens (quota: child_tokens); revoke some, or "
                             "wait until they expire.",
                             live);
    return 0;
}

int accounts_make_narrow(const struct accounts *a, const struct accounts_token *parent,
                         struct accounts_wish *w, struct api_error *error) {
    if (accounts_make_room(a, parent, error) < 0 || accounts_make_scopes(parent, w, error) < 0 ||
        accounts_make_allowed(parent, w, error) < 0 || accounts_make_quota(parent, w, error) < 0)
        return -1;
    if (accounts_make_less(parent->expires_ms, &w->expires_ms, "/expires_at", error) < 0 ||
        accounts_make_less(parent->until_ms, &w->until_ms, "/budget/until", error) < 0 ||
        accounts_make_less(parent->cpu_budget_ms, &w->cpu_budget_ms, "/budget/cpu_ms", error) < 0 ||
        accounts_make_less(parent->runs_budget, &w->runs_budget, "/budget/runs", error) < 0)
        return -1;
    return 0;
}

int accounts_make_token(const struct accounts_wish *w, const struct accounts_user *user,
                        struct accounts_token *row, char text[TOKEN_TEXT_LEN + 1],
                        struct err *err) {
    *row = (struct accounts_token){.created_ms = clock_real_ms(),
                                   .expires_ms = w->expires_ms,
                                   .until_ms = w->until_ms,
                                   .policies = (char *)(uintptr_t)w->policies,
                                   .quota = w->quota,
                                   .cpu_budget_ms = w->cpu_budget_ms,
                                   .runs_budget = w->runs_budget};
    memcpy(row->from_trace, w->from_trace, sizeof(row->from_trace));
    row->scopes = w->scopes != 0 ? w->scopes
                  : user->admin  ? ACCOUNTS_SCOPES_ALL
                                 : ACCOUNTS_SCOPES_USER;
    for (const char *p = w->label; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_INVALID, 0, "a token's label has no control characters");
    if (!str_copy(row->label, sizeof(row->label), w->label) ||
        !str_copy(row->from_run, sizeof(row->from_run), w->from_run))
        return err_set(err, ERR_INVALID, 0, "a token's label has at most %u bytes",
                       ACCOUNTS_LABEL_SIZE - 1);
    if (id_make(row->id, sizeof(row->id), ACCOUNTS_MAKE_ID_PREFIX, err) < 0 ||
        token_new(text, err) < 0)
        return -1;
    token_hash(text, TOKEN_TEXT_LEN, &row->hash);
    return 0;
}

int accounts_make_policies(const char *list, char **out, struct err *err) {
    size_t len = strlen(list), count = 1;
    char *names = calloc(1, len + 2);
    if (names == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading the policies: out of memory");
    for (size_t i = 0; i < len; i++) {
        names[i] = list[i] == ',' ? '\0' : list[i];
        count += list[i] == ',';
    }
    int rc = count > ACCOUNTS_POLICIES_MAX
                 ? err_set(err, ERR_INVALID, 0, "a token lists at most %u policies",
                           ACCOUNTS_POLICIES_MAX)
                 : 0;
    const char *p = names;
    for (size_t i = 0; i < count && rc == 0; i++, p += strlen(p) + 1)
        if (!str_is_name(p))
            rc = err_set(err, ERR_INVALID, 0,
                         "the policies are names with commas between them, not \"%.80s\"", list);
    if (rc == 0)
        *out = names;
    else
        free(names);
    return rc;
}

static int accounts_make_date(const char *text, uint64_t *out) {
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        time_t t = end != NULL && *end == '\0' ? timegm(&tm) : -1;
        if (t > 0) {
            *out = (uint64_t)t * 1000;
            return 0;
        }
    }
    return -1;
}

int accounts_make_time(const char *text, uint64_t now_ms, uint64_t *out, struct err *err) {
    size_t len = strlen(text);
    uint64_t span, days;
    char number[16];
    if (strcmp(text, "never") == 0) {
        *out = ACCOUNTS_NEVER;
        return 0;
    }
    if (accounts_make_date(text, out) == 0)
        return 0;
    if (len > 1 && len < sizeof(number) && text[len - 1] == 'd') {
        memcpy(number, text, len - 1);
        number[len - 1] = '\0';
        if (str_u64(number, 1, 36500, &days, NULL) == 0) {
            *out = now_ms + days * ACCOUNTS_MAKE_DAY_MS;
            return 0;
        }
    } else if (str_duration_ms(text, &span, NULL) == 0 && span > 0 &&
               span < 36500 * ACCOUNTS_MAKE_DAY_MS) {
        *out = now_ms + span;
        return 0;
    }
    return err_set(err, ERR_INVALID, 0,
                   "%.60s is no time; say never, how long from now (90m, 12h, 30d), or a moment in "
                   "UTC (2027-01-31, 2027-01-31T12:00:00Z)",
                   text);
}
