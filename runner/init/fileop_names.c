#include "fileop_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fileop_path.h"

#define FILEOP_NAMES_RUN 16 /* entries that are sorted by insertion */

/* What getdents64(2) writes. */
struct fileop_names_dirent {
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

const char *fileop_names_at(const struct fileop_names *n, size_t i) {
    return n->text + n->list[i].at;
}

unsigned char fileop_names_type(const struct fileop_names *n, size_t i) {
    return (unsigned char)n->list[i].type;
}

size_t fileop_names_bytes(const struct fileop_names *n) {
    return n->text_room + n->room * sizeof *n->list;
}

void fileop_names_done(struct fileop_names *n) {
    free(n->text);
    free(n->list);
    *n = (struct fileop_names){0};
}

static uint64_t fileop_names_key(const char *name) {
    uint64_t key = 0;
    for (int i = 0; i < 8; i++) {
        key = key << 8 | (unsigned char)*name;
        name += *name != '\0';
    }
    return key;
}

static bool fileop_names_less(const struct fileop_names *n, const struct fileop_names_entry *a,
                              const struct fileop_names_entry *b) {
    if (a->key != b->key) {
        return a->key < b->key;
    }
    return strcmp(n->text + a->at, n->text + b->at) < 0;
}

static void fileop_names_insertion(struct fileop_names *n, size_t from, size_t to) {
    for (size_t i = from + 1; i < to; i++) {
        struct fileop_names_entry e = n->list[i];
        size_t j = i;
        for (; j > from && fileop_names_less(n, &e, &n->list[j - 1]); j--) {
            n->list[j] = n->list[j - 1];
        }
        n->list[j] = e;
    }
}

static void fileop_names_merge(const struct fileop_names *n, struct fileop_names_entry *to,
                               size_t from, size_t middle, size_t end) {
    size_t a = from;
    size_t b = middle;
    for (size_t i = from; i < end; i++) {
        bool left = b >= end || (a < middle && !fileop_names_less(n, &n->list[b], &n->list[a]));
        to[i] = left ? n->list[a++] : n->list[b++];
    }
}

/* Merge sort: its worst case is its usual one, whatever names somebody chose. */
static int fileop_names_sort(struct fileop_names *n) {
    if (n->count < 2) {
        return 0;
    }
    struct fileop_names_entry *spare = reallocarray(NULL, n->room, sizeof *spare);
    if (spare == NULL) {
        return -1;
    }
    for (size_t i = 0; i < n->count; i += FILEOP_NAMES_RUN) {
        size_t end = i + FILEOP_NAMES_RUN;
        fileop_names_insertion(n, i, end < n->count ? end : n->count);
    }
    for (size_t width = FILEOP_NAMES_RUN; width < n->count; width *= 2) {
        for (size_t i = 0; i < n->count; i += 2 * width) {
            size_t middle = i + width < n->count ? i + width : n->count;
            size_t end = i + 2 * width < n->count ? i + 2 * width : n->count;
            fileop_names_merge(n, spare, i, middle, end);
        }
        struct fileop_names_entry *swap = n->list;
        n->list = spare;
        spare = swap;
    }
    free(spare);
    return 0;
}

static int fileop_names_grow(struct fileop_names *n, size_t len, size_t bytes_max) {
    if (n->text_len + len > n->text_room) {
        size_t room = n->text_room ? n->text_room * 2 : 4096;
        char *text = room <= UINT32_MAX ? realloc(n->text, room) : NULL;
        if (text == NULL) {
            errno = ENOMEM;
            return -1;
        }
        n->text = text;
        n->text_room = room;
    }
    if (n->count == n->room) {
        size_t room = n->room ? n->room * 2 : 128;
        struct fileop_names_entry *list = reallocarray(n->list, room, sizeof *list);
        if (list == NULL) {
            return -1;
        }
        n->list = list;
        n->room = room;
    }
    if (fileop_names_bytes(n) > bytes_max) {
        errno = ENOMEM;
        return -1;
    }
    return 0;
}

static int fileop_names_add(struct fileop_names *n, const struct fileop_names_dirent *d,
                            const struct fileop_names_wish *wish) {
    size_t len = strlen(d->name) + 1;
    if (fileop_names_grow(n, len, wish->bytes_max) != 0) {
        return -1;
    }
    memcpy(n->text + n->text_len, d->name, len);
    n->list[n->count++] = (struct fileop_names_entry){
        .key = fileop_names_key(d->name), .at = (uint32_t)n->text_len, .type = d->type};
    n->text_len += len;
    return 0;
}

static bool fileop_names_wanted(const char *name, const struct fileop_names_wish *wish) {
    if (name[0] == '.') {
        if (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')) {
            return false;
        }
        if (!wish->hidden && fileop_path_hidden(name)) {
            return false;
        }
    }
    return wish->first == NULL || strcmp(name, wish->first) >= 0;
}

/* Only the first `most` are wanted: the others go whenever there are twice as many. */
static int fileop_names_cut(struct fileop_names *n, size_t most) {
    if (fileop_names_sort(n) != 0) {
        return -1;
    }
    if (n->count >= most) {
        n->count = most;
        n->full = true;
        n->last = n->list[most - 1].at;
    }
    return 0;
}

static int fileop_names_batch(struct fileop_names *n, const struct fileop_names_wish *wish,
                              const char *buf, size_t size) {
    for (size_t at = 0; at < size;) {
        const struct fileop_names_dirent *d = (const void *)(buf + at);
        at += d->reclen;
        if (strlen(d->name) >= FILEOP_PATH_NAME || !fileop_names_wanted(d->name, wish)) {
            continue;
        }
        if (n->full && strcmp(d->name, n->text + n->last) > 0) {
            continue;
        }
        if (fileop_names_add(n, d, wish) != 0) {
            return -1;
        }
        if (wish->most > 0 && n->count >= wish->most * 2 + 1024 &&
            fileop_names_cut(n, wish->most) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Gives back what was only needed while there were more to come: a deep tree has many directories
 * with one name, and all on the way down are remembered at once. A failure costs nothing but that.
 */
static void fileop_names_fit(struct fileop_names *n) {
    char *text = n->text_len * 2 < n->text_room ? realloc(n->text, n->text_len) : NULL;
    if (text != NULL) {
        n->text = text;
        n->text_room = n->text_len;
    }
    struct fileop_names_entry *list =
        n->count * 2 < n->room ? reallocarray(n->list, n->count, sizeof *list) : NULL;
    if (list != NULL) {
        n->list = list;
        n->room = n->count;
    }
}

int fileop_names_read(struct fileop_names *out, int fd, const struct fileop_names_wish *wish,
                      char *buf, size_t size) {
    for (;;) {
        long n = syscall(SYS_getdents64, fd, buf, size);
        if (n < 0 && errno != ENOENT) {
            return -1;
        }
        if (n <= 0) { /* ENOENT: it was removed, and is as good as empty */
            break;
        }
        if (fileop_names_batch(out, wish, buf, (size_t)n) != 0) {
            return -1;
        }
    }
    int rc = 0;
    if (wish->sorted) {
        rc = wish->most > 0 ? fileop_names_cut(out, wish->most) : fileop_names_sort(out);
    }
    if (out->count > 0) {
        fileop_names_fit(out);
    }
    return rc;
}

int64_t fileop_names_count(int fd) {
    _Alignas(8) char buf[8192];
    const struct fileop_names_wish all = {.hidden = true};
    int64_t count = 0;
    for (;;) {
        long n = syscall(SYS_getdents64, fd, buf, sizeof buf);
        if (n <= 0) {
            return n < 0 ? -1 : count;
        }
        for (size_t at = 0; at < (size_t)n;) {
            const struct fileop_names_dirent *d = (const void *)(buf + at);
            at += d->reclen;
            count += d->type != DT_CHR && fileop_names_wanted(d->name, &all);
        }
    }
}
