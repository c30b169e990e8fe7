#include "resume.h"

bool resume_heard(struct resume *r) {
    bool was = r->lost;

    *r = (struct resume){0};
    return was;
}

int resume_pause(struct resume *r, uint64_t now_ms) {
    unsigned pause = RESUME_FIRST_MS;

    if (!r->lost)
        *r = (struct resume){.lost = true, .since_ms = now_ms};
    if (now_ms - r->since_ms >= RESUME_BOUND_MS)
        return -1;
    for (unsigned i = 0; i < r->tries && pause < RESUME_MOST_MS; i++)
        pause *= 2;
    r->tries++;
    return (int)(pause < RESUME_MOST_MS ? pause : RESUME_MOST_MS);
}

bool resume_worth(int status) {
    return status == 0 || status == 429 || status >= 500;
}
