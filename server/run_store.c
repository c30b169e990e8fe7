#include "run_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "clock.h"
#include "results.h"
#include "run.h"
#include "run_record.h"
#include "runs.h"
#include "work.h"

#define RUN_STORE_SUMMARY ((size_t)16 * 1024)
/* What waits to be written is, so many at once: about a millisecond's work. */
#define RUN_STORE_AGAIN 16u
#define RUN_STORE_AGAIN_MS 500u
/* What is in the redo log comes into the database after this time, or as soon as it is as much as
 * is written at once; but while something runs, whose end would meet a loop that is busy, it is
 * asked again a little later, for so long. */
#define RUN_STORE_BATCH_MS 40u
#define RUN_STORE_BUSY_MS 2u
#define RUN_STORE_BATCH_MAX_MS 120u
/* Less than the hour after which store_runs_put_input() notes it again, and than the slack with
 * which bodies are dropped. */
#define RUN_STORE_SEEN_MS ((uint64_t)1800 * 1000)
/* Most records are shorter. */
#define RUN_STORE_FIRST 2048u

/* A record in the making. */
struct run_store_job {
    struct work_job job;
    struct run *run; /* pinned */
    int dir;
    struct buf record;
    char file[STORE_RUNS_FILE_SIZE]; /* "" = it is small enough for the database */
    int rc;
    struct err err;
};

static void run_store_saved(struct run *run, int rc, const struct err *err);
static void run_store_again_soon(struct runs *runs, uint64_t ms);

/* What a run is made of has this many bytes, roughly. */
static size_t run_store_weight(const struct run *run) {
    return answer_weight(run) + events_memory(&run->events) / 4 + run->step_count * 64;
}

bool run_store_is_short(const struct run *run) {
    return run_store_weight(run) <= RUN_STORE_INLINE;
}

/* The database. */

static struct run_store_seen *run_store_seen(struct run *run) {
    return &run->runs->seen[run->store.input[0] % RUN_STORE_SEEN];
}

/* Its row, and so its body, is durable. */
static void run_store_note_input(struct run *run) {
    struct run_store_seen *seen = run_store_seen(run);
    if (!run->store.has_input)
        return;
    if (seen->until_ms > clock_mono_ms() &&
        memcmp(seen->hash, run->store.input, sizeof(seen->hash)) == 0)
        return; /* noting it again would put off the hour */
    memcpy(seen->hash, run->store.input, sizeof(seen->hash));
    seen->until_ms = clock_mono_ms() + RUN_STORE_SEEN_MS;
}

bool run_store_is_seen(struct run *run) {
    const struct run_store_seen *seen = run_store_seen(run);
    return seen->until_ms > clock_mono_ms() &&
           memcmp(seen->hash, run->store.input, sizeof(seen->hash)) == 0;
}

static int run_store_write_input(struct run *run, struct err *err) {
    struct run_store *x = &run->store;
    char file[STORE_RUNS_FILE_SIZE];
    if (x->body == NULL && !x->filed)
        return 0;
    if (!x->filed && run_store_is_seen(run))
        return 0;
    results_name(x->input, file);
    struct store_input input = {.file = x->filed ? file : NULL,
                                .hash = x->input,
                                .body = x->body,
                                .len = x->body_len,
                                .now_ms = x->filed ? run->created_ms : clock_real_ms()};
    return store_runs_put_input(run->runs->store, &input, err);
}

static const char *run_store_cause(const struct run *run) {
    const char *cause = NULL;
    for (size_t i = 0; i < run->step_count; i++)
        if (run->steps[i].state == RUN_STEP_DONE)
            cause = cause_name(run->steps[i].end.cause);
    return cause;
}

/* Writes row and record as they are now. */
static int run_store_write(struct run *run, const struct buf *record, const char *file,
                           struct err *err) {
    struct run_store *x = &run->store;
    bool over = run->phase >= RUN_SEAL;
    struct buf summary;
    buf_init(&summary, RUN_STORE_SUMMARY);
    int rc = answer_encode_summary(run, over, &summary, err);
    struct store_run row = {
        .user = run->owner,
        .id = run->id,
        .state = over                       ? STORE_RUN_DONE
                 : run->phase == RUN_QUEUED ? STORE_RUN_QUEUED
                                            : STORE_RUN_RUNNING,
        .seq = x->seq,
        .at_ms = run->created_ms,
        .duration_ms = over && run->ended_ns != 0
                           ? (run->ended_ns - run->created_ns) / CLOCK_NS_PER_MS
                           : UINT64_MAX,
        .bytes = record->len + summary.len + x->file_bytes,
        .summary = summary.data,
        .label = run->label,
        .cause = run_store_cause(run),
        .trace_id = trace_is_set(&run->trace) ? run->trace.id : NULL,
        .trace = &run->trace,
        .trace_len = sizeof(run->trace),
        .input = x->has_input ? x->input : NULL,
        .record = file == NULL ? record->data : NULL,
        .record_len = record->len,
        .file = file,
    };
    if (rc == 0)
        rc = run_store_write_input(run, err);
    if (rc == 0)
        rc = store_runs_put(run->runs->store, &row, err);
    if (rc == 0) {
        x->seq = row.seq;
        x->bytes = row.bytes;
    }
    buf_done(&summary);
    return rc;
}

int run_store_write_now(struct run *run, struct err *err) {
    struct run_store *x = &run->store;
    struct buf record;
    if (x->record != NULL) {
        record = (struct buf){.data = x->record, .len = x->record_len};
        return run_store_write(run, &record, NULL, err);
    }
    buf_init(&record, RUN_RECORD_MAX);
    (void)buf_reserve(&record, RUN_STORE_FIRST, NULL);
    int rc = run_record_write(run, &record, err);
    if (rc == 0)
        rc = run_store_write(run, &record, NULL, err);
    buf_done(&record);
    return rc;
}

/* The request's body. */

void run_store_body(struct run *run, char *body, size_t len) {
    results_hash(body, len, run->store.input);
    run->store.has_input = true;
    run->store.body = body;
    run->store.body_len = len;
}

void run_store_body_filed(struct run *run, const uint8_t hash[STORE_RUNS_HASH_SIZE], size_t len) {
    memcpy(run->store.input, hash, STORE_RUNS_HASH_SIZE);
    run->store.has_input = true;
    run->store.filed = true;
    run->store.body_len = len;
    /* Who sends the same again within the hour is not charged with it again. */
    run->store.file_bytes = run_store_is_seen(run) ? 0 : len;
}

void run_store_body_unfile(struct runs *runs, const uint8_t hash[STORE_RUNS_HASH_SIZE]) {
    char file[STORE_RUNS_FILE_SIZE];
    results_name(hash, file);
    /* A row of another run may name it. */
    if (bodies_let_go(&runs->bodies, file) && store_runs_knows_file(runs->store, file, NULL) == 0)
        bodies_remove(&runs->bodies, runs->work, runs->results, file);
}

static void run_store_drop_body(struct run *run) {
    char file[STORE_RUNS_FILE_SIZE];
    if (run->store.filed) {
        results_name(run->store.input, file);
        (void)bodies_let_go(&run->runs->bodies, file);
    }
    free(run->store.body);
    run->store.body = NULL;
    run->store.filed = false;
}

static void run_store_drop_record(struct run *run) {
    free(run->store.record);
    run->store.record = NULL;
}

/* Before the end. */

static void run_store_told(void *arg, int rc, const struct err *err) {
    struct run *run = arg;
    if (rc == 0) {
        run_store_note_input(run);
        run_store_drop_body(run);
        return;
    }
    /* The caller gets an error instead of the run's name: it must not go on. */
    runs_log(run->runs, run, err);
    run->store.told = false;
    run->store.seq = 0;
    run_cancel(run, CAUSE_INTERRUPTED);
}

int run_store_tell(struct run *run, struct err *err) {
    struct run_store *x = &run->store;
    struct store *s = run->runs->store;
    if (s == NULL)
        return 0;
    x->round = store_round(s);
    if (run_store_write_now(run, err) < 0)
        return -1;
    x->told = true;
    x->row.fn = run_store_told;
    x->row.arg = run;
    store_then(s, &x->row);
    return 0;
}

/* After a kill it must not be begun a second time, so the row has to say that it runs before it
 * does. In the round in which it came it has no row yet that says otherwise. */
int run_store_launch(struct run *run) {
    struct run_store *x = &run->store;
    struct store *s = run->runs->store;
    struct err err;
    err_clear(&err);
    if (s == NULL || !x->told)
        return 0;
    int rc = store_runs_launch(s, run->owner, run->id, &err);
    if (rc == 0 && x->round != store_round(s))
        rc = store_commit_now(s, &err);
    if (rc == 0)
        return 0;
    runs_log(run->runs, run, &err);
    run_store_again_soon(run->runs, RUN_STORE_AGAIN_MS);
    return -1;
}

void run_store_progress(struct run *run) {
    struct err err;
    err_clear(&err);
    if (!run->store.told || run->current == 0 || !run_store_is_short(run))
        return;
    if (run_store_write_now(run, &err) < 0)
        runs_log(run->runs, run, &err);
}

/* The end. */

static void run_store_durable(void *arg, int rc, const struct err *err) {
    run_store_saved(arg, rc, err);
}

/* The record is written into the round's transaction, or was not. */
static void run_store_wait(struct run *run, int rc, const struct err *err) {
    struct run_store *x = &run->store;
    if (rc < 0) {
        run_store_saved(run, -1, err);
        return;
    }
    x->durable.fn = run_store_durable;
    x->durable.arg = run;
    store_then(run->runs->store, &x->durable);
}

static void run_store_make(struct work_job *job) {
    struct run_store_job *j = (struct run_store_job *)(void *)job;
    uint8_t hash[STORE_RUNS_HASH_SIZE];
    j->rc = run_record_write(j->run, &j->record, &j->err);
    if (j->rc < 0 || j->record.len <= RUN_STORE_FILE)
        return;
    results_hash(j->record.data, j->record.len, hash);
    results_name(hash, j->file);
    j->rc = results_write(j->dir, j->file, j->record.data, j->record.len, &j->err);
    /* Here, and not on the loop. */
    free(j->record.data);
    j->record.data = NULL;
}

static void run_store_made(struct work_job *job) {
    struct run_store_job *j = (struct run_store_job *)(void *)job;
    struct run *run = j->run;
    run->store.job = NULL;
    if (j->rc == 0)
        j->rc = run_store_write(run, &j->record, j->file[0] != '\0' ? j->file : NULL, &j->err);
    if (j->rc < 0 && (j->err.code == ENOSPC || j->err.code == EDQUOT))
        store_failed(run->runs->store, &j->err);
    run_store_wait(run, j->rc, &j->err);
    buf_done(&j->record);
    free(j);
    runs_unpin(run);
}

static int run_store_start_job(struct run *run) {
    struct run_store_job *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return -1;
    j->job = (struct work_job){.run = run_store_make, .done = run_store_made};
    j->run = run;
    j->dir = run->runs->results;
    buf_init(&j->record, RUN_RECORD_MAX);
    run->store.job = j;
    runs_pin(run);
    work_add(run->runs->work, &j->job);
    return 0;
}

static void run_store_save(struct run *run) {
    struct err err;
    err_clear(&err);
    if (!run_store_is_short(run) && run_store_start_job(run) == 0)
        return;
    run_store_wait(run, run_store_write_now(run, &err), &err);
}

static void run_store_batch(struct runs *runs) {
    if (runs->unsaved == RUN_STORE_AGAIN) {
        run_store_again_soon(runs, 0);
    } else if (runs->again.slot == 0) {
        runs->again_by_ns = clock_mono_ns() + RUN_STORE_BATCH_MAX_MS * CLOCK_NS_PER_MS;
        run_store_again_soon(runs, RUN_STORE_BATCH_MS);
    }
}

void run_store_end(struct run *run) {
    struct runs *runs = run->runs;
    if (runs->store == NULL) {
        run_settled(run);
    } else if (store_sick(runs->store) == NULL && run_store_is_short(run) &&
               run_store_redo_add(run)) {
        run_store_batch(runs);
        run_settled(run);
    } else {
        run_store_save(run);
    }
}

/* Those that could not be written. */

void run_store_well(void *runs) {
    struct runs *all = runs;
    run_store_again_soon(all, 0);
}

void run_store_link(struct run *run) {
    struct runs *runs = run->runs;
    struct run_store *x = &run->store;
    if (x->unsaved)
        return;
    x->unsaved = true;
    runs->unsaved++;
    x->next = NULL;
    x->prev = runs->unsaved_last;
    if (x->prev != NULL)
        x->prev->store.next = run;
    else
        runs->unsaved_first = run;
    runs->unsaved_last = run;
}

/* It no longer waits to be written. */
static void run_store_unlink(struct run *run) {
    struct runs *runs = run->runs;
    struct run_store *x = &run->store;
    if (!x->unsaved)
        return;
    x->unsaved = false;
    runs->unsaved--;
    if (x->prev != NULL)
        x->prev->store.next = x->next;
    else
        runs->unsaved_first = x->next;
    if (x->next != NULL)
        x->next->store.prev = x->prev;
    else
        runs->unsaved_last = x->prev;
}

static void run_store_saved(struct run *run, int rc, const struct err *err) {
    struct run_store *x = &run->store;
    struct runs *runs = run->runs;
    bool waited = run->phase == RUN_DONE; /* it was told of already */
    if (rc == 0) {
        run_store_unlink(run);
        x->stored = true;
        if (x->body != NULL)
            run_store_note_input(run);
        run_store_drop_body(run);
        run_store_drop_record(run);
        if (runs->unsaved_first == NULL)
            redo_reset(&runs->redo);
        quota_add_user(runs->quota, run->owner, QUOTA_RESULT_BYTES, -(int64_t)x->counted);
        runs_kept(runs, run->owner, 1, (int64_t)x->bytes);
    } else {
        if (!x->told)
            x->seq = 0; /* its record was rolled back */
        if (!waited)
            run_store_redo_rescue(run);
        run_store_link(run);
        run_store_again_soon(runs, RUN_STORE_AGAIN_MS);
        /* A full disk has its own line. */
        if (!store_full(runs->store))
            runs_log(runs, run, err);
    }
    if (!waited)
        run_settled(run);
    else if (rc == 0)
        runs_cache(runs, run);
}

/* A few at a time, until none is left; then what waits to be started. */
static void run_store_again(void *arg) {
    struct runs *runs = arg;
    unsigned left = RUN_STORE_AGAIN;
    bool sick = store_sick(runs->store) != NULL;
    if (runs->active > 0 && runs->unsaved < RUN_STORE_AGAIN &&
        clock_mono_ns() < runs->again_by_ns) {
        run_store_again_soon(runs, RUN_STORE_BUSY_MS);
        return;
    }
    if (!sick) {
        for (struct run *run = runs->unsaved_first, *next; run != NULL && left > 0; run = next) {
            next = run->store.next;
            if (run->store.job != NULL || run->store.durable.waiting)
                continue;
            left--;
            run_store_save(run);
        }
        runs_go_on(runs);
    }
    /* Those that are on their way come back when they fail. */
    if (runs->unsaved_first != NULL && (left == 0 || sick))
        run_store_again_soon(runs, left == 0 ? 0 : RUN_STORE_AGAIN_MS);
}

static void run_store_again_soon(struct runs *runs, uint64_t ms) {
    loop_timer_at(runs->loop, &runs->again, clock_mono_ns() + ms * CLOCK_NS_PER_MS, run_store_again,
                  runs, NULL);
}

void run_store_stop(struct run *run) {
    struct run_store *x = &run->store;
    if (run->runs->store != NULL) {
        store_then_stop(run->runs->store, &x->row);
        store_then_stop(run->runs->store, &x->durable);
    }
    run_store_unlink(run);
    run_store_drop_body(run);
    run_store_drop_record(run);
}
