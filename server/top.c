#include "top.h"

#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "str.h"

#define TOP_SLOTS 2048u /* of the hash table; a power of two, more than TOP_USERS */

struct top_work {
    struct top *top;
    const char *user; /* NULL = everybody's */
    size_t limit;
    uint16_t slots[TOP_SLOTS]; /* index + 1 of a user */
};

/* users[0] is for those for whom there is no room. */
static struct top_user *top_user_of(struct top_work *w, const char *name) {
    struct top *t = w->top;
    size_t at = str_hash(name, strlen(name)) % TOP_SLOTS;
    while (w->slots[at] != 0) {
        struct top_user *u = &t->users[w->slots[at] - 1];
        if (strcmp(u->name, name) == 0)
            return u;
        at = (at + 1) % TOP_SLOTS;
    }
    if (t->user_count == TOP_USERS)
        return &t->users[0];
    t->users[t->user_count] = (struct top_user){.name = name};
    w->slots[at] = (uint16_t)(t->user_count + 1);
    return &t->users[t->user_count++];
}

static bool top_wants(const struct top_work *w, const char *owner) {
    return w->user == NULL || strcmp(owner, w->user) == 0;
}

static uint64_t top_queued_of(const struct accounts_user *u) {
    uint64_t all = u->use.v[QUOTA_RUNS], jailed = u->use.v[QUOTA_PARALLEL];
    return all > jailed ? all - jailed : 0;
}

/* How many there are is counted already, for the quotas: nobody has to look at each that waits. */
static void top_count_users(struct top_work *w, const struct server *s) {
    const struct accounts *a = s->accounts.accounts;
    struct top *t = w->top;
    for (const struct accounts_user *u = NULL; (u = accounts_user_next(a, u)) != NULL;) {
        uint64_t queued = top_queued_of(u), running = u->use.v[QUOTA_PARALLEL];
        if (queued + running == 0 || !top_wants(w, u->name))
            continue;
        struct top_user *row = top_user_of(w, u->name);
        row->queued += queued;
        row->running += running;
        t->queued += (size_t)queued;
        t->running += (size_t)running;
    }
}

/* Rows are filled from the front with what runs; what waits is appended in a second look. Each look
 * ends when nothing more can come of it. */
static void top_fill_runs(struct top_work *w, const struct server *s) {
    struct top *t = w->top;
    size_t most = t->running < w->limit ? t->running : w->limit, queued = 0;
    for (const struct run *run = s->runs.oldest; run != NULL && t->run_count < most;
         run = run->newer)
        if (run->phase != RUN_DONE && run->phase != RUN_QUEUED && top_wants(w, run->owner))
            t->runs[t->run_count++] = run;
    for (const struct run *run = s->runs.oldest;
         run != NULL && t->run_count < w->limit && queued < t->queued; run = run->newer) {
        if (run->phase != RUN_QUEUED || !top_wants(w, run->owner))
            continue;
        t->runs[t->run_count++] = run;
        queued++;
    }
}

static bool top_lives(const struct sandbox *sb) {
    return sandbox_state(sb) != SANDBOX_GONE;
}

/* The list goes from the newest on. */
static void top_count_sandboxes(struct top_work *w, const struct server *s) {
    struct top *t = w->top;
    for (const struct sandbox *sb = s->sandboxes.newest; sb != NULL; sb = sandbox_older(sb))
        if (top_lives(sb) && top_wants(w, sandbox_owner(sb))) {
            t->sandbox_total++;
            top_user_of(w, sandbox_owner(sb))->sandboxes++;
        }
    size_t skip = t->sandbox_total > w->limit ? t->sandbox_total - w->limit : 0;
    t->sandbox_count = t->sandbox_total - skip;
    size_t at = t->sandbox_count;
    for (const struct sandbox *sb = s->sandboxes.newest; sb != NULL; sb = sandbox_older(sb)) {
        if (!top_lives(sb) || !top_wants(w, sandbox_owner(sb)))
            continue;
        if (skip > 0)
            skip--;
        else if (at > 0)
            t->sandboxes[--at] = sb;
    }
}

int top_gather(const struct server *s, const char *user, size_t limit, struct top *out) {
    struct top t = {.runs = calloc(limit, sizeof(*t.runs)),
                    .sandboxes = calloc(limit, sizeof(*t.sandboxes)),
                    .users = calloc(TOP_USERS, sizeof(*t.users)),
                    .user_count = 1};
    struct top_work *w = calloc(1, sizeof(*w));
    if (t.runs == NULL || t.sandboxes == NULL || t.users == NULL || w == NULL) {
        free(w);
        top_done(&t);
        return -1;
    }
    t.users[0].name = "";
    *w = (struct top_work){.top = &t, .user = user, .limit = limit};
    top_count_users(w, s);
    top_fill_runs(w, s);
    top_count_sandboxes(w, s);
    free(w);
    *out = t;
    return 0;
}

void top_done(struct top *t) {
    free(t->runs);
    free(t->sandboxes);
    free(t->users);
    memset(t, 0, sizeof(*t));
}
