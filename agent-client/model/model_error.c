#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model_internal.h"

uint64_t model_error_u64(const json_t *object, const char *key) {
    json_int_t v = json_integer_value(json_object_get(object, key));
    return v > 0 ? (uint64_t)v : 0;
}

/* The texts with which servers say that the context is too small: OpenAI and vLLM, llama.cpp,
 * Anthropic, and those that pass vLLM's on. */
static bool model_error_overflows(const char *type, const char *code, const char *message) {
    static const char *const names[] = {"context_length_exceeded", "exceed_context_size_error",
                                        "model_context_window_exceeded"};
    static const char *const texts[] = {"maximum context length",
                                        "context length exceeded",
                                        "prompt is too long",
                                        "exceeds the available context size",
                                        "max_tokens must be at least 1",
                                        "context window",
                                        "input length and `max_tokens` exceed"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(type, names[i]) == 0 || strcmp(code, names[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcasestr(message, texts[i]) != NULL)
            return true;
    return false;
}

/* "maximum context length is 4096 tokens", "… > 200000 maximum", {"n_ctx": 4096} */
static uint64_t model_error_limit(const json_t *error, const char *message) {
    uint64_t limit = model_error_u64(error, "n_ctx");
    const char *at = strcasestr(message, "maximum context length is ");
    if (limit > 0)
        return limit;
    if (at != NULL)
        return strtoull(at + 26, NULL, 10);
    at = strchr(message, '>');
    return at != NULL && strcasestr(at, "maximum") != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

static const char *model_error_string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Printable, cut: it goes to a terminal and into a journal. */
static void model_error_clean(char *dst, size_t size, const char *text, const char *key) {
    size_t n = 0, secret = strlen(key);
    for (; *text != '\0' && n + 1 < size; text++) {
        if (secret > 0 && strncmp(text, key, secret) == 0) {
            dst[n++] = '*';
            text += secret - 1;
            continue;
        }
        dst[n++] = iscntrl((unsigned char)*text) ? ' ' : *text;
    }
    dst[n] = '\0';
}

bool model_error_names(const char *body, const char *parameter) {
    return strstr(body, parameter) != NULL;
}

void model_error_read(const char *body, size_t len, long status, const char *key,
                      struct model_reply *reply, struct err *err) {
    json_t *root = json_loadb(body, len, 0, NULL);
    const json_t *error = json_object_get(root, "error");
    /* {"error": "text"} and, of vLLM, the object itself. */
    const char *message =
        json_is_string(error) ? json_string_value(error) : model_error_string(error, "message");
    if (error == NULL) {
        error = root;
        message = model_error_string(root, "message");
    }
    const char *type = model_error_string(error, "type"), *code = model_error_string(error, "code");
    char text[240], place[40] = "";
    model_error_clean(text, sizeof(text), message[0] != '\0' ? message : "no reason given", key);
    if (status > 0)
        snprintf(place, sizeof(place), " (HTTP %ld)", status);
    reply->failure = MODEL_REJECTED;
    if ((status == 400 || status == 413 || status == 0 || status == 422) &&
        model_error_overflows(type, code, message)) {
        reply->failure = MODEL_OVERFLOW;
        reply->context_tokens = model_error_limit(error, message);
    } else if ((status == 429 && strcmp(code, "insufficient_quota") != 0) || status == 408 ||
               status == 409 || status >= 500 || strcmp(type, "overloaded_error") == 0 ||
               (status == 0 && strcmp(type, "api_error") == 0)) {
        reply->failure = MODEL_BUSY;
    }
    if (status == 401 || status == 403)
        err_set(err, ERR_INVALID, (int)status,
                "the model's server does not accept the key%s: %s; set PINFOLD_MODEL_KEY", place,
                text);
    else
        err_set(err, reply->failure == MODEL_BUSY ? ERR_STATE : ERR_INVALID, (int)status,
                "the model's server refused%s: %s", place, text);
    json_decref(root);
}
