#include "agent_ledger.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

struct place {
    char path[64];
    int dir;
};

static int set_up(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->path, sizeof(p->path), "/tmp/pinfold-ledger-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return 0;
}

static int tear_down(void **state) {
    struct place *p = *state;
    unlinkat(p->dir, "costs", 0);
    unlinkat(p->dir, "prices", 0);
    close(p->dir);
    assert_int_equal(rmdir(p->path), 0);
    free(p);
    return 0;
}

static void add(struct place *p, const char *model, uint64_t micro) {
    struct err err;
    struct agent_ledger_entry e = {.when_ms = 1000,
                                   .model = model,
                                   .host = "127.0.0.1:1",
                                   .outcome = "ok",
                                   .usage = {.known = true, .input = 3, .output = 4},
                                   .priced = true,
                                   .micro_usd = micro};
    unit_works(agent_ledger_add(p->dir, "costs", &e, &err), err);
}

static bool sum(void *arg, const json_t *line) {
    *(json_int_t *)arg += json_integer_value(json_object_get(line, "cost_micro_usd"));
    return true;
}

static void test_lines_are_summed_up(void **state) {
    struct place *p = *state;
    struct err err;
    struct stat st;
    json_int_t total = 0;
    unit_works(agent_ledger_read(p->dir, "costs", sum, &total, &err), err);
    add(p, "a", 5);
    add(p, "b", 7);
    unit_works(agent_ledger_read(p->dir, "costs", sum, &total, &err), err);
    assert_int_equal(total, 12);
    assert_int_equal(fstatat(p->dir, "costs", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static size_t load(struct place *p, char *text, size_t size) {
    int fd = openat(p->dir, "costs", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n] = '\0';
    return (size_t)n;
}

static void store(struct place *p, const char *text, size_t len) {
    int fd = openat(p->dir, "costs", O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(fd, text, len), (ssize_t)len);
    close(fd);
}

/* An edit, a line that is missing, two lines in another order. */
static void test_changes_are_found(void **state) {
    struct place *p = *state;
    struct err err;
    char text[8192], other[8192];
    add(p, "a", 5);
    add(p, "b", 7);
    add(p, "c", 9);
    size_t len = load(p, text, sizeof(text));
    memcpy(other, text, len + 1);
    char *five = strstr(other, "\"cost_micro_usd\":5");
    five[strlen("\"cost_micro_usd\":")] = '1';
    store(p, other, len);
    unit_fails(agent_ledger_read(p->dir, "costs", NULL, NULL, &err), err, ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "line 2"));
    char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    size_t first = (size_t)(second - text);
    memcpy(other, text, first);
    memcpy(other + first, third, len - (size_t)(third - text));
    store(p, other, first + len - (size_t)(third - text));
    unit_fails(agent_ledger_read(p->dir, "costs", NULL, NULL, &err), err, ERR_PROTOCOL);
    store(p, second, len - first);
    unit_fails(agent_ledger_read(p->dir, "costs", NULL, NULL, &err), err, ERR_PROTOCOL);
}

/* The machine went off in the middle of a line: the next one begins where it began. */
static void test_half_a_line_is_cut_off(void **state) {
    struct place *p = *state;
    struct err err;
    json_int_t total = 0;
    char text[8192];
    add(p, "a", 5);
    add(p, "b", 7);
    size_t len = load(p, text, sizeof(text));
    store(p, text, len - 10);
    unit_works(agent_ledger_read(p->dir, "costs", sum, &total, &err), err);
    assert_int_equal(total, 5);
    add(p, "c", 9);
    total = 0;
    unit_works(agent_ledger_read(p->dir, "costs", sum, &total, &err), err);
    assert_int_equal(total, 14);
}

static void test_prices(void **state) {
    static const char text[] =
        "{\"version\":\"v1\",\"models\":{\"big*\":{\"input\":3000000,\"output\":15000000,"
        "\"cache_read\":300000},\"big-mini\":{\"input\":100,\"output\":1}}}";
    struct place *p = *state;
    struct agent_prices prices;
    struct err err;
    uint64_t micro;
    struct model_usage u = {.known = true, .input = 1000, .cache_read = 2000, .output = 100};
    int fd = openat(p->dir, "prices", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
    close(fd);
    unit_works(agent_prices_load(&prices, p->dir, "prices", &err), err);
    assert_true(agent_prices_cost(&prices, "big-1", false, &u, &micro));
    assert_int_equal(micro, 3000 + 600 + 1500);
    assert_false(agent_prices_cost(&prices, "other", false, &u, &micro));
    assert_true(agent_prices_cost(&prices, "other", true, &u, &micro));
    assert_int_equal(micro, 0);
    u.cache_write = 1; /* a kind that has no price */
    assert_false(agent_prices_cost(&prices, "big-1", false, &u, &micro));
    u = (struct model_usage){.known = true, .input = 1};
    assert_true(agent_prices_cost(&prices, "big-mini", false, &u, &micro));
    assert_int_equal(micro, 1); /* rounded up */
    u.known = false;
    assert_false(agent_prices_cost(&prices, "big-1", false, &u, &micro));
    agent_prices_done(&prices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines_are_summed_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changes_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_half_a_line_is_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prices, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("agent_ledger", tests, NULL, NULL);
}
