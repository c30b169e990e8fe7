#include "bench_box.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fd.h"
#include "str.h"

#define BENCH_BOX_REQUEST_MAX (16u << 20)
#define BENCH_BOXES "/v1/sandboxes"

int bench_box_request(struct buf *out, const struct bench_target *target,
                      const struct bench_box_ask *ask, struct err *err) {
    if (buf_printf(out, err, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer %s\r\n",
                   ask->method, ask->path, target->port, target->token) < 0)
        return -1;
    if (!ask->body)
        return buf_puts(out, "\r\n", err);
    if (buf_printf(out, err, "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n",
                   ask->type ? ask->type : "application/json", ask->size) < 0)
        return -1;
    return buf_append(out, ask->body, ask->size, err);
}

int bench_box_open(struct bench_box *b, const struct bench_target *target, struct err *err) {
    *b = (struct bench_box){.target = *target, .fd = -1};
    buf_init(&b->request, BENCH_BOX_REQUEST_MAX);
    buf_init(&b->in, BENCH_HTTP_ANSWER_MAX);
    b->fd = bench_http_connect(target->port, err);
    return b->fd < 0 ? -1 : 0;
}

void bench_box_close(struct bench_box *b) {
    if (b->target.port)
        fd_close(&b->fd);
    buf_done(&b->request);
    buf_done(&b->in);
}

/* A 204 has no body and no length, so bench_http_parse() would wait for one. */
static int bench_box_exchange(struct bench_box *b, struct err *err) {
    static const char empty[] = "HTTP/1.1 204";
    buf_clear(&b->in);
    if (fd_write_all(b->fd, b->request.data, b->request.len, err) < 0)
        return -1;
    for (;;) {
        char *at = buf_reserve(&b->in, 65536, err);
        ssize_t n = at ? recv(b->fd, at, 65536, 0) : 0;
        if (!at)
            return -1;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "receive an answer");
        if (n == 0)
            return err_set(err, ERR_PROTOCOL, 0, "the server closed the connection");
        b->in.len += (size_t)n;
        if (b->in.len > sizeof(empty) && memcmp(b->in.data, empty, sizeof(empty) - 1) == 0 &&
            memcmp(b->in.data + b->in.len - 4, "\r\n\r\n", 4) == 0) {
            b->answer = (struct bench_answer){.status = 204, .body = ""};
            return 0;
        }
        int rc = bench_http_parse(&b->in, &b->answer, err);
        if (rc)
            return rc < 0 ? -1 : 0;
    }
}

int bench_box_ask(struct bench_box *b, const struct bench_box_ask *ask, struct err *err) {
    buf_clear(&b->request);
    if (bench_box_request(&b->request, &b->target, ask, err) < 0)
        return -1;
    uint64_t start = clock_mono_ns();
    if (bench_box_exchange(b, err) < 0)
        return err_wrap(err, "%s %s", ask->method, ask->path);
    b->ns = clock_mono_ns() - start;
    if (b->answer.status / 100 == 2)
        return 0;
    char text[256];
    str_escape(text, sizeof(text), b->answer.body, b->answer.body_len);
    return err_set(err, ERR_PROTOCOL, 0, "%s %s: status %u: %s", ask->method, ask->path,
                   b->answer.status, text);
}

int bench_box_call(struct bench_box *b, const char *method, const char *path, const char *json,
                   struct err *err) {
    const struct bench_box_ask ask = {
        .method = method, .path = path, .body = json, .size = json ? strlen(json) : 0};
    return bench_box_ask(b, &ask, err);
}

int bench_box_id(const struct bench_answer *answer, char id[BENCH_BOX_ID_SIZE], struct err *err) {
    static const char key[] = "\"id\":";
    const char *at = memmem(answer->body, answer->body_len, key, sizeof(key) - 1);
    const char *end = answer->body + answer->body_len;
    if (at) {
        at += sizeof(key) - 1;
        while (at < end && (*at == ' ' || *at == '"'))
            at++;
        const char *stop = memchr(at, '"', (size_t)(end - at));
        if (stop && stop > at && (size_t)(stop - at) < BENCH_BOX_ID_SIZE) {
            memcpy(id, at, (size_t)(stop - at));
            id[stop - at] = '\0';
            return 0;
        }
    }
    return err_set(err, ERR_PROTOCOL, 0, "an answer without an id");
}

int bench_box_make(struct bench_box *b, const char *json, char id[BENCH_BOX_ID_SIZE],
                   struct err *err) {
    if (bench_box_call(b, "POST", BENCH_BOXES, json, err) < 0)
        return -1;
    return bench_box_id(&b->answer, id, err);
}

int bench_box_exec(struct bench_box *b, const char *id, const char *json, struct err *err) {
    char path[BENCH_BOX_PATH_SIZE];
    snprintf(path, sizeof(path), BENCH_BOXES "/%s/exec", id);
    if (bench_box_call(b, "POST", path, json, err) < 0)
        return -1;
    return bench_http_check_run(&b->answer, err);
}

int bench_box_delete(struct bench_box *b, const char *id, struct err *err) {
    char path[BENCH_BOX_PATH_SIZE];
    snprintf(path, sizeof(path), BENCH_BOXES "/%s", id);
    return bench_box_call(b, "DELETE", path, NULL, err);
}

static int bench_box_once(void *state, struct bench_lap *lap, struct err *err) {
    struct bench_box *b = state;
    char id[BENCH_BOX_ID_SIZE];
    uint64_t start = clock_mono_ns();
    if (bench_box_make(b, "{}", id, err) < 0 ||
        bench_box_exec(b, id, "{\"argv\":[\"true\"]}", err) < 0)
        return -1;
    lap->done_ns = clock_mono_ns() - start;
    if (bench_box_delete(b, id, err) < 0)
        return -1;
    lap->removed_ns = clock_mono_ns() - start;
    return 0;
}

static void bench_box_end(void *state) {
    bench_box_close(state);
    free(state);
}

static void *bench_box_begin(const void *config, struct err *err) {
    struct bench_box *b = calloc(1, sizeof(*b));
    if (!b) {
        errno = ENOMEM;
        err_sys(err, "room for a connection");
        return NULL;
    }
    struct bench_lap first;
    if (bench_box_open(b, config, err) == 0 && bench_box_once(b, &first, err) == 0)
        return b;
    bench_box_end(b);
    return NULL;
}

struct bench_subject bench_box_subject(const struct bench_target *target) {
    return (struct bench_subject){
        .begin = bench_box_begin,
        .once = bench_box_once,
        .end = bench_box_end,
        .config = target,
    };
}
