#include "capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

/* A stream whose every byte says where it is. */
static char at(uint64_t offset) {
    return (char)('a' + (offset * 7 + offset / 251) % 26);
}

static void feed(struct capture *c, size_t len, size_t step) {
    struct err err = {0};
    char *piece = malloc(step);
    assert_non_null(piece);
    while (len > 0) {
        size_t n = len < step ? len : step;
        for (size_t i = 0; i < n; i++)
            piece[i] = at(c->total + i);
        unit_works(capture_append(c, piece, n, &err), err);
        len -= n;
    }
    free(piece);
}

static void expect_bytes(const struct capture *c, uint64_t offset, size_t len) {
    struct iovec parts[CAPTURE_PIECES];
    assert_true(capture_has(c, offset, len));
    int n = capture_view(c, offset, len, parts);
    assert_in_range(n, len > 0, CAPTURE_PIECES);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i].iov_len; k++)
            assert_int_equal(((const char *)parts[i].iov_base)[k], at(offset++));
    assert_true(len == 0 || offset > 0);
}

static void test_keeps_all(void **state) {
    (void)state;
    static const size_t steps[] = {1, 3, 1000, 5000};
    for (size_t i = 0; i < UNIT_COUNT(steps); i++) {
        struct capture c;
        struct capture_text text;
        capture_init(&c, 5001);
        feed(&c, 5001, steps[i]);
        expect_bytes(&c, 0, 5001);
        capture_finish(&c);
        expect_bytes(&c, 0, 5001);
        capture_text(&c, &text);
        assert_int_equal(text.omitted, 0);
        assert_int_equal(text.head + text.tail, 5001);
        assert_true(text.utf8);
        capture_done(&c);
    }
}

static void test_keeps_ends(void **state) {
    (void)state;
    static const size_t totals[] = {1002, 5000, 600000, 3000001};
    for (size_t i = 0; i < UNIT_COUNT(totals); i++) {
        struct capture c;
        struct capture_text text;
        capture_init(&c, 1001);
        feed(&c, totals[i], 77777);
        capture_finish(&c);
        capture_finish(&c);
        assert_int_equal(c.total, totals[i]);
        capture_text(&c, &text);
        assert_int_equal(text.head, 500);
        assert_int_equal(text.tail, 501);
        assert_int_equal(text.omitted, totals[i] - 1001);
        expect_bytes(&c, 0, 500);
        expect_bytes(&c, totals[i] - 501, 501);
        assert_false(capture_has(&c, 0, 501 + (totals[i] > 1002)));
        assert_in_range(capture_memory(&c), 1001, 1001);
        capture_done(&c);
    }
}

static void test_tiny_caps(void **state) {
    (void)state;
    for (uint64_t cap = 1; cap < 8; cap++) {
        for (size_t total = 0; total < 20; total++) {
            struct capture c;
            struct capture_text text;
            capture_init(&c, cap);
            feed(&c, total, 1 + total % 3);
            capture_finish(&c);
            capture_text(&c, &text);
            assert_int_equal(text.head + text.tail + text.omitted, total);
            assert_int_equal(text.omitted, total > cap ? total - cap : 0);
            expect_bytes(&c, 0, text.head);
            expect_bytes(&c, total - text.tail, text.tail);
            capture_done(&c);
        }
    }
}

/* Reading into what is offered, as a pipe does, with any length up to the offer. */
static void test_offers(void **state) {
    (void)state;
    struct err err = {0};
    struct capture c;
    capture_init(&c, 300000);
    for (int round = 0; round < 400; round++) {
        struct iovec parts[CAPTURE_PIECES];
        size_t offered = 0, take, done = 0;
        int n = capture_iov(&c, CAPTURE_READ_MAX, parts, &err);
        assert_in_range(n, 1, CAPTURE_PIECES);
        for (int i = 0; i < n; i++)
            offered += parts[i].iov_len;
        assert_in_range(offered, 1, CAPTURE_READ_MAX);
        take = 1 + (size_t)round * 7919 % offered;
        for (int i = 0; i < n; i++)
            for (size_t k = 0; k < parts[i].iov_len && done < take; k++)
                ((char *)parts[i].iov_base)[k] = at(c.total + done++);
        capture_commit(&c, take);
    }
    uint64_t from = capture_tail_start(&c);
    assert_in_range(c.total - from, CAPTURE_SLACK, CAPTURE_SLACK);
    expect_bytes(&c, 0, 150000);
    expect_bytes(&c, from, (size_t)(c.total - from));
    assert_false(capture_has(&c, from - 1, 1));
    assert_int_equal(capture_room(&c, from), 0);
    assert_int_equal(capture_room(&c, from + 5), 5);
    assert_int_equal(capture_room(&c, c.total), CAPTURE_SLACK);
    capture_finish(&c);
    expect_bytes(&c, c.total - 150000, 150000);
    capture_done(&c);
}

static void text_of(const char *bytes, size_t len, uint64_t cap, struct capture_text *text) {
    struct capture c;
    struct err err = {0};
    capture_init(&c, cap);
    unit_works(capture_append(&c, bytes, len, &err), err);
    capture_finish(&c);
    capture_text(&c, text);
    capture_done(&c);
}

/* A cut through a character costs its fragments, not the text. */
static void test_seam(void **state) {
    (void)state;
    struct capture_text text;
    char many[2000];
    for (size_t i = 0; i < sizeof(many); i += 2)
        memcpy(many + i, "\xc3\xa9", 2);
    for (uint64_t cap = 1; cap < 40; cap++) {
        text_of(many, sizeof(many), cap, &text);
        assert_true(text.utf8);
        assert_int_equal(text.head % 2, 0);
        assert_int_equal(text.tail % 2, 0);
        assert_int_equal(text.head + text.tail + text.omitted, sizeof(many));
        assert_true(text.head + text.tail + 2 >= cap);
    }
    many[0] = '\xff';
    text_of(many, sizeof(many), 41, &text);
    assert_false(text.utf8);
    assert_int_equal(text.omitted, sizeof(many) - 41);
    many[0] = 'x'; /* now every character begins at the wrong place */
    many[1] = 'y';
    text_of(many, sizeof(many) - 1, 11, &text);
    assert_false(text.utf8);
}

static void test_probe(void **state) {
    (void)state;
    struct err err = {0};
    unit_works(capture_probe(&err), err);
}

static void test_line(void **state) {
    (void)state;
    char line[CAPTURE_LINE_SIZE];
    capture_line(UINT64_MAX, line);
    assert_string_equal(line, "\n[18446744073709551615 bytes omitted]\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_all), cmocka_unit_test(test_keeps_ends),
        cmocka_unit_test(test_tiny_caps), cmocka_unit_test(test_offers),
        cmocka_unit_test(test_seam),      cmocka_unit_test(test_line),
        cmocka_unit_test(test_probe),
    };
    return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
