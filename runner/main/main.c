/* pinfold-runner: the privileged program. Reads its options, the policies and what an earlier life
 * left behind, proves that every limit holds, then hands over to the supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leftovers.h"
#include "log.h"
#include "opt.h"
#include "policy.h"
#include "pool.h"
#include "rootless.h"
#include "selftest.h"
#include "start.h"
#include "supervise.h"
#include "warm.h"

#define MAIN_LAYER_BYTES ((uint64_t)4 << 30)
#define MAIN_WARM_AUTO UINT64_MAX

struct main_options {
    const char *state, *policies, *server_user, *init;
    uint64_t shards, slots, sandboxes, warm;
    const char *allow_missing, *disk;
    bool keep_dynmods, check, rootless;
};

struct runner {
    struct main_options opt;
    struct log log;
    struct start_state state;
    struct policy_set policies;
    struct supervise_config supervise;
    struct selftest_result *capabilities; /* shared with the process that probes */
    struct selftest_allowed allowed;
    struct rootless rootless;
    char cgroup_name[CGROUP_NAME_MAX];
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
    return start_server_user(r->opt.server_user, &r->supervise.shard.server_uid,
                             &r->supervise.shard.server_gid, err);
}

static int main_state(struct runner *r, struct err *err) {
    const struct start_names names = {.state = r->opt.state,
                                      .program = "pinfold-runner",
                                      .lock = "lock.runner",
                                      .disk = "disk",
                                      .mounts = "run/cgroup2"};
    if (start_state(&names, &r->state, err) != 0) {
        return -1;
    }
    (void)snprintf(r->cgroup_name, sizeof r->cgroup_name, "pinfold-%s", r->state.name);
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

/* What the process gets that probes. */
struct main_probe {
    struct runner *r;
    struct cgroup_host *cgroups;
};

static int main_selftest(void *arg, struct selftest_result *out, struct err *err) {
    const struct main_probe *p = arg;
    const struct runner *r = p->r;
    const struct selftest_config cfg = {
        .cgroups = p->cgroups,
        .init_fd = r->supervise.shard.init_fd,
        .home_ns = r->supervise.shard.home_ns,
        .policy = policy_find(&r->policies, "default"),
        .bpf = &r->supervise.shard.programs[POLICY_SYSCALLS_DEFAULT],
        .ids = r->supervise.shard.ids,
        .rootless = r->opt.rootless,
        .allowed = r->allowed,
    };
    return selftest_run(&cfg, out, err);
}

/* Finds the cgroup trees, records the base groups for the next start, proves the limits in one. */
static int main_prove(struct runner *r, struct err *err) {
    struct cgroup_host cgroups;
    char name[CGROUP_NAME_MAX * 2];
    (void)snprintf(name, sizeof name, "%s/probe", r->cgroup_name);
    r->supervise.shard.mount_dir = r->state.mounts;
    if (shard_cgroups(&r->supervise.shard, name, &cgroups, err) != 0) {
        return -1;
    }
    start_bases(&r->supervise, &cgroups);
    cgroup_host_done(&cgroups);
    /* Groups of our name that no record told of: the state directory of an earlier life was
     * removed, and ours was given its inode. Nobody alive can have it, since a runner keeps its own
     * open. */
    uint64_t patience_ns = CGROUP_SWEEP_NS;
    for (unsigned i = 0; i < r->supervise.bases; i++) {
        if (leftovers_group(r->supervise.base[i], &patience_ns, &r->log, err) != 0) {
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
        struct main_probe probe = {r, &cgroups};
        rc = start_selftest(main_selftest, &probe, &r->capabilities, err);
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

static int main_start(struct runner *r, struct err *err) {
    if (geteuid() != 0 && !r->opt.rootless) {
        return err_set(err, ERR_STATE, 0,
                       "pinfold-runner makes namespaces and cgroups: run it as root, or with "
                       "--rootless");
    }
    /* Policies and init may be given relative to the directory we are called in; STATE is entered
     * afterwards. */
    struct shard_config *s = &r->supervise.shard;
    if (main_user(r, err) != 0 || policy_set_load(r->opt.policies, &r->policies, err) != 0 ||
        (s->init_fd = start_init_program(r->opt.init, err)) < 0 || main_rootless(r, err) != 0 ||
        (s->home_ns = start_namespace(err)) < 0 || main_state(r, err) != 0 ||
        leftovers_sweep(BACKEND_NATIVE, &r->log, err) != 0 ||
        start_filters(&r->log, s->ids.count == SPAWN_IDS_ONE, s->programs, err) != 0) {
        return -1;
    }
    return main_prove(r, err);
}

static void main_warm(struct runner *r) {
    struct shard_config *s = &r->supervise.shard;
    s->warm = s->warm_more = (unsigned)r->opt.warm;
    if (r->opt.warm == MAIN_WARM_AUTO) {
        struct warm_host host = warm_host_look((unsigned)r->opt.shards);
        s->warm = warm_count(&host);
        s->warm_more = WARM_FEW;
    }
}

static int main_serve(struct runner *r) {
    struct supervise_config *s = &r->supervise;
    s->shards = (unsigned)r->opt.shards;
    s->cgroup_name = r->cgroup_name;
    s->shard.backend = BACKEND_NATIVE;
    s->shard.slots = (unsigned)r->opt.slots;
    s->shard.sandboxes = (unsigned)r->opt.sandboxes;
    main_warm(r);
    s->shard.disk_dir = r->state.disk;
    s->shard.images_dir = r->state.images;
    s->shard.policies = &r->policies;
    s->shard.capabilities = r->capabilities;
    s->shard.log = &r->log;
    int code = supervise_run(s);
    leftovers_sockets(BACKEND_NATIVE);
    return code;
}

static int main_disk(struct runner *r) {
    struct shard_config *s = &r->supervise.shard;
    s->disk_chosen = r->opt.disk != NULL;
    s->disk = WIRE_DISK_MEMORY;
    if (s->disk_chosen && strcmp(r->opt.disk, "file") == 0) {
        s->disk = WIRE_DISK_FILE;
    } else if (s->disk_chosen && strcmp(r->opt.disk, "memory") != 0) {
        (void)fprintf(stderr, "pinfold-runner: --disk is memory or file, not \"%s\"\n",
                      r->opt.disk);
        return -1;
    }
    return 0;
}

int main(int argc, char **argv) {
    struct runner r;
    struct err err;
    memset(&r, 0, sizeof r);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    r.opt = (struct main_options){.policies = "/etc/pinfold/policies",
                                  .shards = cpus > 4   ? 4
                                            : cpus > 0 ? (uint64_t)cpus
                                                       : 1,
                                  .slots = 32,
                                  .sandboxes = 512,
                                  .warm = MAIN_WARM_AUTO};
    struct shard_config *shard = &r.supervise.shard;
    shard->layer_bytes = MAIN_LAYER_BYTES;
    shard->keep_ms = 60000;
    shard->removed_groups = CGROUP_DYING_MOST;
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &r.opt.state, 0, 0, "state directory (required)"},
        {"policies", 0, "DIR", OPT_STRING, &r.opt.policies, 0, 0,
         "policy files, owned by root (/etc/pinfold/policies)"},
        {"server-user", 0, "NAME", OPT_STRING, &r.opt.server_user, 0, 0,
         "the user that may connect (pinfold)"},
        {"shards", 0, "N", OPT_U64, &r.opt.shards, 1, SUPERVISE_SHARDS_MAX,
         "processes to spread the work over (one per processor, at most 4)"},
        {"slots", 0, "N", OPT_U64, &r.opt.slots, 1, 512, "runs at once, per shard (32)"},
        {"sandboxes", 0, "N", OPT_U64, &r.opt.sandboxes, 0, 1200,
         "sandboxes at once, per shard (512)"},
        {"layer-bytes", 0, "SIZE", OPT_BYTES, &shard->layer_bytes, 0, 0,
         "what snapshots may hold, per shard (4G); 0 = anything"},
        {"disk", 0, "KIND", OPT_STRING, &r.opt.disk, 0, 0,
         "memory or file: where a sandbox has its files that asks for neither (memory; file where "
         "the kernel can take no snapshots of what is in memory: before Linux 6.3)"},
        {"keep", 0, "TIME", OPT_DURATION, &shard->keep_ms, 0, 24 * 60 * 60 * 1000,
         "how long sandboxes wait for a server that comes back (1m); 0 ends them at once"},
        {"warm", 0, "N", OPT_U64, &r.opt.warm, 0, 256,
         "jails kept ready, per shard and kind (of the default policy with the host's programs as "
         "many as fit into a 400th of the memory, some 450 KB each, 4 to 64; of any other kind 4)"},
        {"removed-groups", 0, "N", OPT_U64, &shard->removed_groups, 1, 1u << 20,
         "control groups that the kernel may still hold, some 200 KB each, before they are emptied "
         "or used again (4096)"},
        {"init", 0, "FILE", OPT_STRING, &r.opt.init, 0, 0,
         "the program for process 1 of jails (pinfold-init beside this one)"},
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
    int code = start_parse("pinfold-runner", main_about, table, argc, argv, &r.opt.state);
    if (code >= 0) {
        return code;
    }
    if (main_disk(&r) != 0) {
        return 2;
    }
    start_hold_signals();
    int rc = main_start(&r, &err);
    rc = start_tell("pinfold-runner", rc, r.opt.check ? r.capabilities : NULL, &err);
    if (rc == 0) {
        main_tell(&r);
    }
    code = rc != 0 ? 1 : r.opt.check ? 0 : main_serve(&r);
    cgroup_aside_end(r.supervise.aside);
    return code;
}
