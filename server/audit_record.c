#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "accounts.h"
#include "audit.h"
#include "clock.h"
#include "execs.h"
#include "json_out.h"
#include "receipt_run.h"
#include "run.h"
#include "str.h"

/* A path is cut here: the log is bounded, whatever somebody asks for. */
#define AUDIT_RECORD_PATH 256u
/* Steps of a run that are named one by one; the digest of the receipt covers all of them. */
#define AUDIT_RECORD_STEPS 16u

static void audit_record_text(struct json_out *j, const char *key, const char *text) {
    if (text != NULL && text[0] != '\0')
        json_out_str(j, key, text);
}

static void audit_record_limits(struct json_out *j, const struct limits *limits) {
    json_out_open(j, "limits", '{');
    for (int i = 0; i < LIMIT_COUNT; i++)
        json_out_u64(j, limit_info((enum limit_id)i)->name, limits->v[i]);
    json_out_close(j, '}');
}

void audit_record_asked(struct buf *out, const struct audit_asked *x) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_str(&j, "type", x->type != NULL ? x->type : "accepted");
    json_out_str(&j, "what", x->what);
    audit_record_text(&j, "op", x->op);
    audit_record_text(&j, "id", x->id);
    audit_record_text(&j, "sandbox", x->sandbox);
    audit_record_text(&j, "user", x->user);
    audit_record_text(&j, "token", x->token);
    audit_record_text(&j, "policy", x->policy);
    if (x->policy_sha256 != NULL)
        receipt_inputs_hex(&j, "policy_sha256", x->policy_sha256);
    audit_record_text(&j, "image", x->image);
    if (x->image_sha256 != NULL && !sodium_is_zero(x->image_sha256, 32))
        receipt_inputs_hex(&j, "image_sha256", x->image_sha256);
    if (x->limits != NULL)
        audit_record_limits(&j, x->limits);
    if (x->argv_sha256 != NULL)
        receipt_inputs_hex(&j, "argv_sha256", x->argv_sha256);
    if (x->files_sha256 != NULL && x->files > 0) {
        json_out_u64(&j, "files", x->files);
        receipt_inputs_hex(&j, "files_sha256", x->files_sha256);
    }
    if (x->path != NULL) {
        char path[AUDIT_RECORD_PATH];
        str_escape(path, sizeof(path), x->path, strlen(x->path));
        json_out_str(&j, "path", path);
    }
    audit_record_text(&j, "from", x->from);
}

void audit_record_run(struct audit_asked *out, const struct run *run) {
    *out = (struct audit_asked){.what = "run",
                                .id = run->id,
                                .user = run->owner,
                                .token = run->token != NULL ? run->token->id : NULL,
                                .policy = run->policy.name,
                                .policy_sha256 = run->policy.sha256,
                                .image = run->image,
                                .image_sha256 = run->image_sha256,
                                .limits = &run->limits.values,
                                .argv_sha256 = run->inputs->argv_sha256,
                                .files = run->inputs->files,
                                .files_sha256 = run->inputs->files_sha256};
}

static void audit_record_end(struct json_out *j, const struct step_end *end) {
    json_out_str(j, "cause", cause_name(end->cause));
    if (end->exit_code >= 0)
        json_out_i64(j, "exit_code", end->exit_code);
    if (end->signal != 0)
        json_out_i64(j, "signal", end->signal);
}

static void audit_record_usage(struct json_out *j, const struct wire_usage *u) {
    json_out_u64(j, "wall_ms", u->wall_ns / CLOCK_NS_PER_MS);
    json_out_u64(j, "cpu_ms", (u->cpu_user_ns + u->cpu_system_ns) / CLOCK_NS_PER_MS);
    json_out_u64(j, "mem_peak_bytes", u->mem_peak_bytes);
}

static void audit_record_step(struct json_out *j, const struct run *run, size_t i) {
    const struct run_step *step = &run->steps[i];
    const struct receipt_inputs *in = run->inputs;
    audit_record_end(j, &step->end);
    audit_record_usage(j, &step->usage);
    json_out_u64(j, "stdout_bytes", step->out.capture.total);
    if (in != NULL && step->out.capture.total > 0)
        receipt_inputs_hex(j, "stdout_sha256", in->steps[i].out);
    json_out_u64(j, "stderr_bytes", step->err.capture.total);
    if (in != NULL && step->err.capture.total > 0)
        receipt_inputs_hex(j, "stderr_sha256", in->steps[i].err);
}

void audit_record_run_ended(struct buf *out, const struct run *run) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_str(&j, "type", "ended");
    json_out_str(&j, "what", "run");
    json_out_str(&j, "id", run->id);
    json_out_str(&j, "user", run->owner);
    json_out_bool(&j, "ok", run->ok);
    if (run->step_count == 1) {
        audit_record_step(&j, run, 0);
    } else {
        json_out_u64(&j, "steps", run->step_count);
        json_out_open(&j, "ends", '[');
        for (size_t i = 0; i < run->step_count && i < AUDIT_RECORD_STEPS; i++) {
            if (run->steps[i].state != RUN_STEP_DONE)
                continue;
            json_out_open(&j, NULL, '{');
            audit_record_step(&j, run, i);
            json_out_close(&j, '}');
        }
        json_out_close(&j, ']');
    }
    if (run->inputs != NULL)
        audit_record_text(&j, "receipt_sha512", run->inputs->digest);
}

void audit_record_exec_ended(struct buf *out, const struct exec *x) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_str(&j, "type", "ended");
    json_out_str(&j, "what", "exec");
    json_out_str(&j, "id", x->id);
    if (x->set->sandbox != NULL) {
        json_out_str(&j, "sandbox", sandbox_id(x->set->sandbox));
        json_out_str(&j, "user", sandbox_owner(x->set->sandbox));
    }
    json_out_bool(&j, "ok", x->ok);
    audit_record_end(&j, &x->end);
    audit_record_usage(&j, &x->usage);
    json_out_u64(&j, "stdout_bytes", x->out[SPOOL_STDOUT].spool.total);
    json_out_u64(&j, "stderr_bytes", x->out[SPOOL_STDERR].spool.total);
}
