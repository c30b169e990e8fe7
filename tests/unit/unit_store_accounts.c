#include "store_accounts.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accounts_import.h"
#include "accounts_quota.h"
#include "fd.h"
#include "state.h"
#include "unit.h"

#define NOW ((uint64_t)1790000000000)

static char base[64];
static int dir = -1, server = -1;
static struct store *s;
static struct accounts *a;
static struct err err;
static struct store_accounts_seen seen;

static void open_store(void) {
    struct store_options options = {.dir = server};
    unit_works(store_open(&options, &s, &err), err);
}

static int setup(void **state) {
    (void)state;
    snprintf(base, sizeof(base), "/tmp/unit-store-accounts-XXXXXX");
    if (mkdtemp(base) == NULL)
        return -1;
    dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || mkdirat(dir, STATE_SERVER, 0700) < 0)
        return -1;
    server = openat(dir, STATE_SERVER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    a = accounts_new(&err);
    open_store();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    struct dirent *e;
    accounts_free(a);
    store_close(s);
    DIR *list = fdopendir(server);
    while (list != NULL && (e = readdir(list)) != NULL)
        unlinkat(dirfd(list), e->d_name, 0);
    closedir(list);
    unlinkat(dir, STATE_SERVER, AT_REMOVEDIR);
    fd_close(&dir);
    return rmdir(base);
}

static void load(void) {
    uint64_t next_ms;
    accounts_begin(a);
    seen = (struct store_accounts_seen){0};
    unit_works(store_accounts_load(s, a, &seen, &err), err);
    accounts_end(a, NOW, &next_ms);
}

/* As a program that starts. */
static void reload(void) {
    accounts_free(a);
    store_close(s);
    a = accounts_new(&err);
    open_store();
    load();
}

static struct accounts_user user_of(const char *name) {
    struct accounts_user u = {.weight = 100, .created_ms = NOW};
    snprintf(u.name, sizeof(u.name), "%s", name);
    accounts_quota_unlimited(&u.quota);
    return u;
}

static struct accounts_token token_of(const char *id) {
    struct accounts_token t = {.scopes = ACCOUNTS_RUN,
                               .created_ms = NOW,
                               .expires_ms = ACCOUNTS_NEVER,
                               .until_ms = ACCOUNTS_NEVER,
                               .cpu_budget_ms = UINT64_MAX,
                               .runs_budget = UINT64_MAX};
    snprintf(t.id, sizeof(t.id), "%s", id);
    token_hash(id, strlen(id), &t.hash);
    accounts_quota_unlimited(&t.quota);
    return t;
}

static void test_users(void **state) {
    (void)state;
    struct accounts_user u = user_of("ann");
    u.admin = true;
    u.quota.v[QUOTA_RUNS] = 5;
    unit_works(store_accounts_add_user(s, &u, &err), err);
    unit_fails(store_accounts_add_user(s, &u, &err), err, ERR_STATE);
    reload();
    const struct accounts_user *got = accounts_user_find(a, "ann");
    assert_true(got->admin && !got->disabled && !got->deleted);
    assert_int_equal(got->weight, 100);
    assert_true(got->created_ms == NOW);
    assert_memory_equal(&got->quota, &u.quota, sizeof(u.quota));
    u.admin = false;
    u.disabled = u.cancel_running = u.deleted = true;
    u.weight = 7;
    u.quota.v[QUOTA_RUNS] = QUOTA_UNLIMITED;
    unit_works(store_accounts_change_user(s, &u, &err), err);
    load();
    assert_true(got->disabled && got->cancel_running && got->deleted && !got->admin);
    assert_int_equal(got->weight, 7);
    assert_true(got->quota.v[QUOTA_RUNS] == QUOTA_UNLIMITED);
}

static void test_tokens(void **state) {
    (void)state;
    static char policies[] = "default\0ci\0";
    struct accounts_user u = user_of("ann");
    struct accounts_token t = token_of("tok_a"), child = token_of("tok_b");
    unit_works(store_accounts_add_user(s, &u, &err), err);
    snprintf(t.label, sizeof(t.label), "für \"später\"");
    snprintf(child.from_run, sizeof(child.from_run), "run_x");
    t.policies = policies;
    t.expires_ms = NOW + 5;
    t.until_ms = NOW + 4;
    t.cpu_budget_ms = 3;
    t.runs_budget = 2;
    t.quota.v[QUOTA_SANDBOXES] = 1;
    /* Made by a clock that was set back meanwhile: the parent must be read first all the same. */
    child.created_ms = NOW - 1000;
    unit_works(store_accounts_add_token(s, &t, "ann", NULL, &err), err);
    unit_works(store_accounts_add_token(s, &child, "ann", "tok_a", &err), err);
    unit_fails(store_accounts_add_token(s, &child, "ann", "tok_a", &err), err, ERR_STATE);
    child = token_of("tok_c");
    unit_fails(store_accounts_add_token(s, &child, "bob", NULL, &err), err, ERR_STATE);
    reload();
    const struct accounts_token *got = accounts_token_find(a, "tok_a");
    assert_string_equal(got->label, t.label);
    assert_memory_equal(got->policies, policies, sizeof(policies));
    assert_true(got->expires_ms == NOW + 5 && got->until_ms == NOW + 4);
    assert_true(got->cpu_budget_ms == 3 && got->runs_budget == 2);
    assert_memory_equal(&got->quota, &t.quota, sizeof(t.quota));
    assert_string_equal(got->user->name, "ann");
    got = accounts_token_find(a, "tok_b");
    assert_string_equal(got->parent->id, "tok_a");
    assert_string_equal(got->from_run, "run_x");
    assert_null(got->policies);
    assert_true(got->expires_ms == ACCOUNTS_NEVER && got->runs_budget == UINT64_MAX);
    assert_null(accounts_token_find(a, "tok_c"));
}

/* Only what changed is read, however many there are. */
static void test_changes(void **state) {
    (void)state;
    struct accounts_user u = user_of("ann");
    struct accounts_token t = token_of("tok_a");
    unit_works(store_accounts_add_user(s, &u, &err), err);
    unit_works(store_accounts_add_token(s, &t, "ann", NULL, &err), err);
    load();
    u = user_of("bob");
    t = token_of("tok_b");
    unit_works(store_accounts_add_user(s, &u, &err), err);
    unit_works(store_accounts_add_token(s, &t, "bob", NULL, &err), err);
    unit_works(store_accounts_withdraw(s, "tok_a", false, &err), err);
    accounts_user_find(a, "ann")->weight = 77; /* not read again */
    unit_works(store_accounts_load(s, a, &seen, &err), err);
    assert_int_equal(accounts_user_find(a, "ann")->weight, 77);
    assert_string_equal(accounts_token_find(a, "tok_b")->user->name, "bob");
    assert_true(accounts_token_find(a, "tok_a")->withdrawn);
    accounts_token_find(a, "tok_a")->withdrawn = false;
    unit_works(store_accounts_load(s, a, &seen, &err), err);
    assert_false(accounts_token_find(a, "tok_a")->withdrawn);
    u.disabled = true;
    unit_works(store_accounts_change_user(s, &u, &err), err);
    unit_works(store_accounts_load(s, a, &seen, &err), err);
    assert_true(accounts_user_find(a, "bob")->disabled);
}

static void test_revoked_and_spent(void **state) {
    (void)state;
    struct accounts_user u = user_of("ann");
    struct accounts_token t = token_of("tok_a"), child = token_of("tok_b");
    t.runs_budget = 9;
    unit_works(store_accounts_add_user(s, &u, &err), err);
    unit_works(store_accounts_add_token(s, &t, "ann", NULL, &err), err);
    unit_works(store_accounts_add_token(s, &child, "ann", "tok_a", &err), err);
    t.runs_spent = 4;
    t.cpu_spent_ms = 70;
    unit_works(store_accounts_spent(s, &t, &err), err);
    unit_works(store_accounts_withdraw(s, "tok_a", true, &err), err);
    reload();
    const struct accounts_token *got = accounts_token_find(a, "tok_a");
    assert_true(got->withdrawn && got->revoked && got->cancel_running);
    assert_true(got->runs_spent == 4 && got->cpu_spent_ms == 70);
    assert_true(accounts_token_find(a, "tok_b")->revoked);
}

static void test_purge(void **state) {
    (void)state;
    struct accounts_user u = user_of("ann");
    struct accounts_token t = token_of("tok_a"), old = token_of("tok_b"), live = token_of("tok_c");
    old.expires_ms = NOW + 10;
    unit_works(store_accounts_add_user(s, &u, &err), err);
    unit_works(store_accounts_add_token(s, &t, "ann", NULL, &err), err);
    unit_works(store_accounts_add_token(s, &old, "ann", "tok_a", &err), err);
    unit_works(store_accounts_add_token(s, &live, "ann", "tok_a", &err), err);
    unit_works(store_accounts_purge(s, NOW + 5, &err), err);
    load();
    struct accounts_token *held = accounts_token_ref(accounts_token_find(a, "tok_b"));
    assert_non_null(held);
    unit_works(store_accounts_purge(s, NOW + 11, &err), err);
    load();
    assert_null(accounts_token_find(a, "tok_b"));
    assert_true(held->revoked);
    accounts_token_unref(held);
    assert_non_null(accounts_token_find(a, "tok_c"));
    /* What an administrator made stays, so that the list of `init` does not bring it back. */
    unit_works(store_accounts_withdraw(s, "tok_a", false, &err), err);
    unit_works(store_accounts_purge(s, NOW + 11, &err), err);
    load();
    assert_non_null(accounts_token_find(a, "tok_a"));
}

static void list(const char *const *names, size_t count) {
    char text[1024] = "", *at = text;
    for (size_t i = 0; i < count; i++) {
        struct token_record record = {.admin = strcmp(names[i], "admin") == 0};
        char line[TOKEN_LINE_SIZE];
        snprintf(record.name, sizeof(record.name), "%s", names[i]);
        token_hash(names[i], strlen(names[i]), &record.hash);
        unit_works(token_record_format(&record, line, &err), err);
        at = stpcpy(at, line);
    }
    unit_works(fd_write_atomic(server, "tokens", text, strlen(text), 0600, &err), err);
}

static bool import(void) {
    bool changed = false;
    unit_works(accounts_import(dir, s, a, &changed, &err), err);
    load();
    return changed;
}

static const struct accounts_token *of(const char *name) {
    struct token_hash hash;
    token_hash(name, strlen(name), &hash);
    return accounts_token_of_hash(a, &hash);
}

static void test_import(void **state) {
    (void)state;
    static const char *const both[] = {"admin", "bob"};
    assert_false(import()); /* there is no list */
    list(both, 2);
    assert_true(import());
    assert_int_equal(of("admin")->scopes, ACCOUNTS_SCOPES_ALL);
    assert_int_equal(of("bob")->scopes, ACCOUNTS_SCOPES_USER);
    assert_true(accounts_user_find(a, "admin")->admin && !accounts_user_find(a, "bob")->admin);
    assert_false(import());
    /* One that was revoked is not brought back; one that is not listed any more is revoked. */
    unit_works(store_accounts_withdraw(s, of("bob")->id, false, &err), err);
    load();
    assert_false(import());
    assert_true(of("bob")->revoked);
    list(both + 1, 1);
    assert_true(import());
    assert_true(of("admin")->revoked);
    /* A list that is damaged changes nothing. */
    bool changed = false;
    unit_works(fd_write_atomic(server, "tokens", "x\n", 2, 0600, &err), err);
    unit_fails(accounts_import(dir, s, a, &changed, &err), err, ERR_INVALID);
    assert_false(changed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_users, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_revoked_and_spent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_purge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_import, setup, teardown),
    };
    return cmocka_run_group_tests_name("store_accounts", tests, NULL, NULL);
}
