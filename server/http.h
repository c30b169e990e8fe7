/* HTTP for the rest of the server: libmicrohttpd without its threads, inside our loop.
 *
 * A request is an explicit state machine:
 *
 *   HEADER   its line and headers arrive (before the first, the TLS handshake); deadline from the
 *            moment that the connection opened or the last answer left
 *   BODY     its body arrives, into memory that is capped, or in pieces to a handler that asked
 *            for them; deadline by progress of the client
 *   SWALLOW  it is refused already, but its body is short: read it, so that the connection lives on
 *   HANDLED  a handler has it; the connection sleeps until http_reply…(), and is watched for a
 *            hang-up, which libmicrohttpd does not do for sleeping ones
 *   STREAM   an answer of unknown length is being produced
 *   REPLIED  the answer is with libmicrohttpd
 *
 * Deadlines end connections by shutdown(2): the library then notices by itself and cleans up, so
 * that there is one way for a connection to die. Everything runs on the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "accounts.h"
#include "api_error.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "proxy.h"

struct MHD_Connection;
struct tls;
struct http;
struct http_conn;
struct http_req;
struct http_body;
struct idempotency_claim;

enum http_phase {
    HTTP_HEADER,
    HTTP_BODY,
    HTTP_SWALLOW,
    HTTP_HANDLED,
    HTTP_STREAM,
    HTTP_REPLIED,
};

/* What the program does with requests. */
struct http_app {
    /* The headers are in. 0: go on, at most *body_max bytes of body will be taken. -1: *error is
     * the answer. */
    int (*begin)(void *arg, struct http_req *req, uint64_t *body_max, struct api_error *error);
    /* The whole request is in (its headers, when `early` was set). Answers now or later. */
    void (*handle)(void *arg, struct http_req *req);
    /* The answer is out or the connection lost: for counting. May be NULL. */
    void (*ended)(void *arg, struct http_req *req);
    /* An answer in memory is about to be made of these bytes, for a request with `idem`. */
    void (*answered)(void *arg, struct http_req *req, int status, const struct http_body *body);
    /* An answer is made: must it wait until http_release()? May be NULL. */
    bool (*hold)(void *arg, struct http_req *req);
    /* A long answer's malloc'ed memory is not needed any more. NULL: free(). */
    void (*discard)(void *arg, void *data, size_t len);
    void *arg;
};

#define HTTP_STREAM_FULL (-3)

/* Produces the body of a stream. */
struct http_stream {
    /* Writes up to `size` bytes: their number, 0 = nothing now (http_wake() when there is), -1 =
     * that was all, -2 = break the connection off. */
    ssize_t (*read)(void *arg, char *data, size_t size);
    /* May be NULL. Where all but the last byte of a body of known size may go past the library:
     * puts up to `size` bytes straight into the connection's socket, which does not block. As
     * read(), and HTTP_STREAM_FULL when the socket takes none now. read() gives the last byte. The
     * connection ends with such an answer. */
    ssize_t (*send)(void *arg, int socket, size_t size);
    /* The stream is over, however it ended; `arg` is not used again. */
    void (*done)(void *arg);
};

/* Takes a body in pieces, as it arrives. */
struct http_upload {
    /* Takes up to `len` bytes: their number. When it takes fewer, the client has to wait until
     * http_wake(). */
    size_t (*piece)(void *arg, const char *data, size_t len);
    /* That was all of it: the answer is awaited. */
    void (*whole)(void *arg);
};

#define HTTP_HEADERS_MAX 10

struct http_header {
    const char *name; /* a literal */
    char value[200];
};

/* What a request has in memory, counted: http_hold.c. All zeros: nothing. */
struct http_hold {
    struct http_ledger *ledger;
    struct http_owner *owner; /* NULL: it is small */
    uint64_t bytes;
};
/* It is not there any more. On the loop's thread, at any time, also after http_stop(). */
void http_hold_end(struct http_hold *hold);
/* An answer of about so many bytes is about to be made by a worker. -1: he has too many (*error).
 */
int http_hold_answer(struct http_req *req, uint64_t bytes, struct api_error *error);

struct http_req {
    struct http *http;
    struct http_conn *conn;
    struct MHD_Connection *mhd;
    enum http_phase phase;
    int status; /* of the answer; 0 = none yet */
    const char *method, *version;
    char *target;     /* path as it was sent, without the query; owned */
    const char *line; /* private: where the library has it */
    size_t line_len;
    bool has_nul;    /* a NUL byte was hidden in the path */
    uint64_t length; /* Content-Length, UINT64_MAX = chunked */
    char *body;      /* owned, NUL-terminated once HANDLED; NULL when empty */
    size_t body_len, body_alloc;
    struct http_hold body_hold, answer_hold;
    uint64_t body_max;
    uint64_t body_seen;
    bool early; /* set by `begin`: handle() is called before the body, http_take_upload() follows */
    const struct http_upload *upload;
    void *upload_arg;
    uint64_t asleep_ns;      /* when it fell asleep */
    struct loop_defer later; /* private: its stream goes on in the next round */
    bool asleep;
    bool dead;                /* the client is gone; the connection only waits to be closed */
    bool live;                /* its answer is a stream of events */
    bool held;                /* its answer waits for http_release() */
    struct api_error refused; /* SWALLOW: the answer to come */
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t header_count;
    struct MHD_Response *response; /* made while asleep */
    const struct http_stream *stream;
    void *stream_arg;
    bool past;       /* private: the stream goes past the library */
    uint64_t direct; /* private: as many bytes of it */
    uint64_t begun_ns;

    /* For the handler. `gone` is called once when the client hung up before there was an answer (or
     * within a stream, when no `read` is to come); the request must not be used afterwards. */
    struct idempotency_claim *idem; /* whose answer is kept; NULL = none's */
    void *owner;
    void (*gone)(struct http_req *req);
    bool half_close_is_gone;      /* see http_half_close_is_gone() */
    struct accounts_token *token; /* who asks; counted; NULL = nobody (a public route) */
    const char *user;             /* = user_name */
    char user_name[ACCOUNTS_NAME_SIZE];
    bool user_admin; /* the token has the scope admin */
    const struct route *route;
    char client[PROXY_ADDRESS_SIZE];     /* see http_client() */
    char error_code[API_ERROR_CODE_MAX]; /* of an answer that is an error; "" = none */
    char replay_of[40];                  /* the run whose inputs are run again; "" = none */
    uint64_t audit_seq;                  /* the record that it was asked; 0 = none */
};

struct http_options {
    int listen_fd; /* owned by the http once started */
    uint64_t max_connections;
    uint64_t max_held_bytes; /* bodies and answers of all requests together */
    uint64_t header_ms, body_ms;
    struct tls *tls;    /* borrowed; NULL = plain HTTP */
    struct proxy proxy; /* whose word on the client's address counts */
};

/* Starts serving. NULL on failure. */
struct http *http_start(struct loop *loop, struct log *log, const struct http_options *options,
                        const struct http_app *app, struct err *err);
/* Breaks off what is open. NULL allowed. */
void http_stop(struct http *h);
/* Breaks off every connection whose request is meant: streams, waiting requests, uploads. Their
 * handlers see a client that has gone. */
void http_break(struct http *h, bool (*is_meant)(void *arg, const struct http_req *req), void *arg);
/* Requests that have no whole answer yet. */
size_t http_in_flight(const struct http *h);
size_t http_connections(const struct http *h);
/* How many more there may be. */
size_t http_connections_left(const struct http *h);

/* For a server that stops. */
/* From now on each answer closes its connection. */
void http_close_soon(struct http *h);
/* Requests whose answer is not out; streams of events, which may go on for ever, do not count. */
size_t http_owed(const struct http *h);
/* Whoever still waits for the beginning of an answer gets this one; the handler sees a client that
 * has gone. */
void http_refuse_waiting(struct http *h, const struct api_error *error);

/* Value of a request header or a query parameter (still percent-encoded); NULL when absent. */
const char *http_header(struct http_req *req, const char *name);
const char *http_query(struct http_req *req, const char *name);
/* How often a request header is there; its values go to text[size], with commas between. 0, too,
 * when they do not fit. */
size_t http_header_join(struct http_req *req, const char *name, char *text, size_t size);

/* The numeric address of the client, for logs and audit: of the connection, or what a trusted proxy
 * says about it. Valid for the life of the request. */
const char *http_client(struct http_req *req);
/* Is there a query parameter of which fn says true? The value may be NULL. */
bool http_query_any(struct http_req *req, bool (*fn)(const char *name, const char *value));

/* Takes the body away from the request: malloc'ed memory that the caller frees, and then says so by
 * http_hold_end(); NULL: it is not counted from here on. */
char *http_take_body(struct http_req *req, size_t *len, struct http_hold *hold);
/* Gives it back. */
void http_give_body(struct http_req *req, char *body, size_t len, struct http_hold *hold);

/* The body of an `early` request goes to `ops`, from within handle(). Until it is whole, the only
 * possible answer is http_reply_error(), at any time; `gone` is told of a client that breaks off.
 */
void http_take_upload(struct http_req *req, const struct http_upload *ops, void *arg);

/* Adds a header to the answer; call before http_reply…(). Over-long values are cut. */
void http_add_header(struct http_req *req, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The answer: `len` bytes at `data`, for which release(arg) is called when they are not needed any
 * more (NULL: they live for ever). Exactly one http_reply…() per request. Whoever has more large
 * answers under way than he may have gets an error instead; what he asked for was done all the
 * same. */
struct http_body {
    const void *data;
    size_t len;
    void (*release)(void *arg);
    void *arg;
};
void http_reply(struct http_req *req, int status, const char *type, const struct http_body *body);
/* JSON in malloc'ed memory, which is taken over; NULL = 500. */
void http_reply_json(struct http_req *req, int status, char *json, size_t len);
void http_reply_error(struct http_req *req, const struct api_error *error);
/* `size` bytes that the stream produces; UINT64_MAX = as many as come. */
void http_reply_stream(struct http_req *req, int status, const char *type, uint64_t size,
                       const struct http_stream *stream, void *arg);
/* The answers that `hold` kept back may leave. With an error, those to requests that may have
 * changed something (not GET and HEAD) are replaced by it. */
void http_release(struct http *h, const struct api_error *error);
/* The stream has something to say, or the upload can take more. Idempotent. */
void http_wake(struct http_req *req);
/* From here on a client that closed only its sending side counts as gone, too, also one that did so
 * before: `gone` is called in this round of the loop or later, not from within. */
void http_half_close_is_gone(struct http_req *req, bool gone);
