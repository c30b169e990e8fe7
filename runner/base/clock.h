/* Time. Limits use the monotonic clock only; wall-clock time is for people and for records. */
#pragma once

#include <stdint.h>

#define CLOCK_NS_PER_MS 1000000ULL
#define CLOCK_NS_PER_S 1000000000ULL

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC */
uint64_t clock_mono_ms(void);
uint64_t clock_real_ms(void); /* milliseconds since the epoch, CLOCK_REALTIME */
