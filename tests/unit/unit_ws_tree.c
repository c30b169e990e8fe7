#include "ws_tree.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

struct place {
    char path[64];
    int root;
    struct ws_tree tree;
    struct err err;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int set_up(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    snprintf(p->path, sizeof(p->path), "/tmp/pinfold-tree-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->root = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return 0;
}

static int tear_down(void **state) {
    struct place *p = *state;
    ws_tree_done(&p->tree);
    close(p->root);
    assert_int_equal(nftw(p->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(p);
    return 0;
}

static void put(struct place *p, const char *name, const char *text) {
    int fd = openat(p->root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void take(struct place *p, const struct ws_tree *before,
                 bool (*may_send)(void *arg, const char *path)) {
    struct ws_tree_options o = {
        .root = p->root, .before = before, .may_send = may_send, .same_policy = before != NULL};
    struct ws_tree tree;
    unit_works(ws_tree_take(&o, &tree, &p->err), p->err);
    ws_tree_done(&p->tree);
    p->tree = tree;
}

static void test_what_is_there(void **state) {
    static const char *const paths[] = {".gitignore", "a", "a/b.txt", "empty", "link", "run.sh"};
    struct place *p = *state;
    assert_int_equal(mkdirat(p->root, "a", 0750), 0);
    assert_int_equal(mkdirat(p->root, "empty", 0755), 0);
    assert_int_equal(mkdirat(p->root, "out", 0755), 0);
    assert_int_equal(mkfifoat(p->root, "fifo", 0644), 0);
    assert_int_equal(symlinkat("/etc/passwd", p->root, "link"), 0);
    put(p, "a/b.txt", "hello");
    put(p, "out/x", "x");
    put(p, "run.sh", "");
    assert_int_equal(fchmodat(p->root, "run.sh", 0755, 0), 0);
    put(p, ".gitignore", "out/\n");
    take(p, NULL, NULL);
    assert_int_equal(p->tree.count, UNIT_COUNT(paths));
    for (size_t i = 0; i < UNIT_COUNT(paths); i++)
        assert_string_equal(p->tree.entries[i].path, paths[i]);
    const struct ws_entry *e = ws_tree_find(&p->tree, "a/b.txt");
    assert_int_equal(e->size, 5);
    assert_memory_equal(e->sha256, "\x2c\xf2\x4d\xba\x5f\xb0\xa3\x0e", 8);
    assert_string_equal(ws_tree_find(&p->tree, "link")->target, "/etc/passwd");
    assert_int_equal(ws_tree_find(&p->tree, "run.sh")->mode, 0755);
    assert_int_equal(ws_tree_find(&p->tree, "a")->mode, 0750);
    assert_int_equal(p->tree.left_out, 1);
}

static bool no_secrets(void *arg, const char *path) {
    (void)arg;
    return strstr(path, "secret") == NULL;
}

static void test_what_is_withheld(void **state) {
    struct place *p = *state;
    unsigned char with[WS_TREE_HASH], without[WS_TREE_HASH];
    put(p, "a", "1");
    take(p, NULL, NULL);
    ws_tree_digest(&p->tree, without);
    assert_int_equal(mkdirat(p->root, "secrets", 0755), 0);
    put(p, "secrets/x", "k");
    put(p, "secret.key", "k");
    take(p, NULL, no_secrets);
    assert_true(ws_tree_find(&p->tree, "secret.key")->withheld);
    assert_true(ws_tree_find(&p->tree, "secrets")->withheld);
    assert_null(ws_tree_find(&p->tree, "secrets/x"));
    ws_tree_digest(&p->tree, with);
    assert_memory_equal(with, without, sizeof(with));
}

static bool is_withheld(const struct place *p, const char *path) {
    const struct ws_entry *e = ws_tree_find(&p->tree, path);
    assert_non_null(e);
    return e->withheld;
}

static void test_another_name_of_what_is_withheld_is_withheld(void **state) {
    struct place *p = *state;
    struct ws_tree before;
    unsigned char digest[WS_TREE_HASH], same[WS_TREE_HASH];
    put(p, "mine", "1");
    assert_int_equal(linkat(p->root, "mine", p->root, "too", 0), 0);
    take(p, NULL, no_secrets);
    ws_tree_digest(&p->tree, digest);
    /* In plain sight, in a directory that is not entered, and left out. */
    put(p, "secret.key", "k");
    assert_int_equal(mkdirat(p->root, "secrets", 0755), 0);
    put(p, "secrets/x", "k");
    put(p, "secret.out", "k");
    put(p, ".pinfoldignore", "secret.out\n");
    assert_int_equal(linkat(p->root, "secret.key", p->root, "a", 0), 0);
    assert_int_equal(linkat(p->root, "secrets/x", p->root, "b", 0), 0);
    assert_int_equal(linkat(p->root, "secret.out", p->root, "c", 0), 0);
    take(p, NULL, no_secrets);
    assert_true(is_withheld(p, "a") && is_withheld(p, "b") && is_withheld(p, "c"));
    assert_false(is_withheld(p, "mine") || is_withheld(p, "too"));
    assert_int_equal(unlinkat(p->root, ".pinfoldignore", 0), 0);
    assert_int_equal(unlinkat(p->root, "secret.out", 0), 0);
    assert_int_equal(unlinkat(p->root, "c", 0), 0);
    take(p, NULL, no_secrets);
    ws_tree_digest(&p->tree, same);
    assert_memory_equal(digest, same, sizeof(digest));
    /* What is known of before is no way around it, and it ends with the other name. */
    before = p->tree;
    p->tree = (struct ws_tree){0};
    take(p, &before, no_secrets);
    assert_true(is_withheld(p, "a"));
    assert_int_equal(unlinkat(p->root, "secret.key", 0), 0);
    take(p, &before, no_secrets);
    assert_false(is_withheld(p, "a"));
    assert_true(is_withheld(p, "b"));
    ws_tree_done(&before);
}

/* Waits until a change would be seen in the time stamps. */
static void settle(void) {
    struct timespec t = {.tv_nsec = 30 * 1000 * 1000};
    nanosleep(&t, NULL);
}

static void test_what_is_known_is_not_read_again(void **state) {
    struct place *p = *state;
    struct ws_tree cached;
    unsigned char policy[WS_TREE_HASH] = {7}, got[WS_TREE_HASH], a[WS_TREE_HASH], b[WS_TREE_HASH];
    put(p, "a", "1");
    put(p, "b", "2");
    settle();
    take(p, NULL, NULL);
    assert_int_equal(p->tree.hashed, 2);
    ws_tree_digest(&p->tree, a);
    unit_works(ws_cache_save(p->root, ".pinfold", &p->tree, policy, &p->err), p->err);
    unit_works(ws_cache_load(p->root, ".pinfold", &cached, got, &p->err), p->err);
    assert_memory_equal(got, policy, sizeof(got));
    take(p, &cached, NULL);
    assert_int_equal(p->tree.hashed, 0);
    ws_tree_digest(&p->tree, b);
    assert_memory_equal(a, b, sizeof(a));
    put(p, "b", "3"); /* same size */
    take(p, &cached, NULL);
    assert_int_equal(p->tree.hashed, 1);
    ws_tree_digest(&p->tree, b);
    assert_memory_not_equal(a, b, sizeof(a));
    ws_tree_done(&cached);
}

/* Then neither it nor its digest need be made anew. */
static void test_what_is_unchanged_is_told(void **state) {
    struct place *p = *state;
    struct ws_tree cached;
    unsigned char policy[WS_TREE_HASH] = {0}, a[WS_TREE_HASH], b[WS_TREE_HASH];
    put(p, "a", "1");
    assert_int_equal(mkdirat(p->root, "d", 0755), 0);
    assert_int_equal(symlinkat("a", p->root, "link"), 0);
    settle();
    take(p, NULL, NULL);
    ws_tree_digest(&p->tree, a);
    unit_works(ws_cache_save(p->root, ".pinfold", &p->tree, policy, &p->err), p->err);
    unit_works(ws_cache_load(p->root, ".pinfold", &cached, policy, &p->err), p->err);
    take(p, &cached, NULL);
    assert_true(ws_tree_unchanged(&p->tree, &cached));
    ws_tree_digest(&p->tree, b);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(fchmodat(p->root, "d", 0700, 0), 0);
    take(p, &cached, NULL);
    assert_false(ws_tree_unchanged(&p->tree, &cached));
    ws_tree_digest(&p->tree, b);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(fchmodat(p->root, "d", 0755, 0), 0);
    assert_int_equal(unlinkat(p->root, "link", 0), 0);
    assert_int_equal(symlinkat("b", p->root, "link"), 0);
    take(p, &cached, NULL);
    assert_false(ws_tree_unchanged(&p->tree, &cached));
    put(p, "b", "");
    take(p, &cached, NULL);
    assert_false(ws_tree_unchanged(&p->tree, &cached));
    ws_tree_done(&cached);
}

/* Written in the moment before the picture: its times cannot tell whether it changed since. */
static void test_a_change_within_the_grain_of_the_clock(void **state) {
    struct place *p = *state;
    struct ws_tree first;
    put(p, "a", "1");
    take(p, NULL, NULL);
    first = p->tree;
    p->tree = (struct ws_tree){0};
    take(p, &first, NULL);
    assert_int_equal(p->tree.hashed, 1);
    ws_tree_done(&first);
}

static void test_a_cache_that_was_spoilt(void **state) {
    struct place *p = *state;
    struct ws_tree tree;
    unsigned char policy[WS_TREE_HASH] = {0};
    put(p, "a", "1");
    take(p, NULL, NULL);
    unit_works(ws_cache_save(p->root, "cache", &p->tree, policy, &p->err), p->err);
    int fd = openat(p->root, "cache", O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "X", 1, 40), 1);
    close(fd);
    unit_fails(ws_cache_load(p->root, "cache", &tree, policy, &p->err), p->err, ERR_INVALID);
    put(p, "cache", "");
    unit_fails(ws_cache_load(p->root, "cache", &tree, policy, &p->err), p->err, ERR_INVALID);
}

/* An ignore file that cannot be read might have left a secret out: nothing is sent. */
static void test_an_ignore_file_that_cannot_be_read(void **state) {
    struct place *p = *state;
    struct ws_tree_options o = {.root = p->root};
    struct ws_tree tree;
    assert_int_equal(symlinkat("nowhere", p->root, ".gitignore"), 0);
    assert_int_equal(ws_tree_take(&o, &tree, &p->err), -1);
    assert_true(p->err.text[0] != '\0');
}

static void test_a_file_that_becomes_a_link(void **state) {
    struct place *p = *state;
    assert_int_equal(symlinkat("/etc/passwd", p->root, "a"), 0);
    assert_int_equal(ws_tree_open(p->root, "a", &p->err), -1);
    assert_int_equal(mkfifoat(p->root, "fifo", 0644), 0);
    assert_int_equal(ws_tree_open(p->root, "fifo", &p->err), -1);
    assert_int_equal(ws_tree_open(p->root, "../etc/passwd", &p->err), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_withheld, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_name_of_what_is_withheld_is_withheld, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_known_is_not_read_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_unchanged_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_change_within_the_grain_of_the_clock, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_cache_that_was_spoilt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_ignore_file_that_cannot_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_that_becomes_a_link, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ws_tree", tests, NULL, NULL);
}
