/* A picture of a workspace: what there is that may be sent, with hashes.
 *
 * Only regular files, directories and symbolic links; a link is its text and is never followed.
 * Files whose size, times and inode are as in the cache are not read again; one that changed in the
 * moment before the cache was written is (its times cannot tell). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "ws_ignore.h"

#define WS_TREE_MAX 200000u /* entries: what the server takes in one sync */
#define WS_TREE_HASH 32
#define WS_TREE_PATH_MAX 4096

enum ws_type { WS_FILE = 1, WS_DIR, WS_LINK };

struct ws_entry {
    const char *path;   /* relative; owned by the tree */
    const char *target; /* links; NULL else */
    uint64_t size, mtime_ns, ctime_ns, inode;
    uint32_t mode;                      /* 0…0777 */
    uint8_t type;                       /* enum ws_type */
    bool withheld;                      /* a rule denies reading it: it is not sent */
    bool linked;                        /* … by another name that it has */
    unsigned char sha256[WS_TREE_HASH]; /* files that are not withheld */
};

struct ws_block;

struct ws_tree {
    struct ws_entry *entries; /* by strcmp of their paths */
    size_t count, alloc;
    size_t withheld, left_out; /* left_out: ignored entries that were seen (not what is below) */
    size_t hashed;             /* files that were read */
    size_t outside;            /* files that are sent and have names outside of the workspace … */
    const char *outside_first; /* … the first of them; owned */
    uint64_t bytes;            /* of the files that would be sent */
    uint64_t taken_ns;         /* when the picture was begun; CLOCK_REALTIME */
    bool digested;             /* ws_tree_digest() is known: */
    unsigned char digest[WS_TREE_HASH];
    struct ws_ignore ignore; /* all rules of all directories */
    struct ws_block *blocks; /* texts */
};

struct ws_tree_options {
    int root; /* O_DIRECTORY of the workspace; borrowed */
    /* May this path be sent? NULL = everything. */
    bool (*may_send)(void *arg, const char *path);
    void *arg;
    /* Files and directories elsewhere whose contents may not be sent by any other name, either.
     * Only looked into when a file here has a name that is not here. */
    const char *const *elsewhere;
    size_t elsewhere_count;
    uint64_t bytes_max; /* of all files that would be sent; 0 = as many as there are */
    /* The picture before, or NULL; and what the answers of may_send depend on: when it is another
     * than then, it is asked again. */
    const struct ws_tree *before;
    bool same_policy;
};

/* 0: the caller owns *out. -1: something could not be read, or there is too much: nothing is sent
 * then. */
int ws_tree_take(const struct ws_tree_options *options, struct ws_tree *out, struct err *err);
void ws_tree_done(struct ws_tree *t); /* NULL and zeroed allowed */
const struct ws_entry *ws_tree_find(const struct ws_tree *t, const char *path);
/* Is this what `before` shows, as far as the next look at the workspace could tell? Then what was
 * written down of `before` is as good, and what was computed of it is taken over. */
bool ws_tree_unchanged(struct ws_tree *t, const struct ws_tree *before);
/* SHA-256 over all that would be sent: type, mode, path, contents. */
void ws_tree_digest(const struct ws_tree *t, unsigned char digest[WS_TREE_HASH]);
/* Opens a file of the tree for reading: never through a link. -1: it is gone or something else. */
int ws_tree_open(int root, const char *path, struct err *err);

/* ws_cache.c: the picture in a file, for the next time. */
/* -1: there is none, or it is not understood: an empty tree is as good. */
int ws_cache_load(int dir, const char *name, struct ws_tree *out,
                  unsigned char policy[WS_TREE_HASH], struct err *err);
int ws_cache_save(int dir, const char *name, const struct ws_tree *t,
                  const unsigned char policy[WS_TREE_HASH], struct err *err);

/* For ws_cache.c. */
struct ws_entry *ws_tree_add(struct ws_tree *t, const char *path, const char *target,
                             struct err *err);
void ws_tree_sort(struct ws_tree *t);
