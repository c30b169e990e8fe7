#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd.h"
#include "http_internal.h"

#define HTTP_LINGER_MAX 32u
#define HTTP_LINGER_MS 5000u
#define HTTP_LINGER_PIECE ((size_t)1024 * 1024)

/* A duplicate of the connection's descriptor: the library closes its own, which sends our last
 * bytes and the end of file, and the socket lives on here until the client has seen them. */
struct http_linger {
    struct http *http;
    struct http_linger *next, *prev;
    int fd;
    struct loop_source source;
    struct loop_timer timer;
};

static void http_linger_free(struct http_linger *l) {
    struct http *h = l->http;
    loop_del(h->loop, &l->source);
    loop_timer_stop(h->loop, &l->timer);
    fd_close(&l->fd);
    if (l->prev != NULL)
        l->prev->next = l->next;
    else
        h->linger_first = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
    h->linger_count--;
    free(l);
}

static void http_linger_late(void *arg) {
    http_linger_free(arg);
}

static void http_linger_event(void *arg, uint32_t events) {
    struct http_linger *l = arg;
    (void)events;
    /* TCP throws the bytes away without copying them. */
    ssize_t n = recv(l->fd, NULL, HTTP_LINGER_PIECE, MSG_TRUNC | MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    http_linger_free(l);
}

void http_linger(struct http_conn *c) {
    struct http *h = c->http;
    if (c->lingering || h->linger_count >= HTTP_LINGER_MAX)
        return;
    struct http_linger *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return;
    l->http = h;
    l->fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
    l->source.fd = -1;
    if (l->fd < 0 ||
        loop_add(h->loop, &l->source, l->fd, EPOLLIN, http_linger_event, l, NULL) < 0 ||
        loop_timer_at(h->loop, &l->timer, clock_mono_ns() + HTTP_LINGER_MS * CLOCK_NS_PER_MS,
                      http_linger_late, l, NULL) < 0) {
        loop_del(h->loop, &l->source);
        fd_close(&l->fd);
        free(l);
        return;
    }
    l->next = h->linger_first;
    if (l->next != NULL)
        l->next->prev = l;
    h->linger_first = l;
    h->linger_count++;
    c->lingering = true;
}

void http_linger_stop(struct http *h) {
    while (h->linger_first != NULL)
        http_linger_free(h->linger_first);
}
