#include "file_path.h"

#include <string.h>

#define FILE_PATH_NAME_MAX 255

/* Takes the last component of path[0, len) away: the new length, or -1 when there is none. */
static long file_path_up(const char *path, size_t len) {
    if (len == 0)
        return -1;
    while (path[--len] != '/')
        ;
    return (long)len;
}

int file_path_clean(const char *text, char path[FILE_PATH_SIZE], struct api_error *error) {
    size_t len = 0;
    for (const char *part = text; *part != '\0'; part += *part == '/') {
        size_t n = strcspn(part, "/");
        const char *name = part;
        part += n;
        if (n == 0 || (n == 1 && name[0] == '.'))
            continue;
        if (n == 2 && name[0] == '.' && name[1] == '.') {
            long up = file_path_up(path, len);
            if (up < 0)
                return api_error_set(error, 400, "bad_path", NULL,
                                     "The path leads out of the sandbox with \"..\".");
            len = (size_t)up;
            continue;
        }
        if (n > FILE_PATH_NAME_MAX)
            return api_error_set(error, 400, "name_too_long", NULL,
                                 "A name in the path has %zu bytes; at most %d are possible.", n,
                                 FILE_PATH_NAME_MAX);
        if (len + 1 + n > FILEOP_PATH_MAX)
            return api_error_set(error, 400, "name_too_long", NULL,
                                 "The path has more than %u bytes.", FILEOP_PATH_MAX);
        path[len++] = '/';
        memcpy(path + len, name, n);
        len += n;
    }
    if (len == 0)
        path[len++] = '/';
    path[len] = '\0';
    return 0;
}
