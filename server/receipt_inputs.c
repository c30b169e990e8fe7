#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_out.h"
#include "receipt_run.h"
#include "text.h"

#define RECEIPT_INPUTS_MAX ((size_t)32 * 1024 * 1024)

static void receipt_inputs_hash(crypto_hash_sha256_state *state, const char *text) {
    crypto_hash_sha256_update(state, (const unsigned char *)text, strlen(text) + 1);
}

/* Of all commands, for the audit log. */
void receipt_inputs_argv(const struct run_request *r, uint8_t out[32]) {
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < r->step_count; i++) {
        const struct request_step *step = &r->steps[i];
        receipt_inputs_hash(&state, step->shell ? "sh" : "argv");
        for (size_t k = 0; k < step->argc; k++)
            receipt_inputs_hash(&state, step->argv[k]);
        receipt_inputs_hash(&state, "");
    }
    crypto_hash_sha256_final(&state, out);
}

void receipt_inputs_hex(struct json_out *j, const char *key, const uint8_t hash[32]) {
    json_out_hex(j, key, hash, 32);
}

static size_t receipt_inputs_argv_bytes(const struct request_step *step) {
    size_t bytes = 0;
    for (size_t k = 0; k < step->argc; k++)
        bytes += strlen(step->argv[k]) + 1;
    return bytes;
}

static void receipt_inputs_long(struct json_out *j, const char *key,
                                const struct request_step *step) {
    crypto_hash_sha256_state state;
    uint8_t hash[32];
    crypto_hash_sha256_init(&state);
    for (size_t k = 0; k < step->argc; k++)
        receipt_inputs_hash(&state, step->argv[k]);
    crypto_hash_sha256_final(&state, hash);
    receipt_inputs_hex(j, key, hash);
}

static void receipt_inputs_command(struct json_out *j, const struct request_step *step) {
    if (receipt_inputs_argv_bytes(step) > RECEIPT_ARGV_MAX) {
        receipt_inputs_long(j, "argv_sha256", step);
        return;
    }
    json_out_open(j, "argv", '[');
    for (size_t k = 0; k < step->argc; k++)
        json_out_str(j, NULL, step->argv[k]);
    json_out_close(j, ']');
}

static void receipt_inputs_script(struct json_out *j, const struct request_step *step) {
    if (receipt_inputs_argv_bytes(step) > RECEIPT_ARGV_MAX)
        receipt_inputs_long(j, "sh_sha256", step);
    else
        json_out_str(j, "sh", step->argv[0]);
}

static int receipt_inputs_compare(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return strcmp(x, y);
}

static size_t receipt_inputs_name(const char *item) {
    return strcspn(item, "=");
}

/* By their names alone. Names have no '=', so this is the order of the items as well. */
static int receipt_inputs_compare_names(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t i = 0;
    while (x[i] != '=' && x[i] == y[i])
        i++;
    return (unsigned char)x[i] - (unsigned char)y[i];
}

/* The step's variables and those of the run that it does not set anew. */
static size_t receipt_inputs_merge(const struct run_request *r, const struct request_step *step,
                                   const char **out) {
    const size_t own = step->env.count;
    size_t n = own;
    if (own > 0)
        memcpy(out, step->env.items, own * sizeof(*out));
    qsort(out, own, sizeof(*out), receipt_inputs_compare);
    for (size_t i = 0; i < r->env.count; i++)
        if (own == 0 ||
            bsearch(&r->env.items[i], out, own, sizeof(*out), receipt_inputs_compare_names) == NULL)
            out[n++] = r->env.items[i];
    qsort(out, n, sizeof(*out), receipt_inputs_compare);
    return n;
}

/* All of them for each step: many names of a run with many steps would be more than all it says. */
static void receipt_inputs_names(struct json_out *j, const char *const *items, size_t n) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += receipt_inputs_name(items[i]) + 1;
    if (bytes > RECEIPT_ENV_MAX)
        return;
    json_out_open(j, "env", '[');
    for (size_t i = 0; i < n; i++) {
        json_out_raw(j, NULL);
        if (!j->failed &&
            text_append_json(j->buf, items[i], receipt_inputs_name(items[i]), &j->err) < 0)
            j->failed = true;
    }
    json_out_close(j, ']');
}

static int receipt_inputs_env(struct json_out *j, const struct run_request *r,
                              const struct request_step *step) {
    size_t most = r->env.count + step->env.count;
    crypto_hash_sha256_state state;
    uint8_t hash[32];
    if (most == 0)
        return 0;
    const char **items = calloc(most, sizeof(*items));
    if (items == NULL)
        return -1;
    size_t n = receipt_inputs_merge(r, step, items);
    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < n; i++)
        receipt_inputs_hash(&state, items[i]);
    crypto_hash_sha256_final(&state, hash);
    receipt_inputs_names(j, items, n);
    receipt_inputs_hex(j, "env_sha256", hash);
    free(items);
    return 0;
}

static void receipt_inputs_stdin(struct json_out *j, const struct run_request *r, size_t index,
                                 const uint8_t *shared) {
    struct request_bytes in = request_input(r, index);
    uint8_t hash[32];
    if (in.data == NULL)
        return;
    if (in.sha256 != NULL)
        memcpy(hash, in.sha256, sizeof(hash));
    else if (in.data == r->input.data)
        memcpy(hash, shared, sizeof(hash));
    else
        crypto_hash_sha256(hash, (const unsigned char *)in.data, in.len);
    json_out_open(j, "stdin", '{');
    json_out_u64(j, "bytes", in.len);
    receipt_inputs_hex(j, "sha256", hash);
    json_out_close(j, '}');
}

/* Members come in the order of their keys, here and in receipt_run.c: the text is canonical as it
 * is written. */
static int receipt_inputs_step(struct receipt_inputs *in, struct json_out *j,
                               const struct run_request *r, size_t index, const uint8_t *shared) {
    const struct request_step *step = &r->steps[index];
    struct receipt_run_step *at = &in->steps[index];
    j->comma = false;
    at->head = in->text.len;
    if (!step->shell)
        receipt_inputs_command(j, step);
    json_out_str(j, "cwd", request_cwd(r, index));
    j->comma = false;
    at->env = in->text.len;
    if (receipt_inputs_env(j, r, step) < 0)
        return -1;
    j->comma = false;
    at->sh = in->text.len;
    if (step->shell)
        receipt_inputs_script(j, step);
    j->comma = false;
    at->input = in->text.len;
    receipt_inputs_stdin(j, r, index, shared);
    at->end = in->text.len;
    return j->failed ? -1 : 0;
}

static void receipt_inputs_file(struct json_out *j, const struct receipt_file *f) {
    bool utf8 = text_is_utf8(f->path, f->path_len);
    char mode[8];
    json_out_open(j, NULL, '{');
    if (f->error != NULL)
        json_out_str(j, "error", f->error);
    else {
        snprintf(mode, sizeof(mode), "%04o", f->mode & 07777u);
        json_out_str(j, "mode", mode);
    }
    json_out_raw(j, utf8 ? "path" : "path_base64");
    if (!j->failed && !utf8 && buf_puts(j->buf, "\"", &j->err) < 0)
        j->failed = true;
    if (!j->failed && (utf8 ? text_append_json(j->buf, f->path, f->path_len, &j->err)
                            : text_base64_encode(f->path, f->path_len, j->buf, &j->err)) < 0)
        j->failed = true;
    if (!j->failed && !utf8 && buf_puts(j->buf, "\"", &j->err) < 0)
        j->failed = true;
    if (f->error == NULL) {
        receipt_inputs_hex(j, "sha256", f->sha256);
        json_out_u64(j, "size", f->size);
    }
    json_out_close(j, '}');
}

void receipt_inputs_write_files(struct json_out *j, const struct receipt_file *files, size_t count,
                                uint8_t root[32]) {
    uint64_t bytes = 0;
    receipt_files_root(files, count, root);
    for (size_t i = 0; i < count; i++)
        bytes += files[i].error == NULL ? files[i].size : 0;
    json_out_u64(j, "bytes", bytes);
    json_out_u64(j, "count", count);
    if (count > 0 && count <= RECEIPT_LIST_MAX) {
        json_out_open(j, "list", '[');
        for (size_t i = 0; i < count; i++)
            receipt_inputs_file(j, &files[i]);
        json_out_close(j, ']');
    }
    receipt_inputs_hex(j, "sha256", root);
}

static int receipt_inputs_files(struct receipt_inputs *in, struct json_out *j,
                                const struct run_request *r) {
    struct receipt_file *files = calloc(r->file_count + 1, sizeof(*files));
    if (files == NULL)
        return -1;
    for (size_t i = 0; i < r->file_count; i++) {
        const struct request_file *f = &r->files[i];
        files[i] = (struct receipt_file){
            .path = f->path, .path_len = strlen(f->path), .mode = f->mode, .size = f->size};
        crypto_hash_sha256(files[i].sha256, (const unsigned char *)f->data, f->size);
        in->file_bytes += f->size;
    }
    in->files = r->file_count;
    receipt_files_sort(files, r->file_count);
    json_out_open(j, NULL, '{');
    receipt_inputs_write_files(j, files, r->file_count, in->files_sha256);
    json_out_close(j, '}');
    in->files_len = in->text.len;
    free(files);
    return j->failed ? -1 : 0;
}

struct receipt_inputs *receipt_inputs_new(const struct run_request *r) {
    struct receipt_inputs *in = calloc(1, sizeof(*in));
    struct json_out j;
    uint8_t shared[32] = {0};
    if (in == NULL)
        return NULL;
    buf_init(&in->text, RECEIPT_INPUTS_MAX);
    in->steps = calloc(r->step_count, sizeof(*in->steps));
    in->step_count = r->step_count;
    json_out_init(&j, &in->text);
    int rc = in->steps == NULL ? -1 : receipt_inputs_files(in, &j, r);
    if (rc == 0 && r->input.data != NULL && r->input.sha256 == NULL)
        crypto_hash_sha256(shared, (const unsigned char *)r->input.data, r->input.len);
    for (size_t i = 0; i < r->step_count && rc == 0; i++)
        rc = receipt_inputs_step(in, &j, r, i, shared);
    if (rc < 0) {
        receipt_inputs_free(in);
        return NULL;
    }
    receipt_inputs_argv(r, in->argv_sha256);
    return in;
}

void receipt_inputs_free(struct receipt_inputs *in) {
    if (in == NULL)
        return;
    buf_done(&in->text);
    free(in->steps);
    free(in);
}
