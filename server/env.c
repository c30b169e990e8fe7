#include "env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"
#include "wire.h"

/* Nothing asks questions, nothing pages, nothing buffers, the same result everywhere. */
static const char *const env_fixed[] = {
    "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "USER=user",
    "LOGNAME=user",
    "LANG=C.UTF-8",
    "TZ=UTC",
    "TERM=dumb",
    "CI=1",
    "PAGER=cat",
    "GIT_PAGER=cat",
    "GIT_EDITOR=true",
    "EDITOR=true",
    "DEBIAN_FRONTEND=noninteractive",
    "PYTHONUNBUFFERED=1",
    "PIP_NO_INPUT=1",
    "GIT_TERMINAL_PROMPT=0",
};
#define ENV_FIXED (sizeof(env_fixed) / sizeof(env_fixed[0]))
#define ENV_MADE 7

/* Finds a name that is there already: open addressing over the list's indices. */
struct env_table {
    uint32_t *slots; /* index + 1 */
    size_t mask;
};

static size_t env_name_len(const char *item) {
    return strcspn(item, "=");
}

static void env_put(struct env_list *list, struct env_table *table, const char *item) {
    size_t len = env_name_len(item);
    size_t at = str_hash(item, len) & table->mask;
    while (table->slots[at] != 0) {
        const char **have = &list->items[table->slots[at] - 1];
        if (env_name_len(*have) == len && memcmp(*have, item, len) == 0) {
            *have = item;
            return;
        }
        at = (at + 1) & table->mask;
    }
    list->items[list->count++] = item;
    table->slots[at] = (uint32_t)list->count;
}

static void env_put_made(struct env_list *list, struct env_table *table,
                         const struct limits *limits, uint32_t writable) {
    static const char *const names[2] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    uint64_t threads = (limits->v[LIMIT_CPUS_MILLI] + 999) / 1000;
    env_put(list, table, writable & WIRE_WRITABLE_HOME ? "HOME=/home/user" : "HOME=/workspace");
    env_put(list, table, writable & WIRE_WRITABLE_TMP ? "TMPDIR=/tmp" : "TMPDIR=/workspace");
    for (int i = 0; i < 2; i++) {
        snprintf(list->threads[i], ENV_MADE_SIZE, "%s=%" PRIu64, names[i], threads);
        env_put(list, table, list->threads[i]);
    }
    /* A JVM looks for its memory in files that are not visible inside. */
    snprintf(list->java, ENV_MADE_SIZE,
             "JDK_JAVA_OPTIONS=-XX:MaxRAM=%" PRIu64 " -XX:MaxRAMPercentage=50",
             limits->v[LIMIT_MEM_BYTES]);
    env_put(list, table, list->java);
}

/* How tracing crosses into a process: the names that OpenTelemetry's tools look for. */
static void env_put_trace(struct env_list *list, struct env_table *table,
                          const struct env_trace *trace) {
    static const char name[] = "TRACEPARENT=";
    if (trace->trace == NULL || !trace_is_set(trace->trace))
        return;
    memcpy(list->traceparent, name, sizeof(name) - 1);
    trace_header(trace->trace, list->traceparent + sizeof(name) - 1);
    env_put(list, table, list->traceparent);
    if (trace->state != NULL)
        env_put(list, table, trace->state);
}

int env_compose(const struct limits *limits, uint32_t writable, const struct env_trace *trace,
                const struct request_env *run, const struct request_env *step, struct env_list *out,
                struct err *err) {
    size_t most = ENV_FIXED + ENV_MADE + run->count + step->count;
    struct env_table table = {.mask = 64 - 1};
    while (table.mask + 1 < most * 2)
        table.mask = table.mask * 2 + 1;
    memset(out, 0, sizeof(*out));
    out->items = malloc(most * sizeof(*out->items));
    table.slots = calloc(table.mask + 1, sizeof(*table.slots));
    if (out->items == NULL || table.slots == NULL) {
        free(table.slots);
        env_done(out);
        return err_set(err, ERR_SYSTEM, ENOMEM, "composing an environment: out of memory");
    }
    for (size_t i = 0; i < ENV_FIXED; i++)
        env_put(out, &table, env_fixed[i]);
    env_put_made(out, &table, limits, writable);
    if (trace != NULL)
        env_put_trace(out, &table, trace);
    for (size_t i = 0; i < run->count; i++)
        env_put(out, &table, run->items[i]);
    for (size_t i = 0; i < step->count; i++)
        env_put(out, &table, step->items[i]);
    free(table.slots);
    return 0;
}

void env_done(struct env_list *list) {
    free(list->items);
    list->items = NULL;
    list->count = 0;
}
