#include "run_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"
#include "runs.h"
#include "sandbox.h"
#include "str.h"

static const char run_record_magic[4] = {'P', 'F', 'R', '1'};

enum run_record_tag {
    RUN_RECORD_HEAD = 1,
    RUN_RECORD_STEP = 2, /* one for each, in order */
    RUN_RECORD_EVENTS = 3,
    RUN_RECORD_BUNDLE = 4,
    RUN_RECORD_KEEP = 5,
    RUN_RECORD_TRACE = 6,
    RUN_RECORD_RECEIPT = 7,
};

/* The reasons why there are no files; run->collect_error points to one of them. */
static const char *const run_record_reasons[] = {"",          "internal",  "interrupted",
                                                 "cancelled", "too_large", "no_space"};
#define RUN_RECORD_REASONS (sizeof(run_record_reasons) / sizeof(run_record_reasons[0]))

/* Writing. Each section is written behind a length of fixed size, which is filled in afterwards. */

static void run_record_limits(struct record_out *o, const struct limits_effective *l) {
    record_put(o, LIMIT_COUNT);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        record_put(o, l->values.v[i]);
        record_put(o, l->from[i]);
    }
}

/* A moment as a distance; 0 = it never came. */
static uint64_t run_record_since(const struct run *run, uint64_t ns) {
    return ns == 0 ? 0 : ns > run->created_ns ? ns - run->created_ns : 1;
}

static uint64_t run_record_reason(const char *text) {
    for (size_t i = 1; text != NULL && i < RUN_RECORD_REASONS; i++)
        if (strcmp(text, run_record_reasons[i]) == 0)
            return i;
    return text != NULL ? 1 : 0;
}

static void run_record_head(struct record_out *o, const struct run *run, const char *no_files) {
    size_t at = record_open(o, RUN_RECORD_HEAD);
    record_text(o, run->id);
    record_text(o, run->owner);
    record_text(o, run->image);
    record_text(o, run->policy.name);
    record_bytes(o, run->policy.sha256, sizeof(run->policy.sha256));
    record_put(o, run->policy.writable);
    record_put(o, run->phase >= RUN_SEAL);
    record_put(o, run->ok);
    record_put(o, run->current);
    record_put(o, run->step_count);
    record_put(o, run->created_ms);
    record_put(o, run_record_since(run, run->dispatched_ns));
    record_put(o, run_record_since(run, run->begun_ns));
    record_put(o, run_record_since(run, run->ended_ns));
    record_put(o, run->setup_ns);
    record_put(o, run->end_on);
    record_put(o, run->cancel_on_disconnect);
    record_put(o, run_record_reason(no_files));
    run_record_limits(o, &run->limits);
    for (int i = 0; i < LIMIT_COUNT; i++)
        record_put(o, run->open.v[i]);
    record_put(o, run->backend);
    record_bytes(o, run->image_sha256, sizeof(run->image_sha256));
    record_close(o, at);
}

static void run_record_capture(struct record_out *o, const struct capture *c) {
    struct iovec parts[CAPTURE_PIECES];
    uint64_t past = c->total - c->head_len;
    size_t tail = past < c->tail_keep ? (size_t)past : c->tail_keep;
    record_put(o, c->total);
    record_bytes(o, c->head, c->head_len);
    record_put(o, tail);
    int n = tail > 0 ? capture_view(c, c->total - tail, tail, parts) : 0;
    for (int i = 0; i < n; i++)
        record_raw(o, parts[i].iov_base, parts[i].iov_len);
}

static void run_record_left_out(struct record_out *o, const struct capture *c) {
    record_put(o, c->total);
    record_put(o, 0);
    record_put(o, 0);
}

static void run_record_end(struct record_out *o, const struct step_end *e) {
    record_put(o, (uint64_t)e->cause);
    record_put_signed(o, e->exit_code);
    record_put_signed(o, e->signal);
    const uint64_t numbers[] = {e->limit,     e->observed,   e->wall_ms,     e->cpu_ms,
                                e->oom_kills, e->refused,    e->disk_bytes,  e->inodes,
                                e->bytes,     e->syscall_nr, e->syscall_arch};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        record_put(o, numbers[i]);
    record_put_signed(o, e->code);
    record_text(o, e->stage);
    record_text(o, e->path);
}

static void run_record_usage(struct record_out *o, const struct wire_usage *u) {
    const uint64_t numbers[] = {u->wall_ns,        u->cpu_user_ns,      u->cpu_system_ns,
                                u->mem_peak_bytes, u->throttled_ns,     u->disk_bytes,
                                u->inodes,         u->pids_peak,        u->oom_kills,
                                u->pids_refused,   u->stragglers_killed};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        record_put(o, numbers[i]);
}

static void run_record_step(struct record_out *o, const struct run *run, size_t index, bool bare) {
    void (*capture)(struct record_out *, const struct capture *) =
        bare ? run_record_left_out : run_record_capture;
    const struct run_step *step = &run->steps[index];
    bool own = memcmp(&step->limits, &run->limits, sizeof(run->limits)) != 0;
    size_t at = record_open(o, RUN_RECORD_STEP);
    record_text(o, step->name);
    record_put(o, (uint64_t)step->state);
    record_put(o, (uint64_t)step->ok | (uint64_t)step->merged << 1 |
                      (uint64_t)step->continue_on_error << 2 | (uint64_t)step->has_usage << 3 |
                      (uint64_t)own << 4);
    if (own)
        run_record_limits(o, &step->limits);
    /* A stream that still grows is not copied. */
    if (step->state == RUN_STEP_DONE) {
        run_record_end(o, &step->end);
        run_record_usage(o, &step->usage);
        capture(o, &step->out.capture);
        capture(o, &step->err.capture);
    }
    record_close(o, at);
}

static void run_record_event(struct record_out *o, const struct events_record *r) {
    record_put(o, r->seq);
    record_put(o, r->type);
    record_put(o, r->step);
    if (r->type == EVENTS_STDOUT || r->type == EVENTS_STDERR) {
        record_put(o, r->offset);
        record_put(o, r->len);
    } else if (r->type == EVENTS_GAP_STDOUT || r->type == EVENTS_GAP_STDERR) {
        record_put(o, r->len);
    }
}

static void run_record_events(struct record_out *o, const struct events *e) {
    size_t at = record_open(o, RUN_RECORD_EVENTS);
    record_put(o, e->first_count);
    record_put(o, e->mid_count);
    record_put(o, e->last_count);
    for (size_t i = 0; i < e->first_count; i++)
        run_record_event(o, &e->first[i]);
    for (size_t i = 0; i < e->mid_count; i++)
        run_record_event(o, &e->mid[i]);
    for (size_t i = 0; i < e->last_count; i++)
        run_record_event(o, &e->last[(e->last_start + i) % e->last_alloc]);
    record_close(o, at);
}

static void run_record_keep(struct record_out *o, const struct run *run) {
    if (run->keep == NULL)
        return;
    size_t at = record_open(o, RUN_RECORD_KEEP);
    record_text(o, run_keep_shard(run));
    record_text(o, run_keep_error(run));
    for (size_t i = 0; i < run->step_count; i++) {
        const char *key = run_keep_key(run, i);
        record_text(o, key != NULL ? key : "");
    }
    record_close(o, at);
}

static void run_record_trace(struct record_out *o, const struct run *run) {
    size_t at = record_open(o, RUN_RECORD_TRACE);
    record_text(o, run->label);
    record_bytes(o, &run->trace, sizeof(run->trace));
    record_text(o, run->token != NULL ? run->token->id : run->store.token);
    record_close(o, at);
}

static void run_record_receipt(struct record_out *o, const struct run *run) {
    if (run->receipt == NULL)
        return;
    size_t at = record_open(o, RUN_RECORD_RECEIPT);
    record_text(o, run->receipt);
    record_close(o, at);
}

static int run_record_all(const struct run *run, bool bare, struct buf *out, struct err *err) {
    struct record_out o = {.buf = out};
    bool files = run->file_count > 0 && !bare;
    record_raw(&o, run_record_magic, sizeof(run_record_magic));
    run_record_head(&o, run, run->file_count > 0 && bare ? "no_space" : run->collect_error);
    for (size_t i = 0; i < run->step_count; i++)
        run_record_step(&o, run, i, bare);
    run_record_events(&o, &run->events);
    run_record_keep(&o, run);
    run_record_trace(&o, run);
    run_record_receipt(&o, run);
    if (files) {
        size_t at = record_open(&o, RUN_RECORD_BUNDLE);
        record_raw(&o, run->bundle.data, run->bundle.len);
        record_close(&o, at);
    }
    if (!o.failed)
        return 0;
    if (err != NULL)
        *err = o.err;
    return -1;
}

int run_record_write(const struct run *run, struct buf *out, struct err *err) {
    return run_record_all(run, false, out, err);
}

int run_record_write_bare(const struct run *run, struct buf *out, struct err *err) {
    return run_record_all(run, true, out, err);
}

/* Reading. */

static void run_record_read_limits(struct record_in *in, struct limits_effective *l) {
    uint64_t count = record_get(in);
    memset(l, 0, sizeof(*l));
    if (count > in->len) /* each takes two bytes, and behind the end there is nothing but zeros */
        in->bad = true;
    for (uint64_t i = 0; i < count && !in->bad; i++) {
        uint64_t value = record_get(in), from = record_get(in);
        if (i < LIMIT_COUNT) {
            l->values.v[i] = value;
            l->from[i] = from < LIMITS_FROM_COUNT ? (uint8_t)from : 0;
        }
    }
}

static uint64_t run_record_moment(struct record_in *in) {
    uint64_t since = record_get(in);
    return since == 0 ? 0 : 1 + since;
}

static void run_record_read_head(struct record_in *in, struct run *run) {
    record_get_text(in, run->id, sizeof(run->id));
    record_get_text(in, run->owner, sizeof(run->owner));
    record_get_text(in, run->image, sizeof(run->image));
    record_get_text(in, run->policy.name, sizeof(run->policy.name));
    record_get_bytes(in, run->policy.sha256, sizeof(run->policy.sha256));
    run->policy.writable = (uint32_t)record_get(in);
    run->phase = record_get(in) != 0 ? RUN_DONE : RUN_QUEUED;
    run->ok = record_get(in) != 0;
    run->current = (size_t)record_get(in);
    uint64_t steps = record_get(in);
    run->created_ms = record_get(in);
    run->created_ns = 1;
    run->dispatched_ns = run_record_moment(in);
    run->begun_ns = run_record_moment(in);
    run->ended_ns = run_record_moment(in);
    run->setup_ns = record_get(in);
    run->end_on = (uint32_t)record_get(in);
    run->cancel_on_disconnect = record_get(in) != 0;
    uint64_t reason = record_get(in);
    run->collect_error =
        reason > 0 && reason < RUN_RECORD_REASONS ? run_record_reasons[reason] : NULL;
    run_record_read_limits(in, &run->limits);
    for (int i = 0; i < LIMIT_COUNT; i++)
        run->open.v[i] = record_get(in);
    uint64_t backend = record_get(in); /* older ones have none */
    run->backend = backend_name((uint32_t)backend) ? (enum backend)backend : BACKEND_NATIVE;
    if (in->len > 0) /* older ones do not say */
        record_get_bytes(in, run->image_sha256, sizeof(run->image_sha256));
    if (in->bad || steps == 0 || steps > REQUEST_STEPS_MAX || run->current >= steps ||
        run->steps != NULL || run_init_steps(run, (size_t)steps) < 0)
        in->bad = true;
}

static void run_record_read_end(struct record_in *in, struct step_end *e) {
    uint64_t cause = record_get(in);
    end_init(e, cause < CAUSE_COUNT ? (enum cause)cause : CAUSE_INTERNAL);
    e->exit_code = (int)record_get_signed(in);
    e->signal = (int)record_get_signed(in);
    uint64_t *const numbers[] = {&e->limit,     &e->observed,  &e->wall_ms,    &e->cpu_ms,
                                 &e->oom_kills, &e->refused,   &e->disk_bytes, &e->inodes,
                                 &e->bytes,     &e->syscall_nr};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        *numbers[i] = record_get(in);
    e->syscall_arch = (uint32_t)record_get(in);
    e->code = (int)record_get_signed(in);
    record_get_text(in, e->stage, sizeof(e->stage));
    record_get_text(in, e->path, sizeof(e->path));
}

static void run_record_read_usage(struct record_in *in, struct wire_usage *u) {
    uint64_t *const large[] = {&u->wall_ns,        &u->cpu_user_ns,  &u->cpu_system_ns,
                               &u->mem_peak_bytes, &u->throttled_ns, &u->disk_bytes,
                               &u->inodes};
    uint32_t *const small[] = {&u->pids_peak, &u->oom_kills, &u->pids_refused,
                               &u->stragglers_killed};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        *large[i] = record_get(in);
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
        *small[i] = (uint32_t)record_get(in);
}

static void run_record_read_capture(struct record_in *in, struct capture *c) {
    uint64_t total = record_get(in);
    size_t head_len = 0, tail_len = 0;
    char *head = record_get_copy(in, &head_len);
    char *tail = record_get_copy(in, &tail_len);
    if (in->bad || head_len > total || tail_len > total - head_len) {
        in->bad = true;
        free(head);
        free(tail);
        return;
    }
    capture_restore(c, total, head, head_len, tail, tail_len);
}

static void run_record_read_step(struct record_in *in, struct run *run, size_t index) {
    if (index >= run->step_count) {
        in->bad = true;
        return;
    }
    struct run_step *step = &run->steps[index];
    size_t len = 0;
    step->name = record_get_copy(in, &len);
    uint64_t state = record_get(in), flags = record_get(in);
    step->state = state <= RUN_STEP_SKIPPED ? (enum run_step_state)state : RUN_STEP_QUEUED;
    step->ok = (flags & 1) != 0;
    step->merged = (flags & 2) != 0;
    step->continue_on_error = (flags & 4) != 0;
    step->has_usage = (flags & 8) != 0;
    step->limits = run->limits;
    if ((flags & 16) != 0)
        run_record_read_limits(in, &step->limits);
    if (step->state == RUN_STEP_DONE) {
        step->ended = true;
        run_record_read_end(in, &step->end);
        run_record_read_usage(in, &step->usage);
        run_record_read_capture(in, &step->out.capture);
        run_record_read_capture(in, &step->err.capture);
    } else if (step->state == RUN_STEP_RUNNING && run->phase == RUN_DONE) {
        in->bad = true;
    }
    if (step->name == NULL)
        in->bad = true;
}

static void run_record_read_event(struct record_in *in, struct events_record *r,
                                  const struct run *run) {
    r->seq = record_get(in);
    r->type = (uint8_t)record_get(in);
    r->step = (uint16_t)record_get(in);
    r->sealed = true;
    if (r->type == EVENTS_STDOUT || r->type == EVENTS_STDERR) {
        r->offset = record_get(in);
        r->len = record_get(in);
    } else if (r->type == EVENTS_GAP_STDOUT || r->type == EVENTS_GAP_STDERR) {
        r->len = record_get(in);
    }
    if (r->type < EVENTS_STARTED || r->type > EVENTS_GAP_STDERR || r->step >= run->step_count ||
        r->len > UINT64_MAX / 2 || r->offset > UINT64_MAX / 2)
        in->bad = true;
}

static struct events_record *run_record_read_list(struct record_in *in, uint64_t count,
                                                  const struct run *run) {
    struct events_record *list = count == 0 || in->bad ? NULL : calloc(count, sizeof(*list));
    if (list == NULL && count > 0)
        in->bad = true;
    for (uint64_t i = 0; i < count && !in->bad; i++)
        run_record_read_event(in, &list[i], run);
    return list;
}

/* Whoever follows goes from number to number, and would never come to an end otherwise. */
static bool run_record_events_in_order(const struct events_record *list, uint64_t count,
                                       uint64_t before) {
    for (uint64_t i = 0; i < count; i++) {
        if (list[i].seq <= before || list[i].seq == UINT64_MAX)
            return false;
        before = list[i].seq;
    }
    return true;
}

static void run_record_read_events(struct record_in *in, struct run *run) {
    struct events *e = &run->events;
    uint64_t first = record_get(in), mid = record_get(in), last = record_get(in);
    /* Each takes three bytes at least. */
    if (in->bad || first > EVENTS_KEEP || last > EVENTS_KEEP || mid > in->len || e->first != NULL) {
        in->bad = true;
        return;
    }
    e->first = run_record_read_list(in, first, run);
    e->mid = run_record_read_list(in, mid, run);
    e->last = run_record_read_list(in, last, run);
    if (in->bad)
        return;
    if (!run_record_events_in_order(e->first, first, 0) ||
        !run_record_events_in_order(e->mid, mid, first) ||
        !run_record_events_in_order(e->last, last, mid > 0 ? e->mid[mid - 1].seq : first)) {
        in->bad = true;
        return;
    }
    e->first_count = e->first_alloc = (size_t)first;
    e->mid_count = e->mid_alloc = (size_t)mid;
    e->last_count = e->last_alloc = (size_t)last;
    const struct events_record *newest = last > 0    ? &e->last[last - 1]
                                         : mid > 0   ? &e->mid[mid - 1]
                                         : first > 0 ? &e->first[first - 1]
                                                     : NULL;
    e->next_seq = newest != NULL ? newest->seq + 1 : 1;
    /* Records 1 … n are found by their number, and so are those of the ring. */
    for (size_t i = 0; i < e->first_count; i++)
        if (e->first[i].seq != i + 1)
            in->bad = true;
    for (size_t i = 1; i < e->last_count; i++)
        if (e->last[i].seq != e->last[0].seq + i)
            in->bad = true;
}

static void run_record_read_keep(struct record_in *in, struct run *run) {
    char shard[LINK_NAME_MAX], error[256], key[SANDBOX_ID_SIZE];
    record_get_text(in, shard, sizeof(shard));
    record_get_text(in, error, sizeof(error));
    if (in->bad || run->keep != NULL || run->steps == NULL || run_keep_new(run) < 0) {
        in->bad = true;
        return;
    }
    run_keep_restore(run, shard, error);
    for (size_t i = 0; i < run->step_count; i++) {
        record_get_text(in, key, sizeof(key));
        run_keep_restore_key(run, i, key);
    }
}

static void run_record_read_trace(struct record_in *in, struct run *run) {
    record_get_text(in, run->label, sizeof(run->label));
    record_get_bytes(in, &run->trace, sizeof(run->trace));
    record_get_text(in, run->store.token, sizeof(run->store.token));
    run->trace.from[sizeof(run->trace.from) - 1] = '\0';
}

static void run_record_read_receipt(struct record_in *in, struct run *run) {
    size_t len = 0;
    free(run->receipt);
    run->receipt = record_get_copy(in, &len);
}

static void run_record_read_bundle(struct record_in *in, struct run *run) {
    if (run->bundle.len > 0) {
        in->bad = true;
        return;
    }
    buf_init(&run->bundle, in->len + 1);
    if (buf_append(&run->bundle, in->data, in->len, NULL) < 0 || run_collect_restore(run) < 0)
        in->bad = true;
}

static void run_record_read_sections(struct record_in *all, struct run *run) {
    struct record_in in;
    uint64_t tag;
    size_t step = 0;
    while (!all->bad && record_next(all, &tag, &in)) {
        if (tag == RUN_RECORD_HEAD)
            run_record_read_head(&in, run);
        else if (run->steps == NULL)
            in.bad = true;
        else if (tag == RUN_RECORD_STEP)
            run_record_read_step(&in, run, step++);
        else if (tag == RUN_RECORD_EVENTS)
            run_record_read_events(&in, run);
        else if (tag == RUN_RECORD_BUNDLE)
            run_record_read_bundle(&in, run);
        else if (tag == RUN_RECORD_KEEP)
            run_record_read_keep(&in, run);
        else if (tag == RUN_RECORD_TRACE)
            run_record_read_trace(&in, run);
        else if (tag == RUN_RECORD_RECEIPT)
            run_record_read_receipt(&in, run);
        all->bad = all->bad || in.bad;
    }
    if (run->steps == NULL || step != run->step_count)
        all->bad = true;
}

struct run *run_record_read(struct runs *runs, const void *data, size_t len, struct err *err) {
    struct record_in in = {.data = data, .len = len};
    char magic[sizeof(run_record_magic)];
    struct run *run = run_blank(runs);
    if (run == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "reading a run: out of memory");
        return NULL;
    }
    record_get_raw(&in, magic, sizeof(magic));
    if (memcmp(magic, run_record_magic, sizeof(magic)) != 0)
        in.bad = true;
    run_record_read_sections(&in, run);
    if (!in.bad)
        return run;
    run_free(run);
    err_set(err, ERR_INVALID, 0, "what was stored of a run cannot be read");
    return NULL;
}
