#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "pool_internal.h"
#include "str.h"

#define POOL_RETRY_NS (1 * CLOCK_NS_PER_S)  /* after a jail could not be made */
#define POOL_IDLE_NS (300 * CLOCK_NS_PER_S) /* until a kind is no longer kept warm */
/* … that is for who gets what others leave: no less than between the ends of runs that compute for
 * a second, or the next ones find none, and get groups of their own (see cgroup_left_init()). */
#define POOL_LEFT_IDLE_NS (2 * CLOCK_NS_PER_S)
#define POOL_SPARE 16 /* slots of jails that are dying */

static void pool_ready(void *arg, struct jail *jail);
static void pool_failed(void *arg, struct jail *jail, const char *stage, int code,
                        const char *text);
static void pool_gone(void *arg, struct jail *jail);
static void pool_tick(void *arg);

static void pool_run_ended(void *arg, struct jail *jail, void *owner, const struct wire_end *end) {
    (void)arg;
    (void)owner;
    (void)end;
    jail_kill(jail); /* nothing runs in a jail that nobody took */
}

static const struct jail_events pool_events = {
    .ready = pool_ready, .failed = pool_failed, .ended = pool_run_ended, .gone = pool_gone};

static void pool_changed(struct pool *p) {
    if (p->cfg.changed != NULL) {
        p->cfg.changed(p->cfg.arg);
    }
}

static void pool_sick(struct pool *p, const char *text) {
    if (!str_copy(p->health, sizeof p->health, text)) {
        (void)str_copy(p->health, sizeof p->health, "jails cannot be made");
    }
    pool_changed(p);
}

static int pool_slot(struct pool *p, unsigned *slot, struct err *err) {
    for (unsigned i = 0; i < p->slots; i++) {
        unsigned s = (p->next_slot + i) % p->slots;
        if (!p->taken[s]) {
            p->taken[s] = true;
            p->next_slot = s + 1;
            *slot = s;
            return 0;
        }
    }
    return err_set(err, ERR_LIMIT, EAGAIN, "every slot of this runner is taken");
}

void pool_room(struct pool *p) {
    if (p->cfg.room != NULL) {
        p->cfg.room(p->cfg.arg);
    }
}

void pool_settled(struct pool *p, struct jail *jail) {
    if (jail->fresh) {
        jail->fresh = false;
        p->cfg.host->building--;
        pool_room(p);
    }
}

/* -> the kind in whose list it is, *at there; NULL = in none. */
static struct pool_kind *pool_find(struct pool *p, const struct jail *jail, unsigned *at) {
    for (unsigned i = 0; i < p->kinds; i++) {
        struct pool_kind *k = &p->kind[i];
        for (unsigned n = 0; n < k->count; n++) {
            if (k->jail[n] == jail) {
                *at = n;
                return k;
            }
        }
    }
    return NULL;
}

struct pool_kind *pool_drop(struct pool *p, const struct jail *jail) {
    unsigned at = 0;
    struct pool_kind *k = pool_find(p, jail, &at);
    if (k != NULL) {
        k->jail[at] = k->jail[--k->count];
    }
    return k;
}

struct jail *pool_make(struct pool *p, struct pool_kind *k, struct err *err) {
    bool contained = p->cfg.host->maker->contained;
    unsigned slot = 0;
    if (pool_kind_template(k, p->cfg.host, p->cfg.images_dirfd, err) != 0 ||
        pool_slot(p, &slot, err) != 0) {
        return NULL;
    }
    const struct jail_plan plan = {
        .template_ns = k->root.mnt_ns,
        .image = k->ref,
        .image_name = k->image,
        .syscalls = k->policy->syscalls,
        .bpf = &p->cfg.programs[k->policy->syscalls],
        .writable = k->policy->writable,
        .limits = k->policy->preset,
        .ceiling = k->policy->ceiling,
        .id_base = contained
                       ? 0 /* known when it is born */
                       : jail_ids_base(&p->cfg.host->ids, p->cfg.shard * POOL_SLOTS_MAX + slot),
        .id_count = contained ? SPAWN_IDS_ALL : p->cfg.host->ids.count,
        .slot = slot,
        .left = k->left,
    };
    struct jail *jail = jail_new(p->cfg.host, &plan, &pool_events, p, err);
    if (jail == NULL) {
        p->taken[slot] = false;
        return NULL;
    }
    p->made++;
    p->cfg.host->building++;
    jail->fresh = true;
    return jail;
}

void pool_forget(struct pool *p, struct pool_kind *k) {
    pool_kind_discard(k);
    rootfs_done(&k->root);
    *k = p->kind[--p->kinds];
    p->kind[p->kinds].count = 0;
}

struct pool_kind *pool_kind_get(struct pool *p, const struct policy *policy, const char *image,
                                bool left, struct err *err) {
    struct pool_kind *oldest = NULL;
    for (unsigned i = 0; i < p->kinds; i++) {
        struct pool_kind *k = &p->kind[i];
        if (k->policy == policy && k->left == left && strcmp(k->image, image) == 0) {
            return k;
        }
        if (!k->keep && (oldest == NULL || k->used_ns < oldest->used_ns)) {
            oldest = k;
        }
    }
    if (p->kinds == POOL_KINDS_MAX) {
        if (oldest == NULL) {
            (void)err_set(err, ERR_LIMIT, 0, "too many kinds of jails are kept warm");
            return NULL;
        }
        pool_forget(p, oldest);
    }
    struct pool_kind *k = &p->kind[p->kinds];
    memset(k, 0, sizeof *k);
    k->root.mnt_ns = -1;
    k->policy = policy;
    k->left = left;
    if (!str_copy(k->image, sizeof k->image, image)) {
        (void)err_set(err, ERR_INVALID, 0, "the image name is too long");
        return NULL;
    }
    p->kinds++;
    return k;
}

void pool_later(struct pool *p, uint64_t due_ns) {
    if (!p->stopped && (p->timer.slot == 0 || due_ns < p->timer.due_ns)) {
        (void)loop_timer_at(p->cfg.host->loop, &p->timer, due_ns, pool_tick, p, NULL);
    }
}

unsigned pool_left_most(const struct pool *p) {
    return p->cfg.warm / POOL_LEFT_PART;
}

unsigned pool_left_want(const struct pool *p) {
    unsigned n = 0;
    for (unsigned i = 0; i < p->kinds; i++) {
        n += p->kind[i].left ? p->kind[i].want : 0;
    }
    return n;
}

unsigned pool_want(const struct pool *p, const struct pool_kind *k) {
    unsigned left = pool_left_want(p);
    return !k->keep ? p->cfg.warm_more : p->cfg.warm > left ? p->cfg.warm - left : 0;
}

/* Those and what is kept from the start are together what `warm` says. */
static bool pool_left_full(const struct pool *p) {
    unsigned n = 0;
    for (unsigned i = 0; i < p->kinds; i++) {
        n += p->kind[i].left || p->kind[i].keep ? p->kind[i].count : 0;
    }
    return n >= p->cfg.warm;
}

static bool pool_hurries(const struct pool_kind *k) {
    return k->rush && k->count < pool_rush_until(k);
}

/* Does k lack one more than `found` does? What others get: one that has none at all comes first.
 * What is for who gets what others leave: if nobody waits for the other one, and it has more. */
static bool pool_needs_more(const struct pool *p, const struct pool_kind *k,
                            const struct pool_kind *found) {
    if (k->left) {
        return !pool_left_full(p) &&
               (found == NULL || (!pool_hurries(found) && k->count < found->count));
    }
    return found == NULL || k->count == 0 || (found->left && !pool_needs_more(p, found, k));
}

/* Which kind lacks a warm jail? Only while none is being made. Those that pause are looked at again
 * when they have. */
static struct pool_kind *pool_needy(struct pool *p, uint64_t now) {
    struct pool_kind *found = NULL;
    for (unsigned i = 0; i < p->kinds && p->cfg.host->building == 0; i++) {
        struct pool_kind *k = &p->kind[i];
        if (k->count >= k->want) {
            continue;
        }
        if (now < k->backoff.until_ns) {
            pool_later(p, k->backoff.until_ns);
        } else if (pool_needs_more(p, k, found)) {
            found = k;
        }
    }
    return found;
}

/* Is the kind that is kept warm lost again and again? */
static bool pool_loses(const struct pool *p) {
    for (unsigned i = 0; i < p->kinds; i++) {
        if (p->kind[i].keep && pool_backoff_sick(&p->kind[i].backoff)) {
            return true;
        }
    }
    return false;
}

/* Is there a kind that has fewer than it should, also one that pauses, or that will lose them? */
static bool pool_lacks(const struct pool *p) {
    for (unsigned i = 0; i < p->kinds; i++) {
        if (p->kind[i].count < p->kind[i].want) {
            return true;
        }
    }
    return pool_loses(p);
}

/* A warm jail was lost. A kind that is not kept is no longer made warm when none stays alive; of
 * the one that is, people are told. */
static void pool_lost(struct pool *p, struct pool_kind *k, const char *why) {
    char text[WIRE_TEXT_MAX];
    uint64_t now = clock_mono_ns();
    pool_backoff_lost(&k->backoff, now);
    if (!pool_backoff_sick(&k->backoff)) {
        return;
    }
    if (!k->keep) {
        k->want = 0;
        return;
    }
    (void)snprintf(text, sizeof text,
                   "jails that are kept warm are lost as soon as they are made, %u in a row: %s; "
                   "the next is made in %u ms",
                   k->backoff.lost, why, (unsigned)((k->backoff.until_ns - now) / CLOCK_NS_PER_MS));
    pool_sick(p, text);
}

static void pool_recover(struct pool *p, uint64_t now) {
    for (unsigned i = 0; i < p->kinds; i++) {
        struct pool_backoff *b = &p->kind[i].backoff;
        bool sick = pool_backoff_sick(b);
        if (pool_backoff_well(b, now) && sick && p->kind[i].keep) {
            p->health[0] = '\0';
            pool_changed(p);
        } else if (b->steady_ns != 0) {
            pool_later(p, b->steady_ns);
        }
    }
}

/* What is kept from the start gets back, or gives, what is for who gets what others leave. */
void pool_share(struct pool *p) {
    for (unsigned i = 0; i < p->kinds; i++) {
        if (p->kind[i].keep) {
            p->kind[i].want = pool_want(p, &p->kind[i]);
        }
    }
}

static void pool_expire(struct pool *p, uint64_t now) {
    for (unsigned i = p->kinds; i-- > 0;) {
        struct pool_kind *k = &p->kind[i];
        uint64_t end_ns = k->used_ns + (k->left ? POOL_LEFT_IDLE_NS : POOL_IDLE_NS);
        if (!k->keep && now > end_ns) {
            pool_forget(p, k);
            pool_share(p);
        } else if (k->left) {
            pool_later(p, end_ns + 1);
        }
    }
}

uint32_t pool_warm(const struct pool_kind *k) {
    uint32_t warm = 0;
    for (unsigned n = 0; n < k->count; n++) {
        warm += k->jail[n]->state == JAIL_READY;
    }
    return warm;
}

/* How many there are to be before refills stand back again, once somebody modest has come near to
 * what is for others: so he seldom has to wait. */
unsigned pool_rush_until(const struct pool_kind *k) {
    return k->want - k->want / 4;
}

static void pool_tick(void *arg) {
    struct pool *p = arg;
    struct err err;
    uint64_t now = clock_mono_ns();
    pool_expire(p, now);
    pool_recover(p, now);
    struct pool_kind *k = pool_needy(p, now);
    if (k == NULL) {
        p->refill.since_ns = 0;
        if (p->health[0] != '\0' && p->cfg.host->building == 0 && !pool_lacks(p)) {
            p->health[0] = '\0'; /* the kind that could not be made is none any more */
            pool_changed(p);
        }
        if (p->kinds > 1) {
            pool_later(p, now + POOL_IDLE_NS);
        }
        return;
    }
    uint64_t due_ns = pool_refill_due(&p->refill, k->count, k->want, now);
    k->rush = k->rush && k->count < pool_rush_until(k);
    if (now < due_ns && !k->rush) {
        pool_later(p, due_ns);
        return;
    }
    struct jail *jail = pool_make(p, k, &err);
    if (jail == NULL && k->rush && err.kind != ERR_LIMIT) {
        pool_room(p); /* who waits for it learns why there is none; of a slot he is told later */
    }
    if (jail == NULL && err.kind == ERR_INVALID && !k->keep) {
        pool_forget(p, k); /* its image was removed: whoever asks for it is told */
        pool_later(p, now);
        return;
    }
    if (jail == NULL) {
        if (err.kind != ERR_LIMIT) {
            k->backoff.until_ns = now + POOL_RETRY_NS;
            pool_sick(p, err.text);
        }
        pool_later(p, now + (err.kind == ERR_LIMIT ? POOL_REFILL_PATIENCE_NS : POOL_RETRY_NS));
        return;
    }
    k->jail[k->count++] = jail;
}

static void pool_ready(void *arg, struct jail *jail) {
    struct pool *p = arg;
    unsigned at = 0;
    struct pool_kind *k = pool_find(p, jail, &at);
    pool_settled(p, jail);
    if (!jail_is_ready(jail)) {
        /* Its first child died while it waited, and only with that one can it be given the limits
         * of a run: nobody gets it. */
        (void)pool_drop(p, jail);
        jail_kill(jail);
        if (k != NULL) {
            pool_lost(p, k, "their first process dies");
        }
    } else if (k != NULL) {
        pool_backoff_ready(&k->backoff, clock_mono_ns());
    }
    if (!pool_loses(p)) {
        p->health[0] = '\0';
    }
    p->refill.since_ns = 0;
    pool_changed(p);
    pool_later(p, clock_mono_ns());
}

static void pool_failed(void *arg, struct jail *jail, const char *stage, int code,
                        const char *text) {
    struct pool *p = arg;
    struct err err;
    struct pool_kind *k = pool_drop(p, jail);
    bool making = jail->fresh;
    uint64_t retry_ns = clock_mono_ns() + POOL_RETRY_NS;
    (void)err_set(&err, ERR_SYSTEM, code, "%s (step %s: %s)", text, stage, strerror(code));
    if (k != NULL && !k->keep && strcmp(stage, JAIL_STAGE_IMAGE) == 0) {
        k->want = 0; /* it is the image's fault: whoever asks for it is told */
    } else if (k == NULL || making) {
        pool_sick(p, err.text);
    }
    if (k != NULL) {
        pool_lost(p, k, err.text);
    }
    if (k != NULL && making && k->backoff.until_ns < retry_ns) {
        k->backoff.until_ns = retry_ns;
    }
    pool_settled(p, jail);
    pool_later(p, retry_ns);
}

static void pool_gone(void *arg, struct jail *jail) {
    struct pool *p = arg;
    struct pool_kind *k = p->stopped ? NULL : pool_drop(p, jail);
    if (k != NULL) {
        pool_lost(p, k, "their process 1 dies");
    }
    pool_settled(p, jail);
    p->taken[jail->slot] = false;
    jail_free(jail);
    pool_room(p);
    pool_later(p, clock_mono_ns());
}

struct pool *pool_new(const struct pool_config *cfg, struct err *err) {
    struct pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        (void)err_sys(err, "making the pool");
        return NULL;
    }
    p->cfg = *cfg;
    p->cfg.warm = cfg->warm < POOL_KIND_WARM_MAX ? cfg->warm : POOL_KIND_WARM_MAX;
    p->cfg.warm_more = cfg->warm_more < POOL_KIND_WARM_MAX ? cfg->warm_more : POOL_KIND_WARM_MAX;
    p->slots = cfg->slots + cfg->sandboxes + p->cfg.warm + p->cfg.warm_more * 3 + POOL_SPARE;
    p->slots = p->slots > POOL_SLOTS_MAX ? POOL_SLOTS_MAX : p->slots;
    p->taken = calloc(p->slots, sizeof *p->taken);
    if (p->taken == NULL) {
        (void)err_sys(err, "making the pool");
        pool_free(p);
        return NULL;
    }
    const struct policy *policy = policy_find(cfg->policies, "default");
    if (!cfg->keep_host) {
        return p;
    }
    struct pool_kind *k = policy ? pool_kind_get(p, policy, ROOTFS_IMAGE_HOST, false, err) : NULL;
    if (k == NULL || pool_kind_template(k, p->cfg.host, p->cfg.images_dirfd, err) != 0) {
        pool_free(p);
        return NULL;
    }
    k->keep = true;
    k->want = p->cfg.warm;
    return p;
}

void pool_start(struct pool *p) {
    pool_later(p, clock_mono_ns());
}

void pool_stop(struct pool *p) {
    p->stopped = true;
    loop_timer_stop(p->cfg.host->loop, &p->timer);
    for (unsigned i = 0; i < p->kinds; i++) {
        pool_kind_discard(&p->kind[i]);
    }
}

bool pool_empty(const struct pool *p) {
    for (unsigned i = 0; i < p->slots; i++) {
        if (p->taken[i]) {
            return false;
        }
    }
    return true;
}

void pool_free(struct pool *p) {
    if (p == NULL) {
        return;
    }
    loop_timer_stop(p->cfg.host->loop, &p->timer);
    for (unsigned i = 0; i < p->kinds; i++) {
        pool_kind_discard(&p->kind[i]);
        rootfs_done(&p->kind[i].root);
    }
    free(p->taken);
    free(p);
}

void pool_release(struct pool *p, struct jail *jail) {
    pool_settled(p, jail);
    *(jail->stays ? &p->stay : &p->in_use) -= 1;
    p->taken[jail->slot] = false;
    jail_free(jail);
    pool_room(p);
    pool_later(p, clock_mono_ns());
}

void pool_began(struct pool *p) {
    pool_refill_began(&p->refill, clock_mono_ns());
}

void pool_ended(struct pool *p) {
    pool_later(p, pool_refill_ended(&p->refill, clock_mono_ns()));
}

void pool_kinds(const struct pool *p,
                void (*fn)(void *arg, const char *policy, const char *image, uint32_t warm),
                void *arg) {
    for (unsigned i = 0; i < p->kinds; i++) {
        const struct pool_kind *k = &p->kind[i];
        if (!k->left) {
            fn(arg, k->policy->name, k->image, pool_warm(k));
        }
    }
}

void pool_stats(const struct pool *p, struct pool_stats *out) {
    out->warm = 0;
    for (unsigned i = 0; i < p->kinds; i++) {
        out->warm += p->kind[i].left ? 0 : pool_warm(&p->kind[i]);
    }
    out->in_use = p->in_use;
    out->made = p->made;
    out->taken_warm = p->taken_warm;
    out->health = p->health;
    if (p->health[0] == '\0' && p->cfg.host->maker->health != NULL) {
        out->health = p->cfg.host->maker->health(p->cfg.host->maker->arg);
    }
}
