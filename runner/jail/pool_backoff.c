#include "pool_backoff.h"

void pool_backoff_lost(struct pool_backoff *b, uint64_t now_ns) {
    (void)pool_backoff_well(b, now_ns);
    uint64_t pause_ns = 0;
    if (b->lost > 0) {
        pause_ns = POOL_BACKOFF_FIRST_NS;
        for (unsigned i = 1; i < b->lost && pause_ns < POOL_BACKOFF_MAX_NS; i++) {
            pause_ns *= 2;
        }
    }
    b->lost += b->lost < UINT32_MAX;
    b->until_ns = now_ns + (pause_ns < POOL_BACKOFF_MAX_NS ? pause_ns : POOL_BACKOFF_MAX_NS);
    b->steady_ns = 0;
}

void pool_backoff_ready(struct pool_backoff *b, uint64_t now_ns) {
    if (b->lost > 0 && b->steady_ns == 0) {
        b->steady_ns = now_ns + POOL_BACKOFF_STEADY_NS;
    }
}

bool pool_backoff_well(struct pool_backoff *b, uint64_t now_ns) {
    if (b->steady_ns != 0 && now_ns >= b->steady_ns) {
        *b = (struct pool_backoff){0};
    }
    return b->lost == 0;
}

bool pool_backoff_sick(const struct pool_backoff *b) {
    return b->lost >= POOL_BACKOFF_SICK;
}
