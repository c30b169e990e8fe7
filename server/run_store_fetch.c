#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api_error.h"
#include "results.h"
#include "run.h"
#include "run_record.h"
#include "run_store.h"
#include "runs.h"
#include "str.h"
#include "work.h"

/* A record that lies in a file and is read by a worker. */
struct run_store_fetch {
    struct work_job job;
    struct runs *runs;
    struct run_store_wish *wish; /* NULL = nobody wants it any more */
    char id[RUN_ID_SIZE], owner[RUN_OWNER_SIZE];
    struct store_run_found found;
    struct run *run;
    struct err err;
};

static void run_store_fetch_none(struct run_store_wish *w) {
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL, "There is no such run.");
    w->fn(w->arg, NULL, &error);
}

static void run_store_fetch_failed(struct runs *runs, const char *id, struct run_store_wish *w,
                                   const struct err *err) {
    struct api_error error = {0};
    struct log_line line;
    log_begin(&line, runs->log, LOG_ERROR, "result_unreadable");
    log_str(&line, "run", id);
    log_str(&line, "why", err->text);
    log_end(&line);
    api_error_set(&error, 500, "internal", NULL, "The stored result of this run cannot be read.");
    w->fn(w->arg, NULL, &error);
}

static struct run *run_store_fetch_mine(const struct runs *runs, const char *user, const char *id) {
    struct run *run = runs_find(runs, id);
    return run != NULL && strcmp(run->owner, user) == 0 ? run : NULL;
}

/* Puts what was read into the table. */
static void run_store_fetch_put(struct runs *runs, struct run *run,
                                const struct store_run_found *found) {
    struct run_store *x = &run->store;
    x->stored = true;
    x->seq = found->seq;
    x->bytes = found->bytes;
    x->has_input = found->has_input;
    memcpy(x->input, found->input, sizeof(x->input));
    run_keep_forget_gone(run);
    runs_put(runs, run);
}

static void run_store_fetch_read(struct work_job *job) {
    struct run_store_fetch *f = (struct run_store_fetch *)(void *)job;
    struct buf *record = &f->found.record;
    buf_done(record);
    buf_init(record, RUN_RECORD_MAX);
    if (results_read(f->runs->results, f->found.file, record, &f->err) == 0)
        f->run = run_record_read(f->runs, record->data, record->len, &f->err);
    buf_done(record);
}

static void run_store_fetch_over(struct work_job *job) {
    struct run_store_fetch *f = (struct run_store_fetch *)(void *)job;
    struct run_store_wish *w = f->wish;
    /* Somebody else may have been faster. */
    struct run *there = run_store_fetch_mine(f->runs, f->owner, f->id);
    if (there == NULL && f->run != NULL && w != NULL) {
        run_store_fetch_put(f->runs, f->run, &f->found);
        there = f->run;
        f->run = NULL;
    }
    if (w != NULL) {
        w->fetch = NULL;
        if (there != NULL)
            w->fn(w->arg, there, NULL);
        else
            run_store_fetch_failed(f->runs, f->id, w, &f->err);
    }
    run_free(f->run);
    free(f);
}

static void run_store_fetch_file(struct runs *runs, const char *user, const char *id,
                                 struct store_run_found *found, struct run_store_wish *w) {
    struct run_store_fetch *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        struct api_error error = {0};
        buf_done(&found->record);
        api_error_memory(&error);
        w->fn(w->arg, NULL, &error);
        return;
    }
    f->job = (struct work_job){.run = run_store_fetch_read, .done = run_store_fetch_over};
    f->runs = runs;
    f->wish = w;
    f->found = *found;
    str_copy(f->id, sizeof(f->id), id);
    str_copy(f->owner, sizeof(f->owner), user);
    w->fetch = f;
    work_add(runs->work, &f->job);
}

void run_store_fetch(struct runs *runs, const char *user, const char *id,
                     struct run_store_wish *w) {
    struct run *run = run_store_fetch_mine(runs, user, id);
    struct store_run_found found;
    struct err err;
    err_clear(&err);
    w->fetch = NULL;
    if (run != NULL) {
        w->fn(w->arg, run, NULL);
        return;
    }
    int rc = runs->store != NULL && strlen(id) < RUN_ID_SIZE
                 ? store_runs_get(runs->store, user, id, &found, &err)
                 : 0;
    if (rc < 0) {
        run_store_fetch_failed(runs, id, w, &err);
        return;
    }
    if (rc == 0) {
        run_store_fetch_none(w);
        return;
    }
    if (found.file[0] != '\0') {
        run_store_fetch_file(runs, user, id, &found, w);
        return;
    }
    run = run_record_read(runs, found.record.data, found.record.len, &err);
    buf_done(&found.record);
    if (run == NULL || run->phase != RUN_DONE) {
        if (run != NULL)
            err_set(&err, ERR_STATE, 0, "it is not over");
        run_free(run);
        run_store_fetch_failed(runs, id, w, &err);
        return;
    }
    run_store_fetch_put(runs, run, &found);
    w->fn(w->arg, run, NULL);
}

void run_store_fetch_stop(struct run_store_wish *w) {
    if (w->fetch != NULL)
        w->fetch->wish = NULL;
    w->fetch = NULL;
}

int run_store_body_find(struct runs *runs, const char *user, const char *id, struct buf *out,
                        char file[STORE_RUNS_FILE_SIZE], struct err *err) {
    struct store_run_found found;
    const struct run *run = runs_find(runs, id);
    file[0] = '\0';
    if (run != NULL && strcmp(run->owner, user) == 0 && run->store.body != NULL)
        return buf_append(out, run->store.body, run->store.body_len, err) < 0 ? -1 : 1;
    int rc = runs->store != NULL ? store_runs_get(runs->store, user, id, &found, err) : 0;
    if (rc <= 0)
        return rc;
    buf_done(&found.record);
    return found.has_input ? store_runs_get_input(runs->store, found.input, out, file, err) : 0;
}
