#include "accounts_budget.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define NOW 1000u

static struct accounts *a;
static struct err err;
static unsigned told;

static void spent(void *arg, struct accounts_token *t) {
    (void)arg;
    (void)t;
    told++;
}

static int setup(void **state) {
    struct accounts_user u = {.name = "ann"};
    (void)state;
    told = 0;
    a = accounts_new(&err);
    if (a == NULL || accounts_put_user(a, &u, &err) == NULL)
        return -1;
    accounts_tell_spent(a, spent, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    accounts_free(a);
    return 0;
}

static struct accounts_token *add(const char *id, const char *parent, uint64_t cpu_ms,
                                  uint64_t runs) {
    struct accounts_token row = {.expires_ms = ACCOUNTS_NEVER,
                                 .until_ms = ACCOUNTS_NEVER,
                                 .cpu_budget_ms = cpu_ms,
                                 .runs_budget = runs};
    snprintf(row.id, sizeof(row.id), "%s", id);
    token_hash(id, strlen(id), &row.hash);
    struct accounts_token *t = accounts_put_token(a, &row, "ann", parent, &err);
    assert_non_null(t);
    return t;
}

static int hold(struct accounts_token *t, uint64_t wish, uint64_t given, struct accounts_hold *h) {
    struct api_error error = {0};
    uint64_t cpu = wish;
    int rc = accounts_budget_hold(t, NOW, &cpu, h, &error);
    if (rc == 0)
        assert_int_equal(cpu, given);
    else
        assert_int_equal(error.status, 429);
    assert_string_equal(error.code, rc == 0 ? "" : "budget");
    return rc;
}

static void test_none(void **state) {
    (void)state;
    struct accounts_hold h = {0};
    struct accounts_token *t = add("a", NULL, UINT64_MAX, UINT64_MAX);
    assert_int_equal(hold(t, 5000, 5000, &h), 0);
    assert_null(h.token);
    accounts_budget_settle(&h, 77);
    accounts_budget_release(&h);
    assert_int_equal(t->cpu_spent_ms, 0);
    assert_int_equal(told, 0);
}

static void test_all_above_spend(void **state) {
    (void)state;
    struct accounts_hold h = {0};
    struct accounts_token *top = add("a", NULL, UINT64_MAX, 3);
    struct accounts_token *middle = add("b", "a", 1000, UINT64_MAX);
    struct accounts_token *low = add("c", "b", UINT64_MAX, UINT64_MAX);
    assert_int_equal(hold(low, 5000, 1000, &h), 0);
    assert_int_equal(middle->cpu_held_ms, 1000);
    accounts_budget_settle(&h, 400);
    accounts_budget_settle(&h, 400); /* again: nothing */
    assert_int_equal(middle->cpu_held_ms, 0);
    assert_int_equal(middle->cpu_spent_ms, 400);
    assert_int_equal(low->cpu_spent_ms, 400);
    assert_int_equal(top->runs_spent, 1);
    assert_int_equal(told, 4); /* two that have a bound, begun and ended */
    assert_int_equal(hold(low, 5000, 600, &h), 0);
    accounts_budget_settle(&h, 600);
    assert_int_equal(hold(low, 5000, 0, &h), -1);
    /* The top has one run left. */
    assert_int_equal(hold(top, 5000, 5000, &h), 0);
    accounts_budget_settle(&h, 0);
    assert_int_equal(hold(top, 5000, 0, &h), -1);
}

static void test_what_the_next_server_begins_stays_counted(void **state) {
    (void)state;
    struct accounts_hold h = {0};
    struct accounts_token *top = add("a", NULL, UINT64_MAX, 3);
    struct accounts_token *low = add("b", "a", 1000, UINT64_MAX);
    assert_int_equal(hold(low, 400, 400, &h), 0);
    accounts_budget_leave(&h);
    accounts_budget_leave(&h); /* again: nothing */
    assert_null(h.token);
    assert_int_equal(low->cpu_held_ms, 0);
    assert_int_equal(low->cpu_spent_ms, 0);
    assert_int_equal(top->runs_spent, 1);
    accounts_budget_again(low, 400, &h);
    accounts_budget_release(&h);
    assert_int_equal(top->runs_spent, 0);
}

static void test_held_twice(void **state) {
    (void)state;
    struct accounts_hold first = {0}, second = {0};
    struct accounts_token *t = add("a", NULL, 1000, UINT64_MAX);
    assert_int_equal(hold(t, 700, 700, &first), 0);
    assert_int_equal(hold(t, 700, 300, &second), 0);
    struct accounts_hold third = {0};
    assert_int_equal(hold(t, 1, 0, &third), -1);
    accounts_budget_release(&second);
    assert_int_equal(t->runs_spent, 1);
    assert_int_equal(hold(t, 100, 100, &third), 0);
    accounts_budget_settle(&third, 100);
    accounts_budget_settle(&first, 700);
    assert_int_equal(t->cpu_spent_ms, 800);
    assert_int_equal(t->cpu_held_ms, 0);
}

static void test_until(void **state) {
    (void)state;
    struct api_error error = {0};
    struct accounts_token *t = add("a", NULL, UINT64_MAX, UINT64_MAX);
    struct accounts_token *below = add("b", "a", UINT64_MAX, UINT64_MAX);
    t->until_ms = NOW;
    assert_int_equal(accounts_budget_open(below, NOW - 1, &error), 0);
    assert_int_equal(accounts_budget_open(below, NOW, &error), -1);
    assert_int_equal(error.status, 429);
    assert_non_null(strstr(error.message, "until"));
}

/* A run that an earlier server had accepted. */
static void test_again(void **state) {
    (void)state;
    struct accounts_hold h = {0}, other = {0};
    struct accounts_token *t = add("a", NULL, 1000, 5);
    t->runs_spent = 5;
    t->cpu_spent_ms = 400;
    accounts_budget_again(t, 900, &h);
    assert_int_equal(h.cpu_ms, 600);
    assert_int_equal(t->runs_spent, 5);
    accounts_budget_again(t, 900, &other);
    assert_int_equal(other.cpu_ms, 0);
    accounts_budget_settle(&h, 100);
    accounts_budget_settle(&other, 0);
    assert_int_equal(t->cpu_spent_ms, 500);
    assert_int_equal(t->cpu_held_ms, 0);
}

/* A run lives longer than the table. */
static void test_outlives(void **state) {
    (void)state;
    struct accounts_hold h = {0};
    struct accounts_token *t = add("a", NULL, 1000, 5);
    assert_int_equal(hold(t, 700, 700, &h), 0);
    accounts_free(a);
    told = 0;
    accounts_budget_settle(&h, 10);
    assert_int_equal(told, 0);
    a = accounts_new(&err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_above_spend, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_the_next_server_begins_stays_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_held_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_until, setup, teardown),
        cmocka_unit_test_setup_teardown(test_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlives, setup, teardown),
    };
    return cmocka_run_group_tests_name("accounts_budget", tests, NULL, NULL);
}
