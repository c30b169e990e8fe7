/* Who gets which jail. */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "pool_internal.h"

/* Is what is ready for others? Not when more of it may not be made for a while. */
static bool pool_holds_back(struct pool *p, struct pool_kind *k, uint64_t now) {
    if (k->count < pool_rush_until(k)) {
        k->rush = true;
        pool_later(p, now);
    }
    return k->want > 1 && pool_warm(k) <= k->want / 2 && now >= k->backoff.until_ns;
}

/* The warm jail that is ready, else one that is being made. */
static struct jail *pool_pick(struct pool *p, struct pool_kind *k) {
    struct jail *best = NULL;
    for (unsigned i = 0; i < k->count; i++) {
        if (k->jail[i]->state == JAIL_READY) {
            best = k->jail[i];
            p->taken_warm++;
            break;
        }
        best = k->jail[i];
    }
    if (best != NULL) {
        (void)pool_drop(p, best);
    }
    return best;
}

/* A warm jail of another kind gives up its slot: somebody waits for one. */
static void pool_steal(struct pool *p, const struct pool_kind *mine) {
    struct pool_kind *victim = NULL;
    for (unsigned i = 0; i < p->kinds; i++) {
        struct pool_kind *k = &p->kind[i];
        if (k != mine && k->count > 0 && (victim == NULL || k->used_ns < victim->used_ns)) {
            victim = k;
        }
    }
    if (victim != NULL) {
        victim->want = 0; /* until it is asked for again */
        jail_kill(victim->jail[--victim->count]);
    }
}

static bool pool_has_room(const struct pool *p, bool stays) {
    return stays ? p->stay < p->cfg.sandboxes : p->in_use < p->cfg.slots;
}

/* What it is made of is what the image is now. */
static int pool_template(struct pool *p, struct pool_kind *k, const struct pool_wish *wish,
                         struct err *err) {
    bool host = strcmp(wish->image, ROOTFS_IMAGE_HOST) == 0 && !p->cfg.host->maker->contained;
    return host ? 0 : pool_kind_template(k, p->cfg.host, p->cfg.images_dirfd, err);
}

/* The kind for who gets what others leave. NULL: there is none, and no room for one more. */
static struct pool_kind *pool_left_kind(struct pool *p, const struct pool_wish *wish) {
    struct err err;
    for (unsigned i = 0; i < p->kinds; i++) {
        struct pool_kind *k = &p->kind[i];
        if (k->left && k->policy == wish->policy && strcmp(k->image, wish->image) == 0) {
            return k;
        }
    }
    bool room = p->kinds < POOL_KINDS_MAX / 2 && pool_left_want(p) < pool_left_most(p);
    return room ? pool_kind_get(p, wish->policy, wish->image, true, &err) : NULL;
}

/* A jail that was made for who gets what others leave. NULL: none of those is ready. The more often
 * he asks, the more of them are made. */
static struct jail *pool_give_left(struct pool *p, const struct pool_wish *wish, uint64_t now) {
    struct err err;
    struct jail *jail = NULL;
    struct pool_kind *k = p->cfg.host->cgroups->left.can ? pool_left_kind(p, wish) : NULL;
    if (k == NULL) {
        return NULL;
    }
    k->used_ns = now;
    if (pool_left_want(p) < pool_left_most(p)) {
        k->want++;
        pool_share(p);
    }
    if (pool_warm(k) > 0 && pool_template(p, k, wish, &err) == 0 &&
        pool_kind_check_image(k, wish->image_sha256, &err) == 0 && pool_warm(k) > 0) {
        jail = pool_pick(p, k);
    }
    if (jail != NULL && wish->stays) {
        pool_refill_opened(&p->refill, now);
    }
    pool_later(p, pool_refill_taken(&p->refill, k->count, k->want, now));
    return jail;
}

/* A jail of the kind that all others get, as pool_take(). */
static int pool_give(struct pool *p, const struct pool_wish *wish, uint64_t now, struct jail **jail,
                     struct err *err) {
    struct pool_kind *k = pool_kind_get(p, wish->policy, wish->image, false, err);
    if (k == NULL) {
        return -1;
    }
    k->used_ns = now;
    if (pool_template(p, k, wish, err) != 0) {
        if (!k->keep) {
            pool_forget(p, k);
        }
        return -1;
    }
    if (pool_kind_check_image(k, wish->image_sha256, err) != 0) {
        return -1;
    }
    if (wish->modest && pool_holds_back(p, k, now)) {
        return 1;
    }
    *jail = pool_pick(p, k);
    if (*jail == NULL && p->cfg.host->building >= POOL_BUILDS_MAX) {
        return 1;
    }
    *jail = *jail != NULL ? *jail : pool_make(p, k, err);
    if (*jail == NULL && err->kind == ERR_LIMIT) {
        pool_steal(p, k);
        return 1;
    }
    if (*jail == NULL) {
        return -1;
    }
    k->want = pool_want(p, k);
    if (wish->stays) {
        pool_refill_opened(&p->refill, now);
    }
    pool_later(p, pool_refill_taken(&p->refill, k->count, k->want, now));
    return 0;
}

int pool_take(struct pool *p, const struct pool_wish *wish, const struct jail_events *events,
              void *arg, struct jail **jail, struct err *err) {
    uint64_t now = clock_mono_ns();
    if (p->stopped) {
        return err_set(err, ERR_STATE, ECANCELED, "the runner is stopping");
    }
    if (!pool_has_room(p, wish->stays)) {
        return 1; /* jails of an earlier connection are still dying */
    }
    struct jail *got = wish->left ? pool_give_left(p, wish, now) : NULL;
    int rc = got != NULL ? 0 : pool_give(p, wish, now, &got, err);
    if (rc != 0) {
        return rc;
    }
    *(wish->stays ? &p->stay : &p->in_use) += 1;
    got->stays = wish->stays;
    got->events = events;
    got->arg = arg;
    *jail = got;
    return 0;
}
