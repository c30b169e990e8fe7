#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "answer.h"
#include "execution.h"
#include "json_out.h"
#include "text.h"

/* What a follower came too late for, per stream, until the next event that is there. */
struct exec_events_lost {
    uint64_t bytes[SPOOL_STREAMS], seq[SPOOL_STREAMS];
};

static const char *const exec_events_names[SPOOL_STREAMS] = {"stdout", "stderr"};

static void exec_events_head(struct json_out *j, struct buf *out, uint64_t seq, const char *type) {
    json_out_init(j, out);
    json_out_open(j, NULL, '{');
    json_out_u64(j, "seq", seq);
    json_out_str(j, "type", type);
}

static int exec_events_tell_lost(struct exec_events_lost *lost, struct buf *out, struct err *err) {
    int first = lost->seq[0] <= lost->seq[1] ? 0 : 1;
    for (int k = 0; k < SPOOL_STREAMS; k++) {
        int i = k == 0 ? first : 1 - first;
        struct json_out j;
        if (lost->seq[i] == 0)
            continue;
        exec_events_head(&j, out, lost->seq[i], "omitted");
        json_out_str(&j, "stream", exec_events_names[i]);
        json_out_u64(&j, "bytes", lost->bytes[i]);
        if (answer_event_close(&j, err) < 0)
            return -1;
    }
    *lost = (struct exec_events_lost){0};
    return 0;
}

static int exec_events_output(struct exec *x, uint64_t seq, const struct spool_event *r,
                              struct buf *out, struct err *err) {
    struct spool *s = &x->out[r->stream].spool;
    struct json_out j;
    char *data = malloc(r->len);
    if (data == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading an event: out of memory");
    int rc = spool_read(s, r->end[r->stream] - r->len, data, r->len, err);
    if (rc == 0) {
        struct iovec part = {.iov_base = data, .iov_len = r->len};
        exec_events_head(&j, out, seq, exec_events_names[r->stream]);
        json_out_bytes(&j, &(struct json_out_bytes){.key = "data",
                                                    .encoding_key = "encoding",
                                                    .parts = &part,
                                                    .count = 1,
                                                    .utf8 = text_is_utf8(data, r->len)});
        rc = answer_event_close(&j, err);
    }
    free(data);
    return rc;
}

static int exec_events_started(const struct exec *x, struct buf *out, struct err *err) {
    struct json_out j;
    exec_events_head(&j, out, EXEC_SEQ_STARTED, "started");
    json_out_str(&j, "name", x->name);
    return answer_event_close(&j, err);
}

static int exec_events_end(const struct exec *x, uint64_t seq, struct buf *out, struct err *err) {
    struct json_out j;
    exec_events_head(&j, out, seq, "end");
    json_out_bool(&j, "ok", x->ok);
    answer_end(&j, &x->end);
    answer_usage(&j, &x->usage);
    return answer_event_close(&j, err);
}

static int exec_events_done(const struct exec *x, uint64_t seq, struct buf *out, struct err *err) {
    struct json_out j;
    exec_events_head(&j, out, seq, "done");
    json_out_bool(&j, "ok", x->ok);
    return answer_event_close(&j, err);
}

static bool exec_events_there(const struct exec *x, const struct spool_event *r) {
    return r->len <= SPOOL_EVENTS_CHUNK &&
           spool_has(&x->out[r->stream].spool, r->end[r->stream] - r->len, r->len);
}

/* Of a stream, what lies between what the watcher has seen and `upto` is not there any more. */
static void exec_events_miss(struct exec_watcher *w, struct exec_events_lost *lost, int stream,
                             uint64_t upto, uint64_t seq) {
    if (upto <= w->seen[stream])
        return;
    lost->bytes[stream] += upto - w->seen[stream];
    lost->seq[stream] = seq;
    w->seen[stream] = upto;
}

/* One record, or, when those after the watcher are gone, the first behind them. */
static int exec_events_one(struct exec *x, struct exec_watcher *w, struct exec_events_lost *lost,
                           struct buf *out, struct err *err) {
    struct spool_event r;
    uint64_t index = w->after + 1 - EXEC_SEQ_OUTPUT;
    uint64_t found = spool_events_find(&x->events, index);
    if (found == UINT64_MAX) { /* a hole up to the end: only if the file was cut */
        w->after = EXEC_SEQ_STARTED + x->events.count;
        return 0;
    }
    if (spool_events_get(&x->events, found, &r, err) < 0)
        return -1;
    if (found != index) {
        for (int i = 0; i < SPOOL_STREAMS; i++) {
            uint64_t before = r.end[i] - ((uint32_t)i == r.stream ? r.len : 0u);
            exec_events_miss(w, lost, i, before, found - 1 + EXEC_SEQ_OUTPUT);
        }
    }
    uint64_t seq = found + EXEC_SEQ_OUTPUT;
    if (exec_events_there(x, &r)) {
        if (exec_events_tell_lost(lost, out, err) < 0 ||
            exec_events_output(x, seq, &r, out, err) < 0)
            return -1;
        w->seen[r.stream] = r.end[r.stream];
    } else {
        exec_events_miss(w, lost, (int)r.stream, r.end[r.stream], seq);
    }
    w->after = seq;
    return 0;
}

void exec_events_seek(struct exec *x, struct exec_watcher *w, uint64_t after) {
    struct spool_event r;
    uint64_t last = EXEC_SEQ_STARTED + x->events.count;
    w->after = after;
    memset(w->seen, 0, sizeof(w->seen));
    if (after < EXEC_SEQ_OUTPUT)
        return;
    if (after > last) {
        memcpy(w->seen, x->events.end, sizeof(w->seen));
        return;
    }
    /* That record, or the last one in front of the hole that it lies in. */
    uint64_t index = after - EXEC_SEQ_OUTPUT;
    if (spool_events_find(&x->events, index) != index)
        index = x->events.file.head_max / sizeof(r) - 1;
    if (spool_events_get(&x->events, index, &r, NULL) == 0)
        memcpy(w->seen, r.end, sizeof(w->seen));
}

int exec_events(struct exec *x, struct exec_watcher *w, size_t want, struct buf *out,
                struct err *err) {
    struct exec_events_lost lost = {0};
    uint64_t last = EXEC_SEQ_STARTED + x->events.count;
    char name[SPOOL_NAME_SIZE];
    exec_io_name(x, EXEC_IO_EVENTS, name);
    if (w->after < last && x->state == EXEC_RUNNING && spool_events_seal(&x->events, name, err) < 0)
        return -1;
    if (w->after < EXEC_SEQ_STARTED) {
        if (exec_events_started(x, out, err) < 0)
            return -1;
        w->after = EXEC_SEQ_STARTED;
    }
    while (w->after < last && out->len < want)
        if (exec_events_one(x, w, &lost, out, err) < 0)
            return -1;
    if (exec_events_tell_lost(&lost, out, err) < 0)
        return -1;
    if (w->after < last || x->state != EXEC_DONE)
        return 0;
    if (w->after == last) {
        if (exec_events_end(x, ++w->after, out, err) < 0)
            return -1;
    }
    if (w->after == last + 1 && exec_events_done(x, ++w->after, out, err) < 0)
        return -1;
    return 1;
}
