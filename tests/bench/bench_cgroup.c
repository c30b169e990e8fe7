#include "bench_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "str.h"

#define BENCH_CGROUP_JAIL "jail"
#define BENCH_CGROUP_REMOVE_NS (2 * CLOCK_NS_PER_S)

enum bench_cgroup_role {
    BENCH_CGROUP_MEMORY = 1,
    BENCH_CGROUP_PIDS = 2,
    BENCH_CGROUP_CPU = 4,
    BENCH_CGROUP_CPUACCT = 8,
    BENCH_CGROUP_V2 = 16,
    BENCH_CGROUP_NEEDED = 7,
};

static const struct {
    const char *name;
    unsigned role;
} bench_cgroup_names[] = {
    {"memory", BENCH_CGROUP_MEMORY},
    {"pids", BENCH_CGROUP_PIDS},
    {"cpu", BENCH_CGROUP_CPU},
    {"cpuacct", BENCH_CGROUP_CPUACCT},
};

/* Limits that a jail gets: the values do not matter for the time, only that they are written. */
static const struct {
    unsigned roles; /* all of these */
    bool v2;
    bool optional; /* memory without swap accounting */
    const char *file;
    const char *value;
} bench_cgroup_limits[] = {
    {BENCH_CGROUP_MEMORY, false, false, "memory.limit_in_bytes", "268435456"},
    {BENCH_CGROUP_MEMORY, false, true, "memory.memsw.limit_in_bytes", "268435456"},
    {BENCH_CGROUP_PIDS, false, false, "pids.max", "64"},
    {BENCH_CGROUP_CPU, false, false, "cpu.cfs_quota_us", "100000"},
    {BENCH_CGROUP_MEMORY, true, false, "memory.max", "268435456"},
    {BENCH_CGROUP_MEMORY, true, true, "memory.swap.max", "0"},
    {BENCH_CGROUP_PIDS, true, false, "pids.max", "64"},
    {BENCH_CGROUP_CPU, true, false, "cpu.max", "100000 100000"},
};

/* Does the list "a,b c" (mount options, cgroup.controllers) hold `word`? */
static bool bench_cgroup_lists(const char *list, const char *word) {
    size_t len = strlen(word);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ", \n");
        if (n == len && memcmp(p, word, len) == 0)
            return true;
        p += n;
        p += strspn(p, ", \n");
    }
    return false;
}

static unsigned bench_cgroup_roles(const char *list) {
    unsigned roles = 0;
    for (size_t i = 0; i < sizeof(bench_cgroup_names) / sizeof(bench_cgroup_names[0]); i++)
        if (bench_cgroup_lists(list, bench_cgroup_names[i].name))
            roles |= bench_cgroup_names[i].role;
    return roles;
}

/* v2: switches the controllers that it has on for the directories below `dir`; adds to *roles. */
static int bench_cgroup_enable(int dir, unsigned *roles, struct err *err) {
    struct buf have;
    buf_init(&have, 4096);
    int rc = fd_read_file(dir, "cgroup.controllers", &have, err);
    for (size_t i = 0; rc == 0 && have.len && i < 3; i++) {
        char text[32];
        if (!bench_cgroup_lists(have.data, bench_cgroup_names[i].name))
            continue;
        snprintf(text, sizeof(text), "+%s", bench_cgroup_names[i].name);
        rc = fd_write_kernel(dir, "cgroup.subtree_control", text, strlen(text), err);
        *roles |= bench_cgroup_names[i].role;
    }
    buf_done(&have);
    return rc;
}

/* Makes our directory in the hierarchy that is mounted at `where` and adds it to *g. */
static int bench_cgroup_add(struct bench_cgroups *g, const char *where, unsigned roles,
                            struct err *err) {
    if (g->count == BENCH_CGROUP_MAX)
        return err_set(err, ERR_LIMIT, 0, "more than %d cgroup hierarchies", BENCH_CGROUP_MAX);
    struct bench_cgroup_tree *t = &g->tree[g->count];
    *t = (struct bench_cgroup_tree){.root = -1, .base = -1, .roles = roles};
    if (!str_copy(t->where, sizeof(t->where), where))
        return err_set(err, ERR_LIMIT, 0, "the path of a cgroup is too long: %s", where);
    g->count++;
    t->root = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->root < 0)
        return err_sys(err, "open %s", where);
    if ((roles & BENCH_CGROUP_V2) && bench_cgroup_enable(t->root, &t->roles, err) < 0)
        return err_wrap(err, "%s", where);
    if (mkdirat(t->root, g->name, 0755) < 0)
        return err_sys(err, "make the cgroup %s in %s", g->name, where);
    t->base = openat(t->root, g->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->base < 0)
        return err_sys(err, "open the cgroup %s in %s", g->name, where);
    if ((roles & BENCH_CGROUP_V2) && bench_cgroup_enable(t->base, &t->roles, err) < 0)
        return err_wrap(err, "%s in %s", g->name, where);
    return 0;
}

/* Every hierarchy that carries one of our controllers, and cgroup2 in any case. */
static int bench_cgroup_find(struct bench_cgroups *g, struct err *err) {
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    if (!mounts)
        return err_sys(err, "read the mount table");
    struct mntent ent;
    char text[2048];
    unsigned seen = 0;
    int rc = 0;
    while (rc == 0 && getmntent_r(mounts, &ent, text, sizeof(text))) {
        unsigned roles = 0;
        if (strcmp(ent.mnt_type, "cgroup") == 0)
            roles = bench_cgroup_roles(ent.mnt_opts);
        else if (strcmp(ent.mnt_type, "cgroup2") == 0)
            roles = BENCH_CGROUP_V2;
        if (!(roles & ~seen))
            continue; /* not ours, or mounted a second time */
        seen |= roles;
        rc = bench_cgroup_add(g, ent.mnt_dir, roles, err);
    }
    endmntent(mounts);
    return rc;
}

int bench_cgroup_init(struct bench_cgroups *g, const char *name, struct err *err) {
    *g = (struct bench_cgroups){0};
    if (!str_copy(g->name, sizeof(g->name), name))
        return err_set(err, ERR_INVALID, 0, "the name of a cgroup is too long");
    int rc = bench_cgroup_find(g, err);
    unsigned roles = 0;
    for (size_t i = 0; i < g->count; i++)
        roles |= g->tree[i].roles;
    if (rc == 0 && (roles & BENCH_CGROUP_NEEDED) != BENCH_CGROUP_NEEDED)
        rc = err_set(err, ERR_STATE, 0, "this host lacks the memory, pids or cpu cgroup");
    if (rc < 0)
        bench_cgroup_done(g);
    return rc;
}

void bench_cgroup_done(struct bench_cgroups *g) {
    for (size_t i = 0; i < g->count; i++) {
        fd_close(&g->tree[i].base);
        if (g->tree[i].root >= 0)
            (void)unlinkat(g->tree[i].root, g->name, AT_REMOVEDIR);
        fd_close(&g->tree[i].root);
    }
    g->count = 0;
}

int bench_cgroup_make(const struct bench_cgroups *g, struct bench_cgroup_jail *j, struct err *err) {
    for (size_t i = 0; i < g->count; i++)
        j->dir[i] = -1;
    for (size_t i = 0; i < g->count; i++) {
        if (mkdirat(g->tree[i].base, BENCH_CGROUP_JAIL, 0755) < 0)
            return err_sys(err, "make a cgroup in %s", g->tree[i].where);
        j->dir[i] = openat(g->tree[i].base, BENCH_CGROUP_JAIL, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (j->dir[i] < 0)
            return err_sys(err, "open a cgroup in %s", g->tree[i].where);
    }
    return 0;
}

int bench_cgroup_limit(const struct bench_cgroups *g, const struct bench_cgroup_jail *j,
                       struct err *err) {
    size_t count = sizeof(bench_cgroup_limits) / sizeof(bench_cgroup_limits[0]);
    for (size_t i = 0; i < g->count; i++) {
        bool v2 = g->tree[i].roles & BENCH_CGROUP_V2;
        for (size_t k = 0; k < count; k++) {
            const char *value = bench_cgroup_limits[k].value;
            if (bench_cgroup_limits[k].v2 != v2 ||
                !(g->tree[i].roles & bench_cgroup_limits[k].roles))
                continue;
            if (fd_write_kernel(j->dir[i], bench_cgroup_limits[k].file, value, strlen(value), err) <
                    0 &&
                !bench_cgroup_limits[k].optional)
                return -1;
        }
    }
    return 0;
}

int bench_cgroup_attach(const struct bench_cgroups *g, const struct bench_cgroup_jail *j, pid_t pid,
                        struct err *err) {
    char text[16];
    size_t len = (size_t)snprintf(text, sizeof(text), "%d", pid);
    for (size_t i = 0; i < g->count; i++)
        if (fd_write_kernel(j->dir[i], "cgroup.procs", text, len, err) < 0)
            return err_wrap(err, "%s", g->tree[i].where);
    return 0;
}

int bench_cgroup_remove(const struct bench_cgroups *g, struct bench_cgroup_jail *j,
                        struct err *err) {
    uint64_t give_up = clock_mono_ns() + BENCH_CGROUP_REMOVE_NS;
    for (size_t i = 0; i < g->count; i++) {
        fd_close(&j->dir[i]);
        /* A task leaves its cgroup a moment after wait() has reported it. */
        while (unlinkat(g->tree[i].base, BENCH_CGROUP_JAIL, AT_REMOVEDIR) < 0) {
            if (errno == ENOENT)
                break;
            if (errno != EBUSY || clock_mono_ns() > give_up)
                return err_sys(err, "remove a cgroup of %s", g->tree[i].where);
        }
    }
    return 0;
}

/* Removes what is left in the hierarchy that is mounted at `where`. */
static void bench_cgroup_sweep_tree(const char *where) {
    DIR *dir = opendir(where);
    struct dirent *ent;
    while (dir && (ent = readdir(dir))) {
        char path[PATH_MAX];
        size_t len = strlen(BENCH_CGROUP_PREFIX);
        if (strncmp(ent->d_name, BENCH_CGROUP_PREFIX, len) != 0)
            continue;
        pid_t pid = (pid_t)strtol(ent->d_name + len, NULL, 10);
        if (pid <= 0 || kill(pid, 0) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s/%s", where, ent->d_name, BENCH_CGROUP_JAIL);
        (void)rmdir(path);
        path[strlen(path) - strlen("/" BENCH_CGROUP_JAIL)] = '\0';
        (void)rmdir(path);
    }
    if (dir)
        closedir(dir);
}

void bench_cgroup_sweep(void) {
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    struct mntent ent;
    char text[2048];
    while (mounts && getmntent_r(mounts, &ent, text, sizeof(text)))
        if (strcmp(ent.mnt_type, "cgroup") == 0 || strcmp(ent.mnt_type, "cgroup2") == 0)
            bench_cgroup_sweep_tree(ent.mnt_dir);
    if (mounts)
        endmntent(mounts);
}
