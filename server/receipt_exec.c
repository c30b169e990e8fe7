#include "receipt_exec.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "execs.h"
#include "execution.h"
#include "json_out.h"
#include "receipt_parts.h"
#include "receipt_run.h"
#include "sandboxes.h"
#include "str.h"
#include "sync.h"

#define RECEIPT_EXEC_TEXT_MAX ((size_t)128 * 1024)

/* In host byte order: only this machine reads it again. */
struct receipt_exec {
    struct audit_mark accepted;
    uint32_t head, env, sh, input, end; /* of `text`: as in struct receipt_run_step */
    uint32_t text_len, root_len;        /* root: behind the text; 0 = no tree is known */
    uint64_t files, bytes;              /* of the tree */
    uint64_t others;                    /* what may have changed it before this began */
    uint8_t sha256[32];
    uint32_t whole, reserved;
    char text[];
};

/* The variables of the sandbox count as those of a run do: the command's own come before them. */
static struct receipt_inputs *receipt_exec_inputs(const struct sandbox *sb,
                                                  const struct exec_request *r) {
    struct run_request view = r->run;
    view.env = *sandbox_env(sb);
    view.file_count = 0;
    return receipt_inputs_new(&view);
}

static void receipt_exec_tree(struct receipt_exec *x, const struct sandbox *sb,
                              const struct sync_manifest *m) {
    x->files = m->files;
    x->bytes = m->bytes;
    x->whole = m->whole;
    x->others = m->others + (sandbox_activity(sb).writes - m->writes);
    memcpy(x->sha256, m->sha256, sizeof(x->sha256));
}

struct receipt_exec *receipt_exec_new(const struct sandbox *sb, const struct exec_request *r,
                                      const struct audit_mark *accepted) {
    struct receipt_inputs *in = receipt_exec_inputs(sb, r);
    struct receipt_exec *x = NULL;
    struct sync_manifest manifest;
    const char *root = "";
    bool tree = sync_manifest_of(sb, request_cwd(&r->run, 0), &manifest, &root);
    size_t root_len = strlen(root);
    if (in != NULL && in->text.len <= RECEIPT_EXEC_TEXT_MAX)
        x = calloc(1, sizeof(*x) + in->text.len + root_len);
    if (x != NULL) {
        const struct receipt_run_step *at = &in->steps[0];
        x->accepted = *accepted;
        x->head = (uint32_t)at->head;
        x->env = (uint32_t)at->env;
        x->sh = (uint32_t)at->sh;
        x->input = (uint32_t)at->input;
        x->end = (uint32_t)at->end;
        x->text_len = (uint32_t)in->text.len;
        x->root_len = (uint32_t)root_len;
        memcpy(x->text, in->text.data, in->text.len);
        memcpy(x->text + in->text.len, root, root_len);
        if (tree)
            receipt_exec_tree(x, sb, &manifest);
    }
    receipt_inputs_free(in);
    return x;
}

void receipt_exec_free(struct receipt_exec *x) {
    free(x);
}

struct iovec receipt_exec_bytes(const struct receipt_exec *x) {
    return (struct iovec){.iov_base = (void *)(uintptr_t)x,
                          .iov_len = sizeof(*x) + x->text_len + x->root_len};
}

struct receipt_exec *receipt_exec_read(const void *bytes, size_t len) {
    struct receipt_exec *x = len >= sizeof(*x) ? malloc(len) : NULL;
    if (x == NULL)
        return NULL;
    memcpy(x, bytes, len);
    if (x->text_len <= RECEIPT_EXEC_TEXT_MAX && x->root_len <= FILEOP_PATH_MAX &&
        len == sizeof(*x) + x->text_len + x->root_len && x->head <= x->env && x->env <= x->sh &&
        x->sh <= x->input && x->input <= x->end && x->end <= x->text_len)
        return x;
    free(x);
    return NULL;
}

/* Members that were written beforehand. */
static void receipt_exec_copy(struct json_out *j, const struct receipt_exec *x, uint32_t from,
                              uint32_t to) {
    if (from == to)
        return;
    json_out_raw(j, NULL);
    if (!j->failed && buf_append(j->buf, x->text + from, to - from, &j->err) < 0)
        j->failed = true;
}

static void receipt_exec_step(struct json_out *j, const struct exec *x,
                              const struct capture c[SPOOL_STREAMS]) {
    const struct receipt_exec *in = x->receipt;
    uint8_t hash[32]; /* only runs tell their outputs' digests a second time, to the audit log */
    json_out_open(j, NULL, '{');
    receipt_exec_copy(j, in, in->head, in->env);
    receipt_parts_end(j, &x->end);
    receipt_exec_copy(j, in, in->env, in->sh);
    if ((x->flags & EXEC_MERGED) != 0)
        json_out_u64(j, "merge_stderr", 1);
    json_out_str(j, "name", x->name);
    json_out_u64(j, "ok", x->ok ? 1 : 0);
    if ((x->flags & EXEC_PTY) != 0)
        json_out_u64(j, "pty", 1);
    receipt_exec_copy(j, in, in->sh, in->input);
    json_out_str(j, "state", "done");
    receipt_parts_output(j, "stderr", &c[SPOOL_STDERR], hash);
    receipt_exec_copy(j, in, in->input, in->end);
    if ((x->flags & (EXEC_PTY | EXEC_STDIN_OPEN)) != 0)
        json_out_u64(j, "stdin_open", 1);
    receipt_parts_output(j, "stdout", &c[SPOOL_STDOUT], hash);
    receipt_parts_usage(j, &x->usage);
    json_out_close(j, '}');
}

static void receipt_exec_files(struct json_out *j, const struct exec *x) {
    const struct receipt_exec *in = x->receipt;
    char root[FILEOP_PATH_MAX + 1];
    uint64_t others = in->others + x->others;
    if (in->root_len == 0)
        return;
    memcpy(root, in->text + in->text_len, in->root_len);
    root[in->root_len] = '\0';
    json_out_open(j, "files_in", '{');
    receipt_parts_u64(j, "bytes", in->bytes);
    receipt_parts_u64(j, "count", in->files);
    receipt_parts_u64(j, "others", others < in->others ? UINT64_MAX : others);
    json_out_str(j, "root", root);
    receipt_inputs_hex(j, "sha256", in->sha256);
    json_out_u64(j, "whole", in->whole != 0 ? 1 : 0);
    json_out_close(j, '}');
}

static int receipt_exec_body(struct json_out *j, const struct exec *x,
                             const struct receipt_exec_place *place,
                             const struct capture c[SPOOL_STREAMS]) {
    const struct receipt_exec *in = x->receipt;
    json_out_open(j, NULL, '{');
    if (in->accepted.seq != 0) {
        json_out_open(j, "audit", '{');
        receipt_inputs_hex(j, "hash", in->accepted.hash);
        json_out_u64(j, "seq", in->accepted.seq);
        json_out_close(j, '}');
    }
    if (place->backend == BACKEND_DOCKER)
        json_out_str(j, "backend", backend_name(place->backend));
    json_out_u64(j, "created_at", x->created_ms);
    json_out_u64(j, "ended_at", x->ended_ms);
    receipt_exec_files(j, x);
    json_out_str(j, "id", x->id);
    json_out_open(j, "image", '{');
    json_out_str(j, "name", place->image);
    if (!sodium_is_zero(place->image_sha256, sizeof(place->image_sha256)))
        receipt_inputs_hex(j, "sha256", place->image_sha256);
    json_out_close(j, '}');
    json_out_str(j, "key", place->key->id);
    receipt_parts_limits(j, &x->limits.values);
    json_out_str(j, "network", "none");
    json_out_u64(j, "ok", x->ok ? 1 : 0);
    json_out_open(j, "policy", '{');
    json_out_str(j, "name", place->policy);
    receipt_inputs_hex(j, "sha256", place->policy_sha256);
    json_out_close(j, '}');
    json_out_u64(j, "receipt", RECEIPT_VERSION);
    json_out_str(j, "sandbox", place->sandbox);
    json_out_open(j, "steps", '[');
    receipt_exec_step(j, x, c);
    json_out_close(j, ']');
    json_out_str(j, "user", place->owner);
    json_out_close(j, '}');
    return j->failed ? -1 : 0;
}

static int receipt_exec_sign(const struct receipt_key *key, struct buf *out, size_t start,
                             struct err *err) {
    char message[RECEIPT_MESSAGE_SIZE], signature[2 * RECEIPT_SIGNATURE_SIZE + 1];
    receipt_message(out->data + start, out->len - start, message);
    receipt_key_sign(key, message, RECEIPT_MESSAGE_SIZE - 1, signature);
    return buf_printf(out, err, ",\"signature\":\"%s\"}", signature);
}

void receipt_exec_place(const struct exec *x, const struct receipt_key *key,
                        struct receipt_exec_place *out) {
    const struct sandbox *sb = x->set->sandbox;
    const struct wire_policy *policy = sandbox_policy(sb);
    *out = (struct receipt_exec_place){.backend = sandbox_spec(sb)->backend, .key = key};
    str_copy(out->sandbox, sizeof(out->sandbox), sandbox_id(sb));
    str_copy(out->owner, sizeof(out->owner), sandbox_owner(sb));
    str_copy(out->image, sizeof(out->image), sandbox_spec(sb)->image);
    str_copy(out->policy, sizeof(out->policy), policy->name);
    memcpy(out->policy_sha256, policy->sha256, sizeof(out->policy_sha256));
    memcpy(out->image_sha256, sandbox_spec(sb)->image_sha256, sizeof(out->image_sha256));
}

int receipt_exec_write(const struct exec *x, const struct receipt_exec_place *place,
                       struct spool streams[SPOOL_STREAMS], struct buf *out, struct err *err) {
    static const char front[] = "{\"body\":";
    struct capture c[SPOOL_STREAMS];
    struct json_out j;
    int have = 0, rc = 0;
    for (; rc == 0 && have < SPOOL_STREAMS; have += rc == 0)
        rc = exec_answer_capture(&streams[have], &c[have], err);
    size_t start = out->len + sizeof(front) - 1;
    if (rc == 0)
        rc = buf_puts(out, front, err);
    json_out_init(&j, out);
    if (rc == 0 && receipt_exec_body(&j, x, place, c) < 0)
        rc = err_set(err, ERR_SYSTEM, ENOMEM, "making a receipt: out of memory");
    if (rc == 0)
        rc = receipt_exec_sign(place->key, out, start, err);
    while (have > 0)
        capture_done(&c[--have]);
    return rc;
}
