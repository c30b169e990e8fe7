#include "audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "json_out.h"
#include "sandboxes.h"
#include "str.h"

/* How often the log is brought to the disk while something is written. */
#define AUDIT_SYNC_NS CLOCK_NS_PER_S
/* After a rest the first time comes sooner. */
#define AUDIT_SYNC_SOON_NS (50 * CLOCK_NS_PER_MS)
/* A checkpoint is signed after so many records, or after so long. */
#define AUDIT_SIGN_RECORDS 1000u
#define AUDIT_SIGN_NS (60 * CLOCK_NS_PER_S)
/* While it is sick, requests make it try again, but not each of a flood of them. */
#define AUDIT_TRY_NS (100 * CLOCK_NS_PER_MS)
/* What one user may cause in a minute, record by record. */
#define AUDIT_DENIED_MOST 20u
#define AUDIT_BOUNDED_MOST 600u
#define AUDIT_SUMS_NS (10 * CLOCK_NS_PER_S)

/* Brings the log to the disk, on a worker. */
struct audit_sync {
    struct work_job job;
    struct audit *audit; /* NULL = it is closed */
    int fd, full, dir;   /* owned; -1 = none */
    uint64_t seq;
    char chain[AUDIT_LINE_CHAIN_SIZE];
    char head[AUDIT_LOG_HEAD_SIZE];
    struct err err;
    int rc;
};

static void audit_timer(void *arg);
static void audit_sums(void *arg);
static void audit_sum(void *arg, const struct audit_rate_entry *e);

static void audit_arm(struct audit *a) {
    if (a->timer.slot != 0)
        return;
    uint64_t now = clock_mono_ns(), due = now + AUDIT_SYNC_SOON_NS;
    if (due < a->fired_ns + AUDIT_SYNC_NS)
        due = a->fired_ns + AUDIT_SYNC_NS;
    loop_timer_at(a->options.loop, &a->timer, due, audit_timer, a, NULL);
}

static void audit_say(struct audit *a, enum log_level level, const char *event,
                      const struct err *err) {
    if (a->options.log != NULL)
        log_err(a->options.log, level, event, err);
}

/* Writing. */

static void audit_fell_sick(struct audit *a, const struct err *err) {
    a->tried_ns = clock_mono_ns();
    snprintf(a->why, sizeof(a->why), "The audit log cannot be written (%.300s), so no work starts.",
             err->text);
    audit_arm(a);
    if (a->sick)
        return;
    a->sick = true;
    a->sick_ms = clock_real_ms();
    audit_say(a, LOG_ERROR, "audit_sick", err);
}

static void audit_begin(struct audit *a, struct json_out *j, const char *type) {
    buf_clear(&a->fields);
    json_out_init(j, &a->fields);
    json_out_str(j, "type", type);
}

/* The record in a->fields. -1: it is pending, or lost. */
static int audit_add(struct audit *a, struct err *err) {
    if (audit_log_add(&a->chain, &a->fields, err) < 0) {
        a->lost++;
        return -1;
    }
    a->unsigned_records++;
    if (a->sick)
        return err_set(err, ERR_STATE, 0, "the audit log is sick");
    if (audit_log_write(&a->chain, err) < 0) {
        audit_fell_sick(a, err);
        return -1;
    }
    audit_arm(a);
    return 0;
}

/* One that tells what has happened already: when it cannot be written, it waits. */
static void audit_tell(struct audit *a, struct json_out *j) {
    struct err err;
    err_clear(&err);
    if (json_out_end(j, &err) < 0)
        a->lost++;
    else
        (void)audit_add(a, &err);
}

static void audit_recovered(struct audit *a) {
    struct json_out j;
    struct err err;
    a->sick = false;
    err_set(&err, ERR_NONE, 0, "records that waited are written");
    audit_say(a, LOG_WARN, "audit_recovered", &err);
    audit_begin(a, &j, "recovered");
    json_out_u64(&j, "since", a->sick_ms);
    json_out_u64(&j, "lost", a->lost);
    a->lost = 0;
    audit_tell(a, &j);
}

/* Is there room again? Without anything that waits, that is tried with a record. */
static void audit_try(struct audit *a) {
    struct err err;
    err_clear(&err);
    a->tried_ns = clock_mono_ns();
    if (a->chain.pending.len > 0 && audit_log_write(&a->chain, &err) < 0) {
        audit_fell_sick(a, &err);
        return;
    }
    uint64_t since = a->sick_ms, lost = a->lost;
    audit_recovered(a);
    if (a->sick) {
        audit_log_undo(&a->chain);
        a->sick_ms = since;
        a->lost = lost;
    }
}

const char *audit_sick(struct audit *a) {
    if (!a->open || !a->sick)
        return NULL;
    if (clock_mono_ns() - a->tried_ns >= AUDIT_TRY_NS)
        audit_try(a);
    return a->sick ? a->why : NULL;
}

int audit_check(struct audit *a, struct api_error *error) {
    const char *why = audit_sick(a);
    return why != NULL ? api_error_set(error, 503, "audit", NULL, "%s", why) : 0;
}

/* Checkpoints and the disk. */

static void audit_checkpoint(struct audit *a) {
    char message[AUDIT_LINE_MESSAGE_MAX], signature[2 * RECEIPT_SIGNATURE_SIZE + 1];
    struct json_out j;
    if (a->options.key == NULL)
        return;
    size_t len = audit_line_message(a->chain.chain, &a->chain.last, false, message);
    receipt_key_sign(a->options.key, message, len, signature);
    audit_begin(a, &j, "checkpoint");
    json_out_str(&j, "key", a->options.key->id);
    json_out_str(&j, "signature", signature);
    audit_tell(a, &j);
    a->unsigned_records = 0;
    a->signed_ns = clock_mono_ns();
}

static void audit_sync_run(struct work_job *job) {
    struct audit_sync *y = (struct audit_sync *)(void *)job;
    y->rc = 0;
    if (y->full >= 0)
        y->rc = audit_log_sync(y->full, &y->err);
    if (y->rc == 0)
        y->rc = audit_log_sync(y->fd, &y->err);
    if (y->rc == 0 && y->head[0] != '\0')
        y->rc = audit_log_head_write(y->dir, y->chain, y->head, &y->err);
}

static void audit_sync_done(struct work_job *job) {
    struct audit_sync *y = (struct audit_sync *)(void *)job;
    struct audit *a = y->audit;
    if (a != NULL) {
        a->sync = NULL;
        if (y->rc == 0)
            a->synced = y->seq;
        else
            audit_say(a, LOG_ERROR, "audit_not_synced", &y->err);
        if (a->synced < a->chain.written.seq)
            audit_arm(a);
    }
    fd_close(&y->fd);
    fd_close(&y->full);
    fd_close(&y->dir);
    free(y);
}

static struct audit_sync *audit_sync_new(struct audit *a) {
    struct audit_sync *y = calloc(1, sizeof(*y));
    if (y == NULL)
        return NULL;
    y->job = (struct work_job){.run = audit_sync_run, .done = audit_sync_done};
    y->audit = a;
    y->seq = a->chain.written.seq;
    str_copy(y->chain, sizeof(y->chain), a->chain.chain);
    y->full = fd_steal(&a->chain.full);
    y->fd = fcntl(a->chain.fd, F_DUPFD_CLOEXEC, 0);
    y->dir = fcntl(a->options.server_dir, F_DUPFD_CLOEXEC, 0);
    if (a->options.key != NULL)
        audit_log_head_text(y->chain, &a->chain.written, a->options.key, y->head);
    if (y->fd >= 0 && y->dir >= 0)
        return y;
    y->audit = NULL;
    audit_sync_done(&y->job);
    return NULL;
}

/* Somebody took the file away or wrote into it: what comes now goes into another one. */
static void audit_check_file(struct audit *a) {
    struct err err;
    struct json_out j;
    if (audit_log_intact(&a->chain))
        return;
    err_set(&err, ERR_STATE, 0, "the newest file of the audit log was changed by another");
    audit_say(a, LOG_ERROR, "audit_disturbed", &err);
    audit_log_begin_new(&a->chain);
    audit_begin(a, &j, "disturbed");
    audit_tell(a, &j);
}

static void audit_timer(void *arg) {
    struct audit *a = arg;
    uint64_t now = clock_mono_ns();
    a->fired_ns = now;
    if (a->sick && now - a->tried_ns >= AUDIT_TRY_NS)
        audit_try(a);
    if (a->sick) {
        audit_arm(a);
        return;
    }
    audit_check_file(a);
    if (a->unsigned_records >= AUDIT_SIGN_RECORDS ||
        (a->unsigned_records > 0 && now - a->signed_ns >= AUDIT_SIGN_NS))
        audit_checkpoint(a);
    if (a->sync == NULL && a->chain.fd >= 0 && a->synced < a->chain.written.seq) {
        a->sync = audit_sync_new(a);
        if (a->sync != NULL)
            work_add(a->options.work, &a->sync->job);
        else
            audit_arm(a);
    }
    /* A checkpoint is owed to the last records of a busy time, too. */
    if (a->unsigned_records > 0)
        audit_arm(a);
}

/* Start and end. */

static void audit_tell_started(struct audit *a, const struct audit_log_found *found) {
    struct json_out j;
    if (found->partial > 0) {
        audit_begin(a, &j, "repaired");
        json_out_u64(&j, "bytes", found->partial);
        audit_tell(a, &j);
    }
    if (found->unsound) {
        audit_begin(a, &j, "disturbed");
        audit_tell(a, &j);
    }
    if (found->head_seq > 0) {
        audit_begin(a, &j, "cut_found");
        json_out_u64(&j, "head", found->head_seq);
        json_out_u64(&j, "ended_with", found->cut_after);
        audit_tell(a, &j);
    }
    audit_begin(a, &j, "started");
    json_out_str(&j, "version", a->options.version);
    if (a->options.key != NULL)
        json_out_str(&j, "key", a->options.key->id);
    audit_tell(a, &j);
}

static void audit_say_found(struct audit *a, const struct audit_log_found *found) {
    struct err err;
    if (found->partial > 0) {
        err_set(&err, ERR_STATE, 0, "%" PRIu64 " bytes of an unfinished record were cut off",
                found->partial);
        audit_say(a, LOG_WARN, "audit_repaired", &err);
    }
    if (found->unsound || found->head_seq > 0) {
        err_set(&err, ERR_STATE, 0,
                "the audit log was changed while no server ran; see: pinfold-server audit verify");
        audit_say(a, LOG_ERROR, "audit_disturbed", &err);
    }
}

int audit_start(struct audit *a, const struct audit_options *options, struct err *err) {
    struct audit_log_found found;
    memset(a, 0, sizeof(*a));
    a->options = *options;
    buf_init(&a->fields, AUDIT_LINE_MAX);
    a->options.server_dir = fcntl(options->server_dir, F_DUPFD_CLOEXEC, 0);
    if (a->options.server_dir < 0)
        return err_sys(err, "opening the audit log");
    if (audit_log_open(&a->chain, options->server_dir, AUDIT_LOG_SERVER, &found, err) < 0) {
        fd_close(&a->options.server_dir);
        return -1;
    }
    a->open = true;
    a->synced = a->chain.written.seq;
    audit_say_found(a, &found);
    audit_tell_started(a, &found);
    audit_checkpoint(a);
    return 0;
}

void audit_stop(struct audit *a) {
    struct json_out j;
    struct err err;
    if (!a->open)
        return;
    err_clear(&err);
    loop_timer_stop(a->options.loop, &a->timer);
    loop_timer_stop(a->options.loop, &a->sums);
    if (a->sick)
        audit_try(a);
    (void)audit_rate_sum(&a->rate, clock_real_ms(), true, audit_sum, a);
    audit_begin(a, &j, "stopped");
    audit_tell(a, &j);
    audit_checkpoint(a);
    loop_timer_stop(a->options.loop, &a->timer);
    if (a->sync != NULL)
        a->sync->audit = NULL;
    a->sync = NULL;
    struct audit_sync *y = a->chain.fd >= 0 ? audit_sync_new(a) : NULL;
    if (y != NULL) {
        y->audit = NULL;
        audit_sync_run(&y->job);
        audit_sync_done(&y->job);
    }
    audit_log_close(&a->chain);
    fd_close(&a->options.server_dir);
    buf_done(&a->fields);
    a->open = false;
}

/* What is recorded. */

int audit_accepted(struct audit *a, const struct audit_asked *asked, struct audit_mark *mark,
                   struct api_error *error) {
    struct err err;
    err_clear(&err);
    if (mark != NULL)
        memset(mark, 0, sizeof(*mark));
    if (!a->open)
        return 0;
    if (audit_check(a, error) < 0)
        return -1;
    buf_clear(&a->fields);
    audit_record_asked(&a->fields, asked);
    if (audit_add(a, &err) < 0) {
        audit_log_undo(&a->chain);
        if (!a->sick)
            return api_error_memory(error);
        return api_error_set(error, 503, "audit", NULL, "%s", a->why);
    }
    if (mark != NULL)
        *mark = a->chain.written;
    return 0;
}

void audit_asked_to_end(struct audit *a, const struct audit_asked *asked, struct audit_mark *mark) {
    struct err err;
    err_clear(&err);
    memset(mark, 0, sizeof(*mark));
    if (!a->open)
        return;
    (void)audit_sick(a); /* perhaps it can be written again */
    buf_clear(&a->fields);
    audit_record_asked(&a->fields, asked);
    if (audit_add(a, &err) == 0)
        *mark = a->chain.written;
}

static void audit_count(struct audit *a) {
    if (a->sums.slot == 0)
        loop_timer_at(a->options.loop, &a->sums, clock_mono_ns() + AUDIT_SUMS_NS, audit_sums, a,
                      NULL);
}

int audit_accepted_bounded(struct audit *a, const struct audit_asked *asked,
                           struct audit_mark *mark, struct api_error *error) {
    if (mark != NULL)
        memset(mark, 0, sizeof(*mark));
    if (!a->open)
        return 0;
    if (audit_check(a, error) < 0)
        return -1;
    if (audit_rate_pass(&a->rate, asked->what, asked->user != NULL ? asked->user : "",
                        AUDIT_BOUNDED_MOST, clock_real_ms()))
        return audit_accepted(a, asked, mark, error);
    audit_count(a);
    return 0;
}

static void audit_sum(void *arg, const struct audit_rate_entry *e) {
    struct audit *a = arg;
    struct json_out j;
    audit_begin(a, &j, "summed");
    json_out_str(&j, "of", e->what);
    if (e->user[0] != '\0')
        json_out_str(&j, "user", e->user);
    json_out_u64(&j, "count", e->left_out);
    json_out_u64(&j, "from", e->from_ms);
    json_out_u64(&j, "to", clock_real_ms());
    audit_tell(a, &j);
}

static void audit_sums(void *arg) {
    struct audit *a = arg;
    if (audit_rate_sum(&a->rate, clock_real_ms(), false, audit_sum, a))
        audit_count(a);
}

static void audit_answer(struct json_out *j, const struct audit_answer *x) {
    if (x->user != NULL && x->user[0] != '\0')
        json_out_str(j, "user", x->user);
    if (x->client != NULL && x->client[0] != '\0')
        json_out_str(j, "client", x->client);
    json_out_str(j, "method", x->method);
    json_out_str(j, "route", x->route);
    json_out_i64(j, "status", x->status);
    if (x->code != NULL && x->code[0] != '\0')
        json_out_str(j, "code", x->code);
}

void audit_denied(struct audit *a, const struct audit_answer *x) {
    struct json_out j;
    char what[AUDIT_RATE_TEXT];
    if (!a->open)
        return;
    snprintf(what, sizeof(what), "denied %d %.40s", x->status, x->code != NULL ? x->code : "");
    if (!audit_rate_pass(&a->rate, what, x->user != NULL ? x->user : "", AUDIT_DENIED_MOST,
                         clock_real_ms())) {
        audit_count(a);
        return;
    }
    audit_begin(a, &j, "denied");
    audit_answer(&j, x);
    audit_tell(a, &j);
}

void audit_failed(struct audit *a, uint64_t seq, const struct audit_answer *x) {
    struct json_out j;
    if (!a->open || seq == 0)
        return;
    audit_begin(a, &j, "failed");
    json_out_u64(&j, "of", seq);
    audit_answer(&j, x);
    audit_tell(a, &j);
}

void audit_run_ended(struct audit *a, const struct run *run) {
    struct err err;
    if (!a->open)
        return;
    buf_clear(&a->fields);
    audit_record_run_ended(&a->fields, run);
    (void)audit_add(a, &err);
}

void audit_exec_ended(struct audit *a, const struct exec *x) {
    struct err err;
    if (!a->open)
        return;
    buf_clear(&a->fields);
    audit_record_exec_ended(&a->fields, x);
    (void)audit_add(a, &err);
}

void audit_sandbox_ended(struct audit *a, const char *id, const char *user, const char *why) {
    struct json_out j;
    if (!a->open)
        return;
    audit_begin(a, &j, "ended");
    json_out_str(&j, "what", "sandbox");
    json_out_str(&j, "id", id);
    json_out_str(&j, "user", user);
    json_out_str(&j, "cause", why);
    audit_tell(a, &j);
}

int audit_sandbox_accepted(struct audit *a, const char *id, const struct sandbox_spec *spec,
                           struct api_error *error) {
    struct audit_asked asked = {.what = "sandbox",
                                .id = id,
                                .user = spec->owner,
                                .policy = spec->policy.name,
                                .policy_sha256 = spec->policy.sha256,
                                .image = spec->image,
                                .image_sha256 = spec->image_sha256,
                                .limits = &spec->limits.values,
                                .from = spec->origin};
    return audit_accepted(a, &asked, NULL, error);
}
