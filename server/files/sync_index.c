#include "sync_index.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bundle.h"
#include "fd.h"
#include "sync_tree.h"

#define SYNC_INDEX_MAGIC 0x31584950u /* "PIX1" */
#define SYNC_INDEX_PREFIX "sync-"
#define SYNC_INDEX_FIRST 256u
#define SYNC_INDEX_BYTES ((size_t)512 * 1024 * 1024)
/* A tick of the slowest clock, twice. */
#define SYNC_INDEX_TICK_NS 20000000

#define SYNC_INDEX_SAME 1u /* now_sha256 is sha256, and is left out */
#define SYNC_INDEX_LOOSE 2u

struct sync_index_head {
    uint32_t magic, applied;
    uint64_t count;
    unsigned char root[SYNC_SHA256_SIZE];
};

/* Then path and target. */
struct sync_index_item {
    uint64_t size;
    struct sync_stamp stamp;
    uint32_t path_len, target_len, mode;
    uint8_t kind, has_sha256, known, flags;
};

void sync_index_init(struct sync_index *x) {
    memset(x, 0, sizeof(*x));
    sync_text_init(&x->text, 2 * SYNC_TREE_TEXT);
}

void sync_index_done(struct sync_index *x) {
    if (x == NULL)
        return;
    free(x->rows);
    sync_text_done(&x->text);
    x->rows = NULL;
    x->count = x->alloc = 0;
}

static int sync_index_room(struct sync_index *x, struct err *err) {
    if (x->count < x->alloc)
        return 0;
    size_t more = x->alloc == 0 ? SYNC_INDEX_FIRST : x->alloc * 2;
    struct sync_row *grown = realloc(x->rows, more * sizeof(*grown));
    if (grown == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "remembering a tree: out of memory");
    x->rows = grown;
    x->alloc = more;
    return 0;
}

int sync_index_add(struct sync_index *x, const struct sync_row *row, struct err *err) {
    struct sync_row copy = *row;
    if (sync_index_room(x, err) < 0)
        return -1;
    copy.path = sync_text_add(&x->text, row->path, row->path_len, err);
    copy.target =
        copy.path != NULL ? sync_text_add(&x->text, row->target, row->target_len, err) : NULL;
    if (copy.target == NULL)
        return -1;
    x->rows[x->count++] = copy;
    return 0;
}

bool sync_stamp_equal(const struct sync_stamp *a, const struct sync_stamp *b) {
    return a->size == b->size && a->inode == b->inode && a->ctime_ns == b->ctime_ns;
}

int64_t sync_index_fresh(int64_t real_ns, unsigned major, unsigned minor) {
    /* Since 6.13, a file that was looked at gets a time of its own with the next change. */
    if (major > 6 || (major == 6 && minor >= 13))
        return INT64_MAX;
    return real_ns - SYNC_INDEX_TICK_NS;
}

int64_t sync_index_fresh_now(void) {
    unsigned major = 0, minor = 0;
    struct utsname name;
    struct timespec now;
    if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2)
        major = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    return sync_index_fresh((int64_t)now.tv_sec * 1000000000 + now.tv_nsec, major, minor);
}

static void sync_index_root(const char *root, unsigned char hash[SYNC_SHA256_SIZE]) {
    crypto_hash_sha256(hash, (const unsigned char *)root, strlen(root));
}

static int sync_index_put(const struct sync_row *row, struct buf *out, struct err *err) {
    bool same = row->has_sha256 && row->known &&
                memcmp(row->sha256, row->now_sha256, SYNC_SHA256_SIZE) == 0;
    struct sync_index_item item = {
        .size = row->size,
        .stamp = row->stamp,
        .path_len = row->path_len,
        .target_len = row->target_len,
        .mode = row->mode,
        .kind = row->kind,
        .has_sha256 = row->has_sha256,
        .known = row->known,
        .flags = (uint8_t)((same ? SYNC_INDEX_SAME : 0) | (row->loose ? SYNC_INDEX_LOOSE : 0))};
    if (buf_append(out, &item, sizeof(item), err) < 0 ||
        buf_append(out, row->path, row->path_len, err) < 0 ||
        buf_append(out, row->target, row->target_len, err) < 0)
        return -1;
    if (row->has_sha256 && buf_append(out, row->sha256, SYNC_SHA256_SIZE, err) < 0)
        return -1;
    return row->known && !same ? buf_append(out, row->now_sha256, SYNC_SHA256_SIZE, err) : 0;
}

int sync_index_write(const struct sync_index *x, const char *root, struct buf *out,
                     struct err *err) {
    struct sync_index_head head = {
        .magic = SYNC_INDEX_MAGIC, .applied = x->applied, .count = x->count};
    sync_index_root(root, head.root);
    if (buf_append(out, &head, sizeof(head), err) < 0)
        return -1;
    for (size_t i = 0; i < x->count; i++)
        if (sync_index_put(&x->rows[i], out, err) < 0)
            return -1;
    return 0;
}

static int sync_index_bad(struct err *err) {
    return err_plain(err, ERR_PROTOCOL, 0, "an index of a tree is damaged");
}

/* Takes `len` bytes off the front. */
static const char *sync_index_cut(const char **bytes, size_t *len, size_t want) {
    const char *at = *bytes;
    if (want > *len)
        return NULL;
    *bytes += want;
    *len -= want;
    return at;
}

static int sync_index_take(struct sync_index *x, const char **bytes, size_t *len, struct err *err) {
    struct sync_index_item item;
    const char *from = sync_index_cut(bytes, len, sizeof(item)), *hash;
    if (from == NULL)
        return sync_index_bad(err);
    memcpy(&item, from, sizeof(item));
    struct sync_row row = {.path_len = item.path_len,
                           .target_len = item.target_len,
                           .mode = item.mode,
                           .kind = item.kind,
                           .has_sha256 = item.has_sha256 != 0,
                           .known = item.known != 0,
                           .loose = (item.flags & SYNC_INDEX_LOOSE) != 0,
                           .size = item.size,
                           .stamp = item.stamp};
    row.path = sync_index_cut(bytes, len, item.path_len);
    if (row.path == NULL || !bundle_path_ok(row.path, row.path_len) || item.kind >= FILEOP_KINDS)
        return sync_index_bad(err);
    row.target = sync_index_cut(bytes, len, item.target_len);
    if (row.target == NULL || item.target_len > FILEOP_TARGET_MAX)
        return sync_index_bad(err);
    if (row.has_sha256) {
        if ((hash = sync_index_cut(bytes, len, SYNC_SHA256_SIZE)) == NULL)
            return sync_index_bad(err);
        memcpy(row.sha256, hash, SYNC_SHA256_SIZE);
        memcpy(row.now_sha256, hash, SYNC_SHA256_SIZE);
    }
    if (row.known && (item.flags & SYNC_INDEX_SAME) == 0) {
        if ((hash = sync_index_cut(bytes, len, SYNC_SHA256_SIZE)) == NULL)
            return sync_index_bad(err);
        memcpy(row.now_sha256, hash, SYNC_SHA256_SIZE);
    }
    const struct sync_row *last = x->count > 0 ? &x->rows[x->count - 1] : NULL;
    if (last != NULL && sync_path_compare(last->path, last->path_len, row.path, row.path_len) >= 0)
        return sync_index_bad(err);
    return sync_index_add(x, &row, err);
}

int sync_index_read(struct sync_index *x, const char *root, const char *bytes, size_t len,
                    struct err *err) {
    struct sync_index_head head;
    unsigned char hash[SYNC_SHA256_SIZE];
    const char *from = sync_index_cut(&bytes, &len, sizeof(head));
    sync_index_root(root, hash);
    if (from == NULL)
        return sync_index_bad(err);
    memcpy(&head, from, sizeof(head));
    if (head.magic != SYNC_INDEX_MAGIC || memcmp(head.root, hash, sizeof(hash)) != 0 ||
        head.count > len / sizeof(struct sync_index_item))
        return sync_index_bad(err);
    x->applied = head.applied != 0;
    for (uint64_t i = 0; i < head.count; i++)
        if (sync_index_take(x, &bytes, &len, err) < 0)
            return -1;
    return len == 0 ? 0 : sync_index_bad(err);
}

/* Files. */

void sync_index_name(const char *root, char name[SYNC_INDEX_NAME_SIZE]) {
    unsigned char hash[SYNC_SHA256_SIZE];
    char hex[2 * SYNC_SHA256_SIZE + 1];
    sync_index_root(root, hash);
    sync_sha256_text(hash, hex);
    snprintf(name, SYNC_INDEX_NAME_SIZE, SYNC_INDEX_PREFIX "%.16s", hex);
}

bool sync_index_is_name(const char *name) {
    static const char prefix[] = SYNC_INDEX_PREFIX;
    size_t n = sizeof(prefix) - 1;
    return strncmp(name, prefix, n) == 0 && strlen(name) == n + 16 &&
           strspn(name + n, "0123456789abcdef") == 16;
}

int sync_index_load(struct sync_index *x, int dir, const char *root, struct err *err) {
    char name[SYNC_INDEX_NAME_SIZE];
    struct buf bytes;
    struct err bad;
    err_clear(&bad);
    sync_index_name(root, name);
    buf_init(&bytes, SYNC_INDEX_BYTES);
    int rc = fd_read_file(dir, name, &bytes, &bad);
    if (rc == 0)
        rc = sync_index_read(x, root, bytes.data != NULL ? bytes.data : "", bytes.len, &bad);
    buf_done(&bytes);
    if (rc == 0)
        return 0;
    sync_index_done(x);
    sync_index_init(x);
    if (bad.kind == ERR_SYSTEM && bad.code != ENOENT) {
        if (err != NULL)
            *err = bad;
        return -1;
    }
    return 0;
}

int sync_index_save(const struct sync_index *x, int dir, const char *root, struct err *err) {
    char name[SYNC_INDEX_NAME_SIZE], temporary[SYNC_INDEX_NAME_SIZE + 8];
    struct buf bytes;
    buf_init(&bytes, SYNC_INDEX_BYTES);
    sync_index_name(root, name);
    snprintf(temporary, sizeof(temporary), "%s.new", name);
    int rc = sync_index_write(x, root, &bytes, err);
    fd_cleanup int fd = -1;
    if (rc == 0) {
        fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            rc = err_sys(err, "making %s", temporary);
    }
    if (rc == 0)
        rc = fd_write_all(fd, bytes.data, bytes.len, err);
    /* Not synced: a sandbox does not outlive the machine. */
    if (rc == 0 && renameat(dir, temporary, dir, name) < 0)
        rc = err_sys(err, "naming %s", name);
    buf_done(&bytes);
    return rc;
}
