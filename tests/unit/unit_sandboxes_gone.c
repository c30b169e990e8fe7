#include "sandboxes.h"

#include "fake_side.h"
#include "sandbox_internal.h"
#include "store_sandboxes.h"

#define GONE_EACH_BYTES 300

/* Of the sanitizer that the unit tests are built with. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(struct side *s) {
    store_rest(s->store); /* pages of the database */
    return __sanitizer_get_current_allocated_bytes != NULL
               ? __sanitizer_get_current_allocated_bytes()
               : 0;
}

/* One that was deleted. */
static struct sandbox *make_gone(struct side *s, const char *detail) {
    uint64_t jail;
    struct sandbox *sb = make(s, &jail);
    sandbox_life_end(sb, detail != NULL ? SANDBOX_END_FAILED : SANDBOX_END_DELETED, detail);
    fake_expect(&s->fake, WIRE_CLOSE);
    fake_send_closed(&s->fake, jail);
    return sb;
}

static bool is_small(struct side *s, const struct sandbox *sb, unsigned ms) {
    uint64_t before = clock_mono_ms();
    while (sb->live != NULL && clock_mono_ms() - before < ms)
        fake_turn(&s->fake);
    return sb->live == NULL;
}

static void test_one_that_is_gone_costs_little(void **state) {
    struct side *s = *state;
    const size_t count = 100;
    for (int i = 0; i < 10; i++)
        make_gone(s, NULL);
    assert_true(is_small(s, s->sandboxes.newest, 3000));
    size_t before = allocated(s);
    for (size_t i = 0; i < count; i++)
        make_gone(s, NULL);
    assert_true(is_small(s, s->sandboxes.newest, 3000));
    assert_null(s->sandboxes.large);
    size_t after = allocated(s);
    if (after > before + count * GONE_EACH_BYTES)
        fail_msg("%zu bytes for each", (after - before) / count);
    assert_int_equal(s->sandboxes.gone_count, count + 10);
}

/* What is said of one, before and after. */
struct seen {
    char text[256], id[SANDBOX_ID_SIZE], owner[SANDBOX_OWNER_SIZE];
    struct sandbox_sight sight;
    struct trace trace;
};

static struct seen look(const struct sandbox *sb) {
    struct seen seen = {.sight = sandbox_sight(sb), .trace = *sandbox_trace(sb)};
    sandbox_life_text(sb, seen.text, sizeof(seen.text));
    snprintf(seen.id, sizeof(seen.id), "%s", sandbox_id(sb));
    snprintf(seen.owner, sizeof(seen.owner), "%s", sandbox_owner(sb));
    assert_int_equal(sandbox_state(sb), SANDBOX_GONE);
    return seen;
}

static void same(const struct seen *a, const struct seen *b) {
    assert_string_equal(a->text, b->text);
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->owner, b->owner);
    assert_int_equal(a->sight.created_ms, b->sight.created_ms);
    assert_int_equal(a->sight.gone_ms, b->sight.gone_ms);
    assert_memory_equal(&a->trace, &b->trace, sizeof(a->trace));
}

static void test_the_same_is_said_of_it(void **state) {
    struct side *s = *state;
    struct waiter w = {.wait.fn = told};
    struct task a;
    struct err err = {0};
    struct sandbox *first = make_gone(s, NULL);
    struct sandbox *sb = make_gone(s, "something broke");
    struct seen before = look(sb);
    assert_non_null(strstr(before.text, "it failed: something broke."));
    assert_true(is_small(s, sb, 3000));
    struct seen after = look(sb);
    same(&before, &after);
    assert_ptr_equal(sandboxes_find(&s->sandboxes, before.id), sb);
    assert_ptr_equal(sandbox_older(sb), first);
    /* Nothing can be done with it. */
    assert_true(sandbox_wait_closed(sb, &w.wait));
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    unit_fails(start(sb, &a, true, &err), err, ERR_STATE);
    assert_null(sandbox_op_snapshot(sb, "snap_a", done, NULL, NULL));
    assert_null(sandbox_link(sb));
    assert_null(sandbox_part(sb, SANDBOX_EXECS));
    assert_int_equal(sandbox_dir(sb), -1);
    sandboxes_well(&s->sandboxes);
    fake_turn(&s->fake);
    after = look(sb);
    same(&before, &after);
    /* Nor does the next server say anything else. */
    restart(s, NULL);
    const struct sandbox *again = sandboxes_find(&s->sandboxes, before.id);
    assert_null(again->live);
    after = look(again);
    same(&before, &after);
}

struct restless {
    bool rests;
    int freed;
};

static void restless_free(void *part) {
    ((struct restless *)part)->freed++;
}

static bool restless_rests(const void *part) {
    return ((const struct restless *)part)->rests;
}

static const struct sandbox_part_ops restless_ops = {.free = restless_free,
                                                     .rests = restless_rests};

static void test_what_goes_on_keeps_it(void **state) {
    struct side *s = *state;
    uint64_t jail;
    struct restless part = {0};
    struct waiter w = {.wait.fn = told};
    struct sandbox *sb = make(s, &jail);
    sandbox_part_set(sb, SANDBOX_FILES, &restless_ops, &part);
    sandbox_hold(sb);
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    fake_expect(&s->fake, WIRE_CLOSE);
    assert_false(sandbox_wait_closed(sb, &w.wait));
    assert_false(is_small(s, sb, 300)); /* the runner is at it */
    fake_send_closed(&s->fake, jail);
    assert_int_equal(w.told, 1);
    assert_false(is_small(s, sb, 300));
    sandbox_release(sb);
    assert_false(is_small(s, sb, 300));
    assert_ptr_equal(sandbox_part(sb, SANDBOX_FILES), &part);
    assert_int_equal(part.freed, 0);
    part.rests = true;
    assert_true(is_small(s, sb, 3000));
    assert_int_equal(part.freed, 1);
}

/* It is needed as a whole until its row is as it should be. */
static void test_one_that_is_not_written_is_kept(void **state) {
    struct side *s = *state;
    struct err why = {0};
    uint64_t jail;
    char id[SANDBOX_ID_SIZE];
    struct sandbox *sb = make(s, &jail);
    memcpy(id, sandbox_id(sb), sizeof(id));
    fake_turn(&s->fake);
    sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    err_set(&why, ERR_LIMIT, ENOSPC, "there is no space left");
    s->store->doomed = true;
    s->store->why = why;
    fake_expect(&s->fake, WIRE_CLOSE);
    fake_send_closed(&s->fake, jail);
    assert_false(is_small(s, sb, 500));
    sandboxes_well(&s->sandboxes);
    assert_true(is_small(s, sb, 3000));
    restart(s, NULL);
    assert_int_equal(sandbox_state(sandboxes_find(&s->sandboxes, id)), SANDBOX_GONE);
}

/* In whatever state it is when its time is over. */
static void test_forgotten_small_and_large(void **state) {
    struct side *s = *state;
    struct restless part = {0};
    uint64_t jail;
    struct sandbox *large = make(s, &jail);
    sandbox_part_set(large, SANDBOX_FILES, &restless_ops, &part);
    sandbox_life_end(large, SANDBOX_END_DELETED, NULL);
    fake_expect(&s->fake, WIRE_CLOSE);
    fake_send_closed(&s->fake, jail);
    assert_true(is_small(s, make_gone(s, "a disk was full"), 3000));
    assert_non_null(large->live);
    s->sandboxes.gone_ms = 1;
    make_gone(s, NULL);
    loop_timer_stop(s->fake.loop, &s->sandboxes.forget);
    make_gone(s, NULL);
    uint64_t before = clock_mono_ms();
    while (s->sandboxes.oldest != NULL && clock_mono_ms() - before < 5000)
        fake_turn(&s->fake);
    assert_null(s->sandboxes.oldest);
    assert_null(s->sandboxes.large);
    assert_int_equal(part.freed, 1);
}

int main(void) {
#define WITH_SHARD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SHARD(test_one_that_is_gone_costs_little),
        WITH_SHARD(test_the_same_is_said_of_it),
        WITH_SHARD(test_what_goes_on_keeps_it),
        WITH_SHARD(test_one_that_is_not_written_is_kept),
        WITH_SHARD(test_forgotten_small_and_large),
    };
    return cmocka_run_group_tests_name("sandboxes gone", tests, NULL, NULL);
}
