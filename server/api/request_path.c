#include <string.h>

#include "request_internal.h"

/* One component, between slashes, appended to out[*used]. */
static const char *request_path_part(const char *part, size_t len, char *out, size_t *used) {
    if (len == 0 || (len == 1 && part[0] == '.'))
        return NULL;
    if (len == 2 && part[0] == '.' && part[1] == '.')
        return "must not contain \"..\"";
    if (len > REQUEST_COMPONENT_MAX)
        return "has a part of more than 255 bytes between slashes";
    if (*used > 0)
        out[(*used)++] = '/';
    memcpy(out + *used, part, len);
    *used += len;
    return NULL;
}

const char *request_path_clean(const char *path, size_t len, char *out) {
    static const char root[] = "/workspace/";
    const char *end = path + len;
    size_t used = 0, last = 0;
    if (len == 0)
        return "must not be empty";
    if (len > REQUEST_PATH_MAX + sizeof(root))
        return "has more than 4095 bytes";
    if (memchr(path, 0, len) != NULL)
        return "must not contain a NUL character";
    if (path[0] == '/') {
        if (len < sizeof(root) - 1 || memcmp(path, root, sizeof(root) - 1) != 0)
            return "must be relative to /workspace or below it";
        path += sizeof(root) - 1;
    }
    while (path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        size_t before = used;
        size_t part = slash ? (size_t)(slash - path) : (size_t)(end - path);
        const char *wrong = request_path_part(path, part, out, &used);
        if (wrong)
            return wrong;
        last = used - before; /* 0 after "." */
        path += part;
        if (slash) {
            path++;
            last = path < end ? last : 0;
        }
    }
    out[used] = '\0';
    if (used == 0)
        return "must name something below /workspace";
    if (last == 0)
        return "must not end in a slash or a dot: it names a directory";
    return used > REQUEST_PATH_MAX ? "has more than 4095 bytes" : NULL;
}
