/* Bounds how many records of the audit log somebody can cause who is refused, or who writes file by
 * file: the first of a minute are written one by one, the rest is counted and summed up in one
 * record. So guessing tokens cannot fill the disk, and how much was tried is still there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_RATE_ENTRIES 64u
#define AUDIT_RATE_TEXT 64u
#define AUDIT_RATE_WINDOW_MS 60000u

struct audit_rate_entry {
    char what[AUDIT_RATE_TEXT], user[AUDIT_RATE_TEXT]; /* what "" = free */
    uint64_t from_ms;                                  /* since the epoch */
    uint64_t passed, left_out;
};

struct audit_rate {
    struct audit_rate_entry entries[AUDIT_RATE_ENTRIES];
    struct audit_rate_entry others; /* of all that found no room above */
};

/* May a record be written? At most `most` of (what, user) within a window pass; the others are
 * counted. */
bool audit_rate_pass(struct audit_rate *r, const char *what, const char *user, uint64_t most,
                     uint64_t now_ms);
/* Hands out what was left out in windows that are over (`all`: in every one), and frees them. True
 * while something is still being counted. */
bool audit_rate_sum(struct audit_rate *r, uint64_t now_ms, bool all,
                    void (*fn)(void *arg, const struct audit_rate_entry *e), void *arg);
