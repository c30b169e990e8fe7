/* Any bytes on a connection to the HTTP server: requests, bodies and query strings as its library
 * and we take them. Whatever is asked is answered or broken off, and the next one is served. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "route.h"

static int fuzz_begin(void *arg, struct http_req *req, uint64_t *body_max,
                      struct api_error *error) {
    char text[64], joined[200];
    uint64_t number = 3;
    bool flag = false;
    (void)arg;
    *body_max = 4096;
    fuzz_require(req->method != NULL && req->target != NULL && http_client(req)[0] != '\0');
    (void)http_header_join(req, "X-Forwarded-For", joined, sizeof(joined));
    if (route_query_u64(req, "limit", 1, 100, &number, error) < 0 ||
        route_query_bool(req, "follow", &flag, error) < 0 ||
        route_query_text(req, "path", text, sizeof(text), error) < 0)
        return -1;
    fuzz_require(number >= 1 && number <= 100 && strlen(text) < sizeof(text));
    return 0;
}

static void fuzz_handle(void *arg, struct http_req *req) {
    static const struct http_body body = {.data = "{}", .len = 2};
    size_t len = 0;
    (void)arg;
    char *taken = http_take_body(req, &len, NULL);
    fuzz_require(len <= 4096 && (len == 0 || taken[len] == '\0'));
    free(taken);
    http_reply(req, 200, "application/json", &body);
}

struct fuzz_place {
    struct loop *loop;
    struct http *http;
    struct sockaddr_in at;
};

static const struct fuzz_place *fuzz_place(void) {
    static const struct http_app app = {.begin = fuzz_begin, .handle = fuzz_handle};
    static struct log log = {.fd = -1};
    static struct fuzz_place p;
    struct http_options options = {
        .max_connections = 64, .max_held_bytes = 1u << 20, .header_ms = 1000, .body_ms = 1000};
    struct err err = {0};
    socklen_t len = sizeof(p.at);
    if (p.http != NULL)
        return &p;
    p.at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    options.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    fuzz_require(bind(options.listen_fd, (struct sockaddr *)&p.at, sizeof(p.at)) == 0);
    fuzz_require(listen(options.listen_fd, 64) == 0);
    fuzz_require(getsockname(options.listen_fd, (struct sockaddr *)&p.at, &len) == 0);
    p.loop = loop_new(&err);
    p.http = http_start(p.loop, &log, &options, &app, &err);
    fuzz_require(p.http != NULL);
    return &p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct fuzz_place *p = fuzz_place();
    struct err err = {0};
    char answer[4096];
    if (size > 100000)
        return 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(fd >= 0 && connect(fd, (const struct sockaddr *)&p->at, sizeof(p->at)) == 0);
    fuzz_require(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    size_t sent = 0;
    bool closed = false;
    for (int round = 0, idle = 0; idle < 20 && round < 1000 && !closed; round++) {
        ssize_t n = sent < size ? send(fd, data + sent, size - sent, MSG_NOSIGNAL) : 0;
        idle = n > 0 ? 0 : idle + 1;
        if (n > 0)
            sent += (size_t)n;
        if (sent == size && n >= 0)
            shutdown(fd, SHUT_WR);
        fuzz_require(loop_once(p->loop, idle < 10 ? 0 : 100000, &err) == 0);
        n = recv(fd, answer, sizeof(answer), 0);
        closed = n == 0 || (n < 0 && errno != EAGAIN);
    }
    close(fd);
    for (int round = 0; round < 20 && http_connections(p->http) > 0; round++)
        (void)loop_once(p->loop, 50000, &err);
    return 0;
}
