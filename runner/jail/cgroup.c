#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "str.h"
#include "wire.h"

#define CGROUP_TCP_SHARE 4u
#define CGROUP_PERIOD_US 100000u /* the kernel's own default */

size_t cgroup_find(const struct cgroup_host *host, uint32_t role) {
    for (size_t i = 0; i < host->count; i++) {
        if (host->tree[i].roles & role) {
            return i;
        }
    }
    return 0; /* of a role in host->lacks: whoever may meet one looks there first */
}

int cgroup_put(int dir, const char *file, uint64_t value, struct err *err) {
    char text[32];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return fd_write_kernel(dir, file, text, (size_t)n, err);
}

static int cgroup_mkdir(int parent, const char *name, struct err *err) {
    if (mkdirat(parent, name, 0755) != 0) {
        return err_sys(err, "making cgroup %s", name);
    }
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        (void)err_sys(err, "opening cgroup %s", name);
        (void)unlinkat(parent, name, AT_REMOVEDIR);
    }
    return fd;
}

void cgroup_jail_init(struct cgroup_jail *jail) {
    memset(jail, 0, sizeof *jail);
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        jail->fd[i] = -1;
    }
    jail->pids_fd = jail->refused_fd = jail->share_fd = jail->peak_fd = -1;
}

void cgroup_step_init(struct cgroup_step *step) {
    memset(step, 0, sizeof *step);
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        step->fd[i] = -1;
    }
    step->pids_fd = step->refused_fd = step->share_fd = -1;
    step->usage_fd = step->user_fd = step->peak_fd = step->oom_fd = step->events_fd = -1;
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        step->procs_fd[i] = -1;
    }
}

static int cgroup_open(int dir, const char *file, struct err *err) {
    int fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_sys(err, "opening cgroup file %s", file) : fd;
}

int cgroup_enable(int dir, uint32_t roles, struct err *err) {
    char want[64];
    int n = snprintf(want, sizeof want, "%s%s%s", roles & CGROUP_MEMORY ? "+memory " : "",
                     roles & CGROUP_PIDS ? "+pids " : "", roles & CGROUP_CPU ? "+cpu " : "");
    return n == 0 ? 0 : fd_write_kernel(dir, "cgroup.subtree_control", want, (size_t)n, err);
}

/* A jail's group hands its controllers on to its steps (v2 only; v1 needs nothing). */
int cgroup_delegate(const struct cgroup_tree *tree, int dir, struct err *err) {
    return tree->v2 ? cgroup_enable(dir, tree->roles, err) : 0;
}

struct cgroup_counts {
    int pids_fd, refused_fd, share_fd;
};

/* The files that count pids and CPU share in the groups `fd`. */
static int cgroup_counts_open(const struct cgroup_host *host, const int fd[CGROUP_TREES_MAX],
                              struct cgroup_counts *c, struct err *err) {
    if (!(host->lacks & CGROUP_PIDS)) {
        int pids = fd[cgroup_find(host, CGROUP_PIDS)];
        c->pids_fd = cgroup_open(pids, host->pids_peak ? "pids.peak" : "pids.current", err);
        c->refused_fd = c->pids_fd < 0 ? -1 : cgroup_open(pids, "pids.events", err);
        if (c->refused_fd < 0) {
            return -1;
        }
    }
    if (!(host->lacks & CGROUP_CPU)) {
        c->share_fd = cgroup_open(fd[cgroup_find(host, CGROUP_CPU)], "cpu.stat", err);
        return c->share_fd < 0 ? -1 : 0;
    }
    return 0;
}

/* The counters of a jail stay open: they are read at the end of every step. */
int cgroup_jail_counters(const struct cgroup_host *host, struct cgroup_jail *jail,
                         struct err *err) {
    size_t mem = cgroup_find(host, CGROUP_MEMORY);
    const char *peak = host->tree[mem].v2 ? "memory.peak" : "memory.max_usage_in_bytes";
    struct cgroup_counts c = {-1, -1, -1};
    int rc = cgroup_counts_open(host, jail->fd, &c, err);
    jail->pids_fd = c.pids_fd;
    jail->refused_fd = c.refused_fd;
    jail->share_fd = c.share_fd;
    if (rc != 0 || (host->lacks & CGROUP_MEMORY)) {
        return rc;
    }
    jail->peak_fd = cgroup_open(jail->fd[mem], peak, err);
    return jail->peak_fd < 0 ? -1 : 0;
}

/* Directory in which the jail's own directory of tree i is made. */
static int cgroup_jail_parent(const struct cgroup_host *host, const struct cgroup_jail *jail,
                              size_t i) {
    return jail->left && (host->tree[i].roles & CGROUP_CPU) ? host->left.dir
                                                            : host->tree[i].base_fd;
}

static int cgroup_rmdir(int parent, const char *name, int *fd, struct err *err) {
    if (*fd < 0) {
        return 0;
    }
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return err_sys(err, "removing cgroup %s", name);
    }
    fd_close(fd);
    return 0;
}

static void cgroup_jail_close(struct cgroup_jail *jail) {
    fd_close(&jail->pids_fd);
    fd_close(&jail->refused_fd);
    fd_close(&jail->share_fd);
    fd_close(&jail->peak_fd);
}

static int cgroup_jail_rmdir(const struct cgroup_host *host, struct cgroup_jail *jail,
                             struct err *err) {
    int rc = 0;
    for (size_t i = 0; i < host->count; i++) {
        rc |= cgroup_rmdir(cgroup_jail_parent(host, jail, i), jail->name, &jail->fd[i], err);
    }
    return rc;
}

/* One that could not be made. */
static void cgroup_jail_unmake(struct cgroup_host *host, struct cgroup_jail *jail) {
    cgroup_jail_close(jail);
    (void)cgroup_jail_rmdir(host, jail, NULL);
    if (jail->left) {
        cgroup_left_leave(host);
    }
}

int cgroup_jail_make(struct cgroup_host *host, const char *name, bool left,
                     struct cgroup_jail *jail, struct err *err) {
    cgroup_jail_init(jail);
    jail->lacks = host->lacks;
    jail->left = jail->idle = left;
    if (left && cgroup_left_enter(host, err) != 0) {
        return -1;
    }
    if (!str_copy(jail->name, sizeof jail->name, name)) {
        return err_set(err, ERR_INVALID, 0, "the cgroup name %s is too long", name);
    }
    for (size_t i = 0; i < host->count; i++) {
        if (!(host->tree[i].roles & CGROUP_JAIL_ROLES)) {
            continue;
        }
        jail->fd[i] = cgroup_mkdir(cgroup_jail_parent(host, jail, i), name, err);
        if (jail->fd[i] < 0 || cgroup_delegate(&host->tree[i], jail->fd[i], err) != 0) {
            cgroup_jail_unmake(host, jail);
            return -1;
        }
    }
    if (cgroup_jail_counters(host, jail, err) != 0 ||
        (left && cgroup_weigh_idle(jail->fd[cgroup_find(host, CGROUP_CPU)], true, err) != 0)) {
        cgroup_jail_unmake(host, jail);
        return -1;
    }
    return 0;
}

/* v1 demands memory <= memory+swap at every moment: lowering goes memory first, raising the other
 * way round. Trying both orders saves reading the current value. */
static int cgroup_memory_v1(const struct cgroup_host *host, int dir, uint64_t bytes,
                            struct err *err) {
    static const char mem[] = "memory.limit_in_bytes";
    static const char memsw[] = "memory.memsw.limit_in_bytes";
    if (!host->swap_limited || faccessat(dir, memsw, F_OK, 0) != 0) {
        return cgroup_put(dir, mem, bytes, err);
    }
    if (cgroup_put(dir, mem, bytes, NULL) == 0) {
        return cgroup_put(dir, memsw, bytes, err);
    }
    if (cgroup_put(dir, memsw, bytes, err) != 0) {
        return -1;
    }
    return cgroup_put(dir, mem, bytes, err);
}

static int cgroup_memory_v2(int dir, uint64_t bytes, struct err *err) {
    if (cgroup_put(dir, "memory.max", bytes, err) != 0) {
        return -1;
    }
    if (faccessat(dir, "memory.swap.max", F_OK, 0) != 0) {
        return 0; /* no swap accounting: cgroup_host_init() saw that there is no swap */
    }
    return cgroup_put(dir, "memory.swap.max", 0, err);
}

static int cgroup_memory(const struct cgroup_host *host, size_t tree, int dir, uint64_t bytes,
                         struct err *err) {
    if (host->lacks & CGROUP_MEMORY) {
        return 0;
    }
    return host->tree[tree].v2 ? cgroup_memory_v2(dir, bytes, err)
                               : cgroup_memory_v1(host, dir, bytes, err);
}

static int cgroup_share(bool v2, int dir, uint64_t cpus_milli, struct err *err) {
    uint64_t quota = cpus_milli * CGROUP_PERIOD_US / 1000;
    if (!v2) {
        return cgroup_put(dir, "cpu.cfs_quota_us", quota, err);
    }
    char text[64];
    int n = snprintf(text, sizeof text, "%llu %u", (unsigned long long)quota, CGROUP_PERIOD_US);
    return fd_write_kernel(dir, "cpu.max", text, (size_t)n, err);
}

/* pids and CPU share of a jail, or of a step that has its own. */
static int cgroup_crowd(const struct cgroup_host *host, const int fd[CGROUP_TREES_MAX],
                        const struct limits *limits, struct err *err) {
    size_t pids = cgroup_find(host, CGROUP_PIDS);
    size_t cpu = cgroup_find(host, CGROUP_CPU);
    if (!(host->lacks & CGROUP_PIDS) &&
        cgroup_put(fd[pids], "pids.max", limits->v[LIMIT_PIDS], err) != 0) {
        return -1;
    }
    if (host->lacks & CGROUP_CPU) {
        return 0;
    }
    return cgroup_share(host->tree[cpu].v2, fd[cpu], limits->v[LIMIT_CPUS_MILLI], err);
}

int cgroup_jail_limit(const struct cgroup_host *host, const struct cgroup_jail *jail,
                      const struct limits *limits, struct err *err) {
    size_t mem = cgroup_find(host, CGROUP_MEMORY);
    if (cgroup_memory(host, mem, jail->fd[mem], limits->v[LIMIT_MEM_BYTES], err) != 0) {
        return -1;
    }
    return cgroup_crowd(host, jail->fd, limits, err);
}

static int cgroup_throttled(const struct cgroup_host *host, int share_fd, uint64_t *ns,
                            struct err *err) {
    bool v2 = host->tree[cgroup_find(host, CGROUP_CPU)].v2;
    uint64_t value = 0;
    if (host->lacks & CGROUP_CPU) {
        *ns = 0;
        return 0;
    }
    if (fd_read_keyed_u64(share_fd, v2 ? "throttled_usec" : "throttled_time", &value, err) != 0) {
        return -1;
    }
    *ns = v2 ? value * 1000 : value;
    return 0;
}

int cgroup_jail_mark(const struct cgroup_host *host, struct cgroup_jail *jail, struct err *err) {
    if (!(host->lacks & CGROUP_PIDS) &&
        fd_read_keyed_u64(jail->refused_fd, "max", &jail->refused_base, err) != 0) {
        return -1;
    }
    return cgroup_throttled(host, jail->share_fd, &jail->throttled_base, err);
}

int cgroup_jail_read(const struct cgroup_host *host, const struct cgroup_jail *jail,
                     const struct cgroup_step *step, struct cgroup_jail_usage *usage,
                     struct err *err) {
    struct cgroup_jail_usage u = {0};
    if (!(host->lacks & CGROUP_PIDS) &&
        (fd_read_u64(step->own ? step->pids_fd : jail->pids_fd, &u.pids_peak, err) != 0 ||
         fd_read_keyed_u64(step->own ? step->refused_fd : jail->refused_fd, "max", &u.pids_refused,
                           err) != 0)) {
        return -1;
    }
    if (cgroup_throttled(host, step->own ? step->share_fd : jail->share_fd, &u.throttled_ns, err) !=
        0) {
        return -1;
    }
    if (!step->own && step->refused_fd >= 0) {
        uint64_t here = 0;
        if (fd_read_keyed_u64(step->refused_fd, "max", &here, err) != 0) {
            return -1;
        }
        u.pids_refused += here;
    }
    u.pids_refused -= step->own ? 0 : jail->refused_base;
    u.throttled_ns -= step->own ? 0 : jail->throttled_base;
    *usage = u;
    return 0;
}

int cgroup_jail_peak(const struct cgroup_jail *jail, uint64_t *bytes, struct err *err) {
    if (jail->lacks & CGROUP_MEMORY) {
        *bytes = 0;
        return 0;
    }
    return fd_read_u64(jail->peak_fd, bytes, err);
}

int cgroup_jail_memory(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       uint64_t *bytes, struct err *err) {
    size_t mem = cgroup_find(host, CGROUP_MEMORY);
    if (host->lacks & CGROUP_MEMORY) {
        *bytes = 0;
        return 0;
    }
    fd_cleanup int fd = cgroup_open(
        jail->fd[mem], host->tree[mem].v2 ? "memory.current" : "memory.usage_in_bytes", err);
    return fd < 0 ? -1 : fd_read_u64(fd, bytes, err);
}

/* Directory in which the step's own directory of tree i is made. */
static int cgroup_step_parent(const struct cgroup_host *host, const struct cgroup_jail *jail,
                              size_t i) {
    return jail->fd[i] >= 0 ? jail->fd[i] : host->tree[i].base_fd;
}

static int cgroup_step_open_usage(const struct cgroup_host *host, struct cgroup_step *step,
                                  struct err *err) {
    size_t mem = cgroup_find(host, CGROUP_MEMORY);
    size_t acct = cgroup_find(host, CGROUP_CPUACCT);
    size_t kill = cgroup_find(host, CGROUP_KILL);
    bool v2 = host->tree[mem].v2;
    step->usage_v2 = host->tree[acct].v2;
    step->usage_fd =
        cgroup_open(step->fd[acct], step->usage_v2 ? "cpu.stat" : "cpuacct.usage", err);
    if (step->usage_fd < 0) {
        return -1;
    }
    if (!step->usage_v2) {
        step->user_fd = cgroup_open(step->fd[acct], "cpuacct.usage_user", err);
        if (step->user_fd < 0) {
            return -1;
        }
    }
    if (!(host->lacks & CGROUP_MEMORY)) {
        step->peak_fd =
            cgroup_open(step->fd[mem], v2 ? "memory.peak" : "memory.max_usage_in_bytes", err);
        if (step->peak_fd < 0) {
            return -1;
        }
        step->oom_fd = cgroup_open(step->fd[mem], v2 ? "memory.events" : "memory.oom_control", err);
        if (step->oom_fd < 0) {
            return -1;
        }
    }
    /* Where all is one tree, a process is in the step's group for pids as well. Before Linux 6.11 a
     * refused fork is counted there, whoever's limit it met; since then where the limit is. */
    size_t pids = cgroup_find(host, CGROUP_PIDS);
    if (!step->own && !(host->lacks & CGROUP_PIDS) && step->fd[pids] >= 0) {
        step->refused_fd = cgroup_open(step->fd[pids], "pids.events", err);
        if (step->refused_fd < 0) {
            return -1;
        }
    }
    step->events_fd = cgroup_open(step->fd[kill], "cgroup.events", err);
    return step->events_fd < 0 ? -1 : 0;
}

int cgroup_step_watch(const struct cgroup_host *host, struct cgroup_step *step, struct err *err) {
    if (step->events_fd < 0 && cgroup_step_open_usage(host, step, err) != 0) {
        return -1;
    }
    if (!step->own || step->share_fd >= 0 || step->pids_fd >= 0) {
        return 0;
    }
    fd_close(&step->refused_fd); /* of the time before cgroup_step_extend() */
    struct cgroup_counts c = {-1, -1, -1};
    int rc = cgroup_counts_open(host, step->fd, &c, err);
    step->pids_fd = c.pids_fd;
    step->refused_fd = c.refused_fd;
    step->share_fd = c.share_fd;
    return rc;
}

int cgroup_step_make(const struct cgroup_host *host, struct cgroup_jail *jail, unsigned n, bool own,
                     struct cgroup_step *step, struct err *err) {
    uint32_t roles = own ? CGROUP_ROLES : CGROUP_STEP_ROLES;
    cgroup_step_init(step);
    step->own = own;
    step->lacks = host->lacks;
    /* The jail's name is in it, since a tree without a directory per jail has all steps side by
     * side. */
    (void)snprintf(step->name, sizeof step->name, "%.40s.s%u", jail->name, n);
    memcpy(step->mem_name, step->name, sizeof step->mem_name);
    bool kept = own && cgroup_keep_take(host, jail, step);
    for (size_t i = 0; i < host->count; i++) {
        if (!(host->tree[i].roles & roles) || (kept && step->fd[i] >= 0)) {
            continue;
        }
        step->fd[i] = cgroup_mkdir(cgroup_step_parent(host, jail, i), step->name, err);
        if (step->fd[i] < 0) {
            (void)cgroup_step_remove(host, jail, step, NULL);
            return -1;
        }
    }
    return 0;
}

int cgroup_step_extend(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err) {
    step->own = true;
    for (size_t i = 0; i < host->count; i++) {
        if (step->fd[i] >= 0 || !(host->tree[i].roles & CGROUP_ROLES)) {
            continue;
        }
        step->fd[i] = cgroup_mkdir(cgroup_step_parent(host, jail, i), step->name, err);
        if (step->fd[i] < 0 || cgroup_put(step->fd[i], "cgroup.procs", (uint64_t)pid, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int cgroup_step_limit(const struct cgroup_host *host, const struct cgroup_step *step,
                      const struct limits *limits, struct err *err) {
    size_t mem = cgroup_find(host, CGROUP_MEMORY);
    uint64_t bytes = limits->v[LIMIT_MEM_BYTES];
    if (host->tcp_limit && cgroup_put(step->fd[mem], "memory.kmem.tcp.limit_in_bytes",
                                      bytes / CGROUP_TCP_SHARE, err) != 0) {
        return -1;
    }
    if (cgroup_memory(host, mem, step->fd[mem], bytes, err) != 0) {
        return -1;
    }
    return step->own ? cgroup_crowd(host, step->fd, limits, err) : 0;
}

int cgroup_step_cpu(const struct cgroup_step *step, uint64_t *cpu_ns, struct err *err) {
    if (!step->usage_v2) {
        return fd_read_u64(step->usage_fd, cpu_ns, err);
    }
    uint64_t us = 0;
    if (fd_read_keyed_u64(step->usage_fd, "usage_usec", &us, err) != 0) {
        return -1;
    }
    *cpu_ns = us * 1000;
    return 0;
}

static int cgroup_step_times(const struct cgroup_step *step, struct cgroup_usage *u,
                             struct err *err) {
    if (cgroup_step_cpu(step, &u->cpu_ns, err) != 0) {
        return -1;
    }
    if (!step->usage_v2) {
        if (fd_read_u64(step->user_fd, &u->cpu_user_ns, err) != 0) {
            return -1;
        }
    } else {
        if (fd_read_keyed_u64(step->usage_fd, "user_usec", &u->cpu_user_ns, err) != 0) {
            return -1;
        }
        u->cpu_user_ns *= 1000;
    }
    if (u->cpu_user_ns > u->cpu_ns) {
        u->cpu_user_ns = u->cpu_ns; /* the two are read one after the other */
    }
    u->cpu_system_ns = u->cpu_ns - u->cpu_user_ns;
    return 0;
}

int cgroup_step_read(const struct cgroup_step *step, struct cgroup_usage *usage, struct err *err) {
    struct cgroup_usage u = {0};
    if (cgroup_step_times(step, &u, err) != 0) {
        return -1;
    }
    if (!(step->lacks & CGROUP_MEMORY) &&
        (fd_read_u64(step->peak_fd, &u.mem_peak_bytes, err) != 0 ||
         fd_read_keyed_u64(step->oom_fd, "oom_kill", &u.oom_kills, err) != 0)) {
        return -1;
    }
    u.oom_kills -= u.oom_kills < step->ooms_base ? u.oom_kills : step->ooms_base;
    *usage = u;
    return 0;
}

static void cgroup_step_close(struct cgroup_step *step) {
    cgroup_step_unexpect(step);
    fd_close(&step->pids_fd);
    fd_close(&step->refused_fd);
    fd_close(&step->share_fd);
    fd_close(&step->usage_fd);
    fd_close(&step->user_fd);
    fd_close(&step->peak_fd);
    fd_close(&step->oom_fd);
    fd_close(&step->events_fd);
}

void cgroup_jail_rest(struct cgroup_jail *jail) {
    fd_close(&jail->pids_fd);
    fd_close(&jail->refused_fd);
    fd_close(&jail->share_fd);
}

void cgroup_step_rest(struct cgroup_step *step) {
    cgroup_step_close(step);
}

void cgroup_step_abandon(struct cgroup_step *step) {
    cgroup_step_close(step);
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        fd_close(&step->fd[i]);
    }
}

void cgroup_jail_abandon(struct cgroup_jail *jail) {
    cgroup_jail_close(jail);
    while (jail->kept_count > 0) {
        fd_close(&jail->kept[--jail->kept_count].fd);
    }
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        fd_close(&jail->fd[i]);
    }
}

int cgroup_step_remove(const struct cgroup_host *host, struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err) {
    int rc = 0;
    size_t mem = cgroup_find(host, CGROUP_MEMORY);
    cgroup_step_close(step);
    for (size_t i = 0; i < host->count; i++) {
        if (i != mem) {
            rc |= cgroup_rmdir(cgroup_step_parent(host, jail, i), step->name, &step->fd[i], err);
        }
    }
    if (rc != 0 || cgroup_keep_put(host, jail, step)) {
        return rc;
    }
    return cgroup_rmdir(cgroup_step_parent(host, jail, mem), step->mem_name, &step->fd[mem], err);
}

int cgroup_jail_remove(struct cgroup_host *host, struct cgroup_jail *jail, struct err *err) {
    cgroup_jail_close(jail);
    cgroup_keep_done(host, jail);
    if (jail->adopted) {
        cgroup_jail_return(jail);
    }
    int rc = cgroup_jail_rmdir(host, jail, err);
    (void)cgroup_left_add(host, jail, 0, NULL);
    if (rc == 0 && jail->left) {
        cgroup_left_leave(host);
    }
    return rc;
}
