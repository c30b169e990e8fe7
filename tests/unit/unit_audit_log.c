/* The audit log on disk: segments, repair, what happens when it cannot be written. */
#include "audit_log.h"

#include <signal.h>
#include <sys/resource.h>

#include "audit_dir.h"

static void test_goes_on_after_closing(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    audit_dir_add(&l, 1);
    audit_dir_add(&l, 2);
    struct audit_mark last = l.written;
    audit_log_close(&l);
    audit_dir_open(&d, &l, &found);
    assert_int_equal(l.last.seq, 2);
    assert_memory_equal(l.last.hash, last.hash, 32);
    assert_int_equal(found.partial, 0);
    assert_false(found.unsound);
    audit_dir_add(&l, 3);
    assert_int_equal(l.written.seq, 3);
    audit_log_close(&l);
    audit_dir_done(&d);
}

static void test_new_segment_when_full(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    uint64_t *first;
    size_t count;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    l.segment_bytes = 500; /* two records */
    for (unsigned i = 1; i <= 5; i++)
        audit_dir_add(&l, i);
    assert_int_equal(audit_log_segments(l.dir, l.chain, &first, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_int_equal(first[0], 1);
    assert_int_equal(first[1], 3);
    assert_int_equal(first[2], 5);
    free(first);
    audit_log_close(&l);
    audit_dir_open(&d, &l, &found);
    assert_int_equal(l.last.seq, 5);
    audit_log_close(&l);
    audit_dir_done(&d);
}

static void test_unfinished_record_is_cut_off(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    size_t len, after;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    audit_dir_add(&l, 1);
    audit_dir_add(&l, 2);
    audit_log_close(&l);
    char *data = audit_dir_read(&d, 1, &len);
    audit_dir_write(&d, 1, data, len - 17);
    audit_dir_open(&d, &l, &found);
    assert_true(found.partial > 17);
    assert_int_equal(l.last.seq, 1);
    audit_dir_add(&l, 3);
    audit_log_close(&l);
    char *again = audit_dir_read(&d, 1, &after);
    assert_int_equal(after, len);
    assert_memory_equal(again + len - 1, "\n", 1);
    free(data);
    free(again);
    audit_dir_done(&d);
}

static void test_nothing_of_a_failed_write_stays(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    struct rlimit old, low;
    struct buf fields;
    struct err err;
    size_t len;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    audit_dir_add(&l, 1);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = l.size + 50;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    buf_init(&fields, 4096);
    buf_puts(&fields, "\"type\":\"ended\"", NULL);
    assert_int_equal(audit_log_add(&l, &fields, NULL), 0);
    unit_fails(audit_log_write(&l, &err), err, ERR_SYSTEM);
    assert_int_equal(audit_log_add(&l, &fields, NULL), 0);
    audit_log_undo(&l);
    assert_int_equal(l.last.seq, 2);
    free(audit_dir_read(&d, 1, &len));
    assert_int_equal(len, l.size);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    unit_works(audit_log_write(&l, &err), err);
    assert_int_equal(l.written.seq, 2);
    audit_log_close(&l);
    audit_dir_open(&d, &l, &found);
    assert_int_equal(l.last.seq, 2);
    assert_int_equal(found.partial, 0);
    audit_log_close(&l);
    buf_done(&fields);
    audit_dir_done(&d);
}

static void test_cut_is_seen_by_the_head(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    size_t len;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    for (unsigned i = 1; i <= 3; i++)
        audit_dir_add(&l, i);
    audit_dir_head(&d, &l);
    audit_log_close(&l);
    char *data = audit_dir_read(&d, 1, &len);
    audit_dir_write(&d, 1, data, (size_t)(strchr(data, '\n') - data) + 1);
    audit_dir_open(&d, &l, &found);
    assert_int_equal(found.head_seq, 3);
    assert_int_equal(found.cut_after, 1);
    audit_dir_add(&l, 4);
    assert_int_equal(l.written.seq, 4); /* the numbers of the lost ones are not given again */
    audit_log_close(&l);
    free(data);
    audit_dir_done(&d);
}

static void test_a_last_line_that_is_no_record(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    size_t len;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    for (unsigned i = 1; i <= 3; i++)
        audit_dir_add(&l, i);
    audit_log_close(&l);
    char *data = audit_dir_read(&d, 1, &len);
    data[len - 100] ^= 1;
    audit_dir_write(&d, 1, data, len);
    audit_dir_open(&d, &l, &found);
    assert_true(found.unsound);
    assert_int_equal(l.last.seq, 2);
    audit_dir_add(&l, 4);
    audit_log_close(&l);
    size_t after;
    char *again = audit_dir_read(&d, 1, &after);
    assert_int_equal(after, len); /* what is there is evidence: it is not touched */
    assert_memory_equal(again, data, len);
    free(again);
    free(data);
    free(audit_dir_read(&d, 3, &after));
    audit_dir_done(&d);
}

static void test_changed_by_another(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    char path[64];
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    audit_dir_add(&l, 1);
    assert_true(audit_log_intact(&l));
    audit_dir_write(&d, 1, "x", 1);
    assert_false(audit_log_intact(&l));
    assert_int_equal(unlinkat(d.fd, audit_dir_segment(path, 1), 0), 0);
    assert_false(audit_log_intact(&l));
    audit_log_close(&l);
    audit_dir_done(&d);
}

static void test_heads(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_log l;
    struct audit_log_found found;
    struct audit_log_head head;
    struct err err;
    audit_dir_init(&d);
    audit_dir_open(&d, &l, &found);
    assert_int_equal(audit_log_head_read(d.fd, l.chain, &head, &err), 0);
    audit_dir_add(&l, 1);
    audit_dir_head(&d, &l);
    assert_int_equal(audit_log_head_read(d.fd, l.chain, &head, &err), 1);
    assert_int_equal(head.mark.seq, 1);
    assert_memory_equal(head.mark.hash, l.written.hash, 32);
    assert_string_equal(head.key, d.key.id);
    int fd = openat(d.fd, "audit.head", O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "{\"seq\":1}", 9), 9);
    close(fd);
    assert_int_equal(audit_log_head_read(d.fd, l.chain, &head, &err), -1);
    audit_log_close(&l);
    audit_dir_done(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on_after_closing),
        cmocka_unit_test(test_new_segment_when_full),
        cmocka_unit_test(test_unfinished_record_is_cut_off),
        cmocka_unit_test(test_nothing_of_a_failed_write_stays),
        cmocka_unit_test(test_cut_is_seen_by_the_head),
        cmocka_unit_test(test_a_last_line_that_is_no_record),
        cmocka_unit_test(test_changed_by_another),
        cmocka_unit_test(test_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
