/* A runner shard made of a few functions, on the same thread as the server's side: the test says
 * what it sends and looks at what it gets. Works in a temporary directory, which becomes the
 * current one. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "loop.h"
#include "unit.h"
#include "wire.h"

#define FAKE_SOCKET "run/runner.0.sock"

struct fake_shard {
    struct loop *loop;
    int listener, fd;
    char dir[64];
    uint64_t packet[(WIRE_PACKET_MAX + 7) / 8]; /* the last one that came */
    size_t size;
    size_t rest, rest_fds; /* of a second packet in the same datagram */
    int fds[FD_PASS_MAX];  /* of it; owned */
    size_t fd_count;
};

/* Lets the server's side work for a moment. */
static inline void fake_turn(struct fake_shard *f) {
    struct err err = {0};
    for (int i = 0; i < 4; i++)
        unit_works(loop_once(f->loop, CLOCK_NS_PER_MS / 2, &err), err);
}

static inline void fake_listen(struct fake_shard *f) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = FAKE_SOCKET};
    f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(f->listener >= 0);
    unlink(FAKE_SOCKET);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(f->listener, 4), 0);
}

static inline void fake_start(struct fake_shard *f) {
    struct err err = {0};
    memset(f, 0, sizeof(*f));
    f->fd = -1;
    snprintf(f->dir, sizeof(f->dir), "/tmp/unit-shard-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(chdir(f->dir), 0);
    assert_int_equal(mkdir("run", 0700), 0);
    f->loop = loop_new(&err);
    assert_non_null(f->loop);
    fake_listen(f);
}

static inline void fake_forget_fds(struct fake_shard *f) {
    for (size_t i = 0; i < f->fd_count; i++)
        fd_close(&f->fds[i]);
    f->fd_count = 0;
}

static inline void fake_stop(struct fake_shard *f) {
    fake_forget_fds(f);
    fd_close(&f->fd);
    fd_close(&f->listener);
    loop_free(f->loop);
    unlink(FAKE_SOCKET);
    rmdir("run");
    assert_int_equal(chdir("/"), 0);
    rmdir(f->dir);
}

static inline void fake_accept(struct fake_shard *f) {
    for (int i = 0; i < 200 && f->fd < 0; i++) {
        fake_turn(f);
        f->fd = accept4(f->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    assert_true(f->fd >= 0);
}

/* OPEN and EXEC in one datagram are told one after the other; the descriptors are of the second. */
static inline void fake_split(struct fake_shard *f) {
    const struct wire_head *head = (const struct wire_head *)(const void *)f->packet;
    if (f->size > sizeof(struct wire_open) && head->type == WIRE_OPEN) {
        f->rest = f->size - sizeof(struct wire_open);
        f->rest_fds = f->fd_count;
        f->size = sizeof(struct wire_open);
        f->fd_count = 0;
    }
}

static inline int fake_rest(struct fake_shard *f) {
    if (f->rest == 0)
        return 0;
    memmove(f->packet, (const char *)f->packet + sizeof(struct wire_open), f->rest);
    f->size = f->rest;
    f->fd_count = f->rest_fds;
    f->rest = 0;
    return 1;
}

/* Is there no packet from the server? */
static inline int fake_quiet(struct fake_shard *f) {
    fake_turn(f);
    struct err err = {0};
    if (fake_rest(f))
        return 0;
    fake_forget_fds(f);
    ssize_t n = fd_recv(f->fd, f->packet, sizeof(f->packet), f->fds, &f->fd_count, NULL, &err);
    f->size = n > 0 ? (size_t)n : 0;
    fake_split(f);
    return n < 0;
}

/* The next packet, which must be of this type and well-formed. */
static inline const struct wire_head *fake_expect(struct fake_shard *f, enum wire_type type) {
    struct err err = {0};
    for (int i = 0; i < 100; i++) {
        if (fake_quiet(f))
            continue;
        const struct wire_head *head = (const struct wire_head *)(const void *)f->packet;
        unit_works(wire_check_request(f->packet, f->size, f->fd_count, &err), err);
        assert_int_equal(head->type, type);
        return head;
    }
    fail_msg("no packet of type %d came", type);
    return NULL;
}

static inline void fake_send(struct fake_shard *f, void *packet, size_t size, enum wire_type type,
                             uint64_t jail, uint32_t exec) {
    struct err err = {0};
    wire_head_init(packet, type, size, jail, exec);
    unit_works(fd_send(f->fd, packet, size, NULL, 0, &err), err);
    fake_turn(f);
}

static inline void fake_send_policy(struct fake_shard *f, const char *name) {
    struct {
        struct wire_policy head;
        char text[2];
    } p;
    memset(&p, 0, sizeof(p));
    snprintf(p.head.name, sizeof(p.head.name), "%s", name);
    memset(p.head.sha256, 7, sizeof(p.head.sha256));
    for (int i = 0; i < LIMIT_COUNT; i++) {
        p.head.preset.v[i] = limit_info((enum limit_id)i)->min + 1000;
        p.head.ceiling.v[i] = limit_info((enum limit_id)i)->min + 30000;
    }
    p.head.writable = WIRE_WRITABLE_ALL;
    p.head.max_steps = 8;
    p.head.text_size = 2;
    p.head.backend = BACKEND_NATIVE;
    p.head.backends = BACKEND_BIT(BACKEND_NATIVE);
    memcpy(p.text, "{}", 2);
    fake_send(f, &p, sizeof(struct wire_policy) + 2, WIRE_POLICY, 0, 0);
}

static inline void fake_send_welcome(struct fake_shard *f, uint32_t slots, uint32_t policies) {
    struct wire_welcome w;
    memset(&w, 0, sizeof(w));
    w.slots = slots;
    w.policies = policies;
    w.execs = 64;
    w.sandboxes = slots;
    w.backend = BACKEND_NATIVE;
    fake_send(f, &w, sizeof(w), WIRE_WELCOME, 0, 0);
}

static inline void fake_send_ready(struct fake_shard *f) {
    struct wire_ready r;
    memset(&r, 0, sizeof(r));
    fake_send(f, &r, sizeof(r), WIRE_READY, 0, 0);
}

/* The whole greeting: one policy, "default". */
static inline void fake_greet(struct fake_shard *f, uint32_t slots) {
    fake_accept(f);
    fake_expect(f, WIRE_HELLO);
    fake_send_welcome(f, slots, 1);
    fake_send_policy(f, "default");
    fake_send_ready(f);
}

static inline void fake_send_end(struct fake_shard *f, uint64_t jail, uint32_t exec,
                                 enum cause cause, int code) {
    struct wire_end end;
    memset(&end, 0, sizeof(end));
    end.cause = cause;
    end.exit_code = cause == CAUSE_EXIT ? code : -1;
    end.signal = cause == CAUSE_SIGNAL ? 9 : 0;
    end.usage.wall_ns = 3 * CLOCK_NS_PER_MS;
    fake_send(f, &end, sizeof(end), WIRE_END, jail, exec);
}

static inline void fake_send_closed(struct fake_shard *f, uint64_t jail) {
    struct wire_closed closed;
    memset(&closed, 0, sizeof(closed));
    closed.cpu_ns = 5000;
    fake_send(f, &closed, sizeof(closed), WIRE_CLOSED, jail, 0);
}

static inline void fake_send_failed(struct fake_shard *f, uint64_t jail) {
    struct wire_failed failed;
    memset(&failed, 0, sizeof(failed));
    failed.code = 28;
    snprintf(failed.stage, sizeof(failed.stage), "mounts");
    snprintf(failed.text, sizeof(failed.text), "no room");
    fake_send(f, &failed, sizeof(failed), WIRE_FAILED, jail, 0);
}

static inline void fake_send_opened(struct fake_shard *f, uint64_t jail) {
    struct wire_opened opened;
    memset(&opened, 0, sizeof(opened));
    fake_send(f, &opened, sizeof(opened), WIRE_OPENED, jail, 0);
}

/* The answer to the request that has just come. */
static inline void fake_send_done(struct fake_shard *f, const struct wire_head *request, int code) {
    struct wire_done done;
    memset(&done, 0, sizeof(done));
    uint64_t jail = request->jail;
    done.what = request->type;
    done.code = code;
    done.bytes = 4096;
    done.files = 3;
    done.added_bytes = 1024;
    if (request->type == WIRE_FREEZE)
        done.frozen = ((const struct wire_freeze *)(const void *)request)->frozen;
    else
        memcpy(done.key, ((const struct wire_key *)(const void *)request)->key, sizeof(done.key));
    fake_send(f, &done, sizeof(done), WIRE_DONE, jail, 0);
}

static inline void fake_send_kept(struct fake_shard *f, enum wire_type type, const char *key) {
    struct wire_kept kept;
    memset(&kept, 0, sizeof(kept));
    snprintf(kept.key, sizeof(kept.key), "%s", key);
    kept.bytes = 4096;
    fake_send(f, &kept, sizeof(kept), type, 0, 0);
}

/* A packet with descriptors, which stay the caller's. */
static inline void fake_send_fds(struct fake_shard *f, void *packet, size_t size,
                                 const struct wire_head *head, const int *fds, size_t nfds) {
    struct err err = {0};
    wire_head_init(packet, (enum wire_type)head->type, size, head->jail, head->exec);
    unit_works(fd_send(f->fd, packet, size, fds, nfds, &err), err);
    fake_turn(f);
}

static inline void fake_send_started(struct fake_shard *f, uint64_t jail, uint32_t exec, int fd) {
    struct wire_started started;
    memset(&started, 0, sizeof(started));
    const struct wire_head head = {.type = WIRE_STARTED, .jail = jail, .exec = exec};
    fake_send_fds(f, &started, sizeof(started), &head, &fd, 1);
}

static inline void fake_send_kept_exec(struct fake_shard *f, uint64_t jail, uint32_t exec,
                                       const int *fds, size_t nfds) {
    static const uint32_t masks[] = {
        0, WIRE_FD_KEEP_STDOUT, WIRE_FD_KEEP_STDOUT | WIRE_FD_KEEP_STDERR,
        WIRE_FD_KEEP_STDIN | WIRE_FD_KEEP_STDOUT | WIRE_FD_KEEP_STDERR, WIRE_FD_KEEP};
    struct wire_kept_exec kept;
    memset(&kept, 0, sizeof(kept));
    kept.fds = masks[nfds];
    const struct wire_head head = {.type = WIRE_KEPT_EXEC, .jail = jail, .exec = exec};
    fake_send_fds(f, &kept, sizeof(kept), &head, fds, nfds);
}
