#include "pool_refill.h"

static uint64_t pool_refill_patience(unsigned left) {
    return left >= POOL_REFILL_MANY ? POOL_REFILL_MANY_PATIENCE_NS : POOL_REFILL_PATIENCE_NS;
}

static bool pool_refill_plenty(unsigned left, unsigned want) {
    return left >= POOL_REFILL_MANY && left >= want / 2;
}

static uint64_t pool_refill_quiet(const struct pool_refill *r) {
    return r->quiet_ns + (r->plenty ? POOL_REFILL_PLENTY_NS : 0);
}

void pool_refill_began(struct pool_refill *r, uint64_t now) {
    r->running++;
    r->began_ns = now;
}

uint64_t pool_refill_ended(struct pool_refill *r, uint64_t now) {
    r->running--;
    r->quiet_ns = now + POOL_REFILL_QUIET_NS;
    return pool_refill_quiet(r);
}

uint64_t pool_refill_taken(struct pool_refill *r, unsigned left, unsigned want, uint64_t now) {
    r->plenty = pool_refill_plenty(left, want);
    return left == 0 ? now : now + pool_refill_patience(left);
}

void pool_refill_opened(struct pool_refill *r, uint64_t now) {
    if (now + POOL_REFILL_NEW_NS > r->quiet_ns) {
        r->quiet_ns = now + POOL_REFILL_NEW_NS;
    }
}

uint64_t pool_refill_due(struct pool_refill *r, unsigned left, unsigned want, uint64_t now) {
    r->since_ns = r->since_ns == 0 ? now : r->since_ns;
    r->plenty = pool_refill_plenty(left, want);
    if (left == 0) {
        return now;
    }
    uint64_t due = pool_refill_quiet(r);
    if (r->running > 0 && due < r->began_ns + POOL_REFILL_SHORT_NS) {
        due = r->began_ns + POOL_REFILL_SHORT_NS;
    }
    uint64_t patient = r->since_ns + pool_refill_patience(left);
    return !r->plenty && patient < due ? patient : due;
}
