#include "tar_read.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "str.h"

#define TAR_READ_BLOCK ((size_t)64 * 1024)
#define TAR_READ_NAME_MAX 255

struct tar_read {
    int in, out;
    uint64_t bytes_left, entries_left;
    struct archive *archive;
    struct tar_read_result *result;
    char block[TAR_READ_BLOCK];
    char path[FILEOP_PATH_MAX + 1];
    char target[FILEOP_TARGET_MAX + 1];
};

static const char tar_read_zeros[TAR_READ_BLOCK];

/* Results. All return -1. */

static int tar_read_fail(struct tar_read *t, enum tar_read_code code, const char *entry,
                         const char *why) {
    struct tar_read_result *r = t->result;
    if (r->code != TAR_READ_OK)
        return -1;
    r->code = code;
    str_escape(r->entry, sizeof(r->entry), entry, strlen(entry));
    str_escape(r->why, sizeof(r->why), why, strlen(why));
    return -1;
}

static int tar_read_memory(struct tar_read *t) {
    return tar_read_fail(t, TAR_READ_MEMORY, "", "the server is out of memory");
}

static int tar_read_damaged(struct tar_read *t) {
    if (archive_errno(t->archive) == ENOMEM)
        return tar_read_memory(t);
    const char *why = archive_error_string(t->archive);
    return tar_read_fail(t, TAR_READ_DAMAGED, "", why != NULL ? why : "it cannot be read");
}

/* Writing. */

static int tar_read_put(struct tar_read *t, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t n = writev(t->out, parts, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tar_read_fail(t, TAR_READ_CLOSED, "", "nobody takes its files");
        size_t gone = (size_t)n;
        while (count > 0 && gone >= parts->iov_len) {
            gone -= parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + gone;
            parts->iov_len -= gone;
        }
    }
    return 0;
}

static int tar_read_put_record(struct tar_read *t, struct fileop_record *rec, const void *data) {
    rec->magic = FILEOP_MAGIC;
    struct iovec parts[4] = {{.iov_base = rec, .iov_len = sizeof(*rec)},
                             {.iov_base = t->path, .iov_len = rec->path_len},
                             {.iov_base = t->target, .iov_len = rec->target_len},
                             {.iov_base = (void *)(uintptr_t)data, .iov_len = rec->data_len}};
    return tar_read_put(t, parts, 4);
}

static int tar_read_put_data(struct tar_read *t, const char *data, size_t len) {
    do {
        struct fileop_record rec = {.type = FILEOP_DATA,
                                    .data_len =
                                        len < FILEOP_DATA_MAX ? (uint32_t)len : FILEOP_DATA_MAX};
        if (tar_read_put_record(t, &rec, data) < 0)
            return -1;
        data += rec.data_len;
        len -= rec.data_len;
    } while (len > 0);
    return 0;
}

static int tar_read_put_zeros(struct tar_read *t, uint64_t len) {
    while (len > 0) {
        size_t n = len < sizeof(tar_read_zeros) ? (size_t)len : sizeof(tar_read_zeros);
        if (tar_read_put_data(t, tar_read_zeros, n) < 0)
            return -1;
        len -= n;
    }
    return 0;
}

/* Entries. */

const char *tar_read_path(const char *path, char out[FILEOP_PATH_MAX + 1]) {
    size_t len = 0;
    if (path[0] == '/')
        return "its path is absolute";
    for (const char *part = path; *part != '\0'; part += *part == '/') {
        size_t n = strcspn(part, "/");
        const char *name = part;
        part += n;
        if (n == 0 || (n == 1 && name[0] == '.'))
            continue;
        if (n == 2 && name[0] == '.' && name[1] == '.')
            return "its path leads upwards with ..";
        if (n > TAR_READ_NAME_MAX)
            return "a name in its path has more than 255 bytes";
        if (len + (len > 0) + n > FILEOP_PATH_MAX)
            return "its path has more than 4095 bytes";
        if (len > 0)
            out[len++] = '/';
        memcpy(out + len, name, n);
        len += n;
    }
    out[len] = '\0';
    return NULL;
}

/* The contents of a file of `size` bytes; holes of sparse ones become zeros. */
static int tar_read_contents(struct tar_read *t, uint64_t size) {
    struct fileop_record last = {.type = FILEOP_DATA};
    uint64_t at = 0;
    for (;;) {
        const void *data = NULL;
        size_t len = 0;
        la_int64_t offset = 0;
        int rc = archive_read_data_block(t->archive, &data, &len, &offset);
        if (rc == ARCHIVE_EOF)
            break;
        if (rc == ARCHIVE_RETRY)
            continue;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return tar_read_damaged(t);
        if (offset < 0 || (uint64_t)offset < at || (uint64_t)offset > size ||
            len > size - (uint64_t)offset)
            return tar_read_fail(t, TAR_READ_DAMAGED, t->path, "its contents do not fit its size");
        if (tar_read_put_zeros(t, (uint64_t)offset - at) < 0 ||
            (len > 0 && tar_read_put_data(t, data, len) < 0))
            return -1;
        at = (uint64_t)offset + len;
    }
    if (tar_read_put_zeros(t, size - at) < 0)
        return -1;
    t->result->bytes += size;
    return tar_read_put_record(t, &last, NULL);
}

static int tar_read_file(struct tar_read *t, struct archive_entry *e, struct fileop_record *rec) {
    la_int64_t size = archive_entry_size_is_set(e) ? archive_entry_size(e) : 0;
    if (size < 0)
        return tar_read_fail(t, TAR_READ_DAMAGED, t->path, "its size is negative");
    if ((uint64_t)size > t->bytes_left)
        return tar_read_fail(t, TAR_READ_TOO_LARGE, t->path,
                             "the files are larger than the sandbox's disk");
    t->bytes_left -= (uint64_t)size;
    rec->kind = FILEOP_FILE;
    rec->size = (uint64_t)size;
    rec->flags = FILEOP_CONTENT;
    if (tar_read_put_record(t, rec, NULL) < 0)
        return -1;
    return tar_read_contents(t, (uint64_t)size);
}

static int tar_read_link(struct tar_read *t, struct archive_entry *e, struct fileop_record *rec) {
    const char *hard = archive_entry_hardlink(e);
    const char *target = hard != NULL ? hard : archive_entry_symlink(e);
    if (target == NULL || target[0] == '\0')
        return tar_read_fail(t, TAR_READ_REFUSED, t->path, "it is a link to nothing");
    if (hard != NULL) {
        const char *wrong = tar_read_path(hard, t->target);
        if (wrong != NULL || t->target[0] == '\0')
            return tar_read_fail(t, TAR_READ_REFUSED, t->path, "it is a link out of the archive");
    } else if (!str_copy(t->target, sizeof(t->target), target)) {
        return tar_read_fail(t, TAR_READ_REFUSED, t->path, "its target has more than 4095 bytes");
    }
    rec->kind = hard != NULL ? FILEOP_HARDLINK : FILEOP_SYMLINK;
    rec->target_len = (uint32_t)strlen(t->target);
    return tar_read_put_record(t, rec, NULL);
}

static int tar_read_typed(struct tar_read *t, struct archive_entry *e, struct fileop_record *rec) {
    if (archive_entry_hardlink(e) != NULL)
        return tar_read_link(t, e, rec);
    switch (archive_entry_filetype(e)) {
    case AE_IFREG:
        return tar_read_file(t, e, rec);
    case AE_IFLNK:
        return tar_read_link(t, e, rec);
    case AE_IFDIR:
        rec->kind = FILEOP_DIRECTORY;
        return tar_read_put_record(t, rec, NULL);
    case AE_IFCHR:
    case AE_IFBLK:
        return tar_read_fail(t, TAR_READ_REFUSED, t->path, "it is a device");
    case AE_IFIFO:
        return tar_read_fail(t, TAR_READ_REFUSED, t->path, "it is a FIFO");
    case AE_IFSOCK:
        return tar_read_fail(t, TAR_READ_REFUSED, t->path, "it is a socket");
    default:
        return tar_read_fail(t, TAR_READ_REFUSED, t->path, "it is of a type that is not known");
    }
}

static int64_t tar_read_mtime(struct archive_entry *e) {
    time_t seconds = archive_entry_mtime(e);
    if (!archive_entry_mtime_is_set(e) || seconds > INT64_MAX / 1000000000 - 1 ||
        seconds < INT64_MIN / 1000000000 + 1)
        return FILEOP_MTIME_NONE;
    return (int64_t)seconds * 1000000000 + archive_entry_mtime_nsec(e) % 1000000000;
}

static int tar_read_entry(struct tar_read *t, struct archive_entry *e) {
    errno = 0;
    const char *name = archive_entry_pathname(e);
    if (name == NULL && errno == ENOMEM)
        return tar_read_memory(t);
    if (name == NULL)
        return tar_read_fail(t, TAR_READ_REFUSED, "", "an entry's name is not text");
    const char *wrong = tar_read_path(name, t->path);
    if (wrong != NULL)
        return tar_read_fail(t, TAR_READ_REFUSED, name, wrong);
    if (t->entries_left == 0)
        return tar_read_fail(t, TAR_READ_TOO_LARGE, name,
                             "the archive has more entries than the sandbox may have files");
    t->entries_left--;
    bool file = archive_entry_filetype(e) != AE_IFDIR;
    if (t->path[0] == '\0')
        return file ? tar_read_fail(t, TAR_READ_REFUSED, name, "it has no name") : 0;
    struct fileop_record rec = {.type = FILEOP_ENTRY,
                                .mode = (uint32_t)archive_entry_perm(e) & 0777u,
                                .mtime_ns = tar_read_mtime(e),
                                .path_len = (uint32_t)strlen(t->path)};
    if (tar_read_typed(t, e, &rec) < 0)
        return -1;
    t->result->entries++;
    return 0;
}

static int tar_read_entries(struct tar_read *t) {
    struct fileop_record end = {.type = FILEOP_END};
    for (;;) {
        struct archive_entry *e = NULL;
        int rc = archive_read_next_header(t->archive, &e);
        if (rc == ARCHIVE_EOF)
            return tar_read_put_record(t, &end, NULL);
        if (rc == ARCHIVE_RETRY)
            continue;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return tar_read_damaged(t);
        if (tar_read_entry(t, e) < 0)
            return -1;
    }
}

/* Reading. */

static la_ssize_t tar_read_in(struct archive *a, void *arg, const void **data) {
    struct tar_read *t = arg;
    ssize_t n;
    do
        n = read(t->in, t->block, sizeof(t->block));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        archive_set_error(a, errno, "it could not be received");
    *data = t->block;
    return n;
}

/* ARCHIVE_WARN would mean that an outside program does the unpacking. */
static int tar_read_open(struct tar_read *t) {
    t->archive = archive_read_new();
    if (t->archive == NULL || archive_read_support_filter_gzip(t->archive) != ARCHIVE_OK ||
        archive_read_support_format_tar(t->archive) != ARCHIVE_OK)
        return tar_read_memory(t);
    /* Not archive_read_open(): it does not look whether there was memory for the second of these,
     * and then goes on without. */
    if (archive_read_set_read_callback(t->archive, tar_read_in) != ARCHIVE_OK ||
        archive_read_set_callback_data(t->archive, t) != ARCHIVE_OK)
        return tar_read_memory(t);
    errno = 0;
    if (archive_read_open1(t->archive) != ARCHIVE_OK)
        return errno == ENOMEM ? tar_read_memory(t) : tar_read_damaged(t);
    return 0;
}

void tar_read_run(int in, int out, uint64_t max_bytes, uint64_t max_entries,
                  struct tar_read_result *result) {
    struct tar_read t = {.in = in,
                         .out = out,
                         .bytes_left = max_bytes,
                         .entries_left = max_entries,
                         .result = result};
    memset(result, 0, sizeof(*result));
    if (tar_read_open(&t) == 0 && tar_read_entries(&t) == 0) {
        /* What follows the end of the archive: whoever sends it would wait for ever. */
        const void *data;
        while (tar_read_in(t.archive, &t, &data) > 0)
            ;
    }
    archive_read_free(t.archive);
}
