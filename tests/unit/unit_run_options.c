#include "run_options.h"

#include <string.h>

#include "unit.h"

static int parse(const char *const *words, struct run_options *out, struct err *err) {
    int argc = 0;

    while (words[argc] != NULL)
        argc++;
    return run_options_parse(argc, (char **)(uintptr_t)words, out, err);
}

static void test_command(void **state) {
    (void)state;
    static const char *const dashes[] = {"run", "--", "echo", "--wall", "-x", NULL};
    static const char *const plain[] = {"run", "python3", "--version", NULL};
    static const char *const shell[] = {"run", "-c", "echo hi", NULL};
    static const char *const steps[] = {"run", "--steps", "f.json", "--json", NULL};
    static const char *const help[] = {"run", "--help", NULL};
    struct err err = {0};
    struct run_options o;

    unit_works(parse(dashes, &o, &err), err);
    assert_int_equal(o.argc, 3);
    assert_string_equal(o.argv[0], "echo");
    assert_string_equal(o.argv[2], "-x");
    for (int i = 0; i < LIMIT_COUNT; i++)
        assert_true(o.limits.value[i] == LIMIT_OPTIONS_UNSET);
    unit_works(parse(plain, &o, &err), err);
    assert_int_equal(o.argc, 2);
    unit_works(parse(shell, &o, &err), err);
    assert_string_equal(o.shell, "echo hi");
    assert_int_equal(o.argc, 0);
    unit_works(parse(steps, &o, &err), err);
    assert_string_equal(o.steps, "f.json");
    assert_true(o.json);
    unit_works(parse(help, &o, &err), err);
    assert_true(o.help);
}

static void test_limits(void **state) {
    (void)state;
    struct err err = {0};
    struct run_options o;
    static const char *const words[] = {
        "run",         "--wall",      "1500ms",       "--cpu",  "10",      "--mem",
        "256M",        "--pids",      "64",           "--disk", "512M",    "--output",
        "1k",          "--inodes=99", "--open-files", "77",     "--stack", "8M",
        "--cpus",      "1.5",         "--file-size",  "1G",     "--env",   "A=",
        "--env=B=c=d", "-f",          "x:y",          "--",     "true",    NULL};

    unit_works(parse(words, &o, &err), err);
    assert_int_equal(o.limits.value[LIMIT_WALL_MS], 1500);
    assert_int_equal(o.limits.value[LIMIT_CPU_MS], 10000);
    assert_int_equal(o.limits.value[LIMIT_MEM_BYTES], 256u << 20);
    assert_int_equal(o.limits.value[LIMIT_PIDS], 64);
    assert_int_equal(o.limits.value[LIMIT_DISK_BYTES], 512u << 20);
    assert_int_equal(o.limits.value[LIMIT_OUTPUT_BYTES], 1024);
    assert_int_equal(o.limits.value[LIMIT_INODES], 99);
    assert_int_equal(o.limits.value[LIMIT_OPEN_FILES], 77);
    assert_int_equal(o.limits.value[LIMIT_STACK_BYTES], 8u << 20);
    assert_int_equal(o.limits.value[LIMIT_FILE_BYTES], 1u << 30);
    assert_int_equal(o.limits.value[LIMIT_CPUS_MILLI], 1500);
    assert_int_equal(o.env.count, 2);
    assert_string_equal(o.env.item[1], "B=c=d");
    assert_int_equal(o.files.count, 1);
}

static void test_cpus(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t milli;
    } good[] = {{"1", 1000}, {"0.5", 500}, {"0.05", 50}, {"2.25", 2250}, {"16.125", 16125}};
    static const char *const bad[] = {"",
                                      "0",
                                      "0.0",
                                      ".5",
                                      "1.",
                                      "1.2345",
                                      "-1",
                                      "x",
                                      "1.x",
                                      "1,5",
                                      "99999999999999999999999999"};

    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        struct err err = {0};
        struct run_options o;
        const char *const words[] = {"run", "--cpus", good[i].text, "true", NULL};

        unit_works(parse(words, &o, &err), err);
        assert_int_equal(o.limits.value[LIMIT_CPUS_MILLI], good[i].milli);
    }
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct err err = {0};
        struct run_options o;
        const char *const words[] = {"run", "--cpus", bad[i], "true", NULL};

        unit_fails(parse(words, &o, &err), err, ERR_INVALID);
    }
}

static void test_wrong(void **state) {
    (void)state;
    static const char *const bad[][6] = {
        {"run"},
        {"run", "-c", "x", "--", "y"},
        {"run", "-c", "x", "--steps", "y"},
        {"run", "--steps", "x", "y"},
        {"run", "--wall", "0", "true"},
        {"run", "--wall", "30d", "true"},
        {"run", "--wall", "48h", "true"},
        {"run", "--mem", "1", "true"},
        {"run", "--mem", "-1", "true"},
        {"run", "--pids", "0", "true"},
        {"run", "--output", "0", "true"},
        {"run", "--env", "A", "true"},
        {"run", "--env", "=A", "true"},
        {"run", "--out", "d", "true"},
        {"run", "--nonsense", "true"},
        {"run", "--json=1", "true"},
        {"run", "--wall"},
    };

    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        struct err err = {0};
        struct run_options o = {.argc = 77};

        unit_fails(parse(bad[i], &o, &err), err, ERR_INVALID);
        assert_int_equal(o.argc, 77);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests_name("run_options", tests, NULL, NULL);
}
