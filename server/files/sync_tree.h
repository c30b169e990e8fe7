/* What is below a directory of a sandbox, as `scan` or `upper` told it: hostile until it was
 * checked here. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "fileop.h"
#include "sync_text.h"

#define SYNC_TREE_MAX 500000u
#define SYNC_TREE_TEXT ((size_t)128 * 1024 * 1024)

struct sync_seen {
    const char *path; /* bundle_path_ok() holds */
    const char *target;
    uint64_t size, inode;
    int64_t ctime_ns;
    uint32_t path_len, target_len;
    uint32_t mode; /* 0…0777: set-id and sticky bits are nobody's business */
    uint8_t kind;  /* enum fileop_kind, WHITEOUT included */
    bool opaque;   /* upper: told whole */
    bool unread;   /* a directory whose contents could not be read */
    bool same;     /* not looked at: it is as the last sync left it */
};

struct sync_tree {
    struct sync_seen *items;
    size_t count, alloc;
    struct sync_text text;
};

void sync_tree_init(struct sync_tree *t);
void sync_tree_done(struct sync_tree *t); /* NULL allowed */
/* An ENTRY record. What is about the directory itself (path "") is left out. ERR_LIMIT: more than
 * is taken. */
int sync_tree_add(struct sync_tree *t, const struct fileop_record *rec, const char *path,
                  const char *target, struct err *err);
/* What is in this directory is not told: it could not be read. */
void sync_tree_unread(struct sync_tree *t, const char *path, size_t path_len);
/* All were added: puts them into the order of sync_path_compare(). ERR_PROTOCOL: no tree. */
int sync_tree_finish(struct sync_tree *t, struct err *err);
