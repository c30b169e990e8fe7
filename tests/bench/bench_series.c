#include "bench_series.h"

#include <errno.h>
#include <stdlib.h>

#define BENCH_SERIES_FIRST 512u

void bench_series_done(struct bench_series *s) {
    if (!s)
        return;
    free(s->ns);
    *s = (struct bench_series){0};
}

int bench_series_add(struct bench_series *s, uint64_t ns, struct err *err) {
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : BENCH_SERIES_FIRST;
        uint64_t *grown = reallocarray(s->ns, room, sizeof(*grown));
        if (!grown) {
            errno = ENOMEM;
            return err_sys(err, "room for %zu samples", room);
        }
        s->ns = grown;
        s->room = room;
    }
    s->ns[s->count++] = ns;
    return 0;
}

static int bench_series_order(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double bench_series_us(struct bench_series *s, unsigned percent) {
    if (!s->count)
        return 0;
    qsort(s->ns, s->count, sizeof(*s->ns), bench_series_order);
    size_t rank = (s->count * percent + 99) / 100; /* 1…count */
    return (double)s->ns[rank - 1] / 1000.0;
}
