#include "capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* The first read of a stream: most outputs are short. */
#define CAPTURE_FIRST 1024
#define CAPTURE_STEP ((size_t)64 * 1024)

void capture_init(struct capture *c, uint64_t cap) {
    memset(c, 0, sizeof(*c));
    c->cap = cap;
    c->head_max = (size_t)(cap / 2);
    c->tail_keep = (size_t)(cap - cap / 2);
    c->ring_base = c->head_max;
    c->ring_max = c->tail_keep > CAPTURE_SLACK ? c->tail_keep : CAPTURE_SLACK;
}

void capture_done(struct capture *c) {
    if (c == NULL)
        return;
    free(c->head);
    free(c->ring);
    memset(c, 0, sizeof(*c));
}

static int capture_grow(char **mem, size_t *alloc, size_t need, size_t max, struct err *err) {
    if (*alloc >= need || *alloc == max)
        return 0;
    size_t size = *alloc < CAPTURE_FIRST / 2 ? CAPTURE_FIRST / 2 : *alloc;
    while (size < need)
        size *= 2;
    if (size > max)
        size = max;
    char *grown = realloc(*mem, size);
    if (grown == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM,
                       "growing an output buffer to %zu bytes: out of memory", size);
    *mem = grown;
    *alloc = size;
    return 0;
}

/* Bytes in the ring, counted from ring_base. */
static uint64_t capture_ring_seen(const struct capture *c) {
    return c->total > c->ring_base ? c->total - c->ring_base : 0;
}

int capture_iov(struct capture *c, size_t want, struct iovec iov[CAPTURE_PIECES], struct err *err) {
    size_t offer = c->total == 0             ? CAPTURE_FIRST
                   : c->total < CAPTURE_STEP ? CAPTURE_STEP
                                             : CAPTURE_READ_MAX;
    if (want > offer)
        want = offer;
    int n = 0;
    if (c->head_len < c->head_max && want > 0) {
        if (capture_grow(&c->head, &c->head_alloc, c->head_len + want, c->head_max, err) < 0)
            return -1;
        size_t room = c->head_alloc - c->head_len;
        size_t len = room < want ? room : want;
        iov[n++] = (struct iovec){.iov_base = c->head + c->head_len, .iov_len = len};
        want -= len;
    }
    if (want == 0)
        return n;
    uint64_t seen = capture_ring_seen(c);
    /* The ring grows only while it has never wrapped, so that growing need not move anything. */
    if (seen + want > c->ring_alloc && c->ring_alloc < c->ring_max) {
        uint64_t need = seen + want < c->ring_max ? seen + want : c->ring_max;
        if (capture_grow(&c->ring, &c->ring_alloc, (size_t)need, c->ring_max, err) < 0)
            return -1;
    }
    if (want > c->ring_alloc)
        want = c->ring_alloc;
    size_t at = (size_t)(seen % c->ring_alloc);
    size_t first = c->ring_alloc - at < want ? c->ring_alloc - at : want;
    iov[n++] = (struct iovec){.iov_base = c->ring + at, .iov_len = first};
    if (want > first)
        iov[n++] = (struct iovec){.iov_base = c->ring, .iov_len = want - first};
    return n;
}

void capture_commit(struct capture *c, size_t len) {
    size_t room = c->head_max - c->head_len;
    c->head_len += len < room ? len : room;
    c->total += len;
}

int capture_append(struct capture *c, const void *data, size_t len, struct err *err) {
    const char *from = data;
    while (len > 0) {
        struct iovec iov[CAPTURE_PIECES];
        int n = capture_iov(c, len, iov, err);
        if (n < 0)
            return -1;
        size_t copied = 0;
        for (int i = 0; i < n; i++) {
            memcpy(iov[i].iov_base, from + copied, iov[i].iov_len);
            copied += iov[i].iov_len;
        }
        capture_commit(c, copied);
        from += copied;
        len -= copied;
    }
    return 0;
}

void capture_restore(struct capture *c, uint64_t total, char *head, size_t head_len, char *tail,
                     size_t tail_len) {
    memset(c, 0, sizeof(*c));
    c->cap = head_len + tail_len;
    c->total = total;
    c->head_max = c->head_len = c->head_alloc = head_len;
    c->head = head;
    c->tail_keep = c->ring_alloc = c->ring_max = tail_len;
    c->ring = tail;
    c->ring_base = total - tail_len;
    c->finished = true;
}

uint64_t capture_tail_start(const struct capture *c) {
    uint64_t seen = capture_ring_seen(c);
    if (seen <= c->ring_alloc)
        return c->total < c->ring_base ? c->total : c->ring_base;
    return c->total - c->ring_alloc;
}

size_t capture_room(const struct capture *c, uint64_t offset) {
    if (offset < c->ring_base)
        offset = c->ring_base;
    uint64_t lag = c->total > offset ? c->total - offset : 0;
    if (c->total < c->ring_base)
        return c->ring_max + (size_t)(c->ring_base - c->total);
    return lag >= c->ring_max ? 0 : c->ring_max - (size_t)lag;
}

bool capture_has(const struct capture *c, uint64_t offset, size_t len) {
    uint64_t end = offset + len;
    if (end > c->total)
        return false;
    if (end <= c->head_len)
        return true;
    uint64_t start = offset < c->head_len ? c->head_len : offset;
    return start >= capture_tail_start(c);
}

int capture_view(const struct capture *c, uint64_t offset, size_t len,
                 struct iovec out[CAPTURE_PIECES]) {
    int n = 0;
    if (len > 0 && offset < c->head_len) {
        size_t at = (size_t)offset;
        size_t part = c->head_len - at < len ? c->head_len - at : len;
        out[n++] = (struct iovec){.iov_base = c->head + at, .iov_len = part};
        offset += part;
        len -= part;
    }
    if (len == 0)
        return n;
    size_t at = (size_t)((offset - c->ring_base) % c->ring_alloc);
    size_t first = c->ring_alloc - at < len ? c->ring_alloc - at : len;
    out[n++] = (struct iovec){.iov_base = c->ring + at, .iov_len = first};
    if (len > first)
        out[n++] = (struct iovec){.iov_base = c->ring, .iov_len = len - first};
    return n;
}

/* Replaces the ring by exactly the last tail_keep bytes, in order. */
static void capture_cut_tail(struct capture *c) {
    uint64_t seen = capture_ring_seen(c);
    size_t keep = seen < c->tail_keep ? (size_t)seen : c->tail_keep;
    if (keep == 0) {
        free(c->ring);
        c->ring = NULL;
        c->ring_alloc = 0;
        return;
    }
    if (seen <= c->ring_alloc && seen == keep) {
        char *fit = realloc(c->ring, keep);
        c->ring = fit != NULL ? fit : c->ring;
        c->ring_alloc = fit != NULL ? keep : c->ring_alloc;
        return;
    }
    char *tail = malloc(keep);
    if (tail == NULL)
        return; /* the larger ring serves as well */
    struct iovec iov[CAPTURE_PIECES];
    int n = capture_view(c, c->total - keep, keep, iov);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        memcpy(tail + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    free(c->ring);
    c->ring = tail;
    c->ring_alloc = keep;
    c->ring_base = c->total - keep;
}

void capture_finish(struct capture *c) {
    if (c->finished)
        return;
    c->finished = true;
    if (c->head_alloc > c->head_len) {
        char *fit = c->head_len > 0 ? realloc(c->head, c->head_len) : NULL;
        if (c->head_len == 0)
            free(c->head);
        if (fit != NULL || c->head_len == 0) {
            c->head = fit;
            c->head_alloc = c->head_len;
        }
    }
    capture_cut_tail(c);
}

size_t capture_memory(const struct capture *c) {
    return c->head_alloc + c->ring_alloc;
}

static bool capture_range_utf8(const struct capture *c, uint64_t offset, size_t len) {
    struct iovec iov[CAPTURE_PIECES];
    int n = capture_view(c, offset, len, iov);
    if (n == 1)
        return text_is_utf8(iov[0].iov_base, iov[0].iov_len);
    /* A character may lie across a border between pieces: carry its beginning over. */
    char carry[8];
    size_t carried = 0;
    for (int i = 0; i < n; i++) {
        const char *data = iov[i].iov_base;
        size_t size = iov[i].iov_len;
        while (carried > 0 && size > 0) {
            carry[carried++] = *data++;
            size--;
            bool more = false;
            if (text_utf8_prefix(carry, carried, &more) == carried)
                carried = 0;
            else if (!more)
                return false;
        }
        bool more = false;
        size_t good = text_utf8_prefix(data, size, &more);
        if (good < size && !more)
            return false;
        for (size_t k = good; k < size; k++)
            carry[carried++] = data[k];
    }
    return carried == 0;
}

void capture_text(const struct capture *c, struct capture_text *out) {
    uint64_t past_head = c->total - c->head_len;
    size_t tail = past_head < c->tail_keep ? (size_t)past_head : c->tail_keep;
    *out = (struct capture_text){.head = c->head_len, .tail = tail, .omitted = past_head - tail};
    if (out->omitted == 0) {
        out->utf8 = capture_range_utf8(c, 0, (size_t)c->total);
        return;
    }
    bool cut = false;
    size_t head = text_utf8_prefix(c->head, c->head_len, &cut);
    struct iovec iov[CAPTURE_PIECES];
    char front[3] = {0};
    size_t have = 0;
    int n = capture_view(c, c->total - tail, tail < 3 ? tail : 3, iov);
    for (int i = 0; i < n; i++) {
        memcpy(front + have, iov[i].iov_base, iov[i].iov_len);
        have += iov[i].iov_len;
    }
    size_t orphans = text_utf8_orphans(front, have);
    out->utf8 = (head == c->head_len || cut) &&
                capture_range_utf8(c, c->total - (tail - orphans), tail - orphans);
    if (!out->utf8)
        return;
    out->omitted += (c->head_len - head) + orphans;
    out->head = head;
    out->tail = tail - orphans;
}

void capture_line(uint64_t omitted, char line[CAPTURE_LINE_SIZE]) {
    snprintf(line, CAPTURE_LINE_SIZE, "\n[%" PRIu64 " bytes omitted]\n", omitted);
}

static bool capture_probe_kept(const struct capture *c, uint64_t offset, size_t len) {
    struct iovec parts[CAPTURE_PIECES];
    int n = capture_view(c, offset, len, parts);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i].iov_len; k++, offset++)
            if (((const char *)parts[i].iov_base)[k] != (char)(offset % 113))
                return false;
    return true;
}

int capture_probe(struct err *err) {
    struct capture c;
    struct capture_text text;
    char piece[4000];
    capture_init(&c, CAPTURE_PROBE_CAP);
    int rc = 0;
    while (rc == 0 && c.total < CAPTURE_PROBE_BYTES) {
        for (size_t i = 0; i < sizeof(piece); i++)
            piece[i] = (char)((c.total + i) % 113);
        rc = capture_append(&c, piece, sizeof(piece), err);
    }
    capture_finish(&c);
    capture_text(&c, &text);
    if (rc == 0 &&
        (text.head + text.tail != CAPTURE_PROBE_CAP ||
         text.omitted != CAPTURE_PROBE_BYTES - CAPTURE_PROBE_CAP ||
         capture_memory(&c) > CAPTURE_PROBE_CAP || !capture_probe_kept(&c, 0, text.head) ||
         !capture_probe_kept(&c, c.total - text.tail, text.tail)))
        rc = err_set(err, ERR_STATE, 0, "the cap on output does not hold");
    capture_done(&c);
    return rc;
}
