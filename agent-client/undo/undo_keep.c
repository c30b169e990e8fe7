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
    fd_cleanup int fd = undo_blob_open(u, s->sha256, NULL);
    fd_cleanup int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    return fd >= 0 && null >= 0 && undo_blob_copy(fd, 0, null, s, NULL) == 0;
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

struct undo_keep_blob {
    char name[UNDO_HEX_SIZE];
    uint64_t bytes;
    bool used;
};

struct undo_keep {
    struct undo *u;
    struct undo_keep_blob *blobs; /* in order of their names */
    size_t count;
    uint64_t bytes;
};

static int undo_keep_filter(const struct dirent *d) {
    return strlen(d->d_name) == UNDO_HEX_SIZE - 1 &&
           strspn(d->d_name, "0123456789abcdef") == UNDO_HEX_SIZE - 1;
}

static int undo_keep_scan(struct undo_keep *k, struct err *err) {
    struct dirent **names = NULL;
    int n = scandirat(k->u->blobs, ".", &names, undo_keep_filter, alphasort);

    if (n < 0)
        return err_sys(err, "cannot list the journal");
    k->blobs = calloc((size_t)n + 1, sizeof(*k->blobs));
    for (int i = 0; i < n; i++) {
        struct stat st;

        if (k->blobs != NULL && fstatat(k->u->blobs, names[i]->d_name, &st, 0) == 0) {
            struct undo_keep_blob *b = &k->blobs[k->count++];

            memcpy(b->name, names[i]->d_name, sizeof(b->name));
            b->bytes = (uint64_t)st.st_size;
            k->bytes += b->bytes;
        }
        free(names[i]);
    }
    free(names);
    return k->blobs != NULL ? 0 : err_set(err, ERR_LIMIT, 0, "no memory for the journal");
}

static int undo_keep_compare(const void *a, const void *b) {
    return strcmp(a, ((const struct undo_keep_blob *)b)->name);
}

/* Marks what the entry refers to; the bytes that are used since then. */
static uint64_t undo_keep_use(struct undo_keep *k, const struct undo_record *r) {
    uint64_t bytes = 0;

    for (size_t i = 0; i < r->count; i++)
        for (int side = 0; side < 2; side++) {
            const struct undo_state *s = side == 0 ? &r->items[i].before.s : &r->items[i].after.s;
            struct undo_keep_blob *b;
            char name[UNDO_HEX_SIZE];

            if (s->type != UNDO_FILE)
                continue;
            sodium_bin2hex(name, sizeof(name), s->sha256, UNDO_HASH_SIZE);
            b = bsearch(name, k->blobs, k->count, sizeof(*k->blobs), undo_keep_compare);
            if (b != NULL && !b->used) {
                b->used = true;
                bytes += b->bytes;
            }
        }
    return bytes;
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
        return -1;
    }
    from = undo_keep_from(&k, &all);
    for (size_t i = 0; i < from; i++)
        unlinkat(u->entries, all.list[i]->id, 0);
    if (from > 0)
        fsync(u->entries);
    for (size_t b = 0; b < k.count; b++)
        k.blobs[b].used = false;
    for (size_t i = from; i < all.count; i++)
        undo_keep_use(&k, all.list[i]);
    for (size_t b = 0; b < k.count; b++)
        if (!k.blobs[b].used && unlinkat(u->blobs, k.blobs[b].name, 0) == 0)
            freed += k.blobs[b].bytes;
    free(k.blobs);
    undo_records_done(&all);
    if (freed_bytes != NULL)
        *freed_bytes = freed;
    return 0;
}
