#include "bench_client.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench_child.h"
#include "clock.h"
#include "fd.h"

#define BENCH_CLIENT_GIT "/usr/bin/git"
#define BENCH_CLIENT_DIRS 100u
#define BENCH_CLIENT_RULES "allow exec true\n"
#define BENCH_CLIENT_PATH 640
/* Until the time stamps are older than what the clock can tell apart: then neither git nor the
 * client reads a file again. */
#define BENCH_CLIENT_REST_MS 1100

struct bench_client {
    char tree[512], rules[BENCH_CLIENT_PATH], program[PATH_MAX];
};

static int bench_client_write(const char *path, const char *text, struct err *err) {
    fd_cleanup int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, "make %s", path);
    return fd_write_all(fd, text, strlen(text), err);
}

static int bench_client_tree(struct bench_client *c, struct err *err) {
    char path[BENCH_CLIENT_PATH], text[40];
    for (unsigned i = 0; i < BENCH_CLIENT_FILES; i++) {
        if (i < BENCH_CLIENT_DIRS) {
            snprintf(path, sizeof(path), "%s/dir%02u", c->tree, i);
            if (mkdir(path, 0755) < 0)
                return err_sys(err, "make %s", path);
        }
        snprintf(path, sizeof(path), "%s/dir%02u/file%05u.txt", c->tree, i % BENCH_CLIENT_DIRS, i);
        snprintf(text, sizeof(text), "content number %u\n", i % 500);
        if (bench_client_write(path, text, err) < 0)
            return -1;
    }
    return 0;
}

static int bench_client_git(const struct bench_client *c, struct err *err) {
    char *init[] = {BENCH_CLIENT_GIT, "init", "-q", NULL};
    char *add[] = {BENCH_CLIENT_GIT, "add", "-A", NULL};
    char *commit[] = {BENCH_CLIENT_GIT,
                      "-c",
                      "user.name=bench",
                      "-c",
                      "user.email=bench@localhost",
                      "commit",
                      "-q",
                      "-m",
                      "all",
                      NULL};
    return bench_child_run(init, c->tree, err) < 0 || bench_child_run(add, c->tree, err) < 0 ||
                   bench_child_run(commit, c->tree, err) < 0
               ? -1
               : 0;
}

/* What the client finds in its environment: this server, and nothing of whoever runs the bench. */
static int bench_client_open(struct bench_client *c, const struct bench_paths *paths,
                             const struct bench_target *target, struct err *err) {
    char url[64], home[BENCH_CLIENT_PATH], near[BENCH_CLIENT_PATH];
    int n = snprintf(c->tree, sizeof(c->tree), "%s/workspace", paths->scratch);
    if (n < 0 || (size_t)n >= sizeof(c->tree))
        return err_set(err, ERR_LIMIT, 0, "the path %s is too long", paths->scratch);
    snprintf(near, sizeof(near), "%s/pinfold", paths->programs);
    snprintf(home, sizeof(home), "%s/home", paths->scratch);
    snprintf(c->rules, sizeof(c->rules), "%s/rules", paths->scratch);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", target->port);
    if (realpath(near, c->program) == NULL)
        return err_sys(err, "find %s", near);
    if (mkdir(home, 0700) < 0 || mkdir(c->tree, 0755) < 0)
        return err_sys(err, "make %s", c->tree);
    unsetenv("XDG_STATE_HOME");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("PINFOLD_SANDBOX");
    if (setenv("HOME", home, 1) < 0 || setenv("PINFOLD_URL", url, 1) < 0 ||
        setenv("PINFOLD_TOKEN", target->token, 1) < 0)
        return err_sys(err, "set the environment");
    return bench_client_write(c->rules, BENCH_CLIENT_RULES, err);
}

static int bench_client_lap(char *const argv[], const char *dir, struct bench_series *times,
                            struct err *err) {
    uint64_t start = clock_mono_ns();
    if (bench_child_run(argv, dir, err) < 0)
        return -1;
    return times == NULL ? 0 : bench_series_add(times, clock_mono_ns() - start, err);
}

int bench_client_run(const struct bench_paths *paths, const struct bench_target *target,
                     unsigned laps, struct bench_client_result *r, struct err *err) {
    struct bench_client c;
    bool has_git = access(BENCH_CLIENT_GIT, X_OK) == 0;
    if (bench_client_open(&c, paths, target, err) < 0 || bench_client_tree(&c, err) < 0 ||
        (has_git && bench_client_git(&c, err) < 0))
        return -1;
    char *exec[] = {c.program, "exec", "--rules", c.rules, "--", "true", NULL};
    char *git[] = {BENCH_CLIENT_GIT, "status", NULL};
    bench_service_pause(BENCH_CLIENT_REST_MS);
    /* The first one sends everything and the second knows it; the same for git's index. */
    for (unsigned lap = 0; lap < laps + 2; lap++)
        if (bench_client_lap(exec, c.tree, lap < 2 ? NULL : &r->exec, err) < 0 ||
            (has_git && bench_client_lap(git, c.tree, lap < 2 ? NULL : &r->git, err) < 0))
            return -1;
    return 0;
}
