#include "metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "unit.h"

static const char *written(const struct metrics *m, const struct metrics_gauges *g) {
    static struct buf out;
    struct err err = {0};
    buf_done(&out);
    buf_init(&out, (size_t)4 * 1024 * 1024);
    unit_works(metrics_write(m, g, &out, &err), err);
    return out.data;
}

/* The value of a series: its line is "NAME VALUE". */
static const char *value(const char *text, const char *name) {
    char line[160];
    static char found[64];
    snprintf(line, sizeof(line), "\npinfold_%s ", name);
    const char *at = strstr(text, line);
    if (at == NULL)
        fail_msg("there is no %s", name);
    at += strlen(line);
    assert_null(strstr(at, line)); /* no series twice */
    snprintf(found, sizeof(found), "%.*s", (int)strcspn(at, "\n"), at);
    return found;
}

static void test_histograms(void **state) {
    (void)state;
    struct metrics *m = calloc(1, sizeof(*m));
    struct metrics_gauges *g = calloc(1, sizeof(*g));
    assert_true(m != NULL && g != NULL);
    metrics_observe(&m->start, 0);
    metrics_observe(&m->start, 100000); /* a bound is inclusive */
    metrics_observe(&m->start, 100001);
    metrics_observe(&m->start, 1000ull * CLOCK_NS_PER_S); /* above all bounds */
    metrics_observe(&m->http[METRICS_RUNS], 1500000);
    const char *text = written(m, g);
    assert_string_equal(value(text, "start_latency_seconds_bucket{le=\"0.0001\"}"), "2");
    assert_string_equal(value(text, "start_latency_seconds_bucket{le=\"0.00025\"}"), "3");
    assert_string_equal(value(text, "start_latency_seconds_bucket{le=\"300.0\"}"), "3");
    assert_string_equal(value(text, "start_latency_seconds_bucket{le=\"+Inf\"}"), "4");
    assert_string_equal(value(text, "start_latency_seconds_count"), "4");
    assert_string_equal(value(text, "start_latency_seconds_sum"), "1000.000200001");
    assert_string_equal(
        value(text, "http_request_duration_seconds_bucket{route=\"runs\",le=\"0.0025\"}"), "1");
    assert_string_equal(value(text, "http_request_duration_seconds_count{route=\"runs\"}"), "1");
    assert_string_equal(value(text, "http_request_duration_seconds_sum{route=\"runs\"}"), "0.0015");
    assert_string_equal(value(text, "http_request_duration_seconds_count{route=\"exec\"}"), "0");
    free(m);
    free(g);
}

static void test_refusals(void **state) {
    (void)state;
    struct metrics *m = calloc(1, sizeof(*m));
    struct metrics_gauges *g = calloc(1, sizeof(*g));
    assert_true(m != NULL && g != NULL);
    metrics_refusal(m, "queue_full");
    metrics_refusal(m, "queue_full");
    metrics_refusal(m, "made_up\"} 1\n");
    metrics_refusal(m, "");
    const char *text = written(m, g);
    assert_string_equal(value(text, "refusals_total{reason=\"queue_full\"}"), "2");
    assert_string_equal(value(text, "refusals_total{reason=\"other\"}"), "2");
    assert_null(strstr(text, "made_up"));
    free(m);
    free(g);
}

static void test_families(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        enum metrics_family family;
    } rows[] = {
        {"/v1/runs", METRICS_RUNS},
        {"/v1/runs/{}", METRICS_RUNS},
        {"/v1/runs/{}/events", METRICS_EVENTS},
        {"/v1/runs/{}/steps/{}/stdout", METRICS_RUNS},
        {"/v1/sandboxes", METRICS_SANDBOXES},
        {"/v1/sandboxes/{}", METRICS_SANDBOXES},
        {"/v1/sandboxes/{}/ttl", METRICS_SANDBOXES},
        {"/v1/sandboxes/{}/exec", METRICS_EXEC},
        {"/v1/sandboxes/{}/exec/{}/events", METRICS_EVENTS},
        {"/v1/sandboxes/{}/files/{*}", METRICS_FILES},
        {"/v1/sandboxes/{}/watch/{*}", METRICS_EVENTS},
        {"/v1/sandboxes/{}/sync", METRICS_SYNC},
        {"/v1/sandboxes/{}/snapshots", METRICS_SNAPSHOTS},
        {"/v1/snapshots/{}", METRICS_SNAPSHOTS},
        {"/v1/blobs/{}", METRICS_SYNC},
        {"/v1/tokens", METRICS_TOKENS},
        {"/v1/users/{}", METRICS_TOKENS},
        {"/healthz", METRICS_INFO},
        {"", METRICS_INFO},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        if (metrics_family(rows[i].pattern) != rows[i].family)
            fail_msg("%s is of family %d", rows[i].pattern, metrics_family(rows[i].pattern));
}

static void test_rates(void **state) {
    (void)state;
    struct metrics_rate r = {0};
    uint64_t t = 1000 * CLOCK_NS_PER_S;
    assert_int_equal(metrics_per_minute(&r, t), 0);
    for (int i = 0; i < 5; i++)
        metrics_count(&r, t);
    metrics_count(&r, t + 30 * CLOCK_NS_PER_S);
    assert_int_equal(metrics_per_minute(&r, t + 30 * CLOCK_NS_PER_S), 6);
    assert_int_equal(metrics_per_minute(&r, t + 59 * CLOCK_NS_PER_S), 6);
    assert_int_equal(metrics_per_minute(&r, t + 60 * CLOCK_NS_PER_S), 1);
    assert_int_equal(metrics_per_minute(&r, t + 89 * CLOCK_NS_PER_S), 1);
    assert_int_equal(metrics_per_minute(&r, t + 90 * CLOCK_NS_PER_S), 0);
    metrics_count(&r, t + 100000 * CLOCK_NS_PER_S);
    assert_int_equal(metrics_per_minute(&r, t + 100000 * CLOCK_NS_PER_S), 1);
    /* A run that was accepted a while ago may be counted after a newer one. */
    metrics_count(&r, t + 99990 * CLOCK_NS_PER_S);
    assert_int_equal(metrics_per_minute(&r, t + 100000 * CLOCK_NS_PER_S), 2);
    struct metrics_rate young = {0};
    metrics_count(&young, CLOCK_NS_PER_S); /* a machine that has just started */
    assert_int_equal(metrics_per_minute(&young, 2 * CLOCK_NS_PER_S), 1);
}

static void test_users_are_escaped(void **state) {
    (void)state;
    struct buf out;
    struct err err = {0};
    struct quota_use use = {.v = {[QUOTA_RUNS] = 3}};
    const struct metrics_user users[] = {{.name = "a\"b\\c\nd", .use = &use}};
    buf_init(&out, 65536);
    unit_works(metrics_write_users(users, 1, &out, &err), err);
    assert_non_null(
        strstr(out.data, "pinfold_user_used{user=\"a\\\"b\\\\c\\nd\",quota=\"runs\"} 3\n"));
    buf_done(&out);
    buf_init(&out, 10);
    unit_fails(metrics_write_users(users, 1, &out, &err), err, ERR_LIMIT);
    buf_done(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histograms),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_families),          cmocka_unit_test(test_rates),
        cmocka_unit_test(test_users_are_escaped),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
