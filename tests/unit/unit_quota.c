/* Charging and refusing, with a user, a token of his and a child token, and a database. */
#include "quota.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accounts.h"
#include "store.h"
#include "store_file.h"
#include "store_usage.h"
#include "unit.h"

struct side {
    struct accounts *accounts;
    struct accounts_user *user;
    struct accounts_token *parent, *child;
    struct quota *quota;
    struct quota_options options;
    unsigned freed;
    char dir_name[32];
    int dir;
};

static void unlimited(struct quota_limits *q) {
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        q->v[i] = QUOTA_UNLIMITED;
}

static struct accounts_token *make_token(struct side *t, const char *id, const char *parent) {
    struct accounts_token row = {.expires_ms = ACCOUNTS_NEVER,
                                 .until_ms = ACCOUNTS_NEVER,
                                 .cpu_budget_ms = UINT64_MAX,
                                 .runs_budget = UINT64_MAX};
    struct err err = {0};
    snprintf(row.id, sizeof(row.id), "%s", id);
    memset(&row.hash, id[4], sizeof(row.hash));
    unlimited(&row.quota);
    struct accounts_token *token = accounts_put_token(t->accounts, &row, "ann", parent, &err);
    assert_non_null(token);
    return token;
}

static void make_accounts(struct side *t) {
    struct accounts_user row = {.weight = 100};
    struct err err = {0};
    uint64_t next;
    snprintf(row.name, sizeof(row.name), "ann");
    unlimited(&row.quota);
    t->accounts = accounts_new(&err);
    assert_non_null(t->accounts);
    accounts_begin(t->accounts);
    t->user = accounts_put_user(t->accounts, &row, &err);
    t->parent = make_token(t, "tok_a", NULL);
    t->child = make_token(t, "tok_b", "tok_a");
    accounts_end(t->accounts, 1, &next);
    t->options.accounts = t->accounts;
}

static void freed(void *arg, const char *user, struct accounts_token *token) {
    struct side *t = arg;
    assert_string_equal(user, "ann");
    assert_true(token == NULL || token == t->child || token == t->parent);
    t->freed++;
}

static void begin(struct side *t) {
    struct err err = {0};
    t->quota = quota_new(&t->options, &err);
    unit_works(t->quota == NULL ? -1 : 0, err);
    quota_watch(t->quota, freed, t);
}

static int setup(void **state) {
    struct side *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    unlimited(&t->options.defaults);
    make_accounts(t);
    begin(t);
    *state = t;
    return 0;
}

static int teardown(void **state) {
    struct side *t = *state;
    quota_free(t->quota);
    accounts_free(t->accounts);
    free(t);
    return 0;
}

static void refused(int rc, const struct api_error *error, const char *name) {
    assert_int_equal(rc, -1);
    assert_int_equal(error->status, 429);
    assert_string_equal(error->code, "quota");
    assert_string_equal(error->quota, name);
    assert_non_null(strstr(error->message, name));
    assert_in_range(error->retry_after_s, 1, 24 * 3600 + 1);
}

static int may_run(struct side *t, struct accounts_token *token, uint64_t mem,
                   struct api_error *error) {
    struct quota_held who = {0};
    memset(error, 0, sizeof(*error));
    quota_hold(t->quota, &who, token, "ann");
    int rc = quota_may_run(t->quota, &who, mem, 1, error);
    quota_let_go(t->quota, &who);
    return rc;
}

static void every_use_is_charged_to_all_levels(void **state) {
    struct side *t = *state;
    struct quota_held run = {0}, other = {0};
    quota_hold(t->quota, &run, t->child, "ann");
    quota_take_run(t->quota, &run);
    quota_take(t->quota, &run, QUOTA_MEM_BYTES, 100);
    quota_hold(t->quota, &other, NULL, "ann"); /* its token is gone: the user still pays */
    quota_take(t->quota, &other, QUOTA_MEM_BYTES, 11);
    assert_int_equal(t->child->use.v[QUOTA_MEM_BYTES], 100);
    assert_int_equal(t->parent->use.v[QUOTA_MEM_BYTES], 100);
    assert_int_equal(t->user->use.v[QUOTA_MEM_BYTES], 111);
    assert_int_equal(t->user->use.v[QUOTA_RUNS], 1);
    assert_int_equal(quota_runs_today(&t->parent->use), 1);
    quota_let_go(t->quota, &run);
    quota_let_go(t->quota, &run);
    assert_int_equal(t->freed, 1);
    quota_let_go(t->quota, &other);
    assert_int_equal(t->child->use.v[QUOTA_MEM_BYTES], 0);
    assert_int_equal(t->user->use.v[QUOTA_MEM_BYTES], 0);
    assert_int_equal(t->user->use.v[QUOTA_RUNS], 0);
    assert_int_equal(quota_runs_today(&t->user->use), 1); /* that is not given back */
}

static void the_narrowest_level_refuses(void **state) {
    struct side *t = *state;
    struct quota_held run = {0};
    struct api_error error;
    t->user->quota.v[QUOTA_RUNS] = 2;
    t->child->quota.v[QUOTA_RUNS] = 1;
    assert_int_equal(may_run(t, t->child, 1, &error), 0);
    quota_hold(t->quota, &run, t->child, "ann");
    quota_take_run(t->quota, &run);
    refused(may_run(t, t->child, 1, &error), &error, "runs");
    assert_non_null(strstr(error.message, "The token's"));
    assert_non_null(strstr(error.message, "1 of 1"));
    assert_int_equal(may_run(t, t->parent, 1, &error), 0);
    quota_take(t->quota, &run, QUOTA_RUNS, 1);
    refused(may_run(t, t->parent, 1, &error), &error, "runs");
    assert_non_null(strstr(error.message, "Your"));
    quota_let_go(t->quota, &run);
    assert_int_equal(may_run(t, t->child, 1, &error), 0);
}

static void defaults_are_for_whom_nothing_is_said(void **state) {
    struct side *t = *state;
    struct api_error error;
    t->options.defaults.v[QUOTA_MEM_BYTES] = 50;
    quota_free(t->quota);
    begin(t);
    refused(may_run(t, t->parent, 51, &error), &error, "mem_bytes");
    assert_int_equal(may_run(t, t->parent, 50, &error), 0);
    t->user->quota.v[QUOTA_MEM_BYTES] = 70;
    assert_int_equal(may_run(t, t->parent, 70, &error), 0);
    t->user->quota.v[QUOTA_MEM_BYTES] = QUOTA_NONE;
    assert_int_equal(may_run(t, t->parent, 1 << 30, &error), 0);
}

static void a_run_waits_for_runs_and_not_for_sandboxes(void **state) {
    struct side *t = *state;
    struct quota_held run = {0}, box = {.box = true}, next = {0};
    struct accounts_token *token;
    struct api_error error;
    t->child->quota.v[QUOTA_MEM_BYTES] = 100;
    quota_hold(t->quota, &run, t->child, "ann");
    quota_hold(t->quota, &next, t->child, "ann");
    quota_take(t->quota, &run, QUOTA_MEM_BYTES, 60);
    assert_int_equal(may_run(t, t->child, 60, &error), 0); /* it is taken, and will wait */
    assert_ptr_equal(quota_in_the_way(t->quota, &next, 60, 1, &token), &t->child->use);
    assert_ptr_equal(token, t->child);
    quota_give(t->quota, &run, QUOTA_MEM_BYTES);
    assert_null(quota_in_the_way(t->quota, &next, 60, 1, &token));
    assert_int_equal(quota_may_sandbox(t->quota, &next, 1, 60, 1, &error), 0);
    refused(quota_may_sandbox(t->quota, &next, 2, 60, 1, &error), &error, "mem_bytes");
    quota_hold(t->quota, &box, t->child, "ann");
    quota_take(t->quota, &box, QUOTA_MEM_BYTES, 60);
    refused(may_run(t, t->child, 60, &error), &error, "mem_bytes");
    t->user->quota.v[QUOTA_PARALLEL] = 0;
    refused(may_run(t, t->parent, 1, &error), &error, "parallel_runs");
    t->user->quota.v[QUOTA_PARALLEL] = 1;
    quota_take(t->quota, &run, QUOTA_PARALLEL, 1);
    quota_let_go(t->quota, &box);
    assert_ptr_equal(quota_in_the_way(t->quota, &next, 1, 1, &token), &t->user->use);
    assert_null(token);
    quota_let_go(t->quota, &run);
    quota_let_go(t->quota, &next);
}

/* Without any quota. */
static void runs_with_much_output_wait_for_each_other(void **state) {
    struct side *t = *state;
    struct quota_held run = {.output_bytes = QUOTA_OUTPUT_LEAST + 1}, next = {.output_bytes = 1};
    struct accounts_token *token;
    quota_hold(t->quota, &run, t->child, "ann");
    quota_hold(t->quota, &next, t->parent, "ann");
    assert_null(quota_in_the_way(t->quota, &run, 1, 1, &token)); /* alone it is never too much */
    quota_take_output(t->quota, &run);
    quota_take_output(t->quota, &run); /* once more is the same */
    assert_ptr_equal(quota_in_the_way(t->quota, &next, 1, 1, &token), &t->user->use);
    assert_null(token);
    quota_let_go(t->quota, &run);
    assert_null(quota_in_the_way(t->quota, &next, 1, 1, &token));
    assert_int_equal(t->user->use.output_bytes, 0);
    quota_let_go(t->quota, &next);
}

static void cpu_time_counts_for_the_day(void **state) {
    struct side *t = *state;
    struct quota_held who = {0};
    struct api_error error;
    t->user->quota.v[QUOTA_CPU_MS_PER_DAY] = 10;
    t->child->quota.v[QUOTA_CPU_MS_PER_DAY] = 4;
    quota_hold(t->quota, &who, t->child, "ann");
    for (int i = 0; i < 8; i++)
        quota_spent(t->quota, t->user, t->child, 500000); /* parts of a millisecond add up */
    assert_int_equal(quota_used(&t->user->use, QUOTA_CPU_MS_PER_DAY), 4);
    refused(quota_may_exec(t->quota, &who, &error), &error, "cpu_ms_per_day");
    assert_int_equal(may_run(t, t->parent, 1, &error), 0);
    quota_spent(t->quota, t->user, NULL, 6000000);
    refused(may_run(t, t->parent, 1, &error), &error, "cpu_ms_per_day");
    assert_non_null(strstr(error.message, "10 of 10"));
    t->user->use.day--; /* midnight */
    assert_int_equal(quota_used(&t->user->use, QUOTA_CPU_MS_PER_DAY), 0);
    assert_int_equal(may_run(t, t->parent, 1, &error), 0);
    quota_let_go(t->quota, &who);
}

static void stored_bytes_of_users(void **state) {
    struct side *t = *state;
    struct quota_held who = {0};
    struct api_error error;
    t->user->quota.v[QUOTA_RESULT_BYTES] = 100;
    t->user->quota.v[QUOTA_SNAPSHOT_BYTES] = 100;
    quota_add_user(t->quota, "ann", QUOTA_RESULT_BYTES, 99);
    quota_add_user(t->quota, "nobody", QUOTA_RESULT_BYTES, 99);
    assert_int_equal(may_run(t, t->parent, 1, &error), 0);
    quota_add_user(t->quota, "ann", QUOTA_RESULT_BYTES, 1);
    refused(may_run(t, t->parent, 1, &error), &error, "result_bytes");
    quota_add_user(t->quota, "ann", QUOTA_RESULT_BYTES, -200);
    assert_int_equal(t->user->use.v[QUOTA_RESULT_BYTES], 0);
    quota_hold(t->quota, &who, t->parent, "ann");
    assert_int_equal(quota_may_snapshot(t->quota, &who, &error), 0);
    quota_take(t->quota, &who, QUOTA_SNAPSHOT_BYTES, 150);
    refused(quota_may_snapshot(t->quota, &who, &error), &error, "snapshot_bytes");
    quota_let_go(t->quota, &who);
}

static void nobody_is_charged_without_quotas(void **state) {
    (void)state;
    struct quota_held who = {0};
    struct accounts_token *token;
    struct api_error error;
    quota_hold(NULL, &who, NULL, "ann");
    quota_take_run(NULL, &who);
    quota_spent(NULL, NULL, NULL, 5);
    assert_int_equal(quota_may_run(NULL, &who, 1, 1, &error), 0);
    assert_null(quota_in_the_way(NULL, &who, 1, 1, &token));
    quota_let_go(NULL, &who);
    quota_free(NULL);
}

static void count_day(void *arg, const struct store_usage *row) {
    (void)row;
    ++*(unsigned *)arg;
}

static unsigned rows_of_day(const struct side *t, uint32_t day) {
    struct err err = {0};
    unsigned count = 0;
    unit_works(store_usage_read(t->options.store, day, count_day, &count, &err), err);
    return count;
}

static void what_was_used_today_outlasts_the_server(void **state) {
    struct side *t = *state;
    struct err err = {0};
    struct quota_held who = {0};
    snprintf(t->dir_name, sizeof(t->dir_name), "/tmp/unit-quota-XXXXXX");
    assert_non_null(mkdtemp(t->dir_name));
    t->dir = open(t->dir_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store_options options = {.dir = t->dir};
    quota_free(t->quota);
    unit_works(store_open(&options, &t->options.store, &err), err);
    const struct store_usage old = {.user = "ann", .token = "", .day = 1, .cpu_ms = 5};
    unit_works(store_usage_put(t->options.store, &old, &err), err);
    begin(t);
    quota_hold(t->quota, &who, t->child, "ann");
    quota_take_run(t->quota, &who);
    assert_int_equal(rows_of_day(t, 1), 0); /* it is too long ago */
    quota_spent(t->quota, t->user, t->child, 42000000);
    quota_let_go(t->quota, &who);
    quota_free(t->quota);
    accounts_free(t->accounts);
    make_accounts(t);
    begin(t);
    assert_int_equal(quota_used(&t->user->use, QUOTA_CPU_MS_PER_DAY), 42);
    assert_int_equal(quota_used(&t->parent->use, QUOTA_CPU_MS_PER_DAY), 42);
    assert_int_equal(quota_runs_today(&t->child->use), 1);
    quota_free(t->quota);
    t->quota = NULL;
    store_close(t->options.store);
    store_file_empty(t->dir, NULL);
    close(t->dir);
    rmdir(t->dir_name);
}

int main(void) {
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(every_use_is_charged_to_all_levels),
        WITH(the_narrowest_level_refuses),
        WITH(defaults_are_for_whom_nothing_is_said),
        WITH(a_run_waits_for_runs_and_not_for_sandboxes),
        WITH(runs_with_much_output_wait_for_each_other),
        WITH(cpu_time_counts_for_the_day),
        WITH(stored_bytes_of_users),
        WITH(nobody_is_charged_without_quotas),
        WITH(what_was_used_today_outlasts_the_server),
    };
    return cmocka_run_group_tests_name("quota", tests, NULL, NULL);
}
