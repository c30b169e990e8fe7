#include "sync_request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "json_in.h"
#include "text.h"

#define SYNC_ROOT_DEFAULT "/workspace"
#define SYNC_FIRST 64u

struct sync_reader {
    struct json_in in;
    struct api_error *error;
    struct sync_entry *entries;
    size_t count, alloc;
};

/* Fields of an entry, as bits: which of them were there. */
enum sync_field {
    SYNC_PATH = 1,
    SYNC_PATH_BASE64 = 2,
    SYNC_TYPE = 4,
    SYNC_MODE = 8,
    SYNC_SIZE = 16,
    SYNC_SHA256 = 32,
    SYNC_TARGET = 64,
    SYNC_TARGET_BASE64 = 128,
};

static const struct {
    const char *name;
    enum sync_field bit;
} sync_fields[] = {
    {"path", SYNC_PATH},     {"path_base64", SYNC_PATH_BASE64},
    {"type", SYNC_TYPE},     {"mode", SYNC_MODE},
    {"size", SYNC_SIZE},     {"sha256", SYNC_SHA256},
    {"target", SYNC_TARGET}, {"target_base64", SYNC_TARGET_BASE64},
};

int sync_path_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t n = a_len < b_len ? a_len : b_len, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    if (i == n)
        return (a_len > b_len) - (a_len < b_len);
    unsigned x = a[i] == '/' ? 0 : (unsigned)(unsigned char)a[i] + 1;
    unsigned y = b[i] == '/' ? 0 : (unsigned)(unsigned char)b[i] + 1;
    return x < y ? -1 : 1;
}

bool sync_path_below(const char *path, size_t path_len, const char *dir, size_t dir_len) {
    return path_len > dir_len && path[dir_len] == '/' && memcmp(path, dir, dir_len) == 0;
}

bool sync_root_ok(const char *root, size_t len) {
    static const char *const tops[] = {"/workspace", "/home/user", "/tmp", "/var/tmp"};
    if (len < 2 || root[0] != '/' || !bundle_path_ok(root + 1, len - 1))
        return false;
    for (size_t i = 0; i < sizeof(tops) / sizeof(tops[0]); i++) {
        size_t n = strlen(tops[i]);
        if (len >= n && memcmp(root, tops[i], n) == 0 && (len == n || root[n] == '/'))
            return true;
    }
    return false;
}

/* Digits come in no order that a processor could guess: without branches, ten times as fast. */
int sync_sha256_parse(const char *hex, size_t len, unsigned char sha256[SYNC_SHA256_SIZE]) {
    unsigned char out[SYNC_SHA256_SIZE];
    unsigned bad = 0;
    if (len != sizeof(out) * 2)
        return -1;
    for (size_t i = 0; i < len; i += 2) {
        unsigned pair = 0;
        for (size_t k = i; k < i + 2; k++) {
            unsigned c = (unsigned char)hex[k];
            unsigned digit = c - '0', letter = c - 'a';
            unsigned is_digit = digit < 10, is_letter = letter < 6;
            bad |= (is_digit | is_letter) ^ 1u;
            pair = pair << 4 | (((0u - is_digit) & digit) | ((0u - is_letter) & (letter + 10)));
        }
        out[i / 2] = (unsigned char)pair;
    }
    if (bad)
        return -1;
    memcpy(sha256, out, sizeof(out));
    return 0;
}

void sync_sha256_text(const unsigned char sha256[SYNC_SHA256_SIZE],
                      char hex[2 * SYNC_SHA256_SIZE + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SYNC_SHA256_SIZE; i++) {
        hex[2 * i] = digits[sha256[i] >> 4];
        hex[2 * i + 1] = digits[sha256[i] & 15];
    }
    hex[2 * SYNC_SHA256_SIZE] = '\0';
}

/* Errors. */

static int sync_request_bad(struct sync_reader *r) {
    return api_error_set(r->error, 400, "bad_json", NULL,
                         "The body is not the JSON that is wanted here: %s (at byte %zu).",
                         r->in.wrong ? r->in.wrong : "it ends too early", r->in.pos);
}

static int sync_request_no(struct sync_reader *r, size_t index, const char *key, const char *code,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* `key` "" = the entry itself. */
static int sync_request_no(struct sync_reader *r, size_t index, const char *key, const char *code,
                           const char *fmt, ...) {
    char field[API_ERROR_FIELD_MAX], text[API_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)snprintf(field, sizeof(field), "/entries/%zu%s%.100s", index, key[0] ? "/" : "", key);
    return api_error_set(r->error, 400, code, field, "entries[%zu]%s%.100s %s", index,
                         key[0] ? "." : "", key, text);
}

static int sync_request_top(struct sync_reader *r, const char *key, const char *code,
                            const char *text) {
    char field[API_ERROR_FIELD_MAX];
    (void)snprintf(field, sizeof(field), "/%.200s", key);
    return api_error_set(r->error, 400, code, field, "%.200s %s", key, text);
}

/* Values of an entry. Each reads r->in; `e` is the entry, whose place is e->index. */

static int sync_request_text(struct sync_reader *r, const struct sync_entry *e, const char *key,
                             const char **text, size_t *len) {
    if (json_in_peek(&r->in) != JSON_IN_STRING)
        return sync_request_no(r, e->index, key, "wrong_type", "must be a string.");
    return json_in_string(&r->in, text, len) == 0 ? 0 : sync_request_bad(r);
}

static int sync_request_type(struct sync_reader *r, struct sync_entry *e) {
    const char *text;
    size_t len;
    if (sync_request_text(r, e, "type", &text, &len) != 0)
        return -1;
    if (strcmp(text, "file") == 0)
        e->kind = FILEOP_FILE;
    else if (strcmp(text, "directory") == 0)
        e->kind = FILEOP_DIRECTORY;
    else if (strcmp(text, "symlink") == 0)
        e->kind = FILEOP_SYMLINK;
    else
        return sync_request_no(r, e->index, "type", "invalid_value",
                               "must be \"file\", \"directory\" or \"symlink\".");
    return 0;
}

/* "0644", or the number 420. Set-id and sticky bits are dropped: they have no use in a jail. */
static int sync_request_mode(struct sync_reader *r, struct sync_entry *e) {
    static const char rule[] = "must be an octal string such as \"0644\", or a number up to 4095.";
    enum json_in_type type = json_in_peek(&r->in);
    uint64_t bits = 0;
    if (type == JSON_IN_NUMBER) {
        if (json_in_u64(&r->in, &bits) != 0 || bits > 07777)
            return sync_request_no(r, e->index, "mode", "out_of_range", "%s", rule);
    } else {
        const char *text;
        size_t len;
        if (type != JSON_IN_STRING)
            return sync_request_no(r, e->index, "mode", "wrong_type", "%s", rule);
        if (json_in_string(&r->in, &text, &len) != 0)
            return sync_request_bad(r);
        if (len < 3 || len > 5 || strspn(text, "01234567") != len)
            return sync_request_no(r, e->index, "mode", "invalid_value", "%s", rule);
        bits = strtoul(text, NULL, 8);
        if (bits > 07777)
            return sync_request_no(r, e->index, "mode", "out_of_range", "%s", rule);
    }
    e->mode = (uint32_t)bits & 0777u;
    return 0;
}

static int sync_request_size(struct sync_reader *r, struct sync_entry *e) {
    if (json_in_peek(&r->in) != JSON_IN_NUMBER)
        return sync_request_no(r, e->index, "size", "wrong_type", "must be an integer.");
    if (json_in_u64(&r->in, &e->size) != 0 || e->size > SYNC_SIZE_MAX)
        return sync_request_no(r, e->index, "size", "out_of_range",
                               "must be a number of bytes, from 0 to %llu.",
                               (unsigned long long)SYNC_SIZE_MAX);
    return 0;
}

static int sync_request_sha256(struct sync_reader *r, struct sync_entry *e) {
    const char *text;
    size_t len;
    if (sync_request_text(r, e, "sha256", &text, &len) != 0)
        return -1;
    if (sync_sha256_parse(text, len, e->sha256) != 0)
        return sync_request_no(r, e->index, "sha256", "invalid_value",
                               "must be 64 hexadecimal digits, 0-9 and a-f.");
    return 0;
}

/* Text, or bytes as base64, which are decoded where they are. NULs are only in the latter. */
static int sync_request_bytes(struct sync_reader *r, const struct sync_entry *e, const char *key,
                              const char **out, uint32_t *out_len) {
    const char *text;
    size_t len;
    if (sync_request_text(r, e, key, &text, &len) != 0)
        return -1;
    if (strstr(key, "_base64")) {
        char *to = r->in.json + (text - r->in.json);
        char decoded[(FILEOP_PATH_MAX + 3) / 3 * 3 + 3];
        size_t size = 0;
        if (len > sizeof(decoded) / 3 * 4 || text_base64_decode(text, len, decoded, &size, NULL) ||
            memchr(decoded, '\0', size))
            return sync_request_no(r, e->index, key, "invalid_value",
                                   "must be base64 of at most %u bytes, none of them NUL.",
                                   FILEOP_PATH_MAX);
        memcpy(to, decoded, size); /* shorter than its text */
        to[size] = '\0';
        len = size;
    }
    if (len > FILEOP_PATH_MAX)
        return sync_request_no(r, e->index, key, "too_large", "has more than %u bytes.",
                               FILEOP_PATH_MAX);
    *out = text;
    *out_len = (uint32_t)len;
    return 0;
}

static int sync_request_field(struct sync_reader *r, struct sync_entry *e, enum sync_field bit,
                              const char *key) {
    switch (bit) {
    case SYNC_PATH:
    case SYNC_PATH_BASE64:
        return sync_request_bytes(r, e, key, &e->path, &e->path_len);
    case SYNC_TARGET:
    case SYNC_TARGET_BASE64:
        return sync_request_bytes(r, e, key, &e->target, &e->target_len);
    case SYNC_TYPE:
        return sync_request_type(r, e);
    case SYNC_MODE:
        return sync_request_mode(r, e);
    case SYNC_SIZE:
        return sync_request_size(r, e);
    case SYNC_SHA256:
        return sync_request_sha256(r, e);
    }
    return -1;
}

/* What an entry of this type must have, and must not have. */
static int sync_request_fits(struct sync_reader *r, struct sync_entry *e, unsigned seen) {
    static const char missing[] = "missing_field", conflict[] = "conflict";
    const unsigned target = SYNC_TARGET | SYNC_TARGET_BASE64;
    size_t i = e->index;
    if ((seen & (SYNC_PATH | SYNC_PATH_BASE64)) == 0)
        return sync_request_no(r, i, "path", missing, "is missing.");
    if ((seen & (SYNC_PATH | SYNC_PATH_BASE64)) == (SYNC_PATH | SYNC_PATH_BASE64) ||
        (seen & target) == target)
        return sync_request_no(r, i, "", conflict,
                               "has the same thing as text and as base64; one is enough.");
    if (!bundle_path_ok(e->path, e->path_len))
        return sync_request_no(r, i, seen & SYNC_PATH ? "path" : "path_base64", "invalid_value",
                               "must be relative to the root, without empty parts, \".\" and "
                               "\"..\", and without parts of more than 255 bytes.");
    if ((seen & SYNC_TYPE) == 0)
        return sync_request_no(r, i, "type", missing, "is missing.");
    if (e->kind == FILEOP_FILE && (seen & SYNC_SIZE) == 0)
        return sync_request_no(r, i, "size", missing, "is missing: a file has a size.");
    if (e->kind == FILEOP_FILE && (seen & SYNC_SHA256) == 0)
        return sync_request_no(r, i, "sha256", missing, "is missing: it names the contents.");
    if (e->kind == FILEOP_SYMLINK && ((seen & target) == 0 || e->target_len == 0))
        return sync_request_no(r, i, "target", missing, "is missing: a symbolic link has one.");
    if (e->kind != FILEOP_SYMLINK && (seen & target) != 0)
        return sync_request_no(r, i, "target", conflict, "is only for symbolic links.");
    if (e->kind != FILEOP_FILE && (seen & SYNC_SHA256) != 0)
        return sync_request_no(r, i, "sha256", conflict, "is only for files.");
    if (e->kind == FILEOP_SYMLINK) /* links have no mode of their own, … */
        e->mode = SYNC_MODE_ANY;
    if (e->kind != FILEOP_FILE) /* … and sizes of directories differ between file systems */
        e->size = 0;
    return 0;
}

static int sync_request_entry(struct sync_reader *r, struct sync_entry *e) {
    unsigned seen = 0;
    const char *key;
    size_t len;
    int rc;
    if (json_in_peek(&r->in) != JSON_IN_OBJECT)
        return sync_request_no(r, e->index, "", "wrong_type", "must be an object.");
    (void)json_in_open(&r->in, '{');
    while ((rc = json_in_key(&r->in, &key, &len)) > 0) {
        enum sync_field bit = 0;
        for (size_t i = 0; bit == 0 && i < sizeof(sync_fields) / sizeof(sync_fields[0]); i++)
            if (strcmp(sync_fields[i].name, key) == 0)
                bit = sync_fields[i].bit;
        if (bit == 0)
            return sync_request_no(r, e->index, key, "unknown_field", "is not a known field.");
        if ((seen & bit) != 0)
            return sync_request_no(r, e->index, key, "duplicate_field", "is there twice.");
        seen |= bit;
        if (sync_request_field(r, e, bit, key) != 0)
            return -1;
    }
    return rc < 0 ? sync_request_bad(r) : sync_request_fits(r, e, seen);
}

static struct sync_entry *sync_request_room(struct sync_entry *entries, size_t count,
                                            size_t *alloc) {
    if (count < *alloc)
        return entries;
    size_t more = *alloc == 0 ? SYNC_FIRST : *alloc * 2;
    struct sync_entry *grown = realloc(entries, more * sizeof(*grown));
    if (grown)
        *alloc = more;
    return grown;
}

static int sync_request_entries(struct sync_reader *r) {
    int rc;
    if (json_in_peek(&r->in) != JSON_IN_ARRAY)
        return sync_request_top(r, "entries", "wrong_type", "must be an array of objects.");
    (void)json_in_open(&r->in, '[');
    while ((rc = json_in_item(&r->in)) > 0) {
        if (r->count == SYNC_ENTRIES_MAX)
            return api_error_set(r->error, 413, "too_large", "/entries",
                                 "There may be at most %u entries.", SYNC_ENTRIES_MAX);
        struct sync_entry *entries = sync_request_room(r->entries, r->count, &r->alloc);
        if (!entries)
            return api_error_memory(r->error);
        r->entries = entries;
        struct sync_entry *e = &r->entries[r->count];
        *e = (struct sync_entry){
            .path = "", .target = "", .mode = SYNC_MODE_ANY, .index = (uint32_t)r->count};
        if (sync_request_entry(r, e) != 0)
            return -1;
        r->count++;
    }
    return rc < 0 ? sync_request_bad(r) : 0;
}

static int sync_request_flag(struct sync_reader *r, const char *key, bool *value) {
    enum json_in_type type = json_in_peek(&r->in);
    if (type != JSON_IN_TRUE && type != JSON_IN_FALSE)
        return sync_request_top(r, key, "wrong_type", "must be true or false.");
    return json_in_bool(&r->in, value) == 0 ? 0 : sync_request_bad(r);
}

static int sync_request_root(struct sync_reader *r, const char **root) {
    size_t len;
    if (json_in_peek(&r->in) != JSON_IN_STRING)
        return sync_request_top(r, "root", "wrong_type", "must be a string.");
    if (json_in_string(&r->in, root, &len) != 0)
        return sync_request_bad(r);
    if (!sync_root_ok(*root, len))
        return sync_request_top(r, "root", "invalid_value",
                                "must be /workspace, /home/user, /tmp, /var/tmp or a directory "
                                "below, without empty parts, \".\" and \"..\".");
    return 0;
}

static int sync_request_body(struct sync_reader *r, struct sync_request *out) {
    static const char *const names[] = {"root", "entries", "delete", "snapshot"};
    unsigned seen = 0;
    const char *key;
    size_t len;
    int rc;
    if (json_in_peek(&r->in) != JSON_IN_OBJECT)
        return api_error_set(r->error, 400, "bad_json", NULL, "The body must be a JSON object.");
    (void)json_in_open(&r->in, '{');
    while ((rc = json_in_key(&r->in, &key, &len)) > 0) {
        unsigned i = 0;
        while (i < 4 && strcmp(names[i], key) != 0)
            i++;
        if (i == 4)
            return sync_request_top(r, key, "unknown_field", "is not a known field.");
        if ((seen & (1u << i)) != 0)
            return sync_request_top(r, key, "duplicate_field", "is there twice.");
        seen |= 1u << i;
        if ((i == 0 && sync_request_root(r, &out->root) != 0) ||
            (i == 1 && sync_request_entries(r) != 0) ||
            (i == 2 && sync_request_flag(r, key, &out->delete) != 0) ||
            (i == 3 && sync_request_flag(r, key, &out->snapshot) != 0))
            return -1;
    }
    if (rc < 0 || json_in_end(&r->in) != 0)
        return sync_request_bad(r);
    if ((seen & 2) == 0)
        return sync_request_top(r, "entries", "missing_field", "is missing.");
    return 0;
}

/* The tree. */

static int sync_request_order(const void *a, const void *b) {
    const struct sync_entry *x = a, *y = b;
    int order = sync_path_compare(x->path, x->path_len, y->path, y->path_len);
    /* The later of two with the same path is the one to complain about. */
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

/* Most clients walk a tree in order: looking is cheaper than sorting. */
static void sync_request_sort(struct sync_entry *entries, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (sync_request_order(&entries[i - 1], &entries[i]) > 0) {
            qsort(entries, count, sizeof(*entries), sync_request_order);
            return;
        }
}

static int sync_request_tree(struct sync_reader *r) {
    for (size_t i = 1; i < r->count; i++) {
        const struct sync_entry *a = &r->entries[i - 1], *e = &r->entries[i];
        if (a->path_len == e->path_len && memcmp(a->path, e->path, e->path_len) == 0)
            return sync_request_no(r, e->index, "path", "invalid_value",
                                   "is the same as that of entries[%u].", a->index);
        if (a->kind != FILEOP_DIRECTORY &&
            sync_path_below(e->path, e->path_len, a->path, a->path_len))
            return sync_request_no(r, e->index, "path", "invalid_value",
                                   "is below entries[%u], which is not a directory.", a->index);
    }
    return 0;
}

/* Bytes of `path` that are a directory which `before`, the entry before it in order, is not and is
 * not below of: the next one after `from` (0 = first). 0: there is none. */
static size_t sync_request_parent(const struct sync_entry *before, const struct sync_entry *e,
                                  size_t from) {
    for (size_t at = from + 1; at < e->path_len; at++) {
        if (e->path[at] != '/')
            continue;
        bool known = before && before->path_len >= at && memcmp(before->path, e->path, at) == 0 &&
                     (before->path_len == at || before->path[at] == '/');
        if (!known)
            return at;
    }
    return 0;
}

/* Counts the directories that are only implied, and the bytes of their paths. */
static void sync_request_implied(const struct sync_reader *r, size_t *count, size_t *bytes) {
    for (size_t i = 0; i < r->count; i++) {
        const struct sync_entry *before = i > 0 ? &r->entries[i - 1] : NULL;
        size_t at = 0;
        while ((at = sync_request_parent(before, &r->entries[i], at)) > 0) {
            *count += 1;
            *bytes += at + 1;
        }
    }
}

static int sync_request_parents(struct sync_reader *r, char **extra) {
    size_t implied = 0, bytes = 0, n = 0;
    sync_request_implied(r, &implied, &bytes);
    if (implied == 0)
        return 0;
    if (implied > SYNC_ENTRIES_MAX || bytes > (size_t)SYNC_ENTRIES_MAX * 256)
        return api_error_set(r->error, 413, "too_large", "/entries",
                             "The entries have too many directories that are not named.");
    struct sync_entry *all = calloc(r->count + implied, sizeof(*all));
    char *text = malloc(bytes);
    if (!all || !text) {
        free(all);
        free(text);
        return api_error_memory(r->error);
    }
    *extra = text;
    for (size_t i = 0; i < r->count; i++) {
        const struct sync_entry *before = i > 0 ? &r->entries[i - 1] : NULL, *e = &r->entries[i];
        size_t at = 0;
        while ((at = sync_request_parent(before, e, at)) > 0) {
            memcpy(text, e->path, at);
            text[at] = '\0';
            all[n++] = (struct sync_entry){.path = text,
                                           .target = "",
                                           .path_len = (uint32_t)at,
                                           .mode = SYNC_MODE_ANY,
                                           .index = e->index,
                                           .kind = FILEOP_DIRECTORY,
                                           .implied = true};
            text += at + 1;
        }
        all[n++] = *e;
    }
    free(r->entries);
    r->entries = all;
    r->count = n;
    return 0;
}

int sync_request_decode(char *json, size_t len, struct sync_request *out, struct api_error *error) {
    struct sync_reader r = {.error = error};
    struct sync_request request = {.root = SYNC_ROOT_DEFAULT, .snapshot = true};
    json_in_init(&r.in, json, len);
    int rc = sync_request_body(&r, &request);
    if (rc == 0) {
        sync_request_sort(r.entries, r.count);
        rc = sync_request_tree(&r) != 0 || sync_request_parents(&r, &request.extra) != 0 ? -1 : 0;
    }
    if (rc != 0) {
        free(r.entries);
        free(request.extra);
        return -1;
    }
    request.entries = r.entries;
    request.count = r.count;
    request.json = json;
    *out = request;
    return 0;
}

void sync_request_done(struct sync_request *r) {
    if (!r)
        return;
    free(r->entries);
    free(r->extra);
    free(r->json);
    memset(r, 0, sizeof(*r));
}
