#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "str.h"

int state_trim(char out[STATE_PATH_MAX], const char *path, struct err *err) {
    size_t len;

    if (*path == '\0' || !str_copy(out, STATE_PATH_MAX, path))
        return err_set(err, ERR_INVALID, 0, "the path of the state directory is empty or too long");
    len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        out[--len] = '\0';
    return 0;
}

static int state_check(int fd, const char *path, struct err *err) {
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot inspect the state directory %s", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(err, ERR_INVALID, EPERM,
                       "the state directory %s belongs to user %u, not to us", path,
                       (unsigned)st.st_uid);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return err_set(err, ERR_INVALID, EPERM,
                       "the state directory %s can be written by others; chmod go-w it", path);
    return 0;
}

int state_open(const char *path, struct state *out, struct err *err) {
    fd_cleanup int fd = -1;
    char keep[STATE_PATH_MAX];

    if (state_trim(keep, path, err) < 0)
        return -1;
    fd = open(keep, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_INVALID, ENOENT,
                       "there is no state directory %s; --state names another one, and "
                       "pinfold-server init makes it",
                       keep);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(err, ERR_INVALID, errno,
                       "%s is a symbolic link or a file, not a state directory", keep);
    if (fd < 0)
        return err_sys(err, "cannot open the state directory %s", keep);
    if (state_check(fd, keep, err) < 0)
        return -1;
    out->dir = fd_steal(&fd);
    memcpy(out->path, keep, sizeof(keep));
    return 0;
}

void state_close(struct state *s) {
    if (s != NULL)
        fd_close(&s->dir);
}

int state_enter(const struct state *s, struct err *err) {
    if (fchdir(s->dir) < 0)
        return err_sys(err, "cannot enter the state directory %s", s->path);
    return 0;
}

int state_open_dir(const struct state *s, const char *name, struct err *err) {
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, s->dir, name, &how, sizeof(how));

    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_SYSTEM, ENOENT,
                       "there is no %s/%s; pinfold-server init makes what a state directory lacks",
                       s->path, name);
    if (fd < 0)
        return err_sys(err, "cannot open %s/%s", s->path, name);
    return (int)fd;
}

/* The pid in a lock file that somebody else holds; 0 when it cannot be read. */
static unsigned long long state_lock_owner(int fd) {
    char text[32];
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    uint64_t pid = 0;

    if (got <= 0)
        return 0;
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (str_u64(text, 1, UINT32_MAX, &pid, NULL) < 0)
        return 0;
    return pid;
}

int state_lock(const struct state *s, const char *name, const char *program, struct err *err) {
    fd_cleanup int fd = openat(s->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    char text[32];
    int len;

    if (fd < 0)
        return err_sys(err, "cannot open the lock file %s/%s", s->path, name);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EINTR)
            continue;
        if (errno == EWOULDBLOCK)
            return err_set(err, ERR_STATE, EWOULDBLOCK, "another %s uses %s (pid %llu)", program,
                           s->path, state_lock_owner(fd));
        return err_sys(err, "cannot lock %s/%s", s->path, name);
    }
    len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len)
        return err_sys(err, "cannot write the lock file %s/%s", s->path, name);
    return fd_steal(&fd);
}

/* In the machine's own list, where a service's user is, nearly always. 0 (*found NULL: not there)
 * or an errno. */
static int state_user_local(const char *name, struct passwd *pw, char *space, size_t size,
                            struct passwd **found) {
    FILE *list = fopen("/etc/passwd", "re");
    int code = list == NULL ? errno : 0;

    *found = NULL;
    while (list != NULL && code == 0 && *found == NULL) {
        code = fgetpwent_r(list, pw, space, size, found);
        if (code == 0 && strcmp(pw->pw_name, name) != 0)
            *found = NULL;
    }
    if (list != NULL)
        fclose(list);
    return code == ENOENT ? 0 : code;
}

int state_user_find(const char *name, struct state_user *out, struct err *err) {
    char space[16384];
    struct passwd pw, *found = NULL;
    int code = state_user_local(name, &pw, space, sizeof(space), &found);

    /* Only then elsewhere: without memory glibc's own look-up crashes (nss_database.c), or says
     * that there is no such user. */
    if (code == 0 && found == NULL)
        code = getpwnam_r(name, &pw, space, sizeof(space), &found);
    if (code != 0)
        return err_set(err, ERR_SYSTEM, code, "cannot look up the user %s: %s", name,
                       strerror(code));
    if (found == NULL)
        return err_set(err, ERR_INVALID, ENOENT,
                       "there is no user %s; make it with: useradd --system --no-create-home "
                       "--home-dir /nonexistent --shell /usr/sbin/nologin %s",
                       name, name);
    out->uid = pw.pw_uid;
    out->gid = pw.pw_gid;
    return 0;
}
