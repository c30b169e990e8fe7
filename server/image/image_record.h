/* What the reader of an archive says about it, over a pipe.
 *
 * Archives are hostile, and so is whatever a decompressor or a tar parser does after meeting one.
 * They are read by a process that has given up every right; root only sees these records, checks
 * each field, and writes the files. */
#pragma once

#include <stdint.h>

#define IMAGE_RECORD_MAGIC 0x31524950u /* "PIR1" */
#define IMAGE_PATH_MAX 4095u
#define IMAGE_NAME_MAX 255u
#define IMAGE_CHUNK_MAX 65536u

enum image_record_type {
    IMAGE_RECORD_DIR = 1,
    IMAGE_RECORD_FILE,     /* then chunks, the last of which has size 0 */
    IMAGE_RECORD_SYMLINK,  /* link: its text */
    IMAGE_RECORD_HARDLINK, /* link: the path of an earlier entry */
    IMAGE_RECORD_DEVICE,
    IMAGE_RECORD_FIFO,
    IMAGE_RECORD_SOCKET,
    IMAGE_RECORD_OTHER,
    IMAGE_RECORD_WHITEOUT, /* path: that of the mark, ".wh." included; nothing follows */
    IMAGE_RECORD_ERROR,    /* path: a sentence; nothing follows */
    IMAGE_RECORD_END,      /* nothing follows */
};

struct image_record {
    uint32_t magic;
    uint32_t type;
    uint32_t mode;     /* permission bits */
    uint32_t path_len; /* bytes that follow, without NUL; at most IMAGE_PATH_MAX */
    uint32_t link_len; /* then that many */
    uint32_t reserved;
    uint64_t size; /* FILE: length of the whole, holes included */
    int64_t mtime; /* seconds since the epoch */
};

/* How layers say what is gone from those below. */
#define IMAGE_WHITEOUT ".wh."
#define IMAGE_WHITEOUT_OPAQUE ".wh..wh..opq"
#define IMAGE_WHITEOUT_META ".wh..wh." /* of a file system that made them; means nothing */

/* In place of a chunk's size: the rest of the file cannot be read; an ERROR record follows. */
#define IMAGE_CHUNK_BROKEN UINT64_MAX

struct image_chunk {
    uint64_t offset;
    uint64_t size; /* bytes that follow, at most IMAGE_CHUNK_MAX; 0 = the file is over */
};
