#include "agent_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent_stuck.h"
#include "agent_text.h"
#include "unit.h"

static void turn(struct agent_context *c, const char *call, const char *result) {
    struct err err;
    struct model_message m = {.role = MODEL_ASSISTANT};
    m.calls = calloc(1, sizeof(*m.calls));
    m.call_count = 1;
    m.calls[0] =
        (struct model_call){.id = strdup(call), .name = strdup("read"), .arguments = strdup("{}")};
    unit_works(agent_context_add(c, &m, &err), err);
    unit_works(agent_context_add_result(c, call, result, false, &err), err);
}

static void fill(struct agent_context *c, uint64_t budget, int turns, size_t bytes) {
    struct err err;
    char *long_one = malloc(bytes + 1);
    memset(long_one, 'x', bytes);
    long_one[bytes] = '\0';
    agent_context_init(c, budget);
    unit_works(agent_context_set_head(c, "system", "the task", &err), err);
    for (int i = 0; i < turns; i++) {
        char id[16];
        snprintf(id, sizeof(id), "c%d", i);
        turn(c, id, long_one);
    }
    free(long_one);
}

/* Every result follows the message whose call it answers. */
static void whole(const struct agent_context *c) {
    const struct model_message *last = NULL;
    for (size_t i = 0; i < c->count; i++) {
        const struct model_message *m = &c->messages[i];
        if (m->role == MODEL_ASSISTANT)
            last = m;
        if (m->role == MODEL_TOOL) {
            assert_non_null(last);
            assert_string_equal(last->calls[0].id, m->call_id);
        }
    }
    assert_int_equal(c->messages[0].role, MODEL_SYSTEM);
    assert_int_equal(c->messages[1].role, MODEL_USER);
}

static void test_compaction_takes_a_third_at_least(void **state) {
    struct agent_context c;
    struct err err;
    (void)state;
    fill(&c, 20000, 20, 4000);
    uint64_t before = agent_context_tokens(&c);
    assert_true(agent_context_is_near(&c));
    unit_works(agent_context_compact(&c, "NOTE", &err), err);
    assert_true(agent_context_tokens(&c) * 3 <= before * 2);
    assert_true(agent_context_tokens(&c) <= c.budget / 2);
    assert_non_null(strstr(c.messages[1].text, "NOTE"));
    assert_non_null(strstr(c.messages[1].text, "the task"));
    whole(&c);
    /* The last turn is there in full. */
    assert_int_equal(strlen(c.messages[c.count - 1].text), 4000);
    agent_context_done(&c);
}

static void test_a_compaction_that_gains_nothing_fails(void **state) {
    struct agent_context c;
    struct err err;
    (void)state;
    fill(&c, 2000, 1, 9000); /* one turn that is too long by itself */
    unit_fails(agent_context_compact(&c, "NOTE", &err), err, ERR_LIMIT);
    agent_context_done(&c);
    fill(&c, 2000, 0, 10);
    unit_fails(agent_context_compact(&c, "NOTE", &err), err, ERR_LIMIT);
    agent_context_done(&c);
}

static void test_the_head_is_made_anew(void **state) {
    struct agent_context c;
    struct err err;
    (void)state;
    fill(&c, 2000, 2, 10);
    unit_works(agent_context_set_head(&c, "other", "another task", &err), err);
    assert_string_equal(c.messages[1].text, "another task");
    assert_int_equal(c.count, 6);
    agent_context_done(&c);
}

static void test_a_session_comes_back(void **state) {
    struct agent_context c, again;
    struct err err;
    (void)state;
    fill(&c, 2000, 3, 50);
    c.messages[2].opaque = json_pack("[{s:s}]", "type", "thinking");
    json_t *saved = agent_context_save(&c);
    agent_context_init(&again, 2000);
    unit_works(agent_context_load(&again, saved, &err), err);
    json_t *twice = agent_context_save(&again);
    assert_true(json_equal(saved, twice));
    json_decref(saved);
    json_decref(twice);
    agent_context_done(&c);
    agent_context_done(&again);
    json_t *bad = json_pack("[{s:i}]", "role", 9);
    agent_context_init(&again, 1);
    unit_fails(agent_context_load(&again, bad, &err), err, ERR_INVALID);
    json_decref(bad);
    agent_context_done(&again);
}

static void test_texts_are_bounded_in_the_middle(void **state) {
    struct buf out;
    struct err err;
    char text[5001];
    (void)state;
    for (size_t i = 0; i < 5000; i++)
        text[i] = i % 50 == 49 ? '\n' : 'a';
    text[5000] = '\0';
    buf_init(&out, 100000);
    unit_works(agent_text_bound(&out, text, 5000, 1000, "read out:1 shows them", &err), err);
    assert_true(out.len < 1200);
    assert_non_null(strstr(out.data, "lines; read out:1 shows them]\n"));
    buf_clear(&out);
    unit_works(agent_text_bound(&out, "a\xff\x01z", 4, 10, NULL, &err), err);
    assert_string_equal(out.data, "a??z");
    buf_done(&out);
}

static void test_stuck(void **state) {
    struct agent_stuck s = {0};
    (void)state;
    assert_false(agent_stuck_action(&s, "run", "{}", "no"));
    assert_false(agent_stuck_action(&s, "run", "{}", "no"));
    assert_false(agent_stuck_action(&s, "run", "{}", "yes")); /* something else came of it */
    assert_false(agent_stuck_action(&s, "run", "{}", "no"));
    assert_false(agent_stuck_action(&s, "run", "{}", "no"));
    assert_true(agent_stuck_action(&s, "run", "{}", "no"));
    assert_false(agent_stuck_failing(&s, "a\nb\n"));
    assert_false(agent_stuck_failing(&s, "a\nb\n"));
    assert_false(agent_stuck_failing(&s, "a\n"));
    assert_false(agent_stuck_failing(&s, "a\n"));
    assert_true(agent_stuck_failing(&s, "a\n"));
    assert_false(agent_stuck_failing(&s, ""));
}

static void test_calls_without_a_result_get_one(void **state) {
    (void)state;
    struct agent_context c;
    struct err err;
    fill(&c, 100000, 1, 10);
    unit_works(agent_context_complete(&c, "lost", &err), err);
    assert_int_equal(c.count, 4); /* nothing was missing */
    struct model_message m = {.role = MODEL_ASSISTANT, .call_count = 3};
    m.calls = calloc(3, sizeof(*m.calls));
    for (int i = 0; i < 3; i++)
        m.calls[i] = (struct model_call){.id = strdup(i == 0   ? "a"
                                                      : i == 1 ? "b"
                                                               : "c"),
                                         .name = strdup("read"),
                                         .arguments = strdup("{}")};
    unit_works(agent_context_add(&c, &m, &err), err);
    unit_works(agent_context_add_result(&c, "a", "done", false, &err), err);
    unit_works(agent_context_complete(&c, "lost", &err), err);
    assert_int_equal(c.count, 8);
    assert_string_equal(c.messages[5].text, "done");
    assert_string_equal(c.messages[6].call_id, "b");
    assert_string_equal(c.messages[7].call_id, "c");
    assert_string_equal(c.messages[7].text, "lost");
    agent_context_done(&c);
}

static void plain(const char *text, const char *want) {
    struct buf out;
    struct err err;
    buf_init(&out, 1000);
    unit_works(agent_text_plain(&out, text, strlen(text), &err), err);
    assert_string_equal(out.data != NULL ? out.data : "", want);
    buf_done(&out);
}

static void test_plain_is_what_a_terminal_shows_at_the_end(void **state) {
    (void)state;
    plain("10%\r20%\r100%\nnext\n", "100%\nnext\n");
    plain("dos\r\nlines\r\n", "dos\nlines\n");
    plain("stays\r", "stays");
    plain("\x1b[1;31mred\x1b[0m \x1b[2Kx\n", "red x\n");
    plain("\x1b]8;;http://x\x1b\\link\x1b]8;;\a!\n", "link!\n");
    plain("\x1b(Bplain\x1b", "plain");
    plain("a\xc3\xa4\b\bb\b\b\b\n", "\n");
    plain("bell\a\n\bno\n", "bell\nno\n");
    plain("\x1b]unfinished\nkept\n", "\nkept\n");
}

static void test_binary_is_told_from_text(void **state) {
    (void)state;
    assert_true(agent_text_is_binary("a\0b", 3));
    assert_true(agent_text_is_binary("\xff\xfe\xfd and", 7));
    assert_false(agent_text_is_binary("one \xff in much more text", 23));
    assert_false(agent_text_is_binary("\xc3\xa4\xc3\xb6", 4));
    assert_false(agent_text_is_binary("", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compaction_takes_a_third_at_least),
        cmocka_unit_test(test_a_compaction_that_gains_nothing_fails),
        cmocka_unit_test(test_the_head_is_made_anew),
        cmocka_unit_test(test_a_session_comes_back),
        cmocka_unit_test(test_texts_are_bounded_in_the_middle),
        cmocka_unit_test(test_plain_is_what_a_terminal_shows_at_the_end),
        cmocka_unit_test(test_binary_is_told_from_text),
        cmocka_unit_test(test_calls_without_a_result_get_one),
        cmocka_unit_test(test_stuck),
    };
    return cmocka_run_group_tests_name("agent_context", tests, NULL, NULL);
}
