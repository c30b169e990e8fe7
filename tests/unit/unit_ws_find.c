#include "ws_find.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static void names(const char *inside, const char *typed, const char *want) {
    struct ws_place place = {.path = "/home/me/work"};
    char path[PATH_MAX] = "untouched";
    struct err err;
    memcpy(place.inside, inside, strlen(inside) + 1);
    if (want == NULL) {
        assert_int_equal(ws_find_path(&place, typed, path, &err), -1);
        assert_string_equal(path, "untouched");
        return;
    }
    unit_works(ws_find_path(&place, typed, path, &err), err);
    assert_string_equal(path, want);
}

static void test_a_path_is_named_as_the_workspace_names_it(void **state) {
    (void)state;
    names("", "a", "a");
    names("", "./a//b/", "a/b");
    names("src", "x.c", "src/x.c");
    names("src/deep", "../x.c", "src/x.c");
    names("src", "../a/./b", "a/b");
    names("src", "/home/me/work/a", "a");
    names("", "..a", "..a");
}

static void test_what_leads_out_is_none(void **state) {
    (void)state;
    names("", "../a", NULL);
    names("src", "../../a", NULL);
    names("", "a/../../work/a", NULL);
    names("", "/home/me/workshop", NULL);
    names("", "/etc/passwd", NULL);
    names("", ".", NULL);
    names("src", "..", NULL);
}

static void test_the_project_above_is_found_and_the_home_directory_is_none(void **state) {
    (void)state;
    char top[] = "/tmp/unit-ws-find-XXXXXX", cwd[PATH_MAX], real[PATH_MAX];
    struct ws_place *place = calloc(1, sizeof(*place));
    struct err err;
    assert_non_null(place);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_non_null(mkdtemp(top));
    assert_non_null(realpath(top, real));
    assert_int_equal(chdir(top), 0);
    assert_int_equal(mkdir(".git", 0700) | mkdir("work", 0700) | mkdir("work/.pinfold", 0700) |
                         mkdir("work/src", 0700) | mkdir("plain", 0700),
                     0);
    assert_int_equal(setenv("HOME", real, 1), 0);
    assert_int_equal(chdir("work/src"), 0);
    unit_works(ws_find(NULL, place, &err), err);
    assert_string_equal(place->path + strlen(real), "/work");
    assert_string_equal(place->inside, "src");
    unit_works(ws_find(".", place, &err), err);
    assert_string_equal(place->path + strlen(real), "/work/src");
    assert_string_equal(place->inside, "");
    assert_int_equal(chdir("../../plain"), 0);
    unit_works(ws_find(NULL, place, &err), err);
    assert_string_equal(place->path + strlen(real), "/plain");
    assert_int_equal(ws_find("/", place, &err), -1);
    assert_int_equal(ws_find("missing", place, &err), -1);
    assert_int_equal(chdir(real), 0);
    assert_int_equal(rmdir("work/src") | rmdir("work/.pinfold") | rmdir("work") | rmdir(".git") |
                         rmdir("plain"),
                     0);
    assert_int_equal(chdir(cwd) | rmdir(real), 0);
    free(place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_path_is_named_as_the_workspace_names_it),
        cmocka_unit_test(test_what_leads_out_is_none),
        cmocka_unit_test(test_the_project_above_is_found_and_the_home_directory_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
