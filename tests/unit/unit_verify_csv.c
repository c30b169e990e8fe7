#include "verify.h"

#include "verify_decimal.h"
#include "verify_unit.h"

static void test_holds(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "t.csv",
                     "\xef\xbb\xbfid,amount,text\r\n1,10.50,\"a, \"\"b\"\"\nc\"\r\n2,-3,\r\n");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "rows=2", "column=id", "column=amount",
                                 "column=text", "exact=yes", "unique=id", "number=amount",
                                 "not_null=id"),
                     VERIFY_PASS);
}

static void test_each_rule_fails(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "t.csv", "id,amount\n1,x\n1,2\n ,3\n4\n");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "rows=1..3", "column=no", "unique=id",
                                 "number=amount", "not_null=id"),
                     VERIFY_FAIL);
    assert_int_equal(u->report.failed, 6);
    verify_unit_failed(u, 0, "column|t.csv|1|t.csv has no column no; it has id, amount");
    verify_unit_failed(u, 1, "amount|t.csv|2|x is no decimal number");
    verify_unit_failed(u, 2, "id|t.csv|3|1 was there already, in line 2");
    verify_unit_failed(u, 3, "id|t.csv|4|the field is empty");
    verify_unit_failed(u, 4, "fields|t.csv|5|the row has 1 fields, the first line has 2");
    verify_unit_failed(u, 5, "rows|t.csv|0|there are 4 rows; 1..3 are wanted");
}

static void test_lines_count_within_quotes(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "t.csv", "a,b\n\"1\n2\",x\n,y\n");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "not_null=a"), VERIFY_FAIL);
    verify_unit_failed(u, 0, "a|t.csv|4|the field is empty");
}

static void test_odd_tables(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "t.csv", "");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv"), VERIFY_BROKEN);
    verify_unit_file(u, "t.csv", "a,b\n\"1,2\n");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv"), VERIFY_BROKEN);
    verify_unit_file(u, "t.csv", "a\tb,c\n1\t2\n");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "separator=tab", "column=b,c"),
                     VERIFY_PASS);
    verify_unit_file(u, "t.csv", "a,b\n1,");
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "rows=1"), VERIFY_PASS);
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "rows=x"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "separator=ab"), VERIFY_BROKEN);
    assert_int_equal(verify_unit(u, "csv", "file=t.csv", "unique=no"), VERIFY_BROKEN);
}

static void test_sums_are_exact(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "l.csv", "k,v,kind\na,0.1,x\na,0.2,x\nb,3,x\nb,100,y\n");
    verify_unit_file(u, "r.csv", "k,v\na,0.3\nb,3.00\n");
    assert_int_equal(
        verify_unit(u, "reconcile", "left=l.csv:v", "right=r.csv:v", "by=k", "left_where=kind=x"),
        VERIFY_PASS);
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=103.3"), VERIFY_PASS);
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=103.31"), VERIFY_FAIL);
    verify_unit_failed(u, 0, "total||0|left is 103.3, right is 103.31: the difference is -0.01");
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=103.31", "tolerance=0.01"),
                     VERIFY_PASS);
}

/* Two errors that cancel out in the total. */
static void test_keys_are_compared_singly(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "l.csv", "k,v\na,1\nb,2\n");
    verify_unit_file(u, "r.csv", "k,v\na,2\nc,1\n");
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=r.csv:v"), VERIFY_PASS);
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=r.csv:v", "by=k"),
                     VERIFY_FAIL);
    assert_int_equal(u->report.failed, 3);
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=3", "by=k"), VERIFY_BROKEN);
}

static void test_a_field_that_is_no_number_is_no_zero(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "l.csv", "v\n1\nn/a\n");
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=1"), VERIFY_BROKEN);
    verify_unit_file(u, "l.csv", "v,w\n1,1\n,2\n");
    assert_int_equal(verify_unit(u, "reconcile", "left=l.csv:v", "right=1"), VERIFY_BROKEN);
}

static void test_decimals(void **state) {
    static const struct {
        const char *in, *out;
    } good[] = {
        {"0", "0"},
        {"-0", "0"},
        {"007.50", "7.5"},
        {".5", "0.5"},
        {"-.25", "-0.25"},
        {"+3", "3"},
        {" 12 ", "12"},
        {"5.", "5"},
        {"999999999999999999.999999999999", "999999999999999999.999999999999"},
        {"0.000000000001", "0.000000000001"},
    };
    static const char *const bad[] = {"",
                                      ".",
                                      "-",
                                      "1e3",
                                      "1,000",
                                      "0x10",
                                      "1 2",
                                      "--1",
                                      "1.2.3",
                                      "nan",
                                      "1-",
                                      "1000000000000000000",
                                      "0.0000000000001"};
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(good); i++) {
        verify_decimal value;
        char text[VERIFY_DECIMAL_SIZE];
        assert_true(verify_decimal_parse(good[i].in, &value));
        verify_decimal_print(value, text);
        assert_string_equal(text, good[i].out);
    }
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        verify_decimal value;
        if (verify_decimal_parse(bad[i], &value))
            fail_msg("%s was taken for a number", bad[i]);
    }
}

static void test_completeness(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "want.txt", "a\nb\n\nc\n");
    verify_unit_file(u, "have.csv", "id,x\na,1\nc,2\nd,3\n");
    assert_int_equal(verify_unit(u, "completeness", "expected=want.txt", "actual=have.csv:id"),
                     VERIFY_FAIL);
    verify_unit_failed(u, 0, "b|want.txt|2|it is not in have.csv:id");
    assert_int_equal(u->report.failed, 1);
    assert_int_equal(
        verify_unit(u, "completeness", "expected=want.txt", "actual=have.csv:id", "extra=refuse"),
        VERIFY_FAIL);
    assert_int_equal(u->report.failed, 2);
    assert_int_equal(mkdirat(u->args.root, "out", 0755), 0);
    assert_int_equal(mkdirat(u->args.root, "out/deep", 0755), 0);
    verify_unit_file(u, "out/deep/a.pdf", "x");
    assert_int_equal(verify_unit(u, "completeness", "files=out/**/*.pdf", "files=*.csv"),
                     VERIFY_PASS);
    verify_unit_file(u, "out/deep/b.pdf", "");
    assert_int_equal(verify_unit(u, "completeness", "files=out/**/*.pdf"), VERIFY_FAIL);
    assert_int_equal(verify_unit(u, "completeness", "files=*.doc"), VERIFY_FAIL);
    assert_int_equal(verify_unit(u, "completeness", "expected=want.txt"), VERIFY_BROKEN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_holds, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_each_rule_fails, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_lines_count_within_quotes, verify_unit_begin,
                                        verify_unit_end),
        cmocka_unit_test_setup_teardown(test_odd_tables, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_sums_are_exact, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_keys_are_compared_singly, verify_unit_begin,
                                        verify_unit_end),
        cmocka_unit_test_setup_teardown(test_a_field_that_is_no_number_is_no_zero,
                                        verify_unit_begin, verify_unit_end),
        cmocka_unit_test(test_decimals),
        cmocka_unit_test_setup_teardown(test_completeness, verify_unit_begin, verify_unit_end),
    };
    return cmocka_run_group_tests_name("verify_csv", tests, NULL, NULL);
}
