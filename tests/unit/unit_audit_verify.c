/* What the check of the audit log finds: each way to change it. */
#include "audit_verify.h"

#include "audit_dir.h"

#define RECORDS 12u
#define LAST_SEGMENT 11u

struct bench {
    struct audit_dir d;
    struct audit_verify v;
    char said[4096];
};

static void problem(void *arg, const char *sentence) {
    struct bench *b = arg;
    size_t len = strlen(b->said);
    snprintf(b->said + len, sizeof(b->said) - len, "%s\n", sentence);
}

/* A log of RECORDS records in segments of two, with a head. */
static int setup(void **state) {
    struct bench *b = calloc(1, sizeof(*b));
    struct audit_log l;
    struct audit_log_found found;
    audit_dir_init(&b->d);
    audit_dir_open(&b->d, &l, &found);
    l.segment_bytes = 500;
    for (unsigned i = 1; i <= RECORDS; i++)
        audit_dir_add(&l, i);
    audit_dir_head(&b->d, &l);
    audit_log_close(&l);
    *state = b;
    return 0;
}

static int teardown(void **state) {
    struct bench *b = *state;
    audit_dir_done(&b->d);
    free(b);
    return 0;
}

static void verify(struct bench *b) {
    struct err err;
    b->said[0] = '\0';
    b->v.key = &b->d.key.public;
    b->v.problem = problem;
    b->v.arg = b;
    b->v.problems = 0;
    unit_works(audit_verify_chain(&b->v, b->d.fd, AUDIT_LOG_SERVER, &err), err);
}

static void finds(struct bench *b, const char *wanted) {
    verify(b);
    if (b->v.problems == 0 || strstr(b->said, wanted) == NULL)
        fail_msg("%llu problems, none with \"%s\":\n%s", (unsigned long long)b->v.problems, wanted,
                 b->said);
}

static void test_sound(void **state) {
    struct bench *b = *state;
    verify(b);
    assert_string_equal(b->said, "");
    assert_int_equal(b->v.records, RECORDS);
    assert_int_equal(b->v.segments, 6);
    assert_int_equal(b->v.last.seq, RECORDS);
}

/* Every single byte of a record matters. */
static void test_every_changed_byte_is_found(void **state) {
    struct bench *b = *state;
    size_t len;
    char *data = audit_dir_read(&b->d, 3, &len);
    for (size_t i = 0; i < len; i++) {
        data[i] ^= 4;
        audit_dir_write(&b->d, 3, data, len);
        verify(b);
        if (b->v.problems == 0)
            fail_msg("byte %zu of %zu can be changed", i, len);
        data[i] ^= 4;
    }
    audit_dir_write(&b->d, 3, data, len);
    verify(b);
    assert_int_equal(b->v.problems, 0);
    free(data);
}

static void test_edit_names_the_record(void **state) {
    struct bench *b = *state;
    size_t len;
    char *data = audit_dir_read(&b->d, 3, &len);
    char *n = strstr(data, "\"n\":4");
    n[4] = '9';
    audit_dir_write(&b->d, 3, data, len);
    finds(b, "audit/log-000000000003.jsonl, line 2: record 4 was edited");
    assert_int_equal(b->v.problems, 1);
    free(data);
}

/* The editor computes the hash of his record anew: the next one tells. */
static void test_edit_with_a_new_hash(void **state) {
    struct bench *b = *state;
    struct audit_line line;
    struct audit_mark mark;
    struct buf fields, out;
    size_t len;
    char *data = audit_dir_read(&b->d, 5, &len);
    assert_int_equal(audit_line_parse(data, (size_t)(strchr(data, '\n') - data), &line), 0);
    mark.seq = line.seq - 1;
    memcpy(mark.hash, line.prev, 32);
    buf_init(&fields, 4096);
    buf_init(&out, 4096);
    buf_puts(&fields, "\"type\":\"test\",\"n\":77", NULL);
    assert_int_equal(audit_line_compose(&out, &mark, line.time_ms, &fields, NULL), 0);
    buf_puts(&out, strchr(data, '\n') + 1, NULL);
    audit_dir_write(&b->d, 5, out.data, out.len);
    finds(b, "record 6 does not continue record 5 as it is now");
    buf_done(&fields);
    buf_done(&out);
    free(data);
}

static void test_missing_record_and_segment(void **state) {
    struct bench *b = *state;
    char path[64];
    size_t len;
    char *data = audit_dir_read(&b->d, 3, &len);
    size_t first = (size_t)(strchr(data, '\n') - data) + 1;
    audit_dir_write(&b->d, 3, data + first, len - first);
    finds(b, "record 3 is missing: audit/log-000000000003.jsonl, line 1 goes on with record 4");
    audit_dir_write(&b->d, 3, data, first);
    finds(b, "record 4 is missing: audit/log-000000000005.jsonl, line 1");
    assert_int_equal(unlinkat(b->d.fd, audit_dir_segment(path, 3), 0), 0);
    finds(b, "records 3 to 4 are missing");
    free(data);
}

static void test_reordered_and_doubled(void **state) {
    struct bench *b = *state;
    size_t len;
    char *data = audit_dir_read(&b->d, 3, &len), *other = malloc(2 * len);
    size_t first = (size_t)(strchr(data, '\n') - data) + 1;
    memcpy(other, data + first, len - first);
    memcpy(other + len - first, data, first);
    audit_dir_write(&b->d, 3, other, len);
    finds(b, "record 3 is there twice or not in its place");
    memcpy(other, data, len);
    memcpy(other + len, data + first, len - first);
    audit_dir_write(&b->d, 3, other, len + len - first);
    finds(b, "line 3: record 4 is there twice");
    free(data);
    free(other);
}

static void test_cut_at_the_end(void **state) {
    struct bench *b = *state;
    char path[64];
    size_t len;
    char *data = audit_dir_read(&b->d, LAST_SEGMENT, &len);
    size_t first = (size_t)(strchr(data, '\n') - data) + 1;
    audit_dir_write(&b->d, LAST_SEGMENT, data, len - 1);
    finds(b, "ends in the middle of a record");
    audit_dir_write(&b->d, LAST_SEGMENT, data, first);
    finds(b, "the end of the chain log is missing: it ends with record 11, and server/audit.head "
             "has seen record 12");
    assert_int_equal(unlinkat(b->d.fd, audit_dir_segment(path, LAST_SEGMENT), 0), 0);
    finds(b, "ends with record 10");
    assert_int_equal(unlinkat(b->d.fd, "audit.head", 0), 0);
    finds(b, "server/audit.head is missing");
    free(data);
}

static void test_cut_at_the_front(void **state) {
    struct bench *b = *state;
    struct audit_line line;
    struct audit_mark pruned;
    char path[64];
    size_t len;
    char *data = audit_dir_read(&b->d, 3, &len);
    assert_int_equal(audit_line_parse(data, (size_t)(strchr(data, '\n') - data), &line), 0);
    pruned.seq = 2;
    memcpy(pruned.hash, line.prev, 32);
    assert_int_equal(unlinkat(b->d.fd, audit_dir_segment(path, 1), 0), 0);
    finds(b, "records 1 to 2 are missing");
    b->v.pruned = &pruned;
    b->v.pruned_count = 1;
    verify(b);
    assert_int_equal(b->v.problems, 0);
    pruned.hash[0] ^= 1;
    finds(b, "records 1 to 2 are missing");
    free(data);
}

static void test_head_of_another_log(void **state) {
    struct bench *b = *state;
    struct audit_log l;
    struct audit_log_found found;
    audit_dir_open(&b->d, &l, &found);
    l.written.hash[5] ^= 1;
    audit_dir_head(&b->d, &l);
    finds(b, "record 12 of the chain log is not the one that server/audit.head has seen");
    b->d.key.secret[0] ^= 1;
    l.written.hash[5] ^= 1;
    audit_dir_head(&b->d, &l);
    finds(b, "server/audit.head is not signed by the server's key");
    audit_log_close(&l);
}

/* A head that somebody kept: the log and its own head were both set back. */
static void test_expected_head(void **state) {
    struct bench *b = *state;
    struct audit_verify_expect expect[2] = {0};
    struct audit_log l;
    struct audit_log_found found;
    char path[64];
    verify(b);
    memcpy(expect[0].hash, b->v.last.hash, 32);
    expect[1].hash[0] = 1;
    b->v.expect = expect;
    b->v.expect_count = 2;
    verify(b);
    assert_true(expect[0].found);
    assert_false(expect[1].found);
    assert_int_equal(unlinkat(b->d.fd, audit_dir_segment(path, LAST_SEGMENT), 0), 0);
    assert_int_equal(unlinkat(b->d.fd, "audit.head", 0), 0);
    audit_dir_open(&b->d, &l, &found);
    audit_dir_head(&b->d, &l);
    audit_log_close(&l);
    expect[0].found = false;
    verify(b);
    assert_int_equal(b->v.problems, 0);
    assert_false(expect[0].found);
}

/* Somebody without the key writes the log anew from a checkpoint on. */
static void test_checkpoint_of_another_key(void **state) {
    struct bench *b = *state;
    struct audit_log l;
    struct audit_log_found found;
    char message[AUDIT_LINE_MESSAGE_MAX], signature[129];
    struct buf fields;
    audit_dir_open(&b->d, &l, &found);
    buf_init(&fields, 4096);
    for (int wrong = 0; wrong < 2; wrong++) {
        size_t len = audit_line_message(l.chain, &l.last, false, message);
        b->d.key.secret[0] ^= (unsigned char)wrong;
        receipt_key_sign(&b->d.key, message, len, signature);
        b->d.key.secret[0] ^= (unsigned char)wrong;
        buf_clear(&fields);
        buf_printf(&fields, NULL, "\"type\":\"checkpoint\",\"key\":\"x\",\"signature\":\"%s\"",
                   signature);
        assert_int_equal(audit_log_add(&l, &fields, NULL), 0);
        assert_int_equal(audit_log_write(&l, NULL), 0);
        audit_dir_head(&b->d, &l);
        if (wrong) {
            finds(b, "the signature of checkpoint 14");
        } else {
            verify(b);
            assert_int_equal(b->v.problems, 0);
            assert_int_equal(b->v.checkpoints, 1);
        }
    }
    buf_done(&fields);
    audit_log_close(&l);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_sound),
        TEST(test_every_changed_byte_is_found),
        TEST(test_edit_names_the_record),
        TEST(test_edit_with_a_new_hash),
        TEST(test_missing_record_and_segment),
        TEST(test_reordered_and_doubled),
        TEST(test_cut_at_the_end),
        TEST(test_cut_at_the_front),
        TEST(test_head_of_another_log),
        TEST(test_expected_head),
        TEST(test_checkpoint_of_another_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
