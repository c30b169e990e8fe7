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
/* Bytes as a file in memory that can only be read. */
int packet_attach_memory(struct packet *p, enum wire_exec_fd what, const char *name,
                         const void *data, size_t len, struct err *err);
/* The spec, which is in p->spec: inside the packet, or attached when it is large. */
int packet_attach_spec(struct packet *p, struct err *err);
int packet_attach_files(struct packet *p, const struct request_file *files, size_t count,
                        struct err *err);

/* What link_exec() and sandbox_exec() take; valid as long as the packet. */
void packet_link(struct packet *p, struct link_exec *out);
