#include "image_peek.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "image_apart.h"
#include "image_reader.h"
#include "image_ref.h"

#define IMAGE_PEEK_ENTRIES 8192

struct image_peek {
    bool layout, index, saved;
};

/* "HEX", "HEX.json", "HEX.tar": directories and files of docker save. */
static bool image_peek_is_hex(const char *name) {
    uint8_t bytes[32];
    char hex[65];

    snprintf(hex, sizeof(hex), "%.64s", name);
    if (!image_ref_hex(hex, bytes))
        return false;
    return name[64] == '\0' || name[64] == '/' || strcmp(name + 64, ".json") == 0 ||
           strcmp(name + 64, ".tar") == 0;
}

/* Can it be part of an archive of layers? */
static bool image_peek_look(struct image_peek *p, const char *path) {
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    if (strcmp(path, "oci-layout") == 0)
        return p->layout = true;
    if (strcmp(path, "index.json") == 0)
        return p->index = true;
    if (strcmp(path, "manifest.json") == 0)
        return p->saved = true;
    return path[0] == '\0' || strcmp(path, ".") == 0 || strcmp(path, "repositories") == 0 ||
           strcmp(path, "blobs") == 0 || strncmp(path, "blobs/", 6) == 0 || image_peek_is_hex(path);
}

static uint32_t image_peek_answer(const struct image_peek *p) {
    if (p->layout && p->index)
        return IMAGE_PEEK_OCI;
    return p->saved ? IMAGE_PEEK_SAVED : IMAGE_PEEK_ROOTFS;
}

static int image_peek_run(int tar, int out, const void *arg) {
    struct archive *a = image_reader_archive(tar);
    struct image_peek peek = {0};
    struct archive_entry *entry = NULL;
    uint32_t form = IMAGE_PEEK_ROOTFS;
    int rc = ARCHIVE_OK;

    (void)arg;
    for (int i = 0; a != NULL && i < IMAGE_PEEK_ENTRIES; i++) {
        rc = archive_read_next_header(a, &entry);
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            break;
        if (archive_entry_pathname(entry) == NULL ||
            !image_peek_look(&peek, archive_entry_pathname(entry)))
            break;
    }
    if (rc == ARCHIVE_EOF)
        form = image_peek_answer(&peek);
    archive_read_free(a);
    return fd_write_all(out, &form, sizeof(form), NULL);
}

static int image_peek_archive(int fd, enum image_peek_form *form, struct err *err) {
    uint32_t answer = IMAGE_PEEK_ROOTFS;
    ssize_t got;
    pid_t child = -1;
    fd_cleanup int in = -1;

    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot read the archive");
    in = image_apart_start(image_peek_run, fd, NULL, &child, err);
    if (in < 0)
        return -1;
    do
        got = read(in, &answer, sizeof(answer));
    while (got < 0 && errno == EINTR);
    fd_close(&in);
    if (image_apart_reap(child, err) < 0)
        return -1;
    *form = got == (ssize_t)sizeof(answer) && answer <= IMAGE_PEEK_SAVED
                ? (enum image_peek_form)answer
                : IMAGE_PEEK_ROOTFS;
    return 0;
}

static bool image_peek_has(int dir, const char *name) {
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int image_peek(int fd, enum image_peek_form *form, struct err *err) {
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the image");
    if (S_ISREG(st.st_mode))
        return image_peek_archive(fd, form, err);
    *form = IMAGE_PEEK_ROOTFS;
    if (S_ISDIR(st.st_mode)) {
        const struct image_peek peek = {.layout = image_peek_has(fd, "oci-layout"),
                                        .index = image_peek_has(fd, "index.json"),
                                        .saved = image_peek_has(fd, "manifest.json")};
        *form = (enum image_peek_form)image_peek_answer(&peek);
    }
    return 0;
}
