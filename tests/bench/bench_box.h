/* Sandboxes for measuring: a connection, and calls on it that must go well. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bench_http.h"
#include "bench_loop.h"
#include "buf.h"
#include "err.h"

#define BENCH_BOX_ID_SIZE 48
#define BENCH_BOX_PATH_SIZE 160

struct bench_box {
    struct bench_target target;
    int fd;
    struct buf request, in;
    struct bench_answer answer; /* of the last call */
    uint64_t ns;                /* that it took, from the request to the whole answer */
};

/* A request in words: `type` NULL = JSON; `size` bytes of `body`, NULL = none. */
struct bench_box_ask {
    const char *method, *path, *type;
    const void *body;
    size_t size;
};

int bench_box_open(struct bench_box *b, const struct bench_target *target, struct err *err);
/* Accepts a zeroed struct. */
void bench_box_close(struct bench_box *b);

/* Appends the request to `out`. */
int bench_box_request(struct buf *out, const struct bench_target *target,
                      const struct bench_box_ask *ask, struct err *err);
/* One exchange; any status but 2xx is an error that quotes the answer. */
int bench_box_ask(struct bench_box *b, const struct bench_box_ask *ask, struct err *err);
/* The same with a JSON text (NULL = none). */
int bench_box_call(struct bench_box *b, const char *method, const char *path, const char *json,
                   struct err *err);

/* The value of the first "id" in an answer. */
int bench_box_id(const struct bench_answer *answer, char id[BENCH_BOX_ID_SIZE], struct err *err);
/* POST /v1/sandboxes. */
int bench_box_make(struct bench_box *b, const char *json, char id[BENCH_BOX_ID_SIZE],
                   struct err *err);
/* POST …/exec, which must end with 0. */
int bench_box_exec(struct bench_box *b, const char *id, const char *json, struct err *err);
int bench_box_delete(struct bench_box *b, const char *id, struct err *err);

/* A lap: create a sandbox, run `true` in it (done), delete it (removed). */
struct bench_subject bench_box_subject(const struct bench_target *target);
