#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "drop.h"
#include "fd.h"
#include "store.h"
#include "str.h"

#define CHECK_SPACE_BYTES ((uint64_t)256 * 1024 * 1024)

static void check_user(struct check *c) {
    const char *name = c->config->user;
    struct err err;
    err_clear(&err);
    if (geteuid() != 0) {
        c->user = (struct state_user){.uid = geteuid(), .gid = getegid()};
        c->user_known = true;
        check_say(c, CHECK_WARN, "user",
                  "not root: looked at as user %u, and what only root can see is left out",
                  (unsigned)geteuid());
        return;
    }
    if (state_user_find(name != NULL ? name : "pinfold", &c->user, &err) < 0)
        check_err(c, CHECK_FAIL, "user", &err);
    else if (c->user.uid == 0)
        check_say(c, CHECK_FAIL, "user", "the server does not serve as root; set user to another");
    else
        c->user_known = true;
}

/* For a moment, and shared with whoever else looks: a server holds it alone. */
static void check_lock(struct check *c) {
    fd_cleanup int fd = openat(c->state.dir, STATE_LOCK_SERVER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        c->serving = true;
}

static void check_directory(struct check *c, const char *name, bool owned) {
    struct stat st;
    struct err err;
    err_clear(&err);
    fd_cleanup int fd = state_open_dir(&c->state, name, &err);
    if (fd < 0) {
        err_set(&err, ERR_INVALID, 0,
                "%s/%s is missing or closed; pinfold-server init --state %s "
                "makes and repairs it",
                c->state.path, name, c->state.path);
        check_err(c, CHECK_FAIL, "state", &err);
    } else if (owned && c->user_known && fstat(fd, &st) == 0 && st.st_uid != c->user.uid) {
        check_say(c, CHECK_FAIL, "state",
                  "%s/%s belongs to user %u and the server becomes user %u; pinfold-server init "
                  "--state %s --user NAME repairs it",
                  c->state.path, name, (unsigned)st.st_uid, (unsigned)c->user.uid, c->state.path);
    }
}

static void check_space(struct check *c) {
    struct statvfs fs;
    if (fstatvfs(c->state.dir, &fs) < 0)
        return;
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    char text[32];
    str_human_bytes(text, sizeof(text), room);
    if (room < CHECK_SPACE_BYTES)
        check_say(c, CHECK_WARN, "state", "only %s are free for %s", text, c->state.path);
}

void check_state(struct check *c) {
    unsigned before = c->failed;
    struct err err;
    err_clear(&err);
    check_user(c);
    if (state_open(c->config->state, &c->state, &err) < 0) {
        check_err(c, CHECK_FAIL, "state", &err);
        return;
    }
    check_lock(c);
    check_directory(c, STATE_RUN, false);
    check_directory(c, STATE_IMAGES, false);
    check_directory(c, STATE_SERVER, true);
    check_space(c);
    if (c->failed == before)
        check_say(c, CHECK_OK, "state", "%s%s", c->state.path,
                  c->serving ? "; a server runs with it" : "");
}

/* Does a runner listen? Asked relative to the directory: its path may be too long. */
static void check_runner(struct check *c) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct err err;
    err_clear(&err);
    if (state_enter(&c->state, &err) < 0) {
        check_err(c, CHECK_FAIL, "runner", &err);
        return;
    }
    snprintf(to.sun_path, sizeof(to.sun_path), STATE_RUNNER_SOCKET, 0u);
    fd_cleanup int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        check_say(c, CHECK_OK, "runner", "it listens");
    else
        check_say(c, CHECK_WARN, "runner",
                  "none listens at %s/%s yet; until one does, /readyz answers 503", c->state.path,
                  to.sun_path);
}

void check_state_as_user(struct check *c) {
    struct err err;
    err_clear(&err);
    if (c->state.dir < 0 || !c->user_known)
        return;
    fd_cleanup int dir = state_open_dir(&c->state, STATE_SERVER, &err);
    if (dir < 0) /* it is missing, or another's: said already */
        return;
    if (store_check(dir, &err) < 0)
        check_err(c, CHECK_FAIL, "database", &err);
    else
        check_say(c, CHECK_OK, "database", "its version is one that this program knows");
    check_runner(c);
}
