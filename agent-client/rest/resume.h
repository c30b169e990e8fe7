/* When to try again after a lost connection: pauses that grow to two seconds, until the server has
 * been away for a minute and a half (a runner keeps what runs for a minute without its server). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RESUME_BOUND_MS 90000u
#define RESUME_FIRST_MS 100u
#define RESUME_MOST_MS 2000u

struct resume {
    bool lost;         /* since `since_ms` nothing was heard */
    uint64_t since_ms; /* monotonic */
    unsigned tries;
};

/* Something was heard from the server. -> true when the connection had been lost. */
bool resume_heard(struct resume *r);
/* An attempt failed at `now_ms`. -> how long to wait before the next one, -1 = give up. */
int resume_pause(struct resume *r, uint64_t now_ms);
/* Is another attempt worth it after this HTTP status (0 = no answer)? */
bool resume_worth(int status);
