#include "collect_local.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "bundle.h"
#include "fd.h"
#include "local_tree.h"
#include "say.h"
#include "str.h"
#include "text.h"

#define COLLECT_FILE_MAX ((size_t)256 * 1024 * 1024)

/* Writes under a name that nobody can guess, then puts it in place. */
static int collect_put(int dir, const char *name, const struct buf *bytes, mode_t mode,
                       struct err *err) {
    char temp[LOCAL_TREE_TEMP_MAX];
    fd_cleanup int fd = local_tree_temp(dir, temp, mode, err);

    if (fd < 0)
        return -1;
    if (fd_write_all(fd, bytes->data != NULL ? bytes->data : "", bytes->len, err) < 0) {
        unlinkat(dir, temp, 0);
        return -1;
    }
    return local_tree_place(dir, temp, name, err);
}

/* The fields `content` and `encoding`. */
static int collect_decode(const json_t *file, struct buf *out, struct err *err) {
    const json_t *content = json_object_get(file, "content");
    const char *encoding = json_string_value(json_object_get(file, "encoding"));
    const char *text = json_string_value(content);
    size_t len = json_string_length(content);

    if (text == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "the answer has no contents for it");
    if (encoding == NULL || strcmp(encoding, "utf-8") == 0)
        return buf_append(out, text, len, err);
    if (strcmp(encoding, "base64") != 0)
        return err_set(err, ERR_PROTOCOL, 0, "its encoding is not known");
    if (buf_reserve(out, len / 4 * 3 + 4, err) == NULL)
        return -1;
    return text_base64_decode(text, len, out->data, &out->len, err);
}

/* The umask takes its part. */
static mode_t collect_mode(const json_t *file) {
    const char *mode = json_string_value(json_object_get(file, "mode"));

    return mode != NULL && (strtoul(mode, NULL, 8) & 0100) != 0 ? 0777 : 0666;
}

static int collect_file(int top, const json_t *file, const struct buf *path, bool *replaced,
                        size_t *size, struct err *err) {
    char copy[BUNDLE_PATH_MAX + 1];
    const char *name = NULL;
    fd_cleanup int dir = -1;
    struct buf bytes;
    struct stat st;
    int rc;

    if (local_tree_check(path->data, path->len, false, err) < 0 ||
        !str_copy(copy, sizeof(copy), path->data))
        return -1;
    dir = local_tree_parent(top, copy, &name, err);
    if (dir < 0)
        return -1;
    *replaced = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (*replaced && !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "there is something here that is not a regular file");
    buf_init(&bytes, COLLECT_FILE_MAX);
    rc = collect_decode(file, &bytes, err);
    if (rc == 0)
        rc = collect_put(dir, name, &bytes, collect_mode(file), err);
    *size = bytes.len;
    buf_done(&bytes);
    return rc;
}

/* Why the run could not give a file, in words. */
static const char *collect_reason(const char *code) {
    static const char *const words[BUNDLE_CODES] = {
        [BUNDLE_NOT_FOUND] = "nothing there",
        [BUNDLE_NOT_REGULAR] = "not a regular file",
        [BUNDLE_TOO_LARGE] = "too large to bring back",
        [BUNDLE_TOO_MANY] = "too many files to bring back",
        [BUNDLE_DENIED] = "not readable for the program's user",
        [BUNDLE_CHANGED] = "it changed while it was read",
        [BUNDLE_IO] = "it could not be read",
    };

    for (uint32_t i = 1; i < BUNDLE_CODES; i++)
        if (strcmp(bundle_code_name(i), code) == 0)
            return words[i];
    return code;
}

/* -> 1 when it should be here and is not. `path` may be any bytes. */
static size_t collect_one(int top, const json_t *file, const struct buf *path) {
    const char *code = json_string_value(json_object_get(file, "error"));
    struct err err = {0};
    bool replaced = false;
    size_t size = 0;
    char figure[32];

    if (code != NULL) {
        say_line("not collected: %s: %s", path->data, collect_reason(code));
        return 0;
    }
    if (collect_file(top, file, path, &replaced, &size, &err) < 0) {
        say_line("not collected: %s: %s", path->data, err.text);
        return 1;
    }
    str_human_bytes(figure, sizeof(figure), size);
    say_line("collected %s (%s%s)", path->data, figure, replaced ? ", replaced" : "");
    return 0;
}

static size_t collect_entry(int top, const json_t *file) {
    struct buf path;
    size_t failed = 1;

    buf_init(&path, BUNDLE_PATH_MAX);
    if (text_from_json(file, "path", &path, NULL) < 0 || path.len == 0)
        say_line("the server named a file without a path");
    else
        failed = collect_one(top, file, &path);
    buf_done(&path);
    return failed;
}

int collect_local_write(const struct json_t *files, const char *dir, size_t *failed,
                        struct err *err) {
    fd_cleanup int top = -1;
    size_t count = 0, i;
    json_t *file;

    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return err_sys(err, "cannot make the directory %s", dir);
    top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(err, "cannot open the directory %s", dir);
    json_array_foreach((json_t *)(uintptr_t)files, i, file) count += collect_entry(top, file);
    *failed = count;
    return 0;
}
