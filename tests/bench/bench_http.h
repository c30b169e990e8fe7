/* A cheap HTTP/1.1 client for measuring: requests are made once, answers are looked at no more than
 * needed to know that they are whole and good. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench_loop.h"
#include "buf.h"
#include "err.h"

#define BENCH_HTTP_ANSWER_MAX (64u << 20)
#define BENCH_HTTP_TIMEOUT_S 30

/* A server on the loopback interface. */
struct bench_target {
    unsigned port;
    char token[128];
};

struct bench_answer {
    unsigned status;
    const char *body; /* within the buffer; chunked bodies with their frames */
    size_t body_len;
};

/* Appends a whole request; `body` NULL = GET without one. */
int bench_http_request(struct buf *out, const struct bench_target *target, const char *path,
                       const char *body, struct err *err);
/* A connected descriptor with TCP_NODELAY; blocking calls on it end after BENCH_HTTP_TIMEOUT_S. */
int bench_http_connect(unsigned port, struct err *err);
/* Is there a whole answer in `in`? 1 = yes, filled; 0 = more is needed; -1 = not HTTP. */
int bench_http_parse(const struct buf *in, struct bench_answer *answer, struct err *err);
/* One blocking exchange. `in` is cleared first and holds the answer afterwards. */
int bench_http_call(int fd, const struct buf *request, struct buf *in, struct bench_answer *answer,
                    struct err *err);
/* 0 when the answer is a run that went well. */
int bench_http_check_run(const struct bench_answer *answer, struct err *err);

/* Timed exchanges of one request on one keep-alive connection. */
struct bench_http_config {
    struct bench_target target;
    const char *path, *body;
};
struct bench_subject bench_http_subject(const struct bench_http_config *config);

/* Does GET `path` answer 200? Without a token; any failure is a no. */
bool bench_http_probe(unsigned port, const char *path);
