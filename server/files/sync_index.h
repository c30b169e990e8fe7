/* What is known of the files below a directory of a sandbox (the root): what was there when a sync
 * was last applied, and which contents had which file when they were last looked at.
 *
 * Contents are not looked at again as long as size, inode number and ctime are the same: programs
 * in the jail cannot set the last one. On kernels whose clock for it ticks too slowly to tell two
 * changes apart, what was changed just before it was looked at is not remembered (sync_index_fresh)
 * and is looked at once more. One thing cannot be seen: a program that goes on writing to a file
 * through a mapping that it wrote to before, until it maps, truncates or writes it anew.
 *
 * That holds through restores, and for a fork, which takes the index with it: whatever is written
 * after that has a later time than all that was remembered.
 *
 * Kept as a file in the sandbox's directory, which is only as large as it has to be. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "fileop.h"
#include "sync_request.h"
#include "sync_text.h"

struct sync_stamp {
    uint64_t size, inode;
    int64_t ctime_ns;
};

struct sync_row {
    const char *path, *target;
    uint32_t path_len, target_len;
    /* As it was when the sync was applied; FILEOP_NONE: it was not there. */
    uint32_t mode;
    uint8_t kind;
    bool has_sha256; /* FILE: its contents are known */
    bool known;      /* the file with this stamp has these contents: */
    bool loose;      /* it may be in the live layer alone, where it leaves no trace when it goes */
    uint64_t size;
    struct sync_stamp stamp; /* of a directory: only its inode number counts */
    unsigned char sha256[SYNC_SHA256_SIZE];
    unsigned char now_sha256[SYNC_SHA256_SIZE];
};

struct sync_index {
    struct sync_row *rows; /* in the order of sync_path_compare() */
    size_t count, alloc;
    struct sync_text text;
    bool applied; /* there was a sync: rows have a kind */
};

void sync_index_init(struct sync_index *x);
void sync_index_done(struct sync_index *x); /* NULL allowed */
/* Appends a copy; paths must come in order. */
int sync_index_add(struct sync_index *x, const struct sync_row *row, struct err *err);

bool sync_stamp_equal(const struct sync_stamp *a, const struct sync_stamp *b);
/* Files whose ctime is not before this cannot be remembered, when they were looked at from
 * `real_ns` (since the epoch) on. */
int64_t sync_index_fresh(int64_t real_ns, unsigned major, unsigned minor);
/* The same for this kernel and this moment. */
int64_t sync_index_fresh_now(void);

/* As bytes, and back. ERR_PROTOCOL: these are not what was written for this root. */
int sync_index_write(const struct sync_index *x, const char *root, struct buf *out,
                     struct err *err);
int sync_index_read(struct sync_index *x, const char *root, const char *bytes, size_t len,
                    struct err *err);

/* Name of its file. */
#define SYNC_INDEX_NAME_SIZE 32
void sync_index_name(const char *root, char name[SYNC_INDEX_NAME_SIZE]);
bool sync_index_is_name(const char *name);
/* From and to the sandbox's directory `dir`. No file there: an empty index. One that cannot be
 * understood is as if there were none. */
int sync_index_load(struct sync_index *x, int dir, const char *root, struct err *err);
int sync_index_save(const struct sync_index *x, int dir, const char *root, struct err *err);
