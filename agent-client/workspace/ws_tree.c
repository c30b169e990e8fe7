#include "ws_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "digest.h"
#include "fd.h"
#include "ws_links.h"

#define WS_TREE_DEPTH_MAX 200u
#define WS_TREE_BLOCK ((size_t)256 * 1024)
/* Time stamps have the grain of the kernel's tick; a change within it cannot be seen in them. */
#define WS_TREE_RACY_NS 20000000u

struct ws_block {
    struct ws_block *next;
    size_t used, size;
    char text[];
};

struct ws_walk {
    const struct ws_tree_options *options;
    struct ws_tree *tree;
    struct ws_links named; /* files that would be sent, and have other names … */
    size_t *named_at;      /* … and their entries; owned */
    char path[WS_TREE_PATH_MAX];
};

/* Texts. */

static const char *ws_tree_text(struct ws_tree *t, const char *text) {
    size_t len = strlen(text) + 1;
    if (t->blocks == NULL || t->blocks->size - t->blocks->used < len) {
        size_t size = len > WS_TREE_BLOCK ? len : WS_TREE_BLOCK;
        struct ws_block *b = malloc(sizeof(*b) + size);
        if (b == NULL)
            return NULL;
        *b = (struct ws_block){.next = t->blocks, .size = size};
        t->blocks = b;
    }
    char *to = t->blocks->text + t->blocks->used;
    memcpy(to, text, len);
    t->blocks->used += len;
    return to;
}

struct ws_entry *ws_tree_add(struct ws_tree *t, const char *path, const char *target,
                             struct err *err) {
    if (t->count == WS_TREE_MAX) {
        err_set(err, ERR_LIMIT, 0,
                "the workspace has more than %u files; leave some out in .pinfoldignore",
                WS_TREE_MAX);
        return NULL;
    }
    if (t->count == t->alloc) {
        size_t alloc = t->alloc == 0 ? 1024 : t->alloc * 2;
        struct ws_entry *grown = reallocarray(t->entries, alloc, sizeof(*grown));
        if (grown == NULL) {
            err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory");
            return NULL;
        }
        t->entries = grown;
        t->alloc = alloc;
    }
    struct ws_entry e = {.path = ws_tree_text(t, path),
                         .target = target != NULL ? ws_tree_text(t, target) : NULL};
    if (e.path == NULL || (target != NULL && e.target == NULL)) {
        err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory");
        return NULL;
    }
    t->entries[t->count] = e;
    return &t->entries[t->count++];
}

static int ws_tree_order(const void *a, const void *b) {
    return strcmp(((const struct ws_entry *)a)->path, ((const struct ws_entry *)b)->path);
}

void ws_tree_sort(struct ws_tree *t) {
    size_t i = 1;
    while (i < t->count && ws_tree_order(&t->entries[i - 1], &t->entries[i]) < 0)
        i++;
    /* What was written down sorted still is. */
    if (i < t->count)
        qsort(t->entries, t->count, sizeof(*t->entries), ws_tree_order);
}

const struct ws_entry *ws_tree_find(const struct ws_tree *t, const char *path) {
    struct ws_entry key = {.path = path};
    if (t == NULL || t->count == 0)
        return NULL;
    return bsearch(&key, t->entries, t->count, sizeof(key), ws_tree_order);
}

void ws_tree_done(struct ws_tree *t) {
    if (t == NULL)
        return;
    while (t->blocks != NULL) {
        struct ws_block *b = t->blocks;
        t->blocks = b->next;
        free(b);
    }
    free(t->entries);
    ws_ignore_done(&t->ignore);
    *t = (struct ws_tree){0};
}

/* Contents. */

/* Beneath the root, no link anywhere: somebody may change the tree while it is read. */
int ws_tree_open(int root, const char *path, struct err *err) {
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    struct stat st;
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd < 0)
        return err_sys(err, "opening %s", path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return err_set(err, ERR_STATE, 0, "%s is not a regular file any more", path);
}

static int ws_tree_hash(int root, struct ws_entry *e, struct err *err) {
    fd_cleanup int fd = ws_tree_open(root, e->path, err);
    if (fd < 0)
        return -1;
    /* It grew or shrank while it was read: what was hashed is what counts. */
    return digest_file(fd, 0, UINT64_MAX, -1, e->sha256, &e->size, err) < 0
               ? err_wrap(err, "reading %s", e->path)
               : 0;
}

static uint64_t ws_tree_ns(struct timespec t) {
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool ws_tree_known(const struct ws_walk *w, const struct ws_entry *e,
                          const struct ws_entry *was) {
    return was != NULL && was->type == WS_FILE && !was->withheld && was->size == e->size &&
           was->mtime_ns == e->mtime_ns && was->ctime_ns == e->ctime_ns && was->inode == e->inode &&
           e->ctime_ns + WS_TREE_RACY_NS < w->options->before->taken_ns;
}

/* The walk. */

static int ws_tree_named(struct ws_walk *w, const struct ws_entry *e, const struct stat *st,
                         struct err *err) {
    if (ws_links_add(&w->named, st, err) < 0)
        return -1;
    size_t *at = reallocarray(w->named_at, w->named.alloc, sizeof(*at));
    if (at == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory");
    at[w->named.count - 1] = (size_t)(e - w->tree->entries);
    w->named_at = at;
    return 0;
}

/* It has more names than those that are here. */
static bool ws_tree_leads_out(const struct ws_links *all, const struct ws_links_id *id) {
    return ws_links_names(all, id) < (size_t)id->names;
}

/* Before anything is sorted. */
static int ws_tree_links(struct ws_walk *w, struct err *err) {
    struct ws_links all = {0}, denied = {0};
    if (w->named.count == 0 || w->options->may_send == NULL)
        return 0;
    int rc = ws_links_find(w->options, &all, &denied, err);
    size_t outside = 0;
    bool whole = true;
    for (size_t i = 0; rc == 0 && i < w->named.count; i++)
        outside += ws_tree_leads_out(&all, &w->named.ids[i]);
    if (rc == 0 && outside > 0)
        rc = ws_links_elsewhere(w->options, &denied, &whole, err);
    for (size_t i = 0; rc == 0 && i < w->named.count; i++) {
        struct ws_entry *e = &w->tree->entries[w->named_at[i]];
        bool out = ws_tree_leads_out(&all, &w->named.ids[i]);
        if (ws_links_has(&denied, &w->named.ids[i]) || (out && !whole)) {
            e->withheld = e->linked = true;
            memset(e->sha256, 0, sizeof(e->sha256));
            w->tree->withheld++;
        } else if (out) {
            w->tree->outside_first = w->tree->outside++ == 0 ? e->path : w->tree->outside_first;
        }
    }
    ws_links_done(&all);
    ws_links_done(&denied);
    return rc;
}

static int ws_tree_file(struct ws_walk *w, struct ws_entry *e, const struct stat *st,
                        const struct ws_entry *was, struct err *err) {
    e->type = WS_FILE;
    e->size = (uint64_t)st->st_size;
    e->mtime_ns = ws_tree_ns(st->st_mtim);
    e->ctime_ns = ws_tree_ns(st->st_ctim);
    e->inode = (uint64_t)st->st_ino;
    if (e->withheld)
        return 0;
    w->tree->bytes += e->size;
    if (w->options->bytes_max != 0 && w->tree->bytes > w->options->bytes_max)
        return err_set(err, ERR_LIMIT, 0,
                       "with %.200s (%" PRIu64
                       " MiB) the files of the workspace have more than the "
                       "%" PRIu64 " MiB that the sandbox can hold; leave some out in "
                       ".pinfoldignore",
                       e->path, e->size >> 20, w->options->bytes_max >> 20);
    if (st->st_nlink > 1 && ws_tree_named(w, e, st, err) < 0)
        return -1;
    if (ws_tree_known(w, e, was)) {
        memcpy(e->sha256, was->sha256, sizeof(e->sha256));
        return 0;
    }
    w->tree->hashed++;
    return ws_tree_hash(w->options->root, e, err);
}

static int ws_tree_ignore_file(struct ws_walk *w, int dir, const char *name, struct err *err) {
    struct buf text;
    int rc = 0;
    struct err why;
    buf_init(&text, WS_IGNORE_FILE_MAX);
    err_clear(&why);
    if (fd_read_file(dir, name, &text, &why) == 0)
        rc = ws_ignore_add(&w->tree->ignore, w->path, text.data != NULL ? text.data : "", text.len,
                           err);
    /* One that cannot be read might have left a secret out. */
    else if (why.code != ENOENT)
        rc = err_set(err, why.kind, why.code, "%s%s%s: %s", w->path, w->path[0] != '\0' ? "/" : "",
                     name, why.text);
    buf_done(&text);
    return rc;
}

static int ws_tree_dir(struct ws_walk *w, int fd, unsigned depth, struct err *err);

static int ws_tree_enter(struct ws_walk *w, int dir, const char *name, unsigned depth,
                         struct err *err) {
    if (depth == WS_TREE_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, 0, "%s: directories are nested more than %u deep", w->path,
                       WS_TREE_DEPTH_MAX);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, "opening %s", w->path);
    return ws_tree_dir(w, fd, depth + 1, err);
}

/* One entry, whose path is complete. */
static int ws_tree_entry(struct ws_walk *w, int dir, const char *name, unsigned depth,
                         struct err *err) {
    char target[WS_TREE_PATH_MAX];
    struct stat st;
    const char *text = NULL;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "looking at %s", w->path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return 0; /* a socket, a FIFO, a device: nothing to send */
    if (ws_ignore_match(&w->tree->ignore, w->path, S_ISDIR(st.st_mode))) {
        w->tree->left_out++;
        return 0;
    }
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
        if (n < 0)
            return errno == ENOENT ? 0 : err_sys(err, "reading the link %s", w->path);
        target[n] = '\0';
        text = target;
    }
    const struct ws_entry *was = ws_tree_find(w->options->before, w->path);
    struct ws_entry *e = ws_tree_add(w->tree, w->path, text, err);
    if (e == NULL)
        return -1;
    e->mode = st.st_mode & 0777;
    /* Asked for directories, too: what is below one that is denied is not even listed. */
    e->withheld =
        w->options->same_policy && was != NULL
            ? was->withheld && !was->linked
            : w->options->may_send != NULL && !w->options->may_send(w->options->arg, w->path);
    w->tree->withheld += e->withheld;
    e->type = S_ISDIR(st.st_mode) ? WS_DIR : WS_LINK;
    if (S_ISREG(st.st_mode))
        return ws_tree_file(w, e, &st, was, err);
    return S_ISDIR(st.st_mode) && !e->withheld ? ws_tree_enter(w, dir, name, depth, err) : 0;
}

/* Takes over `fd`. */
static int ws_tree_dir(struct ws_walk *w, int fd, unsigned depth, struct err *err) {
    size_t len = strlen(w->path);
    DIR *d = fdopendir(fd);
    int rc;
    if (d == NULL) {
        close(fd);
        return err_sys(err, "listing %s", w->path);
    }
    rc = ws_tree_ignore_file(w, dirfd(d), ".gitignore", err);
    if (rc == 0)
        rc = ws_tree_ignore_file(w, dirfd(d), ".pinfoldignore", err);
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        size_t at = len == 0 ? 0 : len + 1, n = strlen(e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (at + n >= sizeof(w->path)) {
            rc = err_set(err, ERR_LIMIT, 0, "a path below %s is too long", w->path);
            break;
        }
        if (len > 0)
            w->path[len] = '/';
        memcpy(w->path + at, e->d_name, n + 1);
        rc = ws_tree_entry(w, dirfd(d), e->d_name, depth, err);
        w->path[len] = '\0';
    }
    closedir(d);
    return rc;
}

int ws_tree_take(const struct ws_tree_options *options, struct ws_tree *out, struct err *err) {
    struct ws_tree tree = {0};
    struct ws_walk *w = calloc(1, sizeof(*w));
    struct timespec now;
    if (w == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory");
    w->options = options;
    w->tree = &tree;
    clock_gettime(CLOCK_REALTIME, &now);
    tree.taken_ns = ws_tree_ns(now);
    int rc = ws_ignore_init(&tree.ignore, err);
    int fd = rc == 0 ? openat(options->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (rc == 0)
        rc = fd < 0 ? err_sys(err, "opening the workspace") : ws_tree_dir(w, fd, 0, err);
    if (rc == 0)
        rc = ws_tree_links(w, err);
    ws_links_done(&w->named);
    free(w->named_at);
    free(w);
    if (rc < 0) {
        ws_tree_done(&tree);
        return -1;
    }
    ws_tree_sort(&tree);
    *out = tree;
    return 0;
}

static bool ws_tree_equal(const struct ws_entry *a, const struct ws_entry *b) {
    return a->type == b->type && a->mode == b->mode && a->withheld == b->withheld &&
           a->linked == b->linked && a->size == b->size && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns && a->inode == b->inode && strcmp(a->path, b->path) == 0 &&
           (a->type != WS_LINK || strcmp(a->target, b->target) == 0) &&
           memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0;
}

bool ws_tree_unchanged(struct ws_tree *t, const struct ws_tree *before) {
    /* What was read again might not have to be, the next time. */
    if (t->hashed > 0 || t->count != before->count)
        return false;
    for (size_t i = 0; i < t->count; i++)
        if (!ws_tree_equal(&t->entries[i], &before->entries[i]))
            return false;
    t->digested = before->digested;
    memcpy(t->digest, before->digest, sizeof(t->digest));
    return true;
}

void ws_tree_digest(const struct ws_tree *t, unsigned char digest[WS_TREE_HASH]) {
    crypto_hash_sha256_state h;
    if (t->digested) {
        memcpy(digest, t->digest, WS_TREE_HASH);
        return;
    }
    crypto_hash_sha256_init(&h);
    for (size_t i = 0; i < t->count; i++) {
        const struct ws_entry *e = &t->entries[i];
        char head[64];
        if (e->withheld)
            continue;
        int n = snprintf(head, sizeof(head), "%u %o ", (unsigned)e->type,
                         e->type == WS_LINK ? 0u : (unsigned)e->mode);
        crypto_hash_sha256_update(&h, (const unsigned char *)head, (unsigned long long)n);
        crypto_hash_sha256_update(&h, (const unsigned char *)e->path, strlen(e->path) + 1);
        if (e->type == WS_FILE)
            crypto_hash_sha256_update(&h, e->sha256, sizeof(e->sha256));
        else if (e->type == WS_LINK)
            crypto_hash_sha256_update(&h, (const unsigned char *)e->target, strlen(e->target) + 1);
    }
    crypto_hash_sha256_final(&h, digest);
}
