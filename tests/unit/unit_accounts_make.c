#include "accounts_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accounts_quota.h"
#include "accounts_scope.h"
#include "clock.h"
#include "unit.h"

#define NOW ((uint64_t)1790000000000)
#define DAY ((uint64_t)86400000)

static struct accounts *a;
static struct err err;

static int setup(void **state) {
    struct accounts_user u = {.name = "ann"};
    (void)state;
    a = accounts_new(&err);
    return a != NULL && accounts_put_user(a, &u, &err) != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    accounts_free(a);
    return 0;
}

static struct accounts_token *add(const struct accounts_wish *w, const char *parent) {
    struct accounts_token row;
    char text[TOKEN_TEXT_LEN + 1];
    struct token_hash hash;
    unit_works(accounts_make_token(w, accounts_user_find(a, "ann"), &row, text, &err), err);
    assert_true(token_is_form(text, strlen(text)));
    token_hash(text, strlen(text), &hash);
    assert_true(token_equal(&hash, &row.hash));
    struct accounts_token *t = accounts_put_token(a, &row, "ann", parent, &err);
    assert_non_null(t);
    return t;
}

static void test_times(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t wanted;
    } rows[] = {
        {"never", ACCOUNTS_NEVER},
        {"90m", NOW + 90 * 60000},
        {"12h", NOW + 12 * 3600000},
        {"30d", NOW + 30 * DAY},
        {"1970-01-02", DAY},
        {"2027-01-31", 1801353600000},
        {"2027-01-31T12:00:00Z", 1801353600000 + DAY / 2},
        {"2027-01-31T12:00Z", 1801353600000 + DAY / 2},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        uint64_t got = 7;
        unit_works(accounts_make_time(rows[i].text, NOW, &got, &err), err);
        assert_true(got == rows[i].wanted);
    }
    static const char *const wrong[] = {"",
                                        "d",
                                        "-1d",
                                        "0d",
                                        "0s",
                                        "1 d",
                                        "2027-13-01",
                                        "soon",
                                        "99999999d",
                                        "never ",
                                        "2027-01-31T12:00:00",
                                        "18446744073709551615h"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++) {
        uint64_t got = 7;
        unit_fails(accounts_make_time(wrong[i], NOW, &got, &err), err, ERR_INVALID);
        assert_int_equal(got, 7);
    }
}

static void test_policies(void **state) {
    (void)state;
    char *out = NULL;
    unit_works(accounts_make_policies("default,ci", &out, &err), err);
    assert_memory_equal(out, "default\0ci\0", 12);
    free(out);
    static const char *const wrong[] = {"", ",", "a,", ",a", "a,,b", "a b", "../x"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++)
        unit_fails(accounts_make_policies(wrong[i], &out, &err), err, ERR_INVALID);
    char many[512];
    char *at = stpcpy(many, "a");
    for (unsigned i = 0; i < ACCOUNTS_POLICIES_MAX; i++)
        at = stpcpy(at, ",a");
    unit_fails(accounts_make_policies(many, &out, &err), err, ERR_INVALID);
}

static void test_quota_words(void **state) {
    (void)state;
    struct quota_limits q, again;
    accounts_quota_unlimited(&q);
    unit_works(accounts_quota_set(&q, "runs=10", &err), err);
    unit_works(accounts_quota_set(&q, "mem_bytes=4G", &err), err);
    unit_works(accounts_quota_set(&q, "cpu_ms_per_day=2h", &err), err);
    assert_int_equal(q.v[QUOTA_RUNS], 10);
    assert_true(q.v[QUOTA_MEM_BYTES] == (uint64_t)4 << 30);
    assert_int_equal(q.v[QUOTA_CPU_MS_PER_DAY], 7200000);
    static const char *const wrong[] = {"runs",    "runs=",   "=1",     "run=1",
                                        "runs=-1", "runs=1k", "runss=1"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++)
        unit_fails(accounts_quota_set(&q, wrong[i], &err), err, ERR_INVALID);
    /* And through the store's text. */
    struct buf text;
    struct json_out j;
    buf_init(&text, 1024);
    json_out_init(&j, &text);
    accounts_quota_write(&j, NULL, &q, false);
    unit_works(json_out_end(&j, &err), err);
    unit_works(accounts_quota_read(text.data, &again, &err), err);
    assert_memory_equal(&q, &again, sizeof(q));
    buf_done(&text);
    unit_works(accounts_quota_set(&q, "runs=none", &err), err);
    assert_true(q.v[QUOTA_RUNS] == QUOTA_NONE);
    unit_works(accounts_quota_set(&q, "runs=default", &err), err);
    assert_true(q.v[QUOTA_RUNS] == QUOTA_UNLIMITED);
    unit_works(accounts_quota_read("{\"from_the_future\":1}", &again, &err), err);
    unit_fails(accounts_quota_read("[]", &again, &err), err, ERR_INVALID);
}

static void test_scope_words(void **state) {
    (void)state;
    unsigned scopes = 0;
    char names[ACCOUNTS_SCOPE_NAMES_SIZE];
    unit_works(accounts_scope_parse("run,read", &scopes, &err), err);
    assert_int_equal(scopes, ACCOUNTS_RUN | ACCOUNTS_READ);
    accounts_scope_names(scopes, " or ", names);
    assert_string_equal(names, "run or read");
    accounts_scope_names(ACCOUNTS_SCOPES_ALL, ", ", names);
    assert_string_equal(names, "run, sandbox, files, admin, metrics, read");
    accounts_scope_names(0, ", ", names);
    assert_string_equal(names, "");
    static const char *const wrong[] = {"", "run,", "Run", "run read", "runs"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++)
        unit_fails(accounts_scope_parse(wrong[i], &scopes, &err), err, ERR_INVALID);
}

static void test_defaults(void **state) {
    (void)state;
    struct accounts_wish w;
    accounts_make_wish(&w);
    assert_int_equal(add(&w, NULL)->scopes, ACCOUNTS_SCOPES_USER);
    accounts_user_find(a, "ann")->admin = true;
    assert_int_equal(add(&w, NULL)->scopes, ACCOUNTS_SCOPES_ALL);
    struct accounts_token row;
    char text[TOKEN_TEXT_LEN + 1];
    w.label = "a\nb";
    unit_fails(accounts_make_token(&w, accounts_user_find(a, "ann"), &row, text, &err), err,
               ERR_INVALID);
}

static int narrow(const struct accounts_token *parent, struct accounts_wish *w, const char *field) {
    struct api_error error = {0};
    int rc = accounts_make_narrow(a, parent, w, &error);
    assert_string_equal(error.field, field);
    assert_int_equal(error.status, rc == 0 ? 0 : 403);
    return rc;
}

static void test_narrowing(void **state) {
    (void)state;
    struct accounts_wish w;
    accounts_make_wish(&w);
    w.scopes = ACCOUNTS_RUN | ACCOUNTS_ADMIN;
    w.policies = "default\0ci\0";
    w.expires_ms = NOW + 100;
    w.until_ms = NOW + 50;
    w.cpu_budget_ms = 1000;
    w.runs_budget = 10;
    w.quota.v[QUOTA_SANDBOXES] = 3;
    struct accounts_token *parent = add(&w, NULL);
    /* Everything open: everything is inherited, but not admin. */
    accounts_make_wish(&w);
    assert_int_equal(narrow(parent, &w, ""), 0);
    assert_int_equal(w.scopes, ACCOUNTS_RUN);
    assert_string_equal(w.policies, "default");
    assert_true(w.expires_ms == NOW + 100 && w.until_ms == NOW + 50);
    assert_true(w.cpu_budget_ms == 1000 && w.runs_budget == 10);
    assert_int_equal(w.quota.v[QUOTA_SANDBOXES], 3);
    /* Asked for, admin is given. */
    accounts_make_wish(&w);
    w.scopes = ACCOUNTS_ADMIN;
    assert_int_equal(narrow(parent, &w, ""), 0);
    accounts_make_wish(&w);
    w.scopes = ACCOUNTS_RUN | ACCOUNTS_FILES;
    assert_int_equal(narrow(parent, &w, "/scopes"), -1);
    accounts_make_wish(&w);
    w.policies = "default\0judge\0";
    assert_int_equal(narrow(parent, &w, "/policies"), -1);
    accounts_make_wish(&w);
    w.expires_ms = NOW + 101;
    assert_int_equal(narrow(parent, &w, "/expires_at"), -1);
    accounts_make_wish(&w);
    w.quota.v[QUOTA_SANDBOXES] = 4;
    assert_int_equal(narrow(parent, &w, "/quota/sandboxes"), -1);
    accounts_make_wish(&w);
    w.runs_budget = 11;
    assert_int_equal(narrow(parent, &w, "/budget/runs"), -1);
}

static void test_depth_and_number(void **state) {
    (void)state;
    struct accounts_wish w;
    struct api_error error = {0};
    accounts_make_wish(&w);
    struct accounts_token *t = add(&w, NULL);
    struct accounts_token *first = t;
    for (unsigned i = 0; i < ACCOUNTS_DEPTH_MAX; i++) {
        assert_int_equal(accounts_make_narrow(a, t, &w, &error), 0);
        t = add(&w, t->id);
    }
    assert_int_equal(t->depth, ACCOUNTS_DEPTH_MAX);
    assert_int_equal(accounts_make_narrow(a, t, &w, &error), -1);
    assert_string_equal(error.code, "too_deep");
    for (unsigned i = ACCOUNTS_DEPTH_MAX; i < ACCOUNTS_CHILDREN_MAX; i++)
        add(&w, first->id);
    assert_int_equal(accounts_make_narrow(a, first, &w, &error), -1);
    assert_int_equal(error.status, 429);
    /* One that is revoked makes room. */
    uint64_t next;
    t->withdrawn = true;
    assert_int_equal(accounts_mark(a, NOW, &next), 1);
    assert_int_equal(accounts_make_narrow(a, first, &w, &error), 0);
    /* And one below it may come back with its user, and goes with the table. */
    struct accounts_user *ann = accounts_user_find(a, "ann");
    assert_int_equal(ann->children, ACCOUNTS_CHILDREN_MAX);
    assert_int_equal(ann->live_children, ACCOUNTS_CHILDREN_MAX - 1);
    assert_int_equal(accounts_live_tokens(a), ACCOUNTS_CHILDREN_MAX);
    ann->disabled = true;
    accounts_mark(a, NOW, &next);
    assert_int_equal(ann->live_children, 0);
    ann->disabled = false;
    accounts_mark(a, NOW, &next);
    assert_int_equal(ann->live_children, ACCOUNTS_CHILDREN_MAX - 1);
    accounts_begin(a);
    ann->seen = first->seen = true;
    accounts_end(a, NOW, &next);
    assert_int_equal(ann->children + ann->live_children, 0);
    assert_int_equal(accounts_live_tokens(a), 1);
}

/* A walk through all of them would take minutes. */
static void test_many_cost_nothing(void **state) {
    (void)state;
    struct accounts_wish w;
    struct api_error error = {0};
    accounts_make_wish(&w);
    struct accounts_token *first = add(&w, NULL);
    for (unsigned i = 0; i < 20000; i++)
        add(&w, NULL);
    uint64_t began = clock_mono_ms();
    for (unsigned i = 0; i < 20000; i++)
        assert_int_equal(accounts_make_narrow(a, first, &w, &error), 0);
    assert_true(clock_mono_ms() - began < 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_times, setup, teardown),
        cmocka_unit_test_setup_teardown(test_policies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quota_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scope_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_narrowing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_depth_and_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_cost_nothing, setup, teardown),
    };
    return cmocka_run_group_tests_name("accounts_make", tests, NULL, NULL);
}
