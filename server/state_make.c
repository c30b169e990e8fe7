#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "str.h"

enum state_owner { STATE_OWNER_BASE, STATE_OWNER_BASE_SHARED, STATE_OWNER_SERVER };

/* BASE is root, or the caller without root. SHARED: the server's group may enter. */
static const struct state_part {
    const char *name;
    mode_t mode;
    enum state_owner owner;
} state_parts[] = {
    {STATE_RUN, 0750, STATE_OWNER_BASE_SHARED},
    {STATE_IMAGES, 0755, STATE_OWNER_BASE},
    {STATE_SERVER, 0750, STATE_OWNER_SERVER},
    {STATE_LOG, 0750, STATE_OWNER_BASE_SHARED},
};

/* Owner, group and mode of an open file or directory; touches only what differs. */
static int state_fix(int fd, const char *name, uid_t uid, gid_t gid, mode_t mode, struct err *err) {
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot inspect %s", name);
    /* The mode goes first to nothing for others: between the two calls nobody gains access. */
    if ((st.st_uid != uid || st.st_gid != gid) &&
        (fchmod(fd, st.st_mode & mode & 0700) < 0 || fchown(fd, uid, gid) < 0))
        return err_sys(err, "cannot change the owner of %s", name);
    if (fstat(fd, &st) < 0 || ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0))
        return err_sys(err, "cannot change the mode of %s", name);
    return 0;
}

static int state_make_parents(const char *path, struct err *err) {
    char copy[STATE_PATH_MAX];

    if (!str_copy(copy, sizeof(copy), path))
        return err_set(err, ERR_INVALID, ENAMETOOLONG,
                       "the path of the state directory is too long");
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0755) == 0) {
            /* The server's user must be able to pass, whatever the umask said. */
            if (chmod(copy, 0755) < 0)
                return err_sys(err, "cannot change the mode of %s", copy);
        } else if (errno != EEXIST) {
            return err_sys(err, "cannot make the directory %s", copy);
        }
        *slash = '/';
    }
    return 0;
}

/* A directory that is in use for something else must not become a state directory by a typing
 * mistake. The lock file is the mark: it is the first thing that is made. */
static int state_check_foreign(int dir, const char *path, struct err *err) {
    fd_cleanup int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list;
    struct dirent *entry;
    bool other = false;
    struct stat st;

    if (fstatat(dir, STATE_LOCK_SERVER, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        return 0;
    list = copy < 0 ? NULL : fdopendir(copy);
    if (list == NULL)
        return err_sys(err, "cannot list %s", path);
    (void)fd_steal(&copy);
    while ((entry = readdir(list)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "lost+found") != 0)
            other = true;
    closedir(list);
    if (other)
        return err_set(err, ERR_INVALID, ENOTEMPTY,
                       "%s is neither empty nor a state directory; choose another", path);
    return 0;
}

static int state_make_part(const struct state *s, const struct state_part *part,
                           const struct state_user *user, bool *made, struct err *err) {
    fd_cleanup int fd = -1;
    uid_t uid = part->owner == STATE_OWNER_SERVER ? user->uid : geteuid();
    gid_t gid = part->owner == STATE_OWNER_BASE ? getegid() : user->gid;

    if (mkdirat(s->dir, part->name, 0700) == 0)
        *made = true;
    else if (errno != EEXIST)
        return err_sys(err, "cannot make %s/%s", s->path, part->name);
    fd = openat(s->dir, part->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(err, ERR_INVALID, errno, "%s/%s is not a directory", s->path, part->name);
    if (fd < 0)
        return err_sys(err, "cannot open %s/%s", s->path, part->name);
    return state_fix(fd, part->name, uid, gid, part->mode, err);
}

static int state_make_lock_file(const struct state *s, const char *name, uid_t uid, bool *made,
                                struct err *err) {
    struct stat st;
    fd_cleanup int fd = -1;

    if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        *made = true;
    fd = openat(s->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot make %s/%s", s->path, name);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s/%s is not a regular file", s->path, name);
    return state_fix(fd, name, uid, getegid(), 0600, err);
}

static int state_make_inside(const struct state *s, const struct state_user *user, bool *made,
                             struct err *err) {
    if (state_check_foreign(s->dir, s->path, err) < 0 ||
        state_make_lock_file(s, STATE_LOCK_SERVER, user->uid, made, err) < 0 ||
        state_make_lock_file(s, STATE_LOCK_RUNNER, geteuid(), made, err) < 0)
        return -1;
    if (state_fix(s->dir, s->path, geteuid(), getegid(), 0755, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(state_parts) / sizeof(state_parts[0]); i++)
        if (state_make_part(s, &state_parts[i], user, made, err) < 0)
            return -1;
    return 0;
}

int state_make(const char *path, const struct state_user *user, struct state *out, bool *made,
               struct err *err) {
    struct state s = STATE_NONE;
    char trimmed[STATE_PATH_MAX];
    bool any = false;
    int rc = -1;

    if (geteuid() != 0 && user->uid != geteuid())
        return err_set(err, ERR_INVALID, EPERM,
                       "only root can make a state directory for another user");
    if (state_trim(trimmed, path, err) < 0 || state_make_parents(trimmed, err) < 0)
        return -1;
    if (mkdir(trimmed, 0755) == 0) {
        any = true;
        if (chmod(trimmed, 0755) < 0)
            return err_sys(err, "cannot change the mode of %s", trimmed);
    } else if (errno != EEXIST) {
        return err_sys(err, "cannot make the state directory %s", trimmed);
    }
    if (state_open(trimmed, &s, err) < 0)
        return -1;
    /* Two set-ups at once: one after the other. The lock lasts as long as s.dir is open. */
    if (flock(s.dir, LOCK_EX) < 0)
        err_sys(err, "cannot lock the state directory %s", path);
    else
        rc = state_make_inside(&s, user, &any, err);
    if (rc < 0) {
        state_close(&s);
        return -1;
    }
    *out = s;
    if (made != NULL)
        *made = any;
    return 0;
}
