#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "verify_schema.h"

/* A pattern of somebody who means harm can need exponential time: that is an error after this. */
#define VERIFY_SCHEMA_MATCH_LIMIT 1000000u

int verify_schema_match(struct verify_schema_check *c, const char *pattern, const char *text,
                        size_t len) {
    int code = 0, rc = -1;
    PCRE2_SIZE at = 0;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                                       PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF,
                                   &code, &at, NULL);
    if (re == NULL)
        return err_set(c->err, ERR_INVALID, 0,
                       "the schema's pattern %.100s is no regular expression (at %zu)", pattern,
                       (size_t)at);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(re, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (match != NULL && context != NULL) {
        pcre2_set_match_limit(context, VERIFY_SCHEMA_MATCH_LIMIT);
        pcre2_set_heap_limit(context, 65536);
        rc = pcre2_match(re, (PCRE2_SPTR)text, len, 0, 0, match, context);
        rc = rc >= 0 ? 1 : rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(re);
    if (rc < 0)
        err_set(c->err, ERR_LIMIT, 0, "the schema's pattern %.100s needs too much time", pattern);
    return rc;
}

/* From here on every double is a whole number. */
#define VERIFY_SCHEMA_WHOLE 9007199254740992.0 /* 2^53 */

static double verify_schema_size_of(double value) {
    return value < 0 ? -value : value;
}

/* The nearest whole number. */
static double verify_schema_round(double value) {
    if (verify_schema_size_of(value) >= VERIFY_SCHEMA_WHOLE)
        return value;
    return (double)(int64_t)(value < 0 ? value - 0.5 : value + 0.5);
}

/* 3 and 3.0 are one number to a schema. */
static bool verify_schema_whole(const json_t *value) {
    return json_is_integer(value) ||
           (json_is_real(value) &&
            verify_schema_round(json_real_value(value)) == json_real_value(value));
}

static bool verify_schema_is(const json_t *value, const char *type) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return strcmp(type, "object") == 0;
    case JSON_ARRAY:
        return strcmp(type, "array") == 0;
    case JSON_STRING:
        return strcmp(type, "string") == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return strcmp(type, "number") == 0 ||
               (strcmp(type, "integer") == 0 && verify_schema_whole(value));
    case JSON_TRUE:
    case JSON_FALSE:
        return strcmp(type, "boolean") == 0;
    case JSON_NULL:
        return strcmp(type, "null") == 0;
    }
    return false;
}

static int verify_schema_type(struct verify_schema_check *c, const json_t *wish,
                              const json_t *value) {
    static const char *const known[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};
    char names[128] = "";
    size_t n = json_is_array(wish) ? json_array_size(wish) : 1;
    bool fits = false;
    for (size_t i = 0; i < n; i++) {
        const char *type = json_string_value(json_is_array(wish) ? json_array_get(wish, i) : wish);
        size_t k = 0;
        while (type != NULL && k < 7 && strcmp(known[k], type) != 0)
            k++;
        if (type == NULL || k == 7)
            return err_set(c->err, ERR_INVALID, 0, "the schema has a type that there is not: %.40s",
                           type != NULL ? type : "(no string)");
        fits = fits || verify_schema_is(value, type);
        size_t at = strlen(names);
        snprintf(names + at, sizeof(names) - at, "%s%s", i > 0 ? " or " : "", type);
    }
    if (!fits)
        verify_schema_wrong(c, "must be of type %s", names);
    return 1;
}

static bool verify_schema_same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b)
                   ? json_integer_value(a) == json_integer_value(b)
                   : json_number_value(a) == json_number_value(b);
    return json_equal(a, b) != 0;
}

static int verify_schema_enum(struct verify_schema_check *c, const json_t *wish,
                              const json_t *value) {
    for (size_t i = 0; i < json_array_size(wish); i++)
        if (verify_schema_same(json_array_get(wish, i), value))
            return 1;
    verify_schema_wrong(c, "is none of the %zu values that it may be", json_array_size(wish));
    return 1;
}

static int verify_schema_unique(struct verify_schema_check *c, const json_t *value) {
    size_t n = json_array_size(value);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            if (++c->steps > VERIFY_SCHEMA_STEPS_MAX)
                return err_set(c->err, ERR_LIMIT, 0, "an array of %zu is too long for uniqueItems",
                               n);
            if (verify_schema_same(json_array_get(value, i), json_array_get(value, k))) {
                verify_schema_wrong(c, "items %zu and %zu are the same", i, k);
                return 1;
            }
        }
    }
    return 1;
}

/* Characters, not bytes. */
static size_t verify_schema_characters(const json_t *value) {
    const char *text = json_string_value(value);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(value); i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

static int verify_schema_number(struct verify_schema_check *c, const char *keyword,
                                const json_t *wish, const json_t *value) {
    double limit = json_number_value(wish), is = json_number_value(value);
    /* Exact where a double is not. */
    bool exact = json_is_integer(wish) && json_is_integer(value);
    json_int_t a = json_integer_value(value), b = json_integer_value(wish);
    bool less = exact ? a < b : is < limit, more = exact ? a > b : is > limit;
    if (strcmp(keyword, "minimum") == 0 && less)
        verify_schema_wrong(c, "is less than %g", limit);
    else if (strcmp(keyword, "maximum") == 0 && more)
        verify_schema_wrong(c, "is more than %g", limit);
    else if (strcmp(keyword, "exclusiveMinimum") == 0 && !more)
        verify_schema_wrong(c, "must be more than %g", limit);
    else if (strcmp(keyword, "exclusiveMaximum") == 0 && !less)
        verify_schema_wrong(c, "must be less than %g", limit);
    else if (strcmp(keyword, "multipleOf") == 0) {
        if (!(limit > 0))
            return err_set(c->err, ERR_INVALID, 0, "multipleOf must be more than 0");
        double parts = is / limit;
        if (exact ? a % b != 0
                  : verify_schema_size_of(parts - verify_schema_round(parts)) >
                        1e-9 * (1 + verify_schema_size_of(parts)))
            verify_schema_wrong(c, "is no multiple of %g", limit);
    }
    return 1;
}

struct verify_schema_count {
    const char *keyword, *of;
    json_type type;
    bool least;
};

static int verify_schema_size(struct verify_schema_check *c, const struct verify_schema_count *k,
                              const json_t *wish, const json_t *value) {
    if (!json_is_integer(wish) || json_integer_value(wish) < 0)
        return err_set(c->err, ERR_INVALID, 0, "%s must be a whole number", k->keyword);
    if (json_typeof(value) != k->type)
        return 1;
    size_t limit = (size_t)json_integer_value(wish);
    size_t is = k->type == JSON_STRING  ? verify_schema_characters(value)
                : k->type == JSON_ARRAY ? json_array_size(value)
                                        : json_object_size(value);
    if (k->least ? is < limit : is > limit)
        verify_schema_wrong(c, "has %zu %s; at %s %zu are wanted", is, k->of,
                            k->least ? "least" : "most", limit);
    return 1;
}

int verify_schema_plain(struct verify_schema_check *c, const char *keyword, const json_t *wish,
                        const json_t *value) {
    static const char *const numbers[] = {"minimum", "maximum", "exclusiveMinimum",
                                          "exclusiveMaximum", "multipleOf"};
    static const struct verify_schema_count counts[] = {
        {"minLength", "characters", JSON_STRING, true},
        {"maxLength", "characters", JSON_STRING, false},
        {"minItems", "items", JSON_ARRAY, true},
        {"maxItems", "items", JSON_ARRAY, false},
        {"minProperties", "properties", JSON_OBJECT, true},
        {"maxProperties", "properties", JSON_OBJECT, false},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(keyword, numbers[i]) != 0)
            continue;
        if (!json_is_number(wish))
            return err_set(c->err, ERR_INVALID, 0, "%s must be a number", keyword);
        return json_is_number(value) ? verify_schema_number(c, keyword, wish, value) : 1;
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (strcmp(keyword, counts[i].keyword) == 0)
            return verify_schema_size(c, &counts[i], wish, value);
    if (strcmp(keyword, "type") == 0)
        return verify_schema_type(c, wish, value);
    if (strcmp(keyword, "enum") == 0 && json_is_array(wish))
        return verify_schema_enum(c, wish, value);
    if (strcmp(keyword, "const") == 0) {
        if (!verify_schema_same(wish, value))
            verify_schema_wrong(c, "is not the one value that it may be");
        return 1;
    }
    if (strcmp(keyword, "uniqueItems") == 0 && json_is_boolean(wish))
        return json_is_true(wish) && json_is_array(value) ? verify_schema_unique(c, value) : 1;
    if (strcmp(keyword, "pattern") == 0 && json_is_string(wish)) {
        if (!json_is_string(value))
            return 1;
        int rc = verify_schema_match(c, json_string_value(wish), json_string_value(value),
                                     json_string_length(value));
        if (rc == 0)
            verify_schema_wrong(c, "does not match %.200s", json_string_value(wish));
        return rc < 0 ? -1 : 1;
    }
    return 0;
}
