#include "audit_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

int audit_file_give(int fd, int dir, struct err *err) {
    struct stat st;
    if (geteuid() != 0)
        return 0;
    if (fstat(dir, &st) < 0 || fchown(fd, st.st_uid, st.st_gid) < 0)
        return err_sys(err, "cannot give a file to its owner");
    return 0;
}

int audit_file_write(int dir, const char *name, const void *data, size_t len, struct err *err) {
    char temp[80];
    snprintf(temp, sizeof(temp), ".%.60s.new", name);
    (void)unlinkat(dir, temp, 0); /* of one that was interrupted */
    fd_cleanup int fd =
        openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot make server/%s", name);
    int rc = fd_write_all(fd, data, len, err);
    if (rc == 0)
        rc = audit_file_give(fd, dir, err);
    if (rc == 0 && fsync(fd) < 0)
        rc = err_sys(err, "cannot bring server/%s to the disk", name);
    if (rc == 0 && renameat(dir, temp, dir, name) < 0)
        rc = err_sys(err, "cannot rename server/%s", temp);
    if (rc < 0)
        (void)unlinkat(dir, temp, 0);
    return rc;
}
