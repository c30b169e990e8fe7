#include "bench_service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_proc.h"
#include "clock.h"
#include "fd.h"
#include "str.h"

#define BENCH_SERVICE_READY_MS 30000u
#define BENCH_SERVICE_STOP_MS 15000u
#define BENCH_SERVICE_SETTLE_MS 5000u
#define BENCH_SERVICE_ARGS_MAX 16
#define BENCH_SERVICE_LOG_MAX (1u << 20)

void bench_service_pause(unsigned ms) {
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        continue;
}

void bench_service_reap(pid_t pid, unsigned ms) {
    uint64_t give_up = clock_mono_ms() + ms;
    pid_t rc;
    while ((rc = waitpid(pid, NULL, WNOHANG)) == 0 && clock_mono_ms() < give_up)
        bench_service_pause(5);
    if (rc == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* A port that is free now. Whoever takes it first has it: good enough on a loopback interface. */
static int bench_service_port(unsigned *port, struct err *err) {
    fd_cleanup int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return err_sys(err, "find a free port");
    *port = ntohs(at.sin_port);
    return 0;
}

/* Starts paths->programs/argv[0] with its output in the log. */
static int bench_service_spawn(const struct bench_service *s, const struct bench_paths *paths,
                               const char *const *argv, pid_t *pid, struct err *err) {
    char program[512];
    char *args[BENCH_SERVICE_ARGS_MAX + 1] = {NULL};
    snprintf(program, sizeof(program), "%s/%s", paths->programs, argv[0]);
    for (size_t i = 0; i < BENCH_SERVICE_ARGS_MAX && argv[i]; i++)
        args[i] = (char *)(uintptr_t)argv[i];
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    /* A session of its own: the terminal's Ctrl-C is for us, and we stop them in order. */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, s->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    int rc = posix_spawn(pid, program, &fa, &attr, args, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return rc ? err_set(err, ERR_SYSTEM, rc, "start %s: %s", program, strerror(rc)) : 0;
}

static int bench_service_init(struct bench_service *s, const struct bench_paths *paths,
                              struct err *err) {
    const char *const argv[] = {"pinfold-server", "init",      "--state", s->state,
                                "--user",         paths->user, NULL};
    pid_t pid;
    int status = 0;
    if (bench_service_spawn(s, paths, argv, &pid, err) < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for pinfold-server init");
    if (status)
        return err_set(err, ERR_STATE, 0, "pinfold-server init failed");
    char path[600];
    struct buf token;
    buf_init(&token, sizeof(s->target.token) - 1);
    snprintf(path, sizeof(path), "%s/admin.token", s->state);
    int rc = fd_read_file(AT_FDCWD, path, &token, err);
    if (rc == 0 && token.len) {
        token.data[strcspn(token.data, "\r\n")] = '\0';
        if (!str_copy(s->target.token, sizeof(s->target.token), token.data))
            rc = err_set(err, ERR_LIMIT, 0, "the token in %s is too long", path);
    }
    buf_done(&token);
    return rc;
}

static int bench_service_launch(struct bench_service *s, const struct bench_paths *paths,
                                const struct bench_service_size *size, struct err *err) {
    char port[16];
    snprintf(port, sizeof(port), "%u", s->target.port);
    const char *runner[BENCH_SERVICE_ARGS_MAX] = {
        "pinfold-runner", "--state",       s->state,   "--policies",
        paths->policies,  "--server-user", paths->user};
    size_t n = 7;
    if (size && size->warm) {
        runner[n++] = "--warm";
        runner[n++] = size->warm;
    }
    if (size && size->sandboxes) {
        runner[n++] = "--sandboxes";
        runner[n++] = size->sandboxes;
    }
    if (size && size->shards) {
        runner[n++] = "--shards";
        runner[n++] = size->shards;
    }
    const char *results = size && size->results ? size->results : "disk";
    const char *const server[] = {"pinfold-server", "serve",  "--state", s->state, "--listen",
                                  "127.0.0.1",      "--port", port,      "--user", paths->user,
                                  "--keep-results", results,  NULL};
    if (bench_service_spawn(s, paths, runner, &s->runner, err) < 0 ||
        bench_service_spawn(s, paths, server, &s->server, err) < 0)
        return -1;
    uint64_t give_up = clock_mono_ms() + BENCH_SERVICE_READY_MS;
    while (!bench_http_probe(s->target.port, "/readyz")) {
        if (waitpid(s->runner, NULL, WNOHANG) == s->runner) {
            s->runner = 0;
            return err_set(err, ERR_STATE, 0, "pinfold-runner has stopped");
        }
        if (waitpid(s->server, NULL, WNOHANG) == s->server) {
            s->server = 0;
            return err_set(err, ERR_STATE, 0, "pinfold-server has stopped");
        }
        if (clock_mono_ms() > give_up)
            return err_set(err, ERR_STATE, 0, "the server was not ready in time");
        bench_service_pause(10);
    }
    return 0;
}

/* Appends the last line of the log to `err`. */
static void bench_service_explain(const struct bench_service *s, struct err *err) {
    struct buf log;
    char text[240];
    buf_init(&log, BENCH_SERVICE_LOG_MAX);
    if (err && fd_read_file(AT_FDCWD, s->log, &log, NULL) == 0 && log.len) {
        while (log.len && log.data[log.len - 1] == '\n')
            log.data[--log.len] = '\0';
        const char *line = strrchr(log.data, '\n');
        line = line ? line + 1 : log.data;
        str_escape(text, sizeof(text), line, strlen(line));
        err_set(err, err->kind, err->code, "%s (%s)", err->text, text);
    }
    buf_done(&log);
}

int bench_service_start(struct bench_service *s, const struct bench_paths *paths, const char *name,
                        const struct bench_service_size *size, struct err *err) {
    *s = (struct bench_service){0};
    int n = snprintf(s->state, sizeof(s->state), "%s/%s", paths->scratch, name);
    int m = snprintf(s->log, sizeof(s->log), "%s/%s.log", paths->scratch, name);
    if (n < 0 || m < 0 || (size_t)m >= sizeof(s->log))
        return err_set(err, ERR_LIMIT, 0, "the path %s is too long", paths->scratch);
    if (bench_service_init(s, paths, err) == 0 && bench_service_port(&s->target.port, err) == 0 &&
        bench_service_launch(s, paths, size, err) == 0)
        return 0;
    bench_service_stop(s);
    bench_service_explain(s, err);
    return -1;
}

void bench_service_stop(struct bench_service *s) {
    /* The server first: it lets its runs end, for which it needs the runner. */
    pid_t *order[] = {&s->server, &s->runner};
    for (size_t i = 0; i < 2; i++) {
        if (*order[i] <= 0)
            continue;
        kill(*order[i], SIGTERM);
        bench_service_reap(*order[i], BENCH_SERVICE_STOP_MS);
        *order[i] = 0;
    }
}

int bench_service_settle(const struct bench_service *s, size_t *jails, struct err *err) {
    uint64_t give_up = clock_mono_ms() + BENCH_SERVICE_SETTLE_MS;
    struct bench_tree tree;
    size_t last = 0;
    unsigned same = 0;
    do {
        bench_service_pause(100);
        if (bench_proc_tree(s->runner, &tree, err) < 0)
            return -1;
        same = tree.jails == last ? same + 1 : 0;
        last = tree.jails;
    } while (same < 3 && clock_mono_ms() < give_up);
    *jails = last;
    return 0;
}
