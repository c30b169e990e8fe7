#include "policy_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "str.h"

/* ERR_INVALID "/limits/wall_ms: …". A key of the file is shown escaped. */
static int policy_json_fail(const struct policy_object *o, const char *key, struct err *err,
                            const char *what) {
    char shown[80];
    str_escape(shown, sizeof(shown), key, strlen(key));
    return err_set(err, ERR_INVALID, 0, "%s/%s %s", o->where, shown, what);
}

static bool policy_json_listed(const char *const *list, const char *word) {
    for (; *list; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

/* Those of `keys` must be there, those of `more` (may be NULL) may. */
static int policy_json_keys(const struct policy_object *o, const char *const *keys,
                            const char *const *more, struct err *err) {
    /* jansson's iterators want a pointer that is not const; nothing is changed through it. */
    json_t *json = (json_t *)(uintptr_t)o->json;
    for (void *it = json_object_iter(json); it; it = json_object_iter_next(json, it))
        if (!policy_json_listed(keys, json_object_iter_key(it)) &&
            (more == NULL || !policy_json_listed(more, json_object_iter_key(it))))
            return policy_json_fail(o, json_object_iter_key(it), err, "is not a known key");
    for (; *keys; keys++)
        if (!json_object_get(json, *keys))
            return policy_json_fail(o, *keys, err, "is missing");
    return 0;
}

int policy_json_top(const json_t *json, const char *const *keys, const char *const *more,
                    struct policy_object *out, struct err *err) {
    struct policy_object o = {.where = "", .json = json};
    if (!json_is_object(json))
        return err_set(err, ERR_INVALID, 0, "the file must hold one JSON object");
    if (policy_json_keys(&o, keys, more, err) != 0)
        return -1;
    *out = o;
    return 0;
}

int policy_json_open(const struct policy_object *up, const char *key, const char *const *keys,
                     struct policy_object *out, struct err *err) {
    struct policy_object o = {.json = json_object_get(up->json, key)};
    if (!json_is_object(o.json))
        return policy_json_fail(up, key, err, "must be an object");
    (void)snprintf(o.where, sizeof(o.where), "%.60s/%.60s", up->where, key);
    if (policy_json_keys(&o, keys, NULL, err) != 0)
        return -1;
    *out = o;
    return 0;
}

bool policy_json_has(const struct policy_object *o, const char *key) {
    return json_object_get(o->json, key) != NULL;
}

int policy_json_array(const struct policy_object *o, const char *key, const json_t **out,
                      struct err *err) {
    const json_t *value = json_object_get(o->json, key);
    if (!json_is_array(value))
        return policy_json_fail(o, key, err, "must be an array");
    *out = value;
    return 0;
}

int policy_json_bool(const struct policy_object *o, const char *key, bool *out, struct err *err) {
    const json_t *value = json_object_get(o->json, key);
    if (!json_is_boolean(value))
        return policy_json_fail(o, key, err, "must be true or false");
    *out = json_is_true(value);
    return 0;
}

int policy_json_u64(const struct policy_object *o, const char *key, uint64_t min, uint64_t max,
                    uint64_t *out, struct err *err) {
    char what[96];
    const json_t *value = json_object_get(o->json, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number < min || (uint64_t)number > max) {
        (void)snprintf(what, sizeof(what), "must be a whole number from %" PRIu64 " to %" PRIu64,
                       min, max);
        return policy_json_fail(o, key, err, what);
    }
    *out = (uint64_t)number;
    return 0;
}

int policy_json_text(const struct policy_object *o, const char *key, const char **out,
                     struct err *err) {
    const char *text = json_string_value(json_object_get(o->json, key));
    if (!text || text[strspn(text, " \t\r\n")] == '\0')
        return policy_json_fail(o, key, err, "must be a text that is not blank");
    *out = text;
    return 0;
}

/* -> index in `words`, or -1. */
static int policy_json_index(const json_t *value, const char *const *words) {
    const char *text = json_string_value(value);
    for (int i = 0; text && words[i]; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static int policy_json_bad_word(const struct policy_object *o, const char *key,
                                const char *const *words, const char *must, struct err *err) {
    char what[160];
    size_t used = (size_t)snprintf(what, sizeof(what), "%s", must);
    for (size_t i = 0; words[i] && used < sizeof(what); i++)
        used += (size_t)snprintf(what + used, sizeof(what) - used, "%s\"%s\"", i ? ", " : " ",
                                 words[i]);
    return policy_json_fail(o, key, err, what);
}

int policy_json_word(const struct policy_object *o, const char *key, const char *const *words,
                     uint32_t *out, struct err *err) {
    int index = policy_json_index(json_object_get(o->json, key), words);
    if (index < 0)
        return policy_json_bad_word(o, key, words, "must be one of", err);
    *out = (uint32_t)index;
    return 0;
}

int policy_json_words(const struct policy_object *o, const char *key, const char *const *words,
                      uint32_t *mask, struct err *err) {
    static const char must[] = "must be an array, each at most once, of";
    const json_t *array = json_object_get(o->json, key);
    uint32_t bits = 0;
    if (!json_is_array(array))
        return policy_json_bad_word(o, key, words, must, err);
    for (size_t i = 0; i < json_array_size(array); i++) {
        int index = policy_json_index(json_array_get(array, i), words);
        if (index < 0 || (bits & 1u << index))
            return policy_json_bad_word(o, key, words, must, err);
        bits |= 1u << index;
    }
    *mask = bits;
    return 0;
}
