/* Reading and writing JSON while one allocation fails. The module is part of this file, so that its
 * allocations can be counted. */
#include <stdlib.h>

static void *scarce(size_t size);
#define malloc scarce
#include "json_memory.c"
#undef malloc

#include <string.h>

#include "request.h"
#include "unit.h"

static unsigned allocations, failing; /* which one fails, counted from 1; 0 = none */

static void *scarce(size_t size) {
    return ++allocations == failing ? NULL : malloc(size);
}

static const char text[] =
    "{\"files\":[{\"path\":\"in\",\"content\":\"x\"}],\"env\":{\"A_LONG_NAME_OF_A_VARIABLE\":\"V\"}"
    ","
    "\"steps\":[{\"sh\":\"echo one; echo two >&2; exit 3\",\"limits\":{\"wall_ms\":5}}],"
    "\"stdin\":\"a line that is longer than all that came before it, so that a buffer grows\"}";

/* Which allocations fail is for `what` to see, one after the other until all were there. */
static void each(void (*what)(void)) {
    json_memory_watch();
    failing = 0;
    do {
        failing++;
        allocations = 0;
        what();
    } while (allocations >= failing);
    failing = 0;
    json_set_alloc_funcs(malloc, free);
}

static void load(void) {
    json_error_t e;
    json_t *root = json_memory_load(text, strlen(text), JSON_REJECT_DUPLICATES, &e);
    bool all = allocations < failing;
    if (root == NULL)
        assert_int_equal(errno, ENOMEM);
    assert_int_equal(root != NULL, all);
    json_decref(root);
}

static void test_what_is_read_is_whole_or_is_not_there(void **state) {
    (void)state;
    each(load);
    assert_true(allocations > 30);
}

static void request(void) {
    struct run_request r = {0};
    struct api_error e = {0};
    if (request_decode(text, strlen(text), &r, &e) != 0) {
        assert_int_equal(e.status, 500);
        return;
    }
    assert_string_equal(r.steps[0].argv[0], "echo one; echo two >&2; exit 3");
    request_done(&r);
}

static void test_memory_is_not_the_callers_fault(void **state) {
    (void)state;
    each(request);
}

static json_t *tree;

static void dump(void) {
    char *out = json_memory_dump(tree, JSON_COMPACT);
    if (out != NULL)
        assert_string_equal(out, text);
    free(out);
}

static void test_what_is_written_is_whole_or_is_not_there(void **state) {
    (void)state;
    tree = json_loads(text, 0, NULL);
    assert_non_null(tree);
    each(dump);
    assert_true(allocations > 3);
    json_decref(tree);
}

static void test_what_is_wrong_is_wrong(void **state) {
    json_error_t e;
    (void)state;
    json_memory_watch();
    assert_null(json_memory_load("{\"a\":", 5, 0, &e));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(json_error_code(&e), json_error_premature_end_of_input);
    json_t *root = json_memory_load("[1]", 3, 0, NULL);
    assert_int_equal(json_array_size(root), 1);
    json_decref(root);
    json_set_alloc_funcs(malloc, free);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read_is_whole_or_is_not_there),
        cmocka_unit_test(test_memory_is_not_the_callers_fault),
        cmocka_unit_test(test_what_is_written_is_whole_or_is_not_there),
        cmocka_unit_test(test_what_is_wrong_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
