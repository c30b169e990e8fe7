/* What is in the journal: listed, checked, and kept within its bounds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "undo_internal.h"

static int undo_keep_entry(const struct undo_record *r,
                           bool (*each)(void *, const struct undo_entry *), void *arg, bool *more,
                           struct err *err) {
    struct undo_change *changes = calloc(r->count + 1, sizeof(*changes));
    struct undo_entry entry = {.id = r->id,
                               .label = r->label != NULL ? r->label : "",
                               .by = r->by != NULL ? r->by : "",
                               .session = r->session != NULL ? r->session : "",
                               .rules = r->rules != NULL ? r->rules : "",
                               .when_ms = r->when_ms,
                               .undone = r->undone,
                               .changes = changes,
                               .count = r->count};

    if (changes == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for the journal");
    for (size_t i = 0; i < r->count; i++)
        changes[i] = (struct undo_change){.path = r->items[i].path,
                                          .after = r->items[i].after.s,
                                          .before = r->items[i].before.s,
                                          .fd = -1};
    *more = each(arg, &entry);
    free(changes);
    return 0;
}

int undo_list(struct undo *u, bool (*each)(void *arg, const struct undo_entry *entry), void *arg,
              struct err *err) {
    struct undo_records all;
    bool more = true;
    int rc = 0;

    if (undo_records_load(u, &all, err) < 0)
        return -1;
    for (size_t i = all.count; i-- > 0 && more && rc == 0;)
        rc = undo_keep_entry(all.list[i], each, arg, &more, err);
    undo_records_done(&all);
    return rc;
}

/* Hashes what is stored under the name. */
static bool undo_keep_is_sound(struct undo *u, const struct undo_state *s) {
    uint64_t offset;
    fd_cleanup int fd = undo_blob_open(u, s->sha256, &offset, NULL);
    fd_cleanup int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    return fd >= 0 && null >= 0 && undo_blob_copy(fd, offset, null, s, NULL) == 0;
}

int undo_verify(struct undo *u, bool (*bad)(void *arg, const char *id, const char *why), void *arg,
                struct err *err) {
    struct undo_records all;
    bool more = true;

    if (undo_records_load(u, &all, err) < 0)
        return -1;
    for (size_t i = 0; i < all.count && more; i++)
        for (size_t k = 0; k < all.list[i]->count && more; k++) {
            const struct undo_item *item = &all.list[i]->items[k];
            char why[UNDO_PATH_MAX + 80];

            if (item->before.s.type != UNDO_FILE || item->mode_only ||
                undo_keep_is_sound(u, &item->before.s))
                continue;
            snprintf(why, sizeof(why), "what was in %s is missing or damaged", item->path);
            more = bad(arg, all.list[i]->id, why);
        }
    undo_records_done(&all);
    return 0;
}

/* ---- bounds ---- */

struct undo_keep_pack {
    ino_t ino;
    uint64_t bytes; /* of all contents that are in it: they go when none of them is used any more */
    bool used;
};

struct undo_keep_blob {
    char name[UNDO_NAME_SIZE];
    ino_t ino;
    uint64_t bytes;
    struct undo_keep_pack *pack; /* NULL = it has a file of its own */
    bool used;
};

struct undo_keep {
    struct undo *u;
    struct undo_keep_blob *blobs; /* in order of their names */
    size_t count;
    struct undo_keep_pack *packs; /* in order of their inodes */
    size_t pack_count;
};

static int undo_keep_filter(const struct dirent *d) {
    size_t n = UNDO_HEX_SIZE - 1;

    return strspn(d->d_name, "0123456789abcdef") == n &&
           (d->d_name[n] == '\0' || strcmp(d->d_name + n, ".p") == 0);
}

static bool undo_keep_is_packed(const struct undo_keep_blob *b) {
    return b->name[UNDO_HEX_SIZE - 1] != '\0';
}

static int undo_keep_compare(const void *a, const void *b) {
    return strcmp(a, ((const struct undo_keep_blob *)b)->name);
}

static int undo_keep_compare_blobs(const void *a, const void *b) {
    return strcmp(((const struct undo_keep_blob *)a)->name,
                  ((const struct undo_keep_blob *)b)->name);
}

static int undo_keep_compare_packs(const void *a, const void *b) {
    ino_t x = ((const struct undo_keep_pack *)a)->ino, y = ((const struct undo_keep_pack *)b)->ino;

    return x < y ? -1 : x > y;
}

static void undo_keep_name(struct undo_keep *k, const char *name) {
    struct stat st;
    struct undo_keep_blob *b = &k->blobs[k->count];

    if (fstatat(k->u->blobs, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    *b = (struct undo_keep_blob){.ino = st.st_ino, .bytes = (uint64_t)st.st_size};
    snprintf(b->name, sizeof(b->name), "%.*s", UNDO_NAME_SIZE - 1, name);
    k->count++;
}

static struct undo_keep_pack *undo_keep_pack_of(struct undo_keep *k, ino_t ino) {
    const struct undo_keep_pack key = {.ino = ino};

    return bsearch(&key, k->packs, k->pack_count, sizeof(key), undo_keep_compare_packs);
}

/* Each pack once, although it has many names. */
static void undo_keep_packs(struct undo_keep *k) {
    size_t names = 0;

    for (size_t i = 0; i < k->count; i++)
        if (undo_keep_is_packed(&k->blobs[i]))
            k->packs[names++].ino = k->blobs[i].ino;
    qsort(k->packs, names, sizeof(*k->packs), undo_keep_compare_packs);
    for (size_t i = 0; i < names; i++)
        if (i == 0 || k->packs[i].ino != k->packs[k->pack_count - 1].ino)
            k->packs[k->pack_count++] = k->packs[i];
    for (size_t i = 0; i < k->count; i++) {
        struct undo_keep_blob *b = &k->blobs[i];

        if (!undo_keep_is_packed(b))
            continue;
        b->pack = undo_keep_pack_of(k, b->ino);
        if (b->pack->bytes == 0)
            b->pack->bytes = undo_pack_bytes(k->u, b->name);
    }
}

static int undo_keep_scan(struct undo_keep *k, struct err *err) {
    struct dirent **names = NULL;
    int n = scandirat(k->u->blobs, ".", &names, undo_keep_filter, NULL);

    if (n < 0)
        return err_sys(err, "cannot list the journal");
    k->blobs = calloc((size_t)n + 1, sizeof(*k->blobs));
    k->packs = calloc((size_t)n + 1, sizeof(*k->packs));
    for (int i = 0; i < n; i++) {
        if (k->blobs != NULL)
            undo_keep_name(k, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    if (k->blobs == NULL || k->packs == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for the journal");
    qsort(k->blobs, k->count, sizeof(*k->blobs), undo_keep_compare_blobs);
    undo_keep_packs(k);
    return 0;
}

/* The bytes that are used because of this name and were not before. */
static uint64_t undo_keep_use_name(struct undo_keep *k, const char *name) {
    struct undo_keep_blob *b =
        bsearch(name, k->blobs, k->count, sizeof(*k->blobs), undo_keep_compare);

    if (b == NULL || b->used)
        return 0;
    b->used = true;
    if (b->pack == NULL)
        return b->bytes;
    if (b->pack->used)
        return 0;
    b->pack->used = true;
    return b->pack->bytes;
}

/* Marks what the entry refers to; the bytes that are used since then. */
static uint64_t undo_keep_use(struct undo_keep *k, const struct undo_record *r) {
    uint64_t bytes = 0;

    for (size_t i = 0; i < r->count; i++)
        for (int side = 0; side < 2; side++) {
            const struct undo_state *s = side == 0 ? &r->items[i].before.s : &r->items[i].after.s;
            char name[UNDO_NAME_SIZE];

            if (s->type != UNDO_FILE)
                continue;
            sodium_bin2hex(name, UNDO_HEX_SIZE, s->sha256, UNDO_HASH_SIZE);
            bytes += undo_keep_use_name(k, name);
            memcpy(name + UNDO_HEX_SIZE - 1, ".p", 3);
            bytes += undo_keep_use_name(k, name);
        }
    return bytes;
}

static void undo_keep_forget(struct undo_keep *k) {
    for (size_t i = 0; i < k->count; i++)
        k->blobs[i].used = false;
    for (size_t i = 0; i < k->pack_count; i++)
        k->packs[i].used = false;
}

/* Removes what nobody refers to. */
static uint64_t undo_keep_sweep(struct undo_keep *k) {
    uint64_t freed = 0;

    for (size_t i = 0; i < k->count; i++) {
        const struct undo_keep_blob *b = &k->blobs[i];

        if (!b->used && unlinkat(k->u->blobs, b->name, 0) == 0 && b->pack == NULL)
            freed += b->bytes;
    }
    for (size_t i = 0; i < k->pack_count; i++)
        if (!k->packs[i].used)
            freed += k->packs[i].bytes;
    return freed;
}

/* From the newest entry back, as many as fit; the first that does not fit, and all before it, go.
 */
static size_t undo_keep_from(struct undo_keep *k, const struct undo_records *all) {
    uint64_t now = clock_real_ms(), bytes = 0;

    for (size_t i = all->count; i-- > 0;) {
        const struct undo_record *r = all->list[i];

        bytes += undo_keep_use(k, r);
        /* The newest one stays whatever it costs: it is the one that is wanted. */
        if (i + 1 < all->count && (bytes > k->u->bytes_max || r->when_ms + k->u->age_max_ms < now))
            return i + 1;
    }
    return 0;
}

int undo_collect(struct undo *u, uint64_t *freed_bytes, struct err *err) {
    struct undo_keep k = {.u = u};
    struct undo_records all = {.count = 0};
    size_t from;
    uint64_t freed = 0;

    if (undo_records_load(u, &all, err) < 0)
        return -1;
    if (undo_keep_scan(&k, err) < 0) {
        undo_records_done(&all);
        free(k.blobs);
        free(k.packs);
        return -1;
    }
    from = undo_keep_from(&k, &all);
    for (size_t i = 0; i < from; i++)
        unlinkat(u->entries, all.list[i]->id, 0);
    if (from > 0)
        fsync(u->entries);
    undo_keep_forget(&k);
    for (size_t i = from; i < all.count; i++)
        undo_keep_use(&k, all.list[i]);
    freed = undo_keep_sweep(&k);
    free(k.blobs);
    free(k.packs);
    undo_records_done(&all);
    if (freed_bytes != NULL)
        *freed_bytes = freed;
    return 0;
}
