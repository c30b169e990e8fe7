#include "fileop_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "unit.h"

/* A record as an operation would write it. */
static void put(struct buf *out, struct fileop_record rec, const char *path, const char *target,
                const char *data) {
    rec.magic = FILEOP_MAGIC;
    rec.path_len = (uint32_t)strlen(path);
    rec.target_len = (uint32_t)strlen(target);
    assert_int_equal(buf_append(out, &rec, sizeof(rec), NULL), 0);
    assert_int_equal(buf_puts(out, path, NULL), 0);
    assert_int_equal(buf_puts(out, target, NULL), 0);
    assert_int_equal(buf_append(out, data, rec.data_len, NULL), 0);
}

static void put_file(struct buf *out, const char *path, const char *contents) {
    size_t len = strlen(contents);
    put(out,
        (struct fileop_record){.type = FILEOP_ENTRY,
                               .kind = FILEOP_FILE,
                               .flags = FILEOP_CONTENT,
                               .mode = 0644,
                               .size = len},
        path, "", "");
    if (len > 0)
        put(out, (struct fileop_record){.type = FILEOP_DATA, .data_len = (uint32_t)len}, "", "",
            contents);
    put(out, (struct fileop_record){.type = FILEOP_DATA}, "", "", "");
}

static void put_end(struct buf *out) {
    put(out, (struct fileop_record){.type = FILEOP_END}, "", "", "");
}

/* Feeds `bytes` in pieces and writes what comes out as text. -1 when it is refused. */
static int feed(const struct buf *bytes, size_t piece, struct buf *text, struct err *err) {
    struct fileop_parse p;
    struct fileop_item item;
    fileop_parse_init(&p);
    int rc = 0;
    for (size_t at = 0; at < bytes->len && rc >= 0;) {
        size_t room = 0, n = bytes->len - at < piece ? bytes->len - at : piece;
        char *space = fileop_parse_space(&p, &room);
        assert_non_null(space);
        assert_true(room > 0);
        n = n < room ? n : room;
        memcpy(space, bytes->data + at, n);
        fileop_parse_add(&p, n);
        at += n;
        while ((rc = fileop_parse_next(&p, &item, err)) > 0) {
            if (item.rec.type == FILEOP_ENTRY)
                buf_printf(text, NULL, "<%s>", item.path);
            else if (item.rec.type == FILEOP_DATA && item.rec.data_len > 0)
                buf_append(text, item.data, item.rec.data_len, NULL);
            else
                buf_printf(text, NULL, "%s",
                           item.rec.type == FILEOP_DATA  ? ";"
                           : item.rec.type == FILEOP_END ? "."
                                                         : "!");
        }
    }
    fileop_parse_done(&p);
    return rc;
}

static void test_records_come_out_alike_however_the_bytes_are_cut(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 2, 7, 79, 80, 81, 4096, 1u << 20};
    struct buf bytes, text;
    buf_init(&bytes, 1 << 20);
    buf_init(&text, 1 << 20);
    put_file(&bytes, "a", "hello");
    put_file(&bytes, "dir/empty", "");
    put(&bytes, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_DENIED}, "secret", "",
        "");
    put_end(&bytes);
    for (size_t i = 0; i < UNIT_COUNT(pieces); i++) {
        struct err err = {0};
        buf_clear(&text);
        assert_int_equal(feed(&bytes, pieces[i], &text, &err), 0);
        assert_string_equal(text.data, "<a>hello;<dir/empty>;!.");
    }
    buf_done(&bytes);
    buf_done(&text);
}

static void test_large_contents_need_no_more_than_the_buffer(void **state) {
    (void)state;
    struct buf bytes, text;
    struct err err = {0};
    char *large = malloc(FILEOP_DATA_MAX + 1);
    memset(large, 'x', FILEOP_DATA_MAX);
    large[FILEOP_DATA_MAX] = '\0';
    buf_init(&bytes, 4u << 20);
    buf_init(&text, 4u << 20);
    put_file(&bytes, "a", large);
    put_end(&bytes);
    assert_int_equal(feed(&bytes, 1u << 20, &text, &err), 0);
    assert_int_equal(text.len, FILEOP_DATA_MAX + strlen("<a>;."));
    free(large);
    buf_done(&bytes);
    buf_done(&text);
}

static void test_what_follows_the_end_is_not_looked_at(void **state) {
    (void)state;
    struct buf bytes, text;
    struct err err = {0};
    buf_init(&bytes, 1 << 16);
    buf_init(&text, 1 << 16);
    put_end(&bytes);
    put_file(&bytes, "a", "hello");
    assert_int_equal(feed(&bytes, 4096, &text, &err), 0);
    assert_string_equal(text.data, ".");
    buf_done(&bytes);
    buf_done(&text);
}

/* One record that must be refused, whole or in single bytes. */
static void refused(struct fileop_record rec, const char *path, const char *target,
                    const char *data) {
    struct buf bytes, text;
    struct err err = {0};
    buf_init(&bytes, 1 << 20);
    buf_init(&text, 1 << 20);
    put(&bytes, rec, path, target, data);
    assert_int_equal(feed(&bytes, 1u << 20, &text, &err), -1);
    assert_int_equal(err.kind, ERR_PROTOCOL);
    assert_int_equal(feed(&bytes, 1, &text, &err), -1);
    buf_done(&bytes);
    buf_done(&text);
}

static void test_hostile_records_are_refused(void **state) {
    (void)state;
    struct fileop_record entry = {.type = FILEOP_ENTRY, .kind = FILEOP_DIRECTORY};
    refused(entry, "../a", "", "");
    refused(entry, "/etc/passwd", "", "");
    refused(entry, "a//b", "", "");
    refused(entry, "a/", "", "");
    refused(entry, "./a", "", "");
    refused((struct fileop_record){.type = FILEOP_ENTRY, .kind = FILEOP_HARDLINK}, "a", "../b", "");
    refused((struct fileop_record){.type = FILEOP_ENTRY, .kind = FILEOP_FILE, .size = UINT64_MAX},
            "a", "", "");
    refused((struct fileop_record){.type = FILEOP_DATA, .data_len = 2}, "", "", "xx");
    refused((struct fileop_record){.type = FILEOP_NAME}, "a", "", "");
    refused((struct fileop_record){.type = FILEOP_REMOVE}, "a", "", "");
    refused((struct fileop_record){.type = 77}, "", "", "");
}

static void test_contents_without_an_end_are_refused(void **state) {
    (void)state;
    struct buf bytes, text;
    struct err err = {0};
    buf_init(&bytes, 1 << 16);
    buf_init(&text, 1 << 16);
    put(&bytes,
        (struct fileop_record){
            .type = FILEOP_ENTRY, .kind = FILEOP_FILE, .flags = FILEOP_CONTENT, .size = 1},
        "a", "", "");
    put_end(&bytes);
    assert_int_equal(feed(&bytes, 7, &text, &err), -1);
    assert_int_equal(err.kind, ERR_PROTOCOL);
    buf_done(&bytes);
    buf_done(&text);
}

static void test_noise_is_refused(void **state) {
    (void)state;
    struct buf bytes, text;
    struct err err = {0};
    buf_init(&bytes, 1 << 16);
    buf_init(&text, 1 << 16);
    unsigned seed = 1;
    for (int round = 0; round < 200; round++) {
        buf_clear(&bytes);
        buf_clear(&text);
        put_file(&bytes, "a/b", "hello world");
        put_file(&bytes, "c", "x");
        for (int i = 0; i < 3; i++) {
            seed = seed * 1103515245u + 12345u;
            bytes.data[(seed >> 8) % bytes.len] = (char)(seed >> 24);
        }
        (void)feed(&bytes, 1 + seed % 90, &text, &err); /* the sanitizers look on */
    }
    buf_done(&bytes);
    buf_done(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_come_out_alike_however_the_bytes_are_cut),
        cmocka_unit_test(test_large_contents_need_no_more_than_the_buffer),
        cmocka_unit_test(test_what_follows_the_end_is_not_looked_at),
        cmocka_unit_test(test_hostile_records_are_refused),
        cmocka_unit_test(test_contents_without_an_end_are_refused),
        cmocka_unit_test(test_noise_is_refused),
    };
    return cmocka_run_group_tests_name("fileop_parse", tests, NULL, NULL);
}
