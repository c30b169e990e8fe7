#include "cp_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

struct cp_send {
    struct cp_job *job;
    int fd;
    uint64_t left; /* of a regular file; it is cut there when it grows */
    bool sized;
};

static ssize_t cp_send_read(void *arg, char *data, size_t size, struct err *err) {
    struct cp_send *s = arg;
    ssize_t got;

    if (s->sized && s->left < size)
        size = (size_t)s->left;
    if (size == 0)
        return 0;
    do
        got = read(s->fd, data, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_sys(err, "cannot read the file");
    if (got == 0 && s->sized)
        return err_set(err, ERR_STATE, 0, "the file became shorter while it was read");
    s->left -= s->sized ? (uint64_t)got : 0;
    progress_add(&s->job->progress, (uint64_t)got);
    return got;
}

static int cp_send_open(const struct cp_path *local, struct stat *st, struct err *err) {
    /* O_NONBLOCK: opening a FIFO must not wait for its writer; it is refused. */
    int fd = local->std
                 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                 : open(local->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_INVALID, ELOOP, "%s is a symbolic link; name the file itself",
                       local->path);
    if (fd < 0)
        return err_sys(err, "cannot open %s", local->std ? "standard input" : local->path);
    if (fstat(fd, st) < 0) {
        err_sys(err, "cannot inspect %s", local->path);
    } else if (S_ISDIR(st->st_mode)) {
        err_set(err, ERR_INVALID, 0, "%s is a directory; use -r", local->path);
    } else if (!local->std && !S_ISREG(st->st_mode)) {
        err_set(err, ERR_INVALID, 0, "%s is not a regular file", local->path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

int cp_send_file(struct cp_job *j, const struct cp_path *local, const struct cp_path *remote,
                 bool *directory, struct err *err) {
    struct stat st;
    fd_cleanup int fd = cp_send_open(local, &st, err);
    char url[CP_URL_MAX], query[32] = "";
    struct cp_send s = {.job = j, .fd = fd};
    struct rest_call call = {.method = "PUT",
                             .path = url,
                             .on_read = cp_send_read,
                             .read_len = -1,
                             .raw = true,
                             .arg = &s};

    *directory = false;
    if (fd < 0)
        return -1;
    if (!local->std)
        snprintf(query, sizeof(query), "?mode=0%03o", (unsigned)st.st_mode & 0777u);
    if (S_ISREG(st.st_mode)) {
        off_t at = local->std ? lseek(fd, 0, SEEK_CUR) : 0;

        s.sized = true;
        s.left = at >= 0 && at < st.st_size ? (uint64_t)(st.st_size - at) : 0;
        call.read_len = (int64_t)s.left;
    }
    if (cp_path_url(remote, "files", query, url, sizeof(url), err) < 0)
        return -1;
    progress_begin(&j->progress, s.left);
    if (rest_perform(j->rest, &call, err) < 0)
        return -1;
    *directory = call.status == 409 && strcmp(call.error.code, "is_directory") == 0;
    return call.status >= 400 ? rest_refusal(&call, err) : 0;
}
