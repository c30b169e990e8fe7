#include "receipt_run.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "bundle.h"
#include "clock.h"
#include "json_out.h"
#include "receipt_parts.h"
#include "run.h"

#define RECEIPT_RUN_MAX ((size_t)64 * 1024 * 1024)

/* Members that were written beforehand. */
static void receipt_run_copy(struct json_out *j, const struct receipt_inputs *in, size_t from,
                             size_t to) {
    if (from == to)
        return;
    json_out_raw(j, NULL);
    if (!j->failed && buf_append(j->buf, in->text.data + from, to - from, &j->err) < 0)
        j->failed = true;
}

static void receipt_run_step(struct json_out *j, const struct run *run, size_t index) {
    const struct run_step *step = &run->steps[index];
    struct receipt_inputs *in = run->inputs;
    struct receipt_run_step *at = &in->steps[index];
    bool done = step->state == RUN_STEP_DONE;
    json_out_open(j, NULL, '{');
    receipt_run_copy(j, in, at->head, at->env);
    if (done)
        receipt_parts_end(j, &step->end);
    receipt_run_copy(j, in, at->env, at->sh);
    if (memcmp(&step->limits.values, &run->limits.values, sizeof(run->limits.values)) != 0)
        receipt_parts_limits(j, &step->limits.values);
    json_out_str(j, "name", step->name);
    json_out_u64(j, "ok", step->ok ? 1 : 0);
    receipt_run_copy(j, in, at->sh, at->input);
    json_out_str(j, "state", done ? "done" : "skipped");
    if (done)
        receipt_parts_output(j, "stderr", &step->err.capture, at->err);
    receipt_run_copy(j, in, at->input, at->end);
    if (done) {
        receipt_parts_output(j, "stdout", &step->out.capture, at->out);
        receipt_parts_usage(j, &step->usage);
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
    receipt_parts_limits(j, &run->limits.values);
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
    if (rc == 0) {
        /* It is kept as long as the run is: without the room that was only for writing it. */
        char *fit = realloc(out.data, out.len + 1);
        if (fit != NULL)
            out.data = fit;
        run->receipt = buf_take(&out);
    }
    buf_done(&out);
    return rc == 0 ? 0 : err_set(err, ERR_SYSTEM, ENOMEM, "making a receipt: out of memory");
}
