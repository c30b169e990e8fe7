#include "image_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "fd.h"
#include "image_record.h"
#include "rights.h"

#define IMAGE_READER_BLOCK 65536u
/* Of address space: a packer's window may be large, not endless. */
#define IMAGE_READER_MEMORY ((uint64_t)2 * 1024 * 1024 * 1024)

struct image_reader {
    struct archive *archive;
    int out;
    uint64_t bytes_left, files_left;
    enum image_reader_what what;
};

int image_reader_drop(int keep_a, int keep_b) {
    const int keep[] = {keep_a, keep_b};

    /* Names are bytes to us; in the "C" locale libarchive would refuse those that are not ASCII. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    return rights_drop(keep, sizeof(keep) / sizeof(keep[0]), IMAGE_READER_MEMORY, 0);
}

static int image_reader_put(struct image_reader *r, const void *data, size_t len) {
    return fd_write_all(r->out, data, len, NULL);
}

static int image_reader_put_record(struct image_reader *r, struct image_record *rec,
                                   const char *path, const char *link) {
    size_t path_len = strlen(path), link_len = link != NULL ? strlen(link) : 0;

    rec->magic = IMAGE_RECORD_MAGIC;
    rec->path_len = (uint32_t)path_len;
    rec->link_len = (uint32_t)link_len;
    if (image_reader_put(r, rec, sizeof(*rec)) < 0 || image_reader_put(r, path, path_len) < 0)
        return -1;
    return link_len > 0 ? image_reader_put(r, link, link_len) : 0;
}

/* The last record. */
static int image_reader_fail(struct image_reader *r, const char *what, const char *detail) {
    struct image_record rec = {.type = IMAGE_RECORD_ERROR};
    char text[512];

    snprintf(text, sizeof(text), "%s%s%s", what, detail != NULL ? ": " : "",
             detail != NULL ? detail : "");
    return image_reader_put_record(r, &rec, text, NULL);
}

static uint32_t image_reader_type(struct archive_entry *entry) {
    if (archive_entry_hardlink(entry) != NULL)
        return IMAGE_RECORD_HARDLINK;
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return IMAGE_RECORD_FILE;
    case AE_IFDIR:
        return IMAGE_RECORD_DIR;
    case AE_IFLNK:
        return IMAGE_RECORD_SYMLINK;
    case AE_IFCHR:
    case AE_IFBLK:
        return IMAGE_RECORD_DEVICE;
    case AE_IFIFO:
        return IMAGE_RECORD_FIFO;
    case AE_IFSOCK:
        return IMAGE_RECORD_SOCKET;
    default:
        return IMAGE_RECORD_OTHER;
    }
}

/* One block of a file as chunks. */
static int image_reader_put_block(struct image_reader *r, const char *data, size_t len,
                                  uint64_t offset) {
    while (len > 0) {
        struct image_chunk chunk = {.offset = offset,
                                    .size = len < IMAGE_CHUNK_MAX ? len : IMAGE_CHUNK_MAX};

        if (image_reader_put(r, &chunk, sizeof(chunk)) < 0 ||
            image_reader_put(r, data, chunk.size) < 0)
            return -1;
        data += chunk.size;
        len -= chunk.size;
        offset += chunk.size;
    }
    return 0;
}

/* The rest of a file cannot be had: says so within the file, then why. */
static int image_reader_break(struct image_reader *r, const char *what, const char *detail) {
    struct image_chunk broken = {.size = IMAGE_CHUNK_BROKEN};

    if (image_reader_put(r, &broken, sizeof(broken)) < 0)
        return -1;
    return image_reader_fail(r, what, detail);
}

/* 1 = the file is complete, 0 = an ERROR record was written, -1. */
static int image_reader_put_data(struct image_reader *r) {
    struct image_chunk last = {0};

    for (;;) {
        const void *data = NULL;
        size_t len = 0;
        la_int64_t offset = 0;
        int rc = archive_read_data_block(r->archive, &data, &len, &offset);

        if (rc == ARCHIVE_EOF)
            break;
        if (rc == ARCHIVE_RETRY)
            continue;
        if ((rc != ARCHIVE_OK && rc != ARCHIVE_WARN) || offset < 0)
            return image_reader_break(r, "the archive is damaged",
                                      archive_error_string(r->archive));
        if (len > r->bytes_left)
            return image_reader_break(r, "the files are larger than allowed", NULL);
        r->bytes_left -= len;
        if (image_reader_put_block(r, data, len, (uint64_t)offset) < 0)
            return -1;
    }
    return image_reader_put(r, &last, sizeof(last)) < 0 ? -1 : 1;
}

static bool image_reader_is_whiteout(const char *path) {
    const char *slash = strrchr(path, '/');

    return strncmp(slash != NULL ? slash + 1 : path, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) == 0;
}

/* An entry of which nothing is wanted but its size: it bounds what has to be unpacked to pass it.
 */
static int image_reader_skip(struct image_reader *r, struct archive_entry *entry) {
    la_int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;

    if (size < 0 || (uint64_t)size > r->bytes_left)
        return image_reader_fail(r, "the files are larger than allowed", NULL);
    r->bytes_left -= (uint64_t)size;
    return 1;
}

/* 1 = go on, 0 = an ERROR record was written, -1. */
static int image_reader_entry(struct image_reader *r, struct archive_entry *entry) {
    const char *path = archive_entry_pathname(entry), *link = NULL;
    struct image_record rec = {.type = image_reader_type(entry)};

    if (path == NULL || strlen(path) > IMAGE_PATH_MAX)
        return image_reader_fail(r, "the name of an entry is too long or not text", NULL);
    if (rec.type == IMAGE_RECORD_HARDLINK)
        link = archive_entry_hardlink(entry);
    else if (rec.type == IMAGE_RECORD_SYMLINK)
        link = archive_entry_symlink(entry);
    if (link != NULL && strlen(link) > IMAGE_PATH_MAX)
        return image_reader_fail(r, "the target of a link is too long", path);
    rec.mode = (uint32_t)archive_entry_perm(entry) & 0777u;
    rec.mtime = archive_entry_mtime_is_set(entry) ? archive_entry_mtime(entry) : 0;
    if (rec.type == IMAGE_RECORD_FILE) {
        la_int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;

        if (size < 0)
            return image_reader_fail(r, "an entry has a negative size", path);
        rec.size = (uint64_t)size;
    }
    if (image_reader_put_record(r, &rec, path, link) < 0)
        return -1;
    return rec.type == IMAGE_RECORD_FILE ? image_reader_put_data(r) : 1;
}

/* 1 = go on, 0 = an ERROR record was written, -1. */
static int image_reader_layer_entry(struct image_reader *r, struct archive_entry *entry) {
    const char *path = archive_entry_pathname(entry);
    struct image_record rec = {.type = IMAGE_RECORD_WHITEOUT};
    bool whiteout = path != NULL && image_reader_is_whiteout(path);

    if (path == NULL || strlen(path) > IMAGE_PATH_MAX)
        return image_reader_fail(r, "the name of an entry is too long or not text", NULL);
    if (r->what == IMAGE_READER_WHITEOUTS && whiteout &&
        image_reader_put_record(r, &rec, path, NULL) < 0)
        return -1;
    if (r->what == IMAGE_READER_WHITEOUTS || whiteout)
        return image_reader_skip(r, entry);
    return image_reader_entry(r, entry);
}

/* 1 = every entry was written, 0 = an ERROR record was, -1. */
static int image_reader_entries(struct image_reader *r) {
    for (;;) {
        struct archive_entry *entry = NULL;
        int rc = archive_read_next_header(r->archive, &entry);

        if (rc == ARCHIVE_EOF)
            return 1;
        if (rc == ARCHIVE_RETRY)
            continue;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return image_reader_fail(r, "the archive is damaged or no tar",
                                     archive_error_string(r->archive));
        if (r->files_left == 0)
            return image_reader_fail(r, "more entries than allowed", NULL);
        r->files_left--;
        rc = r->what == IMAGE_READER_ALL ? image_reader_entry(r, entry)
                                         : image_reader_layer_entry(r, entry);
        if (rc <= 0)
            return rc;
    }
}

struct archive *image_reader_archive(int tar) {
    struct archive *a = archive_read_new();

    /* ARCHIVE_WARN would mean that an outside program does the unpacking. */
    if (a != NULL && archive_read_support_filter_gzip(a) == ARCHIVE_OK &&
        archive_read_support_filter_bzip2(a) == ARCHIVE_OK &&
        archive_read_support_filter_xz(a) == ARCHIVE_OK &&
        archive_read_support_filter_zstd(a) == ARCHIVE_OK &&
        archive_read_support_format_tar(a) == ARCHIVE_OK &&
        archive_read_open_fd(a, tar, IMAGE_READER_BLOCK) == ARCHIVE_OK)
        return a;
    archive_read_free(a);
    return NULL;
}

int image_reader_run(int tar, int out, uint64_t max_bytes, uint64_t max_files,
                     enum image_reader_what what) {
    struct image_reader r = {
        .out = out, .bytes_left = max_bytes, .files_left = max_files, .what = what};
    struct image_record end = {.type = IMAGE_RECORD_END};
    int rc;

    r.archive = image_reader_archive(tar);
    if (r.archive == NULL)
        rc = image_reader_fail(&r, "this is no tar", NULL);
    else
        rc = image_reader_entries(&r);
    if (rc > 0)
        rc = image_reader_put_record(&r, &end, "", NULL);
    archive_read_free(r.archive);
    return rc;
}
