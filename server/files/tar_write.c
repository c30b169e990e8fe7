#include "tar_write.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct tar_write {
    struct buf *out;
    const char *name; /* borrowed */
    struct archive *archive;
    struct archive_entry *entry;
    bool full;                      /* `out` would not take all of it */
    uint64_t left;                  /* of the contents of the current file */
    char path[FILEOP_PATH_MAX + 1]; /* of the last entry when it is a file, else "" */
};

static la_ssize_t tar_write_out(struct archive *a, void *arg, const void *data, size_t len) {
    struct tar_write *t = arg;
    (void)a;
    /* The library leaks when it is told of a failure, so it is told of none. Freeing an archive
     * ends it first: that is for nobody. */
    if (t->out != NULL && !t->full && buf_append(t->out, data, len, NULL) < 0)
        t->full = true;
    return (la_ssize_t)len;
}

struct tar_write *tar_write_new(struct buf *out, const char *name, struct err *err) {
    struct tar_write *t = calloc(1, sizeof(*t));
    if (t != NULL) {
        t->out = out;
        t->name = name;
        t->archive = archive_write_new();
        t->entry = archive_entry_new();
    }
    if (t != NULL && t->archive != NULL && t->entry != NULL &&
        archive_write_set_format_pax_restricted(t->archive) == ARCHIVE_OK &&
        archive_write_set_bytes_per_block(t->archive, 0) == ARCHIVE_OK &&
        archive_write_open(t->archive, t, NULL, tar_write_out, NULL) == ARCHIVE_OK)
        return t;
    tar_write_free(t);
    err_set(err, ERR_SYSTEM, ENOMEM, "making an archive: out of memory");
    return NULL;
}

void tar_write_free(struct tar_write *t) {
    if (t == NULL)
        return;
    t->out = NULL;
    archive_entry_free(t->entry);
    archive_write_free(t->archive);
    free(t);
}

static void tar_write_fill(struct tar_write *t, const struct fileop_item *item) {
    const struct fileop_record *rec = &item->rec;
    struct archive_entry *e = archive_entry_clear(t->entry);
    bool file = rec->kind == FILEOP_FILE;
    t->left = file && (rec->flags & FILEOP_CONTENT) != 0 ? rec->size : 0;
    archive_entry_set_pathname(e, item->path[0] != '\0' ? item->path : t->name);
    archive_entry_set_perm(e, rec->mode & 0777u);
    archive_entry_set_mtime(e, rec->mtime_ns / 1000000000, (long)(rec->mtime_ns % 1000000000));
    archive_entry_set_size(e, (la_int64_t)t->left);
    if (rec->kind == FILEOP_HARDLINK) {
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_hardlink(e, item->target);
    } else if (rec->kind == FILEOP_SYMLINK) {
        archive_entry_set_filetype(e, AE_IFLNK);
        archive_entry_set_symlink(e, item->target);
    } else {
        archive_entry_set_filetype(e, file ? AE_IFREG : AE_IFDIR);
    }
}

static int tar_write_failed(struct tar_write *t, struct err *err) {
    const char *why = t->full ? "no room is left" : archive_error_string(t->archive);
    return err_set(err, ERR_LIMIT, 0, "writing an archive: %s", why != NULL ? why : "it failed");
}

static int tar_write_entry(struct tar_write *t, const struct fileop_item *item, struct err *err) {
    uint32_t kind = item->rec.kind;
    bool known = kind == FILEOP_FILE || kind == FILEOP_DIRECTORY || kind == FILEOP_SYMLINK ||
                 kind == FILEOP_HARDLINK;
    /* The directory itself is where the archive will be unpacked. */
    bool itself = item->path[0] == '\0' && kind == FILEOP_DIRECTORY;
    t->left = 0;
    t->path[0] = '\0';
    if (kind == FILEOP_FILE)
        memcpy(t->path, item->path, item->rec.path_len + 1);
    if (!known || itself)
        return 0;
    tar_write_fill(t, item);
    int rc = archive_write_header(t->archive, t->entry);
    return rc == ARCHIVE_OK || rc == ARCHIVE_WARN ? 0 : tar_write_failed(t, err);
}

static int tar_write_data(struct tar_write *t, const struct fileop_item *item, struct err *err) {
    size_t len = item->rec.data_len;
    if (len == 0 && t->left > 0)
        return err_set(err, ERR_STATE, 0, "a file became shorter while it was packed");
    if (len > t->left)
        len = (size_t)t->left; /* it grew: it is packed as it was */
    if (len == 0)
        return 0;
    if (archive_write_data(t->archive, item->data, len) != (la_ssize_t)len)
        return tar_write_failed(t, err);
    t->left -= len;
    return 0;
}

static int tar_write_record(struct tar_write *t, const struct fileop_item *item, struct err *err) {
    switch (item->rec.type) {
    case FILEOP_ENTRY:
        return tar_write_entry(t, item, err);
    case FILEOP_DATA:
        return tar_write_data(t, item, err);
    case FILEOP_ERROR:
        /* It takes the contents back that are in the archive already. */
        if (strcmp(item->path, t->path) == 0)
            return err_set(err, ERR_STATE, 0, "a file could not be read while it was packed");
        return 0;
    default:
        return 0;
    }
}

int tar_write_item(struct tar_write *t, const struct fileop_item *item, struct err *err) {
    int rc = tar_write_record(t, item, err);
    return rc == 0 && t->full ? tar_write_failed(t, err) : rc;
}

int tar_write_end(struct tar_write *t, struct err *err) {
    if (t->left > 0)
        return err_set(err, ERR_STATE, 0, "the last file of an archive is not complete");
    int rc = archive_write_close(t->archive);
    return rc == ARCHIVE_OK && !t->full ? 0 : tar_write_failed(t, err);
}
