/* What a session was started with, for when it is taken up again: whoever does that and leaves an
 * option out wants it as it was. What makes it stricter stays. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

#define AGENT_OPTIONS_ITERS 50u
#define AGENT_OPTIONS_WALL_MS 3600000u
#define AGENT_OPTIONS_STEP_MS 600000u

/* Numbers, with what stands for one that was not given. */
struct agent_options_number {
    const char *key;
    size_t offset;
    uint64_t none;
};

static const struct agent_options_number agent_options_numbers[] = {
    {"max_iters", offsetof(struct agent_options, max_iters), 0},
    {"wall_ms", offsetof(struct agent_options, wall_ms), 0},
    {"step_ms", offsetof(struct agent_options, step_ms), 0},
    {"context", offsetof(struct agent_options, context), 0},
    {"answer", offsetof(struct agent_options, answer), 0},
    {"budget_micro", offsetof(struct agent_options, budget_micro), UINT64_MAX},
    {"budget_tokens", offsetof(struct agent_options, budget_tokens), UINT64_MAX},
};

static const struct agent_options_text {
    const char *key;
    size_t offset;
} agent_options_texts[] = {
    {"model_url", offsetof(struct agent_options, model_url)},
    {"model", offsetof(struct agent_options, model)},
    {"protocol", offsetof(struct agent_options, protocol)},
    {"prices", offsetof(struct agent_options, prices)},
    {"policy", offsetof(struct agent_options, policy)},
    {"image", offsetof(struct agent_options, image)},
    {"receipt_key", offsetof(struct agent_options, receipt_key)},
};

static const struct agent_options_text agent_options_flags[] = {
    {"tests_first", offsetof(struct agent_options, tests_first)},
    {"verify_copy", offsetof(struct agent_options, verify_copy)},
    {"allow_tests", offsetof(struct agent_options, allow_tests)},
};

#define AGENT_OPTIONS_COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void *agent_options_at(struct agent_options *o, size_t offset) {
    return (char *)o + offset;
}

json_t *agent_options_save(struct agent *a) {
    json_t *root = json_object(), *list = json_array();
    struct agent_options *o = &a->given;
    for (size_t i = 0; i < AGENT_OPTIONS_COUNT(agent_options_numbers); i++) {
        const struct agent_options_number *n = &agent_options_numbers[i];
        uint64_t value = *(uint64_t *)agent_options_at(o, n->offset);
        if (value != n->none && value <= INT64_MAX)
            json_object_set_new(root, n->key, json_integer((json_int_t)value));
    }
    for (size_t i = 0; i < AGENT_OPTIONS_COUNT(agent_options_texts); i++) {
        const char *text = *(const char **)agent_options_at(o, agent_options_texts[i].offset);
        if (text != NULL)
            json_object_set_new(root, agent_options_texts[i].key, json_string(text));
    }
    for (size_t i = 0; i < AGENT_OPTIONS_COUNT(agent_options_flags); i++)
        json_object_set_new(
            root, agent_options_flags[i].key,
            json_boolean(*(bool *)agent_options_at(o, agent_options_flags[i].offset)));
    for (size_t i = 0; i < o->protect.count; i++)
        json_array_append_new(list, json_string(o->protect.item[i]));
    json_object_set_new(root, "protect", list);
    return root;
}

static int agent_options_protect(struct agent_options *o, const json_t *list, struct err *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *pattern = json_string_value(json_array_get(list, i));
        bool known = pattern == NULL;
        for (size_t k = 0; !known && k < o->protect.count; k++)
            known = strcmp(o->protect.item[k], pattern) == 0;
        if (known)
            continue;
        if (o->protect.count == OPT_LIST_MAX)
            return err_set(err, ERR_LIMIT, 0, "more than %d patterns are protected", OPT_LIST_MAX);
        o->protect.item[o->protect.count++] = pattern;
    }
    return 0;
}

int agent_options_load(struct agent *a, json_t *saved, struct err *err) {
    struct agent_options *o = &a->given;
    a->saved = json_incref(saved); /* its texts are borrowed from now on */
    for (size_t i = 0; i < AGENT_OPTIONS_COUNT(agent_options_numbers); i++) {
        const struct agent_options_number *n = &agent_options_numbers[i];
        uint64_t *value = agent_options_at(o, n->offset);
        const json_t *was = json_object_get(saved, n->key);
        /* One kind of budget that is given takes the place of both. */
        bool other = n->none == UINT64_MAX &&
                     (a->o.budget_micro != UINT64_MAX || a->o.budget_tokens != UINT64_MAX);
        if (*value == n->none && !other && json_is_integer(was) && json_integer_value(was) >= 0)
            *value = (uint64_t)json_integer_value(was);
    }
    for (size_t i = 0; i < AGENT_OPTIONS_COUNT(agent_options_texts); i++) {
        const char **text = agent_options_at(o, agent_options_texts[i].offset);
        if (*text == NULL)
            *text = json_string_value(json_object_get(saved, agent_options_texts[i].key));
    }
    for (size_t i = 0; i < AGENT_OPTIONS_COUNT(agent_options_flags); i++) {
        bool *flag = agent_options_at(o, agent_options_flags[i].offset);
        *flag = *flag || json_is_true(json_object_get(saved, agent_options_flags[i].key));
    }
    return agent_options_protect(o, json_object_get(saved, "protect"), err);
}

int agent_options_settle(struct agent *a, struct err *err) {
    const char *task = a->o.task, *verify = a->o.verify;
    a->o = a->given;
    a->o.task = task;
    a->o.verify = verify;
    a->o.max_iters = a->o.max_iters != 0 ? a->o.max_iters : AGENT_OPTIONS_ITERS;
    a->o.wall_ms = a->o.wall_ms != 0 ? a->o.wall_ms : AGENT_OPTIONS_WALL_MS;
    a->o.step_ms = a->o.step_ms != 0 ? a->o.step_ms : AGENT_OPTIONS_STEP_MS;
    a->project.options.policy = a->o.policy;
    a->project.options.image = a->o.image;
    if (a->o.model_url == NULL || a->o.model == NULL)
        return err_set(err, ERR_INVALID, 0, "which model? Give --model-url and --model");
    return 0;
}
