/* POST URL/chat/completions, streamed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"

#define MODEL_OPENAI_TOKENS 4096u

/* The request. */

static json_t *model_openai_calls(const struct model_message *m) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->call_count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", m->calls[i].id, "type",
                                        "function", "function", "name", m->calls[i].name,
                                        "arguments", m->calls[i].arguments));
    return list;
}

static json_t *model_openai_message(const struct model_message *m) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    json_t *out = json_pack("{s:s}", "role", roles[m->role]);
    /* An assistant's turn without text is null, not "": some templates print the empty string. */
    json_object_set_new(out, "content",
                        m->text != NULL              ? json_string(m->text)
                        : m->role == MODEL_ASSISTANT ? json_null()
                                                     : json_string(""));
    if (m->call_count > 0)
        json_object_set_new(out, "tool_calls", model_openai_calls(m));
    if (m->role == MODEL_TOOL && m->call_id != NULL)
        json_object_set_new(out, "tool_call_id", json_string(m->call_id));
    return out;
}

static json_t *model_openai_body(const struct model *m, const struct model_request *r) {
    json_t *messages = json_array(), *tools = json_array();
    json_int_t tokens = r->answer_tokens > 0 ? r->answer_tokens : MODEL_OPENAI_TOKENS;
    for (size_t i = 0; i < r->message_count; i++)
        json_array_append_new(messages, model_openai_message(&r->messages[i]));
    for (size_t i = 0; i < r->tool_count; i++)
        json_array_append_new(tools, json_pack("{s:s, s:{s:s, s:s, s:O}}", "type", "function",
                                               "function", "name", r->tools[i].name, "description",
                                               r->tools[i].description, "parameters",
                                               r->tools[i].parameters));
    json_t *body = json_pack("{s:s, s:o, s:b, s:{s:b}}", "model", m->name, "messages", messages,
                             "stream", 1, "stream_options", "include_usage", 1);
    if (r->tool_count > 0)
        json_object_set_new(body, "tools", tools);
    else
        json_decref(tools);
    json_object_set_new(body, m->old_limit ? "max_tokens" : "max_completion_tokens",
                        json_integer(tokens));
    return body;
}

static int model_openai_headers(const struct model *m, struct curl_slist **list) {
    char line[MODEL_KEY_MAX + 32];
    if (m->key[0] == '\0')
        return 0;
    snprintf(line, sizeof(line), "Authorization: Bearer %s", m->key);
    struct curl_slist *longer = curl_slist_append(*list, line);
    explicit_bzero(line, sizeof(line));
    if (longer == NULL)
        return -1;
    *list = longer;
    return 0;
}

/* The answer. */

static void model_openai_usage(struct model_answer *a, const json_t *usage) {
    const json_t *in = json_object_get(usage, "prompt_tokens_details");
    const json_t *out = json_object_get(usage, "completion_tokens_details");
    uint64_t prompt = model_error_u64(usage, "prompt_tokens");
    uint64_t cached = model_error_u64(in, "cached_tokens");
    if (!json_is_object(usage))
        return;
    if (cached > prompt)
        cached = prompt;
    a->usage = (struct model_usage){.known = true,
                                    .input = prompt - cached, /* theirs includes the cache */
                                    .cache_read = cached,
                                    .output = model_error_u64(usage, "completion_tokens"),
                                    .reasoning = model_error_u64(out, "reasoning_tokens")};
}

static void model_openai_stop(struct model_answer *a, const char *reason) {
    if (reason == NULL)
        return;
    a->stopped = true;
    if (strcmp(reason, "length") == 0)
        a->stop = MODEL_STOP_LENGTH;
    else if (strcmp(reason, "content_filter") == 0)
        a->stop = MODEL_STOP_REFUSED;
}

/* A fragment of a call, or a whole one: the shapes are the same. */
static int model_openai_call(struct model_answer *a, const json_t *call, size_t position,
                             struct err *err) {
    const json_t *index = json_object_get(call, "index"), *fn = json_object_get(call, "function");
    const json_t *arguments = json_object_get(fn, "arguments");
    const char *id = json_string_value(json_object_get(call, "id"));
    struct model_part *p = model_answer_part(
        a, json_is_integer(index) ? (int)json_integer_value(index) : (int)position, id, err);
    if (p == NULL ||
        model_part_name(p, id, json_string_value(json_object_get(fn, "name")), err) < 0)
        return -1;
    /* Ollama's older versions send an object, not its text. */
    if (json_is_object(arguments)) {
        char *text = json_dumps(arguments, JSON_COMPACT);
        int rc = model_part_arguments(p, text, err);
        free(text);
        return rc;
    }
    return model_part_arguments(p, json_string_value(arguments), err);
}

/* `delta` of a stream, `message` of a whole answer. */
static int model_openai_piece(struct model_answer *a, const json_t *piece, struct err *err) {
    const json_t *content = json_object_get(piece, "content");
    const json_t *calls = json_object_get(piece, "tool_calls");
    const json_t *refusal = json_object_get(piece, "refusal");
    size_t i;
    json_t *call;
    if (json_is_string(content) &&
        model_answer_text(a, json_string_value(content), json_string_length(content), err) < 0)
        return -1;
    if (json_is_string(refusal) && json_string_length(refusal) > 0) {
        a->stop = MODEL_STOP_REFUSED;
        if (model_answer_text(a, json_string_value(refusal), json_string_length(refusal), err) < 0)
            return -1;
    }
    json_array_foreach((json_t *)(uintptr_t)calls, i, call) {
        if (model_openai_call(a, call, i, err) < 0)
            return -1;
    }
    return 0;
}

static void model_openai_head(struct model_answer *a, const json_t *data) {
    const char *name = json_string_value(json_object_get(data, "model"));
    if (name != NULL && a->model_name[0] == '\0')
        snprintf(a->model_name, sizeof(a->model_name), "%s", name);
    if (json_is_object(json_object_get(data, "usage")))
        model_openai_usage(a, json_object_get(data, "usage"));
}

static int model_openai_choice(struct model_answer *a, const json_t *data, const char *piece,
                               struct err *err) {
    const json_t *choice = json_array_get(json_object_get(data, "choices"), 0);
    if (choice == NULL)
        return 0; /* the chunk with the usage has none */
    if (model_openai_piece(a, json_object_get(choice, piece), err) < 0)
        return -1;
    model_openai_stop(a, json_string_value(json_object_get(choice, "finish_reason")));
    return 0;
}

static int model_openai_event(struct model_answer *a, const char *event, const json_t *data,
                              struct err *err) {
    (void)event;
    if (data == NULL) { /* [DONE] */
        a->closed = true;
        return 0;
    }
    model_openai_head(a, data);
    return model_openai_choice(a, data, "delta", err);
}

static int model_openai_whole(struct model_answer *a, const json_t *answer, struct err *err) {
    if (!json_is_array(json_object_get(answer, "choices")))
        return err_set(err, ERR_PROTOCOL, 0, "the model's answer has no choices");
    model_openai_head(a, answer);
    a->closed = a->stopped = true;
    return model_openai_choice(a, answer, "message", err);
}

const struct model_wire model_openai = {
    .path = "/chat/completions",
    .body = model_openai_body,
    .headers = model_openai_headers,
    .event = model_openai_event,
    .whole = model_openai_whole,
};
