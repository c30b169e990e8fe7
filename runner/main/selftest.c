#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "pool.h"
#include "rootfs.h"
#include "str.h"

/* Only x86-64 processes can reach a second table of system calls. */
#ifdef __x86_64__
#define SELFTEST_ARCH_CAUSE CAUSE_SYSCALL
#else
#define SELFTEST_ARCH_CAUSE CAUSE_EXIT
#endif
#define SELFTEST_JAIL_NS (20 * CLOCK_NS_PER_S)

#define SELFTEST_IDS 0x80000000u /* beside enum cgroup_role: ids of its own */

/* One row of the proof. */
struct selftest_check {
    const char *name;
    enum initmsg_probe probe;
    enum cause cause; /* that the probe must end with; CAUSE_EXIT means exit code 0 */
    const char *how_v1, *how_v2;
    const char *proof;
    const char *remedy;
};

static const struct selftest_check selftest_checks[] = {
    {"wall_ms", INITMSG_PROBE_SLEEP, CAUSE_WALL_TIME, "monotonic timer from exec, cgroup.kill",
     "monotonic timer from exec, cgroup.kill", "a sleeper was ended at its wall-clock limit",
     "a kernel with cgroup.kill (5.14) is needed"},
    {"cpu_ms", INITMSG_PROBE_SPIN, CAUSE_CPU_TIME, "cgroup v1 cpuacct.usage, cgroup.kill",
     "cgroup v2 cpu.stat, cgroup.kill", "two spinning processes were ended at their CPU limit",
     "mount or delegate the cpuacct (v2: cpu) controller"},
    {"cpus_milli", INITMSG_PROBE_SPIN, CAUSE_WALL_TIME, "cgroup v1 cpu.cfs_quota_us",
     "cgroup v2 cpu.max", "two spinning processes together stayed within a tenth of a processor",
     "a kernel with CONFIG_CFS_BANDWIDTH is needed (rootless: delegate cpu)"},
    {"mem_bytes", INITMSG_PROBE_MEMORY, CAUSE_MEMORY,
     "cgroup v1 memory.limit_in_bytes and memsw, without swap",
     "cgroup v2 memory.max, memory.swap.max = 0",
     "a process that took more was killed by its cgroup",
     "boot with cgroup_enable=memory swapaccount=1 (rootless: delegate memory)"},
    {"pids", INITMSG_PROBE_PIDS, CAUSE_EXIT, "cgroup v1 pids.max", "cgroup v2 pids.max",
     "fork met EAGAIN at the limit", "mount or delegate the pids controller"},
    {"disk_bytes", INITMSG_PROBE_DISK, CAUSE_EXIT, "size of the jail's one tmpfs",
     "size of the jail's one tmpfs", "writing met ENOSPC at the limit",
     "a kernel with tmpfs is needed"},
    {"inodes", INITMSG_PROBE_INODES, CAUSE_EXIT, "nr_inodes of the jail's one tmpfs",
     "nr_inodes of the jail's one tmpfs", "creating files met ENOSPC at the limit",
     "a kernel with tmpfs is needed"},
    {"open_files", INITMSG_PROBE_FILES, CAUSE_EXIT, "RLIMIT_NOFILE", "RLIMIT_NOFILE",
     "open met EMFILE at the limit", "raise the hard limit of open files of the runner"},
    {"file_bytes", INITMSG_PROBE_FILES, CAUSE_EXIT,
     "RLIMIT_FSIZE; RLIMIT_CORE 0, or 1 where the host gives core dumps to a program",
     "RLIMIT_FSIZE; RLIMIT_CORE 0, or 1 where the host gives core dumps to a program",
     "a file over the limit met EFBIG; the core limit is so low that nothing is dumped",
     "raise the hard limit of file size of the runner"},
    {"seccomp", INITMSG_PROBE_SECCOMP, CAUSE_EXIT, "allow-list filter (libseccomp)",
     "allow-list filter (libseccomp)",
     "unshare, mount, bpf, keyctl and io_uring were refused; clone3 and unknown calls met ENOSYS",
     "a kernel with CONFIG_SECCOMP_FILTER is needed"},
    {"seccomp_arch", INITMSG_PROBE_ARCH, SELFTEST_ARCH_CAUSE, "filter: one architecture only",
     "filter: one architecture only", "a system call of another architecture was killed by SIGSYS",
     "a kernel with CONFIG_SECCOMP_FILTER is needed"},
    {"privileges", INITMSG_PROBE_IDENTITY, CAUSE_EXIT,
     "user namespace, ids of its own, empty capability and bounding sets, no_new_privs",
     "user namespace, ids of its own, empty capability and bounding sets, no_new_privs",
     "user 1000 without groups or capabilities could not become user 0",
     "allow user namespaces (user.max_user_namespaces; "
     "kernel.apparmor_restrict_unprivileged_userns)"},
    {"network_none", INITMSG_PROBE_NETWORK, CAUSE_EXIT, "network namespace with lo only",
     "network namespace with lo only", "only lo exists, up; connecting out met ENETUNREACH",
     "a kernel with CONFIG_NET_NS is needed"},
    {"root", INITMSG_PROBE_ROOT, CAUSE_EXIT, "mount namespace made from a read-only template",
     "mount namespace made from a read-only template",
     "writing outside the writable places failed; nothing of the host's files but /usr was there",
     "a kernel with user and mount namespaces is needed"},
    {"separate_ids", INITMSG_PROBE_APART, CAUSE_EXIT, "user ids that no command has",
     "user ids that no command has", "a command could not change how process 1 is scheduled",
     "give this user 100000 ids in /etc/subuid and /etc/subgid and install the package uidmap"},
};

/* Limits and walls that may be given up, with what they stand on. */
static const struct {
    const char *name;
    uint32_t role;
} selftest_optional[] = {{"mem_bytes", CGROUP_MEMORY},
                         {"pids", CGROUP_PIDS},
                         {"cpus_milli", CGROUP_CPU},
                         {"separate_ids", SELFTEST_IDS}};

static uint32_t selftest_role(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof selftest_optional / sizeof selftest_optional[0]; i++) {
        if (strlen(selftest_optional[i].name) == len &&
            strncmp(selftest_optional[i].name, name, len) == 0) {
            return selftest_optional[i].role;
        }
    }
    return 0;
}

int selftest_allow(const char *list, struct selftest_allowed *out, struct err *err) {
    struct selftest_allowed a = {0};
    while (list != NULL && *list != '\0') {
        size_t len = strcspn(list, ",");
        uint32_t role = selftest_role(list, len);
        if (role == 0) {
            return err_set(err, ERR_INVALID, 0,
                           "--allow-missing takes mem_bytes, pids, cpus_milli and separate_ids, "
                           "with commas between them; nothing else is ever given up");
        }
        a.separate_ids |= role == SELFTEST_IDS;
        a.roles |= role & CGROUP_JAIL_ROLES;
        list += len + (list[len] == ',');
    }
    *out = a;
    return 0;
}

struct selftest {
    struct loop *loop;
    bool ready, ended, gone;
    struct wire_end end;
    struct err err; /* why set-up failed */
};

static void selftest_ready(void *arg, struct jail *jail) {
    struct selftest *t = arg;
    (void)jail;
    t->ready = true;
}

static void selftest_failed(void *arg, struct jail *jail, const char *stage, int code,
                            const char *text) {
    struct selftest *t = arg;
    (void)jail;
    (void)err_set(&t->err, ERR_SYSTEM, code, "%s (step %s: %s)", text, stage, strerror(code));
}

static void selftest_ended(void *arg, struct jail *jail, void *owner, const struct wire_end *end) {
    struct selftest *t = arg;
    (void)owner;
    t->end = *end;
    t->ended = true;
    jail_kill(jail);
}

static void selftest_gone(void *arg, struct jail *jail) {
    struct selftest *t = arg;
    jail_free(jail);
    t->gone = true;
}

static const struct jail_events selftest_events = {.ready = selftest_ready,
                                                   .failed = selftest_failed,
                                                   .ended = selftest_ended,
                                                   .gone = selftest_gone};

/* Wall time of the check that lasts as long as it may: for the limit itself any is enough; for the
 * share of a processor it must span several of the kernel's periods of 100 ms. */
static uint64_t selftest_wall_ms(const struct selftest_check *c) {
    if (c->cause != CAUSE_WALL_TIME) {
        return 10000;
    }
    return strcmp(c->name, "cpus_milli") == 0 ? 250 : 60;
}

/* Small limits, so that each is met quickly. */
static struct limits selftest_limits(const struct selftest_check *c, const struct policy *policy) {
    struct limits l = policy->preset;
    l.v[LIMIT_WALL_MS] = selftest_wall_ms(c);
    l.v[LIMIT_CPU_MS] = c->cause == CAUSE_CPU_TIME ? 60 : 5000;
    l.v[LIMIT_MEM_BYTES] = 32u << 20;
    l.v[LIMIT_PIDS] = 16;
    l.v[LIMIT_DISK_BYTES] = 4u << 20;
    l.v[LIMIT_INODES] = 256;
    l.v[LIMIT_OPEN_FILES] = 64;
    l.v[LIMIT_FILE_BYTES] = 8u << 20; /* over the disk limit, or it would be met first */
    l.v[LIMIT_CPUS_MILLI] = strcmp(c->name, "cpus_milli") == 0 ? 100 : 1000;
    return l;
}

static int selftest_wait(struct selftest *t, const bool *flag, struct err *err) {
    uint64_t deadline = clock_mono_ns() + SELFTEST_JAIL_NS;
    while (!*flag && !t->gone) {
        if (clock_mono_ns() > deadline) {
            return err_set(err, ERR_STATE, 0, "the self-test took too long");
        }
        if (loop_once(t->loop, 100 * CLOCK_NS_PER_MS, err) != 0) {
            return -1;
        }
    }
    if (!*flag) {
        *err = t->err;
        return -1;
    }
    return 0;
}

static int selftest_jail(const struct selftest_config *cfg, const struct rootfs *root,
                         const struct selftest_check *c, struct wire_end *end, struct err *err) {
    bool native = cfg->maker == NULL;
    struct selftest t = {.loop = native ? loop_new(err) : cfg->loop};
    if (t.loop == NULL) {
        return -1;
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct jail_host host = {.loop = t.loop,
                             .cgroups = cfg->cgroups,
                             .ids = cfg->ids,
                             .rootless = cfg->rootless,
                             .init_fd = cfg->init_fd,
                             .home_ns = cfg->home_ns,
                             .core_bytes = jail_core_limit(),
                             .cpus = cpus > 0 ? (unsigned)cpus : 1,
                             .maker = native ? &jail_native : cfg->maker};
    const struct jail_plan plan = {
        .template_ns = root->mnt_ns,
        .image = cfg->image,
        .image_name = "",
        .bpf = cfg->bpf,
        .writable = cfg->policy->writable,
        .limits = selftest_limits(c, cfg->policy),
        .ceiling = selftest_limits(c, cfg->policy),
        .id_base = native ? cfg->ids.first : 0, /* no shard has begun */
        .id_count = native ? cfg->ids.count : SPAWN_IDS_ALL,
    };
    struct jail *jail = jail_new(&host, &plan, &selftest_events, &t, err);
    int rc = jail == NULL ? -1 : selftest_wait(&t, &t.ready, err);
    const struct exec_request request = {
        .probe = c->probe, .limits = plan.limits, .received_ns = clock_mono_ns()};
    if (rc == 0 && jail_exec(jail, &request, NULL, err) == 0) {
        rc = selftest_wait(&t, &t.ended, err);
    }
    if (jail != NULL && !t.gone) {
        jail_kill(jail);
        struct err late;
        if (selftest_wait(&t, &t.gone, rc == 0 ? err : &late) != 0) {
            rc = -1;
        }
    }
    *end = t.end;
    if (native) {
        loop_free(t.loop);
    }
    return rc;
}

static bool selftest_holds(const struct selftest_check *c, const struct wire_end *end, char *why,
                           size_t size) {
    uint64_t cpu = end->usage.cpu_user_ns + end->usage.cpu_system_ns;
    const char *cause = cause_name(end->cause);
    if (end->cause != (uint32_t)c->cause || (c->cause == CAUSE_EXIT && end->exit_code != 0)) {
        (void)snprintf(why, size, "ended with cause %s, exit code %d, signal %d",
                       cause ? cause : "none", end->exit_code, end->signal);
        return false;
    }
    /* A tenth of a processor for 250 ms is 25 ms; a quota is given per 100 ms and processor. */
    if (strcmp(c->name, "cpus_milli") == 0 && cpu > end->usage.wall_ns / 3) {
        (void)snprintf(why, size, "used %llu ms of CPU in %llu ms",
                       (unsigned long long)(cpu / CLOCK_NS_PER_MS),
                       (unsigned long long)(end->usage.wall_ns / CLOCK_NS_PER_MS));
        return false;
    }
    return true;
}

/* What others have done in a container for what a native jail does itself. */
static const char *selftest_contained(const char *name) {
    static const struct {
        const char *name, *how;
    } table[] = {
        {"disk_bytes", "size of the container's one tmpfs"},
        {"inodes", "nr_inodes of the container's one tmpfs"},
        {"seccomp", "the engine's filter and, within, the jail's own, of one table"},
        {"privileges", "user 1000, CapDrop ALL, no-new-privileges; verified by process 1"},
        {"separate_ids", "a user namespace in the container; the engine's ids, or those it remaps"},
        {"network_none", "NetworkMode none"},
        {"root", "ReadonlyRootfs; every mount that is not of the jail is taken away"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name) == 0) {
            return table[i].how;
        }
    }
    return NULL;
}

static void selftest_note(struct wire_capability *item, const struct selftest_check *c, bool v2,
                          const char *failure) {
    memset(item, 0, sizeof *item);
    item->required = 1;
    item->status = failure == NULL ? WIRE_CAP_ENFORCED : WIRE_CAP_UNAVAILABLE;
    (void)str_copy(item->name, sizeof item->name, c->name);
    (void)str_copy(item->how, sizeof item->how, v2 ? c->how_v2 : c->how_v1);
    if (failure == NULL) {
        (void)str_copy(item->proof, sizeof item->proof, c->proof);
    } else {
        (void)snprintf(item->proof, sizeof item->proof, "%.180s", failure);
        (void)str_copy(item->remedy, sizeof item->remedy, c->remedy);
    }
}

static bool selftest_may_lack(const struct selftest_config *cfg, uint32_t role) {
    return role == SELFTEST_IDS ? cfg->allowed.separate_ids : (cfg->allowed.roles & role) != 0;
}

/* One row. -1 = it does not hold and was not given up, or, with *fatal, nothing can be tried. */
static int selftest_row(const struct selftest_config *cfg, const struct rootfs *root,
                        const struct selftest_check *check, struct wire_capability *item,
                        bool *fatal, struct err *err) {
    struct selftest_check row = *check;
    const struct selftest_check *c = &row;
    const char *how = cfg->maker != NULL ? selftest_contained(row.name) : NULL;
    row.how_v1 = how != NULL ? how : row.how_v1;
    row.how_v2 = how != NULL ? how : row.how_v2;
    bool v2 =
        cfg->rootless || (cfg->cgroups->count > 0 && cfg->cgroups->tree[0].roles == CGROUP_ROLES);
    uint32_t role = selftest_role(c->name, strlen(c->name));
    struct wire_end end;
    struct err why;
    char text[256] = "its cgroup controller is missing";
    bool ok = false;
    if (!(cfg->cgroups->lacks & role)) { /* a bomb that nothing would stop is not tried */
        if (selftest_jail(cfg, root, c, &end, &why) != 0) {
            selftest_note(item, c, v2, why.text);
            *fatal = true; /* what could not be made proves nothing, this time or the next */
            return err_set(err, ERR_STATE, 0, "no jail can be made on this host: %.300s", why.text);
        }
        ok = selftest_holds(c, &end, text, sizeof text);
    }
    selftest_note(item, c, v2, ok ? NULL : text);
    if (ok) {
        return 0;
    }
    if (cfg->maker != NULL && role == SELFTEST_IDS) {
        item->required = 0; /* the kernel allows no user namespaces: there is one user */
        (void)str_copy(item->remedy, sizeof item->remedy,
                       "let the kernel make user namespaces (sysctl user.max_user_namespaces)");
        return 0;
    }
    if (selftest_may_lack(cfg, role)) {
        item->required = 0;
        item->status = WIRE_CAP_GIVEN_UP;
        return 0;
    }
    const char *flag = cfg->rootless && role != 0 ? ", or accept it: --allow-missing " : "";
    return err_set(err, ERR_STATE, 0, "%s cannot be enforced on this host: %s; %s%s%s", c->name,
                   text, c->remedy, flag, *flag ? c->name : "");
}

int selftest_run(const struct selftest_config *cfg, struct selftest_result *out, struct err *err) {
    struct rootfs root = {.mnt_ns = -1};
    const struct rootfs_config image = {.image = ROOTFS_IMAGE_HOST,
                                        .images_dirfd = -1,
                                        .writable = cfg->policy->writable,
                                        .rootless = cfg->rootless};
    bool fatal = false;
    int rc = 0;
    out->count = 0;
    if (cfg->maker == NULL && rootfs_build(&image, &root, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof selftest_checks / sizeof selftest_checks[0] && !fatal; i++) {
        struct err why;
        if (selftest_row(cfg, &root, &selftest_checks[i], &out->item[out->count++], &fatal, &why) !=
                0 &&
            (rc == 0 || fatal)) {
            *err = why;
            rc = -1;
        }
    }
    rootfs_done(&root);
    return rc;
}
