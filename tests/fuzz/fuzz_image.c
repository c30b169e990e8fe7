/* Any bytes as the archive of an image: reading them and writing what they say stays within the
 * directory and the bounds, and leaves plain files, directories and links only. */
#include "image_extract.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image_prepare.h"
#include "image_reader.h"
#include "image_tree.h"

#define FUZZ_BYTES (256u * 1024)
#define FUZZ_FILES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

/* Entries plus the directories that were made for them. */
static int fuzz_look(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)path;
    (void)type;
    fuzz_require(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
    if (!S_ISLNK(st->st_mode))
        fuzz_require((st->st_mode & 06000) == 0);
    fuzz_require(st->st_size <= (off_t)FUZZ_BYTES);
    fuzz_require(where->level <= (int)IMAGE_TREE_DEPTH_MAX + 1);
    return 0;
}

/* The reader's records, in memory. */
static int fuzz_records(const uint8_t *data, size_t size) {
    int tar = memfd_create("tar", MFD_CLOEXEC), out = memfd_create("records", MFD_CLOEXEC);

    fuzz_require(tar >= 0 && out >= 0);
    fuzz_require(write(tar, data, size) == (ssize_t)size && lseek(tar, 0, SEEK_SET) == 0);
    fuzz_require(image_reader_run(tar, out, FUZZ_BYTES, FUZZ_FILES, IMAGE_READER_ALL) >= 0);
    fuzz_require(lseek(out, 0, SEEK_SET) == 0);
    close(tar);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct image_bounds bounds = {FUZZ_BYTES, FUZZ_FILES};
    char path[] = "/tmp/pinfold-fuzz-XXXXXX";
    struct image_count count;
    struct err err = {0};
    int records, root, rc;

    fuzz_require(mkdtemp(path) != NULL);
    root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fuzz_require(root >= 0);
    records = fuzz_records(data, size);
    rc = image_extract(records, root, &bounds, &count, &err);
    /* The reader always ends in order: a stream that breaks off would be its fault. */
    fuzz_require(rc == 0 || (err.kind != ERR_PROTOCOL && err.text[0] != '\0'));
    fuzz_require(count.bytes <= FUZZ_BYTES && count.files <= FUZZ_FILES);
    if (rc == 0) {
        fuzz_require(count.files > 0);
        (void)image_prepare(root, &err);
    }
    fuzz_require(nftw(path, fuzz_look, 16, FTW_PHYS) == 0);
    close(records);
    close(root);
    fuzz_require(image_tree_remove(AT_FDCWD, path, &err) == 0);
    return 0;
}
