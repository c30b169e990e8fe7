#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "http_internal.h"

/* Below it a new connection costs the client more than the copies. */
#define HTTP_DIRECT_MIN ((uint64_t)4 * 1024 * 1024)
/* At a time, so that other requests get their turn. */
#define HTTP_DIRECT_TURN ((size_t)1024 * 1024)

bool http_direct_fits(const struct http_req *req, uint64_t size, const struct http_stream *stream) {
    return stream->send != NULL && size != UINT64_MAX && size >= HTTP_DIRECT_MIN &&
           req->http->options.tls == NULL && strcmp(req->method, "HEAD") != 0;
}

struct MHD_Response *http_direct_response(struct http_req *req, uint64_t size) {
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1, http_reply_read, req, NULL);
    char length[24];
    snprintf(length, sizeof(length), "%llu", (unsigned long long)size);
    if (response == NULL)
        return NULL;
    if (MHD_set_response_options(
            response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT | MHD_RF_INSANITY_HEADER_CONTENT_LENGTH,
            MHD_RO_END) != MHD_YES ||
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_LENGTH, length) != MHD_YES) {
        MHD_destroy_response(response);
        return NULL;
    }
    req->past = true;
    req->direct = size - 1;
    return response;
}

/* Wakes us when the socket takes more. */
static void http_direct_watch(struct http_conn *c, bool wait) {
    uint32_t events = (c->half_closed ? 0u : EPOLLRDHUP) | (wait ? EPOLLOUT : 0u);
    if (c->hangup.fd >= 0)
        (void)loop_mod(c->http->loop, &c->hangup, events, NULL);
    /* The library does not look after a connection that sleeps. It is not the client that is slow
     * while nothing is there to be sent. */
    http_deadline(c, wait ? HTTP_IDLE_S * 1000u : 0);
}

bool http_direct_turn(struct http_req *req) {
    struct http_conn *c = req->conn;
    size_t turn = HTTP_DIRECT_TURN;
    while (req->direct > 0 && turn > 0) {
        ssize_t n = req->stream->send(req->stream_arg, c->fd,
                                      req->direct < turn ? (size_t)req->direct : turn);
        if (n == 0)
            return false; /* http_wake() says when there is more */
        if (n == HTTP_STREAM_FULL)
            break;
        if (n < 0) {
            req->dead = true;
            req->direct = 0;
            return true;
        }
        req->direct -= (uint64_t)n;
        turn -= (size_t)n;
    }
    http_direct_watch(c, req->direct > 0);
    return req->direct == 0;
}

void http_direct_writable(struct http_conn *c) {
    http_direct_watch(c, false);
    if (c->req != NULL)
        http_wake(c->req);
}
