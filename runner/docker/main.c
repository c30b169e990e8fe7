/* pinfold-runner-docker: the runner whose jails are containers of a Docker engine. It speaks to the
 * server as pinfold-runner does, and shares with it all that comes after the birth of process 1. It
 * is the only program that touches the engine's socket. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "home.h"
#include "host.h"
#include "leftovers.h"
#include "log.h"
#include "maker.h"
#include "opt.h"
#include "policy.h"
#include "selftest.h"
#include "start.h"
#include "supervise.h"

#define MAIN_LAYER_BYTES ((uint64_t)4 << 30)
#define MAIN_ENGINE_NS (15 * CLOCK_NS_PER_S) /* for the engine to answer at start */

struct main_options {
    const char *state, *policies, *server_user, *init, *engine, *host_image;
    uint64_t slots, sandboxes, warm;
    bool check;
};

struct main_runner {
    struct main_options opt;
    struct log log;
    struct start_state state;
    struct policy_set policies;
    struct supervise_config supervise;
    struct shard_maker maker;
    struct maker *made; /* of the shard that this process is */
    struct host_image host;
    struct selftest_result *capabilities;
    char cgroup_name[CGROUP_NAME_MAX];
    char owner[HOME_OWNER_SIZE];
    char run_dir[4200];
};

static const char main_about[] =
    "Makes jails of containers of a Docker engine (API 1.41 or newer) for pinfold-server, beside\n"
    "pinfold-runner or alone. Runs as root on the engine's host. At start it proves in containers\n"
    "that every limit and wall holds, and refuses to start otherwise.\n\n"
    "Containers have no network, a read-only root, no capability, no mount of the host and user "
    "1000,\n"
    "whatever their image says. Images are those of pinfold-server image; \"host\" is what "
    "--host-image\n"
    "names.";

static int main_state(struct main_runner *r, struct err *err) {
    const struct start_names names = {.state = r->opt.state,
                                      .program = "pinfold-runner-docker",
                                      .lock = "lock.docker",
                                      .disk = "disk.docker",
                                      .mounts = "run/cgroup2.docker"};
    if (start_state(&names, &r->state, err) != 0) {
        return -1;
    }
    (void)snprintf(r->cgroup_name, sizeof r->cgroup_name, "pinfold-docker-%s", r->state.name);
    (void)snprintf(r->run_dir, sizeof r->run_dir, "%.*s",
                   (int)(strrchr(r->state.mounts, '/') - r->state.mounts), r->state.mounts);
    return home_owner(r->run_dir, r->state.name, r->owner, err);
}

/* ---- the maker of this process ---- */

static struct maker *main_maker(struct main_runner *r, struct loop *loop,
                                void (*changed)(void *arg), void *arg, struct err *err) {
    const struct maker_config cfg = {.loop = loop,
                                     .log = &r->log,
                                     .socket = r->opt.engine,
                                     .owner = r->owner,
                                     .host = r->host,
                                     .images_dirfd = r->state.images,
                                     .init_fd = r->supervise.shard.init_fd,
                                     .run_dir = r->run_dir,
                                     .prunes = arg != NULL,
                                     .changed = changed,
                                     .arg = arg};
    return maker_new(&cfg, err);
}

static const struct jail_maker *main_maker_start(void *arg, struct loop *loop,
                                                 void (*changed)(void *arg), void *changed_arg,
                                                 struct err *err) {
    struct main_runner *r = arg;
    r->made = main_maker(r, loop, changed, changed_arg, err);
    return r->made != NULL ? maker_jails(r->made) : NULL;
}

static void main_maker_stop(void *arg) {
    struct main_runner *r = arg;
    maker_free(r->made);
    r->made = NULL;
}

/* ---- the proof ---- */

static void main_unchanged(void *arg) {
    (void)arg;
}

/* Until it has answered, and what an earlier life left is gone. */
static int main_wait(struct main_runner *r, struct loop *loop, const struct maker *m,
                     struct err *err) {
    uint64_t deadline = clock_mono_ns() + MAIN_ENGINE_NS;
    while (!maker_swept(m)) {
        if (clock_mono_ns() > deadline) {
            const char *health = engine_health(maker_engine(m));
            return err_set(err, ERR_STATE, 0, "%s (socket %s, which --engine names)",
                           *health ? health : "the containers of an earlier start do not go",
                           r->opt.engine);
        }
        if (loop_once(loop, 100 * CLOCK_NS_PER_MS, err) != 0) {
            return -1;
        }
    }
    struct log_line l;
    log_begin(&l, &r->log, LOG_INFO, "engine");
    log_str(&l, "version", engine_version(maker_engine(m)));
    log_end(&l);
    return 0;
}

/* What the process gets that probes. */
struct main_probe {
    struct main_runner *r;
    struct cgroup_host *cgroups;
    struct host_image *host; /* what it finds; shared with it */
};

/* What its name means now. */
static int main_pin(struct main_runner *r, struct loop *loop, const struct maker *m,
                    struct host_image *out, struct err *err) {
    struct log_line l;
    if (r->opt.host_image == NULL) {
        return 0;
    }
    if (host_pin(maker_engine(m), loop, r->opt.host_image, out, err) != 0) {
        return -1;
    }
    log_begin(&l, &r->log, LOG_INFO, "host_image");
    log_str(&l, "name", r->opt.host_image);
    log_str(&l, "id", out->id);
    log_end(&l);
    return 0;
}

static int main_selftest(void *arg, struct selftest_result *out, struct err *err) {
    const struct main_probe *p = arg;
    struct main_runner *r = p->r;
    struct loop *loop = loop_new(err);
    struct maker *m = loop != NULL ? main_maker(r, loop, main_unchanged, NULL, err) : NULL;
    int rc = m == NULL ? -1 : main_wait(r, loop, m, err);
    if (rc == 0) {
        rc = main_pin(r, loop, m, p->host, err);
    }
    if (rc == 0) {
        const struct selftest_config cfg = {
            .cgroups = p->cgroups,
            .init_fd = r->supervise.shard.init_fd,
            .home_ns = r->supervise.shard.home_ns,
            .policy = policy_find(&r->policies, "default"),
            .bpf = &r->supervise.shard.programs[POLICY_SYSCALLS_DEFAULT],
            .maker = maker_jails(m),
            .loop = loop,
            .image = MAKER_IMAGE_EMPTY,
        };
        rc = selftest_run(&cfg, out, err);
    }
    maker_free(m);
    loop_free(loop);
    return rc;
}

static int main_probe(struct main_runner *r, struct cgroup_host *cgroups, struct err *err) {
    struct host_image *host =
        mmap(NULL, sizeof *host, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED) {
        return err_sys(err, "mapping memory for the self-test");
    }
    struct main_probe probe = {r, cgroups, host};
    int rc = start_selftest(main_selftest, &probe, &r->capabilities, err);
    r->host = *host;
    (void)munmap(host, sizeof *host);
    return rc;
}

static int main_prove(struct main_runner *r, struct err *err) {
    struct cgroup_host cgroups;
    char name[CGROUP_NAME_MAX * 2];
    (void)snprintf(name, sizeof name, "%s/probe", r->cgroup_name);
    if (cgroup_host_init(&cgroups, name, r->state.mounts, err) != 0) {
        return -1;
    }
    start_bases(&r->supervise, &cgroups);
    int rc = leftovers_record(BACKEND_DOCKER, r->supervise.base, r->supervise.bases, err);
    if (rc == 0) {
        rc = main_probe(r, &cgroups, err);
    }
    cgroup_host_done(&cgroups);
    return rc;
}

static int main_start(struct main_runner *r, struct err *err) {
    if (geteuid() != 0) {
        return err_set(
            err, ERR_STATE, 0,
            "pinfold-runner-docker looks into containers and their control groups: run it "
            "as root");
    }
    struct shard_config *s = &r->supervise.shard;
    if (start_server_user(r->opt.server_user, &s->server_uid, &s->server_gid, err) != 0 ||
        policy_set_load(r->opt.policies, &r->policies, err) != 0 ||
        (s->init_fd = start_init_program(r->opt.init, err)) < 0 ||
        (s->home_ns = start_namespace(err)) < 0 || main_state(r, err) != 0 ||
        leftovers_sweep(BACKEND_DOCKER, &r->log, err) != 0 ||
        start_filters(&r->log, true, s->programs, err) != 0) {
        return -1;
    }
    return main_prove(r, err);
}

static int main_serve(struct main_runner *r) {
    struct supervise_config *s = &r->supervise;
    r->maker = (struct shard_maker){.start = main_maker_start,
                                    .stop = main_maker_stop,
                                    .host = r->host.id[0] != '\0',
                                    .host_sha256 = r->host.sha256,
                                    .arg = r};
    s->shards = 1; /* it is the engine that works */
    s->cgroup_name = r->cgroup_name;
    s->shard.backend = BACKEND_DOCKER;
    s->shard.maker = &r->maker;
    s->shard.slots = (unsigned)r->opt.slots;
    s->shard.sandboxes = (unsigned)r->opt.sandboxes;
    s->shard.warm = s->shard.warm_more = (unsigned)r->opt.warm;
    s->shard.disk_dir = r->state.disk;
    s->shard.images_dir = r->state.images;
    s->shard.mount_dir = r->state.mounts;
    s->shard.policies = &r->policies;
    s->shard.capabilities = r->capabilities;
    s->shard.log = &r->log;
    int code = supervise_run(s);
    leftovers_sockets(BACKEND_DOCKER);
    return code;
}

int main(int argc, char **argv) {
    struct main_runner r;
    struct err err;
    memset(&r, 0, sizeof r);
    r.opt = (struct main_options){.policies = "/etc/pinfold/policies",
                                  .server_user = "pinfold",
                                  .engine = "/var/run/docker.sock",
                                  .slots = 16,
                                  .sandboxes = 128,
                                  .warm = 4};
    struct shard_config *shard = &r.supervise.shard;
    shard->layer_bytes = MAIN_LAYER_BYTES;
    shard->keep_ms = 60000;
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &r.opt.state, 0, 0, "state directory (required)"},
        {"engine", 0, "SOCKET", OPT_STRING, &r.opt.engine, 0, 0,
         "the engine's Unix socket (/var/run/docker.sock)"},
        {"host-image", 0, "REF", OPT_STRING, &r.opt.host_image, 0, 0,
         "an image of the engine that stands for image \"host\", which requests get by default, "
         "as it is at start"},
        {"policies", 0, "DIR", OPT_STRING, &r.opt.policies, 0, 0,
         "policy files, owned by root (/etc/pinfold/policies)"},
        {"server-user", 0, "NAME", OPT_STRING, &r.opt.server_user, 0, 0,
         "the user that may connect (pinfold)"},
        {"slots", 0, "N", OPT_U64, &r.opt.slots, 1, 512, "runs at once (16)"},
        {"sandboxes", 0, "N", OPT_U64, &r.opt.sandboxes, 0, 1200, "sandboxes at once (128)"},
        {"layer-bytes", 0, "SIZE", OPT_BYTES, &shard->layer_bytes, 0, 0,
         "what snapshots may hold (4G); 0 = anything"},
        {"keep", 0, "TIME", OPT_DURATION, &shard->keep_ms, 0, 24 * 60 * 60 * 1000,
         "how long sandboxes wait for a server that comes back (1m); 0 ends them at once"},
        {"warm", 0, "N", OPT_U64, &r.opt.warm, 0, 64, "containers kept ready, per kind (4)"},
        {"init", 0, "FILE", OPT_STRING, &r.opt.init, 0, 0,
         "the program for process 1 of containers (pinfold-init beside this one)"},
        {"check", 0, NULL, OPT_FLAG, &r.opt.check, 0, 0,
         "prove the limits, print the results and exit"},
        {0},
    };
    log_init(&r.log, STDERR_FILENO, LOG_INFO, "pinfold-runner-docker");
    /* What the engine is told about a container is JSON as well: a list that lacks an entry because
     * memory was short would be a container with one wall less. */
    policy_load_guard();
    int code = start_parse("pinfold-runner-docker", main_about, table, argc, argv, &r.opt.state);
    if (code >= 0) {
        return code;
    }
    start_hold_signals();
    int rc = main_start(&r, &err);
    rc = start_tell("pinfold-runner-docker", rc, r.opt.check ? r.capabilities : NULL, &err);
    code = rc != 0 ? 1 : r.opt.check ? 0 : main_serve(&r);
    cgroup_aside_end(r.supervise.aside);
    return code;
}
