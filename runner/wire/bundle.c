#include "bundle.h"

#include <stdbool.h>
#include <string.h>

#define BUNDLE_NAME_MAX 255u /* NAME_MAX: one component */

const char *bundle_code_name(uint32_t code) {
    static const char *const names[BUNDLE_CODES] = {
        [BUNDLE_OK] = "ok",
        [BUNDLE_NOT_FOUND] = "not_found",
        [BUNDLE_NOT_REGULAR] = "not_regular",
        [BUNDLE_TOO_LARGE] = "too_large",
        [BUNDLE_TOO_MANY] = "too_many",
        [BUNDLE_DENIED] = "denied",
        [BUNDLE_CHANGED] = "changed",
        [BUNDLE_IO] = "io",
    };
    return code < BUNDLE_CODES ? names[code] : NULL;
}

int bundle_path_ok(const char *path, size_t len) {
    if (len < 1 || len > BUNDLE_PATH_MAX || memchr(path, '\0', len))
        return 0;
    size_t start = 0;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        size_t n = i - start;
        const char *name = path + start;
        bool dots = (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.');
        /* An empty component is a leading, doubled or trailing slash. */
        if (n == 0 || n > BUNDLE_NAME_MAX || dots)
            return 0;
        start = i + 1;
    }
    return 1;
}

int bundle_check(const struct bundle_record *rec, struct err *err) {
    const char *wrong = NULL;
    if (rec->magic != BUNDLE_MAGIC)
        wrong = "a bundle record does not start like one";
    else if (rec->reserved)
        wrong = "a bundle record has reserved bytes that are not zero";
    else if (rec->type == BUNDLE_FILE) {
        if (rec->mode > 0777 || rec->code || rec->path_len < 1 || rec->path_len > BUNDLE_PATH_MAX)
            wrong = "a file record of a bundle is out of bounds";
    } else if (rec->type == BUNDLE_ERROR) {
        if (rec->mode || rec->size || rec->code < 1 || rec->code >= BUNDLE_CODES ||
            rec->path_len < 1 || rec->path_len > BUNDLE_PATH_MAX)
            wrong = "an error record of a bundle is out of bounds";
    } else if (rec->type == BUNDLE_END) {
        if (rec->mode || rec->size || rec->code || rec->path_len)
            wrong = "the end record of a bundle is not empty";
    } else {
        wrong = "a bundle record has an unknown type";
    }
    return wrong ? err_plain(err, ERR_PROTOCOL, 0, wrong) : 0;
}

/* The path of a file must be safe; that of an error may be a pattern, so anything but a NUL. */
static bool bundle_path_fits(const struct bundle_record *rec, const char *path) {
    if (rec->type == BUNDLE_FILE)
        return bundle_path_ok(path, rec->path_len);
    return !rec->path_len || !memchr(path, '\0', rec->path_len);
}

/* Fills in magic and path_len. */
static int bundle_append(struct buf *out, struct bundle_record *rec, const char *path,
                         size_t path_len, const void *data, struct err *err) {
    rec->magic = BUNDLE_MAGIC;
    rec->path_len = path_len > BUNDLE_PATH_MAX ? BUNDLE_PATH_MAX + 1 : (uint32_t)path_len;
    if (bundle_check(rec, err) < 0 || !bundle_path_fits(rec, path))
        return err_plain(err, ERR_INVALID, 0, "a bundle cannot hold such a record");
    size_t before = out->len;
    if (buf_append(out, rec, sizeof(*rec), err) < 0 || buf_append(out, path, path_len, err) < 0 ||
        buf_append(out, data, rec->size, err) < 0) {
        if (out->len != before) {
            out->len = before;
            out->data[before] = '\0';
        }
        return -1;
    }
    return 0;
}

int bundle_file(struct buf *out, uint32_t mode, const char *path, size_t path_len, const void *data,
                size_t size, struct err *err) {
    struct bundle_record rec = {.type = BUNDLE_FILE, .mode = mode, .size = size};
    return bundle_append(out, &rec, path, path_len, data, err);
}

int bundle_error(struct buf *out, enum bundle_code code, const char *path, size_t path_len,
                 struct err *err) {
    struct bundle_record rec = {.type = BUNDLE_ERROR, .code = code};
    return bundle_append(out, &rec, path, path_len, NULL, err);
}

int bundle_end(struct buf *out, struct err *err) {
    struct bundle_record rec = {.type = BUNDLE_END};
    return bundle_append(out, &rec, NULL, 0, NULL, err);
}

int bundle_next(const char *bytes, size_t len, size_t *pos, struct bundle_record *rec,
                const char **path, const char **data, struct err *err) {
    struct bundle_record r;
    size_t at = *pos;
    if (at > len || len - at < sizeof(r))
        return err_plain(err, ERR_PROTOCOL, 0, "a bundle was cut short");
    memcpy(&r, bytes + at, sizeof(r));
    if (bundle_check(&r, err) < 0)
        return -1;
    at += sizeof(r);
    if (len - at < r.path_len || len - at - r.path_len < r.size)
        return err_plain(err, ERR_PROTOCOL, 0, "a bundle was cut short within a record");
    if (!bundle_path_fits(&r, bytes + at))
        return err_plain(err, ERR_PROTOCOL, 0, "a bundle has a path that is not safe");
    if (r.type == BUNDLE_END && at != len)
        return err_plain(err, ERR_PROTOCOL, 0, "a bundle goes on after its end");
    *rec = r;
    *path = bytes + at;
    *data = bytes + at + r.path_len;
    *pos = at + r.path_len + (size_t)r.size;
    return r.type == BUNDLE_END ? 0 : 1;
}
