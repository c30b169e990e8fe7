#include "quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "accounts.h"
#include "clock.h"
#include "log.h"
#include "loop.h"
#include "store_usage.h"

#define QUOTA_FLUSH_MS 1000u
#define QUOTA_DAY_MS ((uint64_t)24 * 3600 * 1000)
#define QUOTA_NS_PER_MS 1000000u
/* Quotas of the moment: something ends, or is deleted, at any time. */
#define QUOTA_RETRY_S 2u
#define QUOTA_RETRY_STORED_S 5u

struct quota {
    struct loop *loop;
    struct log *log;
    struct store *store;
    struct accounts *accounts;
    struct quota_limits defaults;
    void (*freed)(void *arg, const char *user, struct accounts_token *token);
    void *arg;
    struct quota_use *dirty;
    struct loop_timer flush;
    uint64_t output_bytes;
    uint32_t trimmed; /* the day on which days that are too long ago were last forgotten */
};

static const char *const quota_names[QUOTA_COUNT] = {
    [QUOTA_RUNS] = "runs",
    [QUOTA_PARALLEL] = "parallel_runs",
    [QUOTA_SANDBOXES] = "sandboxes",
    [QUOTA_MEM_BYTES] = "mem_bytes",
    [QUOTA_DISK_BYTES] = "disk_bytes",
    [QUOTA_CPU_MS_PER_DAY] = "cpu_ms_per_day",
    [QUOTA_RESULT_BYTES] = "result_bytes",
    [QUOTA_SNAPSHOT_BYTES] = "snapshot_bytes",
};

const char *quota_name(enum quota_kind kind) {
    return quota_names[kind];
}

/* Levels: the token, those above it, the user. */

struct quota_level {
    struct accounts_user *user;
    struct accounts_token *token; /* NULL = the user's */
};

static bool quota_first(const struct quota_held *h, struct quota_level *at) {
    *at = (struct quota_level){.user = h->user, .token = h->token};
    return h->user != NULL;
}

static bool quota_next(struct quota_level *at) {
    if (at->token == NULL)
        return false;
    at->token = at->token->parent;
    return true;
}

static struct quota_use *quota_use_of(const struct quota_level *at) {
    return at->token != NULL ? &at->token->use : &at->user->use;
}

uint64_t quota_limit_of_user(const struct quota *q, const struct accounts_user *user,
                             enum quota_kind kind) {
    uint64_t limit = user->quota.v[kind];
    if (limit == QUOTA_NONE)
        return QUOTA_UNLIMITED;
    return limit == QUOTA_UNLIMITED && q != NULL ? q->defaults.v[kind] : limit;
}

static uint64_t quota_limit_of_token(const struct accounts_token *token, enum quota_kind kind) {
    uint64_t limit = token->quota.v[kind];
    return limit == QUOTA_NONE ? QUOTA_UNLIMITED : limit;
}

static uint64_t quota_limit_at(const struct quota *q, const struct quota_level *at,
                               enum quota_kind kind) {
    return at->token != NULL ? quota_limit_of_token(at->token, kind)
                             : quota_limit_of_user(q, at->user, kind);
}

/* Days. */

static uint32_t quota_today(void) {
    return (uint32_t)(clock_real_ms() / QUOTA_DAY_MS);
}

static void quota_turn_day(struct quota_use *use) {
    uint32_t today = quota_today();
    if (use->day == today)
        return;
    use->day = today;
    use->cpu_ns = 0;
    use->day_runs = 0;
    use->v[QUOTA_CPU_MS_PER_DAY] = 0;
}

uint64_t quota_used(const struct quota_use *use, enum quota_kind kind) {
    return kind == QUOTA_CPU_MS_PER_DAY && use->day != quota_today() ? 0 : use->v[kind];
}

uint64_t quota_runs_today(const struct quota_use *use) {
    return use->day != quota_today() ? 0 : use->day_runs;
}

static unsigned quota_until_midnight_s(void) {
    return (unsigned)((QUOTA_DAY_MS - clock_real_ms() % QUOTA_DAY_MS) / 1000 + 1);
}

/* Writing. */

static int quota_write_one(struct quota *q, struct quota_use *use, struct err *err) {
    const struct accounts_token *t = use->token;
    struct store_usage row = {.user = use->user->name,
                              .token = t != NULL ? t->id : "",
                              .day = use->day,
                              .cpu_ms = use->v[QUOTA_CPU_MS_PER_DAY],
                              .runs = use->day_runs};
    return store_usage_put(q->store, &row, err);
}

static void quota_trim(struct quota *q) {
    struct err err;
    uint32_t today = quota_today();
    if (q->store == NULL || q->trimmed == today || store_sick(q->store) != NULL)
        return;
    err_clear(&err);
    q->trimmed = today;
    if (store_usage_trim(q->store, today, &err) < 0)
        log_err(q->log, LOG_ERROR, "usage_not_trimmed", &err);
}

/* What cannot be written now (a full disk) is written with the next use. */
static void quota_write(void *arg) {
    struct quota *q = arg;
    struct err err;
    err_clear(&err);
    quota_trim(q);
    while (q->dirty != NULL) {
        struct quota_use *use = q->dirty;
        struct accounts_user *user = use->user;
        struct accounts_token *token = use->token;
        if (q->store != NULL && store_sick(q->store) == NULL && quota_write_one(q, use, &err) < 0)
            log_err(q->log, LOG_ERROR, "usage_not_written", &err);
        q->dirty = use->next;
        use->next = NULL;
        use->user = NULL;
        use->token = NULL;
        use->dirty = false;
        accounts_token_unref(token);
        accounts_user_unref(user);
    }
}

/* True: a limit stands on what outlasts the server, so it must be written in this round. */
static bool quota_soil(struct quota *q, const struct quota_level *at, struct quota_use *use) {
    if (!use->dirty) {
        use->dirty = true;
        use->user = accounts_user_ref(at->user);
        use->token = accounts_token_ref(at->token);
        use->next = q->dirty;
        q->dirty = use;
    }
    return quota_limit_at(q, at, QUOTA_CPU_MS_PER_DAY) != QUOTA_UNLIMITED;
}

static void quota_written_soon(struct quota *q, bool now) {
    if (now || q->loop == NULL)
        quota_write(q);
    else if (q->dirty != NULL && q->flush.slot == 0)
        loop_timer_at(q->loop, &q->flush, clock_mono_ns() + QUOTA_FLUSH_MS * CLOCK_NS_PER_MS,
                      quota_write, q, NULL);
}

/* Birth and death. */

static void quota_read_one(void *arg, const struct store_usage *row) {
    struct quota *q = arg;
    struct accounts_user *user = accounts_user_find(q->accounts, row->user);
    struct accounts_token *token =
        row->token[0] != '\0' ? accounts_token_find(q->accounts, row->token) : NULL;
    struct quota_use *use = row->token[0] == '\0' && user != NULL ? &user->use
                            : token != NULL                       ? &token->use
                                                                  : NULL;
    if (use == NULL)
        return;
    use->day = row->day;
    use->v[QUOTA_CPU_MS_PER_DAY] = row->cpu_ms;
    use->day_runs = row->runs;
}

struct quota *quota_new(const struct quota_options *options, struct err *err) {
    struct quota *q = calloc(1, sizeof(*q));
    if (q == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "counting quotas: out of memory");
        return NULL;
    }
    q->loop = options->loop;
    q->log = options->log;
    q->store = options->store;
    q->accounts = options->accounts;
    q->defaults = options->defaults;
    q->output_bytes =
        options->output_bytes > QUOTA_OUTPUT_LEAST ? options->output_bytes : QUOTA_OUTPUT_LEAST;
    if (q->store != NULL && store_usage_read(q->store, quota_today(), quota_read_one, q, err) < 0) {
        free(q);
        return NULL;
    }
    return q;
}

void quota_free(struct quota *q) {
    if (q == NULL)
        return;
    if (q->loop != NULL)
        loop_timer_stop(q->loop, &q->flush);
    quota_write(q);
    free(q);
}

void quota_watch(struct quota *q,
                 void (*fn)(void *arg, const char *user, struct accounts_token *token), void *arg) {
    q->freed = fn;
    q->arg = arg;
}

/* Charging. */

void quota_hold(struct quota *q, struct quota_held *h, struct accounts_token *token,
                const char *user) {
    if (q == NULL)
        return;
    h->token = accounts_token_ref(token);
    h->user =
        accounts_user_ref(token != NULL ? token->user : accounts_user_find(q->accounts, user));
}

void quota_hold_id(struct quota *q, struct quota_held *h, const char *token, const char *user) {
    if (q != NULL)
        quota_hold(q, h, token[0] != '\0' ? accounts_token_find(q->accounts, token) : NULL, user);
}

static void quota_move(const struct quota_held *h, enum quota_kind kind, uint64_t amount,
                       bool take) {
    struct quota_level at;
    for (bool more = quota_first(h, &at); more; more = quota_next(&at)) {
        struct quota_use *use = quota_use_of(&at);
        uint64_t *box = kind == QUOTA_MEM_BYTES    ? &use->box_mem_bytes
                        : kind == QUOTA_DISK_BYTES ? &use->box_disk_bytes
                                                   : NULL;
        use->v[kind] = take ? use->v[kind] + amount : use->v[kind] - amount;
        if (h->box && box != NULL)
            *box = take ? *box + amount : *box - amount;
    }
}

void quota_take(struct quota *q, struct quota_held *h, enum quota_kind kind, uint64_t amount) {
    if (q == NULL || h->user == NULL)
        return;
    h->v[kind] += amount;
    quota_move(h, kind, amount, true);
}

void quota_give(struct quota *q, struct quota_held *h, enum quota_kind kind) {
    if (q == NULL || h->user == NULL || h->v[kind] == 0)
        return;
    quota_move(h, kind, h->v[kind], false);
    h->v[kind] = 0;
    if (q->freed != NULL &&
        (kind == QUOTA_PARALLEL || kind == QUOTA_MEM_BYTES || kind == QUOTA_DISK_BYTES))
        q->freed(q->arg, h->user->name, h->token);
}

void quota_take_output(struct quota *q, struct quota_held *h) {
    if (q == NULL || h->user == NULL || h->output_taken)
        return;
    h->output_taken = true;
    h->user->use.output_bytes += h->output_bytes;
}

void quota_let_go(struct quota *q, struct quota_held *h) {
    if (q == NULL || h->user == NULL)
        return;
    if (h->output_taken) {
        h->output_taken = false;
        h->user->use.output_bytes -= h->output_bytes;
        if (q->freed != NULL)
            q->freed(q->arg, h->user->name, h->token);
    }
    for (unsigned kind = 0; kind < QUOTA_COUNT; kind++)
        quota_give(q, h, kind);
    accounts_token_unref(h->token);
    accounts_user_unref(h->user);
    h->token = NULL;
    h->user = NULL;
}

void quota_take_run(struct quota *q, struct quota_held *h) {
    struct quota_level at;
    bool now = false;
    if (q == NULL)
        return;
    quota_take(q, h, QUOTA_RUNS, 1);
    for (bool more = quota_first(h, &at); more; more = quota_next(&at)) {
        struct quota_use *use = quota_use_of(&at);
        quota_turn_day(use);
        use->day_runs++;
        now = quota_soil(q, &at, use) || now;
    }
    quota_written_soon(q, now);
}

void quota_spent(struct quota *q, struct accounts_user *user, struct accounts_token *token,
                 uint64_t cpu_ns) {
    struct quota_held h = {.user = user, .token = token};
    struct quota_level at;
    bool now = false;
    if (q == NULL || cpu_ns == 0)
        return;
    for (bool more = quota_first(&h, &at); more; more = quota_next(&at)) {
        struct quota_use *use = quota_use_of(&at);
        quota_turn_day(use);
        uint64_t ns = use->cpu_ns + cpu_ns;
        use->cpu_ns = (uint32_t)(ns % QUOTA_NS_PER_MS);
        use->v[QUOTA_CPU_MS_PER_DAY] += ns / QUOTA_NS_PER_MS;
        now = quota_soil(q, &at, use) || now;
    }
    quota_written_soon(q, now);
}

void quota_unspent(struct quota *q, const char *user, struct accounts_token *token,
                   uint64_t cpu_ns) {
    struct quota_held h = {.user = q != NULL ? accounts_user_find(q->accounts, user) : NULL,
                           .token = token};
    struct quota_level at;
    uint64_t ms = cpu_ns / QUOTA_NS_PER_MS;
    bool now = false;
    if (h.user == NULL || ms == 0)
        return;
    for (bool more = quota_first(&h, &at); more; more = quota_next(&at)) {
        struct quota_use *use = quota_use_of(&at);
        uint64_t *used = &use->v[QUOTA_CPU_MS_PER_DAY];
        quota_turn_day(use);
        *used -= ms < *used ? ms : *used;
        now = quota_soil(q, &at, use) || now;
    }
    quota_written_soon(q, now);
}

void quota_add_user(struct quota *q, const char *name, enum quota_kind kind, int64_t delta) {
    struct accounts_user *user = q != NULL ? accounts_user_find(q->accounts, name) : NULL;
    if (user == NULL)
        return;
    uint64_t less = delta < 0 ? (uint64_t)-delta : 0;
    if (delta >= 0)
        user->use.v[kind] += (uint64_t)delta;
    else
        user->use.v[kind] -= less < user->use.v[kind] ? less : user->use.v[kind];
}

/* Asking. */

static bool quota_fits(const struct quota *q, const struct quota_level *at, enum quota_kind kind,
                       uint64_t used, uint64_t amount) {
    uint64_t limit = quota_limit_at(q, at, kind);
    return limit == QUOTA_UNLIMITED || (amount <= limit && used <= limit - amount);
}

static int quota_refuse(const struct quota *q, const struct quota_level *at, enum quota_kind kind,
                        uint64_t used, uint64_t amount, struct api_error *error) {
    const char *whose = at->token == NULL ? "Your" : "The token's";
    uint64_t limit = quota_limit_at(q, at, kind);
    if (kind == QUOTA_CPU_MS_PER_DAY)
        api_error_set(error, 429, "quota", NULL,
                      "%s quota %s is used up: %" PRIu64 " of %" PRIu64
                      " ms of CPU time were used since midnight UTC.",
                      whose, quota_name(kind), used, limit);
    else if (kind == QUOTA_RESULT_BYTES || kind == QUOTA_SNAPSHOT_BYTES)
        api_error_set(error, 429, "quota", NULL,
                      "%s quota %s is used up: %" PRIu64 " of %" PRIu64 " are stored.", whose,
                      quota_name(kind), used, limit);
    else
        api_error_set(error, 429, "quota", NULL,
                      "%s quota %s has no room for %" PRIu64 " more: %" PRIu64 " of %" PRIu64
                      " are in use.",
                      whose, quota_name(kind), amount, used, limit);
    api_error_quota(error, quota_name(kind),
                    kind == QUOTA_CPU_MS_PER_DAY ? quota_until_midnight_s()
                    : kind == QUOTA_RESULT_BYTES || kind == QUOTA_SNAPSHOT_BYTES
                        ? QUOTA_RETRY_STORED_S
                        : QUOTA_RETRY_S);
    return -1;
}

static int quota_check(const struct quota *q, const struct quota_level *at, enum quota_kind kind,
                       uint64_t amount, struct api_error *error) {
    uint64_t used = quota_used(quota_use_of(at), kind);
    return quota_fits(q, at, kind, used, amount) ? 0
                                                 : quota_refuse(q, at, kind, used, amount, error);
}

/* Memory or disk of a run, against the whole and what sandboxes hold: the rest comes back soon. */
static int quota_check_lasting(const struct quota *q, const struct quota_level *at,
                               enum quota_kind kind, uint64_t amount, struct api_error *error) {
    const struct quota_use *use = quota_use_of(at);
    uint64_t used = kind == QUOTA_MEM_BYTES ? use->box_mem_bytes : use->box_disk_bytes;
    return quota_fits(q, at, kind, used, amount) ? 0
                                                 : quota_refuse(q, at, kind, used, amount, error);
}

int quota_may_run(struct quota *q, const struct quota_held *h, uint64_t mem_bytes,
                  uint64_t disk_bytes, struct api_error *error) {
    struct quota_level at;
    if (q == NULL)
        return 0;
    for (bool more = quota_first(h, &at); more; more = quota_next(&at))
        if (quota_check(q, &at, QUOTA_RUNS, 1, error) < 0 ||
            quota_check(q, &at, QUOTA_CPU_MS_PER_DAY, 1, error) < 0 ||
            quota_check(q, &at, QUOTA_RESULT_BYTES, 1, error) < 0 ||
            (quota_limit_at(q, &at, QUOTA_PARALLEL) == 0 &&
             quota_check(q, &at, QUOTA_PARALLEL, 1, error) < 0) ||
            quota_check_lasting(q, &at, QUOTA_MEM_BYTES, mem_bytes, error) < 0 ||
            quota_check_lasting(q, &at, QUOTA_DISK_BYTES, disk_bytes, error) < 0)
            return -1;
    return 0;
}

int quota_may_exec(struct quota *q, const struct quota_held *h, struct api_error *error) {
    struct quota_level at;
    if (q == NULL)
        return 0;
    for (bool more = quota_first(h, &at); more; more = quota_next(&at))
        if (quota_check(q, &at, QUOTA_CPU_MS_PER_DAY, 1, error) < 0)
            return -1;
    return 0;
}

int quota_may_sandbox(struct quota *q, const struct quota_held *h, uint64_t count,
                      uint64_t mem_bytes, uint64_t disk_bytes, struct api_error *error) {
    struct quota_level at;
    if (q == NULL)
        return 0;
    for (bool more = quota_first(h, &at); more; more = quota_next(&at))
        if (quota_check(q, &at, QUOTA_SANDBOXES, count, error) < 0 ||
            quota_check(q, &at, QUOTA_MEM_BYTES, count * mem_bytes, error) < 0 ||
            quota_check(q, &at, QUOTA_DISK_BYTES, count * disk_bytes, error) < 0)
            return -1;
    return 0;
}

int quota_may_snapshot(struct quota *q, const struct quota_held *h, struct api_error *error) {
    struct quota_level at;
    if (q == NULL)
        return 0;
    for (bool more = quota_first(h, &at); more; more = quota_next(&at))
        if (quota_check(q, &at, QUOTA_SNAPSHOT_BYTES, 1, error) < 0)
            return -1;
    return 0;
}

static bool quota_fits_output(const struct quota *q, const struct quota_use *use, uint64_t bytes) {
    return use->output_bytes == 0 || use->output_bytes + bytes <= q->output_bytes;
}

struct quota_use *quota_in_the_way(struct quota *q, const struct quota_held *h, uint64_t mem_bytes,
                                   uint64_t disk_bytes, struct accounts_token **token) {
    struct quota_level at;
    *token = NULL;
    if (q == NULL)
        return NULL;
    for (bool more = quota_first(h, &at); more; more = quota_next(&at)) {
        struct quota_use *use = quota_use_of(&at);
        if (quota_fits(q, &at, QUOTA_PARALLEL, use->v[QUOTA_PARALLEL], 1) &&
            quota_fits(q, &at, QUOTA_MEM_BYTES, use->v[QUOTA_MEM_BYTES], mem_bytes) &&
            quota_fits(q, &at, QUOTA_DISK_BYTES, use->v[QUOTA_DISK_BYTES], disk_bytes) &&
            (at.token != NULL || quota_fits_output(q, use, h->output_bytes)))
            continue;
        *token = at.token;
        return use;
    }
    return NULL;
}
