#include "queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"

#define QUEUE_MS_PER_TURN 1000u

enum queue_where { QUEUE_RESTING, QUEUE_NOW, QUEUE_LATER, QUEUE_ASIDE };

struct queue_flow {
    char user[QUEUE_NAME_SIZE];
    uint32_t weight;
    struct queue_list lanes[QUEUE_LANES];
    uint64_t tickets[QUEUE_LANES]; /* of the next to come */
    unsigned
        passed[QUEUE_LANES]; /* starts of higher lanes since this one's last, while it waited */
    size_t ready;            /* in the lanes */
    size_t count, bytes;     /* in the lanes and at gates */
    size_t running;
    int64_t deficit; /* hundredths of a turn */
    uint64_t round;  /* in which it was last given turns */
    enum queue_where where;
    struct queue_flow *next, *prev; /* in the list of `where` */
    struct queue_flow *hash_next;
};

void queue_init(struct queue *q, size_t max_count, size_t max_bytes) {
    memset(q, 0, sizeof(*q));
    q->max_count = max_count;
    q->max_bytes = max_bytes;
    q->round = 1;
}

/* Lists. */

static void queue_list_append(struct queue_list *l, struct queue_node *node) {
    node->next = NULL;
    node->prev = l->last;
    if (l->last != NULL)
        l->last->next = node;
    else
        l->first = node;
    l->last = node;
    l->count++;
}

static void queue_list_prepend(struct queue_list *l, struct queue_node *node) {
    node->prev = NULL;
    node->next = l->first;
    if (l->first != NULL)
        l->first->prev = node;
    else
        l->last = node;
    l->first = node;
    l->count++;
}

static void queue_list_remove(struct queue_list *l, struct queue_node *node) {
    if (node->prev != NULL)
        node->prev->next = node->next;
    else
        l->first = node->next;
    if (node->next != NULL)
        node->next->prev = node->prev;
    else
        l->last = node->prev;
    node->next = node->prev = NULL;
    l->count--;
}

static struct queue_flows *queue_flows_of(struct queue *q, enum queue_where where) {
    switch (where) {
    case QUEUE_NOW:
        return &q->now;
    case QUEUE_LATER:
        return &q->later;
    case QUEUE_ASIDE:
        return &q->aside;
    default:
        return &q->resting;
    }
}

static void queue_unlink_flow(struct queue *q, struct queue_flow *f) {
    struct queue_flows *list = queue_flows_of(q, f->where);
    if (f->prev != NULL)
        f->prev->next = f->next;
    else
        list->first = f->next;
    if (f->next != NULL)
        f->next->prev = f->prev;
    else
        list->last = f->prev;
}

static void queue_move_flow(struct queue *q, struct queue_flow *f, enum queue_where where) {
    struct queue_flows *to = queue_flows_of(q, where);
    queue_unlink_flow(q, f);
    f->where = where;
    f->next = NULL;
    f->prev = to->last;
    if (to->last != NULL)
        to->last->next = f;
    else
        to->first = f;
    to->last = f;
}

/* Flows by name. */

static uint32_t queue_hash(const char *user) {
    return str_hash(user, strlen(user)) % QUEUE_BUCKETS;
}

static struct queue_flow *queue_find(const struct queue *q, const char *user) {
    struct queue_flow *f = q->buckets[queue_hash(user)];
    while (f != NULL && strcmp(f->user, user) != 0)
        f = f->hash_next;
    return f;
}

static struct queue_flow *queue_flow_of(struct queue *q, const char *user, struct err *err) {
    struct queue_flow *f = queue_find(q, user);
    if (f != NULL)
        return f;
    f = calloc(1, sizeof(*f));
    if (f == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "queueing: out of memory");
        return NULL;
    }
    struct queue_flow **bucket = &q->buckets[queue_hash(user)];
    str_copy(f->user, sizeof(f->user), user);
    f->hash_next = *bucket;
    *bucket = f;
    f->next = q->resting.first;
    if (f->next != NULL)
        f->next->prev = f;
    else
        q->resting.last = f;
    q->resting.first = f;
    return f;
}

static void queue_free_flow(struct queue *q, struct queue_flow *f) {
    struct queue_flow **at = &q->buckets[queue_hash(f->user)];
    while (*at != f)
        at = &(*at)->hash_next;
    *at = f->hash_next;
    queue_unlink_flow(q, f);
    free(f);
}

void queue_done(struct queue *q) {
    struct queue_flows *lists[] = {&q->now, &q->later, &q->aside, &q->resting};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        while (lists[i]->first != NULL)
            queue_free_flow(q, lists[i]->first);
    while (q->gates != NULL) {
        struct queue_gate *gate = q->gates;
        q->gates = gate->next;
        *gate->slot = NULL;
        free(gate);
    }
    q->count = q->bytes = q->users = 0;
}

/* Turns. */

/* The rounds that it was not in have paid its debts, and nothing more. */
static void queue_give_turns(const struct queue *q, struct queue_flow *f) {
    if (f->round == q->round)
        return;
    if (f->deficit > 0) {
        f->deficit = 0;
    } else if (f->deficit < 0) {
        uint64_t missed = q->round - f->round - 1;
        uint64_t owed = (uint64_t)-f->deficit;
        f->deficit =
            missed >= owed / f->weight + 1 ? 0 : f->deficit + (int64_t)(missed * f->weight);
        if (f->deficit > 0)
            f->deficit = 0;
    }
    f->deficit += f->weight;
    f->round = q->round;
}

/* Something of it can start: it joins the round. */
static void queue_join(struct queue *q, struct queue_flow *f) {
    queue_give_turns(q, f);
    queue_move_flow(q, f, f->deficit >= (int64_t)QUEUE_WEIGHT ? QUEUE_NOW : QUEUE_LATER);
}

/* Forgets who has nothing here any more and owes nothing. */
static void queue_sweep(struct queue *q) {
    struct queue_flow *next;
    for (struct queue_flow *f = q->resting.first; f != NULL; f = next) {
        next = f->next;
        uint64_t missed = q->round - f->round;
        if (f->count == 0 && f->running == 0 &&
            (f->deficit >= 0 || missed > (uint64_t)-f->deficit / f->weight))
            queue_free_flow(q, f);
    }
}

/* Everybody has had his turns: as many rounds begin as the first of them needs for one more. */
static void queue_new_round(struct queue *q) {
    uint64_t rounds = UINT64_MAX;
    for (const struct queue_flow *f = q->later.first; f != NULL; f = f->next) {
        uint64_t need = (uint64_t)((int64_t)QUEUE_WEIGHT - f->deficit);
        uint64_t n = (need + f->weight - 1) / f->weight;
        rounds = n < rounds ? n : rounds;
    }
    q->round += rounds;
    queue_sweep(q);
    struct queue_flow *next;
    for (struct queue_flow *f = q->later.first; f != NULL; f = next) {
        next = f->next;
        f->deficit += (int64_t)(rounds * f->weight);
        f->round = q->round;
        if (f->deficit >= (int64_t)QUEUE_WEIGHT)
            queue_move_flow(q, f, QUEUE_NOW);
    }
}

static enum queue_lane queue_lane_of(const struct queue_flow *f) {
    for (int lane = QUEUE_LANES - 1; lane > 0; lane--)
        if (f->lanes[lane].count > 0 && f->passed[lane] >= QUEUE_PASSED_MAX)
            return (enum queue_lane)lane;
    for (int lane = 0; lane < QUEUE_LANES; lane++)
        if (f->lanes[lane].count > 0)
            return (enum queue_lane)lane;
    return QUEUE_HIGH;
}

struct queue_node *queue_next(struct queue *q) {
    if (q->now.first == NULL) {
        if (q->later.first == NULL)
            return NULL;
        queue_new_round(q);
    }
    const struct queue_flow *f = q->now.first;
    return f->lanes[queue_lane_of(f)].first;
}

/* Going in and out. */

enum queue_room queue_fits(const struct queue *q, const char *user, size_t count, size_t bytes) {
    size_t left = q->max_count > q->count ? q->max_count - q->count : 0;
    size_t bytes_left = q->max_bytes > q->bytes ? q->max_bytes - q->bytes : 0;
    if (left < count || (q->count > 0 && bytes > bytes_left))
        return QUEUE_FULL;
    const struct queue_flow *f = queue_find(q, user);
    if (f == NULL || f->count == 0)
        return QUEUE_ROOM;
    if (f->count + count - 1 >= QUEUE_SHARE * (left - (count - 1)) ||
        f->bytes / QUEUE_SHARE >= bytes_left)
        return QUEUE_TAKEN;
    return QUEUE_ROOM;
}

int queue_push(struct queue *q, struct queue_node *node, const struct queue_entry *entry,
               struct err *err) {
    struct queue_flow *f = queue_flow_of(q, entry->user, err);
    if (f == NULL)
        return -1;
    uint32_t weight = entry->weight > 0 ? entry->weight : QUEUE_WEIGHT;
    f->weight = weight < QUEUE_WEIGHT_MAX ? weight : QUEUE_WEIGHT_MAX;
    *node = (struct queue_node){.flow = f,
                                .bytes = entry->bytes,
                                .lane = entry->lane,
                                .ticket = f->tickets[entry->lane]++,
                                .queued = true};
    queue_list_append(&f->lanes[entry->lane], node);
    q->count++;
    q->bytes += entry->bytes;
    f->bytes += entry->bytes;
    if (f->count++ == 0)
        q->users++;
    if (f->ready++ == 0 && f->where == QUEUE_RESTING)
        queue_join(q, f);
    return 0;
}

/* While nobody waits nobody is kept from anything, so nothing is owed. */
static void queue_forgive(struct queue *q) {
    struct queue_flow *next;
    for (struct queue_flow *f = q->resting.first; f != NULL; f = next) {
        next = f->next;
        f->deficit = f->deficit < 0 ? 0 : f->deficit;
        if (f->running == 0 && f->count == 0)
            queue_free_flow(q, f);
    }
}

/* Nothing of it can start: it rests. While others wait it is remembered to the end of the round, so
 * that nobody has a second turn by coming back. */
static void queue_settle(struct queue *q, struct queue_flow *f) {
    if ((f->where == QUEUE_ASIDE && f->count == 0) ||
        (f->where != QUEUE_ASIDE && f->where != QUEUE_RESTING && f->ready == 0))
        queue_move_flow(q, f, QUEUE_RESTING);
    if (f->count == 0 && f->running == 0 && q->count == 0)
        queue_free_flow(q, f);
}

static void queue_gate_empty(struct queue *q, struct queue_gate *gate) {
    if (gate->count > 0)
        return;
    if (gate->prev != NULL)
        gate->prev->next = gate->next;
    else
        q->gates = gate->next;
    if (gate->next != NULL)
        gate->next->prev = gate->prev;
    *gate->slot = NULL;
    free(gate);
}

static struct queue_gate *queue_gate_new(struct queue *q, struct queue_flow *f,
                                         struct queue_gate **slot) {
    struct queue_gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL)
        return NULL;
    *gate = (struct queue_gate){.flow = f, .slot = slot, .next = q->gates};
    if (gate->next != NULL)
        gate->next->prev = gate;
    q->gates = gate;
    *slot = gate;
    return gate;
}

static void queue_leave(struct queue *q, struct queue_node *node) {
    struct queue_flow *f = node->flow;
    struct queue_gate *gate = node->gate;
    if (gate != NULL) {
        queue_list_remove(&gate->held[node->lane], node);
        gate->count--;
        queue_gate_empty(q, gate);
    } else {
        queue_list_remove(&f->lanes[node->lane], node);
        f->ready--;
    }
    node->gate = NULL;
    node->queued = false;
    q->count--;
    q->bytes -= node->bytes;
    f->bytes -= node->bytes;
    if (--f->count == 0)
        q->users--;
    if (q->count == 0)
        queue_forgive(q);
}

void queue_remove(struct queue *q, struct queue_node *node) {
    struct queue_flow *f = node->flow;
    if (!node->queued)
        return;
    f->running++; /* it must not be freed by what follows */
    queue_leave(q, node);
    f->running--;
    node->flow = NULL;
    queue_settle(q, f);
}

void queue_take(struct queue *q, struct queue_node *node) {
    struct queue_flow *f = node->flow;
    for (int lane = (int)node->lane + 1; lane < QUEUE_LANES; lane++)
        if (f->lanes[lane].count > 0)
            f->passed[lane]++;
    f->passed[node->lane] = 0;
    f->running++;
    f->deficit -= (int64_t)QUEUE_WEIGHT;
    queue_leave(q, node);
    if (f->ready > 0 && f->where != QUEUE_ASIDE)
        queue_move_flow(q, f, f->deficit >= (int64_t)QUEUE_WEIGHT ? QUEUE_NOW : QUEUE_LATER);
    queue_settle(q, f);
}

void queue_ended(struct queue *q, struct queue_node *node, uint64_t slot_ms) {
    struct queue_flow *f = node->flow;
    uint64_t turns = slot_ms / QUEUE_MS_PER_TURN;
    node->flow = NULL;
    if (f == NULL)
        return;
    f->running--;
    if (q->count > 0) {
        turns = turns < QUEUE_DEBT_MAX ? turns : QUEUE_DEBT_MAX;
        f->deficit -= (int64_t)(turns * QUEUE_WEIGHT);
        if (f->deficit < -(int64_t)(QUEUE_DEBT_MAX * QUEUE_WEIGHT))
            f->deficit = -(int64_t)(QUEUE_DEBT_MAX * QUEUE_WEIGHT);
        if (f->where == QUEUE_NOW && f->deficit < (int64_t)QUEUE_WEIGHT)
            queue_move_flow(q, f, QUEUE_LATER);
    }
    queue_settle(q, f);
}

/* Setting aside. */

void queue_aside(struct queue *q, struct queue_node *node) {
    queue_move_flow(q, node->flow, QUEUE_ASIDE);
}

static void queue_rejoin(struct queue *q, struct queue_flow *f) {
    if (f->ready > 0)
        queue_join(q, f);
    else
        queue_move_flow(q, f, QUEUE_RESTING);
}

void queue_go_on(struct queue *q, const char *user) {
    if (user == NULL) {
        while (q->aside.first != NULL)
            queue_rejoin(q, q->aside.first);
        return;
    }
    struct queue_flow *f = q->aside.first != NULL ? queue_find(q, user) : NULL;
    if (f != NULL && f->where == QUEUE_ASIDE)
        queue_rejoin(q, f);
}

int queue_hold(struct queue *q, struct queue_node *node, struct queue_gate **slot,
               struct err *err) {
    struct queue_flow *f = node->flow;
    struct queue_gate *gate = *slot;
    bool front = false;
    if (gate == NULL) {
        gate = queue_gate_new(q, f, slot);
        if (gate == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "queueing: out of memory");
    } else {
        /* One that was let out and could not go after all was the first. */
        const struct queue_node *first = gate->held[node->lane].first;
        front = first != NULL && node->ticket < first->ticket;
    }
    queue_list_remove(&f->lanes[node->lane], node);
    f->ready--;
    node->gate = gate;
    if (front)
        queue_list_prepend(&gate->held[node->lane], node);
    else
        queue_list_append(&gate->held[node->lane], node);
    gate->count++;
    queue_settle(q, f);
    return 0;
}

void queue_open(struct queue *q, struct queue_gate *gate) {
    if (gate == NULL)
        return;
    enum queue_lane lane = QUEUE_HIGH;
    while (gate->held[lane].first == NULL)
        lane++;
    struct queue_node *node = gate->held[lane].first;
    struct queue_flow *f = node->flow;
    queue_list_remove(&gate->held[lane], node);
    gate->count--;
    node->gate = NULL;
    queue_gate_empty(q, gate);
    queue_list_prepend(&f->lanes[lane], node);
    if (f->ready++ == 0 && f->where == QUEUE_RESTING)
        queue_join(q, f);
}

struct queue_node *queue_any(const struct queue *q) {
    const struct queue_flows *lists[] = {&q->now, &q->later, &q->aside};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (const struct queue_flow *f = lists[i]->first; f != NULL; f = f->next)
            for (int lane = 0; lane < QUEUE_LANES; lane++)
                if (f->lanes[lane].first != NULL)
                    return f->lanes[lane].first;
    for (int lane = 0; q->gates != NULL && lane < QUEUE_LANES; lane++)
        if (q->gates->held[lane].first != NULL)
            return q->gates->held[lane].first;
    return NULL;
}

/* Looking. */

/* Starts of `f` in the first `rounds` rounds from now on. */
static size_t queue_starts(const struct queue_flow *f, int64_t rounds) {
    if (rounds < 0)
        return 0;
    int64_t turns = (f->deficit + rounds * (int64_t)f->weight) / (int64_t)QUEUE_WEIGHT;
    if (turns <= 0)
        return 0;
    return (size_t)turns < f->ready ? (size_t)turns : f->ready;
}

static size_t queue_index_in(const struct queue_list *lists, const struct queue_node *node) {
    const struct queue_list *own = &lists[node->lane];
    size_t before = (size_t)(node->ticket - own->first->ticket);
    before = before < own->count ? before : own->count - 1;
    for (int lane = 0; lane < (int)node->lane; lane++)
        before += lists[lane].count;
    return before;
}

/* In later rounds those who had their turn in this one come first, then those who have not. */
size_t queue_position(const struct queue *q, const struct queue_node *node) {
    const struct queue_flow *const lists[] = {q->later.first, q->now.first};
    const struct queue_flow *f = node->flow;
    bool seen = false;
    if (!node->queued)
        return 0;
    size_t position = queue_index_in(node->gate != NULL ? node->gate->held : f->lanes, node);
    int64_t need = (int64_t)((position + 1) * QUEUE_WEIGHT) - f->deficit;
    int64_t rounds = need <= 0 ? 0 : (need + f->weight - 1) / f->weight;
    for (size_t i = 0; i < 2; i++)
        for (const struct queue_flow *g = lists[i]; g != NULL; g = g->next) {
            if (g == f)
                seen = true;
            else
                position += queue_starts(g, seen ? rounds - 1 : rounds);
        }
    return position;
}

void queue_share(const struct queue *q, const char *user, struct queue_share *out) {
    const struct queue_flow *f = queue_find(q, user);
    const struct queue_flow *const lists[] = {q->now.first, q->later.first};
    *out = (struct queue_share){.users = q->users};
    for (size_t i = 0; i < 2; i++)
        for (const struct queue_flow *g = lists[i]; g != NULL; g = g->next)
            out->weights += g->weight;
    if (f == NULL)
        return;
    out->waiting = f->count;
    out->running = f->running;
    out->weight = f->weight;
    out->aside = f->where == QUEUE_ASIDE || f->count > f->ready;
}
