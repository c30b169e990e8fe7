/* The blob store: who has what, what is left after a crash, and what makes room for what. */
#include "blobs.h"

#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "unit.h"

#define UNIT_USER_BYTES ((uint64_t)10 << 30)
#define UNIT_AGE_MS ((uint64_t)7 * 24 * 60 * 60 * 1000)

struct fixture {
    char path[64];
    int dir;
    struct blobs *b;
};

static const struct blobs_options usual = {.user_bytes = UNIT_USER_BYTES, .age_ms = UNIT_AGE_MS};

static void open_store(struct fixture *f, const struct blobs_options *o) {
    struct err e;
    err_clear(&e);
    f->b = blobs_open(f->dir, o, &e);
    if (f->b == NULL)
        fail_msg("%s", e.text);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    snprintf(f->path, sizeof(f->path), "/tmp/unit-blobs-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    open_store(f, &usual);
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    blobs_close(f->b);
    close(f->dir);
    nftw(f->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

static void hash_of(const void *data, size_t len, unsigned char *sha256) {
    crypto_hash_sha256(sha256, data, len);
}

static int put(struct fixture *f, const char *user, const void *data, size_t len, bool *had,
               struct err *e) {
    unsigned char sha256[32];
    hash_of(data, len, sha256);
    struct blobs_put *p = blobs_put_start(f->b, user, len, e);
    if (p == NULL)
        return -1;
    if (blobs_put_write(p, data, len / 2, e) < 0 ||
        blobs_put_write(p, (const char *)data + len / 2, len - len / 2, e) < 0) {
        blobs_put_abort(p);
        return -1;
    }
    return blobs_put_finish(p, sha256, NULL, had, e);
}

static void put_ok(struct fixture *f, const char *user, const char *text, bool wanted) {
    struct err e;
    bool had = !wanted;
    unit_works(put(f, user, text, strlen(text), &had, &e), e);
    assert_int_equal(had, wanted);
}

static bool has(struct fixture *f, const char *user, const char *text) {
    unsigned char sha256[32];
    hash_of(text, strlen(text), sha256);
    return blobs_has(f->b, user, sha256, NULL);
}

static void test_what_was_put_can_be_read(void **state) {
    struct fixture *f = *state;
    unsigned char sha256[32];
    char got[16] = "";
    uint64_t size = 0;
    struct err e;
    put_ok(f, "ann", "hello", false);
    put_ok(f, "ann", "hello", true);
    put_ok(f, "ann", "", false);
    hash_of("hello", 5, sha256);
    fd_cleanup int fd = blobs_read(f->b, "ann", sha256, &size, &e);
    assert_true(fd >= 0);
    assert_int_equal(size, 5);
    assert_int_equal(read(fd, got, sizeof(got)), 5);
    assert_string_equal(got, "hello");
    assert_int_equal(blobs_usage(f->b, "ann").count, 2);
}

static void test_a_user_has_only_what_is_his(void **state) {
    struct fixture *f = *state;
    unsigned char sha256[32];
    uint64_t size;
    struct err e;
    put_ok(f, "ann", "secret", false);
    assert_false(has(f, "bob", "secret"));
    hash_of("secret", 6, sha256);
    unit_fails(blobs_read(f->b, "bob", sha256, &size, &e), e, ERR_INVALID);
    put_ok(f, "bob", "secret", false); /* not "had": that would tell that somebody has it */
    assert_true(has(f, "bob", "secret"));
}

static void test_another_hash_keeps_nothing(void **state) {
    struct fixture *f = *state;
    unsigned char wrong[32] = {1};
    struct err e;
    struct blobs_put *p = blobs_put_start(f->b, "ann", 3, &e);
    assert_non_null(p);
    unit_works(blobs_put_write(p, "abc", 3, &e), e);
    unit_fails(blobs_put_finish(p, wrong, NULL, NULL, &e), e, ERR_INVALID);
    assert_false(has(f, "ann", "abc"));
    assert_int_equal(blobs_usage(f->b, "ann").bytes, 0);
    p = blobs_put_start(f->b, "ann", 2, &e);
    unit_fails(blobs_put_write(p, "abc", 3, &e), e, ERR_INVALID);
    blobs_put_abort(p);
    assert_int_equal(blobs_usage(f->b, "ann").bytes, 0);
}

static void reopen(struct fixture *f, bool crash) {
    if (crash) { /* as if it had not been closed */
        struct blobs *b = f->b;
        open_store(f, &usual);
        blobs_close(b);
        return;
    }
    blobs_close(f->b);
    open_store(f, &usual);
}

static void write_file(struct fixture *f, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "%s/blobs/%s", f->path, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static bool exists(struct fixture *f, const char *name) {
    char path[256];
    snprintf(path, sizeof(path), "%s/blobs/%s", f->path, name);
    return access(path, F_OK) == 0;
}

static int files_of(struct fixture *f, const char *name) {
    char path[256];
    int n = 0;
    snprintf(path, sizeof(path), "%s/blobs/%s", f->path, name);
    char *const roots[] = {path, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL, NULL);
    assert_non_null(tree);
    for (const FTSENT *e; (e = fts_read(tree)) != NULL;)
        n += e->fts_info == FTS_F;
    fts_close(tree);
    return n;
}

static void test_a_restart_finds_it_again(void **state) {
    struct fixture *f = *state;
    put_ok(f, "ann", "one", false);
    put_ok(f, "bob", "one", false);
    reopen(f, false);
    assert_true(has(f, "ann", "one"));
    assert_true(has(f, "bob", "one"));
    assert_int_equal(blobs_usage(f->b, "ann").bytes, 4096);
    reopen(f, true);
    assert_true(has(f, "ann", "one"));
}

#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
#define ONE_REST "92c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"

static void test_leftovers_of_a_crash_go(void **state) {
    struct fixture *f = *state;
    put_ok(f, "ann", "one", false);
    write_file(f, "tmp/77", "half");
    write_file(f, "76/a2c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed", "orphan");
    write_file(f, "owners/ann/76/a2", "nonsense");
    reopen(f, true);
    assert_false(exists(f, "tmp/77"));
    assert_false(exists(f, "76/a2c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"));
    assert_false(exists(f, "owners/ann/76/a2"));
    assert_true(has(f, "ann", "one"));
    assert_int_equal(blobs_usage(f->b, "ann").count, 1);
}

static void test_a_machine_that_was_restarted_has_no_blobs(void **state) {
    struct fixture *f = *state;
    put_ok(f, "ann", "one", false);
    blobs_close(f->b);
    write_file(f, "boot", "another boot");
    open_store(f, &usual);
    assert_false(has(f, "ann", "one"));
    assert_false(exists(f, "76/" ONE_REST));
    put_ok(f, "ann", "one", false);
    reopen(f, false);
    assert_true(has(f, "ann", "one"));
}

static void test_bytes_live_as_long_as_somebody_has_them(void **state) {
    struct fixture *f = *state;
    struct blobs_options small = {.user_bytes = 3 * 4096, .age_ms = UNIT_AGE_MS};
    blobs_close(f->b);
    open_store(f, &small);
    put_ok(f, "ann", "one", false);
    put_ok(f, "bob", "one", false);
    put_ok(f, "ann", "2", false);
    put_ok(f, "ann", "3", false);
    put_ok(f, "ann", "4", false); /* the oldest of ann's goes */
    assert_false(has(f, "ann", "one"));
    assert_true(has(f, "bob", "one"));
    assert_true(exists(f, "76/" ONE_REST));
    put_ok(f, "bob", "2", false);
    put_ok(f, "bob", "3", false);
    put_ok(f, "bob", "4", false);
    assert_false(exists(f, "76/" ONE_REST));
    assert_int_equal(blobs_usage(f->b, "ann").bytes, 3 * 4096);
}

static void test_use_and_pins_keep_a_blob(void **state) {
    struct fixture *f = *state;
    struct blobs_options small = {.user_bytes = 3 * 4096, .age_ms = UNIT_AGE_MS};
    unsigned char one[32], two[32], later[32];
    uint64_t size;
    struct err e;
    blobs_close(f->b);
    open_store(f, &small);
    hash_of("one", 3, one);
    hash_of("two", 3, two);
    hash_of("later", 5, later);
    put_ok(f, "ann", "one", false);
    put_ok(f, "ann", "two", false);
    put_ok(f, "ann", "3", false);
    fd_cleanup int fd = blobs_read(f->b, "ann", one, &size, &e);
    assert_true(fd >= 0);
    assert_int_equal(blobs_pin(f->b, "ann", two), 0);
    assert_int_equal(blobs_pin(f->b, "ann", later), 0);
    put_ok(f, "ann", "4", false); /* not "two", which is pinned, nor "one", which was used: "3" */
    assert_false(has(f, "ann", "3"));
    put_ok(f, "ann", "later", false);
    assert_false(has(f, "ann", "one"));
    put_ok(f, "ann", "5", false);
    assert_true(has(f, "ann", "two") && has(f, "ann", "later"));
    hash_of("5", 1, one);
    assert_int_equal(blobs_pin(f->b, "ann", one), 0);
    bool had;
    err_clear(&e);
    assert_int_equal(put(f, "ann", "6", 1, &had, &e), -1);
    assert_int_equal(e.kind, ERR_LIMIT);
    blobs_unpin(f->b, "ann", one);
    put_ok(f, "ann", "6", false);
    blobs_unpin(f->b, "ann", two);
    blobs_unpin(f->b, "ann", later);
    blobs_unpin(f->b, "ann", later); /* once too often is harmless */
}

static void test_larger_than_the_quota(void **state) {
    struct fixture *f = *state;
    struct blobs_options small = {.user_bytes = 8192, .age_ms = UNIT_AGE_MS};
    char data[9000] = "";
    struct err e;
    blobs_close(f->b);
    open_store(f, &small);
    err_clear(&e);
    assert_null(blobs_put_start(f->b, "ann", 9000, &e));
    assert_int_equal(e.kind, ERR_LIMIT);
    struct blobs_put *p = blobs_put_start(f->b, "ann", UINT64_MAX, &e);
    assert_non_null(p);
    unit_fails(blobs_put_write(p, data, sizeof(data), &e), e, ERR_LIMIT);
    blobs_put_abort(p);
    assert_int_equal(blobs_usage(f->b, "ann").bytes, 0);
}

static void test_old_ones_expire(void **state) {
    struct fixture *f = *state;
    struct blobs_options none = {.user_bytes = UNIT_USER_BYTES, .age_ms = 0};
    put_ok(f, "ann", "one", false);
    blobs_close(f->b);
    open_store(f, &none);
    assert_false(has(f, "ann", "one"));
    assert_false(exists(f, "76/" ONE_REST));
}

/* One turn of the loop takes a part of what was evicted, which was gone for its owner at once. */
static void test_files_of_many_go_in_turns(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct loop *loop = loop_new(&e);
    assert_non_null(loop);
    struct blobs_options o = {.user_bytes = 300 * 4096, .age_ms = UNIT_AGE_MS, .loop = loop};
    char text[32];
    blobs_close(f->b);
    open_store(f, &o);
    for (int i = 0; i < 299; i++) {
        snprintf(text, sizeof(text), "blob %d", i);
        put_ok(f, "ann", text, false);
    }
    put_ok(f, "ann", "one", false);
    struct blobs_put *p = blobs_put_start(f->b, "ann", 300 * 4096 - 1, &e); /* in place of all */
    assert_non_null(p);
    blobs_put_abort(p);
    assert_int_equal(blobs_usage(f->b, "ann").bytes, 0);
    assert_false(has(f, "ann", "one"));
    assert_true(exists(f, "76/" ONE_REST));
    put_ok(f, "ann", "one", false);
    int before = files_of(f, "owners/ann"), turns = 0;
    assert_int_equal(before, 300);
    for (int left = before; left > 1 && turns < 100; turns++) {
        assert_int_equal(loop_once(loop, 0, &e), 0);
        int now = files_of(f, "owners/ann");
        assert_in_range(left - now, 0, 100);
        left = now;
    }
    assert_in_range(turns, 3, 99);
    assert_true(has(f, "ann", "one")); /* which came again meanwhile */
    assert_true(exists(f, "owners/ann/76/" ONE_REST) && exists(f, "76/" ONE_REST));
    for (int i = 0; i < 299; i += 30) {
        snprintf(text, sizeof(text), "blob %d", i);
        put_ok(f, "ann", text, false);
    }
    blobs_close(f->b);
    o.user_bytes = 4096;
    open_store(f, &o);
    assert_int_equal(blobs_usage(f->b, "ann").count, 1);
    blobs_close(f->b); /* with files still to be removed */
    f->b = NULL;
    loop_free(loop);
}

static void test_names_of_users_make_no_paths(void **state) {
    struct fixture *f = *state;
    struct err e;
    err_clear(&e);
    assert_null(blobs_put_start(f->b, "../x", 1, &e));
    assert_null(blobs_put_start(f->b, "a/b", 1, &e));
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_what_was_put_can_be_read),
        T(test_a_user_has_only_what_is_his),
        T(test_another_hash_keeps_nothing),
        T(test_a_restart_finds_it_again),
        T(test_leftovers_of_a_crash_go),
        T(test_a_machine_that_was_restarted_has_no_blobs),
        T(test_bytes_live_as_long_as_somebody_has_them),
        T(test_use_and_pins_keep_a_blob),
        T(test_larger_than_the_quota),
        T(test_old_ones_expire),
        T(test_files_of_many_go_in_turns),
        T(test_names_of_users_make_no_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
