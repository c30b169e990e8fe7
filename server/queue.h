/* A fair waiting line in front of the runner's slots.
 *
 *   user A   high ▸ normal ▸ low ─┐
 *   user B   high ▸ normal ▸ low ─┼─ turns ──> slots
 *   user C   high ▸ normal ▸ low ─┘
 *
 * Between users: deficit round robin. In every round a user gets as many turns as its weight says
 * (100 = one) and starts one entry with each; after each start the next user is looked at, so that
 * the many turns of a heavy user lie between those of the others. Who comes while a round goes on
 * joins it behind those who are in it: however many entries the others have waiting, each of them
 * starts one before the newcomer does, and no more. What is not used in a round is not saved up.
 *
 * An entry costs one turn when it starts, and one more for every full second that it held its slot,
 * up to QUEUE_DEBT_MAX, when it ends. Its time is not known before, and its limits say nothing
 * about it. By starts alone, a user of ten-minute runs would soon hold every slot and the user of
 * tenth-of-a-second runs would have one of them after each; by exact time alone, two users with
 * equal runs would get unequal numbers of them from the noise of the clock. With whole seconds
 * short runs are counted and long ones are weighed. Nobody owes anything while nobody waits.
 *
 * Within a user: the high lane goes first, then the normal, then the low one. That is about the
 * user's own turns only. A lane that had to let QUEUE_PASSED_MAX starts of higher lanes pass has
 * the next turn, so a stream of urgent runs slows the others down and never stops them.
 *
 * A user, or a part of what waits for a user (behind a gate: a token of his that may have no more
 * at once), can be set aside; the others go on. Everything is O(1), but for a new round, which
 * looks once at each user (not at each entry), and queue_position().
 *
 * Bounded in entries and bytes. One user may have at most QUEUE_SHARE times as many waiting as
 * places are left: alone he gets 8/9 of them, and for whoever comes there is always a place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define QUEUE_NAME_SIZE 64
#define QUEUE_WEIGHT 100u /* of a usual user: one turn a round */
#define QUEUE_WEIGHT_MAX 10000u
#define QUEUE_SHARE 8u
#define QUEUE_DEBT_MAX 60u
#define QUEUE_PASSED_MAX 8u
#define QUEUE_BUCKETS 1024u

enum queue_lane { QUEUE_HIGH, QUEUE_NORMAL, QUEUE_LOW, QUEUE_LANES };

struct queue_flow; /* what waits and runs of one user */

struct queue_list {
    struct queue_node *first, *last;
    size_t count;
};

/* Entries that wait for something that only they need. */
struct queue_gate {
    struct queue_flow *flow;
    struct queue_gate **slot; /* where its owner keeps it; set to NULL when it goes */
    struct queue_gate *next, *prev;
    struct queue_list held[QUEUE_LANES];
    size_t count;
};

/* Embedded in what waits. Zeroed at birth. */
struct queue_node {
    struct queue_node *next, *prev;
    struct queue_flow *flow; /* from queue_push() to queue_ended() or queue_remove() */
    struct queue_gate *gate; /* it is behind it; NULL = in its lane */
    size_t bytes;
    uint64_t ticket; /* ascending within a lane */
    enum queue_lane lane;
    bool queued;
};

struct queue_flows { /* a list of flows */
    struct queue_flow *first, *last;
};

struct queue {
    size_t count, max_count; /* entries */
    size_t bytes, max_bytes;
    size_t users;               /* that have something waiting */
    struct queue_flows now;     /* have a turn in this round … */
    struct queue_flows later;   /* … had theirs … */
    struct queue_flows aside;   /* … set aside */
    struct queue_flows resting; /* nothing waits: something runs, or it is owed for */
    struct queue_gate *gates;
    uint64_t round;
    struct queue_flow *buckets[QUEUE_BUCKETS];
};

void queue_init(struct queue *q, size_t max_count, size_t max_bytes);
void queue_done(struct queue *q); /* forgets all flows; the nodes must not be used any more */

enum queue_room {
    QUEUE_ROOM,
    QUEUE_FULL,  /* no place for anybody */
    QUEUE_TAKEN, /* this user has as many places as one may have now */
};
/* Would an entry of `bytes` fit? An empty queue takes an entry of any size. */
enum queue_room queue_fits(const struct queue *q, const char *user, size_t count, size_t bytes);

struct queue_entry {
    const char *user;
    uint32_t weight; /* 0 = QUEUE_WEIGHT */
    enum queue_lane lane;
    size_t bytes;
};
/* Appends to the user's lane; the caller has asked queue_fits(). -1: memory is short. */
int queue_push(struct queue *q, struct queue_node *node, const struct queue_entry *entry,
               struct err *err);

/* Whose turn is it? Stays the same until something changes. NULL: nothing waits, or all that does
 * is set aside. */
struct queue_node *queue_next(struct queue *q);
/* What queue_next() said starts. */
void queue_take(struct queue *q, struct queue_node *node);
/* What was taken has left its slot, after so many ms. */
void queue_ended(struct queue *q, struct queue_node *node, uint64_t slot_ms);
/* Takes an entry out, wherever it waits; does nothing when it does not. */
void queue_remove(struct queue *q, struct queue_node *node);

/* What queue_next() said cannot start for now: the whole user waits until queue_go_on() … */
void queue_aside(struct queue *q, struct queue_node *node);
/* … of him, or of all (NULL). */
void queue_go_on(struct queue *q, const char *user);
/* … or only this entry, at the gate in *slot (made when there is none), until queue_open() lets it
 * out, the first that came to the gate first. -1: memory is short. */
int queue_hold(struct queue *q, struct queue_node *node, struct queue_gate **slot, struct err *err);
/* Lets one entry out of the gate, to the front of its lane. NULL allowed. */
void queue_open(struct queue *q, struct queue_gate *gate);

/* Any entry that waits, NULL if none does: for who empties the queue. */
struct queue_node *queue_any(const struct queue *q);

/* How many entries start before this one, if nobody comes or leaves: those of its user in front of
 * it, and of every other user as many as it has turns until then. An estimate: what is cancelled in
 * the middle of a lane is counted until the lane has come that far, debts that are still to be made
 * and the turns of passed-over lanes are not known. */
size_t queue_position(const struct queue *q, const struct queue_node *node);

/* What a user has, for GET /v1/me: zeroes when nothing of him is here. */
struct queue_share {
    size_t waiting, running;
    uint32_t weight, weights; /* his, and of all who have something waiting, his included */
    size_t users;             /* that have something waiting */
    bool aside;               /* he has, and must wait for his own quota or for memory */
};
void queue_share(const struct queue *q, const char *user, struct queue_share *out);
