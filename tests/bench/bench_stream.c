#include "bench_stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bench_proc.h"
#include "clock.h"
#include "fd.h"

#define BENCH_STREAM_READ (256u << 10)
#define BENCH_STREAM_TAIL 4096u
#define BENCH_STREAM_HEAD 4096u

/* What is kept of an answer that is too large to keep. */
struct bench_stream {
    uint64_t total;
    bool known;        /* the header has come */
    uint64_t expected; /* of an answer with a length; 0 = chunked */
    struct buf head;
    char tail[BENCH_STREAM_TAIL + 1];
    size_t tail_len;
};

static void bench_stream_tail(struct bench_stream *s, const char *data, size_t len) {
    if (len > BENCH_STREAM_TAIL) {
        data += len - BENCH_STREAM_TAIL;
        len = BENCH_STREAM_TAIL;
    }
    size_t keep = s->tail_len < BENCH_STREAM_TAIL - len ? s->tail_len : BENCH_STREAM_TAIL - len;
    memmove(s->tail, s->tail + s->tail_len - keep, keep);
    memcpy(s->tail + keep, data, len);
    s->tail_len = keep + len;
    s->tail[s->tail_len] = '\0';
}

/* Keeps the first bytes; from the header, as soon as it is there: how the end is recognised. */
static int bench_stream_head(struct bench_stream *s, const char *data, size_t len,
                             struct err *err) {
    size_t room = BENCH_STREAM_HEAD - s->head.len;
    if (room && buf_append(&s->head, data, len < room ? len : room, err) < 0)
        return -1;
    if (s->known)
        return 0;
    struct bench_answer answer = {0};
    if (bench_http_parse(&s->head, &answer, err) < 0)
        return -1;
    if (!answer.status)
        return 0; /* the rest of the header is still to come */
    s->known = true;
    if (answer.status != 200)
        return bench_http_check_run(&answer, err);
    const char *length = strcasestr(s->head.data, "\nContent-Length:");
    if (length && length < answer.body)
        s->expected = (uint64_t)(answer.body - s->head.data) + strtoull(length + 16, NULL, 10);
    return 0;
}

static int bench_stream_take(struct bench_stream *s, const char *data, size_t len,
                             struct err *err) {
    if (bench_stream_head(s, data, len, err) < 0)
        return -1;
    s->total += len;
    bench_stream_tail(s, data, len);
    if (s->expected)
        return s->total >= s->expected;
    return s->tail_len >= 5 && strcmp(s->tail + s->tail_len - 5, "0\r\n\r\n") == 0;
}

static int bench_stream_receive(int fd, struct bench_stream *s, struct err *err) {
    char *data = malloc(BENCH_STREAM_READ);
    int rc = 0;
    if (!data) {
        errno = ENOMEM;
        return err_sys(err, "room for an answer");
    }
    while (rc == 0) {
        ssize_t n = recv(fd, data, BENCH_STREAM_READ, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_sys(err, "receive a stream");
        else if (n == 0)
            rc = err_set(err, ERR_PROTOCOL, 0, "the server cut a stream short");
        else
            rc = bench_stream_take(s, data, (size_t)n, err);
    }
    free(data);
    return rc < 0 ? -1 : 0;
}

static int bench_stream_exchange(const struct bench_http_config *config, struct bench_stream *s,
                                 uint64_t *ns, struct err *err) {
    struct buf request;
    buf_init(&request, 65536);
    fd_cleanup int fd = bench_http_connect(config->target.port, err);
    int rc = fd < 0 ? -1 : 0;
    if (rc == 0)
        rc = bench_http_request(&request, &config->target, config->path, config->body, err);
    uint64_t start = clock_mono_ns();
    if (rc == 0)
        rc = fd_write_all(fd, request.data, request.len, err);
    if (rc == 0)
        rc = bench_stream_receive(fd, s, err);
    *ns = clock_mono_ns() - start;
    buf_done(&request);
    return rc;
}

int bench_stream_run(const struct bench_http_config *config, pid_t server,
                     struct bench_stream_result *result, struct err *err) {
    uint64_t peak;
    struct bench_stream s = {0};
    buf_init(&s.head, BENCH_STREAM_HEAD);
    *result = (struct bench_stream_result){0};
    int rc = bench_proc_reset_peak(server, err);
    if (rc == 0)
        rc = bench_proc_rss(server, &result->rss_before_bytes, &peak, err);
    if (rc == 0)
        rc = bench_stream_exchange(config, &s, &result->ns, err);
    if (rc == 0)
        rc = bench_proc_rss(server, &result->rss_after_bytes, &result->rss_peak_bytes, err);
    /* "ok" comes early in a whole answer and last in a stream. */
    if (rc == 0 && !strstr(s.tail, "\"ok\":true") &&
        !memmem(s.head.data, s.head.len, "\"ok\":true", 9))
        rc = err_set(err, ERR_PROTOCOL, 0, "a run with a large output went wrong");
    result->wire_bytes = s.total;
    buf_done(&s.head);
    return rc;
}
