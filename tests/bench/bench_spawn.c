#include "bench_spawn.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

static void *bench_spawn_begin(const void *config, struct err *err) {
    char *const *argv = config;
    if (access(argv[0], X_OK) < 0) {
        err_sys(err, "cannot execute %s", argv[0]);
        return NULL;
    }
    return (void *)(uintptr_t)config;
}

static int bench_spawn_once(void *state, struct bench_lap *lap, struct err *err) {
    char *const *argv = state;
    uint64_t start = clock_mono_ns();
    pid_t pid;
    int status = 0;
    int rc = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
    if (rc)
        return err_set(err, ERR_SYSTEM, rc, "spawn %s: %s", argv[0], strerror(rc));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for %s", argv[0]);
    lap->done_ns = clock_mono_ns() - start;
    if (status)
        return err_set(err, ERR_STATE, 0, "%s ended with wait status %#x", argv[0],
                       (unsigned)status);
    return 0;
}

static void bench_spawn_end(void *state) {
    (void)state;
}

struct bench_subject bench_spawn_subject(char *const argv[]) {
    return (struct bench_subject){
        .begin = bench_spawn_begin,
        .once = bench_spawn_once,
        .end = bench_spawn_end,
        .config = argv,
    };
}
