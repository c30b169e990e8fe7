#include "packet.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bundle.h"

void packet_init(struct packet *p, enum wire_exec_kind kind) {
    memset(p, 0, sizeof(*p));
    p->exec.kind = kind;
    buf_init(&p->spec, WIRE_SPEC_MAX);
}

void packet_done(struct packet *p) {
    for (size_t i = 0; i < p->owned; i++)
        fd_close(&p->fds[i]);
    buf_done(&p->spec);
}

void packet_attach(struct packet *p, enum wire_exec_fd what, int fd) {
    p->exec.fds |= what;
    p->fds[p->fd_count++] = fd;
    p->owned = p->fd_count;
}

void packet_attach_kept(struct packet *p, enum wire_exec_fd what, int fd) {
    p->exec.fds |= what;
    p->fds[p->fd_count++] = fd;
}

/* A file in memory that can be read and nothing else, whoever opens it again. */
static int packet_memory(const char *name, const void *data, size_t len, struct err *err) {
    char path[64];
    fd_cleanup int fd = fd_memfd(name, data, len, true, err);
    if (fd < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int out = open(path, O_RDONLY | O_CLOEXEC);
    if (out < 0)
        return err_sys(err, "opening %s for reading", name);
    return out;
}

int packet_attach_spec(struct packet *p, struct err *err) {
    p->exec.spec_size = (uint32_t)p->spec.len;
    if (p->spec.len <= WIRE_SPEC_INLINE_MAX)
        return 0;
    int fd = packet_memory("spec", p->spec.data, p->spec.len, err);
    if (fd < 0)
        return -1;
    packet_attach(p, WIRE_FD_SPEC, fd);
    return 0;
}

/* What a request gives its command. */

/* The name of a file takes as long as so many bytes of contents. */
#define PACKET_FILE 128u

static int packet_input(const struct run_request *r, size_t index, struct err *err) {
    struct request_bytes input = request_input(r, index);
    return packet_memory("stdin", input.data, input.len, err);
}

static int packet_files(const struct run_request *r, struct err *err) {
    struct buf bundle;
    size_t max = sizeof(struct bundle_record);
    for (size_t i = 0; i < r->file_count; i++)
        max += sizeof(struct bundle_record) + BUNDLE_PATH_MAX + r->files[i].size;
    buf_init(&bundle, max);
    int rc = 0;
    for (size_t i = 0; i < r->file_count && rc == 0; i++) {
        const struct request_file *f = &r->files[i];
        rc = bundle_file(&bundle, f->mode, f->path, strlen(f->path), f->data, f->size, err);
    }
    if (rc == 0)
        rc = bundle_end(&bundle, err);
    if (rc == 0)
        rc = packet_memory("files", bundle.data, bundle.len, err);
    buf_done(&bundle);
    return rc;
}

void packet_parts_init(struct packet_parts *parts) {
    *parts = (struct packet_parts){.files = -1, .input = -1};
}

void packet_parts_done(struct packet_parts *parts) {
    fd_close(&parts->files);
    fd_close(&parts->input);
}

size_t packet_parts_weight(const struct run_request *r, size_t index, unsigned what) {
    size_t bytes = (what & PACKET_INPUT) != 0 ? request_input(r, index).len : 0;
    for (size_t i = 0; (what & PACKET_FILES) != 0 && i < r->file_count; i++)
        bytes += r->files[i].size + PACKET_FILE;
    return bytes;
}

void packet_parts_make(struct packet_parts *parts, const struct run_request *r, size_t index,
                       unsigned what) {
    if ((what & PACKET_FILES) != 0 && r->file_count > 0)
        parts->files = packet_files(r, NULL);
    if ((what & PACKET_INPUT) != 0 && request_input(r, index).data != NULL)
        parts->input = packet_input(r, index, NULL);
}

int packet_attach_input(struct packet *p, struct packet_parts *parts, const struct run_request *r,
                        size_t index, struct err *err) {
    if (request_input(r, index).data == NULL)
        return 0;
    int fd = parts != NULL ? fd_steal(&parts->input) : -1;
    if (fd < 0)
        fd = packet_input(r, index, err);
    if (fd < 0)
        return -1;
    packet_attach(p, WIRE_FD_STDIN, fd);
    return 0;
}

int packet_attach_files(struct packet *p, struct packet_parts *parts, const struct run_request *r,
                        struct err *err) {
    if (r->file_count == 0)
        return 0;
    int fd = parts != NULL ? fd_steal(&parts->files) : -1;
    if (fd < 0)
        fd = packet_files(r, err);
    if (fd < 0)
        return -1;
    packet_attach(p, WIRE_FD_BUNDLE, fd);
    return 0;
}

void packet_link(struct packet *p, struct link_exec *out) {
    bool inside = (p->exec.fds & WIRE_FD_SPEC) == 0;
    *out = (struct link_exec){.exec = &p->exec,
                              .spec = inside ? p->spec.data : NULL,
                              .fds = p->fds,
                              .fd_count = p->fd_count};
}
