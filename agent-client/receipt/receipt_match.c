#include "receipt_match.h"

#include <jansson.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "receipt.h"
#include "text.h"

#define RECEIPT_MATCH_DATA_MAX ((size_t)256 * 1024 * 1024)
#define RECEIPT_MATCH_FILES_MAX 4096u

void receipt_match_init(struct receipt_match *m) {
    buf_init(&m->text, RECEIPT_MATCH_TEXT_MAX);
    m->count = 0;
}

void receipt_match_done(struct receipt_match *m) {
    buf_done(&m->text);
}

void receipt_match_say(struct receipt_match *m, const char *fmt, ...) {
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    m->count++;
    (void)buf_printf(&m->text, NULL, "%s\n", line);
}

/* Two values of the same kind that must be equal; one that is missing on both sides is. */
static void receipt_match_value(struct receipt_match *m, const char *where, const char *what,
                                const json_t *shown, const json_t *signed_) {
    static const char *const kinds[] = {"an object", "a list",      "text", "a number",
                                        "a number",  "a yes or no", "yes",  "nothing"};

    if (json_is_null(shown))
        shown = NULL;
    if (shown == NULL && signed_ == NULL)
        return;
    if (shown != NULL && signed_ != NULL &&
        json_equal((json_t *)(uintptr_t)shown, (json_t *)(uintptr_t)signed_))
        return;
    if (shown == NULL)
        receipt_match_say(m, "%s%s: the answer does not show what the receipt says", where, what);
    else if (json_is_string(shown) && json_is_string(signed_))
        receipt_match_say(m, "%s%s: the answer shows \"%.200s\", the receipt says \"%.200s\"",
                          where, what, json_string_value(shown), json_string_value(signed_));
    else if (json_is_integer(shown) && json_is_integer(signed_))
        receipt_match_say(m,
                          "%s%s: the answer shows %" JSON_INTEGER_FORMAT
                          ", the receipt says %" JSON_INTEGER_FORMAT,
                          where, what, json_integer_value(shown), json_integer_value(signed_));
    else
        receipt_match_say(m, "%s%s: the answer shows %s, the receipt says something else", where,
                          what, kinds[json_typeof(shown)]);
}

static void receipt_match_member(struct receipt_match *m, const char *where, const char *key,
                                 const json_t *shown, const json_t *signed_) {
    receipt_match_value(m, where, key, json_object_get(shown, key), json_object_get(signed_, key));
}

/* A yes or no of the answer is 1 or 0 in the receipt. */
static void receipt_match_flag(struct receipt_match *m, const char *where, const char *key,
                               const json_t *shown, const json_t *signed_) {
    const json_t *flag = json_object_get(shown, key);
    json_int_t wanted = json_integer_value(json_object_get(signed_, key));

    if (!json_is_boolean(flag) || json_is_true(flag) != (wanted == 1))
        receipt_match_say(m, "%s%s: the answer does not say %s, as the receipt does", where, key,
                          wanted == 1 ? "true" : "false");
}

static void receipt_match_output(struct receipt_match *m, const char *where, const char *key,
                                 const json_t *shown, const json_t *signed_) {
    char name[32], hex[65];
    uint8_t hash[32];
    const json_t *output = json_object_get(signed_, key);
    const char *wanted = json_string_value(json_object_get(output, "sha256"));
    struct buf data;

    snprintf(name, sizeof(name), "%s_bytes", key);
    receipt_match_value(m, where, name, json_object_get(shown, name),
                        json_object_get(output, "bytes"));
    snprintf(name, sizeof(name), "%s_omitted", key);
    receipt_match_value(m, where, name, json_object_get(shown, name),
                        json_object_get(output, "omitted"));
    if (output == NULL && json_object_get(shown, key) == NULL)
        return;
    buf_init(&data, RECEIPT_MATCH_DATA_MAX);
    if (text_from_json(shown, key, &data, NULL) < 0) {
        receipt_match_say(m, "%s%s: the answer does not show it", where, key);
    } else {
        crypto_hash_sha256(hash, (const unsigned char *)(data.data != NULL ? data.data : ""),
                           data.len);
        receipt_hex(hash, sizeof(hash), hex);
        if (wanted == NULL || strcmp(hex, wanted) != 0)
            receipt_match_say(m, "%s%s is not what the program wrote (its digest is another)",
                              where, key);
    }
    buf_done(&data);
}

static void receipt_match_step(struct receipt_match *m, size_t index, const json_t *shown,
                               const json_t *signed_) {
    static const char *const ends[] = {"cause", "exit_code", "signal", "limit", "observed"};
    static const char *const usage[] = {"wall_ms", "cpu_user_ms", "cpu_system_ms",
                                        "mem_peak_bytes"};
    char where[48];

    snprintf(where, sizeof(where), "step %zu: ", index + 1);
    receipt_match_member(m, where, "name", shown, signed_);
    receipt_match_member(m, where, "state", shown, signed_);
    receipt_match_flag(m, where, "ok", shown, signed_);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        receipt_match_member(m, where, ends[i], json_object_get(shown, "end"),
                             json_object_get(signed_, "end"));
    for (size_t i = 0; i < sizeof(usage) / sizeof(usage[0]); i++)
        receipt_match_member(m, where, usage[i], json_object_get(shown, "usage"),
                             json_object_get(signed_, "usage"));
    receipt_match_output(m, where, "stdout", shown, signed_);
    receipt_match_output(m, where, "stderr", shown, signed_);
}

static void receipt_match_limits(struct receipt_match *m, const json_t *shown,
                                 const json_t *signed_) {
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)signed_, key, value) receipt_match_value(
        m, "limits: ", key, json_object_get(json_object_get(shown, key), "value"), value);
    if (json_object_size(shown) != json_object_size(signed_))
        receipt_match_say(m, "limits: the answer and the receipt have different ones");
}

/* Collected files. */

/* What a file of the answer is, its path and contents in `data`. False: it is no file. */
static bool receipt_match_file(const json_t *shown, struct receipt_file *f, struct buf *path,
                               struct buf *data) {
    const char *error = json_string_value(json_object_get(shown, "error"));
    const char *mode = json_string_value(json_object_get(shown, "mode"));
    const char *encoding = json_string_value(json_object_get(shown, "encoding"));
    const json_t *content = json_object_get(shown, "content");
    size_t size = 0;

    if (text_from_json(shown, "path", path, NULL) < 0)
        return false;
    *f = (struct receipt_file){
        .path = path->data != NULL ? path->data : "", .path_len = path->len, .error = error};
    if (error != NULL)
        return true;
    if (!json_is_string(content) || mode == NULL)
        return false;
    const char *text = json_string_value(content);
    size_t len = json_string_length(content);
    f->mode = (uint32_t)strtoul(mode, NULL, 8);
    if (encoding != NULL && strcmp(encoding, "base64") == 0) {
        char *to = buf_reserve(data, len / 4 * 3 + 4, NULL);
        if (to == NULL || text_base64_decode(text, len, to, &size, NULL) < 0)
            return false;
        text = to;
        len = size;
    }
    f->size = len;
    crypto_hash_sha256(f->sha256, (const unsigned char *)text, len);
    return true;
}

static void receipt_match_root(struct receipt_match *m, const struct receipt_file *files,
                               size_t count, const json_t *signed_) {
    const char *wanted = json_string_value(json_object_get(signed_, "sha256"));
    uint8_t root[32];
    char hex[65];

    receipt_files_root(files, count, root);
    receipt_hex(root, sizeof(root), hex);
    if (wanted == NULL || strcmp(hex, wanted) != 0)
        receipt_match_say(m, "files: the answer's are not those that came out (names, modes or "
                             "contents differ)");
}

/* The list names the one that differs. */
static void receipt_match_listed(struct receipt_match *m, const struct receipt_file *f,
                                 const json_t *list) {
    size_t i;
    json_t *one;
    char hex[65];

    if (f->error != NULL)
        return;
    receipt_hex(f->sha256, sizeof(f->sha256), hex);
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const char *path = json_string_value(json_object_get(one, "path"));
        const char *sha256 = json_string_value(json_object_get(one, "sha256"));
        if (path == NULL || strlen(path) != f->path_len || memcmp(path, f->path, f->path_len) != 0)
            continue;
        if (sha256 == NULL || strcmp(sha256, hex) != 0)
            receipt_match_say(m, "file %.200s: its contents are not those that came out", path);
    }
}

static void receipt_match_collected(struct receipt_match *m, const json_t *shown,
                                    const json_t *signed_) {
    size_t count = json_array_size(shown), made = 0;
    struct receipt_file *files = NULL;
    struct buf *paths = NULL, data;

    if ((json_int_t)count != json_integer_value(json_object_get(signed_, "count"))) {
        receipt_match_say(m, "files: the answer has %zu, the receipt says %" JSON_INTEGER_FORMAT,
                          count, json_integer_value(json_object_get(signed_, "count")));
        return;
    }
    if (count <= RECEIPT_MATCH_FILES_MAX) {
        files = calloc(count + 1, sizeof(*files));
        paths = calloc(count + 1, sizeof(*paths));
    }
    buf_init(&data, RECEIPT_MATCH_DATA_MAX);
    for (; files != NULL && paths != NULL && made < count; made++) {
        buf_init(&paths[made], 65536);
        buf_clear(&data);
        if (!receipt_match_file(json_array_get(shown, made), &files[made], &paths[made], &data)) {
            receipt_match_say(m, "files: number %zu of the answer is no file", made + 1);
            files[made] = (struct receipt_file){.path = "", .error = "none"};
        }
        receipt_match_listed(m, &files[made], json_object_get(signed_, "list"));
    }
    if (made == count && files != NULL && paths != NULL) {
        receipt_files_sort(files, count);
        receipt_match_root(m, files, count, signed_);
    } else {
        receipt_match_say(m, "files: too many to be checked");
    }
    for (size_t i = 0; paths != NULL && i <= made && i <= count; i++)
        buf_done(&paths[i]);
    buf_done(&data);
    free(paths);
    free(files);
}

void receipt_match_answer(struct receipt_match *m, const json_t *answer, const json_t *body) {
    const json_t *shown = json_object_get(answer, "steps"),
                 *signed_ = json_object_get(body, "steps");
    const char *state = json_string_value(json_object_get(answer, "state"));

    receipt_match_member(m, "", "id", answer, body);
    if (state == NULL || strcmp(state, "done") != 0)
        receipt_match_say(m, "state: the answer is not that of a run that is done");
    receipt_match_flag(m, "", "ok", answer, body);
    receipt_match_member(m, "", "created_at", answer, body);
    receipt_match_member(m, "policy: ", "name", json_object_get(answer, "policy"),
                         json_object_get(body, "policy"));
    receipt_match_member(m, "policy: ", "sha256", json_object_get(answer, "policy"),
                         json_object_get(body, "policy"));
    receipt_match_value(m, "", "image", json_object_get(answer, "image"),
                        json_object_get(json_object_get(body, "image"), "name"));
    receipt_match_value(m, "", "network",
                        json_object_get(json_object_get(answer, "network"), "mode"),
                        json_object_get(body, "network"));
    receipt_match_limits(m, json_object_get(answer, "limits"), json_object_get(body, "limits"));
    if (json_array_size(shown) != json_array_size(signed_))
        receipt_match_say(m, "steps: the answer has %zu, the receipt %zu", json_array_size(shown),
                          json_array_size(signed_));
    for (size_t i = 0; i < json_array_size(shown) && i < json_array_size(signed_); i++)
        receipt_match_step(m, i, json_array_get(shown, i), json_array_get(signed_, i));
    receipt_match_collected(m, json_object_get(answer, "files"),
                            json_object_get(body, "files_out"));
}
