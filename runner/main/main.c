/* pinfold-runner: the privileged program. Reads its options, the policies and what an earlier life
 * left behind, proves that every limit holds, then hands over to the supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "leftovers.h"
#include "log.h"
#include "opt.h"
#include "policy.h"
#include "pool.h"
#include "rootless.h"
#include "selftest.h"
#include "str.h"
#include "supervise.h"

#define MAIN_LAYER_BYTES ((uint64_t)4 << 30)
#define MAIN_DISK_DIR "disk"         /* files with the file systems of sandboxes */
#define MAIN_MOUNT_DIR "run/cgroup2" /* relative to STATE */
#define MAIN_LOCK_NS (10 * CLOCK_NS_PER_S)

struct main_options {
    const char *state, *policies, *server_user, *init;
    uint64_t shards, slots, sandboxes, warm, layer_bytes, keep_ms;
    const char *allow_missing;
    bool keep_dynmods, check, rootless;
};

struct runner {
    struct main_options opt;
    struct log log;
    int state_dir, lock, images_dir, disk_dir;
    struct policy_set policies;
    struct seccomp_program programs[2];
    struct supervise_config supervise;
    struct selftest_result *capabilities; /* shared with the process that probes */
    struct selftest_allowed allowed;
    struct rootless rootless;
    char cgroup_name[CGROUP_NAME_MAX];
    char mount_dir[4200];
};

static const char main_about[] =
    "Builds, drives and destroys jails for pinfold-server. Runs as root, or with --rootless as a "
    "user\n"
    "with a delegated cgroup. At start it proves in a jail that every limit and wall holds on "
    "this\n"
    "host, and refuses to start otherwise.\n\n"
    "Rootless: the server must run as the same user; there are no snapshots and no disk files. "
    "The\n"
    "limits need a cgroup2 group with the controllers cpu, memory and pids that this user may "
    "divide:\n"
    "  systemd-run --user --scope -p Delegate=yes pinfold-runner --rootless --state DIR";

/* Without root there is nobody else that the server could be: the ids of others have no name in our
 * user namespace, and our own is 0 there. */
static int main_own_user(struct runner *r, struct err *err) {
    const struct passwd *pw =
        r->opt.server_user != NULL ? getpwnam(r->opt.server_user) : getpwuid(geteuid());
    if (r->opt.server_user != NULL && (pw == NULL || pw->pw_uid != geteuid())) {
        return err_set(err, ERR_INVALID, 0,
                       "a rootless runner serves a server of its own user only: leave out "
                       "--server-user %s",
                       r->opt.server_user);
    }
    r->supervise.shard.server_uid = 0;
    r->supervise.shard.server_gid = 0;
    return 0;
}

static int main_user(struct runner *r, struct err *err) {
    if (r->opt.rootless) {
        return main_own_user(r, err);
    }
    if (r->opt.server_user == NULL) {
        r->opt.server_user = "pinfold";
    }
    const struct passwd *pw = getpwnam(r->opt.server_user);
    if (pw == NULL) {
        return err_set(err, ERR_INVALID, 0,
                       "there is no user %s; create it or name the server's user "
                       "with --server-user",
                       r->opt.server_user);
    }
    r->supervise.shard.server_uid = pw->pw_uid;
    r->supervise.shard.server_gid = pw->pw_gid;
    return 0;
}

/* Two locks on one file. The record lock is this process's alone, so it says whether another one
 * lives. The other is inherited by the shards: of a runner that was killed they may hold it for a
 * moment still, and with it jails and cgroups, which nobody may sweep before they are dead. */
static int main_lock(struct runner *r, struct err *err) {
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    uint64_t deadline = clock_mono_ns() + MAIN_LOCK_NS;
    r->lock = openat(r->state_dir, "lock.runner", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r->lock < 0) {
        return err_sys(err, "opening %s/lock.runner", r->opt.state);
    }
    if (fcntl(r->lock, F_SETLK, &alone) != 0) {
        return err_set(err, ERR_STATE, errno, "another pinfold-runner uses %s", r->opt.state);
    }
    while (flock(r->lock, LOCK_EX | LOCK_NB) != 0) {
        const struct timespec pause = {.tv_nsec = 10 * CLOCK_NS_PER_MS};
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return err_sys(err, "locking %s/lock.runner", r->opt.state);
        }
        if (clock_mono_ns() > deadline) {
            return err_set(err, ERR_STATE, EWOULDBLOCK,
                           "what a killed pinfold-runner left still uses %s", r->opt.state);
        }
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int main_state(struct runner *r, struct err *err) {
    struct stat st;
    r->state_dir = open(r->opt.state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r->state_dir < 0 || fstat(r->state_dir, &st) != 0) {
        return err_sys(err, "opening the state directory %s (pinfold-server init makes one)",
                       r->opt.state);
    }
    if (st.st_uid != 0 || (st.st_mode & 022)) {
        return err_set(err, ERR_INVALID, 0,
                       "the state directory %s must be owned by root and writable for nobody else",
                       r->opt.state);
    }
    if (main_lock(r, err) != 0) {
        return -1;
    }
    if (fchdir(r->state_dir) != 0) {
        return err_sys(err, "entering %s", r->opt.state);
    }
    if (mkdir(MAIN_MOUNT_DIR, 0700) != 0 && errno != EEXIST) {
        return err_sys(err, "making %s/%s", r->opt.state, MAIN_MOUNT_DIR);
    }
    if (realpath(MAIN_MOUNT_DIR, r->mount_dir) == NULL) {
        return err_sys(err, "resolving %s/%s", r->opt.state, MAIN_MOUNT_DIR);
    }
    if (mkdirat(r->state_dir, MAIN_DISK_DIR, 0700) != 0 && errno != EEXIST) {
        return err_sys(err, "making %s/%s", r->opt.state, MAIN_DISK_DIR);
    }
    r->disk_dir =
        openat(r->state_dir, MAIN_DISK_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    r->images_dir = openat(r->state_dir, "images", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* One state directory, one name: so that a start finds its own leftovers and nobody else's. */
    (void)snprintf(r->cgroup_name, sizeof r->cgroup_name, "pinfold-%lx-%lx",
                   (unsigned long)st.st_dev, (unsigned long)st.st_ino);
    return 0;
}

static int main_rootless(struct runner *r, struct err *err) {
    struct shard_config *s = &r->supervise.shard;
    s->ids = (struct jail_ids){POOL_ID_FIRST, SPAWN_IDS_ALL};
    if (!r->opt.rootless) {
        return r->opt.allow_missing == NULL
                   ? 0
                   : err_set(err, ERR_INVALID, 0, "--allow-missing goes with --rootless only");
    }
    if (selftest_allow(r->opt.allow_missing, &r->allowed, err) != 0 ||
        rootless_enter(&r->rootless, (uint32_t)r->opt.shards * POOL_SLOTS_MAX * SPAWN_IDS_FEW,
                       err) != 0) {
        return -1;
    }
    s->rootless = &r->rootless;
    s->ids = r->rootless.ids;
    s->may_lack = r->allowed.roles;
    return 0;
}

/* From here on no mount of ours shows outside, and none of the host's events reach us. Directories
 * of which mounts are made (images) must be opened after this: the kernel copies mounts of the own
 * namespace only. */
static int main_namespace(struct runner *r, struct err *err) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return err_sys(err, "making a private mount namespace");
    }
    r->supervise.shard.home_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (r->supervise.shard.home_ns < 0) {
        return err_sys(err, "opening the own mount namespace");
    }
    return 0;
}

static int main_init_program(struct runner *r, struct err *err) {
    char path[4096];
    char self[4096];
    if (r->opt.init != NULL) {
        if (!str_copy(path, sizeof path, r->opt.init)) {
            return err_set(err, ERR_INVALID, 0, "the path of pinfold-init is too long");
        }
    } else {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n <= 0) {
            return err_sys(err, "finding the own program");
        }
        self[n] = '\0';
        if (snprintf(path, sizeof path, "%s/pinfold-init", dirname(self)) >= (int)sizeof path) {
            return err_set(err, ERR_INVALID, 0, "the path of pinfold-init is too long");
        }
    }
    r->supervise.shard.init_fd = spawn_load(path, err);
    return r->supervise.shard.init_fd < 0 ? -1 : 0;
}

static int main_programs(struct runner *r, struct err *err) {
    if (seccomp_build(POLICY_SYSCALLS_DEFAULT, &r->programs[POLICY_SYSCALLS_DEFAULT], err) != 0) {
        return -1;
    }
    return seccomp_build(POLICY_SYSCALLS_STRICT, &r->programs[POLICY_SYSCALLS_STRICT], err);
}

/* The probes run in a process of their own, so that the supervisor stays without threads, loops and
 * jails. The results come through shared memory. */
static int main_selftest(struct runner *r, struct cgroup_host *cgroups, struct err *err) {
    struct {
        struct selftest_result result;
        struct err err;
    } *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return err_sys(err, "mapping memory for the self-test");
    }
    r->capabilities = &shared->result;
    pid_t pid = fork();
    if (pid == 0) {
        const struct selftest_config cfg = {
            .cgroups = cgroups,
            .init_fd = r->supervise.shard.init_fd,
            .home_ns = r->supervise.shard.home_ns,
            .policy = policy_find(&r->policies, "default"),
            .bpf = &r->programs[POLICY_SYSCALLS_DEFAULT],
            .ids = r->supervise.shard.ids,
            .rootless = r->opt.rootless,
            .allowed = r->allowed,
        };
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        _exit(selftest_run(&cfg, &shared->result, &shared->err) == 0 ? 0 : 1);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return err_sys(err, "running the self-test");
    }
    if (WIFSIGNALED(status)) {
        return err_set(err, ERR_STATE, 0, "the self-test died of signal %d", WTERMSIG(status));
    }
    if (WEXITSTATUS(status) != 0) {
        *err = shared->err;
        return -1;
    }
    return 0;
}

static void main_bases(struct runner *r, const struct cgroup_host *cgroups) {
    for (size_t i = 0; i < cgroups->count; i++) {
        char *base = r->supervise.base[r->supervise.bases++];
        (void)str_copy(base, sizeof r->supervise.base[0], cgroups->tree[i].base_path);
        *strrchr(base, '/') = '\0';
    }
}

/* Finds the cgroup trees, records the base groups for the next start, proves the limits in one. */
static int main_prove(struct runner *r, struct err *err) {
    struct cgroup_host cgroups;
    char name[CGROUP_NAME_MAX * 2];
    (void)snprintf(name, sizeof name, "%s/probe", r->cgroup_name);
    r->supervise.shard.mount_dir = r->mount_dir;
    if (shard_cgroups(&r->supervise.shard, name, &cgroups, err) != 0) {
        return -1;
    }
    main_bases(r, &cgroups);
    cgroup_host_done(&cgroups);
    /* Groups of our name that no record told of: the state directory of an earlier life was
     * removed, and ours was given its inode. Nobody alive can have it, since a runner keeps its own
     * open. */
    for (unsigned i = 0; i < r->supervise.bases; i++) {
        if (cgroup_sweep(r->supervise.base[i], err) != 0) {
            return -1;
        }
    }
    if (shard_cgroups(&r->supervise.shard, name, &cgroups, err) != 0) {
        return -1;
    }
    if (!r->opt.keep_dynmods && !r->opt.rootless && cgroup_favor_dynmods(&cgroups) == 1) {
        struct log_line l;
        log_begin(&l, &r->log, LOG_INFO, "cgroup.favordynmods");
        log_str(&l, "why", "moving a process into a cgroup stays fast on an idle host");
        log_end(&l);
    }
    int rc = leftovers_record(BACKEND_NATIVE, r->supervise.base, r->supervise.bases, err);
    if (rc == 0) {
        rc = main_selftest(r, &cgroups, err);
    }
    cgroup_host_done(&cgroups);
    return rc;
}

/* Said at every start, so that nobody can say that it was not. */
static void main_tell(struct runner *r) {
    struct log_line l;
    char list[128] = "";
    if (!r->opt.rootless) {
        return;
    }
    for (uint32_t i = 0; i < r->capabilities->count; i++) {
        const struct wire_capability *c = &r->capabilities->item[i];
        size_t at = strlen(list);
        if (c->status == WIRE_CAP_GIVEN_UP) {
            (void)snprintf(list + at, sizeof list - at, "%s%s", at > 0 ? "," : "", c->name);
        }
    }
    log_begin(&l, &r->log, *list ? LOG_WARN : LOG_INFO, "rootless");
    log_u64(&l, "uid", r->rootless.uid);
    if (r->rootless.sub != 0) {
        log_u64(&l, "sub_ids_from", r->rootless.sub);
        log_u64(&l, "sub_ids", r->rootless.count);
    } else {
        log_str(&l, "one_id", r->rootless.why);
    }
    log_str(&l, "not_enforced", *list ? list : "nothing");
    log_str(&l, "without", "snapshots,disk_file");
    log_end(&l);
}

static void main_print(const struct selftest_result *result) {
    for (uint32_t i = 0; i < result->count; i++) {
        const struct wire_capability *c = &result->item[i];
        (void)printf("%-14s %-12s %s\n%-27s %s\n", c->name,
                     c->status == WIRE_CAP_ENFORCED ? "enforced" : "unavailable", c->how, "",
                     c->status == WIRE_CAP_ENFORCED ? c->proof : c->remedy);
    }
}

static int main_start(struct runner *r, struct err *err) {
    if (geteuid() != 0 && !r->opt.rootless) {
        return err_set(err, ERR_STATE, 0,
                       "pinfold-runner makes namespaces and cgroups: run it as root, or with "
                       "--rootless");
    }
    /* Policies and init may be given relative to the directory we are called in; STATE is entered
     * afterwards. */
    if (main_user(r, err) != 0 || policy_set_load(r->opt.policies, &r->policies, err) != 0 ||
        main_init_program(r, err) != 0 || main_rootless(r, err) != 0 ||
        main_namespace(r, err) != 0 || main_state(r, err) != 0 ||
        leftovers_sweep(BACKEND_NATIVE, &r->log, err) != 0 || main_programs(r, err) != 0) {
        return -1;
    }
    return main_prove(r, err);
}

static int main_serve(struct runner *r) {
    struct supervise_config *s = &r->supervise;
    s->shards = (unsigned)r->opt.shards;
    s->cgroup_name = r->cgroup_name;
    s->shard.backend = BACKEND_NATIVE;
    s->shard.slots = (unsigned)r->opt.slots;
    s->shard.sandboxes = (unsigned)r->opt.sandboxes;
    s->shard.layer_bytes = r->opt.layer_bytes;
    s->shard.keep_ms = r->opt.keep_ms;
    s->shard.warm = (unsigned)r->opt.warm;
    s->shard.disk_dir = r->disk_dir;
    s->shard.images_dir = r->images_dir;
    s->shard.policies = &r->policies;
    s->shard.capabilities = r->capabilities;
    s->shard.programs[0] = r->programs[0];
    s->shard.programs[1] = r->programs[1];
    s->shard.log = &r->log;
    int code = supervise_run(s);
    leftovers_sockets(BACKEND_NATIVE);
    return code;
}

/* A request to end that comes during the start waits until the supervisor hears it: what the
 * self-test made is removed then, and not left to the next start. */
static void main_hold_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

int main(int argc, char **argv) {
    struct runner r;
    struct opt_result parsed;
    struct err err;
    memset(&r, 0, sizeof r);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    r.opt = (struct main_options){.policies = "/etc/pinfold/policies",
                                  .shards = cpus > 4   ? 4
                                            : cpus > 0 ? (uint64_t)cpus
                                                       : 1,
                                  .slots = 32,
                                  .sandboxes = 512,
                                  .layer_bytes = MAIN_LAYER_BYTES,
                                  .keep_ms = 60000,
                                  .warm = 4};
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &r.opt.state, 0, 0, "state directory (required)"},
        {"policies", 0, "DIR", OPT_STRING, &r.opt.policies, 0, 0,
         "policy files, owned by root [/etc/pinfold/policies]"},
        {"server-user", 0, "NAME", OPT_STRING, &r.opt.server_user, 0, 0,
         "the user that may connect [pinfold]"},
        {"shards", 0, "N", OPT_U64, &r.opt.shards, 1, SUPERVISE_SHARDS_MAX,
         "processes to spread the work over [one per processor, at most 4]"},
        {"slots", 0, "N", OPT_U64, &r.opt.slots, 1, 512, "runs at once, per shard [32]"},
        {"sandboxes", 0, "N", OPT_U64, &r.opt.sandboxes, 0, 1200,
         "sandboxes at once, per shard [512]"},
        {"layer-bytes", 0, "SIZE", OPT_BYTES, &r.opt.layer_bytes, 0, 0,
         "what snapshots may hold, per shard [4G]; 0 = anything"},
        {"keep", 0, "TIME", OPT_DURATION, &r.opt.keep_ms, 0, 24 * 60 * 60 * 1000,
         "how long sandboxes wait for a server that comes back [1m]; 0 ends them at once"},
        {"warm", 0, "N", OPT_U64, &r.opt.warm, 0, 256, "jails kept ready, per shard and kind [4]"},
        {"init", 0, "FILE", OPT_STRING, &r.opt.init, 0, 0,
         "the program for process 1 of jails [pinfold-init beside this one]"},
        {"no-favordynmods", 0, NULL, OPT_FLAG, &r.opt.keep_dynmods, 0, 0,
         "leave the host's cgroup2 option favordynmods alone (the first run after a pause may then "
         "wait 10-20 ms)"},
        {"rootless", 0, NULL, OPT_FLAG, &r.opt.rootless, 0, 0,
         "run without root, in a user namespace and a delegated cgroup"},
        {"allow-missing", 0, "NAMES", OPT_STRING, &r.opt.allow_missing, 0, 0,
         "with --rootless, start although these cannot be enforced: mem_bytes, pids, cpus_milli, "
         "separate_ids"},
        {"check", 0, NULL, OPT_FLAG, &r.opt.check, 0, 0,
         "prove the limits, print the results and exit"},
        {0},
    };
    log_init(&r.log, STDERR_FILENO, LOG_INFO, "pinfold-runner");
    policy_load_guard();
    if (opt_parse(table, argc, argv, &parsed, &err) != 0) {
        (void)fprintf(stderr, "pinfold-runner: %s (see --help)\n", err.text);
        return 2;
    }
    if (parsed.help) {
        opt_help(stdout, "pinfold-runner --state DIR [options]", main_about, table);
        return 0;
    }
    if (r.opt.state == NULL || parsed.rest != argc) {
        (void)fprintf(stderr, "pinfold-runner: --state DIR is required and nothing else (see "
                              "--help)\n");
        return 2;
    }
    main_hold_signals();
    int rc = main_start(&r, &err);
    if (r.opt.check && r.capabilities != NULL) {
        main_print(r.capabilities);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "pinfold-runner: %s\n", err.text);
        return 1;
    }
    main_tell(&r);
    return r.opt.check ? 0 : main_serve(&r);
}
