#include "bench_verdicts.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "perm.h"

#define BENCH_VERDICTS_RULES "tests/permission/P0.rules"
#define BENCH_VERDICTS_VECTORS "tests/permission/vectors.tsv"
#define BENCH_VERDICTS_SPAN_NS 500000000u
#define BENCH_VERDICTS_MAX 256u

struct bench_verdicts {
    const char *command[BENCH_VERDICTS_MAX];
    size_t len[BENCH_VERDICTS_MAX];
    size_t count;
};

/* The second field of each line. */
static void bench_verdicts_split(struct bench_verdicts *v, const struct buf *text) {
    const char *p = text->data, *end = text->data + text->len;

    while (p < end && v->count < BENCH_VERDICTS_MAX) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *tab = memchr(p, '\t', (size_t)((nl != NULL ? nl : end) - p));

        if (*p != '#' && tab != NULL) {
            v->command[v->count] = tab + 1;
            v->len[v->count++] = strcspn(tab + 1, "\t\n");
        }
        p = nl != NULL ? nl + 1 : end;
    }
}

static uint64_t bench_verdicts_cpu_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec;
}

static double bench_verdicts_loop(struct perm *perm, const struct bench_verdicts *v) {
    uint64_t start = bench_verdicts_cpu_ns(), took = 0, judged = 0;

    while (took < BENCH_VERDICTS_SPAN_NS) {
        for (size_t i = 0; i < v->count; i++)
            perm_judge(perm, v->command[i], v->len[i]);
        judged += v->count;
        took = bench_verdicts_cpu_ns() - start;
    }
    return (double)judged * 1e9 / (double)took;
}

int bench_verdicts_run(double *per_s, struct err *err) {
    struct bench_verdicts v = {.count = 0};
    struct perm_config config = {.resolve = NULL};
    struct rule_set set = {.count = 0};
    struct perm perm = {.rules = NULL};
    struct buf rules, vectors;
    int rc = -1;

    buf_init(&rules, RULE_FILE_MAX);
    buf_init(&vectors, RULE_FILE_MAX);
    if (fd_read_file(AT_FDCWD, BENCH_VERDICTS_RULES, &rules, err) == 0 &&
        fd_read_file(AT_FDCWD, BENCH_VERDICTS_VECTORS, &vectors, err) == 0 &&
        rule_set_init(&set, "/work/app", "/home/dev", err) == 0 &&
        rule_load(&set, RULE_USER, true, BENCH_VERDICTS_RULES, rules.data, rules.len, err) == 0 &&
        rule_load_default(&set, err) == 0 && perm_init(&perm, &set, &config, err) == 0) {
        bench_verdicts_split(&v, &vectors);
        *per_s = v.count > 0 ? bench_verdicts_loop(&perm, &v) : 0;
        rc = 0;
    }
    perm_done(&perm);
    rule_set_done(&set);
    buf_done(&rules);
    buf_done(&vectors);
    return rc;
}
