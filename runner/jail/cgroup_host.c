/* The host's side of cgroup.h: finding the trees, the base groups, leftovers. */
#include <errno.h>
#include <fcntl.h>
#include <libcgroup.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "fd.h"
#include "str.h"

struct cgroup_controller {
    uint32_t role;
    const char *name;
    const char *limit; /* what cannot be kept without it */
    const char *remedy;
};

static const struct cgroup_controller cgroup_controllers[] = {
    {CGROUP_MEMORY, "memory", "mem_bytes",
     "boot with cgroup_enable=memory swapaccount=1, or delegate the memory controller"},
    {CGROUP_PIDS, "pids", "pids", "mount or delegate the pids controller"},
    {CGROUP_CPU, "cpu", "cpus_milli",
     "mount or delegate the cpu controller (kernel with CONFIG_CFS_BANDWIDTH)"},
    {CGROUP_CPUACCT, "cpuacct", "cpu_ms", "mount or delegate the cpuacct controller"},
};

/* One line of /proc/self/mountinfo that is a cgroup mount. */
struct cgroup_mount {
    bool v2;
    char root[256];  /* what of the tree is mounted */
    char point[256]; /* where */
    char options[256];
};

static bool cgroup_parse_mount(char *line, struct cgroup_mount *m) {
    char root[256];
    char point[256];
    char type[32];
    char options[256];
    char *dash = strstr(line, " - ");
    if (dash == NULL || sscanf(line, "%*d %*d %*s %255s %255s", root, point) != 2 ||
        sscanf(dash, " - %31s %*s %255s", type, options) != 2) {
        return false;
    }
    if (strcmp(type, "cgroup") != 0 && strcmp(type, "cgroup2") != 0) {
        return false;
    }
    m->v2 = strcmp(type, "cgroup2") == 0;
    (void)str_copy(m->root, sizeof m->root, root);
    (void)str_copy(m->point, sizeof m->point, point);
    (void)str_copy(m->options, sizeof m->options, options);
    return true;
}

static bool cgroup_has_word(const char *list, const char *word, const char *separators) {
    size_t n = strlen(word);
    while (*list != '\0') {
        size_t len = strcspn(list, separators);
        if (len == n && memcmp(list, word, n) == 0) {
            return true;
        }
        list += len + strspn(list + len, separators);
    }
    return false;
}

/* The path of our own group in a tree: the line of /proc/self/cgroup that lists `controller` ("" is
 * the v2 line). False when there is none. */
static bool cgroup_own_path(const char *text, const char *controller, char *out, size_t size) {
    char line[1024];
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        if (len < sizeof line) {
            memcpy(line, text, len);
            line[len] = '\0';
            char *list = strchr(line, ':');
            char *path = list ? strchr(list + 1, ':') : NULL;
            if (path != NULL) {
                *path++ = '\0';
                list++;
                bool match =
                    *controller == '\0' ? *list == '\0' : cgroup_has_word(list, controller, ",");
                if (match) {
                    return str_copy(out, size, path);
                }
            }
        }
        text += len + (text[len] == '\n' ? 1 : 0);
    }
    return false;
}

/* Makes <point><below>/<name>. Not by libcgroup where that cannot: it has no name for a cgroup2
 * tree without controllers, and without root it stops at the groups above the delegated one. */
static int cgroup_base_make(const char *below, const char *name, bool rootless,
                            struct cgroup_tree *t, struct err *err) {
    char path[512];
    int n = snprintf(path, sizeof path, "%s/%s", strcmp(below, "/") == 0 ? "" : below, name);
    int m = snprintf(t->base_path, sizeof t->base_path, "%s%s", t->mount_point, path);
    if (n >= (int)sizeof path || m >= (int)sizeof t->base_path) {
        return err_set(err, ERR_INVALID, 0, "the cgroup path %s%s is too long", below, name);
    }
    if (t->roles == CGROUP_KILL || rootless) {
        char *slash = strrchr(t->base_path, '/');
        *slash = '\0';
        int rc = mkdir(t->base_path, 0755);
        *slash = '/';
        if ((rc != 0 && errno != EEXIST) || (mkdir(t->base_path, 0755) != 0 && errno != EEXIST)) {
            return err_sys(err, "making the cgroup %s", t->base_path);
        }
        return 0;
    }
    struct cgroup *group = cgroup_new_cgroup(path + 1);
    int code = group == NULL ? ECGFAIL : 0;
    for (size_t i = 0; i < sizeof cgroup_controllers / sizeof cgroup_controllers[0]; i++) {
        const struct cgroup_controller *c = &cgroup_controllers[i];
        if ((t->roles & c->role) && !(t->v2 && c->role == CGROUP_CPUACCT) && code == 0 &&
            cgroup_add_controller(group, c->name) == NULL) {
            code = ECGFAIL;
        }
    }
    code = code == 0 ? cgroup_create_cgroup(group, 1) : code;
    cgroup_free(&group);
    return code == 0 ? 0
                     : err_set(err, ERR_STATE, 0, "making the cgroup %s (libcgroup: %s)",
                               t->base_path, cgroup_strerror(code));
}

static int cgroup_tree_open(struct cgroup_tree *t, const char *below, const char *name,
                            bool rootless, struct err *err) {
    if (cgroup_base_make(below, name, rootless, t, err) != 0) {
        return -1;
    }
    t->base_fd = open(t->base_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return t->base_fd < 0 ? err_sys(err, "opening the cgroup %s", t->base_path) : 0;
}

static int cgroup_enable_at(const char *path, uint32_t roles, struct err *err) {
    fd_cleanup int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return err_sys(err, "opening the cgroup %s", path);
    }
    return cgroup_enable(dir, roles, err);
}

/* Steps into a leaf of the group `dir`, so that it may hand its controllers on; else stays in it. A
 * shard is forked when the supervisor has stepped aside already (`led`): who did it undoes it. */
static int cgroup_step_aside(struct cgroup_host *host, const char *dir, bool led, uint32_t roles,
                             struct err *err) {
    if (cgroup_aside_step(dir, err) == 0 && cgroup_enable_at(dir, roles, err) == 0) {
        (void)(led || str_copy(host->aside, sizeof host->aside, dir));
        return 0;
    }
    if (!led) {
        cgroup_aside_back(dir);
    }
    return -1;
}

/* The root of the tree may have processes and children with controllers; the root of a cgroup
 * namespace (a container's) looks like it and may not. */
static int cgroup_v2_root(struct cgroup_host *host, const char *point, bool led, struct err *err) {
    struct err why;
    if (cgroup_enable_at(point, CGROUP_JAIL_ROLES, &why) == 0 ||
        (why.code == EBUSY && cgroup_step_aside(host, point, led, CGROUP_JAIL_ROLES, &why) == 0)) {
        return 0;
    }
    return err_set(
        err, ERR_STATE, why.code,
        "the cgroup %s cannot hand on its controllers (%.120s); start the runner in a "
        "group of its own, as with: systemd-run --scope -p Delegate=yes pinfold-runner …",
        point, why.text);
}

/* v2: controllers reach a group only if no ancestor that hands them on has processes of its own.
 * The runner therefore steps into a leaf of its group; if others still live in that group (a login
 * session, say), the base goes to the root of the tree, which is exempt from that rule. Sets *below
 * to the part of our path that the base goes under. */
static int cgroup_v2_below(struct cgroup_host *host, const char *point, char *below, size_t size,
                           struct err *err) {
    char dir[800];
    bool led = cgroup_aside_without_leaf(below);
    (void)snprintf(dir, sizeof dir, "%s%s", point, strcmp(below, "/") == 0 ? "" : below);
    if (strcmp(below, "/") != 0) {
        if (cgroup_step_aside(host, dir, led, CGROUP_JAIL_ROLES, NULL) == 0) {
            return 0;
        }
        (void)str_copy(below, size, "/");
    }
    return cgroup_v2_root(host, point, led, err);
}

/* Which of the CGROUP_JAIL_ROLES a group of a cgroup2 tree can hand on. */
static uint32_t cgroup_v2_roles(const char *dir) {
    char path[900];
    struct buf have;
    uint32_t roles = 0;
    buf_init(&have, 4096);
    (void)snprintf(path, sizeof path, "%s/cgroup.controllers", dir);
    if (fd_read_file(AT_FDCWD, path, &have, NULL) == 0 && have.len > 0) {
        for (size_t i = 0; i < sizeof cgroup_controllers / sizeof cgroup_controllers[0]; i++) {
            bool has = cgroup_has_word(have.data, cgroup_controllers[i].name, " \n");
            roles |= has ? cgroup_controllers[i].role : 0;
        }
    }
    buf_done(&have);
    return roles & CGROUP_JAIL_ROLES;
}

static struct cgroup_tree *cgroup_tree_new(struct cgroup_host *host, const struct cgroup_mount *m,
                                           uint32_t roles) {
    struct cgroup_tree *t = &host->tree[host->count];
    t->base_fd = -1;
    t->v2 = m->v2;
    t->roles = roles;
    (void)str_copy(t->mount_point, sizeof t->mount_point, m->point);
    (void)str_copy(t->mount_options, sizeof t->mount_options, m->options);
    (void)str_copy(t->mount_root, sizeof t->mount_root, m->root);
    return t;
}

/* Our own path within what the mount shows: in a container it shows a part of the tree, while
 * /proc/self/cgroup counts from the namespace's root. */
static void cgroup_below(const struct cgroup_mount *m, const char *own, const char *controller,
                         char *below, size_t size) {
    char path[512] = "/";
    (void)cgroup_own_path(own, controller, path, sizeof path);
    size_t root = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);
    const char *rest = strncmp(path, m->root, root) == 0 ? path + root : "/";
    (void)str_copy(below, size, *rest == '\0' ? "/" : rest);
}

int cgroup_tree_dir(const struct cgroup_tree *t, const char *proc_cgroup, char *out, size_t size,
                    struct err *err) {
    char path[512];
    const char *controller = "";
    for (size_t i = 0; !t->v2 && i < sizeof cgroup_controllers / sizeof cgroup_controllers[0];
         i++) {
        if (t->roles & cgroup_controllers[i].role) {
            controller = cgroup_controllers[i].name;
        }
    }
    size_t root = strcmp(t->mount_root, "/") == 0 ? 0 : strlen(t->mount_root);
    if (!cgroup_own_path(proc_cgroup, controller, path, sizeof path) ||
        strncmp(path, t->mount_root, root) != 0 || strstr(path, "/../") != NULL) {
        return err_set(err, ERR_STATE, ENOENT, "a process is in no group below %s", t->mount_point);
    }
    if (snprintf(out, size, "%s%s", t->mount_point, path + root) >= (int)size) {
        return err_set(err, ERR_LIMIT, ENAMETOOLONG, "the path of a cgroup is too long");
    }
    return 0;
}

/* From the base's parent to the base, and from that to jails. */
static int cgroup_v2_hand_on(const struct cgroup_tree *t, uint32_t roles, struct err *err) {
    char upper[512];
    (void)str_copy(upper, sizeof upper, t->base_path);
    *strrchr(upper, '/') = '\0';
    return cgroup_enable_at(upper, roles, err) != 0 ? -1 : cgroup_enable(t->base_fd, roles, err);
}

static int cgroup_add_v2(struct cgroup_host *host, const struct cgroup_mount *m, const char *own,
                         const char *name, struct err *err) {
    char below[512];
    bool full = cgroup_v2_roles(m->point) == CGROUP_JAIL_ROLES;
    struct cgroup_tree *t = cgroup_tree_new(host, m, full ? CGROUP_ROLES : CGROUP_KILL);
    cgroup_below(m, own, "", below, sizeof below);
    if (full && cgroup_v2_below(host, m->point, below, sizeof below, err) != 0) {
        return -1;
    }
    if (cgroup_tree_open(t, below, name, false, err) != 0) {
        return -1;
    }
    host->count++;
    return full ? cgroup_v2_hand_on(t, CGROUP_JAIL_ROLES, err) : 0;
}

static int cgroup_undelegated(const char *dir, const struct err *why, struct err *err) {
    return err_set(err, ERR_STATE, why->code,
                   "the cgroup %s is not delegated to this user alone (%.120s); start the runner "
                   "with: systemd-run --user --scope -p Delegate=yes pinfold-runner …",
                   dir, why->text);
}

/* Without root: our own group must be ours to divide, and nobody else may be in it. */
static int cgroup_add_rootless(struct cgroup_host *host, const struct cgroup_mount *m,
                               const char *own, const char *name, struct err *err) {
    char below[512];
    char dir[800];
    struct err why;
    cgroup_below(m, own, "", below, sizeof below);
    bool led = cgroup_aside_without_leaf(below);
    (void)snprintf(dir, sizeof dir, "%s%s", m->point, strcmp(below, "/") == 0 ? "" : below);
    uint32_t roles = cgroup_v2_roles(dir);
    if (cgroup_step_aside(host, dir, led, roles, &why) != 0) {
        return cgroup_undelegated(dir, &why, err);
    }
    /* Usage is counted in every group of this tree, whatever controllers it has. */
    struct cgroup_tree *t = cgroup_tree_new(host, m, roles | CGROUP_KILL | CGROUP_CPUACCT);
    if (cgroup_tree_open(t, below, name, true, err) != 0) {
        return -1;
    }
    host->count++;
    return cgroup_v2_hand_on(t, roles, err);
}

static int cgroup_add_v1(struct cgroup_host *host, const struct cgroup_mount *m, const char *own,
                         const char *name, struct err *err) {
    uint32_t roles = 0;
    const char *first = NULL;
    for (size_t i = 0; i < sizeof cgroup_controllers / sizeof cgroup_controllers[0]; i++) {
        if (cgroup_has_word(m->options, cgroup_controllers[i].name, ",")) {
            roles |= cgroup_controllers[i].role;
            first = first ? first : cgroup_controllers[i].name;
        }
    }
    for (size_t i = 0; i < host->count; i++) {
        roles &= ~host->tree[i].roles; /* mounted twice */
    }
    if (roles == 0 || host->count == CGROUP_TREES_MAX) {
        return 0;
    }
    char below[512];
    cgroup_below(m, own, first, below, sizeof below);
    if (cgroup_tree_open(cgroup_tree_new(host, m, roles), below, name, false, err) != 0) {
        return -1;
    }
    host->count++;
    return 0;
}

static int cgroup_scan(struct cgroup_host *host, const char *name, const char *own, bool v2,
                       struct err *err) {
    struct buf text;
    buf_init(&text, 8 << 20);
    int rc = fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &text, err);
    char *save = NULL;
    for (char *line = rc == 0 && text.len ? strtok_r(text.data, "\n", &save) : NULL;
         line != NULL && rc == 0; line = strtok_r(NULL, "\n", &save)) {
        struct cgroup_mount m;
        if (!cgroup_parse_mount(line, &m) || m.v2 != v2) {
            continue;
        }
        bool have_v2 = host->count > 0 && host->tree[0].v2;
        if (!v2) {
            rc = cgroup_add_v1(host, &m, own, name, err);
        } else if (!have_v2) {
            rc = host->rootless ? cgroup_add_rootless(host, &m, own, name, err)
                                : cgroup_add_v2(host, &m, own, name, err);
        }
    }
    buf_done(&text);
    return rc;
}

static uint32_t cgroup_have(const struct cgroup_host *host) {
    uint32_t roles = 0;
    for (size_t i = 0; i < host->count; i++) {
        roles |= host->tree[i].roles;
    }
    return roles;
}

/* Limits on memory mean nothing if pages may go to swap instead. */
static int cgroup_swap(struct cgroup_host *host, struct err *err) {
    struct buf text;
    buf_init(&text, 65536);
    int rc = fd_read_file(AT_FDCWD, "/proc/swaps", &text, NULL);
    bool swap = rc == 0 && text.len > 0 && strchr(text.data, '\n') != NULL &&
                strchr(text.data, '\n')[1] != '\0';
    buf_done(&text);
    for (size_t i = 0; i < host->count; i++) {
        if (host->tree[i].roles & CGROUP_PIDS) {
            host->pids_peak = faccessat(host->tree[i].base_fd, "pids.peak", F_OK, 0) == 0;
        }
        if (host->tree[i].roles & CGROUP_MEMORY) {
            const char *file = host->tree[i].v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes";
            host->tcp_limit =
                faccessat(host->tree[i].base_fd, "memory.kmem.tcp.limit_in_bytes", F_OK, 0) == 0;
            host->swap_limited = faccessat(host->tree[i].base_fd, file, F_OK, 0) == 0;
        }
    }
    for (size_t i = 0; i < host->count; i++) {
        if ((host->tree[i].roles & CGROUP_MEMORY) && !host->tree[i].v2 && !host->tcp_limit) {
            return err_set(err, ERR_STATE, 0,
                           "this kernel cannot limit the memory of sockets (cgroup v1 without "
                           "memory.kmem.tcp.limit_in_bytes); use cgroup v2");
        }
    }
    if (swap && !host->swap_limited && !(host->lacks & CGROUP_MEMORY)) {
        return err_set(err, ERR_STATE, 0,
                       "this host has swap and cannot limit it per cgroup; boot with swapaccount=1 "
                       "or turn swap off");
    }
    return 0;
}

/* Without it neither the peak nor whose limit killed a process would be known. */
static int cgroup_peak(const struct cgroup_host *host, struct err *err) {
    for (size_t i = 0; i < host->count; i++) {
        const struct cgroup_tree *t = &host->tree[i];
        if (t->v2 && (t->roles & CGROUP_MEMORY) &&
            faccessat(t->base_fd, "memory.peak", F_OK, 0) != 0) {
            return err_set(err, ERR_STATE, errno,
                           "the kernel has no memory.peak; with cgroup v2, Linux 5.19 or newer is "
                           "needed");
        }
    }
    return 0;
}

static int cgroup_complete(const struct cgroup_host *host, struct err *err) {
    uint32_t have = cgroup_have(host) | host->lacks;
    for (size_t i = 0; i < sizeof cgroup_controllers / sizeof cgroup_controllers[0]; i++) {
        if (!(have & cgroup_controllers[i].role)) {
            const struct cgroup_controller *c = &cgroup_controllers[i];
            return err_set(err, ERR_STATE, 0, "the cgroup controller %s is missing; %s%s%s",
                           c->name, c->remedy,
                           host->rootless ? ", or do without that limit: --allow-missing " : "",
                           host->rootless ? c->limit : "");
        }
    }
    for (size_t i = 0; i < host->count; i++) {
        if (host->tree[i].roles & CGROUP_KILL) {
            if (faccessat(host->tree[i].base_fd, "cgroup.kill", F_OK, 0) != 0) {
                return err_set(err, ERR_STATE, 0,
                               "the kernel has no cgroup.kill; Linux 5.14 or newer is needed");
            }
            return 0;
        }
    }
    return err_set(err, ERR_STATE, 0,
                   "no cgroup2 tree can be mounted; a kernel with cgroup v2 is "
                   "needed");
}

static uint64_t cgroup_least(uint64_t most, int dir, const char *path) {
    uint64_t value = 0;
    fd_cleanup int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && fd_read_u64(fd, &value, NULL) == 0 && value < most ? value : most;
}

/* Numbers of processes are one store for the whole host, or for the group that this runs in, and
 * what the limits of all jails come to may be more than that: a quarter is left to others, without
 * which nothing could be started any more, here or anywhere. */
static int cgroup_pids_share(const struct cgroup_host *host, const char *name, struct err *err) {
    char text[32];
    for (size_t i = 0; i < host->count; i++) {
        if (!(host->tree[i].roles & CGROUP_PIDS)) {
            continue;
        }
        /* All shards together: in the group above their bases. */
        fd_cleanup int all = openat(host->tree[i].base_fd, strchr(name, '/') != NULL ? ".." : ".",
                                    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        uint64_t most = cgroup_least(INT32_MAX, AT_FDCWD, "/proc/sys/kernel/pid_max");
        most = cgroup_least(most, AT_FDCWD, "/proc/sys/kernel/threads-max");
        most = cgroup_least(most, all, "../pids.max");
        int n = snprintf(text, sizeof text, "%llu", (unsigned long long)(most - most / 4));
        if (fd_write_kernel(all, "pids.max", text, (size_t)n, err) != 0) {
            return err_wrap(err, "bounding the processes of all jails together");
        }
    }
    return 0;
}

/* `mount_dir` may be NULL, for a user who may not mount anything there. */
static int cgroup_host_find(struct cgroup_host *host, const char *name, const char *mount_dir,
                            uint32_t may_lack, struct err *err) {
    struct buf own;
    buf_init(&own, 65536);
    host->left.dir = -1;
    int code = cgroup_init();
    int rc = code == 0 ? 0
                       : err_set(err, ERR_STATE, 0, "no cgroup tree is mounted (libcgroup: %s)",
                                 cgroup_strerror(code));
    if (rc == 0) {
        rc = fd_read_file(AT_FDCWD, "/proc/self/cgroup", &own, err);
    }
    const char *paths = own.data ? own.data : "";
    /* v2 first: a tree that has every controller makes the others unnecessary. */
    if (rc == 0) {
        rc = cgroup_scan(host, name, paths, true, err);
    }
    if (rc == 0 && host->count == 0 && mount_dir != NULL) {
        if (mount("cgroup2", mount_dir, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) {
            rc = cgroup_scan(host, name, paths, true, err);
        }
    }
    if (rc == 0 && !host->rootless && (cgroup_have(host) & ~(uint32_t)CGROUP_KILL) == 0) {
        rc = cgroup_scan(host, name, paths, false, err);
    }
    buf_done(&own);
    host->lacks = may_lack & ~cgroup_have(host);
    if (rc != 0 || cgroup_complete(host, err) != 0 || cgroup_peak(host, err) != 0 ||
        cgroup_swap(host, err) != 0 || cgroup_pids_share(host, name, err) != 0) {
        cgroup_host_done(host);
        cgroup_aside_end(host->aside);
        return -1;
    }
    return 0;
}

int cgroup_host_init(struct cgroup_host *host, const char *name, const char *mount_dir,
                     struct err *err) {
    memset(host, 0, sizeof *host);
    return cgroup_host_find(host, name, mount_dir, 0, err);
}

int cgroup_host_init_rootless(struct cgroup_host *host, const char *name, uint32_t may_lack,
                              struct err *err) {
    memset(host, 0, sizeof *host);
    host->rootless = true;
    return cgroup_host_find(host, name, NULL, may_lack & CGROUP_JAIL_ROLES, err);
}

void cgroup_host_done(struct cgroup_host *host) {
    if (host->count > 0) {
        cgroup_left_leave(host);
        fd_close(&host->left.dir);
    }
    for (size_t i = 0; i < host->count; i++) {
        struct cgroup_tree *t = &host->tree[i];
        fd_close(&t->base_fd);
        (void)rmdir(t->base_path);
        char *slash = strrchr(t->base_path, '/');
        if (slash != NULL) {
            *slash = '\0';
            (void)rmdir(t->base_path); /* stays while another shard uses it */
        }
    }
    host->count = 0;
}

/* Reconfigures the file system alone (a remount would reset the flags of the mount), repeating the
 * options it has: those that are not named are turned off. */
int cgroup_favor_dynmods(const struct cgroup_host *host) {
    for (size_t i = 0; i < host->count; i++) {
        const struct cgroup_tree *t = &host->tree[i];
        if (!t->v2) {
            continue;
        }
        fd_cleanup int fs = fspick(AT_FDCWD, t->mount_point, FSPICK_CLOEXEC);
        char options[256];
        (void)str_copy(options, sizeof options, t->mount_options);
        char *save = NULL;
        for (char *o = strtok_r(options, ",", &save); fs >= 0 && o;
             o = strtok_r(NULL, ",", &save)) {
            if (strcmp(o, "rw") != 0 && fsconfig(fs, FSCONFIG_SET_FLAG, o, NULL, 0) != 0) {
                return 0;
            }
        }
        if (fs < 0 || fsconfig(fs, FSCONFIG_SET_FLAG, "favordynmods", NULL, 0) != 0) {
            return 0;
        }
        return fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) == 0;
    }
    return 0;
}
