#include "clock.h"

#include <time.h>

static uint64_t clock_read_ns(clockid_t id) {
    /* Cannot fail: both clocks exist on every Linux and the pointer is valid. */
    struct timespec ts = {0};
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * CLOCK_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void) {
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_mono_ms(void) {
    return clock_mono_ns() / CLOCK_NS_PER_MS;
}

uint64_t clock_real_ms(void) {
    return clock_read_ns(CLOCK_REALTIME) / CLOCK_NS_PER_MS;
}
