#include "state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int state_dir_path(const char *below, char path[PATH_MAX], struct err *err) {
    const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool own = base != NULL && base[0] == '/';
    if (!own && (home == NULL || home[0] != '/'))
        return err_set(err, ERR_STATE, 0, "neither XDG_STATE_HOME nor HOME names a directory");
    int n = snprintf(path, PATH_MAX, "%s%s/pinfold%s%s", own ? base : home,
                     own ? "" : "/.local/state", below[0] != '\0' ? "/" : "", below);
    return n > 0 && n < PATH_MAX
               ? 0
               : err_set(err, ERR_LIMIT, 0, "the path of the state directory is too long");
}

static int state_dir_make(char *path, struct err *err) {
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return err_sys(err, "making the directory %s", path);
        if (slash == NULL)
            return 0;
        *slash = '/';
    }
}

int state_dir_open(const char *below, bool make, struct err *err) {
    char path[PATH_MAX];
    if (state_dir_path(below, path, err) < 0 || (make && state_dir_make(path, err) < 0))
        return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "opening %s", path) : fd;
}

void state_dir_show(int fd, const char *name, char path[PATH_MAX]) {
    char link[40];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - strlen(name) - 2);
    path[0] = n > 0 ? path[0] : '\0';
    if (n > 0)
        snprintf(path + n, PATH_MAX - (size_t)n, "/%s", name);
}
