#include "serve.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "drain.h"
#include "drop.h"
#include "execs.h"
#include "fd.h"
#include "idempotency.h"
#include "listen.h"
#include "results.h"
#include "retain.h"
#include "revoke.h"
#include "route.h"
#include "server.h"
#include "str.h"
#include "subcommand.h"
#include "tls.h"
#include "traces.h"

#define SERVE_MIB ((uint64_t)1024 * 1024)
#define SERVE_WORKERS 2u
#define SERVE_OTHERS 2u /* threads: of the store and of the audit log */
/* Sandboxes that may wait for a slot. */
#define SERVE_SANDBOX_QUEUE 1024u
/* Descriptors for everything that is neither a connection nor a run. */
#define SERVE_FDS_RESERVED 128u
/* A run in a jail: three pipes, and while it is started their other ends and three memory files. */
#define SERVE_FDS_PER_RUN 4u
/* A sandbox: its directory, and something for what runs in it. */
#define SERVE_FDS_PER_SANDBOX 2u

struct serve {
    struct config config;
    struct server server;
    int lock, listener, signals;
    uint16_t port;
    struct state_user user;
    struct http_options http;
    struct runs_options runs;
    size_t sandboxes; /* at once */
    struct snapshots_options snapshots;
    struct loop_source signal_source;
    struct drain drain;
};

/* Set-up, in the order that matters: what needs root comes first, what reads foreign bytes last. */

/* Names of files count from where the administrator is, and a key may be root's. */
static int serve_tls(struct serve *v, struct err *err) {
    const struct config *c = &v->config;
    struct server *s = &v->server;
    if (c->tls_certificate == NULL && c->tls_key == NULL)
        return 0;
    if (c->tls_certificate == NULL || c->tls_key == NULL)
        return err_set(err, ERR_INVALID, 0, "HTTPS needs both tls.certificate and tls.key");
    if (tls_open(c->tls_certificate, c->tls_key, &s->tls, err) < 0)
        return -1;
    struct err date;
    err_clear(&date);
    if (tls_pair_dates(tls_pair(s->tls), clock_real_ms() / 1000, &date) < 0)
        log_err(&s->log, LOG_WARN, "certificate_out_of_date", &date);
    return 0;
}

static int serve_enter_state(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    if (state_open(v->config.state, &s->state, err) < 0)
        return -1;
    v->lock = state_lock(&s->state, STATE_LOCK_SERVER, "pinfold-server", err);
    if (v->lock < 0)
        return -1;
    return state_enter(&s->state, err);
}

static int serve_find_user(struct serve *v, struct err *err) {
    if (v->config.user == NULL && geteuid() != 0) {
        v->user = (struct state_user){.uid = geteuid(), .gid = getegid()};
        return 0;
    }
    return state_user_find(v->config.user != NULL ? v->config.user : "pinfold", &v->user, err);
}

static int serve_listen(struct serve *v, struct err *err) {
    v->listener = listen_open(v->config.listen, (uint16_t)v->config.port, &v->port, err);
    return v->listener < 0 ? -1 : 0;
}

/* Half of the descriptors are for connections, a quarter each for runs and for sandboxes. When they
 * are used up, connections wait in the backlog (http_room.c) and the others in their queues. */
static int serve_count_descriptors(struct serve *v, struct err *err) {
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return err_sys(err, "asking for the limit of open files");
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return err_sys(err, "asking for the limit of open files");
    if (rl.rlim_cur < 2 * SERVE_FDS_RESERVED)
        return err_set(err, ERR_INVALID, 0,
                       "the limit of open files is %llu; the server needs at least %u",
                       (unsigned long long)rl.rlim_cur, 2 * SERVE_FDS_RESERVED);
    uint64_t half = (rl.rlim_cur - SERVE_FDS_RESERVED) / 2;
    v->http.max_connections = half < v->config.connections ? half : v->config.connections;
    v->runs.active_max = half / 2 / SERVE_FDS_PER_RUN;
    v->sandboxes = half / 2 / SERVE_FDS_PER_SANDBOX;
    return 0;
}

static int serve_block_signals(struct serve *v, struct err *err) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); /* the helper for archives is not waited for */
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of write(2), not the end */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(err, "blocking signals");
    v->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return v->signals < 0 ? err_sys(err, "making a signalfd") : 0;
}

static int serve_drop(struct serve *v, struct err *err) {
    umask(077);
    return drop_privileges(&v->user, err);
}

/* Large blocks (bodies, outputs, answers) go back to the system as soon as they are free; otherwise
 * the heap would stay as large as it ever was. */
static int serve_memory(struct serve *v, struct err *err) {
    (void)v;
    (void)err;
    mallopt(M_MMAP_THRESHOLD, 256 * 1024);
    mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
    /* One for each thread: what a worker frees in many small pieces would be put together by the
     * next who wants memory of the same heap, and that must not be the loop. */
    mallopt(M_ARENA_MAX, 1 + SERVE_WORKERS + SERVE_OTHERS);
    return 0;
}

static void serve_accounts_changed(void *arg) {
    struct server *s = arg;
    if (s->http == NULL)
        return; /* nothing has begun */
    revoke_now(s);
    runs_go_on(&s->runs);
}

static int serve_accounts(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    s->accounts.revoked = serve_accounts_changed;
    s->accounts.arg = s;
    return accounts_live_start(&s->accounts, s->loop, s->store, &s->log, err);
}

static int serve_quota(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    struct quota_options options = {.loop = s->loop,
                                    .output_bytes = hostmem_total() / QUOTA_OUTPUT_PART,
                                    .log = &s->log,
                                    .store = s->store,
                                    .accounts = s->accounts.accounts,
                                    .defaults = v->config.default_quota};
    s->quota = quota_new(&options, err);
    return s->quota == NULL ? -1 : 0;
}

static void serve_memory_room(void *arg) {
    struct server *s = arg;
    sandboxes_room(&s->sandboxes);
    runs_go_on(&s->runs);
}

static int serve_memory_budget(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    uint64_t budget = 0;
    if (strcmp(v->config.memory_budget, "auto") != 0 &&
        str_bytes(v->config.memory_budget, &budget, err) < 0)
        return -1;
    s->mem.room = serve_memory_room;
    s->mem.arg = s;
    hostmem_init(&s->mem, s->loop, budget, (unsigned)v->config.memory_overcommit);
    return 0;
}

static int serve_probe(struct serve *v, struct err *err) {
    fd_cleanup int dir = state_open_dir(&v->server.state, STATE_SERVER, err);
    if (dir < 0 || spool_probe(dir, err) < 0)
        return -1;
    return capture_probe(err);
}

static void serve_room(void *arg) {
    struct server *s = arg;
    sandboxes_room(&s->sandboxes);
    runs_room(&s->runs);
}

static void serve_shard_ready(void *arg, struct link *l) {
    struct server *s = arg;
    snapshots_ready(&s->snapshots, l);
    sandboxes_ready(&s->sandboxes, l);
}

static void serve_shard_down(void *arg, struct link *l) {
    struct server *s = arg;
    snapshots_down(&s->snapshots, l);
}

static void serve_shard_dead(void *arg, const char *name) {
    struct server *s = arg;
    snapshots_dead(&s->snapshots, name);
    sandboxes_dead(&s->sandboxes, name);
}

static void serve_shard_looked(void *arg, struct link *l) {
    struct server *s = arg;
    (void)l;
    look_heard(&s->look);
}

/* A sandbox of an earlier server: each module reads what it left in the sandbox's directory. */
static void serve_sandbox_loaded(void *arg, struct sandbox *sb) {
    struct server *s = arg;
    struct err err;
    err_clear(&err);
    if (execs_attach(s, sb, &err) < 0)
        log_err(&s->log, LOG_ERROR, "executions_unreadable", &err);
}

static void serve_sandbox_gone(void *arg, const struct sandbox *sb) {
    traces_keep_sandbox(arg, sb);
}

static int serve_blobs(struct serve *v, struct err *err) {
    struct blobs_options options = {.user_bytes = v->config.blob_bytes,
                                    .age_ms = v->config.blob_age_ms,
                                    .loop = v->server.loop};
    fd_cleanup int dir = state_open_dir(&v->server.state, STATE_SERVER, err);
    if (dir < 0)
        return -1;
    v->server.blobs = blobs_open(dir, &options, err);
    return v->server.blobs == NULL ? -1 : 0;
}

static int serve_store(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    s->loop = loop_new(err);
    fd_cleanup int dir = s->loop != NULL ? state_open_dir(&s->state, STATE_SERVER, err) : -1;
    if (dir < 0)
        return -1;
    struct store_options options = {.loop = s->loop, .log = &s->log, .dir = dir};
    return store_open(&options, &s->store, err);
}

/* Before anything can begin. */
static int serve_audit(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    struct audit_options options = {.loop = s->loop,
                                    .log = &s->log,
                                    .work = s->work,
                                    .key = &s->receipt_key,
                                    .version = SERVER_VERSION};
    fd_cleanup int dir = state_open_dir(&s->state, STATE_SERVER, err);
    if (dir < 0 || receipt_key_open(dir, &s->receipt_key, NULL, err) < 0)
        return -1;
    options.server_dir = dir;
    return audit_start(&s->audit, &options, err);
}

static void serve_round(void *metrics, uint64_t ns) {
    metrics_observe(&((struct metrics *)metrics)->loop, ns);
}

static int serve_core(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    s->work = work_new(s->loop, SERVE_WORKERS, err);
    if (s->work == NULL || serve_audit(v, err) < 0)
        return -1;
    s->mem.work = s->work;
    s->metrics.started_ms = clock_real_ms();
    loop_watch(s->loop, serve_round, &s->metrics);
    archives_init(&s->archives, s->loop, &s->log);
    runs_init(&s->runs, s->loop, &s->log, &s->links, &s->metrics, &v->runs);
    sandboxes_init(&s->sandboxes, s->loop, &s->log, &s->links, &s->metrics, s->work);
    struct sandboxes_options sandboxes = {.queue_count = SERVE_SANDBOX_QUEUE,
                                          .live_max = v->sandboxes,
                                          .loaded = serve_sandbox_loaded,
                                          .gone = serve_sandbox_gone,
                                          .arg = s};
    snapshots_init(&s->snapshots, s->loop, &s->log, &s->links);
    s->sandboxes.store = s->snapshots.store = s->store;
    s->runs.snapshots = &s->snapshots;
    s->runs.audit = &s->audit;
    s->sandboxes.audit = &s->audit;
    s->exec_ended = audit_exec_ended;
    s->exec_leaves = traces_keep_exec;
    s->runs.key = &s->receipt_key;
    s->runs.work = s->work;
    s->runs.mem = s->sandboxes.mem = &s->mem;
    processors_init(&s->processors, s->loop, &s->links);
    s->runs.processors = s->sandboxes.processors = &s->processors;
    s->runs.quota = s->sandboxes.quota = s->snapshots.quota = s->quota;
    quota_watch(s->quota, runs_quota_freed, &s->runs);
    if (sandboxes_start(&s->sandboxes, &sandboxes, err) < 0 ||
        snapshots_start(&s->snapshots, &v->snapshots, err) < 0)
        return -1;
    struct links_watch watch = {.room = serve_room,
                                .ready = serve_shard_ready,
                                .down = serve_shard_down,
                                .dead = serve_shard_dead,
                                .looked = serve_shard_looked,
                                .arg = s};
    idle_init(&s->idle, s);
    look_init(&s->look, s->loop, &s->links);
    links_start(&s->links, s->loop, &s->log, &watch);
    return 0;
}

/* What could not be written is written now. */
static void serve_well(void *arg) {
    struct server *s = arg;
    if (s->runs.store != NULL)
        run_store_well(&s->runs);
    sandboxes_well(&s->sandboxes);
    snapshots_well(&s->snapshots);
}

/* What the database knows of runs. */
static int serve_results(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    const struct config *c = &v->config;
    struct retain_options keep = {.store = s->store,
                                  .count = c->keep_runs,
                                  .bytes = c->keep_run_bytes,
                                  .age_ms = c->keep_run_age_ms,
                                  .key_ms = c->idempotency_ms};
    struct run_store_options options = {.keep_queued = c->queued_on_stop == CONFIG_QUEUED_KEEP,
                                        .accounts = s->accounts.accounts};
    fd_cleanup int dir = state_open_dir(&s->state, STATE_SERVER, err);
    if (dir < 0)
        return -1;
    s->runs.results = results_open(dir, err);
    if (s->runs.results < 0)
        return -1;
    store_on_well(s->store, serve_well, s);
    if (c->keep_results == CONFIG_RESULTS_DISK)
        s->runs.store = s->store;
    s->retain = retain_new(&s->runs, &keep, err);
    s->idempotency = idempotency_new(s, c->idempotency_ms, err);
    if (s->retain == NULL || s->idempotency == NULL)
        return -1;
    if (c->keep_results == CONFIG_RESULTS_MEMORY)
        return 0; /* what an earlier server left waits for one that keeps results on the disk */
    return run_store_redo_open(&s->runs, dir, err) < 0 ||
                   run_store_recover(&s->runs, &options, err) < 0
               ? -1
               : 0;
}

static void serve_signal(void *arg, uint32_t events);

/* Nobody is told of what is not durable yet. */
static void serve_committed(void *arg, int rc, const struct err *err) {
    struct server *s = arg;
    struct api_error error = {0};
    if (rc < 0)
        server_no_store(s, err, &error);
    http_release(s->http, rc < 0 ? &error : NULL);
}

static bool serve_hold(void *arg, struct http_req *req) {
    struct server *s = arg;
    (void)req;
    if (!store_writing(s->store))
        return false;
    s->answers.fn = serve_committed;
    s->answers.arg = s;
    store_then(s->store, &s->answers);
    return true;
}

static void serve_discard(void *arg, void *data, size_t len) {
    const struct server *s = arg;
    work_discard(s->work, data, len);
}

static int serve_http(struct serve *v, struct err *err) {
    struct server *s = &v->server;
    struct http_app app = {.begin = route_begin,
                           .handle = route_handle,
                           .ended = route_ended,
                           .hold = serve_hold,
                           .answered = idempotency_answered,
                           .discard = serve_discard,
                           .arg = s};
    v->http.listen_fd = fd_steal(&v->listener);
    v->http.tls = s->tls;
    for (size_t i = 0; i < v->config.proxy.count; i++)
        if (proxy_net_parse(v->config.proxy.item[i], &v->http.proxy.nets[i], err) < 0)
            return -1;
    v->http.proxy.count = v->config.proxy.count;
    v->http.header_ms = v->config.header_ms;
    v->http.body_ms = v->config.body_ms;
    v->http.max_held_bytes = 8 * SERVER_BODY_MAX;
    s->http = http_start(s->loop, &s->log, &v->http, &app, err);
    if (s->http == NULL)
        return -1;
    drain_init(&v->drain, s);
    return loop_add(s->loop, &v->signal_source, v->signals, EPOLLIN, serve_signal, v, err);
}

/* Users may have been deleted while no server ran. */
static int serve_revoked(struct serve *v, struct err *err) {
    (void)err;
    revoke_now(&v->server);
    return 0;
}

static int (*const serve_stages[])(struct serve *v, struct err *err) = {
    serve_tls,         /* certificate and key */
    serve_enter_state, /* the state directory and its lock */
    serve_find_user,   /* who the server becomes */
    serve_listen,      /* the socket, which may have a port below 1024 */
    serve_count_descriptors,
    serve_block_signals,
    serve_drop, /* root is given up; nothing from outside was read until here */
    serve_memory,
    serve_probe,    /* what it must enforce itself */
    serve_store,    /* the loop, and the database */
    serve_blobs,    /* contents of workspaces that are there already */
    serve_accounts, /* who may ask … */
    serve_quota,    /* … and for how much */
    serve_memory_budget,
    serve_core,    /* workers, connections to the runner */
    serve_results, /* what the database knows of runs */
    serve_http,
    serve_revoked, /* what is there belongs to somebody */
};

/* Signals. */

/* A bad new file keeps the old certificate: what is wrong with it is in the log. */
static void serve_renew(struct serve *v) {
    struct server *s = &v->server;
    struct log_line line;
    struct err err;
    err_clear(&err);
    if (s->tls == NULL)
        return;
    if (tls_reload(s->tls, &err) < 0) {
        log_err(&s->log, LOG_ERROR, "certificate_kept", &err);
        return;
    }
    log_begin(&line, &s->log, LOG_INFO, "certificate_renewed");
    log_str(&line, "names", tls_pair(s->tls)->names);
    log_u64(&line, "expires_s", tls_pair(s->tls)->ends_s);
    log_end(&line);
}

static void serve_signal(void *arg, uint32_t events) {
    struct serve *v = arg;
    struct signalfd_siginfo info;
    (void)events;
    if (read(v->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGHUP)
        serve_renew(v);
    else
        drain_signal(&v->drain);
}

static int serve_set_up(struct serve *v, struct err *err) {
    for (size_t i = 0; i < sizeof(serve_stages) / sizeof(serve_stages[0]); i++)
        if (serve_stages[i](v, err) < 0)
            return -1;
    return 0;
}

static void serve_clean_up(struct serve *v) {
    struct server *s = &v->server;
    if (s->loop != NULL)
        loop_del(s->loop, &v->signal_source);
    drain_done(&v->drain);
    idle_stop(&s->idle);
    if (s->store != NULL)
        store_then_stop(s->store, &s->answers);
    http_stop(s->http);
    tls_free(s->tls);
    s->mem.room = NULL;
    work_free(s->work);
    s->runs.work = NULL; /* what is left is worked off here */
    audit_stop(&s->audit);
    idempotency_free(s->idempotency);
    retain_free(s->retain);
    if (s->quota != NULL)
        quota_watch(s->quota, NULL, NULL);
    processors_stop(&s->processors);
    runs_done(&s->runs);
    sandboxes_done(&s->sandboxes);
    traces_late_stop(s);
    snapshots_done(&s->snapshots);
    execs_hub_free(s->exec_hub);
    blobs_close(s->blobs);
    look_stop(&s->look);
    links_stop(&s->links);
    hostmem_stop(&s->mem);
    archives_stop(&s->archives);
    quota_free(s->quota);
    accounts_live_stop(&s->accounts);
    store_close(s->store);
    loop_free(s->loop);
    fd_close(&v->signals);
    fd_close(&v->listener);
    fd_close(&v->lock);
    state_close(&s->state);
}

static void serve_say_ready(struct serve *v) {
    struct log_line line;
    log_begin(&line, &v->server.log, LOG_INFO, "serving");
    log_str(&line, "address", v->config.listen);
    log_u64(&line, "port", v->port);
    log_str(&line, "scheme", v->server.tls != NULL ? "https" : "http");
    log_u64(&line, "connections", v->http.max_connections);
    log_u64(&line, "runs", v->runs.active_max);
    log_u64(&line, "sandboxes", v->sandboxes);
    log_end(&line);
}

static void serve_prepare(struct serve *v) {
    const struct config *c = &v->config;
    v->lock = v->listener = v->signals = -1;
    v->signal_source.fd = -1;
    v->server.config = c;
    v->server.state.dir = -1;
    v->runs = (struct runs_options){.queue_count = c->queue,
                                    .queue_bytes = 256 * SERVE_MIB,
                                    .keep_count = c->results,
                                    .keep_bytes = c->result_bytes};
    v->snapshots = (struct snapshots_options){.count = c->snapshots, .bytes = c->snapshot_bytes};
    log_init(&v->server.log, STDERR_FILENO, c->verbose ? LOG_DEBUG : (enum log_level)c->log_level,
             "pinfold-server");
}

static int serve_main(struct serve *v, struct err *err) {
    serve_prepare(v);
    int rc = serve_set_up(v, err);
    if (rc == 0) {
        serve_say_ready(v);
        rc = loop_run(v->server.loop, err);
    }
    serve_clean_up(v);
    if (rc < 0)
        fprintf(stderr, "pinfold-server: %s\n", err->text);
    return rc < 0 ? 1 : 0;
}

static int serve_run(int argc, char **argv) {
    static const struct config_command command = {
        .usage = "pinfold-server serve [OPTIONS]",
        .about = "Serves the HTTP API. Started as root, it becomes another user before it reads a "
                 "request.\npinfold-server config explains the settings.",
    };
    struct err err;
    err_clear(&err);
    struct serve *v = calloc(1, sizeof(*v));
    if (v == NULL) {
        fputs("pinfold-server: out of memory\n", stderr);
        return 1;
    }
    int status = 0;
    int rc = config_load(&v->config, &command, argc, argv, &err);
    if (rc == 0)
        status = serve_main(v, &err);
    else if (rc < 0) {
        fprintf(stderr, "pinfold-server serve: %s\n", err.text);
        status = 2;
    }
    config_done(&v->config);
    free(v);
    return status;
}

const struct subcommand serve_cmd = {
    .name = "serve", .about = "serve the HTTP API", .run = serve_run};
