#include "spec.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

static const char *const some_argv[] = {"printf", "%s\n", "", "\xff\x01 x"};
static const char *const some_env[] = {"PATH=/bin", "A=", "AB=c=d"};

static void encode(struct buf *out, size_t argc, size_t envc) {
    struct err err = {0};
    buf_init(out, 1u << 22);
    unit_works(spec_encode("/workspace", some_argv, argc, some_env, envc, out, &err), err);
}

static struct spec *new_spec(void) {
    struct spec *s = malloc(sizeof(*s));
    assert_non_null(s);
    memset(s, 0xab, sizeof(*s));
    return s;
}

static void test_round_trip(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    struct spec *s = new_spec();
    encode(&b, 4, 3);
    unit_works(spec_decode(b.data, b.len, s, &err), err);
    assert_string_equal(s->cwd, "/workspace");
    assert_int_equal(s->argc, 4);
    assert_int_equal(s->envc, 3);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(s->argv[i], some_argv[i]);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(s->env[i], some_env[i]);
    assert_null(s->argv[4]);
    assert_null(s->env[3]);
    buf_done(&b);
    free(s);
}

static void test_getenv(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    struct spec *s = new_spec();
    encode(&b, 1, 3);
    unit_works(spec_decode(b.data, b.len, s, &err), err);
    assert_string_equal(spec_getenv(s, "PATH"), "/bin");
    assert_string_equal(spec_getenv(s, "A"), "");
    assert_string_equal(spec_getenv(s, "AB"), "c=d");
    assert_null(spec_getenv(s, "PAT"));
    assert_null(spec_getenv(s, "B"));
    buf_done(&b);
    free(s);
}

static void test_shell(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    struct spec *s = new_spec();
    char shell[] = "/bin/bash";
    encode(&b, 1, 0);
    unit_works(spec_decode(b.data, b.len, s, &err), err);
    spec_shell(s, shell);
    assert_int_equal(s->argc, 3);
    assert_ptr_equal(s->argv[0], shell);
    assert_string_equal(s->argv[1], "-c");
    assert_string_equal(s->argv[2], "printf");
    assert_null(s->argv[3]);
    buf_done(&b);
    free(s);
}

static void test_the_largest(void **state) {
    (void)state;
    struct err err = {0};
    const char **many = calloc(SPEC_ARGS_MAX + 1, sizeof(*many));
    assert_non_null(many);
    for (size_t i = 0; i <= SPEC_ARGS_MAX; i++)
        many[i] = "a=b";
    struct buf b;
    struct spec *s = new_spec();
    char shell[] = "sh";
    buf_init(&b, 1u << 22);
    unit_works(spec_encode("/", many, SPEC_ARGS_MAX, many, SPEC_ARGS_MAX, &b, &err), err);
    unit_works(spec_decode(b.data, b.len, s, &err), err);
    assert_int_equal(s->argc, SPEC_ARGS_MAX);
    spec_shell(s, shell);
    assert_null(s->argv[SPEC_ARGS_MAX + 2]);
    assert_string_equal(s->env[0], "a=b");
    unit_fails(spec_encode("/", many, SPEC_ARGS_MAX + 1, many, 0, &b, &err), err, ERR_INVALID);
    unit_fails(spec_encode("/", many, 1, many, SPEC_ARGS_MAX + 1, &b, &err), err, ERR_INVALID);
    buf_done(&b);
    free(s);
    free(many);
}

static void test_encode_refuses(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    static const char *const bad_env[] = {"NOVALUE", "=x", ""};
    buf_init(&b, 100);
    unit_works(buf_puts(&b, "keep", &err), err);
    unit_fails(spec_encode("", some_argv, 1, NULL, 0, &b, &err), err, ERR_INVALID);
    unit_fails(spec_encode("/", some_argv, 0, NULL, 0, &b, &err), err, ERR_INVALID);
    for (size_t i = 0; i < UNIT_COUNT(bad_env); i++)
        unit_fails(spec_encode("/", some_argv, 1, &bad_env[i], 1, &b, &err), err, ERR_INVALID);
    /* Out of room in the middle: what was there stays, nothing is added. */
    for (size_t max = 4; max < 60; max++) {
        b.max = max;
        unit_fails(spec_encode("/workspace", some_argv, 4, some_env, 3, &b, &err), err, ERR_LIMIT);
        assert_string_equal(b.data, "keep");
        assert_int_equal(b.len, 4);
    }
    buf_done(&b);
}

/* Decodes a copy of exactly this size, so that the sanitizer sees one byte too far. */
static int decode_copy(const char *data, size_t size, struct err *err) {
    char *copy = malloc(size ? size : 1);
    struct spec *s = new_spec();
    assert_non_null(copy);
    if (size)
        memcpy(copy, data, size);
    int rc = spec_decode(copy, size, s, err);
    if (rc < 0) {
        struct spec *untouched = new_spec();
        assert_memory_equal(s, untouched, sizeof(*s));
        free(untouched);
    }
    free(s);
    free(copy);
    return rc;
}

static void test_every_truncation_is_refused(void **state) {
    (void)state;
    struct err err = {0};
    struct buf b;
    encode(&b, 4, 3);
    for (size_t n = 0; n < b.len; n++)
        unit_fails(decode_copy(b.data, n, &err), err, ERR_PROTOCOL);
    unit_works(decode_copy(b.data, b.len, &err), err);
    unit_works(buf_append(&b, "", 1, &err), err);
    unit_fails(decode_copy(b.data, b.len, &err), err, ERR_PROTOCOL);
    buf_done(&b);
}

static void test_hostile_heads(void **state) {
    (void)state;
    static const struct spec_head heads[] = {
        {SPEC_MAGIC + 1, 1, 0, 0},
        {SPEC_MAGIC, 1, 0, 1},
        {SPEC_MAGIC, 0, 0, 0},
        {SPEC_MAGIC, 2, 0, 0},
        {SPEC_MAGIC, 1, 1, 0},
        {SPEC_MAGIC, SPEC_ARGS_MAX + 1, 0, 0},
        {SPEC_MAGIC, 1, SPEC_ARGS_MAX + 1, 0},
        {SPEC_MAGIC, UINT32_MAX, UINT32_MAX, 0},
        {SPEC_MAGIC, 1, UINT32_MAX, 0},
        {SPEC_MAGIC, UINT32_MAX, 1, 0},
    };
    struct err err = {0};
    struct buf b;
    encode(&b, 1, 0);
    for (size_t i = 0; i < UNIT_COUNT(heads); i++) {
        memcpy(b.data, &heads[i], sizeof(heads[i]));
        unit_fails(decode_copy(b.data, b.len, &err), err, ERR_PROTOCOL);
    }
    buf_done(&b);
}

static void test_hostile_strings(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        uint32_t argc, envc;
    } rows[] = {
        {"\0a\0", 3, 1, 0},      /* no cwd */
        {"/\0a\0=b\0", 7, 1, 1}, /* a variable without a name */
        {"/\0a\0b\0", 6, 1, 1},  /* a variable without a value */
        {"/\0a\0\0", 5, 1, 1},   /* an empty variable */
        {"/\0a", 3, 1, 0},       /* not ended */
        {"/", 1, 1, 0},
    };
    struct err err = {0};
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        char block[64];
        struct spec_head head = {SPEC_MAGIC, rows[i].argc, rows[i].envc, 0};
        memcpy(block, &head, sizeof(head));
        memcpy(block + sizeof(head), rows[i].bytes, rows[i].size);
        unit_fails(decode_copy(block, sizeof(head) + rows[i].size, &err), err, ERR_PROTOCOL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_getenv),
        cmocka_unit_test(test_shell),          cmocka_unit_test(test_the_largest),
        cmocka_unit_test(test_encode_refuses), cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_hostile_heads),  cmocka_unit_test(test_hostile_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
