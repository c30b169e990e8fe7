#include "processors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "str.h"

/* Who had no more than this part of his part is one who wants little. */
#define PROCESSORS_LITTLE_PERCENT 75u
/* Who has so much more than anybody else gives way to them; who does so already, from here on. */
#define PROCESSORS_MUCH_PERCENT 200u
#define PROCESSORS_STILL_PERCENT 130u
/* All processors were wanted all the time, roughly: who had little may have got no more. */
#define PROCESSORS_FULL_PERCENT 90u
#define PROCESSORS_MILLI 1000u

struct processors_user {
    struct processors_user *next, *prev; /* of all */
    struct processors_user *hash_next;
    struct processors_jail *jails; /* the newest first */
    size_t count;
    uint32_t weight;
    uint32_t divisor;  /* a power of two */
    bool dirty;        /* some of the jails may not know */
    bool yields;       /* they get what others leave */
    uint64_t since_ns; /* he is known */
    uint64_t used_ns;  /* of processors, since the last look: as far as is known */
    uint64_t ran_ns;   /* the same time as if each of his jails had had one */
    uint64_t wants;    /* thousandths of a processor, at the last look */
    char name[];
};

void processors_init(struct processors *p, struct loop *loop, struct links *links) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *p = (struct processors){.loop = loop, .links = links, .cpus = cpus > 0 ? (uint64_t)cpus : 1};
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
    if (u->yields)
        return WIRE_SHARES_LEFT;
    uint64_t shares = (uint64_t)WIRE_SHARES * u->weight / QUEUE_WEIGHT / u->divisor;
    return shares < WIRE_SHARES_MIN   ? WIRE_SHARES_MIN
           : shares > WIRE_SHARES_MAX ? WIRE_SHARES_MAX
                                      : (uint32_t)shares;
}

/* In the group of those that get what others leave, one that is not in need of its part must not
 * lend it to others. */
static uint32_t processors_shares_of(const struct processors *p, const struct processors_jail *j) {
    return j->left && j->idle && p->shared ? WIRE_SHARES_LEFT : processors_shares(p, j->user);
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
    bool all = true;
    for (struct processors_jail *j = u->jails; j != NULL; j = j->next) {
        uint32_t told = j->told != 0 ? j->told : WIRE_SHARES;
        uint32_t shares = processors_shares_of(p, j);
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

/* What a jail had since it was looked at last, or began. */
static void processors_count(const struct processors *p, struct processors_jail *j, uint64_t now,
                             uint64_t cpu_ns) {
    uint64_t since = j->since_ns > p->since_ns ? j->since_ns : p->since_ns;
    uint64_t ran = now > since ? now - since : 0;
    uint64_t used = ran * j->milli / PROCESSORS_MILLI;
    if (!j->looked && cpu_ns < ran * p->cpus)
        used = cpu_ns;
    j->user->ran_ns += ran;
    j->user->used_ns += used;
    j->since_ns = now;
}

/* What the last look has seen: too long ago, and it is taken for one that wants to compute. */
static void processors_judge(const struct processors *p, struct processors_user *u, uint64_t now) {
    for (struct processors_jail *j = u->jails; j != NULL; j = j->next) {
        struct link_sight sight;
        bool known = link_sighted(*j->jail, &sight) &&
                     now - sight.at_ns <= 2 * PROCESSORS_LOOK_NS && sight.cpus_milli != UINT32_MAX;
        /* What it would have used, nobody knows while it gives way. */
        j->idle = known && !u->yields && !p->changed && sight.cpus_milli < PROCESSORS_IDLE_MILLI;
        j->milli = known ? sight.cpus_milli : PROCESSORS_MILLI;
        processors_count(p, j, now, PROCESSORS_UNKNOWN_NS);
        j->looked = true;
    }
}

/* Of users who had something since the last look: how many, what they weigh, had and want. */
struct processors_sum {
    size_t users;
    uint64_t weight, used_ns, wants;
};

static bool processors_was_there(const struct processors_user *u) {
    return u->count > 0 || u->ran_ns > 0;
}

/* What a user would have had while he was there, if others had left it to him. */
static uint64_t processors_wants(const struct processors *p, const struct processors_user *u,
                                 uint64_t now, bool full) {
    uint64_t since = u->since_ns > p->since_ns ? u->since_ns : p->since_ns;
    uint64_t ns = u->yields && full && u->ran_ns > u->used_ns ? u->ran_ns : u->used_ns;
    return now > since ? ns * PROCESSORS_MILLI / (now - since) : 0;
}

static struct processors_sum processors_add(const struct processors *p, uint64_t now) {
    struct processors_sum sum = {0};
    for (const struct processors_user *u = p->first; u != NULL; u = u->next) {
        if (!processors_was_there(u))
            continue;
        sum.users++;
        sum.weight += u->weight;
        sum.used_ns += u->used_ns;
    }
    bool full = sum.used_ns >= (now - p->since_ns) * p->cpus / 100 * PROCESSORS_FULL_PERCENT;
    for (struct processors_user *u = p->first; u != NULL; u = u->next) {
        u->wants = processors_wants(p, u, now, full);
        sum.wants += u->wants;
    }
    return sum;
}

/* Does he give way to all others? Not to those who are gone, and not so that less than his part
 * would be left for him. */
static bool processors_gives_way(const struct processors *p, const struct processors_user *most,
                                 const struct processors_sum *sum) {
    uint64_t all = p->cpus * PROCESSORS_MILLI, part = all * most->weight / sum->weight;
    bool more = most->yields || most->wants > part, much = true;
    uint64_t times = most->yields ? PROCESSORS_STILL_PERCENT : PROCESSORS_MUCH_PERCENT;
    for (const struct processors_user *u = p->first; u != NULL; u = u->next) {
        if (u == most || u->count == 0)
            continue;
        more = more && u->wants * 100 <= all * u->weight / sum->weight * PROCESSORS_LITTLE_PERCENT;
        much = much && u->wants * most->weight * times <= most->wants * u->weight * 100;
    }
    return (more || much) &&
           sum->wants - most->wants <= (all - part) / 100 * PROCESSORS_LITTLE_PERCENT;
}

/* The one who wants most, for his weight, if he gives way; or NULL. */
static struct processors_user *processors_most(const struct processors *p,
                                               const struct processors_sum *sum) {
    struct processors_user *most = NULL;
    for (struct processors_user *u = p->first; u != NULL; u = u->next)
        if (u->count > 0 && (most == NULL || u->wants * most->weight > most->wants * u->weight))
            most = u;
    return most != NULL && processors_gives_way(p, most, sum) ? most : NULL;
}

/* Who yields from now on; of somebody alone that is not known, and stays. What is known of jails is
 * a look old: after a change nothing is decided until it is of the time since. Forgets those who
 * had nothing to do. */
static void processors_rate(struct processors *p, uint64_t now) {
    struct processors_sum sum = processors_add(p, now);
    const struct processors_user *most = sum.users > 1 ? processors_most(p, &sum) : NULL;
    bool still = sum.users < 2, keep = still || p->changed;
    p->changed = false;
    if (p->still && still)
        p->shared = false;
    p->still = still;
    p->since_ns = now;
    for (struct processors_user *u = p->first, *next; u != NULL; u = next) {
        next = u->next;
        bool yields = keep ? u->yields : u == most;
        p->changed = p->changed || yields != u->yields;
        u->yields = yields;
        u->dirty = true;
        if (u->count == 0 && (u->ran_ns == 0 || still))
            processors_forget(p, u);
        else
            u->used_ns = u->ran_ns = 0;
    }
}

static void processors_look_by(struct processors *p, uint64_t due_ns);

/* Twice a second while there is more than one user, and once more to make all equal again. */
static void processors_look(void *arg) {
    struct processors *p = arg;
    uint64_t now = clock_mono_ns();
    for (struct processors_user *u = p->first; u != NULL; u = u->next) {
        processors_judge(p, u, now);
        processors_divide(u, processors_wanting(u), true);
    }
    processors_rate(p, now);
    processors_moment(p);
    if (!p->shared)
        return;
    for (size_t i = 0; !p->still && i < p->links->count; i++)
        link_look(p->links->items[i], WIRE_LOOK_BUSY);
    p->soon = p->changed ? PROCESSORS_SOON : p->soon;
    processors_look_by(p, now + (p->soon > 0 ? PROCESSORS_SOON_NS : PROCESSORS_LOOK_NS));
    p->soon -= p->soon > 0;
}

static void processors_look_by(struct processors *p, uint64_t due_ns) {
    if (p->look.slot == 0 || p->look.due_ns > due_ns)
        loop_timer_at(p->loop, &p->look, due_ns, processors_look, p, NULL);
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
    return u;
}

void processors_busy(struct processors *p, struct processors_jail *j, const char *user,
                     uint32_t weight, struct link_jail **jail) {
    struct processors_user *u = j->user == NULL ? processors_find(p, user) : NULL;
    if (u == NULL)
        return;
    j->user = u;
    j->jail = jail;
    j->idle = j->looked = false;
    j->milli = PROCESSORS_MILLI;
    j->since_ns = clock_mono_ns();
    bool known = u->since_ns != 0;
    u->since_ns = known ? u->since_ns : j->since_ns;
    j->prev = NULL;
    j->next = u->jails;
    if (j->next != NULL)
        j->next->prev = j;
    u->jails = j;
    p->users += u->count++ == 0;
    u->weight = weight != 0 ? weight : QUEUE_WEIGHT;
    if (p->users > 1) {
        p->still = false;
        uint64_t due_ns = j->since_ns + PROCESSORS_FIRST_NS;
        if (!p->shared) {
            p->shared = true;
            p->since_ns = j->since_ns;
            for (struct processors_user *each = p->first; each != NULL; each = each->next)
                each->dirty = true;
            processors_look_by(p, due_ns);
        } else if (!known) { /* where users come and go, not for each of them */
            uint64_t least_ns = p->since_ns + PROCESSORS_GAP_NS;
            processors_look_by(p, due_ns > least_ns ? due_ns : least_ns);
        }
    }
    u->dirty = true;
    if (p->shared || j->told == PROCESSORS_UNKNOWN)
        processors_soon(p);
    if (processors_shares(p, u) == WIRE_SHARES_LEFT && j->told != WIRE_SHARES_LEFT &&
        *jail != NULL && link_weigh(*jail, WIRE_SHARES_LEFT))
        j->told = WIRE_SHARES_LEFT;
}

bool processors_opens_left(struct processors *p, struct processors_jail *j, const char *user) {
    const struct processors_user *u = *processors_slot(p, user);
    bool left = u != NULL && processors_shares(p, u) == WIRE_SHARES_LEFT;
    j->told = left ? WIRE_SHARES_LEFT : j->told;
    j->left = left;
    return left;
}

void processors_rest(struct processors *p, struct processors_jail *j, uint64_t cpu_ns) {
    struct processors_user *u = j->user;
    if (u == NULL)
        return;
    processors_count(p, j, clock_mono_ns(), cpu_ns);
    if (j->prev != NULL)
        j->prev->next = j->next;
    else
        u->jails = j->next;
    if (j->next != NULL)
        j->next->prev = j->prev;
    j->user = NULL;
    if (j->left && j->told != WIRE_SHARES_LEFT && *j->jail != NULL &&
        link_weigh(*j->jail, WIRE_SHARES_LEFT))
        j->told = WIRE_SHARES_LEFT; /* as above */
    p->users -= --u->count == 0;
    if (u->count == 0 && !p->shared)
        processors_forget(p, u);
}
