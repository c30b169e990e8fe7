/* Three trees side by side: what a sync does, what is told as changed, and what is remembered. */
#include "sync_plan.h"

#include "sync_trees.h"

struct scene {
    struct sync_index index, before; /* before: what the plan borrows from */
    struct sync_tree tree;
    struct sync_request want;
    struct sync_plan plan;
    const char *text; /* of the tree */
};

static void scene_close(struct scene *s) {
    sync_plan_done(&s->plan);
    sync_tree_done(&s->tree);
    sync_request_done(&s->want);
    sync_index_done(&s->before);
}

/* Looks at everything that has to be looked at; returns how much that was. */
static size_t scene_look(struct scene *s) {
    size_t looked = 0;
    for (size_t i = 0; i < s->plan.count; i++) {
        struct sync_node *n = &s->plan.nodes[i];
        unsigned char sha256[32];
        if (n->todo != SYNC_HASH)
            continue;
        sync_trees_contents(s->text, n->seen->path, sha256);
        struct sync_stamp stamp = {n->seen->size, n->seen->inode, n->seen->ctime_ns};
        sync_plan_hashed(&s->plan, n, sha256, &stamp);
        looked++;
    }
    return looked;
}

static size_t scene_sync(struct scene *s, const char *tree, const char *want, bool delete) {
    struct err e;
    s->text = tree;
    sync_trees_read(&s->tree, tree);
    sync_trees_want(&s->want, want);
    unit_works(sync_plan_join(&s->plan, &s->index, &s->tree, &s->want, &e), e);
    sync_plan_sync(&s->plan, delete);
    size_t looked = scene_look(s);
    sync_plan_settle_sync(&s->plan);
    return looked;
}

static void scene_counts(const struct scene *s, unsigned created, unsigned modified,
                         unsigned deleted, unsigned unchanged) {
    assert_int_equal(s->plan.created, created);
    assert_int_equal(s->plan.modified, modified);
    assert_int_equal(s->plan.deleted, deleted);
    assert_int_equal(s->plan.unchanged, unchanged);
}

/* The sync was applied: made files have stamps of `made` on. */
static void scene_applied(struct scene *s, int64_t fresh, uint64_t made) {
    struct sync_index next;
    struct err e;
    for (size_t i = 0; i < s->plan.count; i++) {
        struct sync_node *n = &s->plan.nodes[i];
        if ((n->todo != SYNC_MAKE && n->todo != SYNC_SET) || n->want->kind != FILEOP_FILE)
            continue;
        n->stamp = (struct sync_stamp){n->want->size, made, (int64_t)made};
        n->stamped = true;
        made++;
    }
    sync_index_init(&next);
    unit_works(sync_plan_applied(&s->plan, fresh, &next, &e), e);
    sync_index_done(&s->index);
    s->index = next;
    scene_close(s);
}

static const struct sync_node *scene_node(const struct scene *s, const char *path) {
    for (size_t i = 0; i < s->plan.count; i++) {
        size_t len;
        if (strcmp(sync_node_path(&s->plan.nodes[i], &len), path) == 0)
            return &s->plan.nodes[i];
    }
    fail_msg("no %s in the plan", path);
    return NULL;
}

static size_t scene_changes(struct scene *s, const char *tree, int64_t fresh) {
    struct sync_index next;
    struct err e;
    s->text = tree;
    sync_trees_read(&s->tree, tree);
    unit_works(sync_plan_join(&s->plan, &s->index, &s->tree, NULL, &e), e);
    sync_plan_changes(&s->plan);
    size_t looked = scene_look(s);
    sync_plan_settle_changes(&s->plan);
    sync_index_init(&next);
    unit_works(sync_plan_learned(&s->plan, fresh, &next, &e), e);
    next.applied = s->index.applied;
    s->before = s->index;
    s->index = next;
    return looked;
}

static int open_scene(void **state) {
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    sync_index_init(&s->index);
    *state = s;
    return 0;
}

static int close_scene(void **state) {
    struct scene *s = *state;
    scene_close(s);
    sync_index_done(&s->index);
    free(s);
    return 0;
}

#define ALL INT64_MAX

static void test_first_sync_makes_everything(void **state) {
    struct scene *s = *state;
    struct sync_need *needs;
    struct api_error error;
    size_t count;
    assert_int_equal(
        scene_sync(s, "", "d 755 a\nf 644 a/x abc\nf 644 a/y abc\nf 600 z -\nl l a", false), 0);
    scene_counts(s, 5, 0, 0, 0);
    assert_int_equal(sync_plan_needs(&s->plan, &needs, &count, &error), 0);
    assert_int_equal(count, 1); /* the same twice, and nothing for an empty file */
    assert_int_equal(needs[0].size, 3);
    free(needs);
    assert_false(sync_plan_is_idle(&s->plan));
}

static void test_unchanged_tree_is_not_looked_at(void **state) {
    struct scene *s = *state;
    static const char want[] = "d 755 a\nf 644 a/x abc\nf 644 b de";
    scene_sync(s, "", want, true);
    scene_applied(s, ALL, 10);
    scene_sync(s, "d 755 a\nf 644 a/x abc 10\nf 644 b de 11", want, true);
    assert_false(sync_plan_is_known(&s->plan)); /* the directory's number was not told */
    scene_applied(s, ALL, 0);
    assert_int_equal(scene_sync(s, "d 755 a\nf 644 a/x abc 10\nf 644 b de 11", want, true), 0);
    scene_counts(s, 0, 0, 0, 3);
    assert_true(sync_plan_is_idle(&s->plan));
    assert_false(s->plan.learned);
    assert_true(sync_plan_is_known(&s->plan));
}

static void test_changed_stamp_is_looked_at_once(void **state) {
    struct scene *s = *state;
    static const char want[] = "f 644 b de";
    scene_sync(s, "", want, true);
    scene_applied(s, ALL, 10);
    assert_int_equal(scene_sync(s, "f 644 b de 99", want, true), 1);
    scene_counts(s, 0, 0, 0, 1);
    assert_false(sync_plan_is_known(&s->plan));
    scene_applied(s, ALL, 0);
    assert_int_equal(scene_sync(s, "f 644 b de 99", want, true), 0);
}

static void test_same_size_and_other_contents_are_seen(void **state) {
    struct scene *s = *state;
    scene_sync(s, "", "f 644 b de", true);
    scene_applied(s, ALL, 10);
    assert_int_equal(scene_sync(s, "f 644 b xy 11", "f 644 b de", true), 1);
    scene_counts(s, 0, 1, 0, 0);
}

static void test_files_just_made_are_looked_at_again_when_the_clock_is_slow(void **state) {
    struct scene *s = *state;
    scene_sync(s, "", "f 644 b de", true);
    scene_applied(s, 10, 10); /* its ctime is not before 10 */
    assert_int_equal(scene_sync(s, "f 644 b de 10", "f 644 b de", true), 1);
    scene_counts(s, 0, 0, 0, 1);
}

static void test_without_an_index_sizes_decide_what_is_looked_at(void **state) {
    struct scene *s = *state;
    assert_int_equal(scene_sync(s, "f 644 a abc 1\nf 644 b abcd 2\nf 644 c abc 3",
                                "f 644 a abc\nf 644 b abc\nf 600 c abc", false),
                     2);
    scene_counts(s, 0, 2, 0, 1);
    assert_int_equal(scene_node(s, "b")->todo, SYNC_MAKE);
    assert_int_equal(scene_node(s, "c")->todo, SYNC_SET);
}

static void test_kinds_that_change(void **state) {
    struct scene *s = *state;
    scene_sync(s, "d 755 a\nd 755 a/sub\nf 644 a/sub/x abc 1\nf 644 b de 2\nl c old\np d",
               "f 644 a abc\nf 644 b/y abc\nl c new\nf 644 d -", false);
    assert_int_equal(scene_node(s, "a")->todo, SYNC_MAKE);
    assert_int_equal(scene_node(s, "a/sub")->todo, SYNC_COVERED);
    assert_int_equal(scene_node(s, "a/sub/x")->todo, SYNC_COVERED);
    assert_int_equal(scene_node(s, "b")->todo, SYNC_MAKE);
    assert_int_equal(scene_node(s, "b/y")->todo, SYNC_MAKE);
    assert_int_equal(scene_node(s, "c")->todo, SYNC_MAKE);
    scene_counts(s, 1, 3, 2, 0);
}

static void test_delete_removes_what_is_not_named(void **state) {
    struct scene *s = *state;
    static const char tree[] =
        "d 755 a\nf 644 a/x abc 1\nd 755 b\nf 644 b/y abc 2\np b/z\nf 644 q de 3";
    scene_sync(s, tree, "f 644 a/x abc", false);
    scene_counts(s, 0, 0, 0, 1);
    scene_close(s);
    scene_sync(s, tree, "f 644 a/x abc", true);
    assert_int_equal(scene_node(s, "a")->todo, SYNC_SAME); /* implied */
    assert_int_equal(scene_node(s, "b")->todo, SYNC_DROP);
    assert_int_equal(scene_node(s, "b/y")->todo, SYNC_COVERED);
    assert_int_equal(scene_node(s, "q")->todo, SYNC_DROP);
    scene_counts(s, 0, 0, 4, 1);
}

static void test_contents_with_two_sizes(void **state) {
    struct scene *s = *state;
    struct sync_need *needs;
    struct api_error error;
    size_t count;
    scene_sync(s, "", "f 644 a abc\nf 644 b abc", false);
    s->want.entries[1].size = 4;
    assert_int_equal(sync_plan_needs(&s->plan, &needs, &count, &error), -1);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.field, "/entries/1/size");
    s->want.entries[1].size = 0;
    assert_int_equal(sync_plan_needs(&s->plan, &needs, &count, &error), -1);
    assert_string_equal(error.field, "/entries/1/size");
}

static void test_nothing_changed(void **state) {
    struct scene *s = *state;
    scene_sync(s, "f 644 other o 5\np pipe", "d 755 a\nf 644 a/x abc\nl l a", false);
    scene_applied(s, ALL, 10);
    assert_int_equal(
        scene_changes(s, "d 755 a\nf 644 a/x abc 10\nl l a\nf 644 other o 5\np pipe", ALL), 0);
    scene_counts(s, 0, 0, 0, 0);
}

static void test_changes_of_every_sort(void **state) {
    struct scene *s = *state;
    scene_sync(s, "f 644 other o 5",
               "d 755 a\nf 644 a/x abc\nf 644 b b\nf 644 c c\nf 644 e e\nl l a\nd 755 m\nf 644 t t",
               false);
    scene_applied(s, ALL, 10); /* a/x 10, b 11, c 12, e 13, t 14 */
    assert_int_equal(
        scene_changes(s,
                      "d 700 a\nf 644 a/x abc 20\nf 755 b b 21\nd 755 c\nf 644 c/n n 22\n"
                      "l l b\nl m x\nf 644 t T 23\nf 644 other O 24\np fifo",
                      ALL),
        5);                                                         /* a/x, b, c/n, t, other */
    assert_int_equal(scene_node(s, "a")->change, SYNC_MODIFIED);    /* its mode */
    assert_int_equal(scene_node(s, "a/x")->change, SYNC_NO_CHANGE); /* it was touched */
    assert_int_equal(scene_node(s, "b")->change, SYNC_MODIFIED);    /* its mode */
    assert_int_equal(scene_node(s, "c")->change, SYNC_MODIFIED);    /* a directory now */
    assert_int_equal(scene_node(s, "c/n")->change, SYNC_CREATED);
    assert_int_equal(scene_node(s, "e")->change, SYNC_DELETED);
    assert_int_equal(scene_node(s, "fifo")->change, SYNC_CREATED);
    assert_int_equal(scene_node(s, "l")->change, SYNC_MODIFIED);
    assert_int_equal(scene_node(s, "m")->change, SYNC_MODIFIED);
    assert_int_equal(scene_node(s, "other")->change, SYNC_MODIFIED);
    assert_int_equal(scene_node(s, "t")->change, SYNC_MODIFIED);
    scene_counts(s, 2, 7, 1, 0);
}

static void test_changes_cost_what_changed_since_the_last_time(void **state) {
    struct scene *s = *state;
    scene_sync(s, "", "f 644 a abc\nf 644 b def", false);
    scene_applied(s, ALL, 10);
    assert_int_equal(scene_changes(s, "f 644 a xyz 20\nf 644 b def 11\nf 644 n n 21", ALL), 2);
    scene_counts(s, 1, 1, 0, 0);
    scene_close(s);
    assert_int_equal(scene_changes(s, "f 644 a xyz 20\nf 644 b def 11\nf 644 n n 21", ALL), 0);
    scene_counts(s, 1, 1, 0, 0);
    scene_close(s);
    /* As it was, by other means. */
    assert_int_equal(scene_changes(s, "f 644 a abc 30\nf 644 b def 11", ALL), 1);
    scene_counts(s, 0, 0, 0, 0);
}

static void test_what_goes_while_it_is_looked_at(void **state) {
    struct scene *s = *state;
    struct err e;
    scene_sync(s, "", "f 644 a abc", false);
    scene_applied(s, ALL, 10);
    sync_trees_read(&s->tree, "f 644 a abc 20\nf 644 n n 21\nf 600 u u 22");
    unit_works(sync_plan_join(&s->plan, &s->index, &s->tree, NULL, &e), e);
    sync_plan_changes(&s->plan);
    sync_plan_failed(&s->plan.nodes[0], FILEOP_NOT_FOUND);
    sync_plan_failed(&s->plan.nodes[1], FILEOP_NOT_FOUND);
    sync_plan_failed(&s->plan.nodes[2], FILEOP_DENIED);
    sync_plan_settle_changes(&s->plan);
    assert_int_equal(s->plan.nodes[0].change, SYNC_DELETED);
    assert_int_equal(s->plan.nodes[1].change, SYNC_NO_CHANGE);
    assert_int_equal(s->plan.nodes[2].change, SYNC_CREATED);
    assert_null(s->plan.nodes[2].sha256);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, open_scene, close_scene)
    const struct CMUnitTest tests[] = {
        T(test_first_sync_makes_everything),
        T(test_unchanged_tree_is_not_looked_at),
        T(test_changed_stamp_is_looked_at_once),
        T(test_same_size_and_other_contents_are_seen),
        T(test_files_just_made_are_looked_at_again_when_the_clock_is_slow),
        T(test_without_an_index_sizes_decide_what_is_looked_at),
        T(test_kinds_that_change),
        T(test_delete_removes_what_is_not_named),
        T(test_contents_with_two_sizes),
        T(test_nothing_changed),
        T(test_changes_of_every_sort),
        T(test_changes_cost_what_changed_since_the_last_time),
        T(test_what_goes_while_it_is_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
