#include "rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "str.h"

#define ROOTLESS_FILE_MAX (4u << 20)

static const char *const rootless_programs[] = {"/usr/bin/newuidmap", "/usr/bin/newgidmap"};

static bool rootless_number(const char *text, size_t len, uint64_t *out) {
    char copy[24];
    if (len == 0 || len >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    return str_u64(copy, 0, UINT32_MAX, out, NULL) == 0;
}

bool rootless_range(const char *text, const char *user, uid_t uid, uint32_t need, uint32_t *first) {
    char number[24];
    (void)snprintf(number, sizeof number, "%u", (unsigned)uid);
    while (*text != '\0') {
        size_t line = strcspn(text, "\n");
        size_t name = strcspn(text, ":\n");
        uint64_t from = 0;
        uint64_t count = 0;
        if (name < line) {
            const char *second = text + name + 1;
            size_t len = strcspn(second, ":\n");
            bool ours = (strlen(user) == name && strncmp(text, user, name) == 0) ||
                        (strlen(number) == name && strncmp(text, number, name) == 0);
            if (ours && second + len < text + line && rootless_number(second, len, &from) &&
                rootless_number(second + len + 1, (size_t)(text + line - (second + len + 1)),
                                &count) &&
                from > 0 && count >= need && from + count <= UINT32_MAX) {
                *first = (uint32_t)from;
                return true;
            }
        }
        text += line + (text[line] == '\n');
    }
    return false;
}

static bool rootless_look_up(const char *file, const char *user, uid_t uid, uint32_t need,
                             uint32_t *first) {
    struct buf text;
    buf_init(&text, ROOTLESS_FILE_MAX);
    bool found = fd_read_file(AT_FDCWD, file, &text, NULL) == 0 && text.len > 0 &&
                 rootless_range(text.data, user, uid, need, first);
    buf_done(&text);
    return found;
}

/* newuidmap and newgidmap: set-uid programs that write a map of the ids that the two files grant.
 * They must be run from outside the namespace. */
static void rootless_map_helper(const struct rootless *r, gid_t gid, uint32_t sub_gid, pid_t pid,
                                int go) {
    static char *const env[] = {NULL};
    char byte;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (read(go, &byte, 1) != 1) {
        _exit(1);
    }
    for (size_t i = 0; i < 2; i++) {
        char text[4][24];
        (void)snprintf(text[0], sizeof text[0], "%d", (int)pid);
        (void)snprintf(text[1], sizeof text[1], "%u", (unsigned)(i == 0 ? r->uid : gid));
        (void)snprintf(text[2], sizeof text[2], "%u", i == 0 ? r->sub : sub_gid);
        (void)snprintf(text[3], sizeof text[3], "%u", r->count);
        char program[32];
        char zero[] = "0";
        char one[] = "1";
        char one_more[] = "1";
        (void)str_copy(program, sizeof program, rootless_programs[i]);
        char *const argv[] = {program,  text[0], zero,    text[1], one,
                              one_more, text[2], text[3], NULL};
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            (void)execve(program, argv, env);
            _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            _exit(1);
        }
    }
    _exit(0);
}

static int rootless_unshare(struct err *err) {
    if (unshare(CLONE_NEWUSER) == 0) {
        return 0;
    }
    return err_set(
        err, ERR_SYSTEM, errno,
        "making a user namespace: %s; allow them for this user "
        "(user.max_user_namespaces, kernel.unprivileged_userns_clone, or, where AppArmor "
        "restricts them, load the profile in /usr/share/pinfold/apparmor)",
        strerror(errno));
}

/* 0 when mapped, 1 when the two programs refused, -1 on error. In the namespace either way. */
static int rootless_map_range(const struct rootless *r, gid_t gid, uint32_t sub_gid,
                              struct err *err) {
    int pipe_fds[2];
    pid_t self = getpid();
    int status = 0;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        return err_sys(err, "making a pipe");
    }
    fd_cleanup int theirs = pipe_fds[0];
    fd_cleanup int ours = pipe_fds[1];
    pid_t helper = fork();
    if (helper == 0) {
        (void)close(ours);
        rootless_map_helper(r, gid, sub_gid, self, theirs);
    }
    if (helper < 0) {
        return err_sys(err, "starting newuidmap");
    }
    int rc = rootless_unshare(err);
    if (rc == 0 && write(ours, "", 1) != 1) {
        rc = err_sys(err, "starting newuidmap");
    }
    fd_close(&ours); /* without a word it ends */
    while (waitpid(helper, &status, 0) < 0 && errno == EINTR) {
    }
    return rc != 0 ? -1 : status != 0;
}

/* The kernel lets everybody map one's own id, if groups are given up for good. */
static int rootless_map_one(const struct rootless *r, gid_t gid, struct err *err) {
    char text[64];
    int n = snprintf(text, sizeof text, "0 %u 1\n", (unsigned)r->uid);
    if (fd_write_kernel(AT_FDCWD, "/proc/self/setgroups", "deny", 4, err) != 0 ||
        fd_write_kernel(AT_FDCWD, "/proc/self/uid_map", text, (size_t)n, err) != 0) {
        return -1;
    }
    n = snprintf(text, sizeof text, "0 %u 1\n", (unsigned)gid);
    return fd_write_kernel(AT_FDCWD, "/proc/self/gid_map", text, (size_t)n, err);
}

/* AppArmor does not refuse the namespace everywhere: on Ubuntu it comes without capabilities, which
 * the first use of one tells. */
static int rootless_become(const struct rootless *r, gid_t gid, struct err *err) {
    struct err why = {0};
    if ((r->sub == 0 ? rootless_map_one(r, gid, &why) : setgroups(0, NULL)) == 0 &&
        setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0) {
        return 0;
    }
    return err_set(err, ERR_SYSTEM, why.kind != ERR_NONE ? why.code : errno,
                   "becoming root of the user namespace: %s; where it has no capabilities "
                   "(kernel.apparmor_restrict_unprivileged_userns), load the profile in "
                   "/usr/share/pinfold/apparmor",
                   why.kind != ERR_NONE ? why.text : strerror(errno));
}

/* With one id nobody may leave a group, neither here nor in a jail: what the runner is in, commands
 * would be in. */
static int rootless_groups(gid_t gid, struct err *err) {
    gid_t groups[64];
    int n = getgroups(64, groups);
    bool others = n < 0;
    for (int i = 0; i < n; i++) {
        others |= groups[i] != gid;
    }
    return !others ? 0
                   : err_set(err, ERR_STATE, 0,
                             "this user is in more groups than its own, and without a range in "
                             "/etc/subuid and /etc/subgid jails would be in them too; add the "
                             "ranges and the package uidmap, or use a user without such groups");
}

static void rootless_find(struct rootless *r, const char *user, uint32_t need, uint32_t *sub_gid) {
    bool programs =
        access(rootless_programs[0], X_OK) == 0 && access(rootless_programs[1], X_OK) == 0;
    bool range = rootless_look_up("/etc/subuid", user, r->uid, need, &r->sub) &&
                 rootless_look_up("/etc/subgid", user, r->uid, need, sub_gid);
    if (range && programs) {
        r->count = need;
        return;
    }
    r->sub = 0;
    (void)snprintf(r->why, sizeof r->why,
                   range ? "newuidmap and newgidmap are missing (package uidmap)"
                         : "%.40s has no %u ids in /etc/subuid and /etc/subgid",
                   user, need);
}

int rootless_enter(struct rootless *r, uint32_t need, struct err *err) {
    gid_t gid = getegid();
    uint32_t sub_gid = 0;
    char user[64] = "?";
    *r = (struct rootless){.uid = geteuid()};
    if (r->uid == 0 || getuid() == 0) {
        return err_set(err, ERR_INVALID, 0, "root needs no --rootless: leave it out");
    }
    const struct passwd *pw = getpwuid(r->uid);
    if (pw != NULL) {
        (void)str_copy(user, sizeof user, pw->pw_name);
    }
    rootless_find(r, user, need, &sub_gid);
    int rc = r->sub == 0 ? rootless_unshare(err) : rootless_map_range(r, gid, sub_gid, err);
    if (rc < 0) {
        return -1;
    }
    if (rc == 1) {
        r->sub = r->count = 0;
        (void)snprintf(r->why, sizeof r->why,
                       "newuidmap or newgidmap refused (do they have their set-uid bit, and is "
                       "NoNewPrivileges off?)");
    }
    if ((r->sub == 0 && rootless_groups(gid, err) != 0) || rootless_become(r, gid, err) != 0) {
        return -1;
    }
    r->ids =
        r->sub != 0 ? (struct jail_ids){1, SPAWN_IDS_FEW} : (struct jail_ids){0, SPAWN_IDS_ONE};
    return 0;
}
