/* Effective limits as JSON. */
#include "limits_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static struct limits_effective sample(void) {
    struct limits_effective e;
    for (int id = 0; id < LIMIT_COUNT; id++) {
        e.values.v[id] = 1000u + (uint64_t)id;
        e.from[id] = (uint8_t)(id % LIMITS_FROM_COUNT);
    }
    return e;
}

static void test_round_trip(void **state) {
    (void)state;
    struct limits_effective e = sample(), back;
    e.from[LIMIT_PIDS] = LIMITS_FROM_UNENFORCED;
    json_t *object = limits_json_encode(&e);
    assert_true(json_is_false(json_object_get(json_object_get(object, "pids"), "enforced")));
    assert_int_equal(json_object_size(object), LIMIT_COUNT);
    char *wall = json_dumps(json_object_get(object, "wall_ms"), JSON_COMPACT);
    assert_string_equal(wall, "{\"value\":1000,\"from\":\"default\"}");
    free(wall);
    assert_int_equal(limits_json_decode(object, &back, NULL), 0);
    assert_memory_equal(&back.values, &e.values, sizeof(e.values));
    assert_memory_equal(back.from, e.from, sizeof(e.from));
    json_decref(object);
}

static void test_changed(void **state) {
    (void)state;
    struct limits_effective run = sample(), step = run;
    json_t *object = limits_json_encode_changed(&step, &run);
    assert_int_equal(json_object_size(object), 0);
    json_decref(object);
    step.values.v[LIMIT_CPU_MS] = 5;
    step.from[LIMIT_CPU_MS] = LIMITS_FROM_REQUEST;
    object = limits_json_encode_changed(&step, &run);
    char *json = json_dumps(object, JSON_COMPACT);
    assert_string_equal(json, "{\"cpu_ms\":{\"value\":5,\"from\":\"request\"}}");
    free(json);
    json_decref(object);
}

static void test_decode(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "[]",
        "{\"wall_ms\":5}",
        "{\"wall_ms\":{\"value\":5}}",
        "{\"wall_ms\":{\"value\":-5,\"from\":\"policy\"}}",
        "{\"wall_ms\":{\"value\":\"5\",\"from\":\"policy\"}}",
        "{\"wall_ms\":{\"value\":5,\"from\":\"heaven\"}}",
    };
    struct limits_effective e;
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++) {
        json_t *object = json_loads(wrong[i], 0, NULL);
        assert_int_equal(limits_json_decode(object, &e, NULL), -1);
        json_decref(object);
    }
    json_t *object = json_loads("{\"gpus\":1,\"pids\":{\"value\":3,\"from\":\"policy\"}}", 0, NULL);
    assert_int_equal(limits_json_decode(object, &e, NULL), 0);
    assert_int_equal(e.values.v[LIMIT_PIDS], 3);
    assert_int_equal(e.from[LIMIT_PIDS], LIMITS_FROM_POLICY);
    assert_int_equal(e.values.v[LIMIT_WALL_MS], 0);
    json_decref(object);
    assert_null(limits_from_name(LIMITS_FROM_COUNT));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
