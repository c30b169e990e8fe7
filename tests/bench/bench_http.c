#include "bench_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "str.h"

#define BENCH_HTTP_READ 16384u
#define BENCH_HTTP_HEAD_MAX 16384u

int bench_http_request(struct buf *out, const struct bench_target *target, const char *path,
                       const char *body, struct err *err) {
    if (buf_printf(out, err, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n", body ? "POST" : "GET",
                   path, target->port) < 0)
        return -1;
    if (target->token[0] && buf_printf(out, err, "Authorization: Bearer %s\r\n", target->token) < 0)
        return -1;
    if (!body)
        return buf_puts(out, "\r\n", err);
    return buf_printf(out, err, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                      strlen(body), body);
}

int bench_http_connect(unsigned port, struct err *err) {
    fd_cleanup int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, "make a socket");
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval timeout = {.tv_sec = BENCH_HTTP_TIMEOUT_S};
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
        return err_sys(err, "set up a socket");
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        return err_sys(err, "connect to port %u", port);
    return fd_steal(&fd);
}

/* The value of a header field within head[0…len), or NULL; it ends at "\r\n". */
static const char *bench_http_field(const char *head, size_t len, const char *name) {
    size_t n = strlen(name);
    for (const char *p = head; p;) {
        size_t left = len - (size_t)(p - head);
        if (left > n && strncasecmp(p, name, n) == 0 && p[n] == ':') {
            p += n + 1;
            return p + strspn(p, " \t");
        }
        p = memmem(p, left, "\r\n", 2);
        if (p)
            p += 2;
    }
    return NULL;
}

int bench_http_parse(const struct buf *in, struct bench_answer *answer, struct err *err) {
    if (!in->len)
        return 0;
    const char *end = memmem(in->data, in->len, "\r\n\r\n", 4);
    if (!end) {
        if (in->len > BENCH_HTTP_HEAD_MAX)
            return err_set(err, ERR_PROTOCOL, 0, "an answer without an end of its header");
        return 0;
    }
    size_t head = (size_t)(end - in->data) + 4;
    if (head < 16 || memcmp(in->data, "HTTP/1.1 ", 9) != 0)
        return err_set(err, ERR_PROTOCOL, 0, "an answer that is not HTTP/1.1");
    *answer = (struct bench_answer){.status = (unsigned)strtoul(in->data + 9, NULL, 10),
                                    .body = in->data + head,
                                    .body_len = in->len - head};
    const char *length = bench_http_field(in->data, head, "Content-Length");
    if (length)
        return answer->body_len >= strtoull(length, NULL, 10);
    const char *coding = bench_http_field(in->data, head, "Transfer-Encoding");
    if (!coding || strncasecmp(coding, "chunked", 7) != 0)
        return err_set(err, ERR_PROTOCOL, 0, "an answer without a length");
    /* JSON has no bare line ends, so these bytes occur at the very end only. */
    return answer->body_len >= 5 && memcmp(in->data + in->len - 5, "0\r\n\r\n", 5) == 0;
}

int bench_http_call(int fd, const struct buf *request, struct buf *in, struct bench_answer *answer,
                    struct err *err) {
    buf_clear(in);
    if (send(fd, request->data, request->len, MSG_NOSIGNAL) != (ssize_t)request->len)
        return err_sys(err, "send a request");
    for (;;) {
        char *at = buf_reserve(in, BENCH_HTTP_READ, err);
        if (!at)
            return -1;
        ssize_t n = recv(fd, at, BENCH_HTTP_READ, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "receive an answer");
        if (n == 0)
            return err_set(err, ERR_PROTOCOL, 0, "the server closed the connection");
        in->len += (size_t)n;
        int rc = bench_http_parse(in, answer, err);
        if (rc)
            return rc < 0 ? -1 : 0;
    }
}

int bench_http_check_run(const struct bench_answer *answer, struct err *err) {
    if (answer->status == 200 && (memmem(answer->body, answer->body_len, "\"ok\":true", 9) ||
                                  memmem(answer->body, answer->body_len, "\"ok\": true", 10)))
        return 0;
    char text[256];
    str_escape(text, sizeof(text), answer->body, answer->body_len);
    return err_set(err, ERR_PROTOCOL, 0, "a run went wrong: status %u: %s", answer->status, text);
}

struct bench_http_state {
    int fd;
    struct buf request, in;
};

static void bench_http_end(void *state) {
    struct bench_http_state *s = state;
    fd_close(&s->fd);
    buf_done(&s->request);
    buf_done(&s->in);
    free(s);
}

static int bench_http_once(void *state, struct bench_lap *lap, struct err *err) {
    struct bench_http_state *s = state;
    struct bench_answer answer;
    uint64_t start = clock_mono_ns();
    if (bench_http_call(s->fd, &s->request, &s->in, &answer, err) < 0)
        return -1;
    lap->done_ns = clock_mono_ns() - start;
    return bench_http_check_run(&answer, err);
}

static void *bench_http_begin(const void *config, struct err *err) {
    const struct bench_http_config *c = config;
    struct bench_http_state *s = calloc(1, sizeof(*s));
    if (!s) {
        errno = ENOMEM;
        err_sys(err, "room for a connection");
        return NULL;
    }
    buf_init(&s->request, 65536);
    buf_init(&s->in, BENCH_HTTP_ANSWER_MAX);
    s->fd = bench_http_connect(c->target.port, err);
    struct bench_lap first; /* pays for what only the first request of a connection pays */
    if (s->fd >= 0 && bench_http_request(&s->request, &c->target, c->path, c->body, err) == 0 &&
        bench_http_once(s, &first, err) == 0)
        return s;
    bench_http_end(s);
    return NULL;
}

struct bench_subject bench_http_subject(const struct bench_http_config *config) {
    return (struct bench_subject){
        .begin = bench_http_begin,
        .once = bench_http_once,
        .end = bench_http_end,
        .config = config,
    };
}

bool bench_http_probe(unsigned port, const char *path) {
    struct buf request, in;
    struct bench_answer answer = {0};
    struct bench_target target = {.port = port};
    buf_init(&request, 4096);
    buf_init(&in, BENCH_HTTP_ANSWER_MAX);
    fd_cleanup int fd = bench_http_connect(port, NULL);
    bool ok = fd >= 0 && bench_http_request(&request, &target, path, NULL, NULL) == 0 &&
              bench_http_call(fd, &request, &in, &answer, NULL) == 0 && answer.status == 200;
    buf_done(&request);
    buf_done(&in);
    return ok;
}
