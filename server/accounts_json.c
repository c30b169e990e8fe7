#include "accounts_json.h"

#include <string.h>

#include "accounts_quota.h"
#include "accounts_scope.h"

static void accounts_json_bound(struct json_out *j, const char *key, uint64_t value) {
    if (value == UINT64_MAX)
        json_out_null(j, key);
    else
        json_out_u64(j, key, value);
}

void accounts_json_scopes(struct json_out *j, unsigned scopes) {
    unsigned bit;
    const char *name;
    json_out_open(j, "scopes", '[');
    for (unsigned i = 0; (name = accounts_scope_name(i, &bit)) != NULL; i++)
        if ((scopes & bit) != 0)
            json_out_str(j, NULL, name);
    json_out_close(j, ']');
}

void accounts_json_user(struct json_out *j, const char *key, const struct accounts_user *u) {
    json_out_open(j, key, '{');
    json_out_str(j, "name", u->name);
    json_out_bool(j, "admin", u->admin);
    json_out_bool(j, "disabled", u->disabled);
    json_out_u64(j, "weight", u->weight);
    json_out_u64(j, "created_at", u->created_ms);
    accounts_quota_write(j, "quota", &u->quota, true);
    json_out_close(j, '}');
}

const char *accounts_json_state(const struct accounts_token *t, uint64_t now_ms) {
    for (const struct accounts_token *at = t; at != NULL; at = at->parent)
        if (at->withdrawn)
            return "revoked";
    if (t->user->disabled || t->user->deleted)
        return "disabled";
    return t->expires_ms <= now_ms ? "expired" : "active";
}

/* "budget" and "spent" of a token */
static void accounts_json_budget(struct json_out *j, const struct accounts_token *t) {
    json_out_open(j, "budget", '{');
    accounts_json_bound(j, "cpu_ms", t->cpu_budget_ms);
    accounts_json_bound(j, "runs", t->runs_budget);
    accounts_json_bound(j, "until", t->until_ms);
    json_out_close(j, '}');
    json_out_open(j, "spent", '{');
    json_out_u64(j, "cpu_ms", t->cpu_spent_ms);
    json_out_u64(j, "runs", t->runs_spent);
    json_out_close(j, '}');
}

void accounts_json_token_members(struct json_out *j, const struct accounts_token *t,
                                 uint64_t now_ms) {
    json_out_str(j, "id", t->id);
    json_out_str(j, "user", t->user->name);
    json_out_str(j, "label", t->label);
    json_out_str(j, "state", accounts_json_state(t, now_ms));
    accounts_json_scopes(j, t->scopes);
    if (t->parent != NULL)
        json_out_str(j, "parent", t->parent->id);
    else
        json_out_null(j, "parent");
    json_out_u64(j, "depth", t->depth);
    if (t->from_run[0] != '\0')
        json_out_str(j, "from_run", t->from_run);
    json_out_u64(j, "created_at", t->created_ms);
    accounts_json_bound(j, "expires_at", t->expires_ms);
    if (t->policies == NULL) {
        json_out_null(j, "policies");
    } else {
        json_out_open(j, "policies", '[');
        for (const char *p = t->policies; *p != '\0'; p += strlen(p) + 1)
            json_out_str(j, NULL, p);
        json_out_close(j, ']');
    }
    accounts_quota_write(j, "quota", &t->quota, false);
    accounts_json_budget(j, t);
}

void accounts_json_token(struct json_out *j, const char *key, const struct accounts_token *t,
                         uint64_t now_ms) {
    json_out_open(j, key, '{');
    accounts_json_token_members(j, t, now_ms);
    json_out_close(j, '}');
}
