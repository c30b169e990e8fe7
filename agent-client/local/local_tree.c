#include "local_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bundle.h"
#include "fd.h"

int local_tree_enter(int dir, const char *name, mode_t mode, struct err *err) {
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd;

    if (mkdirat(dir, name, mode) < 0 && errno != EEXIST)
        return err_sys(err, "cannot make the directory %s", name);
    fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(err, ERR_INVALID, errno, "%s is a link or a file here, not a directory",
                       name);
    if (fd < 0)
        return err_sys(err, "cannot open the directory %s", name);
    return (int)fd;
}

int local_tree_check(const char *path, size_t len, bool git, struct err *err) {
    if (strlen(path) != len || !bundle_path_ok(path, len))
        return err_set(err, ERR_INVALID, 0, "its path leads elsewhere");
    for (const char *part = path; part != NULL && !git; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncasecmp(part, ".git", 4) == 0 && (part[4] == '/' || part[4] == '\0'))
            return err_set(err, ERR_INVALID, 0, "nothing is written into a .git");
    }
    return 0;
}

int local_tree_parent(int top, char *path, const char **name, struct err *err) {
    fd_cleanup int dir = fcntl(top, F_DUPFD_CLOEXEC, 3);
    char *slash;

    if (dir < 0)
        return err_sys(err, "cannot use the directory");
    while ((slash = strchr(path, '/')) != NULL) {
        int next;

        *slash = '\0';
        next = local_tree_enter(dir, path, 0777, err);
        if (next < 0)
            return -1;
        fd_close(&dir);
        dir = next;
        path = slash + 1;
    }
    *name = path;
    return fd_steal(&dir);
}

int local_tree_temp_name(char temp[LOCAL_TREE_TEMP_MAX], struct err *err) {
    unsigned long long salt;

    if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
        return err_sys(err, "cannot get random bytes");
    snprintf(temp, LOCAL_TREE_TEMP_MAX, ".pinfold-%016llx", salt);
    return 0;
}

int local_tree_temp(int dir, char temp[LOCAL_TREE_TEMP_MAX], mode_t mode, struct err *err) {
    int fd;

    if (local_tree_temp_name(temp, err) < 0)
        return -1;
    fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    return fd < 0 ? err_sys(err, "cannot create a file") : fd;
}

int local_tree_place(int dir, const char *temp, const char *name, struct err *err) {
    if (renameat(dir, temp, dir, name) == 0)
        return 0;
    err_sys(err, "cannot put it in place");
    unlinkat(dir, temp, 0);
    return -1;
}
