/* Looking at files: what is asked for, and what becomes of every kind of answer. */
#include "sync_hash.h"

#include "fake_fileop.h"
#include "sync_trees.h"

struct scene {
    struct sync_index index;
    struct sync_tree tree;
    struct sync_plan plan;
    bool done;
    enum fileop_code code;
};

static void scene_done(void *arg, const struct fileop_result *result) {
    struct scene *s = arg;
    s->done = true;
    s->code = result->code;
}

static void scene_open(struct scene *s, const char *text) {
    struct err e;
    memset(s, 0, sizeof(*s));
    sync_index_init(&s->index);
    sync_trees_read(&s->tree, text);
    unit_works(sync_plan_join(&s->plan, &s->index, &s->tree, NULL, &e), e);
    sync_plan_changes(&s->plan);
    struct sync_hash_task task = {
        .root = "/workspace", .plan = &s->plan, .user = "ann", .done = scene_done, .arg = s};
    fake_run.room = 1;
    assert_non_null(sync_hash_start(&task, &e));
    fake_write(1);
}

static void scene_close(struct scene *s) {
    sync_plan_done(&s->plan);
    sync_tree_done(&s->tree);
    sync_index_done(&s->index);
}

static void is_hash_of(const struct sync_node *n, const char *text) {
    unsigned char sha256[32];
    sync_trees_hash(text, sha256);
    assert_non_null(n->sha256);
    assert_memory_equal(n->sha256, sha256, 32);
}

static const char tree[] = "f 644 a abc 1\nd 755 d\nf 644 e - 2\nf 644 f defg 3\nf 644 g h 4";

static void test_asks_in_order_and_takes_the_answers(void **state) {
    (void)state;
    struct scene s;
    scene_open(&s, tree);
    assert_string_equal(fake_run.sent.data, "fetch /workspace\nname a\nname f\nname g\n");
    assert_int_equal(fake_entry("a", 3, 1), 0);
    assert_int_equal(fake_data("ab"), 0);
    assert_int_equal(fake_data("c"), 0);
    assert_int_equal(fake_data(""), 0);
    assert_int_equal(fake_error("f", FILEOP_DENIED), 0);
    assert_int_equal(fake_entry("g", 1, 4), 0);
    assert_int_equal(fake_data("h"), 0);
    assert_int_equal(fake_data(""), 0);
    fake_done(FILEOP_OK);
    assert_true(s.done && s.code == FILEOP_OK);
    is_hash_of(&s.plan.nodes[0], "abc");
    assert_true(s.plan.nodes[0].stamped);
    assert_null(s.plan.nodes[3].sha256);
    assert_int_equal(s.plan.nodes[3].failed, FILEOP_DENIED);
    is_hash_of(&s.plan.nodes[4], "h");
    scene_close(&s);
}

static void test_what_changes_meanwhile(void **state) {
    (void)state;
    struct scene s;
    scene_open(&s, tree);
    fake_entry("a", 3, 1); /* it is longer now: told with what it had, and not remembered */
    fake_data("abcd");
    fake_data("");
    fake_entry("f", 4, 3); /* its contents break off */
    fake_data("de");
    assert_int_equal(fake_error("f", FILEOP_CHANGED), 0);
    assert_int_equal(fake_item(FILEOP_ENTRY, "g", "", /* something else is there */
                               (struct fileop_record){.kind = FILEOP_FIFO}),
                     0);
    fake_done(FILEOP_OK);
    is_hash_of(&s.plan.nodes[0], "abcd");
    assert_int_equal(s.plan.nodes[0].stamp.size, 4);
    assert_false(s.plan.nodes[0].stamped);
    assert_int_equal(s.plan.nodes[3].failed, FILEOP_CHANGED);
    assert_int_equal(s.plan.nodes[4].failed, FILEOP_NOT_REGULAR);
    scene_close(&s);
}

static void test_an_answer_is_taken_back(void **state) {
    (void)state;
    struct scene s;
    scene_open(&s, tree);
    fake_entry("a", 3, 1);
    fake_data("abc");
    fake_data("");
    assert_int_equal(fake_error("a", FILEOP_IO), 0);
    assert_null(s.plan.nodes[0].sha256);
    assert_int_equal(s.plan.nodes[0].failed, FILEOP_IO);
    assert_int_equal(fake_error("f", FILEOP_IO), 0);
    fake_done(FILEOP_OK);
    scene_close(&s);
}

static void test_answers_that_cannot_be(void **state) {
    (void)state;
    struct scene s;
    scene_open(&s, tree);
    assert_int_equal(fake_entry("f", 4, 3), -1); /* not its turn */
    fake_done(FILEOP_IO);
    assert_int_equal(s.code, FILEOP_IO);
    scene_close(&s);
    scene_open(&s, tree);
    fake_entry("a", 3, 1);
    assert_int_equal(fake_entry("f", 4, 3), -1); /* the contents did not end */
    fake_done(FILEOP_IO);
    scene_close(&s);
    scene_open(&s, tree);
    fake_error("a", FILEOP_IO);
    fake_error("f", FILEOP_IO);
    fake_error("g", FILEOP_IO);
    assert_int_equal(fake_entry("h", 4, 3), -1); /* more than was asked for */
    fake_done(FILEOP_IO);
    scene_close(&s);
}

static void test_any_order_of_answers(void **state) {
    (void)state;
    static const char *const names[] = {"a", "e", "f", "g", "zz", ""};
    unsigned seed = 1;
    for (int round = 0; round < 3000; round++) {
        struct scene s;
        int rc = 0;
        scene_open(&s, tree);
        for (int i = 0; i < 12 && rc == 0; i++) {
            seed = seed * 1103515245u + 12345u;
            const char *name = names[(seed >> 8) % UNIT_COUNT(names)];
            switch ((seed >> 16) % 4) {
            case 0:
                rc = fake_entry(name, (seed >> 20) % 5, 1);
                break;
            case 1:
                rc = fake_error(name, FILEOP_IO);
                break;
            default:
                rc = fake_data((seed >> 20) % 3 == 0 ? "" : "xy");
                break;
            }
        }
        fake_done(rc == 0 ? FILEOP_OK : FILEOP_IO);
        assert_true(s.done);
        scene_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_in_order_and_takes_the_answers),
        cmocka_unit_test(test_what_changes_meanwhile),
        cmocka_unit_test(test_an_answer_is_taken_back),
        cmocka_unit_test(test_answers_that_cannot_be),
        cmocka_unit_test(test_any_order_of_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
