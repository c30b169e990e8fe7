#include "processors.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "str.h"

struct processors_user {
    struct processors_user *next, *prev; /* of all */
    struct processors_user *hash_next;
    struct processors_jail *jails; /* the newest first */
    size_t count;
    uint32_t weight;
    uint32_t divisor; /* a power of two */
    bool dirty;       /* some of the jails may not know */
    char name[];
};

void processors_init(struct processors *p, struct loop *loop, struct links *links) {
    *p = (struct processors){.loop = loop, .links = links};
}

static struct processors_user **processors_slot(struct processors *p, const char *name) {
    struct processors_user **at = &p->buckets[str_hash(name, strlen(name)) % PROCESSORS_BUCKETS];
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->hash_next;
    return at;
}

static void processors_forget(struct processors *p, struct processors_user *u) {
    *processors_slot(p, u->name) = u->hash_next;
    if (u->prev != NULL)
        u->prev->next = u->next;
    else
        p->first = u->next;
    if (u->next != NULL)
        u->next->prev = u->prev;
    p->users--;
    free(u);
}

void processors_stop(struct processors *p) {
    if (p->loop == NULL)
        return;
    loop_timer_stop(p->loop, &p->moment);
    loop_timer_stop(p->loop, &p->look);
    while (p->first != NULL) {
        for (struct processors_jail *j = p->first->jails; j != NULL; j = j->next)
            j->user = NULL;
        processors_forget(p, p->first);
    }
}

static uint32_t processors_shares(const struct processors *p, const struct processors_user *u) {
    if (!p->shared)
        return WIRE_SHARES;
    uint64_t shares = (uint64_t)WIRE_SHARES * u->weight / QUEUE_WEIGHT / u->divisor;
    return shares < WIRE_SHARES_MIN   ? WIRE_SHARES_MIN
           : shares > WIRE_SHARES_MAX ? WIRE_SHARES_MAX
                                      : (uint32_t)shares;
}

/* How many of them want processors; one that has just begun does. */
static size_t processors_wanting(const struct processors_user *u) {
    size_t n = 0;
    for (const struct processors_jail *j = u->jails; j != NULL; j = j->next)
        n += !j->idle;
    return n;
}

static void processors_divide(struct processors_user *u, size_t n, bool lower) {
    uint32_t divisor = 1;
    while (divisor < n)
        divisor *= 2;
    if (divisor == u->divisor || (divisor < u->divisor && !lower))
        return;
    u->divisor = divisor;
    u->dirty = true;
}

/* False: that is enough for one round of the loop. */
static bool processors_tell(struct processors *p, struct processors_user *u, size_t *left) {
    uint32_t shares = processors_shares(p, u);
    bool all = true;
    for (struct processors_jail *j = u->jails; j != NULL; j = j->next) {
        uint32_t told = j->told != 0 ? j->told : WIRE_SHARES;
        if (told == shares || *j->jail == NULL)
            continue;
        if (*left == 0)
            return false;
        (*left)--;
        if (link_weigh(*j->jail, shares))
            j->told = shares;
        else
            all = false; /* in a moment */
    }
    u->dirty = !all;
    return all;
}

static void processors_soon(struct processors *p);

static void processors_moment(void *arg) {
    struct processors *p = arg;
    size_t left = PROCESSORS_SLICE;
    bool done = true;
    for (struct processors_user *u = p->first; u != NULL; u = u->next) {
        if (!u->dirty)
            continue;
        processors_divide(u, processors_wanting(u), false);
        done = processors_tell(p, u, &left) && done;
    }
    if (!done)
        processors_soon(p);
}

static void processors_soon(struct processors *p) {
    if (p->moment.slot == 0)
        loop_timer_at(p->loop, &p->moment, clock_mono_ns() + PROCESSORS_MOMENT_NS,
                      processors_moment, p, NULL);
}

/* What the last look has seen: too long ago, and it is taken for one that wants to compute. */
static void processors_judge(struct processors_user *u, uint64_t now) {
    for (struct processors_jail *j = u->jails; j != NULL; j = j->next) {
        struct link_sight sight;
        j->idle = link_sighted(*j->jail, &sight) && now - sight.at_ns <= 2 * PROCESSORS_LOOK_NS &&
                  sight.cpus_milli < PROCESSORS_IDLE_MILLI;
    }
}

/* Twice a second while there is more than one user, and once more to make all equal again. */
static void processors_look(void *arg) {
    struct processors *p = arg;
    uint64_t now = clock_mono_ns();
    bool many = false;
    if (p->still)
        p->shared = false;
    p->still = p->users < 2;
    for (struct processors_user *u = p->first; u != NULL; u = u->next) {
        many = many || u->count > 1;
        processors_judge(u, now);
        processors_divide(u, processors_wanting(u), true);
        u->dirty = true;
    }
    processors_moment(p);
    if (!p->shared)
        return;
    for (size_t i = 0; many && !p->still && i < p->links->count; i++)
        link_look(p->links->items[i], WIRE_LOOK_BUSY);
    loop_timer_at(p->loop, &p->look, now + PROCESSORS_LOOK_NS, processors_look, p, NULL);
}

static struct processors_user *processors_find(struct processors *p, const char *name) {
    struct processors_user **at = processors_slot(p, name);
    size_t size = strlen(name) + 1;
    if (*at != NULL)
        return *at;
    struct processors_user *u = calloc(1, sizeof(*u) + size);
    if (u == NULL)
        return NULL;
    memcpy(u->name, name, size);
    u->divisor = 1;
    u->next = p->first;
    if (u->next != NULL)
        u->next->prev = u;
    p->first = *at = u;
    p->users++;
    return u;
}

void processors_busy(struct processors *p, struct processors_jail *j, const char *user,
                     uint32_t weight, struct link_jail **jail) {
    struct processors_user *u = j->user == NULL ? processors_find(p, user) : NULL;
    if (u == NULL)
        return;
    j->user = u;
    j->jail = jail;
    j->idle = false;
    j->prev = NULL;
    j->next = u->jails;
    if (j->next != NULL)
        j->next->prev = j;
    u->jails = j;
    u->count++;
    u->weight = weight != 0 ? weight : QUEUE_WEIGHT;
    if (p->users > 1) {
        p->still = false;
        if (!p->shared) {
            p->shared = true;
            for (struct processors_user *each = p->first; each != NULL; each = each->next)
                each->dirty = true;
            loop_timer_at(p->loop, &p->look, clock_mono_ns() + PROCESSORS_LOOK_NS, processors_look,
                          p, NULL);
        }
    }
    u->dirty = true;
    if (p->shared || j->told == PROCESSORS_UNKNOWN)
        processors_soon(p);
}

void processors_rest(struct processors *p, struct processors_jail *j) {
    struct processors_user *u = j->user;
    if (u == NULL)
        return;
    if (j->prev != NULL)
        j->prev->next = j->next;
    else
        u->jails = j->next;
    if (j->next != NULL)
        j->next->prev = j->prev;
    j->user = NULL;
    if (--u->count == 0)
        processors_forget(p, u);
}
