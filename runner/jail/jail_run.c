/* What runs in a jail: the child that waits, those that were started, and their ends. */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"
#include "layers.h"

#define JAIL_SIGNALS 64 /* the kernel's */

/* When to see to the spares of a sandbox: while a command runs, but after a short one is over; and
 * when one has ended, but after its answer is out. */
#define JAIL_STOCK_BUSY_NS (3 * CLOCK_NS_PER_MS)
#define JAIL_STOCK_QUIET_NS (CLOCK_NS_PER_MS / 2)

int jail_disk(const struct jail *j, uint64_t *bytes, uint64_t *inodes, bool *full) {
    struct statfs fs;
    if (j->volume != NULL) {
        return layers_use(j->volume, bytes, inodes, full);
    }
    if (fstatfs(j->writable_fd, &fs) != 0) {
        return -1;
    }
    uint64_t used = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    uint64_t files = fs.f_files - fs.f_ffree;
    *bytes = used > j->disk_base ? used - j->disk_base : 0;
    *inodes = files > j->inodes_base ? files - j->inodes_base : 0;
    *full = fs.f_bfree == 0 || fs.f_ffree == 0;
    return 0;
}

int jail_look(const struct jail *j, struct jail_sight *out, struct err *err) {
    struct jail_sight sight = {.running = j->running};
    if (cgroup_jail_memory(j->host->cgroups, &j->cgroup, &sight.mem_bytes, err) != 0) {
        return -1;
    }
    for (const struct exec *x = j->execs; x != NULL; x = x->next) {
        if (x->state == EXEC_RUNNING) {
            sight.cpu_ns += exec_cpu_ns(x);
        }
    }
    *out = sight;
    return 0;
}

/* Is it the file system that process 1 was told to make? It says so itself, and only one of exactly
 * that size and that many inodes is taken for it: not the host's own, which it may know, too. */
static bool jail_made_it(const struct jail *j) {
    struct statfs fs;
    const uint64_t *v = j->limits.v;
    return fstatfs(j->writable_fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC &&
           fs.f_blocks == (v[LIMIT_DISK_BYTES] + (uint64_t)fs.f_bsize - 1) / (uint64_t)fs.f_bsize &&
           fs.f_files == v[LIMIT_INODES];
}

/* Size and inode count of a mounted tmpfs can be changed by whoever rules its user namespace. */
static int jail_resize(struct jail *j, const struct limits *limits, struct err *err) {
    char size[32];
    char inodes[32];
    if (!jail_made_it(j)) {
        return err_set(err, ERR_PROTOCOL, 0, "the writable file system is not the one of set-up");
    }
    (void)snprintf(size, sizeof size, "%llu", (unsigned long long)limits->v[LIMIT_DISK_BYTES]);
    (void)snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)limits->v[LIMIT_INODES]);
    fd_cleanup int fs = fspick(j->writable_fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) != 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) != 0 ||
        fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) != 0) {
        return err_sys(err, "setting the size of the writable file system");
    }
    return 0;
}

static bool jail_same(const struct limits *a, const struct limits *b, enum limit_id one,
                      enum limit_id two, enum limit_id three) {
    return a->v[one] == b->v[one] && a->v[two] == b->v[two] && a->v[three] == b->v[three];
}

int jail_set_limits(struct jail *j, const struct limits *limits, struct err *err) {
    if (j->state != JAIL_READY || j->forked != 1) {
        return err_set(err, ERR_STATE, 0, "limits of a jail that is in use cannot be changed");
    }
    if (!jail_same(limits, &j->limits, LIMIT_MEM_BYTES, LIMIT_PIDS, LIMIT_CPUS_MILLI) &&
        (cgroup_jail_limit(j->host->cgroups, &j->cgroup, limits, err) != 0 ||
         cgroup_step_limit(j->host->cgroups, &j->spare->cgroup, limits, err) != 0)) {
        return -1;
    }
    if (!jail_same(limits, &j->limits, LIMIT_DISK_BYTES, LIMIT_INODES, LIMIT_INODES) &&
        jail_resize(j, limits, err) != 0) {
        return -1;
    }
    j->limits = j->applied = *limits;
    return 0;
}

int jail_weigh(struct jail *j, uint32_t shares, struct err *err) {
    if (j->state != JAIL_READY) {
        return err_set(err, ERR_STATE, 0, "the jail is not ready, or about to be gone");
    }
    return cgroup_jail_weigh(j->host->cgroups, &j->cgroup, shares, err);
}

/* pids and the CPU share are counted for the jail of a run as a whole; since one execution runs at
 * a time there, a step that asks for less narrows the jail, and the next one that doesn't widens it
 * back. In a sandbox each has a group of its own for that. */
static int jail_apply(struct jail *j, const struct limits *step, struct err *err) {
    struct limits want = j->limits;
    want.v[LIMIT_PIDS] = step->v[LIMIT_PIDS];
    want.v[LIMIT_CPUS_MILLI] = step->v[LIMIT_CPUS_MILLI];
    if (j->sandbox || jail_same(&want, &j->applied, LIMIT_PIDS, LIMIT_CPUS_MILLI, LIMIT_PIDS)) {
        return 0;
    }
    if (cgroup_jail_limit(j->host->cgroups, &j->cgroup, &want, err) != 0) {
        return -1;
    }
    j->applied = want;
    return 0;
}

/* The jail's own group goes on counting all of its steps. */
int jail_make_sandbox(struct jail *j, struct err *err) {
    if (!jail_is_ready(j) || j->forked != 1) {
        return err_set(err, ERR_STATE, 0, "only a jail that has run nothing becomes a sandbox");
    }
    j->sandbox = true;
    jail_newest(j);
    if (cgroup_step_extend(j->host->cgroups, &j->cgroup, &j->spare->cgroup, j->spare->outside_pid,
                           err) != 0) {
        return -1;
    }
    cgroup_jail_rest(&j->cgroup);
    cgroup_step_rest(&j->spare->cgroup);
    return cgroup_step_limit(j->host->cgroups, &j->spare->cgroup, &j->limits, err);
}

static void jail_started(struct jail *j, struct exec *x) {
    struct exec **at = &j->execs;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = x;
    x->next = NULL;
    j->running++;
}

int jail_exec(struct jail *j, const struct exec_request *q, void *owner, struct err *err) {
    if (!jail_is_ready(j) || (!j->sandbox && j->running > 0)) {
        return err_set(err, ERR_STATE, 0, "the jail is not ready for an execution");
    }
    struct err why;
    struct exec *x = jail_take_spare(j);
    x->owner = owner;
    jail_started(j, x);
    if (jail_apply(j, &q->limits, &why) != 0 || exec_start(x, q, &why) != 0) {
        jail_fail(j, "start", why.code, why.text);
        return 0;
    }
    if (j->sandbox) {
        jail_stock(j, JAIL_STOCK_BUSY_NS);
    } else if ((q->flags & WIRE_EXEC_MORE) && !jail_shares_user(j) && jail_renew(j, &why) != 0 &&
               why.code != ENOMEM) {
        /* A child that waits and that commands could signal is made when they are dead. */
        jail_fail(j, "next child", why.code, why.text);
    }
    return 0;
}

static struct exec *jail_find(const struct jail *j, const void *owner) {
    struct exec *x = j->execs;
    while (x != NULL && (x->owner != owner || x->state == EXEC_OVER)) {
        x = x->next;
    }
    return x;
}

void jail_stop(struct jail *j, const void *owner, enum cause cause) {
    struct exec *x = jail_find(j, owner);
    if (j->state == JAIL_READY && x != NULL) {
        exec_stop(x, cause);
    }
}

void jail_signal(struct jail *j, const void *owner, int signal) {
    struct exec *x = jail_find(j, owner);
    if (j->state == JAIL_READY && x != NULL) {
        exec_signal(x, signal);
    }
}

void jail_stop_all(struct jail *j, enum cause cause) {
    for (struct exec *x = j->execs; x != NULL && j->state == JAIL_READY; x = x->next) {
        exec_stop(x, cause);
    }
}

int jail_freeze(struct jail *j, bool commands, bool files, struct err *err) {
    for (struct exec *x = j->execs; x != NULL && j->state == JAIL_READY; x = x->next) {
        if (exec_freeze(x, x->kind == WIRE_EXEC_COMMAND ? commands : files, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int jail_settled(const struct jail *j, struct err *err) {
    int all = 1;
    for (const struct exec *x = j->execs; x != NULL; x = x->next) {
        int rc = exec_settled(x, err);
        if (rc < 0) {
            return -1;
        }
        all = all && rc;
    }
    return all;
}

unsigned jail_commands(const struct jail *j) {
    unsigned n = 0;
    for (const struct exec *x = j->execs; x != NULL; x = x->next) {
        n += x->kind == WIRE_EXEC_COMMAND && x->state != EXEC_OVER;
    }
    return n;
}

void jail_describe(const struct jail *j, struct layers_jail *out) {
    *out = (struct layers_jail){
        .pid = j->pid,
        .pidfd = j->host->maker->contained ? j->pidfd : 0,
        .writable_fd = j->writable_fd,
        .writable = j->writable,
        .id_base = j->id_base,
        .id_count = j->id_count,
        .disk_bytes = j->limits.v[LIMIT_DISK_BYTES],
        .inodes = j->limits.v[LIMIT_INODES],
    };
}

void jail_exec_done(struct jail *j, struct exec *x, const struct wire_end *end) {
    void *owner = x->owner;
    if (j->state != JAIL_READY) {
        return;
    }
    x->owner = NULL;
    j->running--;
    j->events->ended(j->arg, j, owner, end); /* first of all: somebody waits for it */
    if (j->state != JAIL_READY) {
        return; /* killed by its owner: everything goes at once */
    }
    exec_close(x);
    if (j->sandbox) {
        jail_stock(j, JAIL_STOCK_QUIET_NS); /* the next command may be here already: that first */
        return;
    }
    if (j->spare != NULL) {
        jail_sweep(j);
    }
    if (jail_is_ready(j)) {
        j->events->ready(j->arg, j);
    }
}

void jail_exec_terminal(struct jail *j, struct exec *x, int master) {
    if (j->events->terminal != NULL && j->state == JAIL_READY) {
        j->events->terminal(j->arg, j, x->owner, master);
    } else {
        fd_close(&master);
    }
}

void jail_exited(struct jail *j, const struct initmsg_report *r) {
    if (!WIFEXITED(r->status) && (!WIFSIGNALED(r->status) || WTERMSIG(r->status) > JAIL_SIGNALS)) {
        jail_fail(j, "process 1", EPROTO, "process 1 reported an end that there is not");
        return;
    }
    for (struct exec *x = j->execs; x != NULL; x = x->next) {
        if (x->state == EXEC_RUNNING && x->inside_pid == r->pid) {
            exec_exited(x, r->status, r->mono_ns);
            return;
        }
    }
    if (!jail_spare_exited(j, r->pid)) {
        jail_fail(j, "child", ECHILD, "a child ended during set-up");
    }
}
