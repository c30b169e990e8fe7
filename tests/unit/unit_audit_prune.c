/* Old files of the audit log go, and a signed record of that stays. */
#include "audit_tool.h"

#include "audit_dir.h"

static void problem(void *arg, const char *sentence) {
    char *said = arg;
    snprintf(said, 600, "%s", sentence);
}

static uint64_t verify(struct audit_dir *d, char *said) {
    struct audit_verify *v = calloc(2, sizeof(*v));
    struct err err;
    said[0] = '\0';
    v[0].key = &d->key.public;
    v[0].problem = problem;
    v[0].arg = said;
    unit_works(audit_tool_verify(v, d->fd, &err), err);
    uint64_t problems = v[0].problems + v[1].problems;
    free(v);
    return problems;
}

static void fill(struct audit_dir *d) {
    struct audit_log l;
    struct audit_log_found found;
    audit_dir_init(d);
    audit_dir_open(d, &l, &found);
    l.segment_bytes = 500;
    for (unsigned i = 1; i <= 7; i++)
        audit_dir_add(&l, i);
    audit_dir_head(d, &l);
    audit_log_close(&l);
}

static size_t count(struct audit_dir *d) {
    uint64_t *first;
    size_t n;
    int dir = openat(d->fd, AUDIT_LOG_DIR, O_RDONLY | O_DIRECTORY);
    assert_int_equal(audit_log_segments(dir, AUDIT_LOG_SERVER, &first, &n, NULL), 0);
    free(first);
    close(dir);
    return n;
}

static void test_old_files_go_and_the_log_is_sound(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_prune_options o = {.days = 0, .to = "/tmp"};
    char said[600], path[64];
    struct err err;
    fill(&d);
    assert_int_equal(count(&d), 4);
    assert_int_equal(mkdirat(d.fd, "kept", 0700), 0);
    char to[128];
    snprintf(to, sizeof(to), "%s/kept", d.path);
    o.to = to;
    unit_works(audit_prune(d.fd, &o, &err), err);
    assert_int_equal(count(&d), 1); /* the newest stays */
    assert_int_equal(verify(&d, said), 0);
    for (unsigned first = 1; first <= 5; first += 2) {
        snprintf(path, sizeof(path), "kept/log-%012u.jsonl", first);
        assert_int_equal(faccessat(d.fd, path, R_OK, 0), 0);
    }
    /* Without the record of it, it is a cut. */
    uint64_t *segments;
    size_t n;
    int dir = openat(d.fd, AUDIT_LOG_DIR, O_RDONLY | O_DIRECTORY);
    assert_int_equal(audit_log_segments(dir, AUDIT_LOG_COMMANDS, &segments, &n, NULL), 0);
    assert_int_equal(n, 1);
    audit_log_segment_name(AUDIT_LOG_COMMANDS, segments[0], path);
    assert_int_equal(unlinkat(dir, path, 0), 0);
    assert_true(verify(&d, said) > 0);
    free(segments);
    close(dir);
    audit_dir_done(&d);
}

static void test_young_files_stay(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_prune_options o = {.days = 1};
    struct err err;
    fill(&d);
    unit_works(audit_prune(d.fd, &o, &err), err);
    assert_int_equal(count(&d), 4);
    audit_dir_done(&d);
}

/* What is not sound is evidence. */
static void test_a_changed_log_is_not_pruned(void **state) {
    (void)state;
    struct audit_dir d;
    struct audit_prune_options o = {.days = 0};
    struct err err;
    size_t len;
    fill(&d);
    char *data = audit_dir_read(&d, 3, &len);
    data[20] ^= 1;
    audit_dir_write(&d, 3, data, len);
    unit_fails(audit_prune(d.fd, &o, &err), err, ERR_STATE);
    assert_int_equal(count(&d), 4);
    free(data);
    audit_dir_done(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_files_go_and_the_log_is_sound),
        cmocka_unit_test(test_young_files_stay),
        cmocka_unit_test(test_a_changed_log_is_not_pruned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
