/* Carrying out a plan: the records that are sent, and what is remembered of the answers. */
#include "sync_apply.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <unistd.h>

#include "fake_fileop.h"
#include "sync_trees.h"

struct scene {
    char path[64];
    struct loop *loop;
    struct blobs *blobs;
    struct sync_index index;
    struct sync_tree tree;
    struct sync_request want;
    struct sync_plan plan;
    bool done;
    enum fileop_code code;
};

static void scene_done(void *arg, const struct fileop_result *result) {
    struct scene *s = arg;
    s->done = true;
    s->code = result->code;
}

static int open_scene(void **state) {
    const struct blobs_options usual = {.user_bytes = 1 << 30, .age_ms = 3600 * 1000};
    struct scene *s = calloc(1, sizeof(*s));
    struct err e;
    assert_non_null(s);
    snprintf(s->path, sizeof(s->path), "/tmp/unit-sync-apply-XXXXXX");
    assert_non_null(mkdtemp(s->path));
    s->loop = loop_new(&e);
    assert_non_null(s->loop);
    int dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s->blobs = blobs_open(dir, &usual, &e);
    assert_non_null(s->blobs);
    close(dir);
    *state = s;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int close_scene(void **state) {
    struct scene *s = *state;
    sync_plan_done(&s->plan);
    sync_tree_done(&s->tree);
    sync_request_done(&s->want);
    sync_index_done(&s->index);
    blobs_close(s->blobs);
    loop_free(s->loop);
    nftw(s->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(s);
    return 0;
}

static void put(struct scene *s, const char *text) {
    struct err e;
    struct blobs_put *p = blobs_put_start(s->blobs, "ann", strlen(text), &e);
    assert_non_null(p);
    unit_works(blobs_put_write(p, text, strlen(text), &e), e);
    unit_works(blobs_put_finish(p, NULL, NULL, NULL, &e), e);
}

static void begin(struct scene *s, const char *tree, const char *want, unsigned room) {
    struct err e;
    sync_index_init(&s->index);
    sync_trees_read(&s->tree, tree);
    sync_trees_want(&s->want, want);
    unit_works(sync_plan_join(&s->plan, &s->index, &s->tree, &s->want, &e), e);
    sync_plan_sync(&s->plan, true);
    sync_plan_settle_sync(&s->plan);
    struct sync_apply_task task = {.loop = s->loop,
                                   .root = "/workspace",
                                   .plan = &s->plan,
                                   .blobs = s->blobs,
                                   .user = "ann",
                                   .done = scene_done,
                                   .arg = s};
    fake_run.room = room;
    assert_non_null(sync_apply_start(&task, &e));
}

static void start(struct scene *s, const char *tree, const char *want) {
    begin(s, tree, want, 1);
    fake_write(1);
}

static void test_records(void **state) {
    struct scene *s = *state;
    put(s, "abc");
    put(s, "hello");
    start(s, "d 755 gone\nf 644 gone/x x 1\nf 644 old o 2\np pipe\nd 755 d 7",
          "d 700 d\nf 600 d/f abc\nf 644 e -\nl l d/f\nd 755 n\nf 755 n/h hello");
    assert_string_equal(fake_run.sent.data, "apply /workspace\n"
                                            "entry directory 700 d\n"
                                            "entry file 600 with d/f\ndata abc\ndata\n"
                                            "entry file 644 with e\ndata\n"
                                            "remove gone\n"
                                            "entry symlink 777 l -> d/f\n"
                                            "entry directory 755 n\n"
                                            "entry file 755 with n/h\ndata hello\ndata\n"
                                            "remove old\n"
                                            "remove pipe\n");
    assert_true(fake_run.finished);
    fake_item(FILEOP_ENTRY, "d", "", (struct fileop_record){.kind = FILEOP_DIRECTORY, .inode = 7});
    fake_entry("d/f", 3, 11);
    fake_entry("e", 0, 12);
    fake_item(FILEOP_ENTRY, "l", "", (struct fileop_record){.kind = FILEOP_SYMLINK});
    fake_item(FILEOP_ENTRY, "n", "", (struct fileop_record){.kind = FILEOP_DIRECTORY, .inode = 8});
    fake_entry("n/h", 4, 13); /* not what was sent: not remembered */
    fake_done(FILEOP_OK);
    assert_true(s->done && s->code == FILEOP_OK);
    for (size_t i = 0; i < s->plan.count; i++) {
        const struct sync_node *n = &s->plan.nodes[i];
        size_t len;
        const char *path = sync_node_path(n, &len);
        if (strcmp(path, "d/f") == 0)
            assert_true(n->stamped && n->stamp.inode == 11);
        if (strcmp(path, "n") == 0)
            assert_true(n->stamped && n->stamp.inode == 8);
        if (strcmp(path, "n/h") == 0)
            assert_false(n->stamped);
    }
}

static void test_only_a_mode(void **state) {
    struct scene *s = *state;
    start(s, "f 644 e - 1", "f 755 e -");
    assert_string_equal(fake_run.sent.data, "apply /workspace\nentry file 755 e\n");
    fake_done(FILEOP_OK);
}

static void test_contents_that_are_not_there_apply_nothing(void **state) {
    struct scene *s = *state;
    put(s, "abc");
    start(s, "", "f 644 a abc\nf 644 b missing\nf 644 c abc");
    assert_true(fake_run.cancelled);
    assert_false(fake_run.finished);
    fake_done(FILEOP_IO);
    assert_int_equal(s->code, FILEOP_CHANGED);
}

static void test_answers_to_nothing(void **state) {
    struct scene *s = *state;
    start(s, "", "f 644 e -");
    assert_int_equal(fake_entry("other", 0, 1), 0);
    assert_int_equal(fake_entry("e", 0, 1), 0);
    assert_int_equal(fake_entry("e", 0, 1), 0);
    assert_int_equal(fake_error("e", FILEOP_NO_SPACE), 0);
    fake_done(FILEOP_NO_SPACE);
    assert_int_equal(s->code, FILEOP_NO_SPACE);
    assert_false(s->plan.nodes[0].stamped);
}

static unsigned records_sent(void) {
    unsigned n = 0;
    for (size_t i = 0; i < fake_run.sent.len; i++)
        n += fake_run.sent.data[i] == '\n';
    return n - 1; /* the first line is the command */
}

/* As many directories, for a reader who takes all that comes. */
static void begin_directories(struct scene *s, unsigned count) {
    char want[8192];
    size_t len = 0;
    for (unsigned i = 0; i < count; i++)
        len +=
            (size_t)snprintf(want + len, sizeof(want) - len, "%sd 755 d%03u", i > 0 ? "\n" : "", i);
    begin(s, "", want, UINT_MAX);
}

static void test_others_have_their_turn_beside_a_fast_reader(void **state) {
    struct scene *s = *state;
    struct err e;
    begin_directories(s, 300);
    assert_int_equal(records_sent(), 64);
    for (unsigned turns = 2; !fake_run.finished; turns++) {
        assert_int_equal(loop_once(s->loop, 0, &e), 0);
        assert_int_equal(records_sent(), turns * 64 < 300 ? turns * 64 : 300);
    }
    assert_int_equal(records_sent(), 300);
    assert_int_equal(loop_once(s->loop, 0, &e), 0);
    fake_done(FILEOP_OK);
    assert_true(s->done);
}

static void test_an_end_between_two_turns_is_the_end(void **state) {
    struct scene *s = *state;
    struct err e;
    begin_directories(s, 100);
    assert_false(fake_run.finished);
    fake_done(FILEOP_IO);
    assert_true(s->done);
    assert_int_equal(loop_once(s->loop, 0, &e), 0);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, open_scene, close_scene)
    const struct CMUnitTest tests[] = {
        T(test_records),
        T(test_only_a_mode),
        T(test_contents_that_are_not_there_apply_nothing),
        T(test_answers_to_nothing),
        T(test_others_have_their_turn_beside_a_fast_reader),
        T(test_an_end_between_two_turns_is_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
