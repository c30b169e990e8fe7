#include "verify.h"

#include "verify_unit.h"

struct row {
    const char *schema, *value;
    enum verify_verdict verdict;
};

static const struct row rows[] = {
    {"{\"type\":\"integer\"}", "3.0", VERIFY_PASS},
    {"{\"type\":\"integer\"}", "3.5", VERIFY_FAIL},
    {"{\"type\":[\"string\",\"null\"]}", "null", VERIFY_PASS},
    {"{\"type\":\"thing\"}", "1", VERIFY_BROKEN},
    {"{\"minimun\":1}", "1", VERIFY_BROKEN}, /* a misspelled keyword must not seem to hold */
    {"{\"minimum\":9007199254740993}", "9007199254740992", VERIFY_FAIL},
    {"{\"exclusiveMaximum\":5}", "5", VERIFY_FAIL},
    {"{\"multipleOf\":0.01}", "4.35", VERIFY_PASS},
    {"{\"multipleOf\":0.01}", "4.355", VERIFY_FAIL},
    {"{\"multipleOf\":0}", "4", VERIFY_BROKEN},
    {"{\"maxLength\":2}", "\"\\u00e4\\u00f6\"", VERIFY_PASS},
    {"{\"maxLength\":1}", "\"\\u00e4\\u00f6\"", VERIFY_FAIL},
    {"{\"pattern\":\"^a+$\"}", "\"aaa\"", VERIFY_PASS},
    {"{\"pattern\":\"^a+$\"}", "\"b\"", VERIFY_FAIL},
    {"{\"pattern\":\"(\"}", "\"b\"", VERIFY_BROKEN},
    {"{\"pattern\":\"^(a+)+$\"}", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"",
     VERIFY_BROKEN},
    {"{\"enum\":[1,\"x\"]}", "1.0", VERIFY_PASS},
    {"{\"enum\":[1,\"x\"]}", "\"y\"", VERIFY_FAIL},
    {"{\"const\":{\"a\":1}}", "{\"a\":1}", VERIFY_PASS},
    {"{\"required\":[\"a\"]}", "{\"b\":1}", VERIFY_FAIL},
    {"{\"properties\":{\"a\":{\"type\":\"string\"}}}", "{\"a\":1}", VERIFY_FAIL},
    {"{\"properties\":{\"a\":true},\"additionalProperties\":false}", "{\"a\":1,\"b\":2}",
     VERIFY_FAIL},
    {"{\"patternProperties\":{\"^x_\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
     "{\"x_1\":2}", VERIFY_PASS},
    {"{\"propertyNames\":{\"maxLength\":1}}", "{\"ab\":1}", VERIFY_FAIL},
    {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1}", VERIFY_FAIL},
    {"{\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}", "[1,2,1]", VERIFY_FAIL},
    {"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", "[\"a\"]", VERIFY_PASS},
    {"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", "[\"a\",1]", VERIFY_FAIL},
    {"{\"items\":[{\"type\":\"string\"}]}", "[\"a\"]", VERIFY_BROKEN},
    {"{\"contains\":{\"const\":2},\"maxContains\":1}", "[2,2]", VERIFY_FAIL},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":3}]}", "5", VERIFY_PASS},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":3}]}", "2", VERIFY_FAIL},
    {"{\"oneOf\":[{\"minimum\":1},{\"minimum\":2}]}", "5", VERIFY_FAIL},
    {"{\"not\":{\"type\":\"null\"}}", "null", VERIFY_FAIL},
    {"{\"if\":{\"type\":\"integer\"},\"then\":{\"minimum\":3},\"else\":{\"type\":\"string\"}}", "2",
     VERIFY_FAIL},
    {"{\"if\":{\"type\":\"integer\"},\"then\":{\"minimum\":3},\"else\":{\"type\":\"string\"}}",
     "\"x\"", VERIFY_PASS},
    {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"string\"}}}", "1", VERIFY_FAIL},
    {"{\"$ref\":\"other.json\"}", "1", VERIFY_BROKEN},
    {"{\"$ref\":\"#\"}", "1", VERIFY_BROKEN}, /* for ever */
    {"{\"$defs\":{\"t\":{\"properties\":{\"l\":{\"$ref\":\"#/$defs/t\"},\"v\":{\"type\":"
     "\"integer\"}}}},\"$ref\":\"#/$defs/t\"}",
     "{\"l\":{\"l\":{\"v\":\"x\"}}}", VERIFY_FAIL},
    {"{\"title\":\"t\",\"description\":\"d\",\"format\":\"email\"}", "\"x\"", VERIFY_PASS},
    {"false", "1", VERIFY_FAIL},
    {"1", "1", VERIFY_BROKEN},
    {"{", "1", VERIFY_BROKEN},
    {"{}", "{\"a\":1,\"a\":2}", VERIFY_FAIL},
    {"{}", "{\"a\":", VERIFY_FAIL},
};

static void test_table(void **state) {
    struct verify_unit *u = *state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        verify_unit_file(u, "s.json", rows[i].schema);
        verify_unit_file(u, "v.json", rows[i].value);
        if (verify_unit(u, "json-schema", "schema=s.json", "file=v.json") != rows[i].verdict)
            fail_msg("%s on %s: %s, %s", rows[i].schema, rows[i].value,
                     verify_verdict_name(u->report.verdict), u->report.summary);
    }
}

static void test_place(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "s.json", "{\"items\":{\"properties\":{\"a/b\":{\"type\":\"string\"}}}}");
    verify_unit_file(u, "v.json", "[{},{\"a/b\":1}]");
    assert_int_equal(verify_unit(u, "json-schema", "schema=s.json", "file=v.json"), VERIFY_FAIL);
    verify_unit_failed(u, 0, "/1/a~1b|v.json|0|must be of type string");
}

static void test_no_schema(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "v.json", "1");
    assert_int_equal(verify_unit(u, "json-schema", "schema=none", "file=v.json"), VERIFY_BROKEN);
    verify_unit_file(u, "s.json", "{}");
    assert_int_equal(verify_unit(u, "json-schema", "schema=s.json", "file=none"), VERIFY_BROKEN);
}

static void test_exit(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "a.json",
                     "{\"steps\":[{\"name\":\"b\",\"state\":\"done\",\"end\":{\"cause\":\"exit\","
                     "\"exit_code\":0}},{\"name\":\"t\",\"state\":\"done\",\"end\":{\"cause\":"
                     "\"memory\",\"exit_code\":null}},{\"name\":\"u\",\"state\":\"skipped\"}]}");
    assert_int_equal(verify_unit(u, "exit", "file=a.json"), VERIFY_FAIL);
    verify_unit_failed(u, 0, "t||0|it ended by memory");
    verify_unit_failed(u, 1, "u||0|the step is skipped, not done");
    verify_unit_file(u, "a.json",
                     "{\"steps\":[{\"name\":\"b\",\"state\":\"done\",\"end\":{"
                     "\"cause\":\"exit\",\"exit_code\":0}}]}");
    assert_int_equal(verify_unit(u, "exit", "file=a.json"), VERIFY_PASS);
    verify_unit_file(u, "a.json", "{\"error\":{}}");
    assert_int_equal(verify_unit(u, "exit", "file=a.json"), VERIFY_BROKEN);
}

static void test_junit(void **state) {
    struct verify_unit *u = *state;
    verify_unit_file(u, "j.xml",
                     "<testsuites><testsuite><testcase classname='a' name='good'/>"
                     "<testcase classname='a' name='bad' file='x.py' line='7'>"
                     "<failure message='no &amp; never'>\nx.py:9: E\n</failure></testcase>"
                     "<testcase name='odd'><error>first\ny.py:3: Boom</error></testcase>"
                     "<testcase name='later'><skipped/></testcase></testsuite></testsuites>");
    assert_int_equal(verify_unit(u, "junit", "file=j.xml"), VERIFY_FAIL);
    assert_int_equal(u->report.passed, 1);
    assert_int_equal(u->report.skipped, 1);
    verify_unit_failed(u, 0, "a.bad|x.py|7|no & never");
    verify_unit_failed(u, 1, "odd|y.py|3|first");
    assert_int_equal(verify_unit(u, "junit", "file=*.xml"), VERIFY_FAIL);
    assert_int_equal(verify_unit(u, "junit", "file=no*.xml"), VERIFY_BROKEN);
    verify_unit_file(u, "j.xml", "<!DOCTYPE a [<!ENTITY b \"c\">]><testsuites/>");
    assert_int_equal(verify_unit(u, "junit", "file=j.xml"), VERIFY_BROKEN);
    verify_unit_file(u, "j.xml", "<html/>");
    assert_int_equal(verify_unit(u, "junit", "file=j.xml"), VERIFY_BROKEN);
    verify_unit_file(u, "j.xml", "<testsuites><testsuite>");
    assert_int_equal(verify_unit(u, "junit", "file=j.xml"), VERIFY_BROKEN);
    verify_unit_file(u, "j.xml", "<testsuites/>");
    assert_int_equal(verify_unit(u, "junit", "file=j.xml"), VERIFY_BROKEN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_table, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_place, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_no_schema, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_exit, verify_unit_begin, verify_unit_end),
        cmocka_unit_test_setup_teardown(test_junit, verify_unit_begin, verify_unit_end),
    };
    return cmocka_run_group_tests_name("verify_schema", tests, NULL, NULL);
}
