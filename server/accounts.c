#include "accounts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "str.h"

/* Powers of two. */
#define ACCOUNTS_TOKEN_BUCKETS 4096u
#define ACCOUNTS_USER_BUCKETS 1024u

struct accounts {
    struct accounts_token *by_hash[ACCOUNTS_TOKEN_BUCKETS];
    struct accounts_token *by_id[ACCOUNTS_TOKEN_BUCKETS];
    struct accounts_user *by_name[ACCOUNTS_USER_BUCKETS];
    struct accounts_user *first_user, *last_user;
    struct accounts_token *first_token, *last_token;
    size_t users, tokens, live;
    void (*spent)(void *arg, struct accounts_token *t); /* may be NULL */
    void *spent_arg;
};

/* Counting. */

struct accounts_user *accounts_user_ref(struct accounts_user *user) {
    if (user != NULL)
        user->refs++;
    return user;
}

void accounts_user_unref(struct accounts_user *user) {
    if (user != NULL && --user->refs == 0)
        free(user);
}

struct accounts_token *accounts_token_ref(struct accounts_token *token) {
    if (token != NULL)
        token->refs++;
    return token;
}

void accounts_token_unref(struct accounts_token *token) {
    while (token != NULL && --token->refs == 0) {
        struct accounts_token *parent = token->parent;
        accounts_user_unref(token->user);
        free(token->policies);
        free(token);
        token = parent;
    }
}

/* Tables. A bucket is found by bits of a SHA-256 of 256 random bits: nobody can choose it, and how
 * long the search takes says nothing about a token. */

static size_t accounts_hash_bucket(const struct token_hash *hash) {
    uint32_t bits;
    memcpy(&bits, hash->bytes, sizeof(bits));
    return bits & (ACCOUNTS_TOKEN_BUCKETS - 1);
}

static size_t accounts_text_bucket(const char *text, size_t buckets) {
    uint32_t h = str_hash(text, strlen(text));
    return (h ^ (h >> 16)) & (buckets - 1);
}

struct accounts_user *accounts_user_find(const struct accounts *a, const char *name) {
    struct accounts_user *u = a->by_name[accounts_text_bucket(name, ACCOUNTS_USER_BUCKETS)];
    while (u != NULL && strcmp(u->name, name) != 0)
        u = u->hash_next;
    return u;
}

struct accounts_token *accounts_token_find(const struct accounts *a, const char *id) {
    struct accounts_token *t = a->by_id[accounts_text_bucket(id, ACCOUNTS_TOKEN_BUCKETS)];
    while (t != NULL && strcmp(t->id, id) != 0)
        t = t->id_next;
    return t;
}

/* Compares with every entry of the bucket, whether or not one matched before. */
struct accounts_token *accounts_token_of_hash(const struct accounts *a,
                                              const struct token_hash *hash) {
    struct accounts_token *found = NULL;
    for (struct accounts_token *t = a->by_hash[accounts_hash_bucket(hash)]; t != NULL;
         t = t->hash_next)
        if (token_equal(&t->hash, hash))
            found = t;
    return found;
}

struct accounts_user *accounts_user_next(const struct accounts *a, const struct accounts_user *u) {
    return u == NULL ? a->first_user : u->next;
}

struct accounts_token *accounts_token_next(const struct accounts *a,
                                           const struct accounts_token *t) {
    return t == NULL ? a->first_token : t->next;
}

bool accounts_full(const struct accounts *a) {
    return a->users >= ACCOUNTS_USERS_MAX || a->tokens >= ACCOUNTS_TOKENS_MAX;
}

size_t accounts_live_tokens(const struct accounts *a) {
    return a->live;
}

bool accounts_is_below(const struct accounts_token *below, const struct accounts_token *above) {
    for (const struct accounts_token *t = below->parent; t != NULL; t = t->parent)
        if (t == above)
            return true;
    return false;
}

/* Requests. */

const char *accounts_bearer(const char *header) {
    static const char scheme[] = "Bearer ";
    if (header == NULL || strncasecmp(header, scheme, sizeof(scheme) - 1) != 0)
        return NULL;
    const char *token = header + sizeof(scheme) - 1;
    return token_is_form(token, strlen(token)) ? token : NULL;
}

struct accounts_token *accounts_check(struct accounts *a, const char *header, uint64_t now_ms) {
    const char *text = accounts_bearer(header);
    struct token_hash hash;
    if (text == NULL)
        return NULL;
    token_hash(text, TOKEN_TEXT_LEN, &hash);
    struct accounts_token *t = accounts_token_of_hash(a, &hash);
    token_wipe(&hash, sizeof(hash));
    return t == NULL || t->revoked || t->expires_ms <= now_ms ? NULL : t;
}

bool accounts_may_use_policy(const struct accounts_token *t, const char *policy) {
    if (t->policies == NULL)
        return true;
    for (const char *name = t->policies; *name != '\0'; name += strlen(name) + 1)
        if (strcmp(name, policy) == 0)
            return true;
    return false;
}

void accounts_tell_spent(struct accounts *a, void (*spent)(void *arg, struct accounts_token *t),
                         void *arg) {
    a->spent = spent;
    a->spent_arg = arg;
}

void accounts_spent(struct accounts_token *t) {
    bool bound = t->cpu_budget_ms != UINT64_MAX || t->runs_budget != UINT64_MAX;
    if (bound && t->all != NULL && t->all->spent != NULL)
        t->all->spent(t->all->spent_arg, t);
}

bool accounts_is_withdrawn(const struct accounts_user *u, const struct accounts_token *t,
                           bool *running) {
    bool gone = u->disabled || u->deleted;
    *running = gone && u->cancel_running;
    for (; t != NULL; t = t->parent) {
        gone |= t->withdrawn;
        *running |= t->withdrawn && t->cancel_running;
    }
    return gone;
}

/* Reading. */

/* `revoked` is written here only: what is counted of it is asked for with each child token made. */
static void accounts_set_revoked(struct accounts *a, struct accounts_token *t, bool revoked) {
    if (t->revoked == revoked)
        return;
    t->revoked = revoked;
    a->live += revoked ? -(size_t)1 : 1;
    if (t->parent != NULL)
        t->user->live_children += revoked ? -(size_t)1 : 1;
}

void accounts_begin(struct accounts *a) {
    for (struct accounts_user *u = a->first_user; u != NULL; u = u->next)
        u->seen = false;
    for (struct accounts_token *t = a->first_token; t != NULL; t = t->next)
        t->seen = false;
}

static struct accounts_user *accounts_add_user(struct accounts *a, const char *name,
                                               struct err *err) {
    struct accounts_user *u = calloc(1, sizeof(*u));
    if (u == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "there is no memory for a user");
        return NULL;
    }
    str_copy(u->name, sizeof(u->name), name);
    u->refs = 1;
    size_t bucket = accounts_text_bucket(name, ACCOUNTS_USER_BUCKETS);
    u->hash_next = a->by_name[bucket];
    a->by_name[bucket] = u;
    u->prev = a->last_user;
    *(a->last_user != NULL ? &a->last_user->next : &a->first_user) = u;
    a->last_user = u;
    a->users++;
    return u;
}

struct accounts_user *accounts_put_user(struct accounts *a, const struct accounts_user *row,
                                        struct err *err) {
    struct accounts_user *u = accounts_user_find(a, row->name);
    if (u == NULL)
        u = accounts_add_user(a, row->name, err);
    if (u == NULL)
        return NULL;
    u->admin = row->admin;
    u->disabled = row->disabled;
    u->cancel_running = row->cancel_running;
    u->deleted = row->deleted;
    u->weight = row->weight;
    u->created_ms = row->created_ms;
    u->quota = row->quota;
    u->seen = true;
    return u;
}

static char *accounts_copy_policies(const char *policies) {
    size_t len = 0;
    while (policies[len] != '\0')
        len += strlen(policies + len) + 1;
    char *copy = malloc(len + 1);
    return copy != NULL ? memcpy(copy, policies, len + 1) : NULL;
}

static void accounts_link_token(struct accounts *a, struct accounts_token *t) {
    size_t bucket = accounts_hash_bucket(&t->hash);
    t->hash_next = a->by_hash[bucket];
    a->by_hash[bucket] = t;
    bucket = accounts_text_bucket(t->id, ACCOUNTS_TOKEN_BUCKETS);
    t->id_next = a->by_id[bucket];
    a->by_id[bucket] = t;
    t->prev = a->last_token;
    *(a->last_token != NULL ? &a->last_token->next : &a->first_token) = t;
    a->last_token = t;
    a->tokens++;
}

static struct accounts_token *accounts_add_token(struct accounts *a,
                                                 const struct accounts_token *row,
                                                 struct accounts_user *user,
                                                 struct accounts_token *parent, struct err *err) {
    struct accounts_token *t = calloc(1, sizeof(*t));
    char *policies =
        t != NULL && row->policies != NULL ? accounts_copy_policies(row->policies) : NULL;
    if (t == NULL || (row->policies != NULL && policies == NULL)) {
        free(t);
        err_set(err, ERR_SYSTEM, ENOMEM, "there is no memory for a token");
        return NULL;
    }
    user->children += parent != NULL;
    *t = *row;
    t->policies = policies;
    t->use = (struct quota_use){0};
    t->user = accounts_user_ref(user);
    t->parent = accounts_token_ref(parent);
    t->depth = parent != NULL ? parent->depth + 1 : 0;
    /* Whatever the store says of it. */
    if (parent != NULL)
        t->scopes &= parent->scopes;
    t->refs = 1;
    t->all = a;
    t->cpu_held_ms = 0;
    t->hash_next = t->id_next = t->next = t->prev = NULL;
    t->revoked = true;
    accounts_link_token(a, t);
    accounts_set_revoked(a, t,
                         user->disabled || user->deleted || (parent != NULL && parent->revoked));
    return t;
}

struct accounts_token *accounts_put_token(struct accounts *a, const struct accounts_token *row,
                                          const char *user, const char *parent, struct err *err) {
    struct accounts_token *t = accounts_token_of_hash(a, &row->hash);
    struct accounts_user *owner = accounts_user_find(a, user);
    struct accounts_token *above = parent != NULL ? accounts_token_find(a, parent) : NULL;
    if (owner == NULL || (parent != NULL && above == NULL)) {
        err_set(err, ERR_INVALID, 0, "the token %s belongs to nobody", row->id);
        return NULL;
    }
    if (t == NULL)
        t = accounts_add_token(a, row, owner, above, err);
    if (t == NULL)
        return NULL;
    /* What may change; budgets that are being spent are ahead of the store. */
    t->withdrawn = row->withdrawn;
    t->cancel_running = row->cancel_running;
    t->from_file = row->from_file;
    t->seen = true;
    return t;
}

static void accounts_unlink_token(struct accounts *a, struct accounts_token *t) {
    struct accounts_token **at = &a->by_hash[accounts_hash_bucket(&t->hash)];
    while (*at != t)
        at = &(*at)->hash_next;
    *at = t->hash_next;
    at = &a->by_id[accounts_text_bucket(t->id, ACCOUNTS_TOKEN_BUCKETS)];
    while (*at != t)
        at = &(*at)->id_next;
    *at = t->id_next;
    *(t->prev != NULL ? &t->prev->next : &a->first_token) = t->next;
    *(t->next != NULL ? &t->next->prev : &a->last_token) = t->prev;
    t->hash_next = t->id_next = t->next = t->prev = NULL;
    a->tokens--;
    t->user->children -= t->parent != NULL;
    t->withdrawn = true;
    accounts_set_revoked(a, t, true);
    t->all = NULL;
    accounts_token_unref(t);
}

static void accounts_unlink_user(struct accounts *a, struct accounts_user *u) {
    struct accounts_user **at = &a->by_name[accounts_text_bucket(u->name, ACCOUNTS_USER_BUCKETS)];
    while (*at != u)
        at = &(*at)->hash_next;
    *at = u->hash_next;
    *(u->prev != NULL ? &u->prev->next : &a->first_user) = u->next;
    *(u->next != NULL ? &u->next->prev : &a->last_user) = u->prev;
    u->hash_next = u->next = u->prev = NULL;
    a->users--;
    u->disabled = u->deleted = true;
    accounts_user_unref(u);
}

size_t accounts_end(struct accounts *a, uint64_t now_ms, uint64_t *next_ms) {
    struct accounts_token *next_token;
    struct accounts_user *next_user;
    /* Marks first: children of one that goes look at it. */
    for (struct accounts_token *t = a->first_token; t != NULL; t = t->next)
        t->withdrawn |= !t->seen;
    size_t changed = accounts_mark(a, now_ms, next_ms);
    for (struct accounts_token *t = a->first_token; t != NULL; t = next_token) {
        next_token = t->next;
        if (!t->seen)
            accounts_unlink_token(a, t);
    }
    for (struct accounts_user *u = a->first_user; u != NULL; u = next_user) {
        next_user = u->next;
        if (!u->seen)
            accounts_unlink_user(a, u);
    }
    return changed;
}

size_t accounts_mark(struct accounts *a, uint64_t now_ms, uint64_t *next_ms) {
    size_t changed = 0;
    *next_ms = ACCOUNTS_NEVER;
    /* By age: a parent comes before its children. */
    for (struct accounts_token *t = a->first_token; t != NULL; t = t->next) {
        bool was = t->revoked;
        accounts_set_revoked(a, t,
                             t->withdrawn || t->user->disabled || t->user->deleted ||
                                 t->expires_ms <= now_ms ||
                                 (t->parent != NULL && t->parent->revoked));
        changed += t->revoked && !was;
        if (!t->revoked && t->expires_ms < *next_ms)
            *next_ms = t->expires_ms;
    }
    return changed;
}

/* Birth and death. */

struct accounts *accounts_new(struct err *err) {
    struct accounts *a = calloc(1, sizeof(*a));
    if (a == NULL)
        err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the table of users");
    return a;
}

void accounts_free(struct accounts *a) {
    if (a == NULL)
        return;
    while (a->first_token != NULL)
        accounts_unlink_token(a, a->first_token);
    while (a->first_user != NULL)
        accounts_unlink_user(a, a->first_user);
    free(a);
}
