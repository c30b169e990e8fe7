/* What goes on now, gathered for one look: runs, sandboxes, users. A user sees his own, an
 * administrator sees all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_USERS 1024u /* users that are told apart; the rest counts as one without a name */
#define TOP_ROWS_MAX 1000u

struct server;
struct run;
struct sandbox;

struct top_user {
    const char *name; /* borrowed; "" = all for whom there was no room */
    uint64_t running, queued, sandboxes;
};

struct top {
    /* Those that run, the oldest first, then those that wait, the oldest first: at most `limit`. */
    const struct run **runs;
    size_t run_count, running, queued; /* rows; how many there are */
    const struct sandbox **sandboxes;  /* the oldest first */
    size_t sandbox_count, sandbox_total;
    struct top_user *users; /* in no order */
    size_t user_count;
};

/* `user` NULL = of everybody. -1: memory is short. Everything that it points to is borrowed. */
int top_gather(const struct server *s, const char *user, size_t limit, struct top *out);
void top_done(struct top *t);
