#include "bench_fair.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "str.h"

#define BENCH_FAIR_RUNS (BENCH_FAIR_USERS * BENCH_FAIR_EACH)
#define BENCH_FAIR_BLOCK_S 6 /* how long the slots are taken while the runs are handed in */
#define BENCH_FAIR_PATIENCE_MS 120000u
#define BENCH_FAIR_ID_SIZE 64
/* Answers of /healthz between two looks whether somebody still waits. */
#define BENCH_FAIR_PROBES 64u

struct bench_fair_start {
    uint64_t ms; /* since the epoch */
    unsigned user;
};

struct bench_fair {
    const struct bench_service *service;
    int fd;
    struct buf request, in;
    struct bench_target user[BENCH_FAIR_USERS];
    char id[BENCH_FAIR_RUNS][BENCH_FAIR_ID_SIZE];
    struct bench_fair_start start[BENCH_FAIR_RUNS];
};

void bench_fair_result_done(struct bench_fair_result *r) {
    bench_series_done(&r->healthz);
}

/* Lines of the list that `pinfold-server init` makes, which the server reads again at once. */
static int bench_fair_make_users(struct bench_fair *f, struct err *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    char path[600];
    snprintf(path, sizeof(path), "%s/server/tokens", f->service->state);
    FILE *list = fopen(path, "ae");
    if (list == NULL)
        return err_sys(err, "open %s", path);
    for (unsigned u = 0; u < BENCH_FAIR_USERS; u++) {
        struct bench_target *t = &f->user[u];
        unsigned char hash[crypto_hash_sha256_BYTES];
        char hex[2 * sizeof(hash) + 1];
        t->port = f->service->target.port;
        memcpy(t->token, "pf_", 3);
        for (size_t i = 3; i < 55; i++)
            t->token[i] = letters[randombytes_uniform(32)];
        t->token[55] = '\0';
        crypto_hash_sha256(hash, (const unsigned char *)t->token, 55);
        sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
        fprintf(list, "%s bench-%u user\n", hex, u);
    }
    return fclose(list) == 0 ? 0 : err_sys(err, "write %s", path);
}

/* One exchange; -> its JSON, or NULL. */
static json_t *bench_fair_call(struct bench_fair *f, const struct bench_target *target,
                               const char *path, const char *body, unsigned *status,
                               struct err *err) {
    struct bench_answer answer;
    buf_clear(&f->request);
    if (bench_http_request(&f->request, target, path, body, err) < 0 ||
        bench_http_call(f->fd, &f->request, &f->in, &answer, err) < 0)
        return NULL;
    *status = answer.status;
    json_t *root = json_loadb(answer.body, answer.body_len, 0, NULL);
    if (root == NULL)
        err_set(err, ERR_PROTOCOL, 0, "%s answered %u without JSON", path, answer.status);
    return root;
}

/* -> status, or 0 on failure; *value: the integer at a.b (b may be NULL). */
static unsigned bench_fair_get(struct bench_fair *f, const struct bench_target *target,
                               const char *path, const char *a, const char *b, json_int_t *value,
                               struct err *err) {
    unsigned status = 0;
    json_t *root = bench_fair_call(f, target, path, NULL, &status, err);
    const json_t *at = json_object_get(root, a);
    at = b != NULL ? json_object_get(at, b) : at;
    *value = json_integer_value(at);
    json_decref(root);
    return root != NULL ? status : 0;
}

static int bench_fair_wait_users(struct bench_fair *f, struct err *err) {
    json_int_t value;
    for (int i = 0; i < 500; i++) {
        unsigned status = bench_fair_get(f, &f->user[BENCH_FAIR_USERS - 1], "/v1/me", "queue",
                                         "waiting", &value, err);
        if (status == 200 || status == 0)
            return status == 200 ? 0 : -1;
        bench_service_pause(10);
    }
    return err_set(err, ERR_STATE, 0, "the server did not hear of new users");
}

static int bench_fair_submit(struct bench_fair *f, const struct bench_target *target,
                             const char *body, char id[BENCH_FAIR_ID_SIZE], struct err *err) {
    unsigned status = 0;
    json_t *root = bench_fair_call(f, target, "/v1/runs", body, &status, err);
    const char *text = json_string_value(json_object_get(root, "id"));
    bool well = status == 202 && text != NULL && str_copy(id, BENCH_FAIR_ID_SIZE, text);
    json_decref(root);
    if (!well && root != NULL)
        err_set(err, ERR_STATE, 0, "a run was answered with %u", status);
    return well ? 0 : -1;
}

static int bench_fair_submit_all(struct bench_fair *f, struct err *err) {
    char body[96], id[BENCH_FAIR_ID_SIZE];
    json_int_t slots;
    if (bench_fair_get(f, &f->service->target, "/v1/capabilities", "slots", NULL, &slots, err) == 0)
        return -1;
    snprintf(body, sizeof(body), "{\"argv\":[\"sleep\",\"%d\"],\"wait\":false}",
             BENCH_FAIR_BLOCK_S);
    for (json_int_t i = 0; i < slots; i++)
        if (bench_fair_submit(f, &f->service->target, body, id, err) < 0)
            return -1;
    for (unsigned i = 0; i < BENCH_FAIR_RUNS; i++)
        if (bench_fair_submit(f, &f->user[i / BENCH_FAIR_EACH],
                              "{\"argv\":[\"true\"],\"wait\":false}", f->id[i], err) < 0)
            return -1;
    return 0;
}

/* Asks whether the server is alive, as long as somebody waits. */
static int bench_fair_probe(struct bench_fair *f, struct bench_fair_result *r, struct err *err) {
    struct buf request;
    struct bench_answer answer;
    json_int_t users = BENCH_FAIR_USERS, running = 0;
    uint64_t end = clock_mono_ms() + BENCH_FAIR_PATIENCE_MS;
    buf_init(&request, 4096);
    int rc = bench_http_request(&request, &f->service->target, "/healthz", NULL, err);
    while (rc == 0 && users > 0) {
        /* While the slots are taken there is nothing to be late for. */
        bool begun = bench_fair_get(f, &f->service->target, "/v1/me", "queue", "running", &running,
                                    err) == 200 &&
                     running == 0;
        for (unsigned i = 0; begun && rc == 0 && i < BENCH_FAIR_PROBES; i++) {
            uint64_t start = clock_mono_ns();
            rc = bench_http_call(f->fd, &request, &f->in, &answer, err);
            if (rc == 0)
                rc = bench_series_add(&r->healthz, clock_mono_ns() - start, err);
            bench_service_pause(1);
        }
        if (rc == 0 && bench_fair_get(f, &f->service->target, "/v1/me", "queue", "users_waiting",
                                      &users, err) == 0)
            rc = -1;
        if (rc == 0 && clock_mono_ms() > end)
            rc = err_set(err, ERR_STATE, 0, "the runs did not end in time");
    }
    buf_done(&request);
    return rc;
}

static int bench_fair_order(const void *a, const void *b) {
    const struct bench_fair_start *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* In the middle of the round in which half of the runs have started: at the end of a round the
 * first of the next one are on their way together with the last of this one, and the clock that the
 * starts are known by counts milliseconds. */
static void bench_fair_count(const struct bench_fair *f, struct bench_fair_result *r) {
    unsigned started[BENCH_FAIR_USERS] = {0};
    for (unsigned i = 0; i < BENCH_FAIR_RUNS / 2 + BENCH_FAIR_USERS / 2; i++)
        started[f->start[i].user]++;
    r->most = r->fewest = started[0];
    for (unsigned u = 1; u < BENCH_FAIR_USERS; u++) {
        r->most = started[u] > r->most ? started[u] : r->most;
        r->fewest = started[u] < r->fewest ? started[u] : r->fewest;
    }
}

/* At no moment may anybody be ahead of anybody by more than one run, and one that is on its way. */
static void bench_fair_spread(const struct bench_fair *f, struct bench_fair_result *r) {
    unsigned started[BENCH_FAIR_USERS] = {0}, with[BENCH_FAIR_EACH + 2] = {BENCH_FAIR_USERS};
    unsigned fewest = 0, most = 0;
    for (unsigned i = 0; i < BENCH_FAIR_RUNS; i++) {
        unsigned n = ++started[f->start[i].user];
        with[n - 1]--;
        with[n]++;
        most = n > most ? n : most;
        while (with[fewest] == 0)
            fewest++;
        r->ahead = most - fewest > r->ahead ? most - fewest : r->ahead;
    }
}

static int bench_fair_judge(struct bench_fair *f, struct bench_fair_result *r, struct err *err) {
    char path[BENCH_FAIR_ID_SIZE + 16];
    for (unsigned i = 0; i < BENCH_FAIR_RUNS; i++) {
        const struct bench_target *user = &f->user[i / BENCH_FAIR_EACH];
        json_int_t created, waited;
        snprintf(path, sizeof(path), "/v1/runs/%s", f->id[i]);
        if (bench_fair_get(f, user, path, "created_at", NULL, &created, err) != 200 ||
            bench_fair_get(f, user, path, "timing", "queue_ms", &waited, err) != 200)
            return err->kind != ERR_NONE ? -1 : err_set(err, ERR_STATE, 0, "a run is not there");
        f->start[i] = (struct bench_fair_start){.ms = (uint64_t)(created + waited),
                                                .user = i / BENCH_FAIR_EACH};
    }
    qsort(f->start, BENCH_FAIR_RUNS, sizeof(f->start[0]), bench_fair_order);
    bench_fair_count(f, r);
    r->runs = BENCH_FAIR_RUNS;
    r->elapsed_ns = (f->start[BENCH_FAIR_RUNS - 1].ms - f->start[0].ms) * CLOCK_NS_PER_MS;
    bench_fair_spread(f, r);
    return 0;
}

int bench_fair_run(const struct bench_service *s, struct bench_fair_result *result,
                   struct err *err) {
    struct bench_fair *f = calloc(1, sizeof(*f));
    if (f == NULL || sodium_init() < 0) {
        free(f);
        return err_set(err, ERR_SYSTEM, ENOMEM, "room for %u users", BENCH_FAIR_USERS);
    }
    f->service = s;
    buf_init(&f->request, 65536);
    buf_init(&f->in, BENCH_HTTP_ANSWER_MAX);
    f->fd = bench_http_connect(s->target.port, err);
    int rc = f->fd < 0 ? -1 : bench_fair_make_users(f, err);
    if (rc == 0)
        rc = bench_fair_wait_users(f, err);
    if (rc == 0)
        rc = bench_fair_submit_all(f, err);
    if (rc == 0)
        rc = bench_fair_probe(f, result, err);
    if (rc == 0)
        rc = bench_fair_judge(f, result, err);
    fd_close(&f->fd);
    buf_done(&f->request);
    buf_done(&f->in);
    free(f);
    return rc < 0 ? err_wrap(err, "%u users at once", BENCH_FAIR_USERS) : 0;
}
