#include "http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd.h"
#include "http_internal.h"
#include "str.h"

/* Of a refused request: a body that is no longer than this is read, so that the connection can be
 * used again; a longer one costs the connection. */
#define HTTP_SWALLOW_MAX (64u * 1024)
/* Request line and headers together; also the buffer for reading bodies and writing streams. */
#define HTTP_MEMORY (48u * 1024)
/* As often in a row the library works while it has something to do, … */
#define HTTP_RUNS 4
/* … but what is left after this long waits: others have their turn first. */
#define HTTP_RUNS_NS (CLOCK_NS_PER_MS / 4)
/* A client that has closed its sending side has this long to be understood. */
#define HTTP_FINISH_MS 500u

static void http_run(void *arg);

void http_run_soon(struct http *h) {
    loop_defer(h->loop, &h->run, http_run, h);
}

/* Lets libmicrohttpd work, then arranges for its next time-out. It reads what one buffer holds of
 * each connection: what is there still, of an upload, need not wait for a round of the loop. */
static void http_run(void *arg) {
    struct http *h = arg;
    MHD_UNSIGNED_LONG_LONG ms = 0;
    uint64_t begun = 0;
    h->turn_ns = clock_mono_ns();
    for (int i = 0; i < HTTP_RUNS && ms == 0; i++) {
        if (h->daemon == NULL)
            return;
        if (i == 1)
            begun = clock_mono_ns();
        else if (i > 1 && clock_mono_ns() - begun > HTTP_RUNS_NS)
            break;
        MHD_run(h->daemon);
        if (MHD_get_timeout(h->daemon, &ms) != MHD_YES)
            return;
    }
    if (ms == 0) {
        http_run_soon(h);
        return;
    }
    uint64_t due = clock_mono_ns() + ms * CLOCK_NS_PER_MS;
    if (h->timer.slot == 0 || h->timer.due_ns > due)
        loop_timer_at(h->loop, &h->timer, due, http_run, h, NULL);
}

static void http_event(void *arg, uint32_t events) {
    (void)events;
    http_run(arg);
}

/* Deadlines. */

static void http_late(void *arg) {
    struct http_conn *c = arg;
    uint64_t now = clock_mono_ns();
    if (c->due_ns == 0)
        return;
    if (now < c->due_ns) {
        loop_timer_at(c->http->loop, &c->deadline, c->due_ns, http_late, c, NULL);
        return;
    }
    shutdown(c->fd, SHUT_RDWR);
}

/* Moves the deadline; 0 = none. A timer that is armed too early only looks again, which is cheaper
 * than moving it for every request. */
void http_deadline(struct http_conn *c, uint64_t ms) {
    if (ms == 0) {
        c->due_ns = 0;
        return;
    }
    c->due_ns = clock_mono_ns() + ms * CLOCK_NS_PER_MS;
    if (c->deadline.slot == 0 || c->deadline.due_ns > c->due_ns)
        loop_timer_at(c->http->loop, &c->deadline, c->due_ns, http_late, c, NULL);
}

/* For the next piece of a body. When the client has closed its sending side, all that there is has
 * come or is about to; the library may have overlooked the end of it. */
void http_body_deadline(struct http_conn *c) {
    http_deadline(c, c->half_closed ? HTTP_FINISH_MS : c->http->options.body_ms);
}

/* Sleeping and hang-ups. libmicrohttpd does not look at connections that sleep, and overlooks the
 * end of file that comes together with the last bytes; so we watch, too. */

static void http_give_up(struct http_req *req) {
    req->dead = true;
    if (req->gone != NULL)
        req->gone(req);
    req->gone = NULL;
    req->http->held -= req->held;
    req->held = false;
    if (req->asleep)
        http_wake(req);
}

static void http_hangup(void *arg, uint32_t events) {
    struct http_conn *c = arg;
    struct http_req *req = c->req;
    bool whole = (events & (EPOLLHUP | EPOLLERR)) != 0;
    http_tls_go_on(c);
    if ((events & EPOLLOUT) != 0)
        http_direct_writable(c);
    if (!whole && (events & EPOLLRDHUP) == 0)
        return;
    c->half_closed = true;
    /* What was seen is reported again and again otherwise. */
    if (whole)
        loop_del(c->http->loop, &c->hangup);
    else if (c->hangup.fd >= 0)
        loop_mod(c->http->loop, &c->hangup, 0, NULL);
    if (req != NULL && req->asleep && !req->dead) {
        /* Only its sending side is closed? Then it may well read our answer. */
        if (whole || req->half_close_is_gone)
            http_give_up(req);
    } else if (req == NULL || req->phase < HTTP_HANDLED) {
        http_deadline(c, HTTP_FINISH_MS);
    }
}

static void http_hangup_again(void *arg) {
    http_hangup(arg, EPOLLRDHUP);
}

/* It may have come while the request was read, or worked on. */
void http_half_close_is_gone(struct http_req *req, bool gone) {
    req->half_close_is_gone = gone;
    if (gone && req->asleep && req->conn->half_closed)
        loop_defer(req->http->loop, &req->conn->again, http_hangup_again, req->conn);
}

void http_sleep(struct http_req *req) {
    struct http_conn *c = req->conn;
    req->asleep = true;
    req->asleep_ns = clock_mono_ns();
    /* It is not the client that is slow. */
    if (req->phase == HTTP_BODY)
        http_deadline(c, 0);
    MHD_suspend_connection(req->mhd);
    http_half_close_is_gone(req, req->half_close_is_gone);
}

void http_wake(struct http_req *req) {
    if (!req->asleep || req->held)
        return;
    if (req->direct > 0 && req->phase == HTTP_STREAM && !req->dead && !http_direct_turn(req))
        return;
    req->asleep = false;
    if (req->phase == HTTP_BODY) {
        req->begun_ns += clock_mono_ns() - req->asleep_ns;
        http_body_deadline(req->conn);
    }
    MHD_resume_connection(req->mhd);
    http_run_soon(req->http);
}

static void http_unwatch(struct http_conn *c) {
    loop_defer_stop(c->http->loop, &c->again);
    loop_del(c->http->loop, &c->hangup);
}

/* The request's life. */

/* "http://host/path" is what a proxy gets, and what every server must take as well. */
static const char *http_path(const char *uri) {
    const char *slashes = uri[0] == '/' ? NULL : strstr(uri, "://");
    if (slashes == NULL)
        return uri;
    const char *path = strchr(slashes + 3, '/');
    return path != NULL ? path : "/";
}

static void *http_uri(void *arg, const char *uri, struct MHD_Connection *mhd) {
    struct http *h = arg;
    const char *path = http_path(uri);
    struct http_req *req = calloc(1, sizeof(*req));
    if (req == NULL)
        return NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    req->http = h;
    req->mhd = mhd;
    req->conn = info != NULL ? info->socket_context : NULL;
    req->target = strndup(path, strcspn(path, "?"));
    req->line = uri;
    req->line_len = strlen(uri);
    req->begun_ns = clock_mono_ns();
    if (req->target == NULL || req->conn == NULL) {
        free(req->target);
        free(req);
        return NULL;
    }
    req->conn->req = req;
    h->in_flight++;
    return req;
}

static void http_completed(void *arg, struct MHD_Connection *mhd, void **state,
                           enum MHD_RequestTerminationCode code) {
    struct http *h = arg;
    struct http_req *req = *state;
    (void)mhd;
    (void)code;
    *state = NULL;
    if (req == NULL)
        return;
    /* The connection stays watched: its next request wants to know of a hang-up, too. */
    loop_defer_stop(h->loop, &req->conn->again);
    loop_defer_stop(h->loop, &req->later);
    if (req->gone != NULL && !req->dead)
        req->gone(req);
    h->in_flight--;
    h->held -= req->held;
    if (h->app.ended != NULL)
        h->app.ended(h->app.arg, req);
    if (req->stream != NULL)
        req->stream->done(req->stream_arg);
    if (req->response != NULL)
        MHD_destroy_response(req->response);
    req->conn->req = NULL;
    http_room_idle(req->conn);
    http_deadline(req->conn, req->conn->half_closed ? HTTP_FINISH_MS : h->options.header_ms);
    http_body_release(req);
    http_hold_end(&req->answer_hold);
    free(req->target);
    free(req);
}

static void http_connection(void *arg, struct MHD_Connection *mhd, void **context,
                            enum MHD_ConnectionNotificationCode code) {
    struct http *h = arg;
    struct http_conn *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c == NULL)
            return;
        http_unwatch(c);
        loop_timer_stop(h->loop, &c->deadline);
        /* The library takes up listening again only when it is called once more after this. */
        http_run_soon(h);
        http_room_leave(c);
        http_tls_end(c);
        free(c);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    c = calloc(1, sizeof(*c));
    if (c == NULL || info == NULL) {
        free(c);
        return; /* its requests are refused: http_uri() finds no context */
    }
    c->http = h;
    c->fd = info->connect_fd;
    c->hangup.fd = -1;
    c->mhd = mhd;
    *context = c;
    http_tls_begin(c);
    http_room_enter(c);
    loop_add(h->loop, &c->hangup, c->fd, EPOLLRDHUP, http_hangup, c, NULL);
    http_deadline(c, h->options.header_ms);
}

/* Refuses at once or after the body, whichever keeps more of the connection. */
static enum MHD_Result http_refuse(struct http_req *req, const struct api_error *error,
                                   bool close) {
    bool expects = http_header(req, MHD_HTTP_HEADER_EXPECT) != NULL;
    if (!close && !expects && req->length <= HTTP_SWALLOW_MAX) {
        req->refused = *error;
        req->phase = HTTP_SWALLOW;
        http_body_deadline(req->conn);
        return MHD_YES;
    }
    http_add_header(req, MHD_HTTP_HEADER_CONNECTION, "close");
    http_reply_error(req, error);
    if (!expects && req->length > 0)
        http_linger(req->conn);
    return http_reply_queue(req);
}

static enum MHD_Result http_begin(struct http_req *req) {
    struct http *h = req->http;
    struct api_error error = {0};
    if (http_body_framing(req, &error) < 0)
        return http_refuse(req, &error, true);
    if (h->app.begin(h->app.arg, req, &req->body_max, &error) < 0)
        return http_refuse(req, &error, false);
    if (req->length != UINT64_MAX && req->length > req->body_max) {
        api_error_set(&error, 413, "too_large", NULL, "The body may have at most %llu bytes.",
                      (unsigned long long)req->body_max);
        return http_refuse(req, &error, false);
    }
    req->phase = HTTP_BODY;
    http_body_deadline(req->conn);
    if (!req->early)
        return MHD_YES;
    h->app.handle(h->app.arg, req);
    if (req->phase == HTTP_SWALLOW) {
        error = req->refused;
        req->phase = HTTP_HEADER;
        return http_refuse(req, &error, false);
    }
    return req->upload != NULL ? MHD_YES : MHD_NO;
}

/* A client that sends, but hardly, must not stay: a minute, and a second per 64 KiB. */
static void http_progress(struct http_req *req) {
    uint64_t due =
        req->begun_ns + (req->http->options.body_ms + req->body_seen / 64) * CLOCK_NS_PER_MS;
    if (req->conn->half_closed)
        http_body_deadline(req->conn);
    else if (req->conn->due_ns < due)
        req->conn->due_ns = due;
}

/* How many bytes of a piece were taken. */
static size_t http_upload_piece(struct http_req *req, const char *data, size_t len) {
    size_t taken = req->upload->piece(req->upload_arg, data, len);
    if (req->phase != HTTP_BODY)
        return 0; /* refused meanwhile: the same bytes come again, and are swallowed */
    req->body_seen += taken;
    http_progress(req);
    if (taken < len)
        http_sleep(req);
    return taken;
}

static enum MHD_Result http_piece(struct http_req *req, const char *data, size_t len) {
    struct api_error error = {0};
    req->body_seen += len;
    if (req->phase == HTTP_SWALLOW) {
        if (req->body_seen <= HTTP_SWALLOW_MAX)
            return MHD_YES;
        error = req->refused;
    } else if (http_body_take(req, data, len, &error) == 0) {
        http_progress(req);
        return MHD_YES;
    }
    http_linger(req->conn);
    http_reply_direct(req, &error);
    return MHD_NO;
}

/* Header and body are complete. */
static enum MHD_Result http_whole(struct http_req *req) {
    http_deadline(req->conn, 0);
    if (req->phase == HTTP_SWALLOW) {
        http_reply_error(req, &req->refused);
        return http_reply_queue(req);
    }
    req->phase = HTTP_HANDLED;
    if (req->body != NULL)
        req->body[req->body_len] = '\0';
    if (req->upload != NULL)
        req->upload->whole(req->upload_arg);
    else
        req->http->app.handle(req->http->app.arg, req);
    if (req->response != NULL && !req->held)
        return http_reply_queue(req);
    if (req->dead)
        return MHD_NO; /* nobody would wake it */
    http_sleep(req);
    return MHD_YES;
}

/* The library cuts lines at a NUL byte. Its strings lie in one buffer, the version right behind the
 * path, unless something was cut off. */
static bool http_hides_nul(const struct http_req *req, const char *version) {
    uintptr_t line = (uintptr_t)req->line;
    uintptr_t after = (uintptr_t)version;
    return after > line && after - line < HTTP_MEMORY && after - line != req->line_len + 1;
}

static enum MHD_Result http_access(void *arg, struct MHD_Connection *mhd, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *size, void **state) {
    struct http_req *req = *state;
    (void)arg;
    (void)mhd;
    (void)url;
    if (req == NULL || req->dead)
        return MHD_NO;
    if (req->method == NULL) {
        req->method = method;
        req->version = version;
        req->has_nul = http_hides_nul(req, version);
        return http_begin(req);
    }
    if (*size > 0 && req->phase == HTTP_BODY && req->upload != NULL) {
        *size -= http_upload_piece(req, data, *size);
        if (req->phase == HTTP_BODY)
            return MHD_YES;
    }
    if (*size > 0) {
        size_t len = *size;
        *size = 0;
        return http_piece(req, data, len);
    }
    if (req->phase == HTTP_BODY || req->phase == HTTP_SWALLOW)
        return http_whole(req);
    if (req->response != NULL)
        return http_reply_queue(req);
    return MHD_NO;
}

/* The path stays as it was sent: route.c decodes it piece by piece, so that an encoded slash or NUL
 * cannot change its shape. */
static size_t http_unescape(void *arg, struct MHD_Connection *mhd, char *text) {
    (void)arg;
    (void)mhd;
    return strlen(text);
}

/* Starting and stopping. */

struct http *http_start(struct loop *loop, struct log *log, const struct http_options *options,
                        const struct http_app *app, struct err *err) {
    struct http *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "starting HTTP: out of memory");
        return NULL;
    }
    h->loop = loop;
    h->log = log;
    h->app = *app;
    h->options = *options;
    h->source.fd = -1;
    http_room_start(h);
    h->ledger = http_ledger_new(options->max_held_bytes);
    if (h->ledger == NULL) {
        free(h);
        err_set(err, ERR_SYSTEM, ENOMEM, "starting HTTP: out of memory");
        return NULL;
    }
    struct MHD_OptionItem tls[HTTP_TLS_OPTIONS + 1] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | http_tls_options(h, tls);
    struct MHD_OptionItem items[] = {
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_MEMORY, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)options->max_connections, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S, NULL},
        {MHD_OPTION_LISTEN_SOCKET, options->listen_fd, NULL},
        /* What strictness would refuse, http_body_framing() refuses: the library's answer to it has
         * its head twice. */
        {MHD_OPTION_STRICT_FOR_CLIENT, 0, NULL},
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)http_body_logged, h},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)http_completed, h},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)http_connection, h},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)http_uri, h},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)http_unescape, h},
        {MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, http_access, h, MHD_OPTION_ARRAY, items,
                                 MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (h->daemon == NULL) {
        err_set(err, ERR_STATE, 0, "libmicrohttpd did not start");
        free(h);
        return NULL;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (loop_add(loop, &h->source, info->epoll_fd, EPOLLIN, http_event, h, err) < 0) {
        http_stop(h);
        return NULL;
    }
    http_run_soon(h);
    return h;
}

void http_stop(struct http *h) {
    if (h == NULL)
        return;
    h->stopping = true;
    http_room_stop(h);
    loop_del(h->loop, &h->source);
    loop_timer_stop(h->loop, &h->timer);
    loop_defer_stop(h->loop, &h->run);
    /* The library does not stop over connections that sleep. */
    for (struct http_conn *c = h->first; c != NULL; c = c->next) {
        http_unwatch(c);
        http_tls_go_on(c);
        if (c->req == NULL)
            continue;
        if (c->req->gone != NULL && !c->req->dead)
            c->req->gone(c->req);
        c->req->gone = NULL;
        c->req->dead = true;
        if (c->req->asleep)
            MHD_resume_connection(c->req->mhd);
        c->req->asleep = false;
    }
    struct MHD_Daemon *daemon = h->daemon;
    h->daemon = NULL;
    if (daemon != NULL)
        MHD_stop_daemon(daemon);
    loop_defer_stop(h->loop, &h->run);
    http_linger_stop(h);
    http_ledger_close(h->ledger);
    free(h);
}

/* The descriptor reports a hang-up, which is what a client that goes away looks like. */
void http_break(struct http *h, bool (*is_meant)(void *arg, const struct http_req *req),
                void *arg) {
    for (struct http_conn *c = h->first; c != NULL; c = c->next)
        if (c->req != NULL && is_meant(arg, c->req))
            shutdown(c->fd, SHUT_RDWR);
}

size_t http_in_flight(const struct http *h) {
    return h->in_flight;
}

size_t http_connections(const struct http *h) {
    return h->connections;
}

size_t http_connections_left(const struct http *h) {
    uint64_t most = h->options.max_connections;
    return most > h->connections ? (size_t)(most - h->connections) : 0;
}

const char *http_header(struct http_req *req, const char *name) {
    return MHD_lookup_connection_value(req->mhd, MHD_HEADER_KIND, name);
}

struct http_query_search {
    bool (*fn)(const char *name, const char *value);
    bool found;
};

static enum MHD_Result http_query_one(void *arg, enum MHD_ValueKind kind, const char *name,
                                      const char *value) {
    struct http_query_search *search = arg;
    (void)kind;
    search->found = search->fn(name, value);
    return search->found ? MHD_NO : MHD_YES;
}

bool http_query_any(struct http_req *req, bool (*fn)(const char *name, const char *value)) {
    struct http_query_search search = {.fn = fn};
    MHD_get_connection_values(req->mhd, MHD_GET_ARGUMENT_KIND, http_query_one, &search);
    return search.found;
}

const char *http_query(struct http_req *req, const char *name) {
    return MHD_lookup_connection_value(req->mhd, MHD_GET_ARGUMENT_KIND, name);
}
