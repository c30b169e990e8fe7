/* The tree made of the last one and the upper layer of an overlay. */
#include "sync_upper.h"

#include "sync_trees.h"

/* The index after a sync of this tree. */
static void index_of(struct sync_index *x, const char *text) {
    struct sync_index none;
    struct sync_tree t;
    struct sync_plan p;
    struct err e;
    sync_index_init(x);
    sync_index_init(&none);
    sync_trees_read(&t, text);
    unit_works(sync_plan_join(&p, &none, &t, NULL, &e), e);
    sync_plan_changes(&p); /* all of it is new */
    for (size_t i = 0; i < p.count; i++) {
        struct sync_node *n = &p.nodes[i];
        unsigned char sha256[32];
        if (n->todo != SYNC_HASH)
            continue;
        sync_trees_contents(text, n->seen->path, sha256);
        sync_plan_hashed(&p, n, sha256, &n->stamp);
    }
    unit_works(sync_plan_applied(&p, INT64_MAX, x, &e), e);
    sync_plan_done(&p);
    sync_tree_done(&t);
}

static const char base[] =
    "d 755 a\nf 644 a/x abc 1\nf 644 a/y de 2\nd 755 b\nf 644 b/z f 3\nf 644 q g 4";

/* What changes then tells, as "C path\n…", or NULL when a scan is needed. */
static char *changes_of(const char *upper_text, const char *loose, bool tight) {
    struct sync_index x;
    struct sync_tree upper, tree;
    struct sync_plan p;
    struct err e;
    char *out = NULL;
    index_of(&x, base);
    for (size_t i = 0; i < x.count; i++)
        x.rows[i].loose = strcmp(x.rows[i].path, loose) == 0;
    sync_trees_read(&upper, upper_text);
    sync_tree_init(&tree);
    err_clear(&e);
    int rc = sync_upper_tree(&x, tight, &upper, &tree, &e);
    assert_true(rc >= 0);
    if (rc == 0) {
        out = calloc(1, 4096);
        assert_non_null(out);
        unit_works(sync_tree_finish(&tree, &e), e);
        unit_works(sync_plan_join(&p, &x, &tree, NULL, &e), e);
        sync_plan_changes(&p);
        for (size_t i = 0; i < p.count; i++) {
            struct sync_node *n = &p.nodes[i];
            unsigned char sha256[32];
            if (n->todo != SYNC_HASH)
                continue;
            sync_trees_contents(upper_text, n->seen->path, sha256);
            sync_plan_hashed(&p, n, sha256, &n->stamp);
        }
        sync_plan_settle_changes(&p);
        for (size_t i = 0; i < p.count; i++) {
            size_t len, at = strlen(out);
            if (p.nodes[i].change != SYNC_NO_CHANGE)
                snprintf(out + at, 4096 - at, "%c %s\n", " CMD"[p.nodes[i].change],
                         sync_node_path(&p.nodes[i], &len));
        }
        sync_plan_done(&p);
    }
    sync_tree_done(&tree);
    sync_tree_done(&upper);
    sync_index_done(&x);
    return out;
}

static char *changes(const char *upper_text) {
    return changes_of(upper_text, "", false);
}

static void tells(const char *upper, const char *expected) {
    char *got = changes(upper);
    if (got == NULL || strcmp(got, expected) != 0)
        fail_msg("of\n%s\ngot\n%s\nwanted\n%s", upper, got != NULL ? got : "(scan)", expected);
    free(got);
}

static void test_table(void **state) {
    (void)state;
    tells("", "");
    tells("d 755 a\nf 644 a/x xyz 9", "M a/x\n");
    tells("d 755 a\nf 644 a/x abc 9", "");        /* written as it was */
    tells("d 755 a\nf 600 a/x abc 9", "M a/x\n"); /* its mode */
    tells("d 700 a", "M a\n");
    tells("d 755 a\nw a/x", "D a/x\n");
    tells("w b", "D b\nD b/z\n");
    tells("w q\nf 644 r g 9", "D q\nC r\n"); /* renamed */
    tells("f 644 b new 9", "M b\nD b/z\n");  /* a file in place of a directory */
    tells("l b a", "M b\nD b/z\n");
    tells("o 755 n\nf 644 n/x n 9\no 755 n/s\nf 644 n/s/y y 9", "C n\nC n/s\nC n/s/y\nC n/x\n");
    tells("o 755 q\nf 644 q/x n 9", "M q\nC q/x\n");
}

static void test_what_the_layer_does_not_tell(void **state) {
    (void)state;
    /* Moved there, perhaps, with all that is in it. */
    assert_null(changes("d 755 n\nf 644 n/x n 9"));
    assert_null(changes("o 755 n\nd 755 n/s"));
    assert_null(changes("d 755 q"));
    assert_null(changes("d 755 b 77")); /* another directory took its place */
    /* It would take base files with it, by a count that may have been wrong. */
    assert_null(changes("o 755 b"));
    assert_null(changes("o 755 a\nf 644 a/1 n 9\nf 644 a/x abc 9"));
}

static void test_what_was_never_in_another_layer_leaves_no_trace(void **state) {
    (void)state;
    char *got = changes_of("f 644 q g 9", "q", false);
    assert_string_equal(got, "");
    free(got);
    assert_null(changes_of("", "q", false)); /* it may be gone */
    got = changes_of("", "q", true);
    assert_string_equal(got, "");
    free(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_what_the_layer_does_not_tell),
        cmocka_unit_test(test_what_was_never_in_another_layer_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
