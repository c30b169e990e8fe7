/* The picture of a workspace in a file: a head, then one record after the other, a hash over all
 * (BLAKE2b: faster than SHA-256, and nobody else needs it) at the end. It is only a cache: whatever
 * is odd about it means that there is none. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"
#include "ws_tree.h"

#define WS_CACHE_MAGIC 0x3245524557464650u /* "PFWEERE2", little endian */
#define WS_CACHE_MAX ((size_t)256 * 1024 * 1024)

struct ws_cache_head {
    uint64_t magic, count, taken_ns;
    unsigned char policy[WS_TREE_HASH], digest[WS_TREE_HASH];
};

struct ws_cache_record {
    uint64_t size, mtime_ns, ctime_ns, inode;
    uint32_t mode;
    uint16_t path_len, target_len;
    uint8_t type, withheld;
    unsigned char sha256[WS_TREE_HASH];
    /* the path, the target */
};

static int ws_cache_entry(struct ws_tree *t, const char **at, const char *end, struct err *err) {
    struct ws_cache_record r;
    char path[WS_TREE_PATH_MAX], target[WS_TREE_PATH_MAX];
    if ((size_t)(end - *at) < sizeof(r))
        return -1;
    memcpy(&r, *at, sizeof(r));
    *at += sizeof(r);
    if (r.path_len >= sizeof(path) || r.target_len >= sizeof(target) ||
        (size_t)(end - *at) < (size_t)r.path_len + r.target_len)
        return -1;
    memcpy(path, *at, r.path_len);
    path[r.path_len] = '\0';
    memcpy(target, *at + r.path_len, r.target_len);
    target[r.target_len] = '\0';
    *at += (size_t)r.path_len + r.target_len;
    struct ws_entry *e = ws_tree_add(t, path, r.type == WS_LINK ? target : NULL, err);
    if (e == NULL)
        return -1;
    e->size = r.size;
    e->mtime_ns = r.mtime_ns;
    e->ctime_ns = r.ctime_ns;
    e->inode = r.inode;
    e->mode = r.mode;
    e->type = r.type;
    e->withheld = r.withheld != 0;
    e->linked = r.withheld > 1;
    memcpy(e->sha256, r.sha256, sizeof(e->sha256));
    return 0;
}

static int ws_cache_parse(const struct buf *b, struct ws_tree *out,
                          unsigned char policy[WS_TREE_HASH], struct err *err) {
    struct ws_cache_head head;
    struct ws_tree t = {0};
    unsigned char sum[WS_TREE_HASH];
    int rc = 0;
    if (b->len < sizeof(head) + sizeof(sum))
        return -1;
    const char *at = b->data, *end = b->data + b->len - sizeof(sum);
    if (crypto_generichash(sum, sizeof(sum), (const unsigned char *)at,
                           (unsigned long long)(end - at), NULL, 0) != 0)
        return -1;
    memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    if (memcmp(sum, end, sizeof(sum)) != 0 || head.magic != WS_CACHE_MAGIC ||
        head.count > WS_TREE_MAX)
        return -1;
    for (uint64_t i = 0; rc == 0 && i < head.count; i++)
        rc = ws_cache_entry(&t, &at, end, err);
    if (rc < 0 || at != end) {
        ws_tree_done(&t);
        return -1;
    }
    t.taken_ns = head.taken_ns;
    t.digested = true;
    memcpy(t.digest, head.digest, sizeof(t.digest));
    ws_tree_sort(&t);
    memcpy(policy, head.policy, WS_TREE_HASH);
    *out = t;
    return 0;
}

int ws_cache_load(int dir, const char *name, struct ws_tree *out,
                  unsigned char policy[WS_TREE_HASH], struct err *err) {
    struct buf b;
    buf_init(&b, WS_CACHE_MAX);
    int rc = fd_read_file(dir, name, &b, err);
    if (rc == 0 && ws_cache_parse(&b, out, policy, NULL) < 0)
        rc = err_set(err, ERR_INVALID, 0, "the cache of the workspace is not understood");
    buf_done(&b);
    return rc;
}

int ws_cache_save(int dir, const char *name, const struct ws_tree *t,
                  const unsigned char policy[WS_TREE_HASH], struct err *err) {
    struct ws_cache_head head = {
        .magic = WS_CACHE_MAGIC, .count = t->count, .taken_ns = t->taken_ns};
    unsigned char sum[WS_TREE_HASH];
    struct buf b;
    memcpy(head.policy, policy, sizeof(head.policy));
    ws_tree_digest(t, head.digest);
    buf_init(&b, WS_CACHE_MAX);
    int rc = buf_append(&b, &head, sizeof(head), err);
    for (size_t i = 0; rc == 0 && i < t->count; i++) {
        const struct ws_entry *e = &t->entries[i];
        size_t path = strlen(e->path), target = e->target != NULL ? strlen(e->target) : 0;
        struct ws_cache_record r;
        memset(&r, 0, sizeof(r)); /* the padding is written, too */
        r.size = e->size;
        r.mtime_ns = e->mtime_ns;
        r.ctime_ns = e->ctime_ns;
        r.inode = e->inode;
        r.mode = e->mode;
        r.path_len = (uint16_t)path;
        r.target_len = (uint16_t)target;
        r.type = e->type;
        r.withheld = (uint8_t)(e->withheld + e->linked);
        memcpy(r.sha256, e->sha256, sizeof(r.sha256));
        rc = buf_append(&b, &r, sizeof(r), err);
        if (rc == 0)
            rc = buf_append(&b, e->path, path, err);
        if (rc == 0 && target > 0)
            rc = buf_append(&b, e->target, target, err);
    }
    if (rc == 0) {
        crypto_generichash(sum, sizeof(sum), (const unsigned char *)b.data, b.len, NULL, 0);
        rc = buf_append(&b, sum, sizeof(sum), err);
    }
    if (rc == 0)
        rc = fd_write_atomic(dir, name, b.data, b.len, 0600, err);
    buf_done(&b);
    return rc;
}
