#include "spool_events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPOOL_EVENTS_SIZE sizeof(struct spool_event)

_Static_assert(SPOOL_EVENTS_SIZE == 24, "records lie on disk");

void spool_events_init(struct spool_events *e, const int *dir) {
    memset(e, 0, sizeof(*e));
    spool_init(&e->file, dir, SPOOL_EVENTS_CAP);
}

void spool_events_done(struct spool_events *e) {
    spool_done(&e->file);
    free(e->wait);
    e->wait = NULL;
    e->wait_count = 0;
}

static struct spool_event *spool_events_newest(const struct spool_events *e) {
    return e->wait_count > 0 ? &e->wait[e->wait_count - 1] : NULL;
}

uint64_t spool_events_room(const struct spool_events *e, enum spool_stream stream) {
    const struct spool_event *r = spool_events_newest(e);
    if (r == NULL || e->sealed || r->stream != stream || r->len >= SPOOL_EVENTS_CHUNK)
        return 0;
    return SPOOL_EVENTS_CHUNK - r->len;
}

static int spool_events_write(struct spool_events *e, const char *name, struct err *err) {
    if (e->wait_count == 0)
        return 0;
    if (!spool_has_file(&e->file) && spool_create(&e->file, name, err) < 0)
        return -1;
    if (spool_put(&e->file, e->wait, e->wait_count * SPOOL_EVENTS_SIZE, err) < 0)
        return -1;
    e->wait_count = 0;
    return 0;
}

int spool_events_add(struct spool_events *e, enum spool_stream stream, uint32_t len,
                     const char *name, struct err *err) {
    if (spool_events_room(e, stream) >= len) {
        struct spool_event *r = spool_events_newest(e);
        r->len += len;
        r->end[stream] += len;
        e->end[stream] += len;
        return 0;
    }
    if (e->wait == NULL) {
        e->wait = malloc(SPOOL_EVENTS_WAIT * SPOOL_EVENTS_SIZE);
        if (e->wait == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "recording an event: out of memory");
    }
    if (e->wait_count == SPOOL_EVENTS_WAIT && spool_events_write(e, name, err) < 0)
        return -1;
    struct spool_event *r = &e->wait[e->wait_count++];
    e->end[stream] += len;
    *r = (struct spool_event){
        .end = {e->end[SPOOL_STDOUT], e->end[SPOOL_STDERR]}, .len = len, .stream = stream};
    e->count++;
    e->sealed = false;
    return 0;
}

int spool_events_seal(struct spool_events *e, const char *name, struct err *err) {
    if (spool_events_write(e, name, err) < 0)
        return -1;
    e->sealed = true;
    return 0;
}

int spool_events_finish(struct spool_events *e, struct err *err) {
    e->sealed = true;
    if (!spool_has_file(&e->file))
        return 0;
    if (spool_events_write(e, e->file.name, err) < 0)
        return -1;
    free(e->wait);
    e->wait = NULL;
    return 0;
}

uint64_t spool_events_find(const struct spool_events *e, uint64_t index) {
    const struct spool *f = &e->file;
    uint64_t written = e->count - e->wait_count;
    if (index >= e->count)
        return UINT64_MAX;
    if (index < written && !spool_has(f, index * SPOOL_EVENTS_SIZE, SPOOL_EVENTS_SIZE))
        index = (f->gone + SPOOL_EVENTS_SIZE - 1) / SPOOL_EVENTS_SIZE;
    return index < e->count ? index : UINT64_MAX;
}

static bool spool_events_is_one(const struct spool_event *r) {
    return r->stream < SPOOL_STREAMS && r->len > 0 && r->end[r->stream] >= r->len;
}

int spool_events_get(struct spool_events *e, uint64_t index, struct spool_event *out,
                     struct err *err) {
    uint64_t written = e->count - e->wait_count;
    struct spool_event r;
    if (index >= e->count)
        return err_set(err, ERR_STATE, 0, "there is no such event");
    if (index >= written)
        r = e->wait[index - written];
    else if (spool_read(&e->file, index * SPOOL_EVENTS_SIZE, &r, SPOOL_EVENTS_SIZE, err) < 0)
        return -1;
    if (!spool_events_is_one(&r))
        return err_set(err, ERR_STATE, 0, "the record of an event is not sound");
    *out = r;
    return 0;
}

/* Loading. */

static bool spool_events_follows(const struct spool_event *r, const struct spool_event *before,
                                 const uint64_t total[SPOOL_STREAMS]) {
    if (!spool_events_is_one(r) || r->end[SPOOL_STDOUT] > total[SPOOL_STDOUT] ||
        r->end[SPOOL_STDERR] > total[SPOOL_STDERR])
        return false;
    if (before == NULL)
        return true;
    int other = 1 - (int)r->stream;
    return r->end[r->stream] == before->end[r->stream] + r->len &&
           r->end[other] == before->end[other];
}

/* How many of the records, from the first on, can be believed; *last is the last of them. */
static uint64_t spool_events_sound(struct spool_events *e, uint64_t count,
                                   const uint64_t total[SPOOL_STREAMS], struct spool_event *last) {
    struct spool_event block[128];
    const struct spool_event nothing = {0};
    const struct spool_event *before = &nothing;
    uint64_t i = 0;
    e->count = count;
    while (i < count) {
        uint64_t found = spool_events_find(e, i);
        if (found == UINT64_MAX)
            break;
        if (found != i)
            before = NULL; /* behind a hole anything may follow */
        i = found;
        uint64_t n = count - i;
        if (n > sizeof(block) / SPOOL_EVENTS_SIZE)
            n = sizeof(block) / SPOOL_EVENTS_SIZE;
        while (n > 1 && !spool_has(&e->file, i * SPOOL_EVENTS_SIZE, n * SPOOL_EVENTS_SIZE))
            n /= 2;
        if (spool_read(&e->file, i * SPOOL_EVENTS_SIZE, block, n * SPOOL_EVENTS_SIZE, NULL) < 0)
            break;
        for (uint64_t k = 0; k < n; k++, i++) {
            if (!spool_events_follows(&block[k], before, total))
                return i;
            *last = block[k];
            before = last;
        }
    }
    return i;
}

int spool_events_load(struct spool_events *e, const char *name, const uint64_t total[SPOOL_STREAMS],
                      struct err *err) {
    struct err why;
    struct spool_event last = {0};
    err_clear(&why);
    if (spool_load(&e->file, name, &why) < 0) {
        if (why.code == ENOENT)
            return 0;
        if (err != NULL)
            *err = why;
        return -1;
    }
    uint64_t count = spool_events_sound(e, e->file.total / SPOOL_EVENTS_SIZE, total, &last);
    e->count = count;
    if (spool_cut(&e->file, count * SPOOL_EVENTS_SIZE, err) < 0)
        return -1;
    memcpy(e->end, last.end, sizeof(e->end));
    e->sealed = true;
    return 0;
}

void spool_events_load_part(struct spool_events *e, const int *host, uint64_t at, uint64_t count,
                            const uint64_t total[SPOOL_STREAMS]) {
    e->file.host = host;
    e->file.host_at = at;
    e->file.total = count * SPOOL_EVENTS_SIZE;
    e->count = count;
    e->sealed = true;
    memcpy(e->end, total, sizeof(e->end));
}
