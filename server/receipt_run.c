#include "receipt_run.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "bundle.h"
#include "clock.h"
#include "json_out.h"
#include "run.h"

#define RECEIPT_RUN_MAX ((size_t)64 * 1024 * 1024)

/* In the order of their names. */
static const enum limit_id receipt_run_limits[LIMIT_COUNT] = {
    LIMIT_CPU_MS, LIMIT_CPUS_MILLI,  LIMIT_DISK_BYTES, LIMIT_FILE_BYTES,
    LIMIT_INODES, LIMIT_MEM_BYTES,   LIMIT_OPEN_FILES, LIMIT_OUTPUT_BYTES,
    LIMIT_PIDS,   LIMIT_STACK_BYTES, LIMIT_WALL_MS,
};

/* A number as JSON readers can hold it. */
static void receipt_run_u64(struct json_out *j, const char *key, uint64_t value) {
    json_out_u64(j, key, value <= INT64_MAX ? value : INT64_MAX);
}

static void receipt_run_write_limits(struct json_out *j, const struct limits *limits) {
    json_out_open(j, "limits", '{');
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        receipt_run_u64(j, limit_info(receipt_run_limits[i])->name,
                        limits->v[receipt_run_limits[i]]);
    json_out_close(j, '}');
}

/* Members that were written beforehand. */
static void receipt_run_copy(struct json_out *j, const struct receipt_inputs *in, size_t from,
                             size_t to) {
    if (from == to)
        return;
    json_out_raw(j, NULL);
    if (!j->failed && buf_append(j->buf, in->text.data + from, to - from, &j->err) < 0)
        j->failed = true;
}

/* What the answer shows of an output, as bytes. */
static uint64_t receipt_run_hash_output(const struct capture *c, uint8_t hash[32]) {
    struct capture_text text;
    struct iovec parts[2 * CAPTURE_PIECES + 1];
    char line[CAPTURE_LINE_SIZE];
    crypto_hash_sha256_state state;
    capture_text(c, &text);
    int n = capture_view(c, 0, text.head, parts);
    if (text.omitted > 0) {
        capture_line(text.omitted, line);
        parts[n++] = (struct iovec){.iov_base = line, .iov_len = strlen(line)};
    }
    if (text.tail > 0)
        n += capture_view(c, c->total - text.tail, text.tail, parts + n);
    crypto_hash_sha256_init(&state);
    for (int i = 0; i < n; i++)
        crypto_hash_sha256_update(&state, parts[i].iov_base, parts[i].iov_len);
    crypto_hash_sha256_final(&state, hash);
    return text.omitted;
}

static void receipt_run_output(struct json_out *j, const char *key, const struct capture *c,
                               uint8_t hash[32]) {
    uint64_t omitted = receipt_run_hash_output(c, hash);
    json_out_open(j, key, '{');
    receipt_run_u64(j, "bytes", c->total);
    receipt_run_u64(j, "omitted", omitted);
    receipt_inputs_hex(j, "sha256", hash);
    json_out_close(j, '}');
}

static void receipt_run_end(struct json_out *j, const struct step_end *end) {
    json_out_open(j, "end", '{');
    json_out_str(j, "cause", cause_name(end->cause));
    if (end->exit_code >= 0)
        json_out_i64(j, "exit_code", end->exit_code);
    if (end->limit != 0) {
        receipt_run_u64(j, "limit", end->limit);
        receipt_run_u64(j, "observed", end->observed);
    }
    if (end->signal != 0)
        json_out_i64(j, "signal", end->signal);
    json_out_close(j, '}');
}

static void receipt_run_usage(struct json_out *j, const struct wire_usage *u) {
    json_out_open(j, "usage", '{');
    receipt_run_u64(j, "cpu_system_ms", u->cpu_system_ns / CLOCK_NS_PER_MS);
    receipt_run_u64(j, "cpu_user_ms", u->cpu_user_ns / CLOCK_NS_PER_MS);
    receipt_run_u64(j, "mem_peak_bytes", u->mem_peak_bytes);
    receipt_run_u64(j, "wall_ms", u->wall_ns / CLOCK_NS_PER_MS);
    json_out_close(j, '}');
}

static void receipt_run_step(struct json_out *j, const struct run *run, size_t index) {
    const struct run_step *step = &run->steps[index];
    struct receipt_inputs *in = run->inputs;
    struct receipt_run_step *at = &in->steps[index];
    bool done = step->state == RUN_STEP_DONE;
    json_out_open(j, NULL, '{');
    receipt_run_copy(j, in, at->head, at->env);
    if (done)
        receipt_run_end(j, &step->end);
    receipt_run_copy(j, in, at->env, at->sh);
    if (memcmp(&step->limits.values, &run->limits.values, sizeof(run->limits.values)) != 0)
        receipt_run_write_limits(j, &step->limits.values);
    json_out_str(j, "name", step->name);
    json_out_u64(j, "ok", step->ok ? 1 : 0);
    receipt_run_copy(j, in, at->sh, at->input);
    json_out_str(j, "state", done ? "done" : "skipped");
    if (done)
        receipt_run_output(j, "stderr", &step->err.capture, at->err);
    receipt_run_copy(j, in, at->input, at->end);
    if (done) {
        receipt_run_output(j, "stdout", &step->out.capture, at->out);
        receipt_run_usage(j, &step->usage);
    }
    json_out_close(j, '}');
}

static int receipt_run_files_out(struct json_out *j, const struct run *run) {
    struct receipt_file *files = calloc(run->file_count + 1, sizeof(*files));
    uint8_t root[32];
    if (files == NULL)
        return -1;
    for (size_t i = 0; i < run->file_count; i++) {
        const struct run_file *f = &run->files[i];
        files[i] = (struct receipt_file){
            .path = f->path, .path_len = f->path_len, .mode = f->mode & 0777u, .size = f->size};
        if (f->code != BUNDLE_OK)
            files[i].error =
                run->collect_error != NULL ? run->collect_error : bundle_code_name(f->code);
        else
            crypto_hash_sha256(files[i].sha256, (const unsigned char *)f->data, f->size);
    }
    receipt_files_sort(files, run->file_count);
    json_out_open(j, "files_out", '{');
    receipt_inputs_write_files(j, files, run->file_count, root);
    json_out_close(j, '}');
    free(files);
    return 0;
}

static void receipt_run_audit(struct json_out *j, const struct run *run) {
    if (run->accepted.seq == 0)
        return;
    json_out_open(j, "audit", '{');
    receipt_inputs_hex(j, "hash", run->accepted.hash);
    json_out_u64(j, "seq", run->accepted.seq);
    json_out_close(j, '}');
}

static void receipt_run_image(struct json_out *j, const struct run *run) {
    json_out_open(j, "image", '{');
    json_out_str(j, "name", run->image);
    if (!sodium_is_zero(run->image_sha256, sizeof(run->image_sha256)))
        receipt_inputs_hex(j, "sha256", run->image_sha256);
    json_out_close(j, '}');
}

/* The body, canonical as it is written. */
static int receipt_run_body(struct json_out *j, const struct run *run, const char *key) {
    const struct receipt_inputs *in = run->inputs;
    json_out_open(j, NULL, '{');
    receipt_run_audit(j, run);
    if (run->backend == BACKEND_DOCKER)
        json_out_str(j, "backend", backend_name(run->backend));
    json_out_u64(j, "created_at", run->created_ms);
    json_out_u64(j, "ended_at",
                 run->created_ms + (run->ended_ns - run->created_ns) / CLOCK_NS_PER_MS);
    json_out_raw(j, "files_in");
    if (!j->failed && buf_append(j->buf, in->text.data, in->files_len, &j->err) < 0)
        j->failed = true;
    j->comma = true;
    if (receipt_run_files_out(j, run) < 0)
        return -1;
    json_out_str(j, "id", run->id);
    receipt_run_image(j, run);
    json_out_str(j, "key", key);
    receipt_run_write_limits(j, &run->limits.values);
    json_out_str(j, "network", "none");
    json_out_u64(j, "ok", run->ok ? 1 : 0);
    json_out_open(j, "policy", '{');
    json_out_str(j, "name", run->policy.name);
    receipt_inputs_hex(j, "sha256", run->policy.sha256);
    json_out_close(j, '}');
    json_out_u64(j, "receipt", RECEIPT_VERSION);
    json_out_open(j, "steps", '[');
    for (size_t i = 0; i < run->step_count; i++)
        receipt_run_step(j, run, i);
    json_out_close(j, ']');
    json_out_str(j, "user", run->owner);
    json_out_close(j, '}');
    return j->failed ? -1 : 0;
}

static int receipt_run_sign(struct run *run, const struct receipt_key *key, struct buf *out,
                            size_t start) {
    char message[RECEIPT_MESSAGE_SIZE], signature[2 * RECEIPT_SIGNATURE_SIZE + 1];
    receipt_message(out->data + start, out->len - start, message);
    memcpy(run->inputs->digest, message + RECEIPT_MESSAGE_SIZE - RECEIPT_DIGEST_HEX,
           RECEIPT_DIGEST_HEX);
    receipt_key_sign(key, message, RECEIPT_MESSAGE_SIZE - 1, signature);
    return buf_printf(out, NULL, ",\"signature\":\"%s\"}", signature);
}

size_t receipt_run_weight(const struct run *run) {
    return answer_weight(run);
}

int receipt_run_make(struct run *run, const struct receipt_key *key, struct err *err) {
    static const char front[] = "{\"body\":";
    struct json_out j;
    struct buf out;
    if (run->inputs == NULL)
        return 0;
    buf_init(&out, RECEIPT_RUN_MAX);
    (void)buf_reserve(&out, 2048, NULL);
    int rc = buf_puts(&out, front, err);
    json_out_init(&j, &out);
    if (rc == 0)
        rc = receipt_run_body(&j, run, key->id);
    if (rc == 0)
        rc = receipt_run_sign(run, key, &out, sizeof(front) - 1);
    if (rc == 0)
        run->receipt = buf_take(&out);
    buf_done(&out);
    return rc == 0 ? 0 : err_set(err, ERR_SYSTEM, ENOMEM, "making a receipt: out of memory");
}
