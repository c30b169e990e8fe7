#include "traces_late.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "server.h"
#include "store_trace.h"
#include "str.h"
#include "traces.h"

/* Rows that are written at once in a round of the loop, and later in each: some 0.3 ms' work. */
#define TRACES_LATE_FIRST 16u
#define TRACES_LATE_EACH 32u
/* Those that wait, some 400 bytes each. More are written at once, whatever that takes. */
#define TRACES_LATE_MAX 8192u

struct traces_late_row {
    struct traces_late_row *next;
    char user[SANDBOX_OWNER_SIZE], id[TRACES_NODE_ID_SIZE], sandbox[TRACES_NODE_ID_SIZE];
    char label[TRACE_LABEL_SIZE], cause[24];
    struct store_span span; /* points into this row */
    struct trace trace;
};

static void traces_late_put(struct server *s, const struct store_span *span) {
    struct err err;
    err_clear(&err);
    if (store_trace_put(s->runs.store, span, clock_real_ms(), &err) < 0)
        log_err(&s->log, LOG_WARN, "trace_not_written", &err);
}

void traces_late_forget(struct server *s, struct traces_late_wait *w) {
    if (!w->waiting)
        return;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        s->traces_late.waits = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->waiting = false;
}

bool traces_late_after(struct server *s, struct traces_late_wait *w) {
    struct traces_late *late = &s->traces_late;
    if (late->first == NULL)
        return true;
    w->upto = late->done + late->count;
    w->waiting = true;
    w->prev = NULL;
    w->next = late->waits;
    if (w->next != NULL)
        w->next->prev = w;
    late->waits = w;
    return false;
}

/* One may take others with it when it goes. */
static void traces_late_tell(struct server *s) {
    struct traces_late_wait *w = s->traces_late.waits;
    while (w != NULL) {
        if (w->upto > s->traces_late.done) {
            w = w->next;
            continue;
        }
        traces_late_forget(s, w);
        w->fn(w);
        w = s->traces_late.waits;
    }
}

/* Writes at most `most` of those that wait. */
static void traces_late_work(struct server *s, size_t most) {
    struct traces_late *late = &s->traces_late;
    while (late->first != NULL && most-- > 0) {
        struct traces_late_row *row = late->first;
        late->first = row->next;
        late->count--;
        late->done++;
        traces_late_put(s, &row->span);
        free(row);
    }
    if (late->first == NULL)
        late->last = NULL;
    traces_late_tell(s);
}

static void traces_late_turn(void *arg) {
    struct server *s = arg;
    traces_late_work(s, TRACES_LATE_EACH);
    if (s->traces_late.first != NULL)
        loop_defer(s->loop, &s->traces_late.turn, traces_late_turn, s);
}

/* Is there still room for one in what is written in this round? */
static bool traces_late_has_room(struct server *s) {
    struct traces_late *late = &s->traces_late;
    uint64_t round = store_round(s->runs.store) + 1;
    if (late->round != round) {
        late->round = round;
        late->written = 0;
    }
    return late->first == NULL && late->written++ < TRACES_LATE_FIRST;
}

static struct traces_late_row *traces_late_copy(const struct store_span *span) {
    struct traces_late_row *row = calloc(1, sizeof(*row));
    if (row == NULL)
        return NULL;
    if (!str_copy(row->user, sizeof(row->user), span->user) ||
        !str_copy(row->id, sizeof(row->id), span->id) ||
        !str_copy(row->sandbox, sizeof(row->sandbox), span->sandbox) ||
        !str_copy(row->label, sizeof(row->label), span->label) ||
        !str_copy(row->cause, sizeof(row->cause), span->cause)) {
        free(row);
        return NULL;
    }
    memcpy(&row->trace, span->trace, sizeof(row->trace));
    row->span = *span;
    row->span.user = row->user;
    row->span.id = row->id;
    row->span.sandbox = row->sandbox;
    row->span.label = row->label;
    row->span.cause = row->cause;
    row->span.trace = &row->trace;
    row->span.trace_id = row->trace.id;
    return row;
}

void traces_late_add(struct server *s, const struct store_span *span) {
    struct traces_late *late = &s->traces_late;
    struct traces_late_row *row =
        traces_late_has_room(s) || late->count == TRACES_LATE_MAX ? NULL : traces_late_copy(span);
    if (row == NULL) {
        traces_late_put(s, span);
        return;
    }
    if (late->last != NULL)
        late->last->next = row;
    else
        late->first = row;
    late->last = row;
    late->count++;
    loop_defer(s->loop, &late->turn, traces_late_turn, s);
}

void traces_late_each(const struct server *s, const char *user, const uint8_t *trace_id,
                      bool (*fn)(void *arg, const struct store_span *span), void *arg) {
    for (const struct traces_late_row *row = s->traces_late.first; row != NULL; row = row->next)
        if (memcmp(row->trace.id, trace_id, sizeof(row->trace.id)) == 0 &&
            strcmp(row->user, user) == 0 && !fn(arg, &row->span))
            return;
}

bool traces_late_find(const struct server *s, const char *user, const char *id, struct trace *out) {
    for (const struct traces_late_row *row = s->traces_late.first; row != NULL; row = row->next)
        if (strcmp(row->id, id) == 0 && strcmp(row->user, user) == 0) {
            *out = row->trace;
            return true;
        }
    return false;
}

void traces_late_stop(struct server *s) {
    if (s->loop != NULL)
        loop_defer_stop(s->loop, &s->traces_late.turn);
    traces_late_work(s, SIZE_MAX);
}
