#include "limits_json.h"

#include <jansson.h>
#include <string.h>

static const char *const limits_from_names[LIMITS_FROM_COUNT] = {
    [LIMITS_FROM_DEFAULT] = "default",    [LIMITS_FROM_POLICY] = "policy",
    [LIMITS_FROM_REQUEST] = "request",    [LIMITS_FROM_BUDGET] = "budget",
    [LIMITS_FROM_UNENFORCED] = "default",
};

const char *limits_from_name(unsigned from) {
    return from < LIMITS_FROM_COUNT ? limits_from_names[from] : NULL;
}

static json_t *limits_json_build(const struct limits_effective *e,
                                 const struct limits_effective *base) {
    json_t *object = json_object();
    for (int id = 0; object && id < LIMIT_COUNT; id++) {
        if (base && base->values.v[id] == e->values.v[id])
            continue;
        const char *from = limits_from_name(e->from[id]);
        json_t *entry = json_pack("{s:I, s:s}", "value", (json_int_t)e->values.v[id], "from",
                                  from ? from : "default");
        if (e->from[id] == LIMITS_FROM_UNENFORCED)
            json_object_set_new(entry, "enforced", json_false());
        if (json_object_set_new_nocheck(object, limit_info((enum limit_id)id)->name, entry) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

json_t *limits_json_encode(const struct limits_effective *e) {
    return limits_json_build(e, NULL);
}

json_t *limits_json_encode_changed(const struct limits_effective *e,
                                   const struct limits_effective *base) {
    return limits_json_build(e, base);
}

static int limits_json_from(const json_t *word, uint8_t *from) {
    const char *text = json_string_value(word);
    for (uint8_t i = 0; text && i < LIMITS_FROM_COUNT; i++) {
        if (strcmp(text, limits_from_names[i]) == 0) {
            *from = i;
            return 0;
        }
    }
    return -1;
}

int limits_json_decode(const json_t *object, struct limits_effective *out, struct err *err) {
    struct limits_effective e = {0};
    if (!json_is_object(object))
        return err_set(err, ERR_INVALID, 0, "limits is not an object");
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const char *name = limit_info((enum limit_id)id)->name;
        const json_t *entry = json_object_get(object, name);
        const json_t *value = json_object_get(entry, "value");
        if (!entry)
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            limits_json_from(json_object_get(entry, "from"), &e.from[id]) != 0)
            return err_set(err, ERR_INVALID, 0, "limits.%s has no value or no origin", name);
        if (json_is_false(json_object_get(entry, "enforced")))
            e.from[id] = LIMITS_FROM_UNENFORCED;
        e.values.v[id] = (uint64_t)json_integer_value(value);
    }
    *out = e;
    return 0;
}
