#include "fileop_status.h"

#include <stdio.h>
#include <string.h>

#include "str.h"

struct fileop_status_row {
    int status;
    const char *say; /* %s is the path */
};

static const struct fileop_status_row *fileop_status_row(enum fileop_code code) {
    static const struct fileop_status_row rows[FILEOP_CODES] = {
        [FILEOP_OK] = {200, "%s: done."},
        [FILEOP_NOT_FOUND] = {404, "There is nothing at %s."},
        [FILEOP_DENIED] = {403, "The sandbox's user may not do this at %s, or it is read-only."},
        [FILEOP_NOT_DIRECTORY] = {409, "Something on the path %s is not a directory."},
        [FILEOP_IS_DIRECTORY] = {409, "%s is a directory."},
        [FILEOP_NOT_REGULAR] = {409, "%s is not a regular file."},
        [FILEOP_EXISTS] = {409, "There is something at %s already."},
        [FILEOP_NOT_EMPTY] = {409, "The directory %s is not empty."},
        [FILEOP_LOOP] = {409, "A symbolic link is in the way, or too many are, at %s."},
        [FILEOP_NAME_TOO_LONG] = {400, "A name in %s is too long."},
        [FILEOP_NO_SPACE] = {507, "The sandbox's disk is full: no room is left for %s."},
        [FILEOP_TOO_LARGE] = {413, "%s is too large."},
        [FILEOP_CHANGED] = {409, "%s changed meanwhile."},
        [FILEOP_CROSS_DEVICE] = {409, "%s cannot be moved to another file system."},
        [FILEOP_INVALID] = {400, "This makes no sense at %s."},
        [FILEOP_UNSUPPORTED] = {422, "This is not possible at %s."},
        [FILEOP_BUSY] = {409, "%s is in use."},
        [FILEOP_IO] = {500, "The operation failed at %s."},
    };
    return (unsigned)code < FILEOP_CODES ? &rows[code] : &rows[FILEOP_IO];
}

int fileop_status(enum fileop_code code) {
    return fileop_status_row(code)->status;
}

void fileop_status_set(struct fileop_result *result, enum fileop_code code, int sys,
                       const char *path) {
    const char *say = fileop_status_row(code)->say, *hole = strstr(say, "%s");
    char shown[160];
    str_escape(shown, sizeof(shown), path, strlen(path));
    result->code = code;
    result->sys = sys;
    snprintf(result->message, sizeof(result->message), "%.*s%s%s", (int)(hole - say), say, shown,
             hole + 2);
    if (code == FILEOP_IO && sys != 0) {
        size_t len = strlen(result->message);
        snprintf(result->message + len - 1, sizeof(result->message) - len + 1, ": %s.",
                 strerror(sys));
    }
}

void fileop_status_cut(struct fileop_result *result, enum cause cause, const char *path) {
    switch (cause) {
    case CAUSE_MEMORY:
    case CAUSE_MEMORY_HOST:
        /* Files of a sandbox count as its memory unless they are on a disk. */
        fileop_status_set(result, FILEOP_NO_SPACE, 0, path);
        snprintf(result->message, sizeof(result->message),
                 "The sandbox ran out of memory under the operation.");
        return;
    case CAUSE_CANCELLED:
        fileop_status_set(result, FILEOP_BUSY, 0, path);
        snprintf(result->message, sizeof(result->message),
                 "The sandbox was restored or deleted under the operation.");
        return;
    default:
        fileop_status_set(result, FILEOP_IO, 0, path);
        return;
    }
}

int fileop_status_error(const struct fileop_result *result, struct api_error *error) {
    if (result->gone)
        return api_error_set(error, 410, "gone", NULL, "The sandbox is gone.");
    return api_error_set(error, fileop_status(result->code), fileop_code_name(result->code), NULL,
                         "%s", result->message);
}
