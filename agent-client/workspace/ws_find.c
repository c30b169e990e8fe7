#include "ws_find.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool ws_find_has(const char *dir, const char *name) {
    char path[PATH_MAX];
    struct stat st;
    return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
           lstat(path, &st) == 0;
}

static void ws_find_up(char dir[PATH_MAX]) {
    char at[PATH_MAX];
    const char *home = getenv("HOME");
    memcpy(at, dir, PATH_MAX);
    while (strcmp(at, "/") != 0 && (home == NULL || strcmp(at, home) != 0)) {
        if (ws_find_has(at, ".pinfold") || ws_find_has(at, ".git")) {
            memcpy(dir, at, PATH_MAX);
            return;
        }
        char *slash = strrchr(at, '/');
        if (slash == NULL)
            return;
        slash[slash == at] = '\0';
    }
}

int ws_find(const char *given, struct ws_place *place, struct err *err) {
    char here[PATH_MAX];
    if (realpath(".", here) == NULL)
        return err_sys(err, "finding the current directory");
    memset(place, 0, sizeof(*place));
    memcpy(place->path, here, strlen(here) + 1);
    if (given == NULL)
        ws_find_up(place->path);
    else if (realpath(given, place->path) == NULL)
        return err_sys(err, "opening the workspace %s", given);
    size_t n = strlen(place->path);
    if (strcmp(place->path, "/") == 0)
        return err_set(err, ERR_INVALID, 0,
                       "the root directory cannot be a workspace: go to a project's directory");
    if (strncmp(here, place->path, n) == 0 && here[n] == '/')
        memcpy(place->inside, here + n + 1, strlen(here + n));
    return 0;
}

int ws_find_path(const struct ws_place *place, const char *typed, char path[PATH_MAX],
                 struct err *err) {
    size_t root = strlen(place->path), n = 0;
    const char *parts[] = {place->inside, typed};
    if (typed[0] == '/') {
        if (strncmp(typed, place->path, root) != 0 || typed[root] != '/')
            return err_set(err, ERR_INVALID, 0, "%.200s is not in the workspace %.150s", typed,
                           place->path);
        parts[0] = "";
        parts[1] = typed + root;
    }
    char out[PATH_MAX] = "";
    for (size_t i = 0; i < 2; i++)
        for (const char *p = parts[i]; *p != '\0';) {
            size_t len = strcspn(p, "/");
            bool up = len == 2 && p[0] == '.' && p[1] == '.';
            if (up && n == 0)
                return err_set(err, ERR_INVALID, 0, "%.200s leads out of the workspace", typed);
            if (up) {
                const char *slash = memrchr(out, '/', n);
                n = slash != NULL ? (size_t)(slash - out) : 0;
            } else if (len > 0 && !(len == 1 && p[0] == '.')) {
                if (n + len + 2 > sizeof(out))
                    return err_set(err, ERR_LIMIT, 0, "the path is too long");
                if (n > 0)
                    out[n++] = '/';
                memcpy(out + n, p, len);
                n += len;
            }
            p += len + (p[len] == '/');
        }
    if (n == 0)
        return err_set(err, ERR_INVALID, 0, "%.200s is the workspace itself", typed);
    memcpy(path, out, n);
    path[n] = '\0';
    return 0;
}
