/* Theory of operation. The answer is what is kept at the moment of the request: offsets are frozen,
 * and bytes are read as the client takes them. While the program runs, its head stays as it is, but
 * its tail moves on. A short tail is copied; a long one is still there until as much was written
 * again, or the program has written more and ends. A client who is slower than that has his
 * connection broken off, which the announced length shows him: what he got is true. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api_exec.h"
#include "api_range.h"
#include "execs.h"

#define API_EXEC_RAW_COPY ((uint64_t)1024 * 1024)

/* The kept bytes of one stream: head, then tail. */
struct api_exec_raw {
    struct exec *x; /* pinned */
    struct spool *spool;
    uint64_t tail_at; /* offset in the stream where the tail begins */
    uint64_t head;    /* bytes of the head */
    uint64_t at, end; /* position within the kept bytes */
    char *copy;       /* of what lies in the tail, from copy_at on; NULL = read from the spool */
    uint64_t copy_at;
};

static int api_exec_raw_read_at(const struct api_exec_raw *r, uint64_t at, char *data, size_t len) {
    size_t front = at < r->head ? (r->head - at < len ? (size_t)(r->head - at) : len) : 0;
    if (spool_read(r->spool, at, data, front, NULL) < 0)
        return -1;
    return spool_read(r->spool, r->tail_at + (at + front - r->head), data + front, len - front,
                      NULL);
}

static ssize_t api_exec_raw_read(void *arg, char *data, size_t size) {
    struct api_exec_raw *r = arg;
    uint64_t left = r->end - r->at;
    size_t n = left < size ? (size_t)left : size;
    if (n == 0)
        return -1;
    if (r->copy != NULL && r->at < r->copy_at && n > r->copy_at - r->at)
        n = (size_t)(r->copy_at - r->at);
    if (r->copy != NULL && r->at >= r->copy_at)
        memcpy(data, r->copy + (r->at - r->copy_at), n);
    else if (api_exec_raw_read_at(r, r->at, data, n) < 0)
        return -2;
    r->at += n;
    return (ssize_t)n;
}

static void api_exec_raw_done(void *arg) {
    struct api_exec_raw *r = arg;
    exec_unpin(r->x);
    free(r->copy);
    free(r);
}

static const struct http_stream api_exec_raw_ops = {.read = api_exec_raw_read,
                                                    .done = api_exec_raw_done};

/* What may go before the client has taken it. */
static int api_exec_raw_freeze(struct api_exec_raw *r) {
    if (r->x->state == EXEC_DONE)
        return 0;
    r->copy_at = r->at > r->head ? r->at : r->head;
    if (r->end <= r->copy_at || r->end - r->copy_at > API_EXEC_RAW_COPY)
        return 0;
    size_t len = (size_t)(r->end - r->copy_at);
    r->copy = malloc(len);
    return r->copy == NULL ? -1 : api_exec_raw_read_at(r, r->copy_at, r->copy, len);
}

static void api_exec_raw_send(struct http_req *req, struct exec *x, struct spool *s) {
    struct api_error error = {0};
    struct api_range range;
    uint64_t head = 0, tail = 0;
    spool_kept(s, &head, &tail);
    http_add_header(req, "X-Pinfold-Omitted", "%" PRIu64, s->total - head - tail);
    http_add_header(req, "X-Pinfold-Bytes", "%" PRIu64, s->total);
    if (api_range_begin(req, head + tail, "that were kept", &range) < 0)
        return;
    struct api_exec_raw *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    *r = (struct api_exec_raw){.x = x,
                               .spool = s,
                               .head = head,
                               .tail_at = s->total - tail,
                               .at = range.at,
                               .end = range.end};
    exec_pin(x);
    if (api_exec_raw_freeze(r) < 0) {
        api_exec_raw_done(r);
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    api_range_reply(req, &range, &api_exec_raw_ops, r);
}

void api_exec_stdout(struct server *s, struct http_req *req, const struct route_args *args) {
    struct exec *x = api_exec_mine(s, req, args);
    if (x != NULL)
        api_exec_raw_send(req, x, &x->out[SPOOL_STDOUT].spool);
}

void api_exec_stderr(struct server *s, struct http_req *req, const struct route_args *args) {
    struct exec *x = api_exec_mine(s, req, args);
    if (x != NULL)
        api_exec_raw_send(req, x, &x->out[SPOOL_STDERR].spool);
}
