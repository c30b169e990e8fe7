#include "shard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "layers.h"
#include "leftovers.h"
#include "loop.h"
#include "pool.h"
#include "session.h"

#define SHARD_ACCEPT_NS (100 * CLOCK_NS_PER_MS)
#define SHARD_STOP_NS (5 * CLOCK_NS_PER_S)

struct shard {
    const struct shard_config *cfg;
    struct loop *loop;
    struct cgroup_host cgroups;
    struct jail_host host;
    struct netns_set *networks;
    struct pool *pool;
    struct layers *layers;
    struct selftest_result capabilities; /* the proven ones, and what layers can do here */
    struct session_hold hold;
    struct session_config session_cfg;
    struct session *session; /* one server at a time */
    struct limits host_max;
    int listener, signals;
    struct loop_source listen_src, signal_src;
    struct loop_timer stop_timer, accept_timer;
    uint64_t stop_deadline_ns;
    bool stopping;
    char health[WIRE_TEXT_MAX]; /* last logged */
};

static void shard_closed(void *arg, const char *why) {
    struct shard *s = arg;
    struct log_line l;
    log_begin(&l, s->cfg->log, *why ? LOG_WARN : LOG_INFO, "server.gone");
    log_u64(&l, "shard", s->cfg->index);
    log_str(&l, "why", *why ? why : "closed");
    log_end(&l);
    s->session = NULL;
}

static void shard_changed(void *arg) {
    struct shard *s = arg;
    struct pool_stats stats;
    pool_stats(s->pool, &stats);
    bool urgent = strcmp(stats.health, s->health) != 0;
    if (urgent) {
        struct log_line l;
        (void)snprintf(s->health, sizeof s->health, "%s", stats.health);
        log_begin(&l, s->cfg->log, *s->health ? LOG_ERROR : LOG_INFO, "pool.health");
        log_u64(&l, "shard", s->cfg->index);
        log_str(&l, "state", *s->health ? s->health : "well");
        log_end(&l);
    }
    if (s->session != NULL) {
        session_state_changed(s->session, urgent);
    }
}

static void shard_room(void *arg) {
    struct shard *s = arg;
    if (s->session != NULL) {
        session_room(s->session);
    }
}

static void shard_accept(void *arg, uint32_t events);

static void shard_accept_again(void *arg) {
    struct shard *s = arg;
    struct err err;
    if (loop_add(s->loop, &s->listen_src, s->listener, EPOLLIN, shard_accept, s, &err) != 0) {
        log_err(s->cfg->log, LOG_ERROR, "listen.failed", &err);
        loop_stop(s->loop); /* the supervisor starts another shard */
    }
}

static void shard_accept(void *arg, uint32_t events) {
    struct shard *s = arg;
    struct ucred cred = {.uid = (uid_t)-1};
    socklen_t len = sizeof cred;
    struct err err;
    (void)events;
    int sock = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (sock < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            /* The connection stays in the queue and would wake us at once: look again a little
             * later. */
            loop_del(s->loop, &s->listen_src);
            (void)loop_timer_at(s->loop, &s->accept_timer, clock_mono_ns() + SHARD_ACCEPT_NS,
                                shard_accept_again, s, NULL);
        }
        return;
    }
    bool known = getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
                 (cred.uid == 0 || cred.uid == s->cfg->server_uid);
    if (!known || s->session != NULL || s->stopping) {
        struct log_line l;
        log_begin(&l, s->cfg->log, LOG_WARN, "server.refused");
        log_u64(&l, "shard", s->cfg->index);
        log_i64(&l, "uid", (int64_t)cred.uid);
        log_str(&l, "why",
                !known        ? "not the server's user"
                : s->stopping ? "stopping"
                              : "another server is connected");
        log_end(&l);
        fd_hang_up(&sock);
        return;
    }
    s->session = session_new(sock, &s->session_cfg, &err);
    if (s->session == NULL) {
        log_err(s->cfg->log, LOG_ERROR, "server.failed", &err);
    }
}

static void shard_stop_poll(void *arg) {
    struct shard *s = arg;
    uint64_t now = clock_mono_ns();
    if (pool_empty(s->pool) || now > s->stop_deadline_ns) {
        loop_stop(s->loop);
        return;
    }
    (void)loop_timer_at(s->loop, &s->stop_timer, now + 2 * CLOCK_NS_PER_MS, shard_stop_poll, s,
                        NULL);
}

static void shard_signal(void *arg, uint32_t events) {
    struct shard *s = arg;
    struct signalfd_siginfo info;
    (void)events;
    if (read(s->signals, &info, sizeof info) != (ssize_t)sizeof info || s->stopping) {
        return;
    }
    s->stopping = true;
    s->stop_deadline_ns = clock_mono_ns() + SHARD_STOP_NS;
    session_hold_end(&s->hold);
    if (s->session != NULL) {
        session_end(s->session);
    }
    pool_stop(s->pool);
    shard_stop_poll(s);
}

/* Every descriptor that a jail needs counts against this; and what the host grants us at most is
 * what a command can be granted. */
static void shard_host_limits(struct shard *s) {
    struct rlimit files;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        s->host_max.v[i] = UINT64_MAX;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        s->host_max.v[LIMIT_OPEN_FILES] = files.rlim_max;
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_max != RLIM_INFINITY) {
        s->host_max.v[LIMIT_FILE_BYTES] = files.rlim_max;
    }
    if (getrlimit(RLIMIT_STACK, &files) == 0 && files.rlim_max != RLIM_INFINITY) {
        s->host_max.v[LIMIT_STACK_BYTES] = files.rlim_max;
    }
}

/* The path is relative to STATE, the working directory: an absolute one may not fit into sun_path.
 */
static int shard_listen(struct shard *s, struct err *err) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "run/%s.%u.sock",
                   leftovers_socket(s->cfg->backend), s->cfg->index);
    (void)unlink(addr.sun_path);
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0117);
    int rc = s->listener < 0 ? -1 : bind(s->listener, (struct sockaddr *)&addr, sizeof addr);
    (void)umask(before);
    if (rc != 0 || chown(addr.sun_path, 0, s->cfg->server_gid) != 0 ||
        listen(s->listener, 8) != 0) {
        return err_sys(err, "listening on %s", addr.sun_path);
    }
    return loop_add(s->loop, &s->listen_src, s->listener, EPOLLIN, shard_accept, s, err);
}

static int shard_signals(struct shard *s, struct err *err) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_SETMASK, &set, NULL) != 0 ||
        (s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0) {
        return err_sys(err, "waiting for signals");
    }
    return loop_add(s->loop, &s->signal_src, s->signals, EPOLLIN, shard_signal, s, err);
}

/* Of these a host may lack one: then sandboxes go without, and whoever asks for it is told. */
static void shard_capability(struct shard *s, const char *name, const char *how, const char *proof,
                             const char *missing) {
    struct wire_capability *c = &s->capabilities.item[s->capabilities.count++];
    memset(c, 0, sizeof *c);
    c->status = missing == NULL ? WIRE_CAP_ENFORCED : WIRE_CAP_UNAVAILABLE;
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    (void)snprintf(c->how, sizeof c->how, "%s", how);
    (void)snprintf(c->proof, sizeof c->proof, "%s", missing == NULL ? proof : "");
    (void)snprintf(c->remedy, sizeof c->remedy, "%s", missing == NULL ? "" : missing);
}

/* Not a limit, but what everybody must be told who asks. */
static void shard_rootless(struct shard *s) {
    const struct rootless *r = s->cfg->rootless;
    char how[128];
    if (r == NULL) {
        return;
    }
    if (r->sub != 0) {
        (void)snprintf(how, sizeof how, "the runner is user %u with %u subordinate ids from %u on",
                       (unsigned)r->uid, r->count, r->sub);
    } else {
        (void)snprintf(how, sizeof how, "the runner and all jails are user %u", (unsigned)r->uid);
    }
    shard_capability(s, "rootless", how, "the runner has no power over the host", NULL);
}

static void shard_capabilities(struct shard *s) {
    _Static_assert(SELFTEST_MAX >= 20, "room for three more");
    s->capabilities = *s->cfg->capabilities;
    const char *missing = layers_snapshots_missing(s->layers, WIRE_DISK_MEMORY);
    bool files = false;
    if (missing != NULL && layers_files_missing(s->layers) == NULL) {
        missing = layers_snapshots_missing(s->layers, WIRE_DISK_FILE);
        files = missing == NULL;
    }
    shard_capability(s, "snapshots",
                     files ? "overlay over layers, seen through id-mapped mounts, of disk files "
                             "only: for those in memory use Linux 6.3 or newer"
                           : "overlay over layers, seen through id-mapped mounts",
                     "a jail with other ids found the file of a snapshot as its own", missing);
    shard_capability(s, "disk_file", "ext4 in a file on a loop device, id-mapped",
                     "a file system was made in a file, and mounted",
                     layers_files_missing(s->layers));
    shard_rootless(s);
}

/* The limits among what the operator gave up: nobody may ask for one of them. */
static uint32_t shard_unenforced(const struct shard *s) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < s->capabilities.count; i++) {
        const struct wire_capability *c = &s->capabilities.item[i];
        for (int id = 0; id < LIMIT_COUNT && c->status == WIRE_CAP_GIVEN_UP; id++) {
            bool same = strcmp(limit_info((enum limit_id)id)->name, c->name) == 0;
            mask |= same ? 1u << id : 0;
        }
    }
    return mask;
}

static int shard_disk(const struct shard *s, enum wire_disk *disk, struct err *err) {
    const char *missing = layers_files_missing(s->layers);
    if (!s->cfg->disk_chosen) {
        bool file = layers_snapshots_missing(s->layers, WIRE_DISK_MEMORY) != NULL &&
                    layers_snapshots_missing(s->layers, WIRE_DISK_FILE) == NULL;
        *disk = file ? WIRE_DISK_FILE : WIRE_DISK_MEMORY;
    } else if (s->cfg->disk == WIRE_DISK_FILE && missing != NULL) {
        return err_set(err, ERR_STATE, 0, "--disk file: %s", missing);
    } else {
        *disk = s->cfg->disk;
    }
    return 0;
}

static void shard_session_config(struct shard *s, enum wire_disk disk) {
    s->hold.keep_ns = s->cfg->keep_ms * CLOCK_NS_PER_MS;
    s->session_cfg = (struct session_config){
        .loop = s->loop,
        .pool = s->pool,
        .layers = s->layers,
        .hold = &s->hold,
        .policies = s->cfg->policies,
        .host_max = &s->host_max,
        .capability = s->capabilities.item,
        .capabilities = s->capabilities.count,
        .unenforced = shard_unenforced(s),
        .disk = disk,
        .shard = s->cfg->index,
        .slots = s->cfg->slots,
        .sandboxes = s->cfg->sandboxes,
        .backend = s->cfg->backend,
        .host_sha256 = s->cfg->maker != NULL ? s->cfg->maker->host_sha256 : NULL,
        .closed = shard_closed,
        .arg = s,
    };
}

/* Without its layers the shard would refuse what the server believes it has. A new one starts with
 * none, and says so. */
static void shard_lost(void *arg) {
    struct shard *s = arg;
    struct log_line l;
    log_begin(&l, s->cfg->log, LOG_ERROR, "layers.lost");
    log_u64(&l, "shard", s->cfg->index);
    log_str(&l, "why", "the process that keeps the layers of snapshots has ended");
    log_end(&l);
    loop_stop(s->loop); /* the supervisor starts another shard */
}

int shard_cgroups(const struct shard_config *cfg, const char *name, struct cgroup_host *host,
                  struct err *err) {
    return cfg->rootless != NULL ? cgroup_host_init_rootless(host, name, cfg->may_lack, err)
                                 : cgroup_host_init(host, name, cfg->mount_dir, err);
}

static int shard_start(struct shard *s, struct err *err) {
    const struct shard_config *cfg = s->cfg;
    enum wire_disk disk = WIRE_DISK_MEMORY;
    shard_host_limits(s);
    s->loop = loop_new(err);
    if (s->loop == NULL || shard_signals(s, err) != 0 ||
        shard_cgroups(cfg, cfg->cgroup_name, &s->cgroups, err) != 0) {
        return -1;
    }
    if (cfg->maker == NULL) {
        (void)cgroup_left_init(&s->cgroups, NULL); /* without it jails are idle one by one */
    }
    const struct layers_config layers = {.loop = s->loop,
                                         .layer_bytes = cfg->layer_bytes,
                                         .disk_dirfd = cfg->disk_dir,
                                         .lost = shard_lost,
                                         .arg = s,
                                         .rootless = cfg->rootless != NULL};
    s->layers = layers_new(&layers, err);
    if (s->layers == NULL || shard_disk(s, &disk, err) != 0) {
        return -1;
    }
    s->networks = netns_new(s->loop);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    s->host = (struct jail_host){.loop = s->loop,
                                 .cgroups = &s->cgroups,
                                 .ids = cfg->ids,
                                 .rootless = cfg->rootless != NULL,
                                 .init_fd = cfg->init_fd,
                                 .home_ns = cfg->home_ns,
                                 .core_bytes = jail_core_limit(),
                                 .dying.most = cfg->removed_groups > 0 ? cfg->removed_groups
                                                                       : CGROUP_DYING_MOST,
                                 .cpus = cpus > 0 ? (unsigned)cpus : 1,
                                 .serial = clock_real_ms(),
                                 .networks = s->networks,
                                 .maker = &jail_native};
    if (cfg->maker != NULL) {
        s->host.maker = cfg->maker->start(cfg->maker->arg, s->loop, shard_changed, s, err);
    }
    if (s->host.maker == NULL) {
        return -1;
    }
    const struct pool_config pool = {
        .host = &s->host,
        .policies = cfg->policies,
        .programs = {cfg->programs[0], cfg->programs[1]},
        .images_dirfd = cfg->images_dir,
        .shard = cfg->index,
        .slots = cfg->slots,
        .sandboxes = cfg->sandboxes,
        .warm = cfg->warm,
        .warm_more = cfg->warm_more,
        .keep_host = cfg->maker == NULL || cfg->maker->host,
        .changed = shard_changed,
        .room = shard_room,
        .arg = s,
    };
    s->pool = pool_new(&pool, err);
    if (s->pool == NULL) {
        return -1;
    }
    pool_start(s->pool);
    shard_capabilities(s);
    shard_session_config(s, disk);
    return shard_listen(s, err);
}

int shard_run(const struct shard_config *cfg) {
    struct err err;
    struct shard s = {.cfg = cfg, .listener = -1, .signals = -1};
    s.listen_src.fd = s.signal_src.fd = -1;
    int rc = shard_start(&s, &err);
    if (rc == 0) {
        struct log_line l;
        loop_rounds(s.loop, cfg->rounds);
        log_begin(&l, cfg->log, LOG_INFO, "shard.ready");
        log_u64(&l, "shard", cfg->index);
        log_u64(&l, "slots", cfg->slots);
        log_u64(&l, "warm", cfg->warm);
        log_end(&l);
        rc = loop_run(s.loop, &err);
    }
    if (rc != 0) {
        log_err(cfg->log, LOG_ERROR, "shard.failed", &err);
    }
    pool_free(s.pool);
    if (cfg->maker != NULL) {
        cfg->maker->stop(cfg->maker->arg);
    }
    netns_free(s.networks);
    layers_free(s.layers);
    cgroup_host_done(&s.cgroups);
    fd_close(&s.listener);
    fd_close(&s.signals);
    loop_free(s.loop);
    return rc == 0 ? 0 : 1;
}
