#include "exec_input.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

struct fixture {
    struct exec_input in;
    struct escape escape;
    int ends[2];
};

static void begin(struct fixture *f, bool keys) {
    *f = (struct fixture){0};
    assert_int_equal(pipe(f->ends), 0);
    exec_input_init(&f->in, f->ends[0], keys ? &f->escape : NULL);
}

static void end(struct fixture *f) {
    exec_input_done(&f->in);
    close(f->ends[0]);
    if (f->ends[1] >= 0)
        close(f->ends[1]);
}

static void type(struct fixture *f, const char *text) {
    struct err err = {0};

    assert_int_equal(write(f->ends[1], text, strlen(text)), (ssize_t)strlen(text));
    unit_works(exec_input_read(&f->in, &err), err);
}

static void hang_up(struct fixture *f) {
    struct err err = {0};

    close(f->ends[1]);
    f->ends[1] = -1;
    unit_works(exec_input_read(&f->in, &err), err);
    assert_true(f->in.eof);
}

/* The request that is due has this query and body. */
static void expect(struct fixture *f, uint64_t now, const char *query, const char *body) {
    struct rest_call *call = exec_input_call(&f->in, "sb_1", "ex_1", now);
    char path[128];

    assert_non_null(call);
    snprintf(path, sizeof(path), "/v1/sandboxes/sb_1/exec/ex_1/stdin?%s", query);
    assert_string_equal(call->path, path);
    assert_int_equal(call->body_len, strlen(body));
    assert_memory_equal(call->body, body, strlen(body));
    assert_true(call->raw);
}

static void quiet(struct fixture *f, uint64_t now) {
    assert_null(exec_input_call(&f->in, "sb_1", "ex_1", now));
}

/* status 0: lost on the way. */
static int answer(struct fixture *f, int status, const char *text, uint64_t now, struct err *err) {
    buf_clear(&f->in.answer);
    if (text != NULL)
        unit_works(buf_puts(&f->in.answer, text, err), *err);
    f->in.call.status = status;
    return exec_input_answer(&f->in, status == 0 ? -1 : 0, now, err);
}

static void accept_all(struct fixture *f, uint64_t now) {
    struct err err = {0};

    unit_works(answer(f, 200, NULL, now, &err), err);
}

static void test_in_order(void **state) {
    (void)state;
    struct fixture f;

    begin(&f, false);
    quiet(&f, 0);
    type(&f, "one");
    expect(&f, 0, "offset=0", "one");
    /* What comes while that is on its way goes next, together. */
    type(&f, "two");
    type(&f, "three");
    accept_all(&f, 0);
    expect(&f, 0, "offset=3", "twothree");
    accept_all(&f, 0);
    quiet(&f, 0);
    type(&f, "x");
    hang_up(&f);
    assert_false(exec_input_wants(&f.in));
    expect(&f, 0, "offset=11&close=true", "x");
    accept_all(&f, 0);
    assert_true(f.in.over);
    quiet(&f, 0);
    end(&f);
}

static void test_close_alone(void **state) {
    (void)state;
    struct fixture f;

    begin(&f, false);
    hang_up(&f);
    expect(&f, 0, "offset=0&close=true", "");
    accept_all(&f, 0);
    assert_true(f.in.over);
    end(&f);
}

static void test_lost(void **state) {
    (void)state;
    struct err err = {0};
    struct fixture f;

    begin(&f, false);
    type(&f, "one");
    expect(&f, 1000, "offset=0", "one");
    type(&f, "two");
    hang_up(&f);
    unit_works(answer(&f, 0, NULL, 1000, &err), err);
    /* The same part again, and not at once. */
    quiet(&f, 1000);
    expect(&f, 1100, "offset=0", "one");
    unit_works(answer(&f, 503, NULL, 1100, &err), err);
    quiet(&f, 1299);
    expect(&f, 1300, "offset=0", "one");
    accept_all(&f, 1300);
    expect(&f, 1300, "offset=3&close=true", "two");
    unit_works(answer(&f, 0, NULL, 1300, &err), err);
    assert_false(f.in.over);
    expect(&f, 1400, "offset=3&close=true", "two");
    accept_all(&f, 1400);
    assert_true(f.in.over);
    end(&f);
}

static void test_partly(void **state) {
    (void)state;
    struct err err = {0};
    struct fixture f;

    begin(&f, false);
    type(&f, "0123456789");
    hang_up(&f);
    expect(&f, 0, "offset=0&close=true", "0123456789");
    unit_works(answer(&f, 200, "{\"stdin_bytes\":4,\"closed\":false}", 0, &err), err);
    expect(&f, 0, "offset=4&close=true", "456789");
    /* No room: later. */
    unit_works(answer(&f, 200, "{\"stdin_bytes\":4}", 500, &err), err);
    quiet(&f, 500);
    expect(&f, 600, "offset=4&close=true", "456789");
    /* More than was ever sent cannot be. */
    unit_works(answer(&f, 200, "{\"stdin_bytes\":4000}", 600, &err), err);
    assert_true(f.in.over);
    assert_int_equal(f.in.offset, 10);
    end(&f);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        int status;
        bool said;
    } cases[] = {{404, false}, {409, false}, {410, false}, {400, true}, {403, true}, {413, true}};

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct err err = {0};
        struct fixture f;

        begin(&f, false);
        type(&f, "x");
        expect(&f, 0, "offset=0", "x");
        assert_int_equal(answer(&f, cases[i].status, NULL, 0, &err), cases[i].said ? -1 : 0);
        assert_true(f.in.over);
        assert_false(exec_input_wants(&f.in));
        quiet(&f, 0);
        end(&f);
    }
}

static void test_paused(void **state) {
    (void)state;
    struct err err = {0};
    struct fixture f;

    begin(&f, false);
    type(&f, "x");
    expect(&f, 0, "offset=0", "x");
    snprintf(f.in.call.error.code, sizeof(f.in.call.error.code), "paused");
    unit_works(answer(&f, 409, NULL, 0, &err), err);
    assert_false(f.in.over);
    expect(&f, 100, "offset=0", "x");
    end(&f);
}

static void test_keys(void **state) {
    (void)state;
    struct fixture f;

    begin(&f, true);
    type(&f, "ls\r~");
    expect(&f, 0, "offset=0", "ls\r");
    accept_all(&f, 0);
    type(&f, ".never");
    assert_true(f.in.left);
    assert_false(exec_input_wants(&f.in));
    quiet(&f, 0);
    end(&f);
}

/* Two terminals at one shell: nobody becomes deaf. */
static void test_shared(void **state) {
    (void)state;
    struct err err = {0};
    struct fixture f;

    begin(&f, true);
    type(&f, "abc");
    expect(&f, 0, "offset=0", "abc");
    unit_works(answer(&f, 200, "{\"stdin_bytes\":10}", 0, &err), err);
    expect(&f, 0, "offset=10", "abc");
    unit_works(answer(&f, 200, "{\"stdin_bytes\":13}", 0, &err), err);
    quiet(&f, 0);
    /* After a lost answer it may be ours that it has. */
    type(&f, "d");
    expect(&f, 0, "offset=13", "d");
    unit_works(answer(&f, 0, NULL, 0, &err), err);
    expect(&f, 100, "offset=13", "d");
    unit_works(answer(&f, 200, "{\"stdin_bytes\":15}", 100, &err), err);
    quiet(&f, 100);
    type(&f, "e");
    expect(&f, 100, "offset=15", "e");
    end(&f);
}

/* It stops reading when much is waiting to be sent. */
static void test_bounded(void **state) {
    (void)state;
    struct err err = {0};
    struct fixture f;
    char block[32768];
    size_t total = 0;

    begin(&f, false);
    memset(block, 'x', sizeof(block));
    while (exec_input_wants(&f.in)) {
        assert_int_equal(write(f.ends[1], block, sizeof(block)), sizeof(block));
        unit_works(exec_input_read(&f.in, &err), err);
        total += sizeof(block);
        assert_true(total <= 2 * EXEC_INPUT_MAX);
    }
    assert_true(f.in.next.len <= EXEC_INPUT_MAX);
    end(&f);
}

static void test_none(void **state) {
    (void)state;
    struct exec_input in;

    exec_input_init(&in, -1, NULL);
    assert_false(exec_input_wants(&in));
    assert_null(exec_input_call(&in, "sb_1", "ex_1", 0));
    exec_input_done(&in);
    exec_input_done(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order), cmocka_unit_test(test_close_alone),
        cmocka_unit_test(test_lost),     cmocka_unit_test(test_partly),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_paused),
        cmocka_unit_test(test_keys),     cmocka_unit_test(test_shared),
        cmocka_unit_test(test_bounded),  cmocka_unit_test(test_none)};
    return cmocka_run_group_tests_name("exec_input", tests, NULL, NULL);
}
