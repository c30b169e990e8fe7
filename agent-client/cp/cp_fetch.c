#include "cp_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "local_tree.h"
#include "str.h"

struct cp_fetch {
    struct cp_job *job;
    int fd;
    bool begun;
};

static int cp_fetch_on_data(void *arg, const char *data, size_t len, struct err *err) {
    struct cp_fetch *f = arg;
    const char *size;
    uint64_t total = 0;

    if (!f->begun) {
        f->begun = true;
        size = rest_header(f->job->rest, "Content-Length");
        if (size != NULL)
            (void)str_u64(size, 0, UINT64_MAX, &total, NULL);
        progress_begin(&f->job->progress, total);
    }
    progress_add(&f->job->progress, len);
    return fd_write_all(f->fd, data, len, err);
}

/* The mode that the file has in the sandbox, without set-uid and its like. */
static mode_t cp_fetch_mode(struct cp_job *j) {
    const char *text = rest_header(j->rest, "X-Pinfold-Mode");

    return text != NULL ? (mode_t)(strtoul(text, NULL, 8) & 0777) : 0644;
}

static int cp_fetch_request(struct cp_job *j, const struct cp_path *remote, int fd,
                            struct err *err) {
    char url[CP_URL_MAX];
    struct cp_fetch f = {.job = j, .fd = fd};
    struct rest_call call = {.method = "GET", .path = url, .on_data = cp_fetch_on_data, .arg = &f};

    if (cp_path_url(remote, "files", "", url, sizeof(url), err) < 0 ||
        rest_perform(j->rest, &call, err) < 0)
        return -1;
    if (call.status == 409 && strcmp(call.error.code, "is_directory") == 0)
        return err_set(err, ERR_INVALID, call.status, "%s is a directory; use -r", remote->path);
    return call.status >= 400 ? rest_refusal(&call, err) : 0;
}

/* The umask that programs here have. */
static mode_t cp_fetch_umask(void) {
    mode_t now = umask(022);

    umask(now);
    return now;
}

/* Opens the directory of `path`; *name is the last component. Links on the way are the user's. */
static int cp_fetch_directory(const char *path, const char **name, struct err *err) {
    char dir[CP_PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash != NULL ? (size_t)(slash - path) : 0;
    int fd;

    *name = slash != NULL ? slash + 1 : path;
    memcpy(dir, path, len);
    dir[len] = '\0';
    if (slash == NULL || len == 0)
        (void)str_copy(dir, sizeof(dir), slash == NULL ? "." : "/");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "cannot open the directory %s", dir) : fd;
}

int cp_fetch_file(struct cp_job *j, const struct cp_path *remote, const struct cp_path *local,
                  struct err *err) {
    char temp[LOCAL_TREE_TEMP_MAX];
    const char *name = NULL;
    fd_cleanup int dir = -1, fd = -1;
    struct stat st;

    if (local->std)
        return cp_fetch_request(j, remote, STDOUT_FILENO, err);
    dir = cp_fetch_directory(local->path, &name, err);
    if (dir < 0)
        return -1;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s is there and not a regular file", local->path);
    fd = local_tree_temp(dir, temp, 0600, err);
    if (fd < 0)
        return -1;
    if (cp_fetch_request(j, remote, fd, err) < 0)
        goto undo;
    if (fchmod(fd, cp_fetch_mode(j) & ~cp_fetch_umask()) < 0) {
        err_sys(err, "cannot set the mode of %s", local->path);
        goto undo;
    }
    return local_tree_place(dir, temp, name, err);
undo:
    unlinkat(dir, temp, 0);
    return -1;
}
