#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clock.h"
#include "store_internal.h"
#include "unit.h"

struct place {
    char path[64];
    int dir;
    struct loop *loop;
    struct log log;
};

static int setup(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    struct err err;
    snprintf(p->path, sizeof(p->path), "/tmp/unit-store-XXXXXX");
    if (mkdtemp(p->path) == NULL)
        return -1;
    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->loop = loop_new(&err);
    log_init(&p->log, -1, LOG_ERROR, "unit");
    *state = p;
    return 0;
}

static int teardown(void **state) {
    struct place *p = *state;
    static const char *const names[] = {STORE_FILE, STORE_FILE "-wal", STORE_FILE "-shm"};
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        unlinkat(p->dir, names[i], 0);
    close(p->dir);
    loop_free(p->loop);
    int rc = rmdir(p->path);
    free(p);
    return rc;
}

static struct store *open_store(struct place *p, bool loop) {
    struct err err = {0};
    struct store *s = NULL;
    struct store_options o = {.loop = loop ? p->loop : NULL, .log = &p->log, .dir = p->dir};
    unit_works(store_open(&o, &s, &err), err);
    return s;
}

static void add_user(struct store *s, const char *name, struct err *err, int expected) {
    static const char sql[] = "INSERT INTO users (name, created_ms) VALUES (?, 1)";
    int rc = store_begin(s, err);
    if (rc == 0) {
        sqlite3_stmt *q = store_sql(s, sql, err);
        assert_non_null(q);
        store_sql_text(q, 1, name);
        rc = store_end(s, store_sql_run(s, q, err), err);
    }
    assert_int_equal(rc, expected);
}

static uint64_t number(struct store *s, const char *sql) {
    struct err err = {0};
    sqlite3_stmt *q = store_sql(s, sql, &err);
    if (q == NULL || store_sql_row(s, q, &err) != 1)
        fail_msg("%s: %s", sql, err.text);
    uint64_t n = store_sql_get_u64(q, 0);
    store_sql_reset(q);
    return n;
}

static const char users[] = "SELECT count(*) FROM users";

struct told {
    int calls, rc;
    struct store *store;
    uint64_t seen; /* users when it was called */
};

static void tell(void *arg, int rc, const struct err *err) {
    struct told *t = arg;
    assert_true((rc == 0) == (err == NULL));
    t->calls++;
    t->rc = rc;
    t->seen = number(t->store, users);
}

static void test_keeps_what_was_written(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, false);
    add_user(s, "anna", &err, 0);
    store_close(s);
    s = open_store(p, false);
    assert_int_equal(number(s, users), 1);
    assert_int_equal(number(s, "PRAGMA synchronous"), 1);
    assert_null(store_sick(s));
    store_close(s);
}

static void test_a_round_is_one_transaction_and_who_waits_is_told_after_it(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, true), *other = open_store(p, false);
    struct told t = {.store = other};
    struct store_waiter w = {.fn = tell, .arg = &t};
    add_user(s, "anna", &err, 0);
    assert_true(store_writing(s));
    store_then(s, &w);
    store_then(s, &w);
    add_user(s, "bert", &err, 0);
    assert_int_equal(t.calls, 0);
    assert_int_equal(number(other, users), 0);
    unit_works(loop_once(p->loop, 0, &err), err);
    assert_int_equal(t.calls, 1);
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.seen, 2);
    assert_int_equal(s->writes, 1);
    assert_false(store_writing(s));
    /* Nothing was written in this one. */
    store_then(s, &w);
    assert_int_equal(t.calls, 2);
    store_close(other);
    store_close(s);
}

static void test_who_goes_away_is_not_told(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, true);
    struct told a = {.store = s}, b = {.store = s};
    struct store_waiter first = {.fn = tell, .arg = &a}, second = {.fn = tell, .arg = &b};
    add_user(s, "anna", &err, 0);
    store_then(s, &first);
    store_then(s, &second);
    store_then_stop(s, &second);
    store_then_stop(s, &second);
    store_close(s); /* commits, and tells */
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 0);
}

static void test_a_constraint_undoes_its_statement_only(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, true);
    struct told t = {.store = s};
    struct store_waiter w = {.fn = tell, .arg = &t};
    add_user(s, "anna", &err, 0);
    add_user(s, "anna", &err, -1);
    assert_int_equal(err.kind, ERR_STATE);
    add_user(s, "bert", &err, 0);
    store_then(s, &w);
    unit_works(loop_once(p->loop, 0, &err), err);
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.seen, 2);
    store_close(s);
}

/* No more pages than there are: as when the disk is full. */
static void limit_pages(struct store *s, bool limited) {
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA max_page_count=%llu",
             limited ? (unsigned long long)number(s, "PRAGMA page_count") : 4000000000ULL);
    assert_int_equal(sqlite3_exec(s->db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static void write_too_much(struct store *s) {
    static const char filler[] = "INSERT INTO probe (filler) VALUES (zeroblob(100000))";
    struct err err = {0};
    sqlite3_stmt *q = store_sql(s, filler, &err);
    unit_works(store_begin(s, &err), err);
    unit_fails(store_end(s, store_sql_run(s, q, &err), &err), err, ERR_LIMIT);
}

/* A part of the round is committed before its end: who waited for that part is told of it, and not
 * of what failed afterwards; who waits for both is told that it failed. */
static void test_who_waits_is_told_of_his_own_part(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, true);
    struct told a = {.store = s}, b = {.store = s}, c = {.store = s};
    struct store_waiter first = {.fn = tell, .arg = &a}, second = {.fn = tell, .arg = &b},
                        both = {.fn = tell, .arg = &c};
    add_user(s, "anna", &err, 0);
    store_then(s, &first);
    store_then(s, &both);
    unit_works(store_commit_now(s, &err), err);
    limit_pages(s, true);
    add_user(s, "bert", &err, 0);
    store_then(s, &second);
    store_then(s, &both);
    write_too_much(s);
    unit_works(loop_once(p->loop, 0, &err), err);
    assert_int_equal(a.rc, 0);
    assert_int_equal(b.rc, -1);
    assert_int_equal(c.rc, -1);
    assert_int_equal(a.calls + b.calls + c.calls, 3);
    assert_int_equal(number(s, users), 1);
    store_close(s);
}

/* The other way round: the part fails, and what comes later in the round is no better. */
static void test_a_part_that_failed_is_told_at_the_end(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, true);
    struct told a = {.store = s}, b = {.store = s};
    struct store_waiter first = {.fn = tell, .arg = &a}, later = {.fn = tell, .arg = &b};
    limit_pages(s, true);
    add_user(s, "anna", &err, 0);
    store_then(s, &first);
    write_too_much(s);
    assert_int_equal(store_commit_now(s, &err), -1);
    store_then(s, &later);
    unit_works(loop_once(p->loop, 0, &err), err);
    assert_int_equal(a.rc, -1);
    assert_int_equal(b.rc, -1);
    assert_int_equal(number(s, users), 0);
    store_close(s);
}

static void test_a_full_disk_rolls_the_round_back_and_is_told_and_passes(void **state) {
    static const char filler[] = "INSERT INTO probe (filler) VALUES (zeroblob(100000))";
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, true);
    struct told t = {.store = s};
    struct store_waiter w = {.fn = tell, .arg = &t};
    limit_pages(s, true);
    add_user(s, "anna", &err, 0);
    store_then(s, &w);
    sqlite3_stmt *q = store_sql(s, filler, &err);
    unit_works(store_begin(s, &err), err);
    unit_fails(store_end(s, store_sql_run(s, q, &err), &err), err, ERR_LIMIT);
    /* The rest of the round fails at once. */
    add_user(s, "bert", &err, -1);
    unit_works(loop_once(p->loop, 0, &err), err);
    assert_int_equal(t.calls, 1);
    assert_int_equal(t.rc, -1);
    assert_int_equal(t.seen, 0);
    assert_non_null(store_sick(s));
    assert_true(store_full(s));
    assert_true(store_probe(s) == false);
    unit_works(loop_once(p->loop, 0, &err), err);
    assert_non_null(store_sick(s));
    limit_pages(s, false);
    uint64_t due = clock_mono_ms() + 5000;
    while (store_sick(s) != NULL && clock_mono_ms() < due)
        unit_works(loop_once(p->loop, CLOCK_NS_PER_MS * 50, &err), err);
    assert_null(store_sick(s));
    add_user(s, "anna", &err, 0);
    store_close(s);
}

static void test_refuses_a_newer_database_and_leaves_it_alone(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, false);
    assert_int_equal(sqlite3_exec(s->db, "PRAGMA user_version=9999", NULL, NULL, NULL), SQLITE_OK);
    store_close(s);
    struct stat before, after;
    assert_int_equal(fstatat(p->dir, STORE_FILE, &before, 0), 0);
    struct store_options o = {.dir = p->dir};
    struct store *none = NULL;
    unit_fails(store_open(&o, &none, &err), err, ERR_STATE);
    assert_null(none);
    assert_non_null(strstr(err.text, "9999"));
    assert_int_equal(fstatat(p->dir, STORE_FILE, &after, 0), 0);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_equal(before.st_size, after.st_size);
}

static void test_steps_are_made_once_each_by_whoever_comes(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *s = open_store(p, false);
    uint64_t version = number(s, "PRAGMA user_version");
    assert_true(version >= 3);
    store_close(s);
    /* As an older version left it: the last step is missing. */
    s = open_store(p, false);
    assert_int_equal(sqlite3_exec(s->db, "INSERT INTO users (name, created_ms) VALUES ('a', 1)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    store_close(s);
    s = open_store(p, false);
    unit_works(store_migrate(s, &err), err);
    assert_int_equal(number(s, "PRAGMA user_version"), version);
    assert_int_equal(number(s, users), 1);
    store_close(s);
}

static void test_a_directory_of_somebody_else_is_refused(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct store *none = NULL;
    struct store_options o = {.dir = p->dir};
    if (geteuid() != 0)
        skip();
    assert_int_equal(fchown(p->dir, 12345, 12345), 0);
    unit_fails(store_open(&o, &none, &err), err, ERR_STATE);
    assert_int_equal(faccessat(p->dir, STORE_FILE, F_OK, 0), -1);
}

static void test_the_log_is_brought_in_beside_the_loop(void **state) {
    static const char filler[] = "INSERT INTO probe (filler) VALUES (zeroblob(200000))";
    struct place *p = *state;
    struct err err = {0};
    struct stat st = {0};
    struct store *s = open_store(p, true);
    for (int i = 0; i < 40; i++) {
        unit_works(store_begin(s, &err), err);
        sqlite3_stmt *q = store_sql(s, filler, &err);
        unit_works(store_end(s, store_sql_run(s, q, &err), &err), err);
        unit_works(loop_once(p->loop, 0, &err), err);
    }
    /* 8 MB were written; the thread moves them although nobody asks. */
    uint64_t due = clock_mono_ms() + 5000;
    while (st.st_size < 4000000 && clock_mono_ms() < due)
        assert_int_equal(fstatat(p->dir, STORE_FILE, &st, 0), 0);
    assert_true(st.st_size >= 4000000);
    store_close(s);
    assert_int_equal(faccessat(p->dir, STORE_FILE "-wal", F_OK, 0), -1);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_keeps_what_was_written),
        TEST(test_a_round_is_one_transaction_and_who_waits_is_told_after_it),
        TEST(test_who_goes_away_is_not_told),
        TEST(test_a_constraint_undoes_its_statement_only),
        TEST(test_who_waits_is_told_of_his_own_part),
        TEST(test_a_part_that_failed_is_told_at_the_end),
        TEST(test_a_full_disk_rolls_the_round_back_and_is_told_and_passes),
        TEST(test_refuses_a_newer_database_and_leaves_it_alone),
        TEST(test_steps_are_made_once_each_by_whoever_comes),
        TEST(test_a_directory_of_somebody_else_is_refused),
        TEST(test_the_log_is_brought_in_beside_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
