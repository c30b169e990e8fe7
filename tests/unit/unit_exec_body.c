#include "exec_body.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

static const char *const command[] = {"ls", "-l", NULL};

static struct exec_options options(void) {
    struct exec_options o = {.argv = (char **)(uintptr_t)command, .argc = 2};

    limit_options_init(&o.limits);
    return o;
}

static const struct exec_body_tty no_tty = {.input = -1};

/* The request, which is JSON. */
static json_t *made(const struct exec_options *o, const struct exec_body_tty *tty,
                    struct exec_body *b) {
    struct err err = {0};
    json_t *body;

    unit_works(exec_body_make(o, tty, b, &err), err);
    body = json_loadb(b->json.data, b->json.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(body);
    return body;
}

static const char *text(const json_t *body, const char *key) {
    return json_string_value(json_object_get(body, key));
}

/* A file with `len` bytes of `c`; its name goes into `name`. */
static void make_file(char name[32], size_t len, char c) {
    char *data = malloc(len + 1);
    int fd;

    assert_non_null(data);
    memset(data, c, len);
    memcpy(name, "/tmp/pinfold-unit-XXXXXX", 25);
    fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
    free(data);
}

static void test_plain(void **state) {
    (void)state;
    struct exec_options o = options();
    struct exec_body a, b;
    json_t *body = made(&o, &no_tty, &a), *other = made(&o, &no_tty, &b);

    assert_int_equal(strlen(a.id), 27);
    assert_int_equal(strncmp(a.id, "ex_", 3), 0);
    assert_int_equal(strspn(a.id + 3, "abcdefghijklmnopqrstuvwxyz0123456789"), 24);
    assert_string_not_equal(a.id, b.id);
    assert_string_equal(text(body, "id"), a.id);
    assert_int_equal(json_array_size(json_object_get(body, "argv")), 2);
    assert_true(json_is_true(json_object_get(body, "stream")));
    assert_null(json_object_get(body, "stdin_open"));
    assert_null(json_object_get(body, "background"));
    assert_null(json_object_get(body, "pty"));
    assert_int_equal(a.input, -1);
    json_decref(body);
    json_decref(other);
    exec_body_done(&a);
    exec_body_done(&b);
}

static void test_terminal(void **state) {
    (void)state;
    struct exec_options o = options();
    struct exec_body_tty tty = {.rows = 24, .cols = 80, .term = "xterm", .input = -1};
    struct exec_body b;
    json_t *body = made(&o, &tty, &b);

    assert_int_equal(json_integer_value(json_object_get(json_object_get(body, "pty"), "cols")), 80);
    assert_string_equal(text(json_object_get(body, "env"), "TERM"), "xterm");
    /* Nobody's keys, but an end of them. */
    assert_true(json_is_true(json_object_get(body, "stdin_open")));
    assert_true(b.input > STDERR_FILENO);
    json_decref(body);
    exec_body_done(&b);
    /* The user's own TERM wins; one that is no name is not passed on. */
    o.env.item[o.env.count++] = "TERM=vt100";
    body = made(&o, &tty, &b);
    assert_string_equal(text(json_object_get(body, "env"), "TERM"), "vt100");
    json_decref(body);
    exec_body_done(&b);
    o.env.count = 0;
    tty.term = "evil\ntext";
    body = made(&o, &tty, &b);
    assert_null(json_object_get(body, "env"));
    json_decref(body);
    exec_body_done(&b);
}

static void test_input(void **state) {
    (void)state;
    struct exec_options o = options();
    struct exec_body_tty tty = {.rows = 24, .cols = 80, .input = -1};
    struct exec_body b;
    char small[32], large[32];
    json_t *body;

    make_file(small, 10, 's');
    make_file(large, EXEC_BODY_INLINE_MAX + 1, 'l');
    o.input = small;
    body = made(&o, &no_tty, &b);
    assert_string_equal(text(body, "stdin"), "ssssssssss");
    assert_int_equal(b.input, -1);
    json_decref(body);
    exec_body_done(&b);
    /* A terminal is always fed. */
    o.tty = true;
    body = made(&o, &tty, &b);
    o.tty = false;
    assert_null(text(body, "stdin"));
    assert_true(b.input >= 0);
    json_decref(body);
    exec_body_done(&b);
    /* What is long is fed, except to what nobody will feed. */
    o.input = large;
    body = made(&o, &no_tty, &b);
    assert_null(text(body, "stdin"));
    assert_true(json_is_true(json_object_get(body, "stdin_open")));
    json_decref(body);
    exec_body_done(&b);
    o.background = true;
    body = made(&o, &no_tty, &b);
    assert_int_equal(json_string_length(json_object_get(body, "stdin")), EXEC_BODY_INLINE_MAX + 1);
    assert_null(json_object_get(body, "stream"));
    json_decref(body);
    exec_body_done(&b);
    unlink(small);
    unlink(large);
}

static void test_wrong(void **state) {
    (void)state;
    struct exec_options o = options();
    struct exec_body b = {.input = -7};
    struct err err = {0};
    char file[32], link[48];

    make_file(file, 1, 'x');
    snprintf(link, sizeof(link), "%s.link", file);
    assert_int_equal(symlink(file, link), 0);
    o.input = link;
    unit_fails(exec_body_make(&o, &no_tty, &b, &err), err, ERR_INVALID);
    o.input = "/tmp";
    unit_fails(exec_body_make(&o, &no_tty, &b, &err), err, ERR_INVALID);
    o.input = "/no/such/file";
    unit_fails(exec_body_make(&o, &no_tty, &b, &err), err, ERR_SYSTEM);
    o.input = NULL;
    o.cwd = "/\xff";
    unit_fails(exec_body_make(&o, &no_tty, &b, &err), err, ERR_INVALID);
    assert_int_equal(b.input, -7);
    unlink(link);
    unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain),
                                       cmocka_unit_test(test_terminal),
                                       cmocka_unit_test(test_input), cmocka_unit_test(test_wrong)};
    return cmocka_run_group_tests_name("exec_body", tests, NULL, NULL);
}
