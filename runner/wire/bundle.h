/* A bundle: files as one stream of bytes. Up: the server writes it, the exec process unpacks it
 * inside the jail. Down: the collector inside the jail writes it, the server reads it as hostile
 * bytes. Records: struct bundle_record, `path_len` bytes of path (relative, no NUL), `size` bytes
 * of content (FILE only). The last record is END; a stream without it was cut short. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define BUNDLE_MAGIC 0x31424650u /* "PFB1" */
#define BUNDLE_PATH_MAX 4095u

enum bundle_type {
    BUNDLE_FILE = 1,
    BUNDLE_ERROR = 2, /* a pattern or path that gave nothing; `code` says why */
    BUNDLE_END = 3,
};

enum bundle_code {
    BUNDLE_OK = 0,
    BUNDLE_NOT_FOUND,   /* nothing there, or the pattern matched nothing */
    BUNDLE_NOT_REGULAR, /* a directory, link, FIFO, socket or device */
    BUNDLE_TOO_LARGE,   /* over what is left of collect_bytes */
    BUNDLE_TOO_MANY,    /* over collect_files */
    BUNDLE_DENIED,      /* not readable for the jail's user */
    BUNDLE_CHANGED,     /* it shrank while it was read */
    BUNDLE_IO,
    BUNDLE_CODES
};

struct bundle_record {
    uint32_t magic;
    uint32_t type;
    uint32_t mode; /* permission bits only: 0…0777 */
    uint32_t code; /* ERROR: enum bundle_code */
    uint64_t size; /* FILE: bytes of content */
    uint32_t path_len;
    uint32_t reserved;
};

/* "not_found", "not_regular", … ; NULL out of range. */
const char *bundle_code_name(uint32_t code);

/* Append one record: a file with its content, a path or pattern that gave nothing, the end. On
 * failure (ERR_INVALID: out of bounds, ERR_LIMIT: out->max) `out` is unchanged. */
int bundle_file(struct buf *out, uint32_t mode, const char *path, size_t path_len, const void *data,
                size_t size, struct err *err);
int bundle_error(struct buf *out, enum bundle_code code, const char *path, size_t path_len,
                 struct err *err);
int bundle_end(struct buf *out, struct err *err);

/* Reads a bundle that is whole in memory. Start with *pos = 0. Returns 1 with *rec, *path and *data
 * (pointing into the bytes; not NUL-terminated) filled, 0 at the END record, -1 ERR_PROTOCOL when
 * malformed or cut short. */
int bundle_next(const char *bytes, size_t len, size_t *pos, struct bundle_record *rec,
                const char **path, const char **data, struct err *err);

/* 0 when a record's fields are within bounds (magic, type, mode, code, path_len, reserved); used by
 * readers that stream. */
int bundle_check(const struct bundle_record *rec, struct err *err);

/* Is this a safe relative path: no leading '/', no empty, "." or ".." component, no NUL, length
 * 1…BUNDLE_PATH_MAX, components of at most 255 bytes? */
int bundle_path_ok(const char *path, size_t len);
