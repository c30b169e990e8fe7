#include "tar_read.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "fileop_parse.h"
#include "unit.h"

/* An archive that is being made. */

static char made[4 << 20];
static size_t made_len;
static struct archive *archive;

static void begin(bool gzip) {
    archive = archive_write_new();
    archive_write_set_format_pax_restricted(archive);
    if (gzip)
        archive_write_add_filter_gzip(archive);
    assert_int_equal(archive_write_open_memory(archive, made, sizeof(made), &made_len), ARCHIVE_OK);
}

static void add(unsigned type, unsigned mode, const char *path, const char *text) {
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, path);
    archive_entry_set_filetype(e, type);
    archive_entry_set_perm(e, (__LA_MODE_T)mode);
    archive_entry_set_mtime(e, 1000000000, 0);
    if (type == AE_IFREG)
        archive_entry_set_size(e, (la_int64_t)strlen(text));
    if (type == AE_IFLNK)
        archive_entry_set_symlink(e, text);
    assert_int_equal(archive_write_header(archive, e), ARCHIVE_OK);
    if (type == AE_IFREG && text[0] != '\0')
        assert_true(archive_write_data(archive, text, strlen(text)) > 0);
    archive_entry_free(e);
}

static void add_hardlink(const char *path, const char *target) {
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, path);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    archive_entry_set_hardlink(e, target);
    assert_int_equal(archive_write_header(archive, e), ARCHIVE_OK);
    archive_entry_free(e);
}

static void finish(void) {
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
}

/* Reads `len` bytes as an archive; the records as text. */
static struct tar_read_result result;
static char text[4096];

static void say(struct fileop_item *item) {
    size_t len = strlen(text);
    switch (item->rec.type) {
    case FILEOP_ENTRY:
        snprintf(text + len, sizeof(text) - len, "%s %s %o%s%s\n", item->path,
                 fileop_kind_name(item->rec.kind), item->rec.mode,
                 item->target[0] != '\0' ? " -> " : "", item->target);
        break;
    case FILEOP_DATA:
        snprintf(text + len, sizeof(text) - len, "%.*s%s", (int)item->rec.data_len, item->data,
                 item->rec.data_len == 0 ? ";\n" : "");
        break;
    default:
        snprintf(text + len, sizeof(text) - len, "end\n");
    }
}

static void run(const char *bytes, size_t len, uint64_t max_bytes, uint64_t max_entries) {
    int in = memfd_create("tar", MFD_CLOEXEC), out = memfd_create("records", MFD_CLOEXEC);
    struct fileop_parse p;
    struct fileop_item item;
    char *space;
    size_t room = 0;
    ssize_t n;
    assert_int_equal(fd_write_all(in, bytes, len, NULL), 0);
    lseek(in, 0, SEEK_SET);
    tar_read_run(in, out, max_bytes, max_entries, &result);
    lseek(out, 0, SEEK_SET);
    text[0] = '\0';
    fileop_parse_init(&p);
    do {
        space = fileop_parse_space(&p, &room);
        n = read(out, space, room);
        fileop_parse_add(&p, (size_t)n);
        while (fileop_parse_next(&p, &item, NULL) > 0)
            say(&item);
    } while (n > 0);
    fileop_parse_done(&p);
    close(in);
    close(out);
}

static void run_made(void) {
    finish();
    run(made, made_len, 1 << 20, 100);
}

static void good(bool gzip) {
    begin(gzip);
    add(AE_IFDIR, 0755, "./", "");
    add(AE_IFDIR, 0755, "d/", "");
    add(AE_IFREG, 06755, "./d//a", "hello");
    add(AE_IFREG, 0644, "empty", "");
    add(AE_IFLNK, 0777, "l", "../../etc/shadow");
    add_hardlink("h", "./d/a");
    run_made();
    assert_int_equal(result.code, TAR_READ_OK);
    assert_int_equal(result.bytes, 5);
    assert_string_equal(text, "d directory 755\nd/a file 755\nhello;\nempty file 644\n;\n"
                              "l symlink 777 -> ../../etc/shadow\nh hardlink 644 -> d/a\nend\n");
}

static void test_an_archive_becomes_records(void **state) {
    (void)state;
    good(false);
    good(true);
}

/* The last entry of the archive is refused, and there is no END. */
static void refused(enum tar_read_code code, const char *entry, const char *why) {
    run_made();
    assert_int_equal(result.code, code);
    assert_string_equal(result.entry, entry);
    assert_non_null(strstr(result.why, why));
    assert_null(strstr(text, "end\n"));
}

static void test_entries_that_are_not_taken_are_named(void **state) {
    (void)state;
    char name[300];
    begin(false);
    add(AE_IFREG, 0644, "good", "1");
    add(AE_IFREG, 0644, "/etc/passwd", "1");
    refused(TAR_READ_REFUSED, "/etc/passwd", "absolute");
    begin(false);
    add(AE_IFREG, 0644, "a/../../x", "1");
    refused(TAR_READ_REFUSED, "a/../../x", "upwards");
    begin(false);
    add(AE_IFIFO, 0644, "pipe", "");
    refused(TAR_READ_REFUSED, "pipe", "FIFO");
    begin(false);
    add(AE_IFCHR, 0644, "dev", "");
    refused(TAR_READ_REFUSED, "dev", "device");
    begin(false);
    add(AE_IFBLK, 0644, "dev", "");
    refused(TAR_READ_REFUSED, "dev", "device");
    begin(false);
    add_hardlink("h", "/etc/passwd");
    refused(TAR_READ_REFUSED, "h", "out of the archive");
    begin(false);
    add_hardlink("h", "../x");
    refused(TAR_READ_REFUSED, "h", "out of the archive");
    begin(false);
    add(AE_IFREG, 0644, "./.", "1");
    refused(TAR_READ_REFUSED, "./.", "no name");
    begin(false);
    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    add(AE_IFREG, 0644, name, "1");
    run_made();
    assert_int_equal(result.code, TAR_READ_REFUSED);
}

static void test_limits_hold_before_anything_is_written(void **state) {
    (void)state;
    begin(false);
    add(AE_IFREG, 0644, "a", "12345");
    add(AE_IFREG, 0644, "b", "123456");
    finish();
    run(made, made_len, 10, 100);
    assert_int_equal(result.code, TAR_READ_TOO_LARGE);
    assert_string_equal(result.entry, "b");
    assert_string_equal(text, "a file 644\n12345;\n");
    run(made, made_len, 11, 1);
    assert_int_equal(result.code, TAR_READ_TOO_LARGE);
    run(made, made_len, 11, 2);
    assert_int_equal(result.code, TAR_READ_OK);
}

static void test_what_is_no_archive_is_damaged(void **state) {
    (void)state;
    static char noise[100000];
    unsigned seed = 7;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)((seed = seed * 1103515245u + 12345u) >> 16);
    run(noise, sizeof(noise), 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_DAMAGED);
    run("", 0, 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_DAMAGED);
    begin(false);
    add(AE_IFREG, 0644, "a", "12345");
    finish();
    run(made, 512 + 3, 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_DAMAGED);
    assert_null(strstr(text, "end\n"));
    begin(true);
    add(AE_IFREG, 0644, "a", "12345");
    finish();
    run(made, made_len / 2, 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_DAMAGED);
}

/* A header that says anything: name, mode, size, type, magic. */
static void header(char block[512], const char *name, const char *size, char type) {
    unsigned sum = 0;
    memset(block, 0, 512);
    snprintf(block, 100, "%s", name);
    memcpy(block + 100, "0000644", 7);
    memcpy(block + 124, size, strlen(size));
    memcpy(block + 136, "00000000000", 11);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
}

static void test_sizes_that_lie_do_no_harm(void **state) {
    (void)state;
    static char bytes[4096];
    header(bytes, "huge", "77777777777", '0');
    run(bytes, sizeof(bytes), 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_TOO_LARGE);
    header(bytes, "long", "77777777777", 'L');
    run(bytes, sizeof(bytes), 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_DAMAGED);
    header(bytes, "pax", "77777777777", 'x');
    run(bytes, sizeof(bytes), 1 << 20, 100);
    assert_int_equal(result.code, TAR_READ_DAMAGED);
    header(bytes, "negative", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", '0');
    run(bytes, sizeof(bytes), 1 << 20, 100);
    assert_true(result.code != TAR_READ_OK);
}

static void test_flipped_bits_never_write_bad_records(void **state) {
    (void)state;
    unsigned seed = 3;
    begin(false);
    add(AE_IFDIR, 0755, "d", "");
    add(AE_IFREG, 0644, "d/a", "hello");
    add(AE_IFLNK, 0777, "l", "d/a");
    add_hardlink("h", "d/a");
    finish();
    char *copy = malloc(made_len);
    for (int round = 0; round < 300; round++) {
        memcpy(copy, made, made_len);
        for (int i = 0; i < 4; i++) {
            seed = seed * 1103515245u + 12345u;
            copy[(seed >> 8) % made_len] ^= (char)(1 << (seed >> 29));
        }
        run(copy, made_len, 1 << 20, 100); /* the sanitizers look on */
    }
    free(copy);
}

static void test_a_reader_that_goes_away_ends_it(void **state) {
    (void)state;
    int in = memfd_create("tar", MFD_CLOEXEC), ends[2];
    begin(false);
    add(AE_IFREG, 0644, "a", "12345");
    finish();
    assert_int_equal(fd_write_all(in, made, made_len, NULL), 0);
    lseek(in, 0, SEEK_SET);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    tar_read_run(in, ends[1], 100, 100, &result);
    assert_int_equal(result.code, TAR_READ_CLOSED);
    close(ends[1]);
    close(in);
}

static void test_paths_are_normalised(void **state) {
    (void)state;
    char path[FILEOP_PATH_MAX + 1];
    assert_null(tar_read_path("./a//b/", path));
    assert_string_equal(path, "a/b");
    assert_null(tar_read_path("./", path));
    assert_string_equal(path, "");
    assert_null(tar_read_path("..a/b..", path));
    assert_non_null(tar_read_path("..", path));
    assert_non_null(tar_read_path("a/..", path));
    assert_non_null(tar_read_path("/", path));
}

int main(void) {
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_archive_becomes_records),
        cmocka_unit_test(test_entries_that_are_not_taken_are_named),
        cmocka_unit_test(test_limits_hold_before_anything_is_written),
        cmocka_unit_test(test_what_is_no_archive_is_damaged),
        cmocka_unit_test(test_sizes_that_lie_do_no_harm),
        cmocka_unit_test(test_flipped_bits_never_write_bad_records),
        cmocka_unit_test(test_a_reader_that_goes_away_ends_it),
        cmocka_unit_test(test_paths_are_normalised),
    };
    return cmocka_run_group_tests_name("tar_read", tests, NULL, NULL);
}
