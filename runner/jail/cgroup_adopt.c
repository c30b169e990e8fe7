/* A jail in the groups of a container: see cgroup_jail_adopt(). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "fd.h"
#include "str.h"

#define CGROUP_ADOPT_LEAF "pinfold-init"
#define CGROUP_ADOPT_PROCS_MAX 4096u

/* Limits that are meant for a jail must not meet anybody else: the only process of the group is the
 * container's first. */
static int cgroup_adopt_alone(int dir, pid_t pid, struct err *err) {
    struct buf text;
    char want[32];
    (void)snprintf(want, sizeof want, "%d\n", (int)pid);
    buf_init(&text, CGROUP_ADOPT_PROCS_MAX);
    int rc = fd_read_file(dir, "cgroup.procs", &text, err);
    if (rc == 0 && (text.len != strlen(want) || memcmp(text.data, want, text.len) != 0)) {
        rc = err_set(err, ERR_STATE, EBUSY,
                     "a container shares its control group with other processes");
    }
    buf_done(&text);
    return rc;
}

/* v2: a group with processes of its own cannot have children with controllers. */
static int cgroup_adopt_leaf(int dir, pid_t pid, struct err *err) {
    char text[32];
    int n = snprintf(text, sizeof text, "%d", (int)pid);
    if (mkdirat(dir, CGROUP_ADOPT_LEAF, 0755) != 0) {
        return err_sys(err, "making a leaf for process 1 of a container");
    }
    return fd_write_kernel(dir, CGROUP_ADOPT_LEAF "/cgroup.procs", text, (size_t)n, err);
}

static int cgroup_adopt_tree(const struct cgroup_tree *tree, const char *groups, pid_t pid,
                             struct cgroup_jail *jail, struct err *err) {
    char path[768];
    if (cgroup_tree_dir(tree, groups, path, sizeof path, err) != 0) {
        return -1;
    }
    /* Neither the root of the tree nor what the runner itself is below. */
    size_t len = strlen(path);
    if (strlen(tree->mount_point) + 1 >= len ||
        (strncmp(tree->base_path, path, len) == 0 && tree->base_path[len] == '/')) {
        return err_set(err, ERR_STATE, EPERM, "the engine puts containers into %s, which is shared",
                       path);
    }
    fd_cleanup int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        return err_sys(err, "opening the control group of a container, %s", path);
    }
    if (cgroup_adopt_alone(dir, pid, err) != 0 ||
        (tree->v2 && (tree->roles & CGROUP_MEMORY) && cgroup_adopt_leaf(dir, pid, err) != 0) ||
        cgroup_delegate(tree, dir, err) != 0) {
        return -1;
    }
    /* The same name in every tree; where it is not, the engine has to do without our help. */
    const char *name = strrchr(path, '/') + 1;
    if (jail->adopted_as[0] == '\0') {
        (void)str_copy(jail->adopted_as, sizeof jail->adopted_as, name);
    }
    return fd_steal(&dir);
}

/* Is it a tree that the engine does not use (cgroup2 beside v1, mounted by us)? Then steps are in
 * our own groups. Trees with limits are never left out. */
static bool cgroup_adopt_none(const struct cgroup_tree *tree, const char *groups) {
    char path[768];
    return !(tree->roles & CGROUP_JAIL_ROLES) &&
           (cgroup_tree_dir(tree, groups, path, sizeof path, NULL) != 0 ||
            strlen(path) <= strlen(tree->mount_point) + 1);
}

/* Nothing lives in them any more. Each of the two may be faster. */
void cgroup_jail_return(struct cgroup_jail *jail) {
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        fd_cleanup int up =
            jail->fd[i] < 0 ? -1 : openat(jail->fd[i], "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || jail->adopted_as[0] == '\0') {
            continue;
        }
        (void)unlinkat(jail->fd[i], CGROUP_ADOPT_LEAF, AT_REMOVEDIR);
        (void)unlinkat(up, jail->adopted_as, AT_REMOVEDIR);
    }
    cgroup_jail_abandon(jail);
}

int cgroup_jail_adopt(const struct cgroup_host *host, const char *name, pid_t pid, int pidfd,
                      struct cgroup_jail *jail, struct err *err) {
    char proc[64];
    struct buf groups;
    struct pollfd died = {.fd = pidfd, .events = POLLIN};
    cgroup_jail_init(jail);
    jail->adopted = true;
    (void)snprintf(proc, sizeof proc, "/proc/%d/cgroup", (int)pid);
    buf_init(&groups, 65536);
    int rc = fd_read_file(AT_FDCWD, proc, &groups, err);
    /* As long as it lives its number is its own, and so are the groups that were read. */
    if (rc == 0 && poll(&died, 1, 0) != 0) {
        rc = err_set(err, ERR_STATE, ESRCH, "process 1 of a container died while it was set up");
    }
    if (rc == 0 && (groups.len == 0 || !str_copy(jail->name, sizeof jail->name, name))) {
        rc = err_set(err, ERR_INVALID, 0, "the cgroup name %s is too long", name);
    }
    for (size_t i = 0; rc == 0 && i < host->count; i++) {
        /* Also where a jail of ours has no group: steps that were elsewhere would tell, from
         * inside, the names of groups of the host. */
        if (cgroup_adopt_none(&host->tree[i], groups.data)) {
            continue;
        }
        jail->fd[i] = cgroup_adopt_tree(&host->tree[i], groups.data, pid, jail, err);
        rc = jail->fd[i] < 0 ? -1 : 0;
    }
    buf_done(&groups);
    if (rc == 0) {
        rc = cgroup_jail_counters(host, jail, err);
    }
    if (rc != 0) {
        cgroup_jail_abandon(jail);
    }
    return rc;
}
