#include "accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define NOW 1000000u

static struct accounts *a;
static struct err err;

static int setup(void **state) {
    (void)state;
    a = accounts_new(&err);
    return a != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    accounts_free(a);
    return 0;
}

static void put_user(const char *name, bool disabled) {
    struct accounts_user row = {.disabled = disabled, .weight = 100};
    snprintf(row.name, sizeof(row.name), "%s", name);
    assert_non_null(accounts_put_user(a, &row, &err));
}

/* Its text is "pf_" and 52 times the letter. */
static const char *text_of(char letter) {
    static char text[TOKEN_TEXT_LEN + 1];
    memset(text, letter, TOKEN_TEXT_LEN);
    memcpy(text, TOKEN_PREFIX, strlen(TOKEN_PREFIX));
    return text;
}

static struct accounts_token row_of(char letter) {
    struct accounts_token row = {.scopes = ACCOUNTS_SCOPES_USER,
                                 .expires_ms = ACCOUNTS_NEVER,
                                 .until_ms = ACCOUNTS_NEVER,
                                 .cpu_budget_ms = UINT64_MAX,
                                 .runs_budget = UINT64_MAX};
    snprintf(row.id, sizeof(row.id), "tok_%c", letter);
    token_hash(text_of(letter), TOKEN_TEXT_LEN, &row.hash);
    return row;
}

static struct accounts_token *put(char letter, const char *user, const char *parent) {
    struct accounts_token row = row_of(letter);
    return accounts_put_token(a, &row, user, parent, &err);
}

static struct accounts_token *check(char letter, uint64_t now_ms) {
    char header[128];
    snprintf(header, sizeof(header), "Bearer %s", text_of(letter));
    return accounts_check(a, header, now_ms);
}

static size_t end(void) {
    uint64_t next_ms;
    return accounts_end(a, NOW, &next_ms);
}

static void test_form(void **state) {
    (void)state;
    char header[128];
    const char *token = text_of('a');
    snprintf(header, sizeof(header), "Bearer %s", token);
    assert_string_equal(accounts_bearer(header), token);
    snprintf(header, sizeof(header), "bearer %s", token);
    assert_string_equal(accounts_bearer(header), token);
    static const char *const wrong[] = {"Bearer  %s", "Bearer %s ", "Bearer\t%s", "Basic %s",
                                        "%s",         " Bearer %s", "Bearer %s,", "Bearer %sx"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++) {
        char *text = NULL;
        const char *at = strstr(wrong[i], "%s");
        assert_true(asprintf(&text, "%.*s%s%s", (int)(at - wrong[i]), wrong[i], token, at + 2) > 0);
        assert_null(accounts_bearer(text));
        free(text);
    }
    assert_null(accounts_bearer(NULL));
    assert_null(accounts_bearer(""));
    assert_null(accounts_bearer("Bearer"));
    assert_null(accounts_bearer("Bearer "));
    assert_null(accounts_bearer("Bearer x"));
}

static void test_check(void **state) {
    (void)state;
    accounts_begin(a);
    put_user("ann", false);
    assert_non_null(put('a', "ann", NULL));
    assert_null(put('b', "nobody", NULL));
    assert_null(put('b', "ann", "tok_x"));
    assert_int_equal(end(), 0);
    assert_string_equal(check('a', NOW)->user->name, "ann");
    assert_null(check('b', NOW));
    assert_null(accounts_check(a, NULL, NOW));
    /* What is not read again is gone, and who holds it sees that. */
    struct accounts_token *held = accounts_token_ref(check('a', NOW));
    accounts_begin(a);
    assert_int_equal(end(), 1);
    assert_null(check('a', NOW));
    assert_true(held->revoked);
    assert_string_equal(held->user->name, "ann");
    assert_true(held->user->deleted);
    accounts_token_unref(held);
    assert_null(accounts_user_find(a, "ann"));
    assert_null(accounts_token_next(a, NULL));
}

static void test_many(void **state) {
    (void)state;
    accounts_begin(a);
    for (unsigned i = 0; i < 10000; i++) {
        struct accounts_token row = row_of('a');
        char name[16];
        snprintf(name, sizeof(name), "u%u", i % 3000);
        put_user(name, false);
        snprintf(row.id, sizeof(row.id), "tok_%u", i);
        token_hash(row.id, strlen(row.id), &row.hash);
        assert_non_null(accounts_put_token(a, &row, name, NULL, &err));
    }
    assert_int_equal(end(), 0);
    assert_string_equal(accounts_token_find(a, "tok_7777")->user->name, "u1777");
    assert_string_equal(accounts_user_find(a, "u2999")->name, "u2999");
    struct token_hash hash;
    token_hash("tok_31", 6, &hash);
    assert_string_equal(accounts_token_of_hash(a, &hash)->id, "tok_31");
    size_t n = 0;
    for (struct accounts_token *t = NULL; (t = accounts_token_next(a, t)) != NULL;)
        n++;
    assert_int_equal(n, 10000);
}

static void test_revoking_a_parent(void **state) {
    (void)state;
    put_user("ann", false);
    struct accounts_token *top = put('a', "ann", NULL);
    struct accounts_token *child = put('b', "ann", "tok_a");
    struct accounts_token *grandchild = put('c', "ann", "tok_b");
    struct accounts_token *other = put('d', "ann", NULL);
    assert_int_equal(top->depth, 0);
    assert_int_equal(grandchild->depth, 2);
    assert_true(accounts_is_below(grandchild, top));
    assert_false(accounts_is_below(top, grandchild));
    assert_false(accounts_is_below(top, top));
    uint64_t next_ms;
    assert_int_equal(accounts_mark(a, NOW, &next_ms), 0);
    child->withdrawn = true;
    assert_int_equal(accounts_mark(a, NOW, &next_ms), 2);
    assert_false(top->revoked);
    assert_true(child->revoked);
    assert_true(grandchild->revoked);
    assert_false(other->revoked);
    /* New ones below it need no look at all of them. */
    assert_true(put('e', "ann", child->id)->revoked);
    assert_false(put('f', "ann", top->id)->revoked);
    assert_null(check('c', NOW));
    assert_non_null(check('a', NOW));
    assert_int_equal(accounts_mark(a, NOW, &next_ms), 0);
}

static void test_disabling_a_user(void **state) {
    (void)state;
    uint64_t next_ms;
    put_user("ann", false);
    put_user("bob", false);
    assert_non_null(put('a', "ann", NULL));
    assert_non_null(put('b', "bob", NULL));
    accounts_user_find(a, "ann")->disabled = true;
    assert_int_equal(accounts_mark(a, NOW, &next_ms), 1);
    assert_null(check('a', NOW));
    assert_non_null(check('b', NOW));
    accounts_user_find(a, "ann")->disabled = false;
    assert_int_equal(accounts_mark(a, NOW, &next_ms), 0);
    assert_non_null(check('a', NOW));
}

static void test_expiry(void **state) {
    (void)state;
    uint64_t next_ms;
    put_user("ann", false);
    struct accounts_token row = row_of('a');
    row.expires_ms = NOW + 10;
    assert_non_null(accounts_put_token(a, &row, "ann", NULL, &err));
    struct accounts_token *child = put('b', "ann", "tok_a");
    assert_int_equal(accounts_mark(a, NOW, &next_ms), 0);
    assert_int_equal(next_ms, NOW + 10);
    assert_non_null(check('a', NOW + 9));
    /* Also before anybody has marked it. */
    assert_null(check('a', NOW + 10));
    assert_int_equal(accounts_mark(a, NOW + 10, &next_ms), 2);
    assert_true(next_ms == ACCOUNTS_NEVER);
    assert_true(child->revoked);
}

static void test_policies(void **state) {
    (void)state;
    static char list[] = "default\0ci\0";
    put_user("ann", false);
    struct accounts_token row = row_of('a');
    row.policies = list;
    struct accounts_token *t = accounts_put_token(a, &row, "ann", NULL, &err);
    assert_true(accounts_may_use_policy(t, "default"));
    assert_true(accounts_may_use_policy(t, "ci"));
    assert_false(accounts_may_use_policy(t, "judge"));
    assert_false(accounts_may_use_policy(t, "c"));
    assert_false(accounts_may_use_policy(t, ""));
    t = put('b', "ann", NULL);
    assert_true(accounts_may_use_policy(t, "judge"));
}

/* Reading again must not lose what was counted meanwhile. */
static void test_counts_stay(void **state) {
    (void)state;
    put_user("ann", false);
    struct accounts_token *t = put('a', "ann", NULL);
    t->use.v[QUOTA_RUNS] = 7;
    t->user->use.v[QUOTA_RUNS] = 8;
    t->runs_spent = 9;
    accounts_begin(a);
    put_user("ann", false);
    assert_ptr_equal(put('a', "ann", NULL), t);
    end();
    assert_int_equal(t->use.v[QUOTA_RUNS], 7);
    assert_int_equal(t->user->use.v[QUOTA_RUNS], 8);
    assert_int_equal(t->runs_spent, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_form, setup, teardown),
        cmocka_unit_test_setup_teardown(test_check, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_revoking_a_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disabling_a_user, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expiry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_policies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counts_stay, setup, teardown),
    };
    return cmocka_run_group_tests_name("accounts", tests, NULL, NULL);
}
