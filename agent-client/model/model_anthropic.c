/* POST URL/v1/messages, streamed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"

#define MODEL_ANTHROPIC_TOKENS 4096u

/* The request. */

static json_t *model_anthropic_text(const char *text) {
    return json_pack("{s:s, s:s}", "type", "text", "text", text);
}

static json_t *model_anthropic_assistant(const struct model_message *m) {
    json_t *blocks = json_array();
    /* Signed thinking comes first, unchanged. */
    if (m->opaque != NULL)
        json_array_extend(blocks, m->opaque);
    if (m->text != NULL && m->text[0] != '\0')
        json_array_append_new(blocks, model_anthropic_text(m->text));
    for (size_t i = 0; i < m->call_count; i++) {
        json_t *input = json_loads(m->calls[i].arguments, 0, NULL);
        json_array_append_new(blocks, json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id",
                                                m->calls[i].id, "name", m->calls[i].name, "input",
                                                input != NULL ? input : json_object()));
    }
    return blocks;
}

static json_t *model_anthropic_result(const struct model_message *m) {
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "tool_result", "tool_use_id",
                     m->call_id != NULL ? m->call_id : "", "content",
                     m->text != NULL ? m->text : "", "is_error", (int)m->failed);
}

static void model_anthropic_add(json_t *messages, const char *role, json_t *blocks) {
    if (json_array_size(blocks) > 0)
        json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", blocks));
    else
        json_decref(blocks);
}

/* All results of one turn are one message of the user, with what he says behind them. */
static size_t model_anthropic_user(const struct model_request *r, size_t i, json_t *messages) {
    json_t *blocks = json_array();
    for (; i < r->message_count && r->messages[i].role == MODEL_TOOL; i++)
        json_array_append_new(blocks, model_anthropic_result(&r->messages[i]));
    for (; i < r->message_count && r->messages[i].role == MODEL_USER; i++)
        if (r->messages[i].text != NULL && r->messages[i].text[0] != '\0')
            json_array_append_new(blocks, model_anthropic_text(r->messages[i].text));
    model_anthropic_add(messages, "user", blocks);
    return i;
}

static json_t *model_anthropic_body(const struct model *m, const struct model_request *r) {
    json_t *messages = json_array(), *system = json_array(), *tools = json_array();
    for (size_t i = 0; i < r->message_count;) {
        const struct model_message *one = &r->messages[i];
        if (one->role == MODEL_SYSTEM) {
            json_array_append_new(system, model_anthropic_text(one->text != NULL ? one->text : ""));
            i++;
        } else if (one->role == MODEL_ASSISTANT) {
            model_anthropic_add(messages, "assistant", model_anthropic_assistant(one));
            i++;
        } else {
            i = model_anthropic_user(r, i, messages);
        }
    }
    for (size_t i = 0; i < r->tool_count; i++)
        json_array_append_new(tools, json_pack("{s:s, s:s, s:O}", "name", r->tools[i].name,
                                               "description", r->tools[i].description,
                                               "input_schema", r->tools[i].parameters));
    json_t *body = json_pack(
        "{s:s, s:o, s:b, s:I}", "model", m->name, "messages", messages, "stream", 1, "max_tokens",
        (json_int_t)(r->answer_tokens > 0 ? r->answer_tokens : MODEL_ANTHROPIC_TOKENS));
    if (json_array_size(system) > 0)
        json_object_set(body, "system", system);
    if (r->tool_count > 0)
        json_object_set(body, "tools", tools);
    json_decref(system);
    json_decref(tools);
    return body;
}

static int model_anthropic_headers(const struct model *m, struct curl_slist **list) {
    char line[MODEL_KEY_MAX + 32];
    struct curl_slist *longer = curl_slist_append(*list, "anthropic-version: 2023-06-01");
    if (longer == NULL)
        return -1;
    *list = longer;
    if (m->key[0] == '\0')
        return 0;
    snprintf(line, sizeof(line), "x-api-key: %s", m->key);
    longer = curl_slist_append(*list, line);
    explicit_bzero(line, sizeof(line));
    if (longer == NULL)
        return -1;
    *list = longer;
    return 0;
}

/* The answer. */

/* input_tokens is without the cache here. A later event repeats only what has changed. */
static void model_anthropic_usage(struct model_answer *a, const json_t *usage) {
    struct model_usage *u = &a->usage;
    if (!json_is_object(usage))
        return;
    u->known = true;
    if (json_object_get(usage, "input_tokens") != NULL)
        u->input = model_error_u64(usage, "input_tokens");
    if (json_object_get(usage, "cache_read_input_tokens") != NULL)
        u->cache_read = model_error_u64(usage, "cache_read_input_tokens");
    if (json_object_get(usage, "cache_creation_input_tokens") != NULL)
        u->cache_write = model_error_u64(usage, "cache_creation_input_tokens");
    if (json_object_get(usage, "output_tokens") != NULL)
        u->output = model_error_u64(usage, "output_tokens");
}

static void model_anthropic_stop(struct model_answer *a, const char *reason) {
    if (reason == NULL)
        return;
    a->stopped = true;
    if (strcmp(reason, "max_tokens") == 0 || strcmp(reason, "model_context_window_exceeded") == 0)
        a->stop = MODEL_STOP_LENGTH;
    else if (strcmp(reason, "refusal") == 0)
        a->stop = MODEL_STOP_REFUSED;
}

/* A block that must come back as it was: its pieces are put together in a->opaque. */
static int model_anthropic_keep(struct model_answer *a, const json_t *block) {
    if (a->opaque == NULL)
        a->opaque = json_array();
    json_t *copy = json_deep_copy(block);
    return a->opaque == NULL || copy == NULL ? -1 : json_array_append_new(a->opaque, copy);
}

static int model_anthropic_block(struct model_answer *a, int index, const json_t *block, bool whole,
                                 struct err *err) {
    const char *type = json_string_value(json_object_get(block, "type"));
    const json_t *text = json_object_get(block, "text");
    if (type == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "a block of the model's answer has no type");
    if (strcmp(type, "text") == 0)
        return model_answer_text(a, json_is_string(text) ? json_string_value(text) : "",
                                 json_string_length(text), err);
    if (strcmp(type, "tool_use") == 0) {
        const char *id = json_string_value(json_object_get(block, "id"));
        struct model_part *p = model_answer_part(a, index, id, err);
        const json_t *input = json_object_get(block, "input");
        if (p == NULL ||
            model_part_name(p, id, json_string_value(json_object_get(block, "name")), err) < 0)
            return -1;
        if (!whole || json_object_size(input) == 0)
            return 0;
        char *arguments = json_dumps(input, JSON_COMPACT);
        int rc = model_part_arguments(p, arguments, err);
        free(arguments);
        return rc;
    }
    if ((strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0) &&
        model_anthropic_keep(a, block) < 0)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    return 0;
}

/* Appends to a text of the last block that is kept. */
static int model_anthropic_grow(struct model_answer *a, const char *key, const json_t *more) {
    size_t n = json_array_size(a->opaque);
    json_t *block = n > 0 ? json_array_get(a->opaque, n - 1) : NULL;
    const char *was = json_string_value(json_object_get(block, key));
    if (block == NULL || !json_is_string(more))
        return 0;
    return json_object_set_new(
        block, key, json_sprintf("%s%s", was != NULL ? was : "", json_string_value(more)));
}

static int model_anthropic_delta(struct model_answer *a, int index, const json_t *delta,
                                 struct err *err) {
    const char *type = json_string_value(json_object_get(delta, "type"));
    const json_t *text = json_object_get(delta, "text");
    int rc = 0;
    if (type == NULL)
        return 0;
    if (strcmp(type, "text_delta") == 0 && json_is_string(text))
        return model_answer_text(a, json_string_value(text), json_string_length(text), err);
    if (strcmp(type, "input_json_delta") == 0) {
        struct model_part *p = model_answer_part(a, index, NULL, err);
        return p == NULL ? -1
                         : model_part_arguments(
                               p, json_string_value(json_object_get(delta, "partial_json")), err);
    }
    if (strcmp(type, "thinking_delta") == 0)
        rc = model_anthropic_grow(a, "thinking", json_object_get(delta, "thinking"));
    else if (strcmp(type, "signature_delta") == 0)
        rc = model_anthropic_grow(a, "signature", json_object_get(delta, "signature"));
    return rc < 0 ? err_set(err, ERR_SYSTEM, 0, "out of memory") : 0;
}

static int model_anthropic_event(struct model_answer *a, const char *event, const json_t *data,
                                 struct err *err) {
    const char *type = json_string_value(json_object_get(data, "type"));
    const json_t *index = json_object_get(data, "index");
    int at = json_is_integer(index) ? (int)json_integer_value(index) : 0;
    if (type == NULL)
        type = event;
    if (strcmp(type, "message_start") == 0) {
        const json_t *message = json_object_get(data, "message");
        const char *name = json_string_value(json_object_get(message, "model"));
        snprintf(a->model_name, sizeof(a->model_name), "%s", name != NULL ? name : "");
        model_anthropic_usage(a, json_object_get(message, "usage"));
    } else if (strcmp(type, "content_block_start") == 0) {
        return model_anthropic_block(a, at, json_object_get(data, "content_block"), false, err);
    } else if (strcmp(type, "content_block_delta") == 0) {
        return model_anthropic_delta(a, at, json_object_get(data, "delta"), err);
    } else if (strcmp(type, "message_delta") == 0) {
        model_anthropic_usage(a, json_object_get(data, "usage"));
        model_anthropic_stop(
            a, json_string_value(json_object_get(json_object_get(data, "delta"), "stop_reason")));
    } else if (strcmp(type, "message_stop") == 0) {
        a->closed = true;
    }
    return 0;
}

static int model_anthropic_whole(struct model_answer *a, const json_t *answer, struct err *err) {
    const json_t *content = json_object_get(answer, "content");
    const char *name = json_string_value(json_object_get(answer, "model"));
    size_t i;
    json_t *block;
    if (!json_is_array(content))
        return err_set(err, ERR_PROTOCOL, 0, "the model's answer has no content");
    snprintf(a->model_name, sizeof(a->model_name), "%s", name != NULL ? name : "");
    model_anthropic_usage(a, json_object_get(answer, "usage"));
    json_array_foreach((json_t *)(uintptr_t)content, i, block) {
        if (model_anthropic_block(a, (int)i, block, true, err) < 0)
            return -1;
    }
    model_anthropic_stop(a, json_string_value(json_object_get(answer, "stop_reason")));
    a->closed = a->stopped = true;
    return 0;
}

const struct model_wire model_anthropic = {
    .path = "/v1/messages",
    .body = model_anthropic_body,
    .headers = model_anthropic_headers,
    .event = model_anthropic_event,
    .whole = model_anthropic_whole,
};
