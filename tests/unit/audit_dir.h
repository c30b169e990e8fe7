/* A directory that stands for STATE/server, and a key, for the tests of the audit log. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit_log.h"
#include "fd.h"
#include "receipt_key.h"
#include "unit.h"

struct audit_dir {
    char path[64];
    int fd;
    struct receipt_key key;
};

static inline int audit_dir_remove(const char *path, const struct stat *st, int type,
                                   struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void audit_dir_init(struct audit_dir *d) {
    struct err err;
    snprintf(d->path, sizeof(d->path), "/tmp/unit-audit-XXXXXX");
    assert_non_null(mkdtemp(d->path));
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(d->fd >= 0);
    unit_works(receipt_key_open(d->fd, &d->key, NULL, &err), err);
}

static inline void audit_dir_done(struct audit_dir *d) {
    close(d->fd);
    nftw(d->path, audit_dir_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Adds and writes a record {"type":"test","n":N}. */
static inline void audit_dir_add(struct audit_log *l, unsigned n) {
    struct buf fields;
    struct err err;
    buf_init(&fields, 4096);
    assert_int_equal(buf_printf(&fields, NULL, "\"type\":\"test\",\"n\":%u", n), 0);
    unit_works(audit_log_add(l, &fields, &err), err);
    unit_works(audit_log_write(l, &err), err);
    buf_done(&fields);
}

static inline void audit_dir_head(struct audit_dir *d, const struct audit_log *l) {
    char text[AUDIT_LOG_HEAD_SIZE];
    struct err err;
    audit_log_head_text(l->chain, &l->written, &d->key, text);
    unit_works(audit_log_head_write(d->fd, l->chain, text, &err), err);
}

static inline void audit_dir_open(struct audit_dir *d, struct audit_log *l,
                                  struct audit_log_found *found) {
    struct err err;
    unit_works(audit_log_open(l, d->fd, AUDIT_LOG_SERVER, found, &err), err);
}

/* Path of a segment, relative to the directory. */
static inline const char *audit_dir_segment(char path[64], unsigned first) {
    snprintf(path, 64, "audit/log-%012u.jsonl", first);
    return path;
}

/* The bytes of a segment; free() them. */
static inline char *audit_dir_read(struct audit_dir *d, unsigned first, size_t *len) {
    char path[64];
    struct buf b;
    struct err err;
    buf_init(&b, AUDIT_LOG_SEGMENT_MAX);
    unit_works(fd_read_file(d->fd, audit_dir_segment(path, first), &b, &err), err);
    *len = b.len;
    return buf_take(&b);
}

static inline void audit_dir_write(struct audit_dir *d, unsigned first, const char *data,
                                   size_t len) {
    char path[64];
    int fd = openat(d->fd, audit_dir_segment(path, first), O_WRONLY | O_TRUNC | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}
