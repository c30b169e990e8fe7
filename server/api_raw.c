#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "api_range.h"
#include "str.h"

/* The kept bytes of one stream: head, then tail. */
struct api_raw {
    struct run *run; /* pinned; NULL when `copy` holds the bytes */
    const struct capture *capture;
    uint64_t tail_at; /* offset in the stream where the tail begins */
    uint64_t head;    /* bytes of the head */
    uint64_t at, end; /* position within the kept bytes */
    char *copy;
};

static void api_raw_read_at(const struct api_raw *r, uint64_t at, char *data, size_t len) {
    while (len > 0) {
        struct iovec parts[CAPTURE_PIECES];
        bool in_head = at < r->head;
        uint64_t left = in_head ? r->head - at : len;
        size_t n = left < len ? (size_t)left : len;
        uint64_t offset = in_head ? at : r->tail_at + (at - r->head);
        int count = capture_view(r->capture, offset, n, parts);
        for (int i = 0; i < count; i++) {
            memcpy(data, parts[i].iov_base, parts[i].iov_len);
            data += parts[i].iov_len;
        }
        at += n;
        len -= n;
    }
}

static ssize_t api_raw_read(void *arg, char *data, size_t size) {
    struct api_raw *r = arg;
    uint64_t left = r->end - r->at;
    size_t n = left < size ? (size_t)left : size;
    if (n == 0)
        return -1;
    if (r->copy != NULL)
        memcpy(data, r->copy + r->at, n);
    else
        api_raw_read_at(r, r->at, data, n);
    r->at += n;
    return (ssize_t)n;
}

static void api_raw_done(void *arg) {
    struct api_raw *r = arg;
    if (r->run != NULL)
        runs_unpin(r->run);
    free(r->copy);
    free(r);
}

static const struct http_stream api_raw_ops = {.read = api_raw_read, .done = api_raw_done};

/* A step that is still running goes on changing: its bytes are copied. */
static int api_raw_freeze(struct api_raw *r, struct run *run, bool finished) {
    if (finished) {
        r->run = run;
        runs_pin(run);
        return 0;
    }
    size_t len = (size_t)(r->end - r->at);
    r->copy = malloc(len + 1);
    if (r->copy == NULL)
        return -1;
    api_raw_read_at(r, r->at, r->copy, len);
    r->at = 0;
    r->end = len;
    return 0;
}

static void api_raw_send(struct http_req *req, struct run *run, const struct capture *c,
                         bool finished) {
    struct api_error error = {0};
    uint64_t past = c->total - c->head_len;
    uint64_t tail = past < c->tail_keep ? past : c->tail_keep;
    struct api_range range;
    http_add_header(req, "X-Pinfold-Omitted", "%" PRIu64, past - tail);
    http_add_header(req, "X-Pinfold-Bytes", "%" PRIu64, c->total);
    if (api_range_begin(req, c->head_len + tail, "that were kept", &range) < 0)
        return;
    struct api_raw *r = calloc(1, sizeof(*r));
    if (r != NULL)
        *r = (struct api_raw){.capture = c,
                              .head = c->head_len,
                              .tail_at = c->total - tail,
                              .at = range.at,
                              .end = range.end};
    if (r == NULL || api_raw_freeze(r, run, finished) < 0) {
        free(r);
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    api_range_reply(req, &range, &api_raw_ops, r);
}

static void api_raw_get(struct http_req *req, struct run *run, const struct route_args *args,
                        bool stderr_wanted) {
    struct api_error error = {0};
    uint64_t index = 0;
    if (str_u64(args->value[1], 0, UINT32_MAX, &index, NULL) < 0 || index >= run->step_count) {
        api_error_set(&error, 404, "not_found", NULL, "This run has no such step.");
        http_reply_error(req, &error);
        return;
    }
    const struct run_step *step = &run->steps[index];
    const struct run_stream *stream = stderr_wanted ? &step->err : &step->out;
    api_raw_send(req, run, &stream->capture, step->state == RUN_STEP_DONE);
}

static void api_raw_get_stdout(struct server *s, struct http_req *req, struct run *run,
                               const struct route_args *args) {
    (void)s;
    api_raw_get(req, run, args, false);
}

static void api_raw_get_stderr(struct server *s, struct http_req *req, struct run *run,
                               const struct route_args *args) {
    (void)s;
    api_raw_get(req, run, args, true);
}

void api_raw_stdout(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_raw_get_stdout);
}

void api_raw_stderr(struct server *s, struct http_req *req, const struct route_args *args) {
    api_runs_with(s, req, args, api_raw_get_stderr);
}
