#include "verify.h"

#include "verify_unit.h"

struct row {
    const char *format, *text;
    uint64_t passed, failed, skipped;
    const char *failures[4];
};

static const struct row rows[] = {
    {"pytest",
     "collected 6 items\n\ntest_x.py FF..E\n\n=== ERRORS ===\n"
     "____ ERROR at setup of test_c ____\n\n    def bad(): raise ValueError(\"no\")\n"
     "E   ValueError: no\n\ntest_x.py:8: ValueError\n=== FAILURES ===\n"
     "____ TestA.test_a ____\n\nself = <x>\n\n>   assert 1 == 2\nE   assert 1 == 2\n\n"
     "test_x.py:3: AssertionError\n____ test_b[2] ____\nlib/a.py:9: in f\n    g()\n"
     "E   assert 2 == 1\n\nlib/b.py:5: AssertionError\n"
     "=== short test summary info ===\nFAILED test_x.py::TestA::test_a - assert 1 == 2\n"
     "FAILED test_x.py::test_b[2] - assert 2 == 1\nERROR test_x.py::test_c - ValueError: no\n"
     "\033[31m=== \033[1m2 failed\033[0m, 2 passed, 1 skipped, 1 error in 0.02s ===\033[0m\n",
     2,
     3,
     1,
     {"test_x.py::TestA::test_a|test_x.py|3|assert 1 == 2",
      "test_x.py::test_b[2]|lib/b.py|5|assert 2 == 1",
      "test_x.py::test_c|test_x.py|8|ValueError: no"}},
    {"unittest",
     "F.s\n======\nFAIL: test_a (mod.T.test_a)\n------\nTraceback (most recent call last):\n"
     "  File \"mod.py\", line 3, in test_a\n    self.assertEqual(1,2)\n"
     "AssertionError: 1 != 2\n\n------\nRan 3 tests in 0.001s\n\nFAILED (failures=1, skipped=1)\n",
     1,
     1,
     1,
     {"test_a (mod.T.test_a)|mod.py|3|AssertionError: 1 != 2"}},
    {"go",
     "--- FAIL: TestSum (0.00s)\n    --- FAIL: TestSum/neg (0.00s)\n"
     "        sum_test.go:12: got 1, want 2\n--- PASS: TestOk (0.00s)\n--- SKIP: TestNo (0.00s)\n"
     "FAIL\nFAIL\texample.com/sum\t0.002s\n",
     1,
     1,
     1,
     {"TestSum/neg|sum_test.go|12|got 1, want 2"}},
    {"go",
     "{\"Action\":\"output\",\"Package\":\"p\",\"Test\":\"T\",\"Output\":\"--- FAIL: T "
     "(0.00s)\\n\"}\n"
     "{\"Action\":\"output\",\"Package\":\"p\",\"Test\":\"T\",\"Output\":\"    a_test.go:3: "
     "no\\n\"}\n"
     "{\"Action\":\"output\",\"Package\":\"p\",\"Output\":\"FAIL\\tp\\t0.01s\\n\"}\n",
     0,
     1,
     0,
     {"T|a_test.go|3|no"}},
    {"go",
     "# example.com/sum [example.com/sum.test]\n./sum.go:10:2: undefined: y\n"
     "FAIL\texample.com/sum [build failed]\n",
     0,
     1,
     0,
     {"example.com/sum [example.com/sum.test]|./sum.go|10|undefined: y"}},
    {"cargo",
     "running 3 tests\ntest a::good ... ok\ntest a::bad ... FAILED\ntest a::later ... ignored\n\n"
     "failures:\n\n---- a::bad stdout ----\n\nthread 'a::bad' panicked at src/lib.rs:10:5:\n"
     "assertion `left == right` failed\n  left: 1\n\nfailures:\n    a::bad\n\n"
     "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured\n",
     1,
     1,
     1,
     {"a::bad|src/lib.rs|10|assertion `left == right` failed"}},
    {"cargo",
     "---- old stdout ----\ntest old ... FAILED\n"
     "---- old stdout ----\nthread 'old' panicked at 'boom', src/main.rs:7:9\n"
     "test result: FAILED. 0 passed; 1 failed; 0 ignored\n",
     0,
     1,
     0,
     {"old|src/main.rs|7|'boom', src/main.rs:7:9"}},
    {"cargo",
     "error[E0425]: cannot find value `x` in this scope\n --> src/main.rs:2:5\n  |\n"
     "error: could not compile `a` due to previous error\n",
     0,
     1,
     0,
     {"compile|src/main.rs|2|error[E0425]: cannot find value `x` in this scope"}},
    {"jest",
     "FAIL ./sum.test.js\n  \xe2\x97\x8f sum \xe2\x80\xba adds\n\n"
     "    expect(received).toBe(expected)\n\n      at Object.<anonymous> (sum.test.js:5:17)\n\n"
     "Tests:       1 failed, 1 skipped, 2 passed, 4 total\n",
     2,
     1,
     1,
     {"sum \xe2\x80\xba adds|sum.test.js|5|expect(received).toBe(expected)"}},
    {"vitest",
     " FAIL  a.test.ts > sum > adds\nAssertionError: expected 1 to be 2\n"
     " \xe2\x9d\xaf a.test.ts:5:17\n\n      Tests  1 failed | 2 passed (3)\n",
     2,
     1,
     0,
     {"a.test.ts > sum > adds|a.test.ts|5|AssertionError: expected 1 to be 2"}},
    {"node",
     "\xe2\x9c\x94 good (0.5ms)\n\xe2\x9c\x96 bad one (0.8ms)\n\xe2\x84\xb9 tests 2\n"
     "\xe2\x84\xb9 pass 1\n\xe2\x84\xb9 fail 1\n\xe2\x84\xb9 skipped 0\n\n"
     "\xe2\x9c\x96 failing tests:\n\ntest at n.test.js:2:1\n\xe2\x9c\x96 bad one (0.8ms)\n"
     "  AssertionError: 1 == 2\n",
     1,
     1,
     0,
     {"bad one|n.test.js|2|AssertionError: 1 == 2"}},
    {"ctest",
     "    Start 1: alpha\n1/3 Test #1: alpha ......   Passed    0.00 sec\n"
     "2/3 Test #2: beta .......***Failed    0.01 sec\n"
     "3/3 Test #3: gamma ......***Skipped   0.00 sec\n\n"
     "67% tests passed, 1 tests failed out of 3\n",
     1,
     1,
     1,
     {"beta||0|Failed    0.01 sec"}},
    {"tap",
     "TAP version 13\n1..4\nok 1 - a\nnot ok 2 - b\n  ---\n  location: 'x.js:2:9'\n"
     "  error: 'no'\n  ...\nok 3 - c # SKIP later\nnot ok 4 - d # todo\n",
     1,
     1,
     2,
     {"b|x.js|2|'no'"}},
};

static void test_formats(void **state) {
    struct verify_unit *u = *state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        char format[32];
        snprintf(format, sizeof(format), "format=%s", row->format);
        verify_unit_file(u, "log", row->text);
        for (int named = 0; named < 2; named++) {
            assert_int_equal(verify_unit(u, "log", "file=log", named ? format : "format=auto"),
                             VERIFY_FAIL);
            if (u->report.passed != row->passed || u->report.failed != row->failed ||
                u->report.skipped != row->skipped)
                fail_msg("row %zu (%s): %s", i, row->format, u->report.summary);
            for (size_t k = 0; k < 4 && row->failures[k] != NULL; k++)
                verify_unit_failed(u, k, row->failures[k]);
        }
    }
}

static void test_success(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "log", "..\n====== 2 passed in 0.01s ======\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_PASS);
    verify_unit_file(u, "log", "ok  \texample.com/a\t0.01s\n?   \tb\t[no test files]\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_PASS);
}

static void test_nothing_ran(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "log", "===== no tests ran in 0.01s =====\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_BROKEN);
    verify_unit_file(u, "log", "\nRan 0 tests in 0.000s\n\nOK\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_BROKEN);
    verify_unit_file(u, "log", "1..0 # SKIP no database\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_BROKEN);
    verify_unit_file(u, "log", "hello\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_BROKEN);
    verify_unit_file(u, "log", "");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_BROKEN);
}

/* A summary that names fewer failures than it counts. */
static void test_counts_win(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "log", "==== 3 failed, 1 passed in 0.01s ====\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_FAIL);
    assert_int_equal(u->report.failed, 3);
    verify_unit_file(u, "tap", "1..3\nok 1\nok 2\n");
    assert_int_equal(verify_unit(u, "tap", "file=tap"), VERIFY_FAIL);
    verify_unit_failed(u, 0, "plan||0|3 tests were planned, 2 came");
    verify_unit_file(u, "tap", "ok 1\nok 2\n");
    assert_int_equal(verify_unit(u, "tap", "file=tap"), VERIFY_BROKEN);
}

static void test_control_characters(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "log", "1..1\nnot ok 1 - a\001b\033Zc\n");
    assert_int_equal(verify_unit(u, "log", "file=log"), VERIFY_FAIL);
    verify_unit_failed(u, 0, "a?b?Zc||0|not ok");
}

static void test_links_and_devices(void **state) {
    struct verify_unit *u = *state;
    assert_int_equal(symlinkat("/etc/passwd", u->args.root, "out"), 0);
    assert_int_equal(symlinkat("log", u->args.root, "in"), 0);
    assert_int_equal(mkfifoat(u->args.root, "fifo", 0644), 0);
    verify_unit_file(u, "log", "1..1\nok 1\n");
    assert_int_equal(verify_unit(u, "log", "file=in"), VERIFY_PASS);
    assert_int_equal(verify_unit(u, "log", "file=out"), VERIFY_BROKEN);
    assert_non_null(strstr(u->report.summary, "leads out"));
    assert_int_equal(verify_unit(u, "log", "file=../etc/passwd"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "log", "file=fifo"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "log", "file=none"), VERIFY_BROKEN);
}

static void test_arguments(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "log", "1..1\nok 1\n");
    assert_int_equal(verify_unit(u, "log", "format=tap"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "log", "file=log", "colour=red"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "log", "file=log", "file=log"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "log", "file=log", "format=cobol"), VERIFY_BROKEN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_formats, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_success, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_nothing_ran, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_counts_win, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_control_characters, verify_unit_begin,
                                        verify_unit_end),
        cmocka_unit_test_setup_teardown(test_links_and_devices, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_arguments, verify_unit_begin, verify_unit_end),
    };
    return cmocka_run_group_tests_name("verify_log", tests, NULL, NULL);
}
