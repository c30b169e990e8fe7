#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "clock.h"
#include "fd.h"
#include "link_internal.h"
#include "link_recv.h"
#include "link_send.h"
#include "str.h"

#define LINK_GREETING_NS (10 * CLOCK_NS_PER_S)
#define LINK_READS_PER_EVENT 32
/* Packets that may wait here before the shard counts as full. */
#define LINK_WAITING_MAX 16

void link_init(struct link *l, const char *name, struct loop *loop, struct log *log,
               const struct link_watch *watch) {
    memset(l, 0, sizeof(*l));
    str_copy(l->name, sizeof(l->name), name);
    l->loop = loop;
    l->log = log;
    l->watch = watch;
    l->fd = -1;
    l->source.fd = -1;
    l->serial = 1;
}

void link_forget_kept(struct link *l) {
    free(l->kept.items);
    free(l->kept_snapshots.items);
    memset(&l->kept, 0, sizeof(l->kept));
    memset(&l->kept_snapshots, 0, sizeof(l->kept_snapshots));
}

static void link_forget(struct link *l) {
    for (size_t i = 0; i < l->policy_count; i++) {
        free(l->policies[i].text);
        free(l->policies[i].images);
    }
    free(l->policies);
    free(l->capabilities);
    free(l->jails);
    for (size_t i = 0; i < LINK_POOLS; i++)
        free(l->pools[i].free_list);
    link_forget_kept(l);
    l->policies = NULL;
    l->policy_count = 0;
    l->capabilities = NULL;
    l->capability_count = 0;
    l->jails = NULL;
    l->jail_count = 0;
    memset(l->pools, 0, sizeof(l->pools));
    memset(&l->shard, 0, sizeof(l->shard));
    memset(&l->welcome, 0, sizeof(l->welcome));
}

static void link_disconnect(struct link *l) {
    loop_del(l->loop, &l->source);
    loop_timer_stop(l->loop, &l->greeting);
    loop_defer_stop(l->loop, &l->fail);
    loop_defer_stop(l->loop, &l->close);
    l->closing = NULL;
    link_look_reset(l);
    fd_close(&l->fd);
    link_send_drop(l);
    l->state = LINK_CLOSED;
}

void link_done(struct link *l) {
    link_disconnect(l);
    link_forget(l);
    free(l->packet);
    l->packet = NULL;
}

void link_drop(struct link *l, const struct err *why) {
    if (l->state == LINK_CLOSED)
        return;
    struct err copy = *why;
    link_disconnect(l);
    for (uint32_t i = 0; i < l->jail_count; i++) {
        struct link_jail *j = &l->jails[i];
        void *owner = j->owner;
        void (*closed)(void *arg, uint64_t cpu_ns) = j->closed;
        j->id = 0;
        j->owner = NULL;
        j->closed = NULL;
        if (owner != NULL)
            j->ops->lost(owner);
        else if (closed != NULL)
            closed(j->closed_arg, UINT64_MAX);
    }
    link_forget(l);
    l->watch->down(l->watch->arg, l, &copy);
}

static void link_event(void *arg, uint32_t events) {
    struct link *l = arg;
    struct err err;
    err_clear(&err);
    if (events & EPOLLOUT)
        link_send_flush(l);
    int rc = 1;
    for (int i = 0; i < LINK_READS_PER_EVENT && rc > 0; i++)
        rc = link_recv(l, &err);
    if (rc < 0)
        link_drop(l, &err);
}

/* A shard that took the connection and then says nothing is as good as none. */
static void link_late(void *arg) {
    struct link *l = arg;
    struct err err;
    if (l->state == LINK_READY || l->state == LINK_CLOSED)
        return;
    err_set(&err, ERR_STATE, ETIMEDOUT, "%s did not answer the greeting", l->name);
    link_drop(l, &err);
}

int link_connect(struct link *l, struct err *err) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    fd_cleanup int fd = -1;
    if (!str_copy(addr.sun_path, sizeof(addr.sun_path), l->name))
        return err_set(err, ERR_INVALID, 0, "the socket path %s is too long", l->name);
    if (l->packet == NULL && (l->packet = malloc(WIRE_PACKET_MAX)) == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "connecting to %s: out of memory", l->name);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, "making a socket for %s", l->name);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return err_sys(err, "connecting to %s", l->name);
    struct wire_hello hello;
    memset(&hello, 0, sizeof(hello));
    wire_head_init(&hello.head, WIRE_HELLO, sizeof(hello), 0, 0);
    if (fd_send(fd, &hello, sizeof(hello), NULL, 0, err) < 0)
        return err_wrap(err, "greeting %s", l->name);
    if (loop_add(l->loop, &l->source, fd, EPOLLIN, link_event, l, err) < 0)
        return -1;
    l->fd = fd_steal(&fd);
    l->greeted = false;
    l->state = LINK_HELLO;
    return loop_timer_at(l->loop, &l->greeting, clock_mono_ns() + LINK_GREETING_NS, link_late, l,
                         err);
}

/* Jails. */

static bool link_takes(const struct link *l) {
    return l->state == LINK_READY && l->out_count < LINK_WAITING_MAX && !l->fail.pending;
}

bool link_has_room(const struct link *l) {
    return link_takes(l) && l->pools[LINK_RUNS].free_count > 0;
}

bool link_has_sandbox_room(const struct link *l) {
    return link_takes(l) && l->pools[LINK_SANDBOXES].free_count > 0;
}

const struct link_policy *link_policy(const struct link *l, const char *name) {
    for (size_t i = 0; i < l->policy_count; i++)
        if (strcmp(l->policies[i].head.name, name) == 0)
            return &l->policies[i];
    return NULL;
}

static struct link_jail *link_take(struct link *l, enum link_pool_kind kind,
                                   const struct link_jail_ops *ops, void *owner) {
    struct link_pool *pool = &l->pools[kind];
    if (l->state != LINK_READY || pool->free_count == 0)
        return NULL;
    uint32_t slot = pool->free_list[--pool->free_count];
    struct link_jail *j = &l->jails[slot];
    *j = (struct link_jail){.link = l,
                            .id = l->serial++ * LINK_SLOTS_MAX + slot,
                            .pool = pool,
                            .ops = ops,
                            .owner = owner};
    pool->in_use++;
    return j;
}

struct link_jail *link_open_jail(struct link *l, const struct link_jail_ops *ops, void *owner) {
    return link_takes(l) ? link_take(l, LINK_RUNS, ops, owner) : NULL;
}

struct link_jail *link_open_sandbox(struct link *l, const struct link_jail_ops *ops, void *owner) {
    return link_take(l, LINK_SANDBOXES, ops, owner);
}

void link_jail_free(struct link_jail *j) {
    j->id = 0;
    j->owner = NULL;
    j->closed = NULL;
    j->pool->free_list[j->pool->free_count++] = (uint32_t)(j - j->link->jails);
    j->pool->in_use--;
}

int link_open(struct link_jail *j, const struct wire_open *open, struct err *err) {
    struct wire_open packet = *open;
    struct link_send_item item = {.parts = {{.iov_base = &packet, .iov_len = sizeof(packet)}},
                                  .part_count = 1};
    wire_head_init(&packet.head, WIRE_OPEN, sizeof(packet), j->id, 0);
    j->sent = link_send(j->link, &item, err) == 0;
    return j->sent ? 0 : -1;
}

int link_exec(struct link_jail *j, const struct link_exec *x, struct err *err) {
    struct link_send_item item = {.fds = x->fds, .fd_count = x->fd_count};
    struct wire_open open;
    if (x->open != NULL) {
        open = *x->open;
        wire_head_init(&open.head, WIRE_OPEN, sizeof(open), j->id, 0);
        item.parts[item.part_count++] = (struct iovec){.iov_base = &open, .iov_len = sizeof(open)};
    }
    size_t extra = x->spec != NULL ? x->exec->spec_size : 0;
    wire_head_init(&x->exec->head, WIRE_EXEC, sizeof(*x->exec) + extra, j->id, x->number);
    item.parts[item.part_count++] =
        (struct iovec){.iov_base = x->exec, .iov_len = sizeof(*x->exec)};
    if (extra > 0)
        item.parts[item.part_count++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)x->spec, .iov_len = extra};
    int rc = link_send(j->link, &item, err);
    j->sent = j->sent || (rc == 0 && x->open != NULL);
    return rc;
}

static void link_send_small(struct link *l, void *packet, size_t size) {
    struct link_send_item item = {.parts = {{.iov_base = packet, .iov_len = size}},
                                  .part_count = 1};
    struct err err;
    err_clear(&err);
    /* A KILL or CLOSE that cannot be kept would leave a jail running for ever. */
    if (link_send(l, &item, &err) < 0)
        link_send_fail(l, &err);
}

void link_kill(struct link_jail *j, uint32_t number, enum cause cause) {
    struct wire_kill kill;
    memset(&kill, 0, sizeof(kill));
    wire_head_init(&kill.head, WIRE_KILL, sizeof(kill), j->id, number);
    kill.cause = cause;
    link_send_small(j->link, &kill, sizeof(kill));
}

void link_signal(struct link_jail *j, uint32_t number, int signal) {
    struct wire_signal packet;
    memset(&packet, 0, sizeof(packet));
    wire_head_init(&packet.head, WIRE_SIGNAL, sizeof(packet), j->id, number);
    packet.signal = (uint32_t)signal;
    link_send_small(j->link, &packet, sizeof(packet));
}

bool link_weigh(struct link_jail *j, uint32_t shares) {
    struct wire_weigh packet;
    if (!j->sent)
        return false;
    memset(&packet, 0, sizeof(packet));
    wire_head_init(&packet.head, WIRE_WEIGH, sizeof(packet), j->id, 0);
    packet.shares = shares;
    link_send_small(j->link, &packet, sizeof(packet));
    return true;
}

void link_freeze(struct link_jail *j, bool frozen) {
    struct wire_freeze packet;
    memset(&packet, 0, sizeof(packet));
    wire_head_init(&packet.head, WIRE_FREEZE, sizeof(packet), j->id, 0);
    packet.frozen = frozen;
    link_send_small(j->link, &packet, sizeof(packet));
}

static void link_send_key(struct link *l, enum wire_type type, uint64_t jail, const char *key) {
    struct wire_key packet;
    memset(&packet, 0, sizeof(packet));
    wire_head_init(&packet.head, type, sizeof(packet), jail, 0);
    str_copy(packet.key, sizeof(packet.key), key);
    link_send_small(l, &packet, sizeof(packet));
}

void link_snapshot(struct link_jail *j, const char *key) {
    link_send_key(j->link, WIRE_SNAPSHOT, j->id, key);
}

void link_restore(struct link_jail *j, const char *key) {
    link_send_key(j->link, WIRE_RESTORE, j->id, key);
}

void link_adopt(struct link_jail *j, const char *key) {
    j->sent = true;
    link_send_key(j->link, WIRE_ADOPT, j->id, key);
}

void link_drop_snapshot(struct link *l, const char *key) {
    if (l->state == LINK_READY)
        link_send_key(l, WIRE_DROP, 0, key);
}

static void link_send_closes(void *arg) {
    struct link *l = arg;
    struct wire_close packet;
    memset(&packet, 0, sizeof(packet));
    while (l->closing != NULL && l->state != LINK_CLOSED) {
        struct link_jail *j = l->closing;
        l->closing = j->next_closing;
        j->closing = false;
        wire_head_init(&packet.head, WIRE_CLOSE, sizeof(packet), j->id, 0);
        link_send_small(l, &packet, sizeof(packet));
    }
}

void link_close_jail(struct link_jail *j) {
    struct link *l = j->link;
    j->owner = NULL;
    j->next_closing = l->closing;
    j->closing = true;
    l->closing = j;
    loop_defer(l->loop, &l->close, link_send_closes, l);
}

void link_close_then(struct link_jail *j, void (*closed)(void *arg, uint64_t cpu_ns), void *arg) {
    j->closed = closed;
    j->closed_arg = arg;
    link_close_jail(j);
}

void link_close_forget(struct link_jail *j) {
    j->closed = NULL;
    j->closed_arg = NULL;
}

void link_abandon(struct link_jail *j) {
    link_jail_free(j);
}

struct link *link_of(const struct link_jail *j) {
    return j->link;
}

void link_fail(struct link_jail *j, const char *why) {
    struct err err;
    err_set(&err, ERR_PROTOCOL, 0, "%s: %s", j->link->name, why);
    link_send_fail(j->link, &err);
}
