/* One EXEC on its way to the runner: the struct, the spec, and the descriptors in the order of
 * their bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "fd.h"
#include "link.h"
#include "request.h"
#include "wire.h"

struct packet {
    struct wire_exec exec;
    struct buf spec;
    int fds[FD_PASS_MAX];
    size_t fd_count;
    size_t owned; /* the first so many are closed with the packet */
};

void packet_init(struct packet *p, enum wire_exec_kind kind);
void packet_done(struct packet *p);

/* Attaches a descriptor, which is closed with the packet. Call in the order of the bits. */
void packet_attach(struct packet *p, enum wire_exec_fd what, int fd);
/* One that stays the caller's (KEEP_…): after all others. */
void packet_attach_kept(struct packet *p, enum wire_exec_fd what, int fd);
/* The spec, which is in p->spec: inside the packet, or attached when it is large. */
int packet_attach_spec(struct packet *p, struct err *err);

/* What a request gives its command, as files in memory. Copying it there takes a millisecond for
 * every megabyte: what is more than PACKET_INLINE bytes is made beforehand, by a worker. */
#define PACKET_INLINE ((size_t)256 * 1024)
struct packet_parts {
    int files, input; /* -1 = there is none, or it is not made yet; owned */
};
enum packet_part { PACKET_FILES = 1, PACKET_INPUT = 2 /* the stdin of a step */ };
void packet_parts_init(struct packet_parts *parts);
void packet_parts_done(struct packet_parts *parts);
/* Bytes of these parts (a mask) for step `index`. */
size_t packet_parts_weight(const struct run_request *r, size_t index, unsigned what);
/* Pure; for any thread. What cannot be made is left, for packet_attach_… to say why. */
void packet_parts_make(struct packet_parts *parts, const struct run_request *r, size_t index,
                       unsigned what);
/* Takes what was made, or makes it here and now; nothing when the request has none. `parts` may be
 * NULL. */
int packet_attach_input(struct packet *p, struct packet_parts *parts, const struct run_request *r,
                        size_t index, struct err *err);
int packet_attach_files(struct packet *p, struct packet_parts *parts, const struct run_request *r,
                        struct err *err);

/* What link_exec() and sandbox_exec() take; valid as long as the packet. */
void packet_link(struct packet *p, struct link_exec *out);
