#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "http_internal.h"
#include "str.h"

#define HTTP_JSON "application/json"
/* What is sent at once of a stream whose size is known, or of a long answer: a socket whose reader
 * keeps up would take all of it, for milliseconds. The memory is held until its end. */
#define HTTP_STREAM_BLOCK ((uint64_t)256 * 1024)

static const char http_reply_no_memory[] =
    "{\"error\":{\"code\":\"internal\",\"message\":\"Out of memory.\"}}";

void http_add_header(struct http_req *req, const char *name, const char *fmt, ...) {
    if (req->header_count == HTTP_HEADERS_MAX)
        return;
    struct http_header *h = &req->headers[req->header_count++];
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->value, sizeof(h->value), fmt, args);
    va_end(args);
    h->name = name;
}

/* Hands the finished answer to libmicrohttpd. */
enum MHD_Result http_reply_queue(struct http_req *req) {
    struct MHD_Response *response = req->response;
    if (response == NULL)
        return MHD_NO;
    req->response = NULL;
    req->phase = req->stream != NULL ? HTTP_STREAM : HTTP_REPLIED;
    enum MHD_Result rc = MHD_queue_response(req->mhd, (unsigned)req->status, response);
    MHD_destroy_response(response);
    return rc;
}

static void http_reply_with(struct http_req *req, int status, const char *type,
                            struct MHD_Response *response) {
    req->status = status;
    req->response = response;
    if (response != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        if (req->http->closing || http_room_turn_is_over(req->conn))
            MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
        for (size_t i = 0; i < req->header_count; i++)
            MHD_add_response_header(response, req->headers[i].name, req->headers[i].value);
    } else {
        req->dead = true; /* no memory even for a response: the connection is closed */
    }
    if (req->stream == NULL)
        req->gone = NULL;
    const struct http_app *app = &req->http->app;
    if (response != NULL && req->phase == HTTP_HANDLED && app->hold != NULL &&
        app->hold(app->arg, req)) {
        req->held = true;
        req->http->held++;
    } else if (req->asleep) {
        http_wake(req);
    }
}

/* What the request did did not last: another answer. */
static void http_reply_instead(struct http_req *req, const struct api_error *error) {
    if (strcmp(req->method, "GET") == 0 || strcmp(req->method, "HEAD") == 0)
        return;
    size_t len = 0;
    memcpy(req->error_code, error->code, sizeof(req->error_code));
    char *json = api_error_encode(error, &len);
    struct MHD_Response *response =
        json == NULL ? NULL : MHD_create_response_from_buffer(len, json, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(json);
        return;
    }
    if (req->stream != NULL)
        req->stream->done(req->stream_arg);
    req->stream = NULL;
    req->gone = NULL;
    MHD_destroy_response(req->response);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, HTTP_JSON);
    MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    req->response = response;
    req->status = error->status;
}

void http_release(struct http *h, const struct api_error *error) {
    for (struct http_conn *c = h->first; c != NULL && h->held > 0; c = c->next) {
        struct http_req *req = c->req;
        if (req == NULL || !req->held)
            continue;
        req->held = false;
        h->held--;
        if (error != NULL && !req->dead)
            http_reply_instead(req, error);
        http_wake(req);
    }
}

/* Breaks an answer off. When it is told of an error here, libmicrohttpd 0.9.75 closes a connection
 * and then forgets it until an older one times out; a failure of sending it notices at once. So the
 * socket is closed for sending, and the library has something to send that goes nowhere. */
static ssize_t http_reply_break(struct http_req *req, char *data, int how) {
    shutdown(req->conn->fd, how);
    data[0] = '\0';
    return 1;
}

/* The library goes through all answers whose clients can take more, in one go. What a stream has to
 * say is made on the spot, and what is long is copied: when there are many of them, the rest goes
 * on in the next round. */
#define HTTP_TURN_NS CLOCK_NS_PER_MS

static void http_reply_again(void *arg) {
    http_wake(arg);
}

static bool http_reply_waits(struct http_req *req) {
    struct http *h = req->http;
    if (clock_mono_ns() - h->turn_ns < HTTP_TURN_NS)
        return false;
    http_sleep(req);
    loop_defer(h->loop, &req->later, http_reply_again, req);
    return true;
}

/* A long answer, block by block. */

struct http_reply_long {
    struct http_req *req;
    const struct http_app *app;
    struct http_body body;
};

static ssize_t http_reply_block(void *arg, uint64_t pos, char *data, size_t size) {
    struct http_reply_long *l = arg;
    const struct http_body *body = &l->body;
    if (l->req->dead)
        return http_reply_break(l->req, data, SHUT_RDWR);
    if (http_reply_waits(l->req))
        return 0;
    size_t n = body->len - (size_t)pos < size ? body->len - (size_t)pos : size;
    memcpy(data, (const char *)body->data + pos, n);
    return (ssize_t)n;
}

static void http_reply_discard(const struct http_app *app, const struct http_body *body) {
    if (body->release == free && app->discard != NULL)
        app->discard(app->arg, body->arg, body->len);
    else if (body->release != NULL)
        body->release(body->arg);
}

static void http_reply_blocks_done(void *arg) {
    struct http_reply_long *l = arg;
    http_reply_discard(l->app, &l->body);
    free(l);
}

/* NULL: memory is short; the body stays the caller's. */
static struct MHD_Response *http_reply_blocks(struct http_req *req, const struct http_body *body) {
    struct http_reply_long *l = malloc(sizeof(*l));
    if (l == NULL)
        return NULL;
    *l = (struct http_reply_long){.req = req, .app = &req->http->app, .body = *body};
    struct MHD_Response *response = MHD_create_response_from_callback(
        body->len, (size_t)HTTP_STREAM_BLOCK, http_reply_block, l, http_reply_blocks_done);
    if (response == NULL)
        free(l);
    return response;
}

void http_reply(struct http_req *req, int status, const char *type, const struct http_body *body) {
    struct MHD_Response *response;
    struct api_error error = {0};
    const struct http_app *app = &req->http->app;
    if (http_hold_answer(req, body->len, &error) < 0) {
        http_reply_discard(app, body);
        http_reply_error(req, &error);
        return;
    }
    if (req->idem != NULL && app->answered != NULL)
        app->answered(app->arg, req, status, body);
    if (body->len > HTTP_STREAM_BLOCK)
        response = http_reply_blocks(req, body);
    else if (body->release == NULL)
        response = MHD_create_response_from_buffer(body->len, (void *)(uintptr_t)body->data,
                                                   MHD_RESPMEM_PERSISTENT);
    else
        response = MHD_create_response_from_buffer_with_free_callback_cls(
            body->len, (void *)(uintptr_t)body->data, body->release, body->arg);
    if (response == NULL && body->release != NULL)
        body->release(body->arg);
    http_reply_with(req, status, type, response);
}

void http_reply_json(struct http_req *req, int status, char *json, size_t len) {
    struct http_body body = {.data = json, .len = len, .release = free, .arg = json};
    if (json == NULL) {
        body = (struct http_body){.data = http_reply_no_memory,
                                  .len = sizeof(http_reply_no_memory) - 1};
        status = 500;
    }
    http_reply(req, status, HTTP_JSON, &body);
}

void http_reply_error(struct http_req *req, const struct api_error *error) {
    size_t len = 0;
    if (req->phase == HTTP_BODY) {
        http_body_refuse(req, error);
        return;
    }
    memcpy(req->error_code, error->code, sizeof(req->error_code));
    char *json = api_error_encode(error, &len);
    if (error->status == 401)
        http_add_header(req, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (error->status == 503 || error->status == 429)
        http_add_header(req, MHD_HTTP_HEADER_RETRY_AFTER, "%u",
                        error->retry_after_s > 0 ? error->retry_after_s : 1);
    http_reply_json(req, error->status, json, len);
}

/* Nothing was sent for this request yet, so it fits into the socket's buffer. */
static void http_reply_send(struct http_conn *c, const struct api_error *error, bool tls) {
    size_t len = 0;
    char *json = api_error_encode(error, &len);
    char head[256];
    if (json == NULL)
        return;
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %d %s\r\nContent-Type: " HTTP_JSON "\r\nCache-Control: no-store\r\n"
                     "Connection: close\r\nContent-Length: %zu\r\n\r\n",
                     error->status, MHD_get_reason_phrase_for((unsigned)error->status), len);
    struct iovec parts[2] = {{.iov_base = head, .iov_len = (size_t)n},
                             {.iov_base = json, .iov_len = len}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
    if (tls)
        http_tls_send(c, parts, 2);
    else
        sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    free(json);
}

void http_reply_direct(struct http_req *req, const struct api_error *error) {
    http_reply_send(req->conn, error, req->http->options.tls != NULL);
    req->status = error->status;
}

void http_reply_plain(struct http_conn *c, const struct api_error *error) {
    http_reply_send(c, error, false);
}

/* Streams. */

ssize_t http_reply_read(void *arg, uint64_t pos, char *data, size_t size) {
    struct http_req *req = arg;
    (void)pos;
    if (req->dead)
        return http_reply_break(req, data, SHUT_RDWR);
    if (req->direct > 0 && !http_direct_turn(req)) {
        http_sleep(req);
        return 0;
    }
    if (req->dead)
        return http_reply_break(req, data, SHUT_RDWR);
    if (http_reply_waits(req))
        return 0;
    ssize_t n = req->stream->read(req->stream_arg, data, size);
    if (n > 0)
        return n;
    if (n == 0) {
        http_sleep(req);
        return 0;
    }
    if (n == -1 && req->past) /* the same is true of such an end */
        return http_reply_break(req, data, SHUT_WR);
    return n == -1 ? MHD_CONTENT_READER_END_OF_STREAM : http_reply_break(req, data, SHUT_RDWR);
}

void http_reply_stream(struct http_req *req, int status, const char *type, uint64_t size,
                       const struct http_stream *stream, void *arg) {
    req->stream = stream;
    req->stream_arg = arg;
    req->half_close_is_gone = true;
    req->live = strcmp(type, "application/x-ndjson") == 0;
    /* nginx would hold back what is a live stream. */
    if (size == UINT64_MAX)
        http_add_header(req, "X-Accel-Buffering", "no");
    /* Without a known size the connection's own memory is used. */
    uint64_t block = size == UINT64_MAX ? 1 : size + 1;
    if (block > HTTP_STREAM_BLOCK)
        block = HTTP_STREAM_BLOCK;
    struct MHD_Response *response =
        http_direct_fits(req, size, stream)
            ? http_direct_response(req, size)
            : MHD_create_response_from_callback(size == UINT64_MAX ? MHD_SIZE_UNKNOWN : size,
                                                (size_t)block, http_reply_read, req, NULL);
    http_reply_with(req, status, type, response);
}
