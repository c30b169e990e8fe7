/* HTTPS. libmicrohttpd drives the sessions; what is ours: the certificate that a new connection
 * gets, and the bytes on their way between session and socket, so that a client that speaks plain
 * HTTP to this port is told so. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "http_internal.h"
#include "tls.h"

/* The first byte of a TLS connection: a handshake record. */
#define HTTP_TLS_HANDSHAKE 0x16

static bool http_tls_is_plain(const struct http_conn *c) {
    unsigned char first = HTTP_TLS_HANDSHAKE;
    ssize_t n = recv(c->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    /* Methods are in capital letters. */
    return n == 1 && first >= 'A' && first <= 'Z';
}

/* The answer leaves at once; then nothing more may, not even what the library says to it. */
static void http_tls_refuse(struct http_conn *c) {
    struct api_error error = {0};
    api_error_set(&error, 400, "plain_http", NULL,
                  "This port speaks HTTPS; write https:// in the address.");
    http_linger(c);
    http_reply_plain(c, &error);
    shutdown(c->fd, SHUT_WR);
}

/* libmicrohttpd 0.9.75 tries a handshake that waits for its client again and again, without a
 * pause, for as long as the client likes. So the connection sleeps meanwhile, and we watch its
 * socket. */
static void http_tls_pause(struct http_conn *c) {
    if (c->secure || c->shaking || c->http->stopping || c->hangup.fd < 0 ||
        loop_mod(c->http->loop, &c->hangup, EPOLLIN | EPOLLRDHUP, NULL) < 0)
        return;
    c->shaking = true;
    MHD_suspend_connection(c->mhd);
}

void http_tls_go_on(struct http_conn *c) {
    if (!c->shaking)
        return;
    c->shaking = false;
    if (c->hangup.fd >= 0)
        (void)loop_mod(c->http->loop, &c->hangup, EPOLLRDHUP, NULL);
    MHD_resume_connection(c->mhd);
    http_run_soon(c->http);
}

/* The client's last message of the handshake has come. */
static int http_tls_finished(gnutls_session_t session, unsigned type, unsigned when,
                             unsigned incoming, const gnutls_datum_t *message) {
    struct http_conn *c = gnutls_transport_get_ptr(session);
    (void)type;
    (void)when;
    (void)message;
    if (incoming)
        c->secure = true;
    return 0;
}

static ssize_t http_tls_pull(gnutls_transport_ptr_t arg, void *data, size_t size) {
    struct http_conn *c = arg;
    c->http->pulled = c;
    if (!c->greeted && http_tls_is_plain(c)) {
        http_tls_refuse(c);
        errno = EPROTO;
        return -1;
    }
    ssize_t n = recv(c->fd, data, size, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        http_tls_pause(c);
        errno = EAGAIN;
    }
    c->greeted = c->greeted || n > 0;
    return n;
}

static ssize_t http_tls_push(gnutls_transport_ptr_t arg, const giovec_t *parts, int count) {
    struct http_conn *c = arg;
    struct iovec iov[16];
    struct msghdr msg = {.msg_iov = iov};
    for (; msg.msg_iovlen < 16 && msg.msg_iovlen < (size_t)count; msg.msg_iovlen++)
        iov[msg.msg_iovlen] = (struct iovec){.iov_base = parts[msg.msg_iovlen].iov_base,
                                             .iov_len = parts[msg.msg_iovlen].iov_len};
    return sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Sessions are not blocking: the question comes only for their time-outs, which they do not have.
 */
static int http_tls_wait(gnutls_transport_ptr_t arg, unsigned ms) {
    (void)arg;
    (void)ms;
    return 1;
}

static gnutls_session_t http_tls_session(const struct http_conn *c) {
    if (c->mhd == NULL)
        return NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info != NULL ? info->tls_session : NULL;
}

void http_tls_begin(struct http_conn *c) {
    gnutls_session_t session = http_tls_session(c);
    if (session == NULL)
        return;
    /* The flights of a handshake are several small writes: each would wait for the acknowledgement
     * of the one before, which the client delays by 40 ms. */
    int on = 1;
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    gnutls_transport_set_ptr(session, c);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST,
                                       http_tls_finished);
    gnutls_transport_set_pull_function(session, http_tls_pull);
    gnutls_transport_set_pull_timeout_function(session, http_tls_wait);
    gnutls_transport_set_vec_push_function(session, http_tls_push);
}

/* The library drops a connection whose handshake failed without a word, and the client would have
 * to guess. The log does not say which one it is: the one that was read from last. */
void http_tls_failed(struct http *h) {
    struct http_conn *c = h->pulled;
    gnutls_session_t session = c != NULL && c->greeted ? http_tls_session(c) : NULL;
    if (session != NULL)
        gnutls_alert_send(session, GNUTLS_AL_FATAL, GNUTLS_A_HANDSHAKE_FAILURE);
}

void http_tls_end(struct http_conn *c) {
    if (c->http->pulled == c)
        c->http->pulled = NULL;
    tls_pair_drop(c->pair);
    c->pair = NULL;
}

void http_tls_bye(struct http_conn *c) {
    gnutls_session_t session = c->secure ? http_tls_session(c) : NULL;
    if (session != NULL)
        (void)gnutls_bye(session, GNUTLS_SHUT_WR);
}

void http_tls_send(struct http_conn *c, const struct iovec *parts, size_t count) {
    gnutls_session_t session = http_tls_session(c);
    for (size_t i = 0; session != NULL && i < count; i++)
        if (gnutls_record_send(session, parts[i].iov_base, parts[i].iov_len) < 0)
            return;
}

/* Also asked when a client of TLS 1.2 negotiates anew. */
static int http_tls_certificate(gnutls_session_t session, const gnutls_datum_t *issuers, int n,
                                const gnutls_pk_algorithm_t *algorithms, int m,
                                gnutls_pcert_st **chain, unsigned *count, gnutls_privkey_t *key) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        gnutls_session_get_ptr(session), MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *c = info != NULL ? info->socket_context : NULL;
    (void)issuers;
    (void)n;
    (void)algorithms;
    (void)m;
    if (c == NULL)
        return -1;
    tls_pair_drop(c->pair);
    c->pair = tls_pair_keep(tls_pair(c->http->options.tls));
    *chain = c->pair->chain;
    *count = c->pair->count;
    *key = c->pair->key;
    return 0;
}

unsigned http_tls_options(const struct http *h, struct MHD_OptionItem items[HTTP_TLS_OPTIONS + 1]) {
    if (h->options.tls == NULL)
        return 0;
    items[0] = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_PRIORITIES,
                                       .ptr_value = (void *)(uintptr_t)TLS_PRIORITIES};
    items[1] = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_CERT_CALLBACK,
                                       .ptr_value = (void *)(uintptr_t)http_tls_certificate};
    items[2] = (struct MHD_OptionItem){.option = MHD_OPTION_END};
    return MHD_USE_TLS;
}
