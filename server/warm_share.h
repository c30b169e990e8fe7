/* The jails that runners keep ready are shared between users.
 *
 * Who starts many at once would take all that are ready, and anybody else would wait until one is
 * made for him. So the share of each in what was started in the last moments is known here, and who
 * has had more than an equal part says so to the runner (WIRE_OPEN_MODEST), which then leaves the
 * last half of what is ready to others. Who is alone has all of it, and so has everybody for his
 * first few.
 *
 * Counts are halved every second. Users are known by a hash of their names, the WARM_SHARE_USERS
 * that started most: a mistake costs somebody milliseconds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

#define WARM_SHARE_USERS 64u
#define WARM_SHARE_FEW 8u                        /* that everybody may have */
#define WARM_SHARE_STAY_NS (60 * CLOCK_NS_PER_S) /* so long somebody counts as one of them */
#define WARM_SHARE_HALF_NS                                                                         \
    ((uint64_t)CLOCK_NS_PER_S) /* after which what was started counts half                         \
                                */

struct warm_share_user {
    uint64_t last_ns;
    uint32_t who;
    uint32_t had; /* 256 for each start */
};

/* Zeroed at birth; holds nothing that would have to be released. */
struct warm_share {
    struct warm_share_user users[WARM_SHARE_USERS];
    size_t count;
    uint64_t halved_ns;
};

/* This user is about to start a run or a sandbox. -> has he had more than his part? */
bool warm_share_start(struct warm_share *w, const char *user, uint64_t now_ns);
