#include "verify_schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify_kinds.h"

void verify_schema_wrong(struct verify_schema_check *c, const char *fmt, ...) {
    char text[VERIFY_TEXT_MAX];
    va_list args;
    c->wrong++;
    if (c->silent > 0)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    verify_fail(c->report, c->path[0] != '\0' ? c->path : "/", c->file, 0, "%s", text);
}

/* One level deeper in the value: "/name", with ~ and / as a JSON pointer has them (RFC 6901).
 * Returns the length to go back to. */
static size_t verify_schema_down(struct verify_schema_check *c, const char *name) {
    size_t was = strlen(c->path), n = was;
    if (n + 1 < sizeof(c->path))
        c->path[n++] = '/';
    for (; *name != '\0' && n + 2 < sizeof(c->path); name++) {
        if (*name == '~' || *name == '/') {
            c->path[n++] = '~';
            c->path[n++] = *name == '~' ? '0' : '1';
        } else {
            c->path[n++] = *name;
        }
    }
    c->path[n] = '\0';
    return was;
}

static int verify_schema_item(struct verify_schema_check *c, const json_t *schema,
                              const json_t *array, size_t index) {
    char number[24];
    snprintf(number, sizeof(number), "%zu", index);
    size_t was = verify_schema_down(c, number);
    int rc = verify_schema_value(c, schema, json_array_get(array, index));
    c->path[was] = '\0';
    return rc;
}

/* Does the value fit, without a word? 1, 0, -1. */
static int verify_schema_fits(struct verify_schema_check *c, const json_t *schema,
                              const json_t *value) {
    uint64_t before = c->wrong;
    c->silent++;
    int rc = verify_schema_value(c, schema, value);
    c->silent--;
    bool fits = c->wrong == before;
    c->wrong = before;
    return rc < 0 ? -1 : fits;
}

/* "#/$defs/x" -> the schema. */
static const json_t *verify_schema_ref(const struct verify_schema_check *c, const char *ref) {
    const json_t *at = c->root;
    if (ref[0] != '#')
        return NULL;
    for (ref++; *ref == '/' && at != NULL;) {
        char name[256];
        size_t n = 0;
        for (ref++; *ref != '\0' && *ref != '/'; ref++) {
            char ch = *ref;
            if (ch == '~' && (ref[1] == '0' || ref[1] == '1'))
                ch = *++ref == '0' ? '~' : '/';
            if (n + 1 == sizeof(name))
                return NULL;
            name[n++] = ch;
        }
        name[n] = '\0';
        if (json_is_array(at)) {
            char *end;
            unsigned long i = strtoul(name, &end, 10);
            at = *end == '\0' && n > 0 ? json_array_get(at, i) : NULL;
        } else {
            at = json_object_get(at, name);
        }
    }
    return *ref == '\0' ? at : NULL;
}

static int verify_schema_combine(struct verify_schema_check *c, const char *keyword,
                                 const json_t *list, const json_t *value) {
    size_t fit = 0, n = json_array_size(list);
    if (!json_is_array(list) || n == 0)
        return err_set(c->err, ERR_INVALID, 0, "%s must be a list of schemas", keyword);
    for (size_t i = 0; i < n; i++) {
        int rc = strcmp(keyword, "allOf") == 0
                     ? verify_schema_value(c, json_array_get(list, i), value)
                     : verify_schema_fits(c, json_array_get(list, i), value);
        if (rc < 0)
            return -1;
        fit += (size_t)rc;
    }
    if (strcmp(keyword, "anyOf") == 0 && fit == 0)
        verify_schema_wrong(c, "fits none of the %zu alternatives", n);
    else if (strcmp(keyword, "oneOf") == 0 && fit != 1)
        verify_schema_wrong(c, "fits %zu of %zu alternatives; it must be one", fit, n);
    return 1;
}

static int verify_schema_if(struct verify_schema_check *c, const json_t *schema,
                            const json_t *value) {
    int rc = verify_schema_fits(c, json_object_get(schema, "if"), value);
    const json_t *then = json_object_get(schema, rc == 1 ? "then" : "else");
    if (rc < 0)
        return -1;
    return then != NULL && verify_schema_value(c, then, value) < 0 ? -1 : 1;
}

/* Arrays. */

static int verify_schema_items(struct verify_schema_check *c, const json_t *schema,
                               const char *keyword, const json_t *wish, const json_t *value) {
    size_t prefix = json_array_size(json_object_get(schema, "prefixItems"));
    if (!json_is_array(value))
        return 1;
    size_t n = json_array_size(value), found = 0;
    if (strcmp(keyword, "prefixItems") == 0) {
        for (size_t i = 0; i < n && i < prefix; i++)
            if (verify_schema_item(c, json_array_get(wish, i), value, i) < 0)
                return -1;
        return 1;
    }
    if (strcmp(keyword, "items") == 0) {
        if (json_is_array(wish))
            return err_set(c->err, ERR_INVALID, 0,
                           "items is a list; since draft 2020-12 that is prefixItems");
        for (size_t i = prefix; i < n; i++)
            if (verify_schema_item(c, wish, value, i) < 0)
                return -1;
        return 1;
    }
    const json_t *least = json_object_get(schema, "minContains");
    const json_t *most = json_object_get(schema, "maxContains");
    for (size_t i = 0; i < n; i++) {
        int rc = verify_schema_fits(c, wish, json_array_get(value, i));
        if (rc < 0)
            return -1;
        found += (size_t)rc;
    }
    if (found < (least != NULL ? (size_t)json_integer_value(least) : 1) ||
        (most != NULL && found > (size_t)json_integer_value(most)))
        verify_schema_wrong(c, "%zu items are as `contains` wants them", found);
    return 1;
}

/* Objects. */

static int verify_schema_required(struct verify_schema_check *c, const json_t *names,
                                  const json_t *value, const char *because) {
    size_t i;
    json_t *name;
    if (!json_is_array(names))
        return err_set(c->err, ERR_INVALID, 0, "a list of required properties is no list");
    json_array_foreach((json_t *)(uintptr_t)names, i, name) {
        const char *text = json_string_value(name);
        if (text == NULL)
            return err_set(c->err, ERR_INVALID, 0, "the name of a required property is no string");
        if (json_object_get(value, text) == NULL)
            verify_schema_wrong(c, "lacks %.200s%s%.200s", text,
                                because != NULL ? ", which must be there with " : "",
                                because != NULL ? because : "");
    }
    return 1;
}

/* The schemas that hold for one property: by name, by pattern, or for all others. */
static int verify_schema_property(struct verify_schema_check *c, const json_t *schema,
                                  const char *key, const json_t *value) {
    const json_t *own = json_object_get(json_object_get(schema, "properties"), key);
    const json_t *others = json_object_get(schema, "additionalProperties");
    const json_t *names = json_object_get(schema, "propertyNames");
    const char *pattern;
    json_t *sub;
    bool known = own != NULL;
    if (own != NULL && verify_schema_value(c, own, value) < 0)
        return -1;
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, sub) {
        int rc = verify_schema_match(c, pattern, key, strlen(key));
        if (rc < 0 || (rc == 1 && verify_schema_value(c, sub, value) < 0))
            return -1;
        known = known || rc == 1;
    }
    if (names != NULL) {
        json_t *text = json_string(key);
        int rc = text != NULL ? verify_schema_fits(c, names, text) : -1;
        json_decref(text);
        if (rc < 0)
            return -1;
        if (rc == 0)
            verify_schema_wrong(c, "has a name that it may not have");
    }
    if (known || others == NULL)
        return 0;
    if (json_is_false(others)) {
        verify_schema_wrong(c, "is not known to the schema");
        return 0;
    }
    return verify_schema_value(c, others, value);
}

static int verify_schema_object(struct verify_schema_check *c, const json_t *schema,
                                const json_t *value) {
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return 0;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        size_t was = verify_schema_down(c, key);
        int rc = verify_schema_property(c, schema, key, member);
        c->path[was] = '\0';
        if (rc < 0)
            return -1;
    }
    json_object_foreach(json_object_get(schema, "dependentRequired"), key, member) {
        if (json_object_get(value, key) != NULL &&
            verify_schema_required(c, member, value, key) < 0)
            return -1;
    }
    json_object_foreach(json_object_get(schema, "dependentSchemas"), key, member) {
        if (json_object_get(value, key) != NULL && verify_schema_value(c, member, value) < 0)
            return -1;
    }
    return 0;
}

/* Names of keywords: those that only describe, and those that others above have read. */
static bool verify_schema_listed(const char *keyword) {
    static const char *const names[] = {
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "$vocabulary",
        "then",
        "else",
        "minContains",
        "maxContains",
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(keyword, names[i]) == 0)
            return true;
    return false;
}

static int verify_schema_keyword(struct verify_schema_check *c, const json_t *schema,
                                 const char *keyword, const json_t *wish, const json_t *value) {
    int rc = verify_schema_plain(c, keyword, wish, value);
    if (rc != 0)
        return rc;
    if (strcmp(keyword, "$ref") == 0) {
        const char *ref = json_string_value(wish);
        const json_t *there = ref != NULL ? verify_schema_ref(c, ref) : NULL;
        if (there == NULL)
            return err_set(c->err, ERR_INVALID, 0,
                           "the schema refers to %.200s, which is not in it",
                           ref != NULL ? ref : "?");
        return verify_schema_value(c, there, value);
    }
    if (strcmp(keyword, "allOf") == 0 || strcmp(keyword, "anyOf") == 0 ||
        strcmp(keyword, "oneOf") == 0)
        return verify_schema_combine(c, keyword, wish, value);
    if (strcmp(keyword, "not") == 0) {
        rc = verify_schema_fits(c, wish, value);
        if (rc == 1)
            verify_schema_wrong(c, "is what it must not be");
        return rc < 0 ? -1 : 1;
    }
    if (strcmp(keyword, "if") == 0)
        return verify_schema_if(c, schema, value);
    if (strcmp(keyword, "prefixItems") == 0 || strcmp(keyword, "items") == 0 ||
        strcmp(keyword, "contains") == 0)
        return verify_schema_items(c, schema, keyword, wish, value);
    if (strcmp(keyword, "required") == 0)
        return json_is_object(value) ? verify_schema_required(c, wish, value, NULL) : 1;
    if (verify_schema_listed(keyword))
        return 1;
    return err_set(c->err, ERR_INVALID, 0, "the schema's keyword %.60s is not understood", keyword);
}

int verify_schema_value(struct verify_schema_check *c, const json_t *schema, const json_t *value) {
    const char *keyword;
    json_t *wish;
    int rc = 0;
    if (++c->steps > VERIFY_SCHEMA_STEPS_MAX)
        return err_set(c->err, ERR_LIMIT, 0, "the schema needs too many steps for this value");
    if (json_is_boolean(schema)) {
        if (json_is_false(schema))
            verify_schema_wrong(c, "must not be there");
        return 0;
    }
    if (!json_is_object(schema))
        return err_set(c->err, ERR_INVALID, 0, "a schema must be an object, true or false");
    if (++c->depth > VERIFY_SCHEMA_DEPTH_MAX) {
        c->depth--;
        return err_set(c->err, ERR_LIMIT, 0, "the schema nests, or refers to itself, too deep");
    }
    json_object_foreach((json_t *)(uintptr_t)schema, keyword, wish) {
        if (verify_schema_keyword(c, schema, keyword, wish, value) < 0) {
            rc = -1;
            break;
        }
    }
    if (rc == 0)
        rc = verify_schema_object(c, schema, value);
    c->depth--;
    return rc;
}

/* The verifier. */

static int verify_schema_load(const struct verify_args *args, const char *file, json_t **out,
                              struct err *err) {
    struct buf text;
    json_error_t why = {.line = 0};
    int rc = verify_read(args, file, &text, err);
    *out = NULL;
    if (rc == 0) {
        *out = json_loadb(text.data != NULL ? text.data : "", text.len,
                          JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
        if (*out == NULL)
            err_set(err, ERR_PROTOCOL, why.line, "is no JSON: %s", why.text);
    }
    buf_done(&text);
    return *out == NULL ? -1 : 0;
}

static int verify_schema_one(const struct verify_args *args, const json_t *schema, const char *file,
                             struct verify_report *report, struct err *err) {
    json_t *value;
    if (verify_schema_load(args, file, &value, err) < 0) {
        if (err->kind != ERR_PROTOCOL)
            return -1;
        verify_fail(report, "/", file, (uint64_t)(err->code > 0 ? err->code : 0), "%s", err->text);
        return 0;
    }
    struct verify_schema_check check = {.root = schema, .file = file, .report = report, .err = err};
    int rc = verify_schema_value(&check, schema, value);
    if (rc == 0 && check.wrong == 0)
        report->passed++;
    json_decref(value);
    return rc;
}

static int verify_schema_run(const struct verify_args *args, struct verify_report *report,
                             struct err *err) {
    const char *file = verify_arg(args, "schema");
    json_t *schema;
    int rc = 0;
    if (verify_schema_load(args, file, &schema, err) < 0)
        return err->kind == ERR_PROTOCOL ? err_wrap(err, "%s", file) : -1;
    for (size_t n = 0; rc == 0 && verify_arg_nth(args, "file", n) != NULL; n++)
        rc = verify_schema_one(args, schema, verify_arg_nth(args, "file", n), report, err);
    json_decref(schema);
    return rc;
}

static const struct verify_key verify_schema_keys[] = {
    {"schema", true, false, "the JSON Schema (draft 2020-12)"},
    {"file", true, true, "the JSON that must fit it"},
    {0},
};

const struct verifier verify_schema = {
    .name = "json-schema",
    .about = "JSON files fit a JSON Schema",
    .keys = verify_schema_keys,
    .run = verify_schema_run,
};
