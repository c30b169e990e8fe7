#include "route.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static void nothing(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)s;
    (void)req;
    (void)args;
}

static const struct route table[] = {
    {"POST", "/v1/runs", 0, nothing, 0},
    {"GET", "/v1/runs", 0, nothing, 0},
    {"GET", "/v1/runs/{}", 0, nothing, 0},
    {"DELETE", "/v1/runs/{}", 0, nothing, 0},
    {"GET", "/v1/runs/{}/steps/{}/stdout", 0, nothing, 0},
    {"PUT", "/v1/boxes/{}/files/{*}", 0, nothing, 0},
    {0},
};

/* Index in the table, or the negative HTTP status. */
static int find(const char *method, const char *path, struct route_args *args) {
    struct api_error error = {0};
    const struct route *r = route_find(table, method, path, args, &error);
    return r != NULL ? (int)(r - table) : -error.status;
}

static void test_table(void **state) {
    (void)state;
    struct route_args args;
    static const struct {
        const char *method, *path;
        int want;
    } rows[] = {
        {"POST", "/v1/runs", 0},
        {"GET", "/v1/runs", 1},
        {"HEAD", "/v1/runs", 1},
        {"GET", "/v1/%72uns", 1},
        {"GET", "/v1/runs/x", 2},
        {"HEAD", "/v1/runs/x", 2},
        {"DELETE", "/v1/runs/x", 3},
        {"GET", "/v1/runs/x/steps/0/stdout", 4},
        {"PUT", "/v1/runs", -405},
        {"HEAD", "/v1/runs/x/steps", -404},
        {"get", "/v1/runs", -405},
        {"GET", "/v1/runs/", -404},
        {"GET", "/v1//runs", -404},
        {"GET", "//v1/runs", -404},
        {"GET", "", -404},
        {"GET", "/", -404},
        {"GET", "*", -404},
        {"GET", "v1/runs", -404},
        {"GET", "/v1/runs/x/", -404},
        {"GET", "/v1/runs/%00", -400},
        {"GET", "/v1/runs/%", -400},
        {"GET", "/v1/runs/%4", -400},
        {"GET", "/v1/runs/%zz", -400},
        {"GET", "/v1/runs/%2", -400},
        {"GET", "/v1/..", -404},
        {"GET", "/v1/runs/%2e%2e/steps/0/stdout", 4},
        {"PUT", "/v1/boxes/x/files/", 5},
        {"PUT", "/v1/boxes/x/files/a/b/../c%2fd", 5},
        {"GET", "/v1/boxes/x/files/a", -405},
        {"PUT", "/v1/boxes/x/files", -404},
        {"PUT", "/v1/boxes/x/y/files/a", -404},
        {"PUT", "/v1/boxes/x/files/a%00b", -400},
        {"PUT", "/v1/boxes/x/files/a%4", -400},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        if (find(rows[i].method, rows[i].path, &args) != rows[i].want)
            fail_msg("%s %s: %d", rows[i].method, rows[i].path,
                     find(rows[i].method, rows[i].path, &args));
}

static void test_the_rest_of_a_path_is_decoded_as_a_whole(void **state) {
    (void)state;
    struct route_args args;
    char path[ROUTE_REST_SIZE + 100] = "/v1/boxes/sb/files/";
    size_t prefix = strlen(path);
    assert_int_equal(find("PUT", "/v1/boxes/sb/files/work%2Fa//%ff%20b/", &args), 5);
    assert_int_equal(args.count, 1);
    assert_string_equal(args.value[0], "sb");
    assert_string_equal(args.rest, "work/a//\xff b/");
    assert_int_equal(find("PUT", "/v1/boxes/sb/files/", &args), 5);
    assert_string_equal(args.rest, "");
    assert_int_equal(find("GET", "/v1/runs/x", &args), 2);
    assert_string_equal(args.rest, "");
    memset(path + prefix, 'x', ROUTE_REST_SIZE - 1);
    assert_int_equal(find("PUT", path, &args), 5);
    assert_int_equal(strlen(args.rest), ROUTE_REST_SIZE - 1);
    path[prefix + ROUTE_REST_SIZE - 1] = 'x';
    assert_int_equal(find("PUT", path, &args), -400);
}

static void test_args(void **state) {
    (void)state;
    struct route_args args;
    char path[600] = "/v1/runs/";
    assert_int_equal(find("GET", "/v1/runs/a%2Fb%20c/steps/7/stdout", &args), 4);
    assert_int_equal(args.count, 2);
    assert_string_equal(args.value[0], "a/b c");
    assert_string_equal(args.value[1], "7");
    memset(path + 9, 'x', ROUTE_ARG_SIZE - 1);
    assert_int_equal(find("GET", path, &args), 2);
    assert_int_equal(strlen(args.value[0]), ROUTE_ARG_SIZE - 1);
    memset(path + 9, 'x', ROUTE_ARG_SIZE);
    assert_int_equal(find("GET", path, &args), -404);
}

static void test_allow(void **state) {
    (void)state;
    struct route_args args;
    assert_int_equal(find("PATCH", "/v1/runs", &args), -405);
    assert_string_equal(args.allow, "POST, GET");
    assert_int_equal(find("PATCH", "/v1/runs/x", &args), -405);
    assert_string_equal(args.allow, "GET, DELETE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_the_rest_of_a_path_is_decoded_as_a_whole),
        cmocka_unit_test(test_allow),
    };
    return cmocka_run_group_tests_name("route_match", tests, NULL, NULL);
}
