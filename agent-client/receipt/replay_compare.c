#include "replay_compare.h"

#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "receipt.h"
#include "text.h"

#define REPLAY_COMPARE_DATA_MAX ((size_t)256 * 1024 * 1024)
/* Digits of a digest that people are shown; all of them are compared. */
#define REPLAY_COMPARE_SHOWN 12

/* What is compared of one thing: the words for people, and everything that must be equal. */
struct replay_compare_side {
    char words[REPLAY_COMPARE_CELL];
    char exact[256];
};

/* Copies text and cuts it between two characters. */
static void replay_compare_copy(char dst[REPLAY_COMPARE_CELL], const char *text) {
    snprintf(dst, REPLAY_COMPARE_CELL, "%s", text);
    dst[text_utf8_prefix(dst, strlen(dst), NULL)] = '\0';
}

static int replay_compare_add(struct replay_compare *c, const char *what,
                              const struct replay_compare_side *before,
                              const struct replay_compare_side *now, struct err *err) {
    if (c->count == c->alloc) {
        size_t alloc = c->alloc == 0 ? 32 : 2 * c->alloc;
        struct replay_compare_row *more = realloc(c->rows, alloc * sizeof(*more));
        if (more == NULL)
            return err_set(err, ERR_SYSTEM, 0, "out of memory");
        c->rows = more;
        c->alloc = alloc;
    }
    struct replay_compare_row *row = &c->rows[c->count++];
    replay_compare_copy(row->what, what);
    replay_compare_copy(row->before, before->words);
    replay_compare_copy(row->now, now->words);
    row->equal = strcmp(before->exact, now->exact) == 0;
    c->equal = c->equal && row->equal;
    return 0;
}

static void replay_compare_none(struct replay_compare_side *s) {
    snprintf(s->words, sizeof(s->words), "-");
    snprintf(s->exact, sizeof(s->exact), "-");
}

static void replay_compare_end(const json_t *step, struct replay_compare_side *s) {
    const json_t *end = json_object_get(step, "end");
    const char *cause = json_string_value(json_object_get(end, "cause"));
    const char *state = json_string_value(json_object_get(step, "state"));
    const json_t *code = json_object_get(end, "exit_code"), *sig = json_object_get(end, "signal");

    if (step == NULL) {
        replay_compare_none(s);
        return;
    }
    if (cause == NULL)
        snprintf(s->words, sizeof(s->words), "%.40s", state != NULL ? state : "?");
    else if (json_is_integer(code))
        snprintf(s->words, sizeof(s->words), "%.40s %" JSON_INTEGER_FORMAT, cause,
                 json_integer_value(code));
    else if (json_is_integer(sig))
        snprintf(s->words, sizeof(s->words), "%.40s (signal %" JSON_INTEGER_FORMAT ")", cause,
                 json_integer_value(sig));
    else
        snprintf(s->words, sizeof(s->words), "%.40s", cause);
    snprintf(s->exact, sizeof(s->exact), "%s", s->words);
}

static void replay_compare_bytes(const void *data, size_t len, json_int_t total, const char *more,
                                 struct replay_compare_side *s) {
    uint8_t hash[32];
    char hex[65];

    crypto_hash_sha256(hash, data, len);
    receipt_hex(hash, sizeof(hash), hex);
    snprintf(s->words, sizeof(s->words), "%" JSON_INTEGER_FORMAT " bytes, %.*s%.40s", total,
             REPLAY_COMPARE_SHOWN, hex, more);
    snprintf(s->exact, sizeof(s->exact), "%" JSON_INTEGER_FORMAT " %s%.40s", total, hex, more);
}

static void replay_compare_output(const json_t *step, const char *key,
                                  struct replay_compare_side *s) {
    char name[32];
    struct buf data;

    snprintf(name, sizeof(name), "%s_bytes", key);
    const json_t *bytes = json_object_get(step, name);
    buf_init(&data, REPLAY_COMPARE_DATA_MAX);
    if (!json_is_integer(bytes) || text_from_json(step, key, &data, NULL) < 0)
        replay_compare_none(s);
    else
        replay_compare_bytes(data.data != NULL ? data.data : "", data.len,
                             json_integer_value(bytes), "", s);
    buf_done(&data);
}

static int replay_compare_step(struct replay_compare *c, size_t index, const json_t *before,
                               const json_t *now, struct err *err) {
    static const char *const outputs[] = {"stdout", "stderr"};
    struct replay_compare_side a = {0}, b = {0};
    char what[REPLAY_COMPARE_CELL];
    const char *name = json_string_value(json_object_get(before != NULL ? before : now, "name"));

    replay_compare_end(before, &a);
    replay_compare_end(now, &b);
    snprintf(what, sizeof(what), "step %zu %.60s", index + 1, name != NULL ? name : "");
    if (replay_compare_add(c, what, &a, &b, err) < 0)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        replay_compare_output(before, outputs[i], &a);
        replay_compare_output(now, outputs[i], &b);
        snprintf(what, sizeof(what), "step %zu %s", index + 1, outputs[i]);
        if (strcmp(a.exact, "-") == 0 && strcmp(b.exact, "-") == 0)
            continue;
        if (replay_compare_add(c, what, &a, &b, err) < 0)
            return -1;
    }
    return 0;
}

/* Files, by their name. */

static void replay_compare_file(const json_t *file, struct replay_compare_side *s) {
    const char *error = json_string_value(json_object_get(file, "error"));
    const char *mode = json_string_value(json_object_get(file, "mode"));
    const char *encoding = json_string_value(json_object_get(file, "encoding"));
    const json_t *content = json_object_get(file, "content");
    char more[48];

    if (file == NULL) {
        replay_compare_none(s);
    } else if (error != NULL || !json_is_string(content)) {
        snprintf(s->words, sizeof(s->words), "%.60s", error != NULL ? error : "?");
        snprintf(s->exact, sizeof(s->exact), "%s", s->words);
    } else {
        /* The same bytes have the same text and encoding: they need not be decoded. */
        snprintf(more, sizeof(more), ", %.8s%s", mode != NULL ? mode : "",
                 encoding != NULL && strcmp(encoding, "base64") == 0 ? " (binary)" : "");
        replay_compare_bytes(json_string_value(content), json_string_length(content),
                             json_integer_value(json_object_get(file, "size")), more, s);
    }
}

static const json_t *replay_compare_find(const json_t *files, const char *path) {
    size_t i;
    json_t *one;

    json_array_foreach((json_t *)(uintptr_t)files, i, one) {
        const char *name = json_string_value(json_object_get(one, "path"));
        if (name != NULL && strcmp(name, path) == 0)
            return one;
    }
    return NULL;
}

static int replay_compare_files(struct replay_compare *c, const json_t *before, const json_t *now,
                                bool only_new, struct err *err) {
    size_t i;
    json_t *one;

    json_array_foreach((json_t *)(uintptr_t)(only_new ? now : before), i, one) {
        const char *path = json_string_value(json_object_get(one, "path"));
        struct replay_compare_side a = {0}, b = {0};
        char what[REPLAY_COMPARE_CELL];
        if (path == NULL || (only_new && replay_compare_find(before, path) != NULL))
            continue;
        replay_compare_file(only_new ? NULL : one, &a);
        replay_compare_file(only_new ? one : replay_compare_find(now, path), &b);
        snprintf(what, sizeof(what), "file %.100s", path);
        if (replay_compare_add(c, what, &a, &b, err) < 0)
            return -1;
    }
    return 0;
}

int replay_compare_make(struct replay_compare *c, const json_t *before, const json_t *now,
                        struct err *err) {
    const json_t *a = json_object_get(before, "steps"), *b = json_object_get(now, "steps");
    size_t steps =
        json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);

    memset(c, 0, sizeof(*c));
    c->equal = true;
    for (size_t i = 0; i < steps; i++)
        if (replay_compare_step(c, i, json_array_get(a, i), json_array_get(b, i), err) < 0)
            return -1;
    a = json_object_get(before, "files");
    b = json_object_get(now, "files");
    if (replay_compare_files(c, a, b, false, err) < 0)
        return -1;
    return replay_compare_files(c, a, b, true, err);
}

void replay_compare_done(struct replay_compare *c) {
    free(c->rows);
    memset(c, 0, sizeof(*c));
}
