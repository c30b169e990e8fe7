#include "bench_boxes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd.h"

#define BENCH_BOXES_WAIT_MS 60000
#define BENCH_BOXES_READ 16384u

/* A connection and the sandbox that it works on. */
struct bench_line {
    struct bench_box box;
    size_t at;    /* index of the sandbox */
    bool running; /* it is made, the command is under way */
};

struct bench_crew {
    struct bench_boxes *boxes;
    struct bench_series *first; /* NULL: no command */
    size_t next, done;
    uint64_t start_ns;
    int epoll;
    size_t lines;
    struct bench_line *line; /* [lines] */
};

static int bench_crew_send(struct bench_line *l, const char *path, const char *json,
                           struct err *err) {
    const struct bench_box_ask ask = {
        .method = "POST", .path = path, .body = json, .size = strlen(json)};
    buf_clear(&l->box.request);
    buf_clear(&l->box.in);
    if (bench_box_request(&l->box.request, &l->box.target, &ask, err) < 0)
        return -1;
    return fd_write_all(l->box.fd, l->box.request.data, l->box.request.len, err);
}

/* The next sandbox for this connection, if there is one to make. */
static int bench_crew_next(struct bench_crew *c, struct bench_line *l, struct err *err) {
    if (c->next == c->boxes->count)
        return 0;
    l->at = c->next++;
    l->running = false;
    return bench_crew_send(l, "/v1/sandboxes", "{}", err);
}

static int bench_crew_answered(struct bench_crew *c, struct bench_line *l,
                               const struct bench_answer *answer, struct err *err) {
    char *id = c->boxes->id[l->at];
    if (!l->running) {
        if (answer->status != 201)
            return err_set(err, ERR_PROTOCOL, 0, "sandbox %zu: status %u: %.200s", l->at,
                           answer->status, answer->body);
        if (bench_box_id(answer, id, err) < 0)
            return -1;
        l->running = c->first != NULL;
        if (l->running) {
            char path[BENCH_BOX_PATH_SIZE];
            snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec", id);
            return bench_crew_send(l, path, "{\"argv\":[\"true\"]}", err);
        }
    } else if (bench_http_check_run(answer, err) < 0 ||
               bench_series_add(c->first, clock_mono_ns() - c->start_ns, err) < 0) {
        return -1;
    }
    c->done++;
    return bench_crew_next(c, l, err);
}

static int bench_crew_read(struct bench_crew *c, struct bench_line *l, struct err *err) {
    char *at = buf_reserve(&l->box.in, BENCH_BOXES_READ, err);
    if (!at)
        return -1;
    ssize_t n = recv(l->box.fd, at, BENCH_BOXES_READ, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        return err_sys(err, "receive an answer");
    if (n == 0)
        return err_set(err, ERR_PROTOCOL, 0, "the server closed a connection");
    l->box.in.len += (size_t)n;
    struct bench_answer answer;
    int rc = bench_http_parse(&l->box.in, &answer, err);
    return rc <= 0 ? rc : bench_crew_answered(c, l, &answer, err);
}

static int bench_crew_open(struct bench_crew *c, size_t lines, struct err *err) {
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0)
        return err_sys(err, "make an epoll instance");
    c->line = calloc(lines, sizeof(*c->line));
    if (!c->line) {
        errno = ENOMEM;
        return err_sys(err, "room for %zu connections", lines);
    }
    for (; c->lines < lines; c->lines++) {
        struct bench_line *l = &c->line[c->lines];
        if (bench_box_open(&l->box, &c->boxes->target, err) < 0)
            return -1;
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = l};
        if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->box.fd, &ev) < 0)
            return err_sys(err, "watch a connection");
    }
    return 0;
}

static int bench_crew_drive(struct bench_crew *c, struct err *err) {
    struct epoll_event events[64];
    c->start_ns = clock_mono_ns();
    for (size_t i = 0; i < c->lines; i++)
        if (bench_crew_next(c, &c->line[i], err) < 0)
            return -1;
    while (c->done < c->boxes->count) {
        int n = epoll_wait(c->epoll, events, 64, BENCH_BOXES_WAIT_MS);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "wait for answers");
        if (n == 0)
            return err_set(err, ERR_STATE, 0, "%zu sandboxes got no answer within %d s",
                           c->boxes->count - c->done, BENCH_BOXES_WAIT_MS / 1000);
        for (int i = 0; i < n; i++)
            if (bench_crew_read(c, events[i].data.ptr, err) < 0)
                return -1;
    }
    return 0;
}

int bench_boxes_make(struct bench_boxes *boxes, const struct bench_target *target, size_t count,
                     size_t lines, struct bench_series *first, struct err *err) {
    *boxes = (struct bench_boxes){.target = *target};
    if (!count || count > BENCH_BOXES_MAX || !lines || lines > BENCH_BOXES_LINES)
        return err_set(err, ERR_INVALID, 0, "no such number of sandboxes");
    boxes->id = calloc(count, sizeof(*boxes->id));
    if (!boxes->id) {
        errno = ENOMEM;
        return err_sys(err, "room for %zu sandboxes", count);
    }
    boxes->count = count;
    struct bench_crew c = {.boxes = boxes, .first = first, .epoll = -1};
    int rc = bench_crew_open(&c, lines, err);
    if (rc == 0)
        rc = bench_crew_drive(&c, err);
    for (size_t i = 0; c.line && i < lines; i++)
        bench_box_close(&c.line[i].box);
    free(c.line);
    fd_close(&c.epoll);
    return rc;
}

int bench_boxes_delete(struct bench_boxes *boxes, struct err *err) {
    struct bench_box b = {0};
    int rc = boxes->count ? bench_box_open(&b, &boxes->target, err) : 0;
    for (size_t i = 0; rc == 0 && i < boxes->count; i++)
        if (boxes->id[i][0])
            rc = bench_box_delete(&b, boxes->id[i], err);
    bench_box_close(&b);
    free(boxes->id);
    *boxes = (struct bench_boxes){0};
    return rc;
}
