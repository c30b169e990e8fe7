#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

static const struct config_command command = {.usage = "u", .about = "a"};

static int parse(struct config *c, const char *json, struct err *err) {
    struct err own;
    unit_works(config_init(c, &own), own);
    return config_parse(c, "FILE", json, strlen(json), err);
}

static void refuse(const char *json, const char *sentence) {
    struct config c;
    struct err err;
    unit_fails(parse(&c, json, &err), err, ERR_INVALID);
    assert_string_equal(err.text, sentence);
    config_done(&c);
}

static void test_every_default_is_what_it_may_be(void **state) {
    (void)state;
    struct config c;
    struct err err;
    unit_works(config_init(&c, &err), err);
    assert_string_equal(c.state, "/var/lib/pinfold");
    assert_null(c.user);
    assert_int_equal(c.port, 7070);
    assert_int_equal(c.grace_ms, 10000);
    assert_int_equal(c.snapshot_bytes, (uint64_t)4 << 30);
    assert_false(c.verbose);
    for (const struct config_row *row = config_table(); row->key != NULL; row++)
        assert_int_equal(config_from(&c, row), CONFIG_FROM_DEFAULT);
    config_done(&c);
}

/* No key or flag is there twice, one section stands together, and sentences are sentences. */
static void test_the_table_is_in_order(void **state) {
    (void)state;
    for (const struct config_row *a = config_table(); a->key != NULL; a++) {
        assert_non_null(a->about);
        assert_true(a->about[0] >= 'A' && a->about[0] <= 'Z');
        assert_true(a->about[strlen(a->about) - 1] != '.');
        assert_null(strpbrk(a->about, "\"\\"));
        assert_true(strlen(a->about) < 200);
        assert_ptr_equal(config_find(a->key, strlen(a->key)), a);
        assert_int_equal(a->arg == NULL, a->type == CONFIG_SWITCH);
        size_t section = strcspn(a->key, ".");
        bool left = false;
        for (const struct config_row *b = a + 1; b->key != NULL; b++) {
            assert_string_not_equal(a->key, b->key);
            assert_true(a->flag == NULL || b->flag == NULL || strcmp(a->flag, b->flag) != 0);
            assert_true(a->letter == 0 || a->letter != b->letter);
            bool same = strncmp(a->key, b->key, section) == 0 && b->key[section] == '.';
            assert_false(same && (left || a->key[section] == '\0'));
            left = left || !same;
        }
    }
}

static void test_a_file_sets_what_it_says(void **state) {
    (void)state;
    struct config c;
    struct err err;
    unit_works(parse(&c,
                     "{\"// port\": \"why\", \"port\": 443, \"grace\": \"2m\", \"verbose\": true,\n"
                     " \"user\": null, \"retention\": {\"snapshot_bytes\": \"1536M\",\n"
                     " \"blob_bytes\": 4096, \"blob_age\": \"90s\"}}",
                     &err),
               err);
    assert_int_equal(c.port, 443);
    assert_int_equal(c.grace_ms, 120000);
    assert_true(c.verbose);
    assert_null(c.user);
    assert_int_equal(c.snapshot_bytes, (uint64_t)1536 << 20);
    assert_int_equal(c.blob_bytes, 4096);
    assert_int_equal(c.blob_age_ms, 90000);
    assert_int_equal(config_from(&c, config_find("port", 4)), CONFIG_FROM_FILE);
    assert_int_equal(config_from(&c, config_find("queue", 5)), CONFIG_FROM_DEFAULT);
    config_done(&c);
}

static void test_a_wrong_file_is_one_sentence_with_a_pointer(void **state) {
    (void)state;
    refuse("{\"prt\": 1}", "FILE: /prt: there is no such setting; pinfold-server config shows all "
                           "of them");
    refuse("{\"retention\": {\"port\": 1}}",
           "FILE: /retention/port: there is no such setting; pinfold-server config shows all of "
           "them");
    refuse("{\"retention.snapshots\": 1}",
           "FILE: /retention/snapshots: there is no such setting; pinfold-server config shows all "
           "of them");
    refuse("{\"port\": 1, \"port\": 2}", "FILE: /port: it is there twice");
    refuse("{\"retention\": {}, \"retention\": {}}", "FILE: /retention: it is there twice");
    refuse("{\"retention\": 5}", "FILE: /retention: an object is wanted");
    refuse("{\"port\": {}}", "FILE: /port: an integer that is not negative is wanted");
    refuse("{\"port\": \"443\"}", "FILE: /port: an integer that is not negative is wanted");
    refuse("{\"port\": -1}", "FILE: /port: an integer that is not negative is wanted");
    refuse("{\"port\": 65536}", "FILE: /port: 65536 is not between 0 and 65535");
    refuse("{\"connections\": 1}", "FILE: /connections: 1 is not between 16 and 1000000");
    refuse("{\"grace\": \"25h\"}", "FILE: /grace: 25h is not between 0ms and 24h");
    refuse("{\"grace\": 10}", "FILE: /grace: a string such as \"30s\" or \"2h\" is wanted");
    refuse("{\"grace\": \"10\"}",
           "FILE: /grace: it has no unit; a string such as \"30s\" is wanted");
    refuse("{\"verbose\": \"yes\"}", "FILE: /verbose: true or false is wanted");
    refuse("{\"state\": \"\"}", "FILE: /state: it is empty");
    refuse("{\"state\": 1}", "FILE: /state: a string is wanted");
    refuse("{\"// a\": 1}", "FILE: /// a: a comment must be a string");
    refuse("", "FILE: line 1 is not JSON: an object is wanted");
    refuse("[]", "FILE: line 1 is not JSON: an object is wanted");
    refuse("{\n\"port\": 1\n\"queue\": 2}",
           "FILE: line 3 is not JSON: a comma or a closing bracket is missing");
    refuse("{\"port\": }", "FILE: line 1 is not JSON: a value is missing");
    refuse("{\"user\": nul}", "FILE: line 1 is not JSON: it begins like null");
    refuse("{} {}", "FILE: line 1 is not JSON: something follows the end");
    refuse("{\"a\\u001bb\": 1}", "FILE: /a\\x1bb: there is no such setting; pinfold-server config "
                                 "shows all of them");
}

static void test_a_very_long_key_is_refused(void **state) {
    (void)state;
    struct config c;
    struct err err;
    char json[2000];
    memset(json, 'a', sizeof(json));
    memcpy(json, "{\"", 2);
    memcpy(json + sizeof(json) - 6, "\": 1}", 6);
    unit_fails(parse(&c, json, &err), err, ERR_INVALID);
    config_done(&c);
}

static void test_flags_override_the_file(void **state) {
    (void)state;
    char path[] = "/tmp/pinfold-config-XXXXXX";
    int fd = mkstemp(path);
    static const char text[] = "{\"port\": 443, \"queue\": 7}";
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    char *argv[] = {"serve", "--port", "80", "--config", path, "-v", NULL};
    struct config c;
    struct err err;
    unit_works(config_load(&c, &command, 6, argv, &err), err);
    assert_int_equal(c.port, 80);
    assert_int_equal(c.queue, 7);
    assert_true(c.verbose);
    assert_int_equal(config_from(&c, config_find("port", 4)), CONFIG_FROM_FLAG);
    assert_int_equal(config_from(&c, config_find("queue", 5)), CONFIG_FROM_FILE);
    config_done(&c);
    unlink(path);
    argv[3] = "--grace";
    argv[4] = "x";
    unit_fails(config_load(&c, &command, 6, argv, &err), err, ERR_INVALID);
    assert_non_null(strstr(err.text, "option --grace: "));
    config_done(&c);
    char *lost[] = {"serve", "--config", path, NULL};
    unit_fails(config_load(&c, &command, 3, lost, &err), err, ERR_SYSTEM);
    config_done(&c);
}

static void test_the_example_is_a_file_with_every_default(void **state) {
    (void)state;
    struct buf out, shown;
    struct config c, d;
    struct err err;
    buf_init(&out, 1 << 20);
    unit_works(config_print_example(&out, &err), err);
    unit_works(config_init(&d, &err), err);
    unit_works(parse(&c, out.data, &err), err);
    for (const struct config_row *row = config_table(); row->key != NULL; row++) {
        buf_init(&shown, 65536);
        unit_works(config_show(&c, row, &shown, &err), err);
        unit_works(buf_append(&shown, "", 1, &err), err);
        struct buf other;
        buf_init(&other, 65536);
        unit_works(config_show(&d, row, &other, &err), err);
        unit_works(buf_append(&other, "", 1, &err), err);
        assert_string_equal(shown.data, other.data);
        buf_done(&shown);
        buf_done(&other);
        assert_non_null(strstr(out.data, row->about));
    }
    config_done(&c);
    config_done(&d);
    buf_done(&out);
}

static void test_what_is_printed_says_where_from(void **state) {
    (void)state;
    struct buf out;
    struct config c;
    struct err err;
    buf_init(&out, 1 << 20);
    unit_works(parse(&c, "{\"port\": 443}", &err), err);
    unit_works(config_print(&c, &out, &err), err);
    assert_non_null(strstr(out.data, "port = 443\n"));
    assert_non_null(strstr(out.data, "From the file FILE; the default is 7070; flag --port N."));
    assert_non_null(strstr(out.data, "user = not set\n"));
    buf_clear(&out);
    unit_works(config_print_json(&c, &out, &err), err);
    assert_non_null(strstr(out.data, "\"value\":\"443\",\"default\":\"7070\",\"from\":\"file\""));
    buf_done(&out);
    config_done(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_default_is_what_it_may_be),
        cmocka_unit_test(test_the_table_is_in_order),
        cmocka_unit_test(test_a_file_sets_what_it_says),
        cmocka_unit_test(test_a_wrong_file_is_one_sentence_with_a_pointer),
        cmocka_unit_test(test_a_very_long_key_is_refused),
        cmocka_unit_test(test_flags_override_the_file),
        cmocka_unit_test(test_the_example_is_a_file_with_every_default),
        cmocka_unit_test(test_what_is_printed_says_where_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
