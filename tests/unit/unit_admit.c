#include "admit.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

static struct wire_policy policy(void) {
    struct wire_policy p = {.max_steps = 4, .end_on = END_ON_PIDS};
    for (int i = 0; i < LIMIT_COUNT; i++) {
        uint64_t min = limit_info((enum limit_id)i)->min;
        p.preset.v[i] = min + 100;
        p.ceiling.v[i] = min + 1000;
    }
    return p;
}

static uint64_t above(int id, uint64_t more) {
    return limit_info((enum limit_id)id)->min + more;
}

static void wish(struct request_limits *l, int id, uint64_t value) {
    l->set[id] = true;
    l->values.v[id] = value;
}

static void test_defaults(void **state) {
    (void)state;
    struct wire_policy p = policy();
    struct request_step step = {0};
    struct run_request r = {.steps = &step, .step_count = 1};
    struct api_error error = {0};
    struct admit a;
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        assert_int_equal(a.run.values.v[i], p.preset.v[i]);
        assert_int_equal(a.run.from[i], LIMITS_FROM_DEFAULT);
        assert_int_equal(a.steps[0].values.v[i], p.preset.v[i]);
        assert_int_equal(a.open.v[i], p.preset.v[i]);
    }
    assert_int_equal(a.end_on, END_ON_PIDS);
    free(a.steps);
}

static void test_wishes(void **state) {
    (void)state;
    struct wire_policy p = policy();
    for (int i = 0; i < LIMIT_COUNT; i++) {
        struct request_step step = {0};
        struct run_request r = {.steps = &step, .step_count = 1};
        struct api_error error = {0};
        struct admit a;
        wish(&r.limits, i, above(i, 1000));
        assert_int_equal(admit_check(&r, &p, &a, &error), 0);
        assert_int_equal(a.run.values.v[i], above(i, 1000));
        assert_int_equal(a.run.from[i], LIMITS_FROM_REQUEST);
        assert_int_equal(a.steps[0].values.v[i], above(i, 1000));
        free(a.steps);
        wish(&r.limits, i, above(i, 1001));
        assert_int_equal(admit_check(&r, &p, &a, &error), -1);
        assert_int_equal(error.status, 403);
        assert_string_equal(error.code, "policy_limit");
        assert_true(strncmp(error.field, "/limits/", 8) == 0);
        assert_string_equal(error.field + 8, limit_info((enum limit_id)i)->name);
    }
}

static void test_steps(void **state) {
    (void)state;
    struct wire_policy p = policy();
    struct request_step steps[2] = {0};
    struct run_request r = {.steps = steps, .step_count = 2};
    struct api_error error = {0};
    struct admit a;
    /* Time is counted anew for each step, so one step may have more than the others. */
    wish(&r.limits, LIMIT_WALL_MS, above(LIMIT_WALL_MS, 10));
    wish(&steps[1].limits, LIMIT_WALL_MS, above(LIMIT_WALL_MS, 900));
    wish(&steps[0].limits, LIMIT_MEM_BYTES, above(LIMIT_MEM_BYTES, 5));
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    assert_int_equal(a.steps[0].values.v[LIMIT_WALL_MS], above(LIMIT_WALL_MS, 10));
    assert_int_equal(a.steps[1].values.v[LIMIT_WALL_MS], above(LIMIT_WALL_MS, 900));
    assert_int_equal(a.open.v[LIMIT_WALL_MS], above(LIMIT_WALL_MS, 900));
    assert_int_equal(a.steps[0].values.v[LIMIT_MEM_BYTES], above(LIMIT_MEM_BYTES, 5));
    assert_int_equal(a.open.v[LIMIT_MEM_BYTES], above(LIMIT_MEM_BYTES, 100));
    free(a.steps);
    /* Memory is the jail's: a step cannot have more than the run. */
    wish(&steps[1].limits, LIMIT_MEM_BYTES, above(LIMIT_MEM_BYTES, 101));
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.code, "limit_conflict");
    assert_string_equal(error.field, "/steps/1/limits/mem_bytes");
    wish(&steps[1].limits, LIMIT_MEM_BYTES, above(LIMIT_MEM_BYTES, 1001));
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_int_equal(error.status, 403);
}

static void test_shape(void **state) {
    (void)state;
    struct wire_policy p = policy();
    struct request_step steps[5] = {0};
    struct run_request r = {.steps = steps, .step_count = 5};
    struct api_error error = {0};
    struct admit a;
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_int_equal(error.status, 403);
    assert_string_equal(error.field, "/steps");
    r.step_count = 4;
    r.network = REQUEST_NETWORK_EGRESS;
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_string_equal(error.field, "/network");
    r.network = REQUEST_NETWORK_NONE;
    r.end_on_set = true;
    r.end_on = 0;
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    assert_int_equal(a.end_on, 0);
    free(a.steps);
}

static void test_what_cannot_be_enforced(void **state) {
    (void)state;
    struct wire_policy p = policy();
    p.unenforced = 1u << LIMIT_PIDS;
    struct request_step step = {0};
    struct run_request r = {.steps = &step, .step_count = 1};
    struct api_error error = {0};
    struct admit a;
    wish(&r.limits, LIMIT_MEM_BYTES, above(LIMIT_MEM_BYTES, 5));
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    assert_int_equal(a.run.from[LIMIT_PIDS], LIMITS_FROM_UNENFORCED);
    assert_int_equal(a.steps[0].from[LIMIT_PIDS], LIMITS_FROM_UNENFORCED);
    assert_int_equal(a.run.from[LIMIT_MEM_BYTES], LIMITS_FROM_REQUEST);
    assert_string_equal(limits_from_name(LIMITS_FROM_UNENFORCED), "default");
    free(a.steps);
    wish(&step.limits, LIMIT_PIDS, above(LIMIT_PIDS, 1));
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_int_equal(error.status, 422);
    assert_string_equal(error.field, "/steps/0/limits/pids");
    step = (struct request_step){0};
    wish(&r.limits, LIMIT_PIDS, above(LIMIT_PIDS, 1));
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_string_equal(error.code, "limit_unavailable");
    assert_string_equal(error.field, "/limits/pids");
}

/* What all steps of a run may keep together is bounded: nobody can ask for more, and what is not
 * asked for is lowered. */
static void test_output_of_all_steps(void **state) {
    (void)state;
    enum { STEPS = 64 };
    struct wire_policy p = policy();
    struct request_step steps[STEPS];
    struct run_request r = {.steps = steps, .step_count = STEPS};
    struct api_error error = {0};
    struct admit a;
    memset(steps, 0, sizeof(steps));
    p.max_steps = STEPS;
    p.preset.v[LIMIT_OUTPUT_BYTES] = p.ceiling.v[LIMIT_OUTPUT_BYTES] = 256 << 20;
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    assert_int_equal(admit_output(a.steps, STEPS), ADMIT_OUTPUT_MAX);
    assert_int_equal(a.steps[63].values.v[LIMIT_OUTPUT_BYTES], 4 << 20);
    assert_int_equal(a.steps[63].from[LIMIT_OUTPUT_BYTES], LIMITS_FROM_POLICY);
    assert_int_equal(a.run.values.v[LIMIT_OUTPUT_BYTES], 4 << 20);
    free(a.steps);
    wish(&steps[5].limits, LIMIT_OUTPUT_BYTES, 193 << 20); /* the others share what it leaves */
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    assert_int_equal(a.steps[5].values.v[LIMIT_OUTPUT_BYTES], 193 << 20);
    assert_int_equal(a.steps[6].values.v[LIMIT_OUTPUT_BYTES], 1 << 20);
    free(a.steps);
    wish(&steps[6].limits, LIMIT_OUTPUT_BYTES, 63 << 20); /* it leaves nothing */
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.field, "/limits/output_bytes");
    memset(steps, 0, sizeof(steps));
    wish(&r.limits, LIMIT_OUTPUT_BYTES, 4 << 20);
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    assert_int_equal(a.run.from[LIMIT_OUTPUT_BYTES], LIMITS_FROM_REQUEST);
    free(a.steps);
    wish(&r.limits, LIMIT_OUTPUT_BYTES, (4 << 20) + 1);
    assert_int_equal(admit_check(&r, &p, &a, &error), -1);
    r.step_count = 1; /* one step may have what the policy gives */
    wish(&r.limits, LIMIT_OUTPUT_BYTES, 256 << 20);
    assert_int_equal(admit_check(&r, &p, &a, &error), 0);
    free(a.steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_what_cannot_be_enforced),
        cmocka_unit_test(test_output_of_all_steps),
    };
    return cmocka_run_group_tests_name("admit", tests, NULL, NULL);
}
