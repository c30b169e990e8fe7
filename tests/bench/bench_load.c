#include "bench_load.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

#define BENCH_LOAD_READ 16384u
#define BENCH_LOAD_WAIT_MS 30000

struct bench_client {
    int fd;
    unsigned rounds;   /* requests sent */
    uint64_t start_ns; /* of the request that is under way; 0 = none */
    struct buf in;
};

struct bench_load {
    struct buf request;
    unsigned max_rounds; /* 0 = no bound */
    uint64_t stop_ns;    /* no request is sent after this */
    unsigned busy;       /* clients with a request under way */
    int epoll;
    unsigned clients;
    struct bench_client *client; /* [clients] */
    struct bench_load_result *result;
};

void bench_load_result_done(struct bench_load_result *r) {
    if (r)
        bench_series_done(&r->latency);
}

static int bench_client_send(struct bench_load *l, struct bench_client *c, uint64_t now_ns,
                             struct err *err) {
    buf_clear(&c->in);
    if (send(c->fd, l->request.data, l->request.len, MSG_NOSIGNAL) != (ssize_t)l->request.len)
        return err_sys(err, "send a request");
    c->start_ns = now_ns;
    c->rounds++;
    l->busy++;
    return 0;
}

/* A whole answer is there: count it, and go on if there is time. */
static int bench_client_answered(struct bench_load *l, struct bench_client *c, struct err *err) {
    uint64_t now = clock_mono_ns();
    if (bench_series_add(&l->result->latency, now - c->start_ns, err) < 0)
        return -1;
    l->result->runs++;
    l->busy--;
    c->start_ns = 0;
    if (now >= l->stop_ns || (l->max_rounds && c->rounds >= l->max_rounds))
        return 0;
    return bench_client_send(l, c, now, err);
}

static int bench_client_read(struct bench_load *l, struct bench_client *c, struct err *err) {
    char *at = buf_reserve(&c->in, BENCH_LOAD_READ, err);
    if (!at)
        return -1;
    ssize_t n = recv(c->fd, at, BENCH_LOAD_READ, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        return err_sys(err, "receive an answer");
    if (n == 0 || !c->start_ns)
        return err_set(err, ERR_PROTOCOL, 0, "the server closed a connection");
    c->in.len += (size_t)n;
    struct bench_answer answer;
    int rc = bench_http_parse(&c->in, &answer, err);
    if (rc <= 0)
        return rc;
    if (bench_http_check_run(&answer, err) < 0)
        return -1;
    return bench_client_answered(l, c, err);
}

static int bench_load_open(struct bench_load *l, const struct bench_http_config *config,
                           unsigned clients, struct err *err) {
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0)
        return err_sys(err, "make an epoll instance");
    if (bench_http_request(&l->request, &config->target, config->path, config->body, err) < 0)
        return -1;
    l->client = calloc(clients, sizeof(*l->client));
    if (!l->client) {
        errno = ENOMEM;
        return err_sys(err, "room for %u connections", clients);
    }
    for (unsigned i = 0; i < clients; i++) {
        struct bench_client *c = &l->client[i];
        c->fd = bench_http_connect(config->target.port, err);
        if (c->fd < 0)
            return -1;
        buf_init(&c->in, BENCH_HTTP_ANSWER_MAX);
        l->clients++;
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &ev) < 0)
            return err_sys(err, "watch a connection");
    }
    return 0;
}

static void bench_load_close(struct bench_load *l) {
    for (unsigned i = 0; i < l->clients; i++) {
        fd_close(&l->client[i].fd);
        buf_done(&l->client[i].in);
    }
    free(l->client);
    fd_close(&l->epoll);
    buf_done(&l->request);
}

static int bench_load_drive(struct bench_load *l, uint64_t start_ns, struct err *err) {
    for (unsigned i = 0; i < l->clients; i++)
        if (bench_client_send(l, &l->client[i], start_ns, err) < 0)
            return -1;
    struct epoll_event events[64];
    while (l->busy) {
        int n = epoll_wait(l->epoll, events, 64, BENCH_LOAD_WAIT_MS);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "wait for answers");
        if (n == 0)
            return err_set(err, ERR_STATE, 0, "%u requests got no answer within %d s", l->busy,
                           BENCH_LOAD_WAIT_MS / 1000);
        for (int i = 0; i < n; i++)
            if (bench_client_read(l, events[i].data.ptr, err) < 0)
                return -1;
    }
    return 0;
}

int bench_load_run(const struct bench_http_config *config, unsigned clients, unsigned rounds,
                   uint64_t span_ns, struct bench_load_result *result, struct err *err) {
    struct bench_load l = {.epoll = -1, .max_rounds = rounds, .result = result};
    buf_init(&l.request, 65536);
    int rc = bench_load_open(&l, config, clients, err);
    uint64_t start = clock_mono_ns();
    l.stop_ns = start + span_ns;
    if (rc == 0)
        rc = bench_load_drive(&l, start, err);
    result->elapsed_ns += clock_mono_ns() - start;
    bench_load_close(&l);
    return rc;
}
