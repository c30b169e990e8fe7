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

int packet_attach_memory(struct packet *p, enum wire_exec_fd what, const char *name,
                         const void *data, size_t len, struct err *err) {
    int fd = packet_memory(name, data, len, err);
    if (fd < 0)
        return -1;
    packet_attach(p, what, fd);
    return 0;
}

int packet_attach_spec(struct packet *p, struct err *err) {
    p->exec.spec_size = (uint32_t)p->spec.len;
    if (p->spec.len <= WIRE_SPEC_INLINE_MAX)
        return 0;
    return packet_attach_memory(p, WIRE_FD_SPEC, "spec", p->spec.data, p->spec.len, err);
}

int packet_attach_files(struct packet *p, const struct request_file *files, size_t count,
                        struct err *err) {
    struct buf bundle;
    size_t max = sizeof(struct bundle_record);
    for (size_t i = 0; i < count; i++)
        max += sizeof(struct bundle_record) + BUNDLE_PATH_MAX + files[i].size;
    buf_init(&bundle, max);
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct request_file *f = &files[i];
        rc = bundle_file(&bundle, f->mode, f->path, strlen(f->path), f->data, f->size, err);
    }
    if (rc == 0)
        rc = bundle_end(&bundle, err);
    if (rc == 0)
        rc = packet_attach_memory(p, WIRE_FD_BUNDLE, "files", bundle.data, bundle.len, err);
    buf_done(&bundle);
    return rc;
}

void packet_link(struct packet *p, struct link_exec *out) {
    bool inside = (p->exec.fds & WIRE_FD_SPEC) == 0;
    *out = (struct link_exec){.exec = &p->exec,
                              .spec = inside ? p->spec.data : NULL,
                              .fds = p->fds,
                              .fd_count = p->fd_count};
}
