#include "image_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static void test_normalise(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } good[] = {{"a", "a"},       {"./a", "a"},   {"././a//b///c/", "a/b/c"},
                {"a/./b", "a/b"}, {"...", "..."}, {"..a/b..", "..a/b.."},
                {"a\nb", "a\nb"}, {" ", " "},     {"./.x", ".x"}};
    static const char *const root[] = {"", ".", "./", "././/", ".//."};
    static const char *const bad[] = {"/",      "/a",   "..", "../a",   "a/..",
                                      "a/../b", "./..", "//", "a/b/..", "./../x"};
    char out[4096], longest[5000];
    struct err err = {0};

    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        assert_int_equal(image_tree_normalise(good[i].in, strlen(good[i].in), out, &err), 1);
        assert_string_equal(out, good[i].out);
    }
    for (size_t i = 0; i < UNIT_COUNT(root); i++)
        assert_int_equal(image_tree_normalise(root[i], strlen(root[i]), out, &err), 0);
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        unit_fails(image_tree_normalise(bad[i], strlen(bad[i]), out, &err), err, ERR_INVALID);
    unit_fails(image_tree_normalise("a\0b", 3, out, &err), err, ERR_INVALID);

    memset(longest, 'x', sizeof(longest));
    assert_int_equal(image_tree_normalise(longest, 255, out, &err), 1);
    unit_fails(image_tree_normalise(longest, 256, out, &err), err, ERR_INVALID);
    for (size_t i = 100; i < sizeof(longest); i += 101)
        longest[i] = '/';
    assert_int_equal(image_tree_normalise(longest, 4000, out, &err), 1);
    unit_fails(image_tree_normalise(longest, 4200, out, &err), err, ERR_INVALID);
    for (size_t i = 0; i < sizeof(longest); i++)
        longest[i] = i % 2 ? '/' : 'd';
    assert_int_equal(image_tree_normalise(longest, 2 * IMAGE_TREE_DEPTH_MAX, out, &err), 1);
    unit_fails(image_tree_normalise(longest, 2 * IMAGE_TREE_DEPTH_MAX + 1, out, &err), err,
               ERR_INVALID);
}

struct place {
    char path[64];
    int root;
    struct image_tree tree;
};

static int place_make(void **state) {
    struct place *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return -1;
    snprintf(p->path, sizeof(p->path), "/tmp/unit-tree-XXXXXX");
    if (mkdtemp(p->path) == NULL)
        return -1;
    p->root = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    image_tree_init(&p->tree, p->root);
    *state = p;
    return p->root < 0 ? -1 : 0;
}

static int place_remove(void **state) {
    struct place *p = *state;
    int rc = image_tree_remove(AT_FDCWD, p->path, NULL);

    image_tree_done(&p->tree);
    close(p->root);
    free(p);
    return rc;
}

static void put_file(struct place *p, const char *path, const char *text, mode_t mode) {
    struct err err = {0};
    int fd = image_tree_file(&p->tree, path, &err);

    if (fd < 0)
        fail_msg("%s: %s", path, err.text);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    unit_works(image_tree_file_end(fd, strlen(text), mode, 1700000000, &err), err);
    close(fd);
}

static void test_entries(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct stat st;
    mode_t before = umask(077);

    unit_works(image_tree_dir(&p->tree, "d", 0550, &err), err);
    put_file(p, "d/deep/er/file", "text", 06751);
    put_file(p, "top", "1", 0644);
    unit_works(image_tree_symlink(&p->tree, "d/link", "/etc/passwd", &err), err);
    unit_works(image_tree_hardlink(&p->tree, "hard", "d/deep/er/file", &err), err);
    unit_works(image_tree_hardlink(&p->tree, "hard", "hard", &err), err);
    umask(before);

    assert_int_equal(fstatat(p->root, "d", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0750);
    assert_int_equal(fstatat(p->root, "d/deep", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    assert_int_equal(fstatat(p->root, "hard", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0751);
    assert_int_equal(st.st_nlink, 2);
    assert_int_equal(st.st_mtime, 1700000000);
    assert_int_equal(fstatat(p->root, "d/link", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(st.st_mode));
    /* A second file of the same name is a new one: the hard link keeps the first. */
    put_file(p, "d/deep/er/file", "other text", 0644);
    assert_int_equal(fstatat(p->root, "hard", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(st.st_size, 4);
}

static void test_refused(void **state) {
    struct place *p = *state;
    struct err err = {0};

    unit_works(image_tree_symlink(&p->tree, "out", "/tmp", &err), err);
    unit_works(image_tree_symlink(&p->tree, "in", "d", &err), err);
    unit_works(image_tree_dir(&p->tree, "d", 0755, &err), err);
    put_file(p, "f", "x", 0644);

    assert_int_equal(image_tree_file(&p->tree, "out/x", &err), -1);
    assert_int_equal(image_tree_file(&p->tree, "out", &err), -1);
    assert_int_equal(image_tree_file(&p->tree, "in/x", &err), -1);
    assert_int_equal(image_tree_file(&p->tree, "f/x", &err), -1);
    assert_int_equal(image_tree_file(&p->tree, "d", &err), -1);
    assert_int_equal(image_tree_dir(&p->tree, "out", 0755, &err), -1);
    assert_int_equal(image_tree_dir(&p->tree, "f", 0755, &err), -1);
    assert_int_equal(image_tree_dir(&p->tree, "out/made/here", 0755, &err), -1);
    assert_int_equal(image_tree_symlink(&p->tree, "f", "x", &err), -1);
    assert_int_equal(image_tree_symlink(&p->tree, "d", "x", &err), -1);
    assert_int_equal(image_tree_hardlink(&p->tree, "h", "d", &err), -1);
    assert_int_equal(image_tree_hardlink(&p->tree, "h", "missing", &err), -1);
    assert_int_equal(image_tree_hardlink(&p->tree, "h", "out/passwd", &err), -1);
    assert_int_equal(image_tree_hardlink(&p->tree, "d", "f", &err), -1);
    assert_int_equal(access("/tmp/made", F_OK), -1);
    assert_int_equal(image_tree_open_dir(p->root, "out", &err), -1);
    assert_int_equal(image_tree_open_dir(p->root, "d/../../..", &err), -1);
}

static void test_remove(void **state) {
    struct place *p = *state;
    struct err err = {0};
    char deep[2 * IMAGE_TREE_DEPTH_MAX], outside[80];
    int fd;

    /* A tree as deep as any can be, and a link that must not be followed. */
    for (size_t i = 0; i < sizeof(deep); i++)
        deep[i] = i % 2 == 0 ? 'r' : '/';
    deep[sizeof(deep) - 1] = '\0';
    unit_works(image_tree_dir(&p->tree, deep, 0, &err), err);
    snprintf(outside, sizeof(outside), "%s/keep", p->path);
    fd = open(outside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    unit_works(image_tree_symlink(&p->tree, "r/link", "..", &err), err);
    unit_works(image_tree_remove(p->root, "r", &err), err);
    assert_int_equal(faccessat(p->root, "r", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    assert_int_equal(access(outside, F_OK), 0);
    unit_works(image_tree_remove(p->root, "keep", &err), err);
    unit_works(image_tree_remove(p->root, "keep", &err), err);
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_normalise), PLACED(test_entries),
                                       PLACED(test_refused), PLACED(test_remove)};
    return cmocka_run_group_tests_name("image_tree", tests, NULL, NULL);
}
