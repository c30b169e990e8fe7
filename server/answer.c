#include "answer.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bundle.h"
#include "clock.h"
#include "image_check.h"
#include "json_out.h"
#include "text.h"

struct answer_bytes *answer_bytes_new(char *data, size_t len) {
    struct answer_bytes *b = malloc(sizeof(*b));
    if (b == NULL) {
        free(data);
        return NULL;
    }
    *b = (struct answer_bytes){.refs = 1, .len = len, .data = data};
    return b;
}

struct answer_bytes *answer_bytes_keep(struct answer_bytes *b) {
    b->refs++;
    return b;
}

void answer_bytes_drop(struct answer_bytes *b) {
    if (b == NULL || --b->refs > 0)
        return;
    free(b->data);
    free(b);
}

static const char *answer_state(const struct run *run) {
    switch (run->phase) {
    case RUN_QUEUED:
        return "queued";
    case RUN_DONE:
        return "done";
    default:
        return "running";
    }
}

static const char *answer_step_state(const struct run_step *step) {
    static const char *const names[] = {[RUN_STEP_QUEUED] = "queued",
                                        [RUN_STEP_RUNNING] = "running",
                                        [RUN_STEP_DONE] = "done",
                                        [RUN_STEP_SKIPPED] = "skipped"};
    return names[step->state];
}

void answer_usage(struct json_out *j, const struct wire_usage *u) {
    json_out_open(j, "usage", '{');
    json_out_u64(j, "wall_ms", u->wall_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "cpu_user_ms", u->cpu_user_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "cpu_system_ms", u->cpu_system_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "mem_peak_bytes", u->mem_peak_bytes);
    json_out_u64(j, "pids_peak", u->pids_peak);
    json_out_u64(j, "oom_kills", u->oom_kills);
    json_out_u64(j, "pids_refused", u->pids_refused);
    json_out_u64(j, "disk_bytes", u->disk_bytes);
    json_out_u64(j, "inodes", u->inodes);
    json_out_u64(j, "throttled_ms", u->throttled_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "stragglers_killed", u->stragglers_killed);
    json_out_close(j, '}');
}

/* The same as end_json_encode() gives, without a tree, for the end that nearly every step has. */
static void answer_end_exit(struct json_out *j, const struct step_end *end) {
    char message[END_MESSAGE_MAX];
    end_message(end, message, sizeof(message));
    json_out_open(j, "end", '{');
    json_out_str(j, "cause", cause_name(end->cause));
    json_out_i64(j, "exit_code", end->exit_code);
    json_out_null(j, "signal");
    json_out_str(j, "message", message);
    json_out_close(j, '}');
}

void answer_end(struct json_out *j, const struct step_end *end) {
    if (end->cause == CAUSE_EXIT && end->exit_code >= 0 && end->signal == 0 && end->limit == 0) {
        answer_end_exit(j, end);
        return;
    }
    json_t *tree = end_json_encode(end);
    json_out_tree(j, "end", tree);
    json_decref(tree);
}

static void answer_stream(struct json_out *j, const char *const keys[4], const struct capture *c) {
    struct capture_text text;
    struct iovec parts[2 * CAPTURE_PIECES + 1];
    char line[CAPTURE_LINE_SIZE];
    capture_text(c, &text);
    int n = capture_view(c, 0, text.head, parts);
    if (text.omitted > 0) {
        capture_line(text.omitted, line);
        parts[n++] = (struct iovec){.iov_base = line, .iov_len = strlen(line)};
    }
    if (text.tail > 0)
        n += capture_view(c, c->total - text.tail, text.tail, parts + n);
    json_out_bytes(j, &(struct json_out_bytes){.key = keys[0],
                                               .encoding_key = keys[1],
                                               .parts = parts,
                                               .count = (size_t)n,
                                               .utf8 = text.utf8});
    json_out_u64(j, keys[2], c->total);
    json_out_u64(j, keys[3], text.omitted);
}

void answer_outputs(struct json_out *j, const struct capture *out, const struct capture *err) {
    static const char *const out_keys[4] = {"stdout", "stdout_encoding", "stdout_bytes",
                                            "stdout_omitted"};
    static const char *const err_keys[4] = {"stderr", "stderr_encoding", "stderr_bytes",
                                            "stderr_omitted"};
    answer_stream(j, out_keys, out);
    answer_stream(j, err_keys, err);
}

static void answer_step_limits(struct json_out *j, const struct run *run,
                               const struct run_step *step) {
    json_t *changed = limits_json_encode_changed(&step->limits, &run->limits);
    if (changed == NULL || json_object_size(changed) > 0)
        json_out_tree(j, "limits", changed);
    json_decref(changed);
}

static void answer_step(struct json_out *j, const struct run *run, size_t index) {
    const struct run_step *step = &run->steps[index];
    json_out_open(j, NULL, '{');
    json_out_u64(j, "index", index);
    json_out_str(j, "name", step->name);
    json_out_str(j, "state", answer_step_state(step));
    json_out_bool(j, "ok", step->ok);
    if (step->state == RUN_STEP_DONE) {
        answer_end(j, &step->end);
        answer_outputs(j, &step->out.capture, &step->err.capture);
        answer_usage(j, &step->usage);
    }
    if (memcmp(&step->limits, &run->limits, sizeof(run->limits)) != 0)
        answer_step_limits(j, run, step);
    json_out_close(j, '}');
}

/* "path", and "path_encoding" only for a name that is not UTF-8. */
static void answer_path(struct json_out *j, const struct run_file *f) {
    struct iovec path = {.iov_base = (void *)(uintptr_t)f->path, .iov_len = f->path_len};
    if (!text_is_utf8(f->path, f->path_len)) {
        json_out_bytes(
            j, &(struct json_out_bytes){
                   .key = "path", .encoding_key = "path_encoding", .parts = &path, .count = 1});
        return;
    }
    json_out_raw(j, "path");
    if (!j->failed && text_append_json(j->buf, f->path, f->path_len, &j->err) < 0)
        j->failed = true;
}

static void answer_file(struct json_out *j, const struct run *run, const struct run_file *f) {
    struct iovec data = {.iov_base = (void *)(uintptr_t)f->data, .iov_len = f->size};
    char mode[8];
    json_out_open(j, NULL, '{');
    answer_path(j, f);
    if (f->code != BUNDLE_OK) {
        json_out_str(j, "error",
                     run->collect_error != NULL ? run->collect_error : bundle_code_name(f->code));
    } else {
        json_out_bytes(j, &(struct json_out_bytes){.key = "content",
                                                   .encoding_key = "encoding",
                                                   .parts = &data,
                                                   .count = 1,
                                                   .utf8 = text_is_utf8(f->data, f->size)});
        json_out_u64(j, "size", f->size);
        snprintf(mode, sizeof(mode), "0%03o", f->mode & 0777u);
        json_out_str(j, "mode", mode);
    }
    json_out_close(j, '}');
}

void answer_limits(struct json_out *j, const struct limits_effective *limits) {
    json_out_open(j, "limits", '{');
    for (int i = 0; i < LIMIT_COUNT; i++) {
        json_out_open(j, limit_info((enum limit_id)i)->name, '{');
        json_out_u64(j, "value", limits->values.v[i]);
        json_out_str(j, "from", limits_from_name(limits->from[i]));
        if (limits->from[i] == LIMITS_FROM_UNENFORCED)
            json_out_bool(j, "enforced", false);
        json_out_close(j, '}');
    }
    json_out_close(j, '}');
}

static void answer_timing(struct json_out *j, const struct run *run) {
    uint64_t until = run->dispatched_ns != 0  ? run->dispatched_ns
                     : run->phase >= RUN_SEAL ? run->ended_ns
                                              : clock_mono_ns();
    uint64_t ran = 0;
    if (run->begun_ns != 0) {
        uint64_t end = run->ended_ns != 0 ? run->ended_ns : clock_mono_ns();
        ran = end > run->begun_ns ? end - run->begun_ns : 0;
    }
    json_out_open(j, "timing", '{');
    json_out_u64(j, "queue_ms", (until - run->created_ns) / CLOCK_NS_PER_MS);
    json_out_u64(j, "setup_ms", run->setup_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "run_ms", ran / CLOCK_NS_PER_MS);
    json_out_u64(j, "setup_us", run->setup_ns / 1000);
    json_out_close(j, '}');
}

/* The step that ended the run; when all that failed were allowed to, the first of them. */
static void answer_failed_step(struct json_out *j, const struct run *run) {
    size_t found = run->step_count;
    for (size_t i = 0; i < run->step_count; i++) {
        const struct run_step *step = &run->steps[i];
        if (step->state != RUN_STEP_DONE || step->ok) {
            continue;
        }
        if (!step->continue_on_error) {
            found = i;
            break;
        }
        found = found == run->step_count ? i : found;
    }
    if (found < run->step_count)
        json_out_u64(j, "failed_step", found);
    else
        json_out_null(j, "failed_step");
}

void answer_end_on(struct json_out *j, uint32_t mask) {
    json_out_open(j, "end_on", '[');
    if (mask & END_ON_OUTPUT)
        json_out_str(j, NULL, "output");
    if (mask & END_ON_PIDS)
        json_out_str(j, NULL, "pids");
    if (mask & END_ON_DISK)
        json_out_str(j, NULL, "disk");
    json_out_close(j, ']');
}

static void answer_head(struct json_out *j, const struct run *run, const char *state) {
    json_out_str(j, "id", run->id);
    json_out_str(j, "state", state);
    json_out_bool(j, "ok", run->ok);
    answer_failed_step(j, run);
}

/* What is said about a file takes as long as so many bytes of it. */
#define ANSWER_FILE 128u

size_t answer_weight(const struct run *run) {
    size_t bytes = run->bundle.len + run->file_count * ANSWER_FILE;
    for (size_t i = 0; i < run->step_count; i++)
        bytes +=
            capture_memory(&run->steps[i].out.capture) + capture_memory(&run->steps[i].err.capture);
    return bytes;
}

/* The last member: people read what is above it. */
static void answer_receipt(struct json_out *j, const struct run *run) {
    if (run->phase != RUN_DONE || run->receipt == NULL)
        return;
    json_out_raw(j, "receipt");
    if (!j->failed && buf_puts(j->buf, run->receipt, &j->err) < 0)
        j->failed = true;
}

int answer_encode(const struct run *run, size_t position, struct buf *out, struct err *err) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_open(&j, NULL, '{');
    answer_head(&j, run, answer_state(run));
    if (run->phase == RUN_QUEUED)
        json_out_u64(&j, "position", position);
    json_out_open(&j, "steps", '[');
    for (size_t i = 0; i < run->step_count; i++)
        answer_step(&j, run, i);
    json_out_close(&j, ']');
    json_out_open(&j, "files", '[');
    for (size_t i = 0; i < run->file_count; i++)
        answer_file(&j, run, &run->files[i]);
    json_out_close(&j, ']');
    answer_limits(&j, &run->limits);
    answer_end_on(&j, run->end_on);
    json_out_open(&j, "policy", '{');
    json_out_str(&j, "name", run->policy.name);
    json_out_hex(&j, "sha256", run->policy.sha256, sizeof(run->policy.sha256));
    json_out_close(&j, '}');
    json_out_str(&j, "image", run->image);
    json_out_str(&j, "backend", backend_name(run->backend));
    image_check_write(&j, run->image_sha256);
    run_keep_write(&j, run);
    answer_timing(&j, run);
    json_out_open(&j, "network", '{');
    json_out_str(&j, "mode", "none");
    json_out_close(&j, '}');
    json_out_u64(&j, "created_at", run->created_ms);
    json_out_str(&j, "label", run->label);
    trace_write(&j, &run->trace);
    answer_receipt(&j, run);
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}

const struct step_end *answer_run_end(const struct run *run) {
    const struct step_end *last = NULL;
    for (size_t i = 0; i < run->step_count; i++) {
        if (run->steps[i].state != RUN_STEP_DONE)
            continue;
        last = &run->steps[i].end;
        if (!run->steps[i].ok && !run->steps[i].continue_on_error)
            break;
    }
    return last;
}

int answer_encode_summary(const struct run *run, bool over, struct buf *out, struct err *err) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_open(&j, NULL, '{');
    answer_head(&j, run, over ? "done" : answer_state(run));
    json_out_u64(&j, "created_at", run->created_ms);
    json_out_str(&j, "policy", run->policy.name);
    json_out_str(&j, "image", run->image);
    json_out_u64(&j, "steps", run->step_count);
    const struct step_end *end = run->phase >= RUN_SEAL ? answer_run_end(run) : NULL;
    if (end != NULL)
        json_out_str(&j, "cause", cause_name(end->cause));
    if (end != NULL && end->exit_code >= 0)
        json_out_i64(&j, "exit_code", end->exit_code);
    json_out_close(&j, '}');
    return json_out_end(&j, err);
}

/* Events. */

/* What a follower came too late for, per stream, until the next event that is there. */
struct answer_lost {
    uint64_t bytes[2], seq[2];
};

static void answer_event_head(struct json_out *j, uint64_t seq, const char *type, uint16_t step) {
    json_out_open(j, NULL, '{');
    json_out_u64(j, "seq", seq);
    json_out_str(j, "type", type);
    json_out_u64(j, "step", step);
}

int answer_event_close(struct json_out *j, struct err *err) {
    json_out_close(j, '}');
    if (json_out_end(j, err) < 0)
        return -1;
    return buf_append(j->buf, "\n", 1, err);
}

void answer_event_cut(struct buf *out) {
    while (out->len > 0 && out->data[out->len - 1] != '\n')
        out->len--;
}

static int answer_event_lost(struct answer_lost *lost, uint16_t step, struct buf *out,
                             struct err *err) {
    int first = lost->seq[0] <= lost->seq[1] ? 0 : 1;
    for (int k = 0; k < 2; k++) {
        int i = k == 0 ? first : 1 - first;
        struct json_out j;
        if (lost->seq[i] == 0)
            continue;
        json_out_init(&j, out);
        answer_event_head(&j, lost->seq[i], "omitted", step);
        json_out_str(&j, "stream", i == 0 ? "stdout" : "stderr");
        json_out_u64(&j, "bytes", lost->bytes[i]);
        if (answer_event_close(&j, err) < 0)
            return -1;
    }
    *lost = (struct answer_lost){0};
    return 0;
}

static int answer_event_output(const struct events_record *r, const struct capture *c,
                               struct buf *out, struct err *err) {
    struct json_out j;
    struct iovec parts[CAPTURE_PIECES];
    int n = capture_view(c, r->offset, (size_t)r->len, parts);
    /* A character may lie across two pieces; then the whole is looked at through a copy. */
    bool utf8 = true;
    char *copy = NULL;
    if (n > 1 && (copy = malloc((size_t)r->len)) != NULL) {
        size_t at = 0;
        for (int i = 0; i < n; i++) {
            memcpy(copy + at, parts[i].iov_base, parts[i].iov_len);
            at += parts[i].iov_len;
        }
        parts[0] = (struct iovec){.iov_base = copy, .iov_len = at};
        n = 1;
    }
    for (int i = 0; i < n; i++)
        utf8 = utf8 && text_is_utf8(parts[i].iov_base, parts[i].iov_len);
    json_out_init(&j, out);
    json_out_open(&j, NULL, '{');
    json_out_u64(&j, "seq", r->seq);
    json_out_str(&j, "type", r->type == EVENTS_STDOUT ? "stdout" : "stderr");
    json_out_u64(&j, "step", r->step);
    json_out_bytes(&j, &(struct json_out_bytes){.key = "data",
                                                .encoding_key = "encoding",
                                                .parts = parts,
                                                .count = (size_t)n,
                                                .utf8 = utf8});
    free(copy);
    return answer_event_close(&j, err);
}

static int answer_event_plain(const struct run *run, const struct events_record *r, struct buf *out,
                              struct err *err) {
    struct json_out j;
    const struct run_step *step = &run->steps[r->step];
    json_out_init(&j, out);
    switch (r->type) {
    case EVENTS_STARTED:
        answer_event_head(&j, r->seq, "started", r->step);
        json_out_str(&j, "name", step->name);
        break;
    case EVENTS_END:
        answer_event_head(&j, r->seq, "end", r->step);
        json_out_bool(&j, "ok", step->ok);
        answer_end(&j, &step->end);
        answer_usage(&j, &step->usage);
        break;
    case EVENTS_SKIPPED:
        answer_event_head(&j, r->seq, "skipped", r->step);
        break;
    default:
        json_out_open(&j, NULL, '{');
        json_out_u64(&j, "seq", r->seq);
        json_out_str(&j, "type", "done");
        json_out_bool(&j, "ok", run->ok);
        answer_failed_step(&j, run);
        break;
    }
    return answer_event_close(&j, err);
}

/* Is it output (0 stdout, 1 stderr)? -1: it is not. */
static int answer_event_stream(const struct events_record *r) {
    if (r->type == EVENTS_STDOUT || r->type == EVENTS_GAP_STDOUT)
        return 0;
    return r->type == EVENTS_STDERR || r->type == EVENTS_GAP_STDERR ? 1 : -1;
}

static void answer_event_seen(struct run_watcher *w, struct events_record *r, int stream) {
    r->sealed = true;
    w->after = r->seq;
    if (w->step != r->step) {
        w->step = r->step;
        w->offset[0] = 0;
        w->offset[1] = 0;
    }
    if (stream >= 0 && r->type != EVENTS_GAP_STDOUT && r->type != EVENTS_GAP_STDERR)
        w->offset[stream] = r->offset + r->len;
}

int answer_events(struct run *run, struct run_watcher *w, size_t want, struct buf *out,
                  struct err *err) {
    struct answer_lost lost = {0};
    struct events_record *r;
    uint16_t lost_step = 0;
    bool last = false;
    while ((r = events_after(&run->events, w->after)) != NULL && out->len < want) {
        if (r->type == EVENTS_DONE && run->phase != RUN_DONE)
            break; /* not before it is durable */
        int stream = answer_event_stream(r);
        if (stream >= 0) {
            const struct run_step *step = &run->steps[r->step];
            const struct capture *c = stream == 0 ? &step->out.capture : &step->err.capture;
            bool there = (r->type == EVENTS_STDOUT || r->type == EVENTS_STDERR) &&
                         capture_has(c, r->offset, (size_t)r->len);
            if (!there) {
                lost.bytes[stream] += r->len;
                lost.seq[stream] = r->seq;
                lost_step = r->step;
                answer_event_seen(w, r, stream);
                continue;
            }
            if (answer_event_lost(&lost, lost_step, out, err) < 0 ||
                answer_event_output(r, c, out, err) < 0)
                return -1;
        } else {
            if (answer_event_lost(&lost, lost_step, out, err) < 0 ||
                answer_event_plain(run, r, out, err) < 0)
                return -1;
            last = r->type == EVENTS_DONE;
        }
        answer_event_seen(w, r, stream);
    }
    if (answer_event_lost(&lost, lost_step, out, err) < 0)
        return -1;
    if (!last && run->phase == RUN_DONE && events_after(&run->events, w->after) == NULL)
        last = true;
    return last ? 1 : 0;
}
