/* Room for clients who wait. When all connections are taken, the next client waits in the kernel's
 * queue, and would wait for as long as somebody keeps a connection that he does not use. So while
 * somebody waits, connections that ask for nothing are closed, those first that have asked for
 * nothing the longest. Where there are none of these for a while, as many as wait have to go after
 * their next answer.
 *
 * A connection that has just answered is left alone for a moment: its client may be sending the
 * next request already, which closing would lose. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "clock.h"
#include "http_internal.h"

/* More than any round trip takes, and no interval at which people let programs ask. */
#define HTTP_ROOM_IDLE_NS (400 * CLOCK_NS_PER_MS)
#define HTTP_ROOM_LOOK_NS (100 * CLOCK_NS_PER_MS)
/* So long the first of those who wait may wait before others, who use what they have, let go. */
#define HTTP_ROOM_TURN_NS (1 * CLOCK_NS_PER_S)

/* The list is in the order in which connections last began to ask for nothing. */
static void http_room_link(struct http_conn *c) {
    struct http *h = c->http;
    c->idle_ns = clock_mono_ns();
    c->prev = NULL;
    c->next = h->first;
    if (c->next != NULL)
        c->next->prev = c;
    else
        h->last = c;
    h->first = c;
}

static void http_room_unlink(struct http_conn *c) {
    struct http *h = c->http;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        h->first = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    else
        h->last = c->prev;
}

/* Not even a whole head of a request has come. */
static bool http_room_is_idle(const struct http_conn *c) {
    return c->req == NULL || c->req->method == NULL;
}

static bool http_room_is_sending(const struct http_conn *c) {
    char byte;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* How many connections the kernel has made that were not accepted yet. */
static unsigned http_room_waiting(const struct http *h) {
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (getsockopt(h->options.listen_fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return 1;
    return info.tcpi_unacked;
}

/* Closes up to `most` that ask for nothing -> how many. */
static unsigned http_room_clear(struct http *h, unsigned most, uint64_t now) {
    unsigned n = 0;
    for (struct http_conn *c = h->last; c != NULL && n < most; c = c->prev) {
        if (!http_room_is_idle(c))
            continue;
        if (now - c->idle_ns < HTTP_ROOM_IDLE_NS)
            break; /* those that follow have answered later still */
        if (http_room_is_sending(c))
            continue;
        http_tls_bye(c);
        shutdown(c->fd, SHUT_RDWR);
        n++;
    }
    return n;
}

static void http_room_make(void *arg) {
    struct http *h = arg;
    struct http_room *room = &h->room;
    uint64_t now = clock_mono_ns();
    unsigned waiting = http_room_waiting(h);
    unsigned cleared = http_room_clear(h, waiting, now);
    if (waiting > cleared && now - room->since_ns >= HTTP_ROOM_TURN_NS) {
        room->turns = waiting - cleared;
        room->turn_ns = room->since_ns = now;
    }
    (void)loop_timer_at(h->loop, &room->timer, now + HTTP_ROOM_LOOK_NS, http_room_make, h, NULL);
}

static void http_room_event(void *arg, uint32_t events) {
    struct http *h = arg;
    (void)events;
    loop_del(h->loop, &h->room.source);
    h->room.since_ns = clock_mono_ns();
    http_room_make(h);
}

void http_room_start(struct http *h) {
    h->room.source.fd = -1;
}

void http_room_stop(struct http *h) {
    loop_del(h->loop, &h->room.source);
    loop_timer_stop(h->loop, &h->room.timer);
}

void http_room_enter(struct http_conn *c) {
    struct http *h = c->http;
    c->opened_ns = clock_mono_ns();
    http_room_link(c);
    if (++h->connections == h->options.max_connections)
        (void)loop_add(h->loop, &h->room.source, h->options.listen_fd, EPOLLIN, http_room_event, h,
                       NULL);
}

void http_room_leave(struct http_conn *c) {
    http_room_unlink(c);
    c->http->connections--;
    http_room_stop(c->http);
}

void http_room_idle(struct http_conn *c) {
    http_room_unlink(c);
    http_room_link(c);
}

bool http_room_turn_is_over(const struct http_conn *c) {
    struct http_room *room = &c->http->room;
    if (room->turns == 0 || c->opened_ns > room->turn_ns)
        return false;
    room->turns--;
    return true;
}
