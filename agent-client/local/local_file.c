#include "local_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

#define LOCAL_FILE_CHUNK ((size_t)128 * 1024)

int local_file_read_fd(int fd, const char *what, struct buf *out, struct err *err) {
    for (;;) {
        size_t left = out->max - out->len;
        char probe;
        size_t want = left == 0 ? 1 : left < LOCAL_FILE_CHUNK ? left : LOCAL_FILE_CHUNK;
        char *to = left == 0 ? &probe : buf_reserve(out, want, err);
        ssize_t got;

        if (to == NULL)
            return -1;
        got = read(fd, to, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read %s", what);
        if (got == 0)
            return 0;
        if (left == 0)
            return err_set(err, ERR_LIMIT, 0, "%s is larger than %zu bytes", what, out->max);
        out->len += (size_t)got;
    }
}

int local_file_read(const char *path, struct buf *out, bool *executable, struct err *err) {
    /* O_NONBLOCK: opening a FIFO must not wait for its writer. */
    fd_cleanup int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_INVALID, ELOOP, "%s is a symbolic link; name the file itself",
                       path);
    if (fd < 0)
        return err_sys(err, "cannot open %s", path);
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot inspect %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s is not a regular file", path);
    if (executable != NULL)
        *executable = (st.st_mode & S_IXUSR) != 0;
    return local_file_read_fd(fd, path, out, err);
}
