/* Any bytes as a layer on top of another: what it does stays within the directory and the bounds,
 * leaves plain files, directories and links, and no mark of a whiteout. */
#include "image_layer.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image_reader.h"
#include "image_tree.h"

#define FUZZ_BYTES (256u * 1024)
#define FUZZ_FILES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static int fuzz_look(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)type;
    fuzz_require(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
    if (!S_ISLNK(st->st_mode))
        fuzz_require((st->st_mode & 06000) == 0);
    fuzz_require(strncmp(path + where->base, ".wh.", 4) != 0);
    fuzz_require(where->level <= (int)IMAGE_TREE_DEPTH_MAX + 1);
    return 0;
}

static int fuzz_records(const uint8_t *data, size_t size, enum image_reader_what what) {
    int tar = memfd_create("tar", MFD_CLOEXEC), out = memfd_create("records", MFD_CLOEXEC);

    fuzz_require(tar >= 0 && out >= 0);
    fuzz_require(write(tar, data, size) == (ssize_t)size && lseek(tar, 0, SEEK_SET) == 0);
    fuzz_require(image_reader_run(tar, out, FUZZ_BYTES, FUZZ_FILES, what) >= 0);
    fuzz_require(lseek(out, 0, SEEK_SET) == 0);
    close(tar);
    return out;
}

/* What is below: a file, a directory with one, a link that leads out to `outside`. */
static void fuzz_base(int root, const char *outside) {
    struct image_tree tree;
    struct err err;
    int fd;

    image_tree_init(&tree, root);
    fuzz_require(image_tree_dir(&tree, "d", 0755, &err) == 0);
    fd = image_tree_file(&tree, "d/f", &err);
    fuzz_require(fd >= 0 && image_tree_file_end(fd, 1, 0644, 0, &err) == 0 && close(fd) == 0);
    fd = image_tree_file(&tree, "f", &err);
    fuzz_require(fd >= 0 && image_tree_file_end(fd, 1, 0644, 0, &err) == 0 && close(fd) == 0);
    fuzz_require(image_tree_symlink(&tree, "l", outside, &err) == 0);
    image_tree_done(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct image_bounds bounds = {FUZZ_BYTES, FUZZ_FILES};
    const struct image_layer layer = {.fd = -1, .packed = size, .ratio = 10};
    char path[] = "/tmp/pinfold-fuzz-XXXXXX", inside[64], outside[64], kept[80];
    struct image_count count = {0};
    struct err err = {0};
    int whiteouts, entries, root, rc;

    fuzz_require(mkdtemp(path) != NULL);
    snprintf(inside, sizeof(inside), "%s/in", path);
    snprintf(outside, sizeof(outside), "%s/out", path);
    snprintf(kept, sizeof(kept), "%s/f", outside);
    fuzz_require(mkdir(inside, 0700) == 0 && mkdir(outside, 0700) == 0 && mkdir(kept, 0700) == 0);
    root = open(inside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fuzz_require(root >= 0);
    fuzz_base(root, outside);
    whiteouts = fuzz_records(data, size, IMAGE_READER_WHITEOUTS);
    entries = fuzz_records(data, size, IMAGE_READER_ENTRIES);
    rc = image_layer_apply_records(whiteouts, entries, &layer, root, &bounds, &count, &err);
    fuzz_require(rc == 0 || (err.kind != ERR_PROTOCOL && err.text[0] != '\0'));
    fuzz_require(count.bytes <= FUZZ_BYTES && count.files <= FUZZ_FILES);
    fuzz_require(nftw(inside, fuzz_look, 16, FTW_PHYS) == 0);
    /* Nothing was put beside what lies outside, and it is still there. */
    fuzz_require(rmdir(kept) == 0 && rmdir(outside) == 0);
    close(whiteouts);
    close(entries);
    close(root);
    fuzz_require(image_tree_remove(AT_FDCWD, path, &err) == 0);
    return 0;
}
