/* The server's receipt of the verifier, kept with the session: what it says must be what the answer
 * said, and about exactly the tree that was sent. */
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "fd.h"
#include "receipt.h"
#include "sandbox_api.h"
#include "str.h"

#define AGENT_RECEIPT_MAX ((size_t)1024 * 1024)

/* As the server computes it of the manifest that it was sent. */
static int agent_receipt_root(const struct ws_tree *t, char hex[65], struct err *err) {
    struct receipt_file *files = calloc(t->count + 1, sizeof(*files));
    uint8_t root[32];
    size_t n = 0;
    if (files == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    for (size_t i = 0; i < t->count; i++) {
        const struct ws_entry *e = &t->entries[i];
        if (e->type != WS_FILE || e->withheld)
            continue;
        files[n] = (struct receipt_file){.path = e->path,
                                         .path_len = strlen(e->path),
                                         .mode = PROJECT_FILE_MODE(e->mode),
                                         .size = e->size};
        memcpy(files[n].sha256, e->sha256, sizeof(files[n].sha256));
        n++;
    }
    receipt_files_sort(files, n);
    receipt_files_root(files, n, root);
    receipt_hex(root, sizeof(root), hex);
    free(files);
    return 0;
}

static bool agent_receipt_is(const json_t *object, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL && strcmp(text, value) == 0;
}

/* Whole, or by its digest when it is long (receipt.h). */
static bool agent_receipt_command(const json_t *step, const char *line) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof(hash) + 1];
    if (json_object_get(step, "sh_sha256") == NULL)
        return agent_receipt_is(step, "sh", line);
    crypto_hash_sha256(hash, (const unsigned char *)line, strlen(line) + 1);
    receipt_hex(hash, sizeof(hash), hex);
    return agent_receipt_is(step, "sh_sha256", hex);
}

/* What in it is not as it was answered; NULL = nothing. */
static const char *agent_receipt_differs(const struct agent *a, const struct agent_outcome *o,
                                         const struct agent_verdict *v, const json_t *body,
                                         const char *root) {
    const json_t *step = json_array_get(json_object_get(body, "steps"), 0);
    const json_t *end = json_object_get(step, "end"), *code = json_object_get(end, "exit_code");
    const json_t *files = json_object_get(body, "files_in");
    if (!agent_receipt_is(body, "id", o->id) ||
        !agent_receipt_is(body, "sandbox", a->project.sandbox))
        return "it is of another execution";
    if (!agent_receipt_command(step, a->o.verify))
        return "another command";
    if (!agent_receipt_is(end, "cause", o->cause) ||
        (json_is_integer(code) ? json_integer_value(code) != o->exit_code : o->exit_code >= 0))
        return "another end";
    if (!agent_receipt_is(json_object_get(step, "stdout"), "sha256", v->output))
        return "another output";
    /* A server that was started again meanwhile knows of no tree. */
    if (files != NULL && !agent_receipt_is(files, "sha256", root))
        return "other files";
    if (files != NULL && json_integer_value(json_object_get(files, "others")) != 0)
        return "files that somebody else may have changed";
    return NULL;
}

static int agent_receipt_keep(const struct agent *a, const json_t *receipt, struct agent_verdict *v,
                              struct err *err) {
    char name[AGENT_SESSION_SIZE + 16], link[40], *text = json_dumps(receipt, JSON_INDENT(1));
    ssize_t n;
    int rc;
    if (text == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    snprintf(name, sizeof(name), "%s.receipt", a->session);
    rc = fd_write_atomic(a->dir, name, text, strlen(text), 0600, err);
    free(text);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", a->dir);
    n = rc == 0 ? readlink(link, v->receipt, sizeof(v->receipt) - sizeof(name) - 1) : 0;
    if (n > 0)
        snprintf(v->receipt + n, sizeof(v->receipt) - (size_t)n, "/%s", name);
    return rc;
}

static int agent_receipt_get(struct agent *a, const struct agent_outcome *o, json_t **out,
                             struct err *err) {
    char path[200], tail[120];
    struct buf text;
    struct rest_call call = {.method = "GET", .path = path, .on_data = rest_gather, .arg = &text};
    *out = NULL;
    if (!str_is_name(o->id))
        return 0;
    snprintf(tail, sizeof(tail), "/exec/%s/receipt", o->id);
    buf_init(&text, AGENT_RECEIPT_MAX);
    int rc = sandbox_api_path(path, sizeof(path), a->project.sandbox, tail, err);
    if (rc == 0)
        rc = rest_perform(a->rest, &call, err);
    /* A server that makes none. */
    if (rc == 0 && call.status != 404 && call.status >= 400)
        rc = rest_refusal(&call, err);
    if (rc == 0 && call.status < 400) {
        *out =
            json_loadb(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES, NULL);
        if (*out == NULL)
            rc = err_set(err, ERR_PROTOCOL, 0, "the server's receipt is not JSON");
    }
    buf_done(&text);
    return rc;
}

int agent_receipt(struct agent *a, const struct agent_outcome *o, struct agent_verdict *v,
                  struct err *err) {
    char root[65];
    json_t *receipt = NULL;
    int rc = agent_receipt_get(a, o, &receipt, err);
    if (rc == 0 && receipt != NULL)
        rc = agent_receipt_root(&a->project.tree, root, err);
    if (rc == 0 && receipt != NULL) {
        const char *differs =
            agent_receipt_differs(a, o, v, json_object_get(receipt, "body"), root);
        rc = differs == NULL
                 ? agent_receipt_keep(a, receipt, v, err)
                 : err_set(err, ERR_PROTOCOL, 0,
                           "the server's receipt does not bear out its answer: %s", differs);
    }
    json_decref(receipt);
    return rc;
}
