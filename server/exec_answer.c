#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "capture.h"
#include "clock.h"
#include "execution.h"
#include "json_out.h"

int exec_answer_capture(struct spool *s, struct capture *out, struct err *err) {
    uint64_t head = 0, tail = 0;
    spool_kept(s, &head, &tail);
    char *front = malloc((size_t)head + 1), *back = malloc((size_t)tail + 1);
    int rc = front != NULL && back != NULL
                 ? 0
                 : err_set(err, ERR_SYSTEM, ENOMEM, "reading output: out of memory");
    if (rc == 0)
        rc = spool_read(s, 0, front, (size_t)head, err);
    if (rc == 0)
        rc = spool_read(s, s->total - tail, back, (size_t)tail, err);
    if (rc < 0) {
        free(front);
        free(back);
        return -1;
    }
    capture_restore(out, s->total, front, (size_t)head, back, (size_t)tail);
    return 0;
}

static int exec_answer_outputs(struct json_out *j, struct spool streams[SPOOL_STREAMS],
                               struct err *err) {
    struct capture c[SPOOL_STREAMS];
    if (exec_answer_capture(&streams[SPOOL_STDOUT], &c[SPOOL_STDOUT], err) < 0)
        return -1;
    if (exec_answer_capture(&streams[SPOOL_STDERR], &c[SPOOL_STDERR], err) < 0) {
        capture_done(&c[SPOOL_STDOUT]);
        return -1;
    }
    answer_outputs(j, &c[SPOOL_STDOUT], &c[SPOOL_STDERR]);
    capture_done(&c[SPOOL_STDOUT]);
    capture_done(&c[SPOOL_STDERR]);
    return 0;
}

static void exec_answer_head(struct json_out *j, const struct exec *x) {
    json_out_str(j, "id", x->id);
    json_out_str(j, "name", x->name);
    json_out_str(j, "command", x->command);
    json_out_str(j, "state", x->state == EXEC_DONE ? "done" : "running");
    json_out_bool(j, "ok", x->ok);
    json_out_bool(j, "background", (x->flags & EXEC_BACKGROUND) != 0);
    if ((x->flags & EXEC_PTY) != 0) {
        json_out_open(j, "pty", '{');
        json_out_u64(j, "rows", x->rows);
        json_out_u64(j, "cols", x->cols);
        json_out_close(j, '}');
    } else {
        json_out_null(j, "pty");
    }
    json_out_u64(j, "created_at", x->created_ms);
    if (x->state == EXEC_DONE)
        json_out_u64(j, "ended_at", x->ended_ms);
    else
        json_out_null(j, "ended_at");
    trace_write(j, &x->trace);
}

static void exec_answer_timing(struct json_out *j, const struct exec *x) {
    uint64_t ran = x->usage.wall_ns / CLOCK_NS_PER_MS;
    uint64_t now = clock_real_ms();
    if (x->state == EXEC_RUNNING)
        ran = now > x->created_ms ? now - x->created_ms : 0;
    json_out_open(j, "timing", '{');
    json_out_u64(j, "setup_ms", x->setup_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "run_ms", ran);
    json_out_u64(j, "setup_us", x->setup_ns / 1000);
    json_out_close(j, '}');
}

size_t exec_answer_weight(const struct exec *x) {
    size_t bytes = 0;
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        uint64_t head = 0, tail = 0;
        spool_kept(&x->out[i].spool, &head, &tail);
        bytes += (size_t)(head + tail);
    }
    return x->state == EXEC_DONE ? bytes : 0;
}

int exec_answer_encode(const struct exec *x, struct spool streams[SPOOL_STREAMS], struct buf *out,
                       struct err *err) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_open(&j, NULL, '{');
    exec_answer_head(&j, x);
    if (x->state == EXEC_DONE) {
        answer_end(&j, &x->end);
        if (exec_answer_outputs(&j, streams, err) < 0)
            return -1;
        answer_usage(&j, &x->usage);
    }
    answer_limits(&j, &x->limits);
    answer_end_on(&j, x->end_on);
    json_out_bool(&j, "stdin_open", x->input.open && !x->input.closing);
    json_out_u64(&j, "stdin_bytes", x->input.bytes);
    json_out_u64(&j, "last_seq", exec_last_seq(x));
    exec_answer_timing(&j, x);
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}

int exec_answer_encode_summary(const struct exec *x, struct buf *out, struct err *err) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_open(&j, NULL, '{');
    exec_answer_head(&j, x);
    if (x->state == EXEC_DONE)
        answer_end(&j, &x->end);
    json_out_u64(&j, "last_seq", exec_last_seq(x));
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}
