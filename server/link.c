#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "clock.h"
#include "fd.h"
#include "link_send.h"
#include "str.h"

#define LINK_GREETING_NS (10 * CLOCK_NS_PER_S)
#define LINK_READS_PER_EVENT 32
/* Packets that one system call reads, and the room for each. */
#define LINK_BATCH 8
#define LINK_SMALL ((size_t)1024)
_Static_assert(LINK_BATCH *LINK_SMALL <= WIRE_PACKET_MAX, "room for a batch");
_Static_assert(sizeof(struct wire_end) <= LINK_SMALL && sizeof(struct wire_failed) <= LINK_SMALL &&
                   sizeof(struct wire_state) <= LINK_SMALL,
               "packets of a greeted shard are small");
/* Packets that may wait here before the shard counts as full. */
#define LINK_WAITING_MAX 16

struct link_jail {
    struct link *link;
    uint64_t id; /* 0 = slot is free */
    const struct link_jail_ops *ops;
    void *owner; /* NULL = nobody listens: CLOSE was sent, or is about to be */
    struct link_jail *next_closing;
    bool closing; /* CLOSE is about to be sent */
};

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

static void link_forget(struct link *l) {
    for (size_t i = 0; i < l->policy_count; i++)
        free(l->policies[i].text);
    free(l->policies);
    free(l->capabilities);
    free(l->jails);
    free(l->free_list);
    l->policies = NULL;
    l->policy_count = 0;
    l->capabilities = NULL;
    l->capability_count = 0;
    l->jails = NULL;
    l->free_list = NULL;
    l->free_count = 0;
    l->in_use = 0;
    memset(&l->shard, 0, sizeof(l->shard));
    memset(&l->welcome, 0, sizeof(l->welcome));
}

static void link_disconnect(struct link *l) {
    loop_del(l->loop, &l->source);
    loop_timer_stop(l->loop, &l->greeting);
    loop_defer_stop(l->loop, &l->fail);
    loop_defer_stop(l->loop, &l->close);
    l->closing = NULL;
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
    uint32_t slots = l->jails != NULL ? l->welcome.slots : 0;
    link_disconnect(l);
    for (uint32_t i = 0; i < slots; i++) {
        struct link_jail *j = &l->jails[i];
        void *owner = j->owner;
        j->id = 0;
        j->owner = NULL;
        if (owner != NULL)
            j->ops->lost(owner);
    }
    link_forget(l);
    l->watch->down(l->watch->arg, l, &copy);
}

/* Receiving: the table of what may come when, and what it does. */

static int link_on_welcome(struct link *l, const void *packet, struct err *err) {
    l->welcome = *(const struct wire_welcome *)packet;
    uint32_t slots = l->welcome.slots;
    if (slots > LINK_SLOTS_MAX)
        return err_set(err, ERR_PROTOCOL, 0, "%s announced %u slots", l->name, slots);
    l->jails = calloc(slots, sizeof(*l->jails));
    l->free_list = calloc(slots, sizeof(*l->free_list));
    l->policies = calloc(l->welcome.policies + 1, sizeof(*l->policies));
    l->capabilities = calloc(l->welcome.capabilities + 1, sizeof(*l->capabilities));
    if (l->jails == NULL || l->free_list == NULL || l->policies == NULL || l->capabilities == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "greeting %s: out of memory", l->name);
    for (uint32_t i = 0; i < slots; i++)
        l->free_list[l->free_count++] = slots - 1 - i;
    l->state = LINK_GREETING;
    return 0;
}

static int link_on_policy(struct link *l, const void *packet, struct err *err) {
    const struct wire_policy *p = packet;
    if (l->policy_count == l->welcome.policies)
        return err_set(err, ERR_PROTOCOL, 0, "%s sent more policies than announced", l->name);
    char *text = malloc((size_t)p->text_size + 1);
    if (text == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "keeping a policy of %s: out of memory", l->name);
    memcpy(text, p + 1, p->text_size);
    text[p->text_size] = '\0';
    l->policies[l->policy_count++] = (struct link_policy){.head = *p, .text = text};
    return 0;
}

static int link_on_capability(struct link *l, const void *packet, struct err *err) {
    if (l->capability_count == l->welcome.capabilities)
        return err_set(err, ERR_PROTOCOL, 0, "%s sent more capabilities than announced", l->name);
    l->capabilities[l->capability_count++] = *(const struct wire_capability *)packet;
    return 0;
}

static int link_on_ready(struct link *l, const void *packet, struct err *err) {
    (void)packet;
    if (link_policy(l, "default") == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "%s has no policy named default", l->name);
    l->state = LINK_READY;
    l->greeted = true;
    l->watch->ready(l->watch->arg, l);
    return 0;
}

/* The jail that a reply is about. A jail's number holds its slot in the low bits. */
static struct link_jail *link_find(struct link *l, uint64_t id, struct err *err) {
    uint64_t slot = id & (LINK_SLOTS_MAX - 1);
    if (slot < l->welcome.slots && l->jails[slot].id == id && id != 0)
        return &l->jails[slot];
    err_set(err, ERR_PROTOCOL, 0, "%s spoke of a jail that is not open", l->name);
    return NULL;
}

static int link_on_end(struct link *l, const void *packet, struct err *err) {
    const struct wire_end *end = packet;
    struct link_jail *j = link_find(l, end->head.jail, err);
    if (j == NULL)
        return -1;
    if (j->owner != NULL)
        j->ops->ended(j->owner, end);
    return 0;
}

static int link_on_failed(struct link *l, const void *packet, struct err *err) {
    const struct wire_failed *failed = packet;
    struct link_jail *j = link_find(l, failed->head.jail, err);
    if (j == NULL)
        return -1;
    void *owner = j->owner;
    j->owner = NULL;
    if (owner != NULL)
        j->ops->failed(owner, failed);
    return 0;
}

/* It went before we told it to: there is nothing to close any more. */
static void link_closing_remove(struct link *l, struct link_jail *j) {
    struct link_jail **at = &l->closing;
    while (*at != j)
        at = &(*at)->next_closing;
    *at = j->next_closing;
    j->closing = false;
}

static int link_on_closed(struct link *l, const void *packet, struct err *err) {
    const struct wire_closed *closed = packet;
    struct link_jail *j = link_find(l, closed->head.jail, err);
    if (j == NULL)
        return -1;
    if (j->owner != NULL)
        return err_set(err, ERR_PROTOCOL, 0, "%s closed a jail that is in use", l->name);
    if (j->closing)
        link_closing_remove(l, j);
    j->id = 0;
    l->free_list[l->free_count++] = (uint32_t)(j - l->jails);
    l->in_use--;
    l->watch->slot_free(l->watch->arg, l);
    return 0;
}

static int link_on_state(struct link *l, const void *packet, struct err *err) {
    (void)err;
    l->shard = *(const struct wire_state *)packet;
    if (l->state == LINK_READY)
        l->watch->slot_free(l->watch->arg, l);
    return 0;
}

#define IN(state) (1u << (state))
static const struct link_reply {
    uint32_t type;
    uint32_t states; /* mask: when it is permitted */
    int (*fn)(struct link *l, const void *packet, struct err *err);
} link_replies[] = {
    {WIRE_WELCOME, IN(LINK_HELLO), link_on_welcome},
    {WIRE_POLICY, IN(LINK_GREETING), link_on_policy},
    {WIRE_CAPABILITY, IN(LINK_GREETING), link_on_capability},
    {WIRE_READY, IN(LINK_GREETING), link_on_ready},
    {WIRE_END, IN(LINK_READY), link_on_end},
    {WIRE_FAILED, IN(LINK_READY), link_on_failed},
    {WIRE_CLOSED, IN(LINK_READY), link_on_closed},
    {WIRE_STATE, IN(LINK_GREETING) | IN(LINK_READY), link_on_state},
};

static int link_take(struct link *l, const void *packet, size_t size, size_t nfds,
                     struct err *err) {
    if (wire_check_reply(packet, size, nfds, err) < 0)
        return err_wrap(err, "%s", l->name);
    const struct wire_head *head = packet;
    for (size_t i = 0; i < sizeof(link_replies) / sizeof(link_replies[0]); i++) {
        const struct link_reply *r = &link_replies[i];
        if (r->type != head->type)
            continue;
        if ((r->states & IN(l->state)) == 0)
            break;
        return r->fn(l, packet, err);
    }
    return err_set(err, ERR_PROTOCOL, 0, "%s sent a packet of type %u at the wrong moment", l->name,
                   head->type);
}

static int link_closed(const struct link *l, struct err *err) {
    return err_set(err, ERR_STATE, 0, "%s closed the connection", l->name);
}

/* Reads one packet of any size: 1, 0 when there is none now, -1 when the connection must end. */
static int link_read_one(struct link *l, struct err *err) {
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    ssize_t n = fd_recv(l->fd, l->packet, WIRE_PACKET_MAX, fds, &nfds, NULL, err);
    if (n < 0)
        return err->kind == ERR_SYSTEM && err->code == EAGAIN ? 0 : -1;
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if (n == 0)
        return link_closed(l, err);
    return link_take(l, l->packet, (size_t)n, nfds, err) < 0 ? -1 : 1;
}

/* Reads all packets that are there with one system call. Once greeted, packets are small and have
 * no descriptors: without room for any, the kernel closes what comes and says so. */
static int link_read_small(struct link *l, struct err *err) {
    struct mmsghdr msgs[LINK_BATCH];
    struct iovec parts[LINK_BATCH];
    char *room = (char *)l->packet;
    memset(msgs, 0, sizeof(msgs));
    for (size_t i = 0; i < LINK_BATCH; i++) {
        parts[i] = (struct iovec){.iov_base = room + i * LINK_SMALL, .iov_len = LINK_SMALL};
        msgs[i].msg_hdr.msg_iov = &parts[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    int n = recvmmsg(l->fd, msgs, LINK_BATCH, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, NULL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : err_sys(err, "reading from %s", l->name);
    for (int i = 0; i < n; i++) {
        if (msgs[i].msg_len == 0)
            return link_closed(l, err);
        if (msgs[i].msg_hdr.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
            return err_set(err, ERR_PROTOCOL, 0, "%s sent a packet that is too large", l->name);
        if (link_take(l, parts[i].iov_base, msgs[i].msg_len, 0, err) < 0)
            return -1;
    }
    return 0;
}

static void link_event(void *arg, uint32_t events) {
    struct link *l = arg;
    struct err err;
    err_clear(&err);
    if (events & EPOLLOUT)
        link_send_flush(l);
    int rc = 1;
    for (int i = 0; i < LINK_READS_PER_EVENT && rc > 0; i++)
        rc = l->state == LINK_READY ? link_read_small(l, &err) : link_read_one(l, &err);
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

bool link_has_room(const struct link *l) {
    return l->state == LINK_READY && l->free_count > 0 && l->out_count < LINK_WAITING_MAX &&
           !l->fail.pending;
}

const struct link_policy *link_policy(const struct link *l, const char *name) {
    for (size_t i = 0; i < l->policy_count; i++)
        if (strcmp(l->policies[i].head.name, name) == 0)
            return &l->policies[i];
    return NULL;
}

struct link_jail *link_open_jail(struct link *l, const struct link_jail_ops *ops, void *owner) {
    if (!link_has_room(l))
        return NULL;
    uint32_t slot = l->free_list[--l->free_count];
    struct link_jail *j = &l->jails[slot];
    *j = (struct link_jail){
        .link = l, .id = l->serial++ * LINK_SLOTS_MAX + slot, .ops = ops, .owner = owner};
    l->in_use++;
    return j;
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
    return link_send(j->link, &item, err);
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

void link_abandon(struct link_jail *j) {
    struct link *l = j->link;
    j->id = 0;
    j->owner = NULL;
    l->free_list[l->free_count++] = (uint32_t)(j - l->jails);
    l->in_use--;
}

void link_fail(struct link_jail *j, const char *why) {
    struct err err;
    err_set(&err, ERR_PROTOCOL, 0, "%s: %s", j->link->name, why);
    link_send_fail(j->link, &err);
}
