#include "agent_context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent_text.h"

#define AGENT_CONTEXT_HEAD 2u   /* system, task */
#define AGENT_CONTEXT_RECENT 6u /* messages at the end that stay whole at first */
#define AGENT_CONTEXT_STUB 300u /* bytes that stay of an old result */
#define AGENT_CONTEXT_PER_MESSAGE 8u

void agent_context_init(struct agent_context *c, uint64_t budget) {
    *c = (struct agent_context){.budget = budget};
}

void agent_context_done(struct agent_context *c) {
    for (size_t i = 0; i < c->count; i++)
        model_message_done(&c->messages[i]);
    free(c->messages);
    memset(c, 0, sizeof(*c));
}

int agent_context_add(struct agent_context *c, struct model_message *message, struct err *err) {
    int rc = 0;
    if (c->count == AGENT_CONTEXT_MESSAGES_MAX)
        rc = err_set(err, ERR_LIMIT, 0, "the conversation has more than %u messages",
                     AGENT_CONTEXT_MESSAGES_MAX);
    if (rc == 0 && c->count == c->alloc) {
        size_t alloc = c->alloc == 0 ? 32 : c->alloc * 2;
        struct model_message *grown = reallocarray(c->messages, alloc, sizeof(*grown));
        if (grown == NULL) {
            rc = err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
        } else {
            c->messages = grown;
            c->alloc = alloc;
        }
    }
    if (rc < 0) {
        model_message_done(message);
        return -1;
    }
    c->messages[c->count++] = *message;
    memset(message, 0, sizeof(*message));
    return 0;
}

int agent_context_add_text(struct agent_context *c, enum model_role role, const char *text,
                           struct err *err) {
    struct model_message m = {.role = role, .text = strdup(text)};
    if (m.text == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    return agent_context_add(c, &m, err);
}

int agent_context_add_result(struct agent_context *c, const char *call_id, const char *text,
                             bool failed, struct err *err) {
    struct model_message m = {
        .role = MODEL_TOOL, .text = strdup(text), .call_id = strdup(call_id), .failed = failed};
    if (m.text == NULL || m.call_id == NULL) {
        model_message_done(&m);
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    }
    return agent_context_add(c, &m, err);
}

int agent_context_set_head(struct agent_context *c, const char *system, const char *task,
                           struct err *err) {
    const char *const texts[] = {system, task};
    for (size_t i = 0; i < AGENT_CONTEXT_HEAD; i++) {
        if (c->count <= i) {
            if (agent_context_add_text(c, i == 0 ? MODEL_SYSTEM : MODEL_USER, texts[i], err) < 0)
                return -1;
            continue;
        }
        char *copy = strdup(texts[i]);
        if (copy == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
        free(c->messages[i].text);
        c->messages[i].text = copy;
    }
    return 0;
}

static uint64_t agent_context_of(const struct model_message *m) {
    uint64_t n = agent_text_tokens(m->text) + AGENT_CONTEXT_PER_MESSAGE;
    for (size_t i = 0; i < m->call_count; i++)
        n += agent_text_tokens(m->calls[i].name) + agent_text_tokens(m->calls[i].arguments);
    if (m->opaque != NULL) {
        char *text = json_dumps(m->opaque, JSON_COMPACT);
        n += agent_text_tokens(text);
        free(text);
    }
    return n;
}

uint64_t agent_context_tokens(const struct agent_context *c) {
    uint64_t n = 0;
    for (size_t i = 0; i < c->count; i++)
        n += agent_context_of(&c->messages[i]);
    return n;
}

bool agent_context_is_near(const struct agent_context *c) {
    return agent_context_tokens(c) * 5 > c->budget * 4;
}

/* Old results to their beginnings. */
static void agent_context_stub(struct agent_context *c) {
    for (size_t i = AGENT_CONTEXT_HEAD; i + AGENT_CONTEXT_RECENT < c->count; i++) {
        struct model_message *m = &c->messages[i];
        char *shorter;
        size_t n = AGENT_CONTEXT_STUB;
        if (m->role != MODEL_TOOL || m->text == NULL || strlen(m->text) <= AGENT_CONTEXT_STUB + 80)
            continue;
        while (n > 0 && ((unsigned char)m->text[n] & 0xc0) == 0x80)
            n--;
        if (asprintf(&shorter, "%.*s\n[the rest of this old result was removed]", (int)n, m->text) <
            0)
            continue;
        free(m->text);
        m->text = shorter;
    }
}

/* Where the turn that begins at `from` ends: behind the results of its calls. */
static size_t agent_context_turn(const struct agent_context *c, size_t from) {
    size_t at = from + 1;
    while (at < c->count && c->messages[at].role == MODEL_TOOL)
        at++;
    return at;
}

/* Removes turns from the front of the conversation until `goal` is met; the last turn stays. */
static void agent_context_drop(struct agent_context *c, uint64_t goal) {
    size_t end = AGENT_CONTEXT_HEAD;
    uint64_t total = agent_context_tokens(c);
    while (total > goal) {
        size_t next = agent_context_turn(c, end);
        if (next >= c->count)
            break;
        for (size_t i = end; i < next; i++)
            total -= agent_context_of(&c->messages[i]);
        end = next;
    }
    if (end == AGENT_CONTEXT_HEAD)
        return;
    for (size_t i = AGENT_CONTEXT_HEAD; i < end; i++)
        model_message_done(&c->messages[i]);
    memmove(c->messages + AGENT_CONTEXT_HEAD, c->messages + end,
            (c->count - end) * sizeof(*c->messages));
    c->count -= end - AGENT_CONTEXT_HEAD;
}

/* The note is a part of the task's message: so there are never two messages of a user in a row. */
static int agent_context_note(struct agent_context *c, const char *note, struct err *err) {
    char *text;
    if (asprintf(&text, "%s\n\n%s", c->messages[1].text, note) < 0)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    free(c->messages[1].text);
    c->messages[1].text = text;
    return 0;
}

int agent_context_compact(struct agent_context *c, const char *note, struct err *err) {
    uint64_t before = agent_context_tokens(c), noted = agent_text_tokens(note);
    uint64_t goal = before * 2 / 3 < c->budget / 2 ? before * 2 / 3 : c->budget / 2;
    if (c->count <= AGENT_CONTEXT_HEAD)
        return err_set(err, ERR_LIMIT, 0, "the task alone does not fit into the model's context");
    goal = goal > noted ? goal - noted : 0;
    agent_context_stub(c);
    if (agent_context_tokens(c) > goal)
        agent_context_drop(c, goal);
    if (agent_context_note(c, note, err) < 0)
        return -1;
    uint64_t after = agent_context_tokens(c);
    if (after > before * 2 / 3 || after > c->budget)
        return err_set(err, ERR_LIMIT, 0,
                       "the conversation cannot be made short enough (%llu of %llu tokens stay)",
                       (unsigned long long)after, (unsigned long long)before);
    c->compactions++;
    return 0;
}

/* Sessions. */

static json_t *agent_context_calls(const struct model_message *m) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->call_count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s}", "id", m->calls[i].id, "name",
                                        m->calls[i].name, "arguments", m->calls[i].arguments));
    return list;
}

json_t *agent_context_save(const struct agent_context *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->count; i++) {
        const struct model_message *m = &c->messages[i];
        json_t *one =
            json_pack("{s:i, s:s?, s:s?, s:b, s:o}", "role", (int)m->role, "text", m->text, "call",
                      m->call_id, "failed", (int)m->failed, "calls", agent_context_calls(m));
        if (m->opaque != NULL)
            json_object_set(one, "opaque", m->opaque);
        json_array_append_new(list, one);
    }
    return list;
}

static char *agent_context_string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? strdup(text) : NULL;
}

static int agent_context_load_one(const json_t *one, struct model_message *m) {
    const json_t *role = json_object_get(one, "role"), *calls = json_object_get(one, "calls");
    size_t i, n = json_array_size(calls);
    json_t *call;
    memset(m, 0, sizeof(*m));
    if (!json_is_integer(role) || json_integer_value(role) < MODEL_SYSTEM ||
        json_integer_value(role) > MODEL_TOOL)
        return -1;
    m->role = (enum model_role)json_integer_value(role);
    m->text = agent_context_string(one, "text");
    m->call_id = agent_context_string(one, "call");
    m->failed = json_is_true(json_object_get(one, "failed"));
    m->opaque = json_incref(json_object_get(one, "opaque"));
    m->calls = n > 0 ? calloc(n, sizeof(*m->calls)) : NULL;
    if (n > 0 && m->calls == NULL)
        return -1;
    json_array_foreach((json_t *)(uintptr_t)calls, i, call) {
        struct model_call *to = &m->calls[m->call_count++];
        to->id = agent_context_string(call, "id");
        to->name = agent_context_string(call, "name");
        to->arguments = agent_context_string(call, "arguments");
        if (to->id == NULL || to->name == NULL || to->arguments == NULL)
            return -1;
    }
    return 0;
}

int agent_context_load(struct agent_context *c, const json_t *saved, struct err *err) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)saved, i, one) {
        struct model_message m;
        if (agent_context_load_one(one, &m) < 0) {
            model_message_done(&m);
            return err_set(err, ERR_INVALID, 0, "message %zu of the session is not understood", i);
        }
        if (agent_context_add(c, &m, err) < 0)
            return -1;
    }
    return 0;
}

int agent_context_complete(struct agent_context *c, const char *text, struct err *err) {
    size_t at = c->count;
    while (at > 0 && c->messages[at - 1].role == MODEL_TOOL)
        at--;
    if (at == 0 || c->messages[at - 1].role != MODEL_ASSISTANT)
        return 0;
    for (size_t i = c->count - at; i < c->messages[at - 1].call_count; i++)
        if (agent_context_add_result(c, c->messages[at - 1].calls[i].id, text, true, err) < 0)
            return -1;
    return 0;
}
