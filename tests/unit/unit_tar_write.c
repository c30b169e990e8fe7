#include "tar_write.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static struct buf out;

static struct tar_write *begin(const char *name) {
    buf_init(&out, 1 << 20);
    struct tar_write *t = tar_write_new(&out, name, NULL);
    assert_non_null(t);
    return t;
}

static int put(struct tar_write *t, struct fileop_record rec, const char *path, const char *target,
               const char *data) {
    rec.path_len = (uint32_t)strlen(path);
    rec.target_len = (uint32_t)strlen(target);
    struct fileop_item item = {.rec = rec, .path = path, .target = target, .data = data};
    return tar_write_item(t, &item, NULL);
}

static int entry(struct tar_write *t, uint32_t kind, const char *path, const char *target) {
    return put(
        t,
        (struct fileop_record){
            .type = FILEOP_ENTRY, .kind = kind, .mode = 06755, .mtime_ns = 1000000000500000000},
        path, target, "");
}

static int file(struct tar_write *t, const char *path, uint64_t size) {
    return put(t,
               (struct fileop_record){.type = FILEOP_ENTRY,
                                      .kind = FILEOP_FILE,
                                      .flags = FILEOP_CONTENT,
                                      .mode = 0640,
                                      .size = size},
               path, "", "");
}

static int data(struct tar_write *t, const char *text) {
    return put(t, (struct fileop_record){.type = FILEOP_DATA, .data_len = (uint32_t)strlen(text)},
               "", "", text);
}

/* The archive as text: one line per entry. */
static void read_back(char *text, size_t size) {
    struct archive *a = archive_read_new();
    struct archive_entry *e;
    text[0] = '\0';
    archive_read_support_format_tar(a);
    assert_int_equal(archive_read_open_memory(a, out.data, out.len), ARCHIVE_OK);
    while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
        const char *hard = archive_entry_hardlink(e), *link = archive_entry_symlink(e);
        char contents[64] = "";
        size_t len = strlen(text);
        assert_true(archive_read_data(a, contents, sizeof(contents) - 1) >= 0);
        snprintf(text + len, size - len, "%s %o%s%s%s%s\n", archive_entry_pathname(e),
                 archive_entry_perm(e), hard != NULL ? " = " : "", hard != NULL ? hard : "",
                 link != NULL          ? " -> "
                 : contents[0] != '\0' ? " : "
                                       : "",
                 link != NULL ? link : contents);
    }
    archive_read_free(a);
}

static void test_a_tree_becomes_an_archive(void **state) {
    (void)state;
    struct tar_write *t = begin("ignored");
    char text[1024];
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "", ""), 0);
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "d", ""), 0);
    assert_int_equal(file(t, "d/a", 11), 0);
    assert_int_equal(data(t, "hello"), 0);
    assert_int_equal(data(t, " world"), 0);
    assert_int_equal(data(t, ""), 0);
    assert_int_equal(entry(t, FILEOP_SYMLINK, "l", "/etc/shadow"), 0);
    assert_int_equal(entry(t, FILEOP_HARDLINK, "h", "d/a"), 0);
    assert_int_equal(file(t, "empty", 0), 0);
    assert_int_equal(data(t, ""), 0);
    assert_int_equal(tar_write_end(t, NULL), 0);
    read_back(text, sizeof(text));
    assert_string_equal(text, "d/ 755\nd/a 640 : hello world\nl 755 -> /etc/shadow\nh 755 = d/a\n"
                              "empty 640\n");
    assert_int_equal(out.len % 512, 0);
    tar_write_free(t);
    buf_done(&out);
}

static void test_what_an_archive_cannot_hold_is_left_out(void **state) {
    (void)state;
    struct tar_write *t = begin("");
    char text[1024];
    assert_int_equal(entry(t, FILEOP_FIFO, "p", ""), 0);
    assert_int_equal(entry(t, FILEOP_SOCKET, "s", ""), 0);
    assert_int_equal(entry(t, FILEOP_DEVICE, "c", ""), 0);
    assert_int_equal(entry(t, FILEOP_WHITEOUT, "w", ""), 0);
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "closed", ""), 0);
    assert_int_equal(put(t, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_DENIED},
                         "closed", "", ""),
                     0);
    assert_int_equal(put(t, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_DENIED},
                         "secret", "", ""),
                     0);
    assert_int_equal(file(t, "a", 1), 0);
    assert_int_equal(data(t, "x"), 0);
    assert_int_equal(data(t, ""), 0);
    assert_int_equal(tar_write_end(t, NULL), 0);
    read_back(text, sizeof(text));
    assert_string_equal(text, "closed/ 755\na 640 : x\n");
    tar_write_free(t);
    buf_done(&out);
}

static void test_a_file_that_grew_is_cut_at_its_size(void **state) {
    (void)state;
    struct tar_write *t = begin("");
    char text[1024];
    assert_int_equal(file(t, "a", 3), 0);
    assert_int_equal(data(t, "abcdef"), 0);
    assert_int_equal(data(t, "ghi"), 0);
    assert_int_equal(data(t, ""), 0);
    assert_int_equal(tar_write_end(t, NULL), 0);
    read_back(text, sizeof(text));
    assert_string_equal(text, "a 640 : abc\n");
    tar_write_free(t);
    buf_done(&out);
}

static void test_a_file_that_shrank_breaks_the_archive(void **state) {
    (void)state;
    struct tar_write *t = begin("");
    assert_int_equal(file(t, "a", 3), 0);
    assert_int_equal(data(t, "ab"), 0);
    assert_int_equal(data(t, ""), -1);
    tar_write_free(t);
    buf_done(&out);
    t = begin("");
    assert_int_equal(file(t, "a", 3), 0);
    assert_int_equal(data(t, "ab"), 0);
    assert_int_equal(tar_write_end(t, NULL), -1);
    tar_write_free(t);
    buf_done(&out);
    t = begin("");
    assert_int_equal(file(t, "a", 2), 0);
    assert_int_equal(data(t, "ab"), 0);
    assert_int_equal(data(t, ""), 0);
    assert_int_equal(
        put(t, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_CHANGED}, "a", "", ""),
        -1);
    tar_write_free(t);
    buf_done(&out);
}

static void test_a_single_file_has_the_name_that_is_given(void **state) {
    (void)state;
    struct tar_write *t = begin("notes.txt");
    char text[1024];
    assert_int_equal(file(t, "", 2), 0);
    assert_int_equal(data(t, "hi"), 0);
    assert_int_equal(data(t, ""), 0);
    assert_int_equal(tar_write_end(t, NULL), 0);
    read_back(text, sizeof(text));
    assert_string_equal(text, "notes.txt 640 : hi\n");
    tar_write_free(t);
    buf_done(&out);
}

static void test_odd_names_and_a_full_buffer(void **state) {
    (void)state;
    char name[300];
    struct tar_write *t = begin("");
    memset(name, 'n', sizeof(name));
    name[150] = '/';
    name[299] = '\0';
    assert_int_equal(entry(t, FILEOP_DIRECTORY, name, ""), 0);
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "e\xcc\x81\n", ""), 0);
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "by\xff\xfe", ""), 0);
    assert_int_equal(tar_write_end(t, NULL), 0);
    assert_non_null(memmem(out.data, out.len, "by\xff\xfe", 4));
    tar_write_free(t);
    buf_done(&out);
    buf_init(&out, 700);
    t = tar_write_new(&out, "", NULL);
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "a", ""), 0);
    assert_int_equal(entry(t, FILEOP_DIRECTORY, "b", ""), -1);
    tar_write_free(t);
    buf_done(&out);
}

int main(void) {
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tree_becomes_an_archive),
        cmocka_unit_test(test_what_an_archive_cannot_hold_is_left_out),
        cmocka_unit_test(test_a_file_that_grew_is_cut_at_its_size),
        cmocka_unit_test(test_a_file_that_shrank_breaks_the_archive),
        cmocka_unit_test(test_a_single_file_has_the_name_that_is_given),
        cmocka_unit_test(test_odd_names_and_a_full_buffer),
    };
    return cmocka_run_group_tests_name("tar_write", tests, NULL, NULL);
}
