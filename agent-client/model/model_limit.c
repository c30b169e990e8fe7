/* How many tokens a model takes: asked of its server, which alone knows what it was started with.
 * Every kind of server tells it in another place, and many do not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_internal.h"

#define MODEL_LIMIT_MS 3000u
#define MODEL_LIMIT_LEAST 256u /* less is no limit but a mistake */

static int model_limit_event(struct model_answer *a, const char *event, const json_t *data,
                             struct err *err) {
    (void)a;
    (void)event;
    (void)data;
    return err_set(err, ERR_PROTOCOL, 0, "a stream where one object was asked for");
}

static int model_limit_whole(struct model_answer *a, const json_t *answer, struct err *err) {
    (void)err;
    json_decref(a->opaque);
    a->opaque = json_incref((json_t *)(uintptr_t)answer);
    return 0;
}

/* The object at another path of the model's server; NULL: there is none. `sent` NULL: a GET. *dead:
 * nobody answers there, so nothing more is asked. */
static json_t *model_limit_ask(const struct model *m, size_t len, const char *path,
                               const char *sent, bool *dead) {
    const struct model_wire *own =
        m->protocol == MODEL_ANTHROPIC ? &model_anthropic : &model_openai;
    const struct model_wire wire = {
        .headers = own->headers, .event = model_limit_event, .whole = model_limit_whole};
    struct model *probe = malloc(sizeof(*probe));
    struct model_answer *answer = malloc(sizeof(*answer));
    struct model_reply reply = {0};
    struct err err;
    json_t *found = NULL;
    if (*dead || probe == NULL || answer == NULL) {
        free(probe);
        free(answer);
        return NULL;
    }
    *probe = *m;
    probe->multi = NULL;
    probe->easy = NULL;
    probe->silence_ms = probe->total_ms = MODEL_LIMIT_MS;
    probe->end_ms = 0;
    model_answer_init(answer, probe);
    if (snprintf(probe->url, sizeof(probe->url), "%.*s%s", (int)len, m->url, path) <
            (int)sizeof(probe->url) &&
        model_http_set_up(probe, &err) == 0) {
        struct model_attempt t = {.wire = &wire,
                                  .sent = sent,
                                  .sent_len = sent != NULL ? strlen(sent) : 0,
                                  .answer = answer};
        if (model_http_post(probe, &t, &reply, &err) == 0)
            found = json_incref(answer->opaque);
        *dead = t.status == 0;
        buf_done(&t.body);
    }
    model_answer_done(answer);
    free(answer);
    model_reply_done(&reply);
    model_free(probe);
    return found;
}

static uint64_t model_limit_number(const json_t *object, const char *const *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t n = model_error_u64(object, keys[i]);
        if (n >= MODEL_LIMIT_LEAST)
            return n;
    }
    return 0;
}

static bool model_limit_named(const json_t *one, const char *key, const char *name) {
    const char *text = json_string_value(json_object_get(one, key));
    size_t n = strlen(name);
    /* Ollama: "qwen3" is "qwen3:latest". */
    return text != NULL && strncmp(text, name, n) == 0 &&
           (text[n] == '\0' || strcmp(text + n, ":latest") == 0);
}

/* vLLM, LM Studio, OpenRouter, Groq and others, in the list of models. */
static uint64_t model_limit_listed(const struct model *m, const json_t *root) {
    static const char *const keys[] = {"max_model_len",      "loaded_context_length",
                                       "max_context_length", "context_length",
                                       "context_window",     "max_input_tokens"};
    const json_t *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)json_object_get(root, "data"), i, one) {
        if (model_limit_named(one, "id", m->name))
            return model_limit_number(one, keys, sizeof(keys) / sizeof(keys[0]));
    }
    return model_limit_number(root, keys, sizeof(keys) / sizeof(keys[0]));
}

/* llama.cpp: what one of its slots holds. */
static uint64_t model_limit_props(const struct model *m, const json_t *root) {
    (void)m;
    static const char *const keys[] = {"n_ctx"};
    uint64_t n = model_limit_number(json_object_get(root, "default_generation_settings"), keys, 1);
    return n != 0 ? n : model_limit_number(root, keys, 1);
}

/* Ollama, of a model that is loaded: what it was loaded with. More is cut off without a word. */
static uint64_t model_limit_loaded(const struct model *m, const json_t *root) {
    static const char *const keys[] = {"context_length"};
    const json_t *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)json_object_get(root, "models"), i, one) {
        if (model_limit_named(one, "name", m->name) || model_limit_named(one, "model", m->name))
            return model_limit_number(one, keys, 1);
    }
    return 0;
}

/* Ollama, of one that is not: what its file says. "num_ctx    8192" in a text of lines. */
static uint64_t model_limit_shown(const struct model *m, const json_t *root) {
    (void)m;
    const char *text = json_string_value(json_object_get(root, "parameters"));
    const char *at = text != NULL ? strstr(text, "num_ctx") : NULL;
    uint64_t n = at != NULL ? strtoull(at + strlen("num_ctx"), NULL, 10) : 0;
    return n >= MODEL_LIMIT_LEAST ? n : 0;
}

/* One place to look in. */
static const struct model_limit_place {
    const char *path;
    bool shows; /* it wants to be told which model */
    uint64_t (*read)(const struct model *m, const json_t *root);
} model_limit_places[] = {
    {"/props", false, model_limit_props},
    {"/api/ps", false, model_limit_loaded},
    {"/api/show", true, model_limit_shown},
};

static uint64_t model_limit_at(const struct model *m, size_t len,
                               const struct model_limit_place *place, bool *dead) {
    json_t *body = place->shows ? json_pack("{s:s}", "model", m->name) : NULL;
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *root =
        place->shows && text == NULL ? NULL : model_limit_ask(m, len, place->path, text, dead);
    uint64_t n = json_is_object(root) ? place->read(m, root) : 0;
    json_decref(root);
    json_decref(body);
    free(text);
    return n;
}

static uint64_t model_limit_openai(const struct model *m) {
    static const struct model_limit_place list = {"/models", false, model_limit_listed};
    size_t len = strlen(m->url) - strlen(model_openai.path);
    bool dead = false;
    uint64_t n = model_limit_at(m, len, &list, &dead);
    /* The rest is of servers that people run themselves. */
    if (n != 0 || strncmp(m->url, "http://", 7) != 0)
        return n;
    if (len >= 3 && memcmp(m->url + len - 3, "/v1", 3) == 0)
        len -= 3;
    for (size_t i = 0; n == 0 && i < sizeof(model_limit_places) / sizeof(model_limit_places[0]);
         i++)
        n = model_limit_at(m, len, &model_limit_places[i], &dead);
    return n;
}

static uint64_t model_limit_anthropic(const struct model *m) {
    char path[MODEL_NAME_MAX + 16];
    const struct model_limit_place one = {path, false, model_limit_listed};
    bool dead = false;
    if (m->name[strcspn(m->name, "/?#% ")] != '\0')
        return 0;
    snprintf(path, sizeof(path), "/v1/models/%s", m->name);
    return model_limit_at(m, strlen(m->url) - strlen(model_anthropic.path), &one, &dead);
}

uint64_t model_limit(const struct model *m) {
    return m->protocol == MODEL_ANTHROPIC ? model_limit_anthropic(m) : model_limit_openai(m);
}
