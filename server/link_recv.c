#include "link_recv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fd.h"
#include "image_check.h"
#include "link_internal.h"

/* Packets that one system call reads, and the room for each. */
#define LINK_RECV_BATCH 8
#define LINK_RECV_SMALL ((size_t)1024)
_Static_assert(LINK_RECV_BATCH *LINK_RECV_SMALL <= WIRE_PACKET_MAX, "room for a batch");
_Static_assert(sizeof(struct wire_end) <= LINK_RECV_SMALL &&
                   sizeof(struct wire_failed) <= LINK_RECV_SMALL &&
                   sizeof(struct wire_state) <= LINK_RECV_SMALL &&
                   sizeof(struct wire_done) <= LINK_RECV_SMALL &&
                   sizeof(struct wire_kept_exec) <= LINK_RECV_SMALL,
               "packets of a greeted shard are small");
/* Descriptors that one packet of a greeted shard may carry: those of a KEPT_EXEC. */
#define LINK_RECV_FDS LINK_KEEP_FDS

/* One packet, with its descriptors: who takes one over sets it to -1. */
struct link_recv_packet {
    const void *data;
    size_t size;
    int *fds;
    size_t nfds;
};

/* The numbers first … first + count - 1 are free. */
static int link_recv_pool(struct link_pool *pool, uint32_t first, uint32_t count) {
    pool->free_list = calloc((size_t)count + 1, sizeof(*pool->free_list));
    if (pool->free_list == NULL)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        pool->free_list[pool->free_count++] = first + count - 1 - i;
    return 0;
}

static int link_recv_welcome(struct link *l, const struct link_recv_packet *p, struct err *err) {
    const struct wire_welcome *w = p->data;
    l->welcome = *w;
    if (w->slots > LINK_SLOTS_MAX || w->sandboxes > LINK_SLOTS_MAX - w->slots)
        return err_set(err, ERR_PROTOCOL, 0, "%s announced %u slots and %u sandboxes", l->name,
                       w->slots, w->sandboxes);
    l->jails = calloc(w->slots + w->sandboxes, sizeof(*l->jails));
    l->policies = calloc(w->policies + 1, sizeof(*l->policies));
    l->capabilities = calloc(w->capabilities + 1, sizeof(*l->capabilities));
    if (l->jails == NULL || l->policies == NULL || l->capabilities == NULL ||
        link_recv_pool(&l->pools[LINK_RUNS], 0, w->slots) < 0 ||
        link_recv_pool(&l->pools[LINK_SANDBOXES], w->slots, w->sandboxes) < 0)
        return err_set(err, ERR_SYSTEM, ENOMEM, "greeting %s: out of memory", l->name);
    l->jail_count = w->slots + w->sandboxes;
    l->state = LINK_GREETING;
    return 0;
}

static int link_recv_policy(struct link *l, const struct link_recv_packet *packet,
                            struct err *err) {
    const struct wire_policy *p = packet->data;
    if (l->policy_count == l->welcome.policies)
        return err_set(err, ERR_PROTOCOL, 0, "%s sent more policies than announced", l->name);
    char *text = malloc((size_t)p->text_size + 1);
    if (text == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "keeping a policy of %s: out of memory", l->name);
    memcpy(text, p + 1, p->text_size);
    text[p->text_size] = '\0';
    struct link_policy *policy = &l->policies[l->policy_count++];
    *policy =
        (struct link_policy){.head = *p, .text = text, .backend = (enum backend)l->welcome.backend};
    memcpy(policy->host_sha256, l->welcome.host_sha256, sizeof(policy->host_sha256));
    return image_check_policy(policy, err);
}

static int link_recv_capability(struct link *l, const struct link_recv_packet *p, struct err *err) {
    if (l->capability_count == l->welcome.capabilities)
        return err_set(err, ERR_PROTOCOL, 0, "%s sent more capabilities than announced", l->name);
    l->capabilities[l->capability_count++] = *(const struct wire_capability *)p->data;
    return 0;
}

static int link_recv_kept_add(struct link *l, struct link_kept *list, size_t max,
                              const struct wire_kept *kept, struct err *err) {
    if (list->count == max)
        return err_set(err, ERR_PROTOCOL, 0, "%s has kept more than it can have", l->name);
    if (list->count == list->alloc) {
        size_t alloc = list->alloc == 0 ? 64 : list->alloc * 2;
        struct wire_kept *items = realloc(list->items, alloc * sizeof(*items));
        if (items == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "greeting %s: out of memory", l->name);
        list->items = items;
        list->alloc = alloc;
    }
    list->items[list->count++] = *kept;
    return 0;
}

static int link_recv_kept(struct link *l, const struct link_recv_packet *p, struct err *err) {
    return link_recv_kept_add(l, &l->kept, l->welcome.sandboxes, p->data, err);
}

static int link_recv_kept_snapshot(struct link *l, const struct link_recv_packet *p,
                                   struct err *err) {
    return link_recv_kept_add(l, &l->kept_snapshots, LINK_SNAPSHOTS_MAX, p->data, err);
}

static int link_recv_ready(struct link *l, const struct link_recv_packet *p, struct err *err) {
    (void)p;
    if (link_policy(l, "default") == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "%s has no policy named default", l->name);
    l->state = LINK_READY;
    l->greeted = true;
    l->watch->ready(l->watch->arg, l);
    link_forget_kept(l);
    return 0;
}

/* The jail that a reply is about. A jail's number holds its slot in the low bits. */
static struct link_jail *link_recv_jail(struct link *l, const struct link_recv_packet *p,
                                        struct err *err) {
    const struct wire_head *head = p->data;
    uint64_t id = head->jail;
    uint64_t slot = id & (LINK_SLOTS_MAX - 1);
    if (slot < l->jail_count && l->jails[slot].id == id && id != 0)
        return &l->jails[slot];
    err_set(err, ERR_PROTOCOL, 0, "%s spoke of a jail that is not open", l->name);
    return NULL;
}

static int link_recv_unasked(const struct link *l, const struct link_recv_packet *p,
                             struct err *err) {
    const struct wire_head *head = p->data;
    return err_set(err, ERR_PROTOCOL, 0, "%s sent a packet of type %u that nobody asked for",
                   l->name, head->type);
}

static int link_recv_end(struct link *l, const struct link_recv_packet *p, struct err *err) {
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if (j->owner != NULL)
        j->ops->ended(j->owner, p->data);
    return 0;
}

static int link_recv_failed(struct link *l, const struct link_recv_packet *p, struct err *err) {
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    void *owner = j->owner;
    j->owner = NULL;
    if (owner != NULL)
        j->ops->failed(owner, p->data);
    return 0;
}

static int link_recv_opened(struct link *l, const struct link_recv_packet *p, struct err *err) {
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if (j->owner == NULL)
        return 0;
    if (j->ops->opened == NULL)
        return link_recv_unasked(l, p, err);
    j->ops->opened(j->owner);
    return 0;
}

static int link_recv_started(struct link *l, const struct link_recv_packet *p, struct err *err) {
    const struct wire_head *head = p->data;
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if (j->owner == NULL)
        return 0;
    if (j->ops->started == NULL)
        return link_recv_unasked(l, p, err);
    j->ops->started(j->owner, head->exec, fd_steal(&p->fds[0]));
    return 0;
}

static int link_recv_done(struct link *l, const struct link_recv_packet *p, struct err *err) {
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if (j->owner == NULL)
        return 0;
    if (j->ops->done == NULL)
        return link_recv_unasked(l, p, err);
    j->ops->done(j->owner, p->data);
    return 0;
}

static int link_recv_kept_exec(struct link *l, const struct link_recv_packet *p, struct err *err) {
    static const uint32_t bits[LINK_KEEP_FDS] = {WIRE_FD_KEEP_STDIN, WIRE_FD_KEEP_STDOUT,
                                                 WIRE_FD_KEEP_STDERR, WIRE_FD_KEEP_INPUT};
    const struct wire_kept_exec *kept = p->data;
    int fds[LINK_KEEP_FDS];
    size_t next = 0;
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if (j->owner == NULL)
        return 0;
    if (j->ops->kept_exec == NULL)
        return link_recv_unasked(l, p, err);
    for (size_t i = 0; i < LINK_KEEP_FDS; i++)
        fds[i] = kept->fds & bits[i] ? fd_steal(&p->fds[next++]) : -1;
    j->ops->kept_exec(j->owner, kept, fds);
    return 0;
}

/* It went before we told it to: there is nothing to close any more. */
static void link_recv_closing_remove(struct link *l, struct link_jail *j) {
    struct link_jail **at = &l->closing;
    while (*at != j)
        at = &(*at)->next_closing;
    *at = j->next_closing;
    j->closing = false;
}

static int link_recv_closed(struct link *l, const struct link_recv_packet *p, struct err *err) {
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if (j->owner != NULL)
        return err_set(err, ERR_PROTOCOL, 0, "%s closed a jail that is in use", l->name);
    if (j->closing)
        link_recv_closing_remove(l, j);
    void (*closed)(void *arg, uint64_t cpu_ns) = j->closed;
    link_jail_free(j);
    if (closed != NULL)
        closed(j->closed_arg, ((const struct wire_closed *)p->data)->cpu_ns);
    l->watch->slot_free(l->watch->arg, l);
    return 0;
}

static int link_recv_state(struct link *l, const struct link_recv_packet *p, struct err *err) {
    (void)err;
    l->shard = *(const struct wire_state *)p->data;
    if (l->state == LINK_READY)
        l->watch->slot_free(l->watch->arg, l);
    return 0;
}

static int link_recv_kind(struct link *l, const struct link_recv_packet *p, struct err *err) {
    if ((l->look.what & WIRE_LOOK_KINDS) == 0)
        return link_recv_unasked(l, p, err);
    link_look_kind(l, p->data);
    return 0;
}

static int link_recv_seen(struct link *l, const struct link_recv_packet *p, struct err *err) {
    struct link_jail *j = link_recv_jail(l, p, err);
    if (j == NULL)
        return -1;
    if ((l->look.what & (WIRE_LOOK_JAILS | WIRE_LOOK_BUSY)) == 0)
        return link_recv_unasked(l, p, err);
    link_look_seen(j, p->data);
    return 0;
}

static int link_recv_looked(struct link *l, const struct link_recv_packet *p, struct err *err) {
    if (l->look.what == 0)
        return link_recv_unasked(l, p, err);
    link_look_done(l);
    return 0;
}

#define IN(state) (1u << (state))
static const struct link_recv_rule {
    uint32_t type;
    uint32_t states; /* mask: when it is permitted */
    int (*fn)(struct link *l, const struct link_recv_packet *p, struct err *err);
} link_recv_rules[] = {
    {WIRE_WELCOME, IN(LINK_HELLO), link_recv_welcome},
    {WIRE_POLICY, IN(LINK_GREETING), link_recv_policy},
    {WIRE_CAPABILITY, IN(LINK_GREETING), link_recv_capability},
    {WIRE_KEPT, IN(LINK_GREETING), link_recv_kept},
    {WIRE_KEPT_SNAPSHOT, IN(LINK_GREETING), link_recv_kept_snapshot},
    {WIRE_READY, IN(LINK_GREETING), link_recv_ready},
    {WIRE_END, IN(LINK_READY), link_recv_end},
    {WIRE_FAILED, IN(LINK_READY), link_recv_failed},
    {WIRE_CLOSED, IN(LINK_READY), link_recv_closed},
    {WIRE_OPENED, IN(LINK_READY), link_recv_opened},
    {WIRE_STARTED, IN(LINK_READY), link_recv_started},
    {WIRE_DONE, IN(LINK_READY), link_recv_done},
    {WIRE_KEPT_EXEC, IN(LINK_READY), link_recv_kept_exec},
    {WIRE_KIND, IN(LINK_READY), link_recv_kind},
    {WIRE_SEEN, IN(LINK_READY), link_recv_seen},
    {WIRE_LOOKED, IN(LINK_READY), link_recv_looked},
    {WIRE_STATE, IN(LINK_GREETING) | IN(LINK_READY), link_recv_state},
};

static int link_recv_take(struct link *l, const struct link_recv_packet *p, struct err *err) {
    if (wire_check_reply(p->data, p->size, p->nfds, err) < 0)
        return err_wrap(err, "%s", l->name);
    const struct wire_head *head = p->data;
    for (size_t i = 0; i < sizeof(link_recv_rules) / sizeof(link_recv_rules[0]); i++) {
        const struct link_recv_rule *r = &link_recv_rules[i];
        if (r->type != head->type)
            continue;
        if ((r->states & IN(l->state)) == 0)
            break;
        return r->fn(l, p, err);
    }
    return err_set(err, ERR_PROTOCOL, 0, "%s sent a packet of type %u at the wrong moment", l->name,
                   head->type);
}

static int link_recv_eof(const struct link *l, struct err *err) {
    return err_set(err, ERR_STATE, 0, "%s closed the connection", l->name);
}

/* Reads one packet of any size: 1, 0 when there is none now, -1 when the connection must end. */
static int link_recv_one(struct link *l, struct err *err) {
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    ssize_t n = fd_recv(l->fd, l->packet, WIRE_PACKET_MAX, fds, &nfds, NULL, err);
    if (n < 0)
        return err->kind == ERR_SYSTEM && err->code == EAGAIN ? 0 : -1;
    if (n == 0)
        return link_recv_eof(l, err);
    struct link_recv_packet p = {.data = l->packet, .size = (size_t)n, .fds = fds, .nfds = nfds};
    int rc = link_recv_take(l, &p, err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    return rc < 0 ? -1 : 1;
}

union link_recv_control {
    char bytes[CMSG_SPACE(LINK_RECV_FDS * sizeof(int))];
    struct cmsghdr align;
};

/* The descriptors of a packet. CMSG_SPACE rounds up, so there may be one more than is allowed. */
static size_t link_recv_fds(struct msghdr *msg, int fds[LINK_RECV_FDS + 1]) {
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (count <= LINK_RECV_FDS)
                fds[count++] = fd;
            else
                fd_close(&fd);
        }
    }
    return count;
}

static int link_recv_part(struct link *l, struct mmsghdr *m, int *fds, size_t nfds,
                          struct err *err) {
    if (m->msg_len == 0)
        return link_recv_eof(l, err);
    if (m->msg_hdr.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return err_set(err, ERR_PROTOCOL, 0, "%s sent a packet that is too large", l->name);
    struct link_recv_packet p = {
        .data = m->msg_hdr.msg_iov->iov_base, .size = m->msg_len, .fds = fds, .nfds = nfds};
    return link_recv_take(l, &p, err);
}

/* Reads all packets that are there with one system call. Once greeted, packets are small and few
 * have descriptors: the room for them costs nothing when none come. */
static int link_recv_small(struct link *l, struct err *err) {
    struct mmsghdr msgs[LINK_RECV_BATCH];
    struct iovec parts[LINK_RECV_BATCH];
    union link_recv_control controls[LINK_RECV_BATCH];
    char *room = (char *)l->packet;
    memset(msgs, 0, sizeof(msgs));
    for (size_t i = 0; i < LINK_RECV_BATCH; i++) {
        parts[i] =
            (struct iovec){.iov_base = room + i * LINK_RECV_SMALL, .iov_len = LINK_RECV_SMALL};
        msgs[i].msg_hdr.msg_iov = &parts[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
        msgs[i].msg_hdr.msg_control = controls[i].bytes;
        msgs[i].msg_hdr.msg_controllen = sizeof(controls[i].bytes);
    }
    int n = recvmmsg(l->fd, msgs, LINK_RECV_BATCH, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, NULL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : err_sys(err, "reading from %s", l->name);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        int fds[LINK_RECV_FDS + 1];
        size_t nfds = 0;
        if (msgs[i].msg_hdr.msg_controllen > 0)
            nfds = link_recv_fds(&msgs[i].msg_hdr, fds);
        /* After a wrong one, the others are only read for their descriptors. */
        if (rc == 0)
            rc = link_recv_part(l, &msgs[i], fds, nfds, err);
        for (size_t k = 0; k < nfds; k++)
            fd_close(&fds[k]);
    }
    return rc;
}

int link_recv(struct link *l, struct err *err) {
    return l->state == LINK_READY ? link_recv_small(l, err) : link_recv_one(l, err);
}
