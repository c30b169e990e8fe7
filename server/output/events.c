#include "events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MID_MAX 4096u

void events_init(struct events *e) {
    memset(e, 0, sizeof(*e));
    e->next_seq = 1;
}

void events_done(struct events *e) {
    if (e == NULL)
        return;
    free(e->first);
    free(e->mid);
    free(e->last);
    memset(e, 0, sizeof(*e));
}

size_t events_memory(const struct events *e) {
    return (e->first_alloc + e->mid_alloc + e->last_alloc) * sizeof(struct events_record);
}

static int events_grow(struct events_record **array, size_t *alloc, size_t need, struct err *err) {
    if (need <= *alloc)
        return 0;
    size_t size = *alloc == 0 ? 8 : *alloc * 2;
    struct events_record *grown = realloc(*array, size * sizeof(*grown));
    if (grown == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "recording an event: out of memory");
    *array = grown;
    *alloc = size;
    return 0;
}

static struct events_record *events_newest(const struct events *e) {
    if (e->last_count > 0)
        return &e->last[(e->last_start + e->last_count - 1) % e->last_alloc];
    return e->first_count > 0 ? &e->first[e->first_count - 1] : NULL;
}

static bool events_is_output(uint8_t type) {
    return type == EVENTS_STDOUT || type == EVENTS_STDERR;
}

static uint8_t events_gap_type(uint8_t type) {
    return type == EVENTS_STDOUT ? EVENTS_GAP_STDOUT : EVENTS_GAP_STDERR;
}

/* The gap that record `r` may be merged into: of its step and stream, with nothing but the other
 * stream's gap after it. One that somebody has seen grows only when there are very many of them:
 * its number of bytes would then count for him twice. */
static struct events_record *events_find_gap(struct events *e, const struct events_record *r) {
    uint8_t type = events_gap_type(r->type);
    for (size_t i = e->mid_count; i > 0 && i + 2 > e->mid_count; i--) {
        struct events_record *m = &e->mid[i - 1];
        if (m->type != EVENTS_GAP_STDOUT && m->type != EVENTS_GAP_STDERR)
            return NULL;
        if (m->type == type && m->step == r->step)
            return m->sealed && e->mid_count < EVENTS_MID_MAX ? NULL : m;
    }
    return NULL;
}

/* Moves the oldest record of the ring into the middle. */
static int events_evict(struct events *e, struct err *err) {
    const struct events_record r = e->last[e->last_start];
    struct events_record *gap = events_is_output(r.type) ? events_find_gap(e, &r) : NULL;
    if (gap != NULL) {
        gap->len += r.len;
        gap->seq = r.seq;
        struct events_record *end = &e->mid[e->mid_count - 1];
        if (gap != end) { /* keep them in the order of their numbers */
            struct events_record swap = *gap;
            *gap = *end;
            *end = swap;
        }
    } else {
        if (events_grow(&e->mid, &e->mid_alloc, e->mid_count + 1, err) < 0)
            return -1;
        struct events_record *m = &e->mid[e->mid_count++];
        *m = r;
        m->sealed = !events_is_output(r.type);
        if (events_is_output(r.type))
            m->type = events_gap_type(r.type);
    }
    e->last_start = (e->last_start + 1) % e->last_alloc;
    e->last_count--;
    return 0;
}

static int events_grow_ring(struct events *e, struct err *err) {
    if (e->last_count < e->last_alloc)
        return 0;
    if (e->last_alloc == EVENTS_KEEP)
        return events_evict(e, err);
    /* A ring that is still growing has never evicted, so it starts at 0. */
    return events_grow(&e->last, &e->last_alloc, e->last_count + 1, err);
}

static struct events_record *events_push(struct events *e, struct err *err) {
    struct events_record *r;
    if (e->first_count < EVENTS_KEEP) {
        if (events_grow(&e->first, &e->first_alloc, e->first_count + 1, err) < 0)
            return NULL;
        r = &e->first[e->first_count++];
    } else {
        if (events_grow_ring(e, err) < 0)
            return NULL;
        r = &e->last[(e->last_start + e->last_count) % e->last_alloc];
        e->last_count++;
    }
    memset(r, 0, sizeof(*r));
    r->seq = e->next_seq++;
    return r;
}

int events_add(struct events *e, enum events_type type, uint16_t step, struct err *err) {
    struct events_record *r = events_push(e, err);
    if (r == NULL)
        return -1;
    r->type = (uint8_t)type;
    r->step = step;
    r->sealed = true;
    return 0;
}

size_t events_extensible(const struct events *e, enum events_type type, uint16_t step,
                         uint64_t offset) {
    const struct events_record *r = events_newest(e);
    if (r == NULL || r->sealed || r->type != type || r->step != step ||
        r->offset + r->len != offset)
        return 0;
    return EVENTS_CHUNK_MAX - (size_t)r->len;
}

int events_output(struct events *e, enum events_type type, uint16_t step, uint64_t offset,
                  size_t len, struct err *err) {
    if (events_extensible(e, type, step, offset) >= len) {
        events_newest(e)->len += len;
        return 0;
    }
    struct events_record *r = events_push(e, err);
    if (r == NULL)
        return -1;
    r->type = (uint8_t)type;
    r->step = step;
    r->offset = offset;
    r->len = len;
    return 0;
}

struct events_record *events_after(struct events *e, uint64_t after) {
    if (after < e->first_count)
        return &e->first[after];
    /* The middle is short (a few records per step), so a walk is enough. */
    for (size_t i = 0; i < e->mid_count; i++)
        if (e->mid[i].seq > after)
            return &e->mid[i];
    if (e->last_count == 0)
        return NULL;
    uint64_t oldest = e->last[e->last_start].seq;
    uint64_t skip = after < oldest ? 0 : after - oldest + 1;
    if (skip >= e->last_count)
        return NULL;
    return &e->last[(e->last_start + (size_t)skip) % e->last_alloc];
}
