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
#include "receipt_known.h"
#include "sandbox_api.h"
#include "state_dir.h"
#include "str.h"

#define AGENT_RECEIPT_MAX ((size_t)1024 * 1024)
#define AGENT_RECEIPT_KEY_MAX ((size_t)4096)

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
    char name[AGENT_SESSION_SIZE + 16], *text = json_dumps(receipt, JSON_INDENT(1));
    int rc;
    if (text == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    snprintf(name, sizeof(name), "%s.receipt", a->session);
    rc = fd_write_atomic(a->dir, name, text, strlen(text), 0600, err);
    free(text);
    if (rc == 0)
        state_dir_show(a->dir, name, v->receipt);
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

/* The key of the server's receipts: one that was given, or that this server is known by, or, the
 * first time, the one that it shows. 0 with a->key_from NULL: there is none, for *err. */
static int agent_receipt_key(struct agent *a, struct err *err) {
    struct receipt_public key;
    int rc;
    if (a->key_from != NULL)
        return 0;
    rc = receipt_known_find(a->target.url, &key, NULL, err);
    if (rc > 0) {
        a->key = key;
        a->key_from = "known";
    }
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    json_t *answer = rest_get_json(a->rest, "/v1/receipt-key", AGENT_RECEIPT_KEY_MAX, err);
    const char *hex = json_string_value(json_object_get(answer, "key"));
    if (answer == NULL && err->kind == ERR_SYSTEM)
        return -1;
    if (answer != NULL && hex == NULL)
        err_set(err, ERR_PROTOCOL, 0, "its answer has no key");
    rc = hex != NULL ? receipt_key_parse(hex, strlen(hex), &key, err) : -1;
    json_decref(answer);
    if (rc < 0)
        return 0;
    if (receipt_known_keep(a->target.url, &key, err) < 0)
        return -1;
    a->key = key;
    a->key_from = "first";
    return 0;
}

int agent_receipt_given(struct agent *a, struct err *err) {
    if (a->o.receipt_key == NULL)
        return 0;
    if (receipt_known_read(a->o.receipt_key, &a->key, err) < 0)
        return err_wrap(err, "--receipt-key");
    a->key_from = "given";
    return 0;
}

void agent_receipt_tell(const struct agent *a, const struct agent_verdict *v, json_t *event) {
    char id[RECEIPT_KEY_ID_SIZE] = "";
    bool bound = v->receipt[0] != '\0';
    if (bound)
        receipt_key_id(&a->key, id);
    json_object_set_new(event, "receipt", bound ? agent_say_string(v->receipt) : json_null());
    json_object_set_new(event, "receipt_key", bound ? json_string(id) : json_null());
    json_object_set_new(event, "receipt_key_from", bound ? json_string(a->key_from) : json_null());
    json_object_set_new(event, "receipt_why",
                        bound ? json_null() : agent_say_string(v->receipt_why));
}

/* Signed with the key that counts here? */
static int agent_receipt_signed(const struct agent *a, const json_t *receipt, struct err *err) {
    char id[RECEIPT_KEY_ID_SIZE], path[PATH_MAX] = "";
    struct receipt_public known;
    struct err why = {0};
    if (receipt_check(receipt, &a->key, &why) == 0)
        return 0;
    receipt_key_id(&a->key, id);
    if (strcmp(a->key_from, "given") != 0)
        (void)receipt_known_find(a->target.url, &known, path, err);
    return err_set(err, ERR_PROTOCOL, 0,
                   "the server's receipt does not hold with the key %s, which %s: %.120s%s%.200s",
                   id, path[0] == '\0' ? "was given" : "is known of this server", why.text,
                   path[0] == '\0' ? "" : "; if its administrator has changed the key, remove ",
                   path);
}

static int agent_receipt_bind(struct agent *a, const struct agent_outcome *o,
                              struct agent_verdict *v, const json_t *receipt, struct err *err) {
    char root[65];
    const char *differs;
    if (agent_receipt_key(a, err) < 0)
        return -1;
    if (a->key_from != NULL && agent_receipt_signed(a, receipt, err) < 0)
        return -1;
    if (a->key_from == NULL)
        snprintf(v->receipt_why, sizeof(v->receipt_why),
                 "its signature cannot be checked, because the server does not give its key "
                 "(%.80s); --receipt-key takes it from elsewhere",
                 err->text);
    if (agent_receipt_root(&a->project.tree, root, err) < 0)
        return -1;
    differs = agent_receipt_differs(a, o, v, json_object_get(receipt, "body"), root);
    if (differs != NULL)
        return err_set(err, ERR_PROTOCOL, 0,
                       "the server's receipt does not bear out its answer: %s", differs);
    return a->key_from != NULL ? agent_receipt_keep(a, receipt, v, err) : 0;
}

int agent_receipt(struct agent *a, const struct agent_outcome *o, struct agent_verdict *v,
                  struct err *err) {
    json_t *receipt = NULL;
    int rc = agent_receipt_get(a, o, &receipt, err);
    if (rc == 0 && receipt == NULL)
        snprintf(v->receipt_why, sizeof(v->receipt_why), "this server makes no receipts");
    if (rc == 0 && receipt != NULL)
        rc = agent_receipt_bind(a, o, v, receipt, err);
    json_decref(receipt);
    return rc;
}
