/* The state directory: its layout, who owns what, and its locks.
 *
 *   STATE/               0755 root          (or the user that runs an unprivileged set-up)
 *     admin.token        0600 of the user who made it; the token's plain text
 *     lock.server        0600 SERVER        held (flock) by the server for life; its own, so that
 *                        a service manager can start it as that user
 *     lock.runner        0600 held by the runner for life
 *     run/               0750 root:SERVER   sockets and pid files
 *     images/            0755 root          NAME/{manifest.json,rootfs/}
 *     server/            0750 SERVER:SERVER the database; sandboxes/ID/, executions of each;
 * spare/, directories that were made in advance log/               0750 root:SERVER
 *
 * Everything is reached from one directory descriptor with openat and O_NOFOLLOW, so that nobody
 * can swap a directory for a link between a check and its use. A process that has given up root may
 * not be able to reach the directory by its path any more: it keeps `dir`, or calls state_enter().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "err.h"

#define STATE_RUN "run"
#define STATE_IMAGES "images"
#define STATE_SERVER "server"
#define STATE_LOG "log"
#define STATE_TOKENS "server/tokens"
/* Written to when users or tokens were changed in the store by another process. */
#define STATE_ACCOUNTS_CHANGED "server/accounts.changed"
#define STATE_ADMIN_TOKEN "admin.token"
#define STATE_LOCK_SERVER "lock.server"
#define STATE_LOCK_RUNNER "lock.runner"
/* Held by `image import` and `image remove` while they change STATE/images. */
#define STATE_LOCK_IMAGES "images/.lock"
/* Relative to the state directory; %u is the shard. */
#define STATE_RUNNER_SOCKET "run/runner.%u.sock"
#define STATE_DOCKER_SOCKET "run/docker.%u.sock" /* of pinfold-runner-docker */

#define STATE_PATH_MAX 4096

struct state {
    int dir;                   /* O_DIRECTORY|O_CLOEXEC; owned */
    char path[STATE_PATH_MAX]; /* as the user gave it, for messages */
};

#define STATE_NONE                                                                                 \
    { .dir = -1 }

/* Opens an existing state directory. Refuses (ERR_INVALID) a symbolic link, a directory that is not
 * owned by root or by the caller, and one that others may write to. */
int state_open(const char *path, struct state *out, struct err *err);
/* "DIR///" -> "DIR": with a slash at its end, open() would follow a link. */
int state_trim(char out[STATE_PATH_MAX], const char *path, struct err *err);
void state_close(struct state *s); /* NULL, STATE_NONE and closed ones allowed */

/* Makes it the working directory: relative paths such as STATE_RUNNER_SOCKET work from then on,
 * also where the path is too long for a socket address or closed to this user. */
int state_enter(const struct state *s, struct err *err);

/* Opens a directory of the state ("run", "images", "images/debian/rootfs", …): no link anywhere in
 * it. -> fd or -1. */
int state_open_dir(const struct state *s, const char *name, struct err *err);

/* Takes the lock `name` (STATE_LOCK_…) for `program` and writes the caller's pid into it. -> fd
 * that holds it until closed, or -1; when somebody has it: ERR_STATE "another PROGRAM uses DIR (pid
 * N)". The file is made when missing and never removed: removing a locked file is a race. */
int state_lock(const struct state *s, const char *name, const char *program, struct err *err);

/* Looks up a user by name. */
struct state_user {
    uid_t uid;
    gid_t gid;
};
int state_user_find(const char *name, struct state_user *out, struct err *err);

/* Makes the directory (its missing parents too) and everything in it that is missing, and corrects
 * owners and modes, whatever the umask is. Idempotent. Without root, everything belongs to the
 * caller and `user` must be the caller. *made (may be NULL) says whether anything was missing.
 * Does not make tokens. On success *out is open, and other
 * callers of state_make() wait until it is closed. */
int state_make(const char *path, const struct state_user *user, struct state *out, bool *made,
               struct err *err);
