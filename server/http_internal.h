/* What the files of the http module share. */
#pragma once

#include <microhttpd.h>
#include <stdarg.h>
#include <sys/uio.h>

#include "http.h"

/* libmicrohttpd's own time-out: no progress at all, in either direction, in seconds. */
#define HTTP_IDLE_S 60u

struct tls_pair;

/* One TCP connection. */
struct http_conn {
    struct http *http;
    struct http_conn *next, *prev;
    int fd; /* borrowed from libmicrohttpd */
    struct loop_source hangup;
    struct loop_defer again; /* it went to sleep although the client had hung up before */
    bool half_closed;        /* the client sends nothing more */
    struct loop_timer deadline;
    uint64_t due_ns; /* the timer may be armed for an earlier moment: it looks here */
    uint64_t opened_ns;
    uint64_t idle_ns; /* when it was opened, or its last request was over */
    struct http_req *req;
    bool lingering;
    struct MHD_Connection *mhd;
    struct tls_pair *pair; /* HTTPS: the certificate that it was shown; counted */
    bool greeted;          /* HTTPS: its first bytes were read */
    bool shaking;          /* HTTPS: asleep until more of the handshake comes */
    bool secure;           /* HTTPS: the handshake is over */
};

/* Who waits for a connection while all are taken. */
struct http_room {
    struct loop_source source; /* all are taken: will anybody wait? */
    struct loop_timer timer;   /* somebody waits: what is not used any more? */
    uint64_t since_ns;         /* … as the first in the queue */
    uint64_t turn_ns;          /* when others had waited for too long, … */
    unsigned turns;            /* … and how many of older connections are still to go */
};

struct http {
    struct loop *loop;
    struct log *log;
    struct http_app app;
    struct http_options options;
    struct MHD_Daemon *daemon;
    struct loop_source source;
    struct loop_timer timer;
    struct loop_defer run;
    struct http_conn *first, *last; /* see http_room.c */
    struct http_room room;
    size_t connections, in_flight, held;
    struct http_ledger *ledger;
    uint64_t turn_ns; /* when the library was last let to work */
    struct http_linger *linger_first;
    size_t linger_count;
    struct http_conn *pulled; /* HTTPS: the one that was read from last; NULL = it is gone */
    bool stopping, closing;
};

/* http.c */
void http_run_soon(struct http *h);
void http_deadline(struct http_conn *c, uint64_t ms);
void http_body_deadline(struct http_conn *c);
void http_sleep(struct http_req *req);

/* http_body.c: framing and body. */
/* Is it one request, with one body of one length? 0, or -1 with *error. */
int http_body_framing(struct http_req *req, struct api_error *error);
/* The library's log: it is about to answer a Content-Length that it does not understand. */
void http_body_logged(void *arg, const char *fmt, va_list args);
/* Takes a piece. -1 when it is over the cap or memory is short (*error). */
int http_body_take(struct http_req *req, const char *data, size_t len, struct api_error *error);
/* The answer to an upload that is still coming: the rest of it is swallowed when it is short; when
 * it is long, it costs the connection. */
void http_body_refuse(struct http_req *req, const struct api_error *error);
void http_body_release(struct http_req *req);

/* http_hold.c */
/* So much is not counted for its user. */
#define HTTP_HOLD_SMALL ((uint64_t)64 * 1024)
struct http_ledger *http_ledger_new(uint64_t max);
/* Holds may end later. NULL allowed. */
void http_ledger_close(struct http_ledger *l);
/* `more` bytes than before. -1: the user, or everybody, has too many (*error; nothing is changed).
 */
int http_hold_more(struct http_req *req, struct http_hold *hold, uint64_t more,
                   struct api_error *error);

/* http_linger.c: a connection that is closed before its request was read must go on reading for a
 * moment, or the kernel answers what still arrives with a reset that destroys our answer on its
 * way. */
void http_linger(struct http_conn *c);
void http_linger_stop(struct http *h);

/* http_room.c: while somebody waits for a connection, those that ask for nothing are closed. */
void http_room_start(struct http *h);
void http_room_stop(struct http *h);
void http_room_enter(struct http_conn *c);
void http_room_leave(struct http_conn *c);
/* Its request is over. */
void http_room_idle(struct http_conn *c);
/* Others have waited for too long: shall this one's answer, which is being made, be its last? */
bool http_room_turn_is_over(const struct http_conn *c);

/* http_reply.c */
/* What the library calls for the body of a stream; arg is the request. */
ssize_t http_reply_read(void *arg, uint64_t pos, char *data, size_t size);
enum MHD_Result http_reply_queue(struct http_req *req);
/* Sends an error straight to the socket: libmicrohttpd takes no answer in the middle of a body. */
void http_reply_direct(struct http_req *req, const struct api_error *error);
/* The same, before there is a request and past encryption. */
void http_reply_plain(struct http_conn *c, const struct api_error *error);

/* http_direct.c: a large body goes straight into the socket. To the library it is an answer of
 * unknown length at whose end the connection is closed; it sends the head, which has a
 * Content-Length all the same, sleeps meanwhile, and sends the last byte. */
bool http_direct_fits(const struct http_req *req, uint64_t size, const struct http_stream *stream);
/* The answer that the library is told of. NULL: memory is short. */
struct MHD_Response *http_direct_response(struct http_req *req, uint64_t size);
/* Sends what can be sent now. True: the library has to go on, with the last byte or the end of the
 * connection. */
bool http_direct_turn(struct http_req *req);
/* The socket takes more. */
void http_direct_writable(struct http_conn *c);

/* http_tls.c; all of it does nothing on a port without TLS. */
#define HTTP_TLS_OPTIONS 2
/* Fills in what libmicrohttpd must know and returns flags for it; 0: nothing was filled in. */
unsigned http_tls_options(const struct http *h, struct MHD_OptionItem items[HTTP_TLS_OPTIONS + 1]);
void http_tls_begin(struct http_conn *c);
void http_tls_end(struct http_conn *c);
/* Something has come, or the connection is to end: a handshake that sleeps is continued. */
void http_tls_go_on(struct http_conn *c);
/* The library's log: a handshake has failed. */
void http_tls_failed(struct http *h);
/* Tells the client that the connection ends here and was not cut. */
void http_tls_bye(struct http_conn *c);
/* Sends a few bytes within the session. */
void http_tls_send(struct http_conn *c, const struct iovec *parts, size_t count);
