#include "tar_apart.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "unit.h"

/* A helper, and the end of its socket. */
static int helper(pid_t *pid) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid == 0) {
        struct err err = {0};
        close(ends[0]);
        _exit(tar_apart_serve(ends[1], &err) == 0 ? 0 : 1);
    }
    close(ends[1]);
    return ends[0];
}

static void ends(int sock, pid_t pid) {
    int status = 0;
    close(sock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

struct work {
    int in, out, report;
};

static struct work begin(int sock, uint32_t what) {
    struct tar_apart_job job = {
        .what = what, .max_bytes = 1 << 20, .max_entries = 10, .name = "only"};
    struct work w;
    int in[2], out[2], report[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    const int fds[] = {in[0], out[1], report[1]};
    assert_int_equal(fd_send(sock, &job, sizeof(job), fds, 3, NULL), 0);
    close(in[0]);
    close(out[1]);
    close(report[1]);
    w = (struct work){in[1], out[0], report[0]};
    return w;
}

/* -> bytes of the report, which is 0 when there is none */
static ssize_t finish(struct work *w, char *bytes, size_t size, size_t *len,
                      struct tar_apart_report *report) {
    ssize_t n;
    fd_close(&w->in);
    *len = 0;
    while ((n = read(w->out, bytes + *len, size - *len)) > 0)
        *len += (size_t)n;
    n = read(w->report, report, sizeof(*report));
    fd_close(&w->out);
    fd_close(&w->report);
    return n;
}

static void put(int fd, struct fileop_record rec, const char *path, const char *data) {
    rec.magic = FILEOP_MAGIC;
    rec.path_len = (uint32_t)strlen(path);
    rec.data_len = (uint32_t)strlen(data);
    assert_int_equal(fd_write_all(fd, &rec, sizeof(rec), NULL), 0);
    assert_int_equal(fd_write_all(fd, path, rec.path_len, NULL), 0);
    assert_int_equal(fd_write_all(fd, data, rec.data_len, NULL), 0);
}

static void put_file(int fd) {
    put(fd,
        (struct fileop_record){.type = FILEOP_ENTRY,
                               .kind = FILEOP_FILE,
                               .flags = FILEOP_CONTENT,
                               .mode = 0644,
                               .nlink = 1,
                               .size = 5},
        "n\xc3\xa4me", "");
    put(fd, (struct fileop_record){.type = FILEOP_DATA}, "", "hello");
    put(fd, (struct fileop_record){.type = FILEOP_DATA}, "", "");
}

static char bytes[1 << 16], again[1 << 16];

/* There and back: an archive is made of records, and records of that archive. */
static void test_both_ways_in_processes(void **state) {
    struct tar_apart_report report;
    struct err err = {0};
    size_t len = 0, more = 0;
    pid_t pid;
    int sock = helper(&pid);
    (void)state;
    struct work w = begin(sock, TAR_APART_PACK);
    put_file(w.in);
    put(w.in, (struct fileop_record){.type = FILEOP_END}, "", "");
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
    unit_works(tar_apart_check(&report, TAR_APART_PACK, &err), err);
    assert_int_equal(report.packed.code, TAR_PACK_OK);
    assert_true(len >= 1536);
    w = begin(sock, TAR_APART_UNPACK);
    assert_int_equal(fd_write_all(w.in, bytes, len, NULL), 0);
    assert_int_equal(finish(&w, again, sizeof(again), &more, &report), sizeof(report));
    unit_works(tar_apart_check(&report, TAR_APART_UNPACK, &err), err);
    assert_int_equal(report.unpacked.code, TAR_READ_OK);
    assert_int_equal(report.unpacked.entries, 1);
    assert_int_equal(report.unpacked.bytes, 5);
    assert_non_null(memmem(again, more, "n\xc3\xa4me", 5));
    assert_non_null(memmem(again, more, "hello", 5));
    ends(sock, pid);
}

static void test_why_there_is_no_archive(void **state) {
    struct tar_apart_report report;
    size_t len = 0;
    pid_t pid;
    int sock = helper(&pid);
    (void)state;
    struct work w = begin(sock, TAR_APART_PACK); /* the operation refuses */
    put(w.in, (struct fileop_record){.type = FILEOP_ERROR, .code = FILEOP_NOT_FOUND, .sys = 2}, "",
        "");
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
    assert_int_equal(report.packed.code, TAR_PACK_REFUSED);
    assert_int_equal(report.packed.fileop, FILEOP_NOT_FOUND);
    assert_int_equal(len, 0);
    w = begin(sock, TAR_APART_PACK); /* it is cut short */
    put_file(w.in);
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
    assert_int_equal(report.packed.code, TAR_PACK_CUT);
    w = begin(sock, TAR_APART_PACK); /* it makes no sense */
    assert_int_equal(fd_write_all(w.in, bytes, 512, NULL), 0);
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
    assert_int_equal(report.packed.code, TAR_PACK_CUT);
    assert_int_equal(len, 0);
    static const struct {
        enum fileop_code code;
        enum tar_pack_code means;
    } rows[] = {{FILEOP_DENIED, TAR_PACK_OK}, /* left out */
                {FILEOP_NOT_FOUND, TAR_PACK_OK},
                {FILEOP_IO, TAR_PACK_BROKEN}}; /* not a whole archive without it */
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        w = begin(sock, TAR_APART_PACK);
        put_file(w.in);
        put(w.in, (struct fileop_record){.type = FILEOP_ERROR, .code = rows[i].code, .sys = 5},
            "other", "");
        put(w.in, (struct fileop_record){.type = FILEOP_END}, "", "");
        assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
        assert_int_equal(report.packed.code, rows[i].means);
    }
    w = begin(sock, TAR_APART_UNPACK); /* no archive */
    assert_int_equal(fd_write_all(w.in, "none", 4, NULL), 0);
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
    assert_int_equal(report.unpacked.code, TAR_READ_DAMAGED);
    ends(sock, pid);
}

/* Whoever goes away while an archive is made ends its process, and not the helper. */
static void test_a_reader_that_goes_away(void **state) {
    struct tar_apart_report report;
    size_t len = 0;
    pid_t pid;
    int sock = helper(&pid);
    (void)state;
    struct work w = begin(sock, TAR_APART_PACK);
    fd_close(&w.out);
    put_file(w.in);
    put(w.in, (struct fileop_record){.type = FILEOP_END}, "", "");
    assert_int_equal(read(w.report, &report, sizeof(report)), sizeof(report));
    assert_int_equal(report.packed.code, TAR_PACK_CLOSED);
    fd_close(&w.in);
    fd_close(&w.report);
    w = begin(sock, TAR_APART_UNPACK);
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), sizeof(report));
    ends(sock, pid);
}

static void test_what_is_no_job_is_passed_over(void **state) {
    struct tar_apart_report report;
    size_t len = 0;
    pid_t pid;
    int sock = helper(&pid);
    (void)state;
    assert_int_equal(send(sock, "?", 1, 0), 1);
    struct work w = begin(sock, 7);
    assert_int_equal(finish(&w, bytes, sizeof(bytes), &len, &report), 0);
    ends(sock, pid);
}

static void test_reports_are_not_believed(void **state) {
    struct err err = {0};
    struct tar_apart_report good = {.magic = TAR_APART_MAGIC, .what = TAR_APART_UNPACK}, bad = good;
    (void)state;
    memset(good.unpacked.why, 0xff, sizeof(good.unpacked.why));
    memset(good.unpacked.entry, '\n', sizeof(good.unpacked.entry));
    unit_works(tar_apart_check(&good, TAR_APART_UNPACK, &err), err);
    assert_int_equal(strlen(good.unpacked.why), sizeof(good.unpacked.why) - 1);
    assert_int_equal(good.unpacked.entry[0], '?');
    unit_fails(tar_apart_check(&bad, TAR_APART_PACK, &err), err, ERR_PROTOCOL);
    bad.magic = 0;
    unit_fails(tar_apart_check(&bad, TAR_APART_UNPACK, &err), err, ERR_PROTOCOL);
    bad.magic = TAR_APART_MAGIC;
    bad.unpacked.code = (enum tar_read_code)99;
    unit_fails(tar_apart_check(&bad, TAR_APART_UNPACK, &err), err, ERR_PROTOCOL);
    bad = (struct tar_apart_report){.magic = TAR_APART_MAGIC, .what = TAR_APART_PACK};
    bad.packed.fileop = FILEOP_CODES;
    unit_fails(tar_apart_check(&bad, TAR_APART_PACK, &err), err, ERR_PROTOCOL);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_in_processes),
        cmocka_unit_test(test_why_there_is_no_archive),
        cmocka_unit_test(test_a_reader_that_goes_away),
        cmocka_unit_test(test_what_is_no_job_is_passed_over),
        cmocka_unit_test(test_reports_are_not_believed),
    };
    return cmocka_run_group_tests_name("tar_apart", tests, NULL, NULL);
}
