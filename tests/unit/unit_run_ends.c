#include "run_ends.h"

#include <jansson.h>
#include <string.h>

#include "unit.h"

static void take(struct run_ends *r, size_t step, const char *text) {
    json_t *event = json_loads(text, 0, NULL);

    assert_non_null(event);
    run_ends_take(r, step, event);
    json_decref(event);
}

#define EXIT0 "{\"end\":{\"cause\":\"exit\",\"exit_code\":0,\"signal\":null}}"
#define EXIT3 "{\"end\":{\"cause\":\"exit\",\"exit_code\":3,\"signal\":null}}"
#define WALL                                                                                       \
    "{\"end\":{\"cause\":\"wall_time\",\"exit_code\":null,\"signal\":9,\"limit\":2000,"            \
    "\"observed\":2001},\"usage\":{\"wall_ms\":2001}}"

static void test_one(void **state) {
    (void)state;
    static const struct {
        const char *event;
        bool ok;
        int code;
        const char *part; /* of the sentence; NULL = none is said */
    } cases[] = {
        {EXIT0, true, 0, NULL},
        {EXIT3, false, 3, NULL},
        {"{\"end\":{\"cause\":\"exit\",\"exit_code\":137,\"signal\":null}}", false, 137, NULL},
        {"{\"end\":{\"cause\":\"signal\",\"exit_code\":null,\"signal\":15}}", false, 143,
         "SIGTERM"},
        {WALL, false, 124, "after 2.0 s"},
        {"{\"end\":{\"cause\":\"cpu_time\",\"exit_code\":null,\"signal\":9}}", false, 124, "CPU"},
        {"{\"end\":{\"cause\":\"memory\",\"exit_code\":null,\"signal\":9}}", false, 137, "memory"},
        {"{\"end\":{\"cause\":\"start\",\"exit_code\":null,\"signal\":null}}", false, 125, "start"},
        {"{\"end\":{\"cause\":\"internal\",\"exit_code\":null,\"signal\":null}}", false, 125,
         "service"},
        {"{\"end\":{\"cause\":\"cancelled\",\"exit_code\":null,\"signal\":9}}", false, 125,
         "cancel"},
        {"{\"end\":{\"cause\":\"of another world\"}}", false, 125, "service"},
        {"{\"end\":null}", false, 125, "service"},
        /* A verdict that contradicts the end. */
        {EXIT0, false, 125, "without a result"},
    };

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct run_body body = {.step_count = 1};
        struct run_ends r = {0};
        struct err err = {0};
        char why[600];

        unit_works(run_ends_init(&r, 1, &err), err);
        take(&r, 0, cases[i].event);
        take(&r, 1, WALL);
        take(&r, SIZE_MAX, WALL);
        assert_int_equal(run_ends_exit_code(&r, &body, cases[i].ok), cases[i].code);
        run_ends_explain(&r, &body, cases[i].ok, why, sizeof(why));
        if (cases[i].part == NULL)
            assert_string_equal(why, "");
        else if (strstr(why, cases[i].part) == NULL)
            fail_msg("%s: %s", cases[i].event, why);
        run_ends_done(&r);
    }
}

static void test_steps(void **state) {
    (void)state;
    struct run_body body = {.step_count = 4};
    struct run_ends r = {0};
    struct err err = {0};
    char why[600];

    body.steps = json_loads("[{\"name\":\"build\"},{\"name\":\"lint\",\"continue_on_error\":true},"
                            "{},{\"name\":\"last\"}]",
                            0, NULL);
    assert_non_null(body.steps);
    unit_works(run_ends_init(&r, 4, &err), err);
    take(&r, 0, EXIT0);
    take(&r, 1, EXIT3);
    assert_int_equal(run_ends_failed(&r, &body), 1);
    assert_int_equal(run_ends_exit_code(&r, &body, true), 0);
    take(&r, 2, WALL);
    assert_int_equal(run_ends_failed(&r, &body), 2);
    assert_int_equal(run_ends_exit_code(&r, &body, false), 124);
    run_ends_explain(&r, &body, false, why, sizeof(why));
    assert_non_null(strstr(why, "step 3 of 4 (step-2): the wall-clock limit of 2.0 s was reached"));
    take(&r, 2, EXIT3);
    run_ends_explain(&r, &body, false, why, sizeof(why));
    assert_non_null(strstr(why, "step 3 of 4 (step-2): the program ended with exit code 3"));
    run_ends_done(&r);
    run_ends_done(&r);
    run_body_done(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests_name("run_ends", tests, NULL, NULL);
}
