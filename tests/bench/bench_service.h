/* A server and a runner of the benchmark's own, on a state directory of their own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "bench_http.h"
#include "err.h"

struct bench_paths {
    const char *programs; /* directory of pinfold-server and pinfold-runner */
    const char *policies; /* directory, owned by root */
    const char *scratch;  /* existing directory for state and logs */
    const char *user;     /* that the server becomes */
};

struct bench_service {
    pid_t runner, server; /* 0 = not running */
    char state[512], log[512];
    struct bench_target target;
};

/* Options of the runner and of the server, NULL = its default. */
struct bench_service_size {
    const char *warm;      /* --warm */
    const char *sandboxes; /* --sandboxes */
    const char *shards;    /* --shards */
    const char *results;   /* --keep-results */
};

/* Starts both and waits until /readyz says yes. `name` becomes a directory of paths->scratch;
 * `size` NULL = all defaults. On failure both are stopped again and `err` ends with the last line
 * of their log. */
int bench_service_start(struct bench_service *s, const struct bench_paths *paths, const char *name,
                        const struct bench_service_size *size, struct err *err);
/* Asks both to stop, insists after a while. Idempotent; accepts a zeroed struct. */
void bench_service_stop(struct bench_service *s);

/* Waits (a few seconds at most) until the number of jails that the runner holds is at rest. */
int bench_service_settle(const struct bench_service *s, size_t *jails, struct err *err);

/* Sleeps; for the asynchronous clean-up of what was measured last. */
void bench_service_pause(unsigned ms);

/* Waits for a child at most `ms`, then kills it and waits on. */
void bench_service_reap(pid_t pid, unsigned ms);
