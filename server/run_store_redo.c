/* Runs in the redo log. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "run.h"
#include "run_record.h"
#include "run_store.h"
#include "runs.h"

#define RUN_STORE_REDO "runs.redo"
/* A log that is longer waits until the database has caught up. */
#define RUN_STORE_REDO_MAX ((uint64_t)64 * 1024 * 1024)
#define RUN_STORE_REDO_BODY ((size_t)256 * 1024)
#define RUN_STORE_REDO_FIRST 2048u

/* In front of the body, if it is there, and the record. */
struct run_store_redo_head {
    uint32_t body_len; /* 0: it is in the database, or was not kept */
    uint8_t has_input;
    uint8_t zero[3];
    uint8_t input[STORE_RUNS_HASH_SIZE];
};

static int run_store_redo_put(struct run *run, bool body, const struct buf *record) {
    struct run_store *x = &run->store;
    bool lost = x->filed || (x->body != NULL && !body && !run_store_is_seen(run));
    struct run_store_redo_head head = {.has_input = x->has_input && !lost,
                                       .body_len = body ? (uint32_t)x->body_len : 0};
    memcpy(head.input, x->input, sizeof(head.input));
    const struct iovec parts[] = {{.iov_base = &head, .iov_len = sizeof(head)},
                                  {.iov_base = x->body, .iov_len = head.body_len},
                                  {.iov_base = record->data, .iov_len = record->len}};
    return redo_add(&run->runs->redo, parts, 3, NULL);
}

bool run_store_redo_add(struct run *run) {
    struct run_store *x = &run->store;
    struct runs *runs = run->runs;
    struct buf record;
    bool body = x->body != NULL && !run_store_is_seen(run);
    if (runs->redo.fd < 0 || runs->redo.len > RUN_STORE_REDO_MAX || x->filed ||
        (body && x->body_len > RUN_STORE_REDO_BODY))
        return false;
    buf_init(&record, RUN_STORE_REDO_BODY);
    (void)buf_reserve(&record, RUN_STORE_REDO_FIRST, NULL);
    if (run_record_write(run, &record, NULL) < 0 || run_store_redo_put(run, body, &record) < 0) {
        buf_done(&record);
        return false;
    }
    x->counted = x->record_len = record.len;
    x->record = buf_take(&record);
    quota_add_user(runs->quota, run->owner, QUOTA_RESULT_BYTES, (int64_t)x->counted);
    run_store_link(run);
    return true;
}

void run_store_redo_rescue(struct run *run) {
    struct buf record;
    int rc = -1;
    if (run->runs->redo.fd < 0 || run->runs->redo.len > RUN_STORE_REDO_MAX)
        return;
    buf_init(&record, RUN_STORE_REDO_BODY);
    if (run_store_is_short(run) && run_record_write(run, &record, NULL) == 0)
        rc = run_store_redo_put(run, false, &record);
    buf_clear(&record);
    if (rc < 0 && run_record_write_bare(run, &record, NULL) == 0)
        (void)run_store_redo_put(run, false, &record);
    buf_done(&record);
}

/* Starting. */

static int run_store_redo_keep(struct run *run, const struct run_store_redo_head *head,
                               const char *body, const char *record, size_t len) {
    struct run_store *x = &run->store;
    x->record = malloc(len);
    x->body = head->body_len > 0 ? malloc((size_t)head->body_len + 1) : NULL;
    if (x->record == NULL || (head->body_len > 0 && x->body == NULL))
        return -1;
    memcpy(x->record, record, len);
    x->record_len = len;
    if (x->body != NULL) {
        memcpy(x->body, body, head->body_len);
        x->body[head->body_len] = '\0';
        x->body_len = head->body_len;
    }
    x->has_input = head->has_input != 0;
    memcpy(x->input, head->input, sizeof(x->input));
    return 0;
}

/* A run whose row says that it is over is in the database already; the log was not emptied yet. */
static int run_store_redo_take(void *arg, const char *data, size_t len, struct err *err) {
    struct runs *runs = arg;
    struct run_store_redo_head head;
    struct store_run_found found;
    if (len < sizeof(head))
        return 0;
    memcpy(&head, data, sizeof(head));
    if (head.body_len > len - sizeof(head))
        return 0;
    const char *body = data + sizeof(head), *record = body + head.body_len;
    size_t record_len = len - sizeof(head) - head.body_len;
    struct run *run = run_record_read(runs, record, record_len, NULL);
    if (run == NULL || run->phase != RUN_DONE || runs_find(runs, run->id) != NULL) {
        run_free(run);
        return 0;
    }
    int there = store_runs_get(runs->store, run->owner, run->id, &found, err);
    if (there == 1) {
        buf_done(&found.record);
        run->store.seq = found.seq;
        run->store.told = true;
    }
    if (there < 0 || (there == 1 && found.state == STORE_RUN_DONE)) {
        run_free(run);
        return there < 0 ? -1 : 0;
    }
    if (run_store_redo_keep(run, &head, body, record, record_len) < 0) {
        run_free(run);
        return err_set(err, ERR_SYSTEM, 0, "reading the redo log: out of memory");
    }
    run_keep_forget_gone(run);
    run_store_link(run);
    runs_put(runs, run);
    return 0;
}

int run_store_redo_open(struct runs *runs, int server, struct err *err) {
    if (redo_open(&runs->redo, server, RUN_STORE_REDO, err) < 0 ||
        redo_read(&runs->redo, run_store_redo_take, runs, err) < 0)
        return -1;
    if (runs->unsaved_first == NULL)
        redo_reset(&runs->redo);
    else
        run_store_well(runs);
    return 0;
}

/* Stopping. */

void run_store_flush(struct runs *runs) {
    struct err err;
    int rc = 0;
    err_clear(&err);
    if (runs->store == NULL || runs->unsaved_first == NULL || runs->redo.fd < 0)
        return;
    for (struct run *run = runs->unsaved_first; rc == 0 && run != NULL; run = run->store.next)
        if (run->store.job == NULL && !run->store.durable.waiting)
            rc = run_store_write_now(run, &err);
    if (rc == 0)
        rc = store_commit_now(runs->store, &err);
    if (rc == 0)
        redo_reset(&runs->redo);
}
