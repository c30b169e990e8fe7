/* The workspace goes into the sandbox. */
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cp_path.h"
#include "fd.h"
#include "project.h"
#include "sandbox_api.h"
#include "text.h"

#define PROJECT_PUSH_ROUNDS 4
#define PROJECT_PUSH_BODY_MAX ((size_t)256 * 1024 * 1024)
#define PROJECT_PUSH_CACHE "tree.cache"

/* Only a deny keeps a file here: to run a command on the workspace's files is what was asked for,
 * and each command is judged by itself. */
static bool project_push_may_send(void *arg, const char *path) {
    struct project *p = arg;
    return perm_judge_path(&p->perm, RULE_READ, path)->verdict != RULE_DENY;
}

int project_look(struct project *p, struct err *err) {
    struct ws_tree before;
    unsigned char policy[WS_TREE_HASH] = {0};
    bool known = ws_cache_load(p->state, PROJECT_PUSH_CACHE, &before, policy, NULL) == 0;
    struct ws_tree_options o = {.root = p->root,
                                .may_send = project_push_may_send,
                                .arg = p,
                                .bytes_max = p->room,
                                .before = known ? &before : NULL,
                                .same_policy =
                                    known && memcmp(policy, p->rules.digest, sizeof(policy)) == 0};
    struct project_places private;
    ws_tree_done(&p->tree);
    int rc = project_private(p, &private, err);
    o.elsewhere = (const char *const *)private.path;
    o.elsewhere_count = private.count;
    if (rc == 0)
        rc = ws_tree_take(&o, &p->tree, err);
    project_places_done(&private);
    if (rc == 0) {
        bool written = known && o.same_policy && ws_tree_unchanged(&p->tree, &before);
        if (!written) {
            ws_tree_digest(&p->tree, p->tree.digest);
            p->tree.digested = true;
            /* Only a cache: the next time takes longer. */
            (void)ws_cache_save(p->state, PROJECT_PUSH_CACHE, &p->tree, p->rules.digest, NULL);
        }
    }
    if (known)
        ws_tree_done(&before);
    return rc;
}

/* The manifest. */

static int project_push_text(struct buf *b, const char *key, const char *text, struct err *err) {
    size_t len = strlen(text);
    if (text_is_utf8(text, len))
        return buf_printf(b, err, "\"%s\":", key) < 0 || text_append_json(b, text, len, err) < 0
                   ? -1
                   : 0;
    return buf_printf(b, err, "\"%s_base64\":\"", key) < 0 ||
                   text_base64_encode(text, len, b, err) < 0 || buf_puts(b, "\"", err) < 0
               ? -1
               : 0;
}

static int project_push_entry(struct buf *b, const struct ws_entry *e, struct err *err) {
    char hex[2 * WS_TREE_HASH + 1];
    if (project_push_text(b, "path", e->path, err) < 0)
        return -1;
    if (e->type == WS_DIR)
        return buf_printf(b, err, ",\"type\":\"directory\",\"mode\":%u}", e->mode | 0700u);
    if (e->type == WS_LINK)
        return buf_puts(b, ",\"type\":\"symlink\",", err) < 0 ||
                       project_push_text(b, "target", e->target, err) < 0 ||
                       buf_puts(b, "}", err) < 0
                   ? -1
                   : 0;
    sodium_bin2hex(hex, sizeof(hex), e->sha256, sizeof(e->sha256));
    return buf_printf(b, err, ",\"type\":\"file\",\"mode\":%u,\"size\":%llu,\"sha256\":\"%s\"}",
                      PROJECT_FILE_MODE(e->mode), (unsigned long long)e->size, hex);
}

static int project_push_manifest(const struct project *p, struct buf *b, struct err *err) {
    bool first = true;
    int rc = buf_puts(b, "{\"root\":\"" PROJECT_ROOT_IN_SANDBOX "\",\"delete\":false,\"entries\":[",
                      err);
    for (size_t i = 0; rc == 0 && i < p->tree.count; i++) {
        const struct ws_entry *e = &p->tree.entries[i];
        if (e->withheld)
            continue;
        rc = buf_puts(b, first ? "{" : ",{", err);
        if (rc == 0)
            rc = project_push_entry(b, e, err);
        first = false;
    }
    return rc < 0 ? -1 : buf_puts(b, "]}", err);
}

/* What the sandbox lacks. */

struct project_push_blob {
    int fd;
    uint64_t left;
};

static ssize_t project_push_read(void *arg, char *data, size_t size, struct err *err) {
    struct project_push_blob *blob = arg;
    if (size > blob->left)
        size = (size_t)blob->left;
    ssize_t n = size > 0 ? read(blob->fd, data, size) : 0;
    if (n < 0)
        return err_sys(err, "reading a file of the workspace");
    if (n == 0 && blob->left > 0)
        return err_set(err, ERR_STATE, 0, "a file became shorter while it was sent; try again");
    blob->left -= (uint64_t)n;
    return n;
}

static int project_push_blob(struct project *p, const char *hex, struct err *err) {
    unsigned char hash[WS_TREE_HASH];
    const struct ws_entry *e = NULL;
    char path[96];
    if (strlen(hex) != 2 * sizeof(hash) ||
        sodium_hex2bin(hash, sizeof(hash), hex, strlen(hex), NULL, NULL, NULL) < 0)
        return err_set(err, ERR_PROTOCOL, 0, "the server asks for contents by no hash");
    for (size_t i = 0; e == NULL && i < p->tree.count; i++)
        if (p->tree.entries[i].type == WS_FILE && !p->tree.entries[i].withheld &&
            memcmp(p->tree.entries[i].sha256, hash, sizeof(hash)) == 0)
            e = &p->tree.entries[i];
    /* Nothing is sent for the asking: only what is in the manifest. */
    if (e == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "the server asks for contents that are not ours");
    fd_cleanup int fd = ws_tree_open(p->root, e->path, err);
    if (fd < 0)
        return -1;
    struct project_push_blob blob = {.fd = fd, .left = e->size};
    struct rest_call call = {.method = "PUT",
                             .path = path,
                             .on_read = project_push_read,
                             .read_len = (int64_t)e->size,
                             .raw = true,
                             .arg = &blob};
    snprintf(path, sizeof(path), "/v1/blobs/%.64s", hex);
    if (rest_perform(p->rest, &call, err) < 0)
        return -1;
    return call.status >= 400 ? rest_refusal(&call, err) : 0;
}

static json_t *project_push_sync(struct project *p, const struct buf *body, struct err *err) {
    char path[160];
    struct buf answer;
    struct rest_call call = {.method = "POST",
                             .path = path,
                             .body = body->data,
                             .body_len = body->len,
                             .on_data = rest_gather,
                             .arg = &answer};
    json_t *object = NULL;
    buf_init(&answer, SANDBOX_API_ANSWER_MAX);
    if (sandbox_api_path(path, sizeof(path), p->sandbox, "/sync", err) == 0 &&
        rest_perform(p->rest, &call, err) == 0) {
        if (call.status >= 400)
            rest_refusal(&call, err);
        else if ((object = json_loadb(answer.data != NULL ? answer.data : "", answer.len, 0,
                                      NULL)) == NULL)
            err_set(err, ERR_PROTOCOL, 0, "the server's answer is not JSON");
    }
    buf_done(&answer);
    return object;
}

static int project_push_missing(struct project *p, const json_t *missing, struct err *err) {
    size_t i;
    json_t *hash;
    char text[80];
    if (json_array_size(missing) > p->tree.count)
        return err_set(err, ERR_PROTOCOL, 0, "the server asks for more contents than there are");
    if (json_array_size(missing) > 100 && p->options.note != NULL) {
        snprintf(text, sizeof(text), "sending %zu files to the sandbox", json_array_size(missing));
        p->options.note(p->options.arg, text);
    }
    json_array_foreach((json_t *)(uintptr_t)missing, i, hash) {
        const char *hex = json_string_value(hash);
        if (hex == NULL)
            return err_set(err, ERR_PROTOCOL, 0, "the server asks for contents by no hash");
        if (project_push_blob(p, hex, err) < 0)
            return -1;
    }
    return 0;
}

/* What is gone here goes there, too: what was sent last time and is not there now. */

int project_file_url(const struct project *p, const char *path, const char *query, char *dst,
                     size_t size, struct err *err) {
    int head =
        snprintf(dst, size, "/v1/sandboxes/%s/files" PROJECT_ROOT_IN_SANDBOX "/", p->sandbox);
    if (head < 0 || (size_t)head >= size)
        return err_set(err, ERR_INVALID, 0, "the path is too long");
    return cp_path_encode(dst, size, path, query, err);
}

static int project_push_remove(struct project *p, const char *path, struct err *err) {
    char url[3 * WS_TREE_PATH_MAX + 128];
    struct rest_call call = {.method = "DELETE", .path = url};
    if (project_file_url(p, path, "?recursive=true", url, sizeof(url), err) < 0 ||
        rest_perform(p->rest, &call, err) < 0)
        return -1;
    return call.status >= 400 && call.status != 404 ? rest_refusal(&call, err) : 0;
}

/* `last` is what was sent then. In order, so that a directory comes before what is in it. */
static int project_push_removals(struct project *p, const struct ws_tree *last, struct err *err) {
    const char *gone = NULL;
    for (size_t i = 0; i < last->count; i++) {
        const struct ws_entry *e = &last->entries[i], *now = ws_tree_find(&p->tree, e->path);
        size_t n = gone != NULL ? strlen(gone) : 0;
        if (e->withheld || (now != NULL && !now->withheld && now->type == e->type) ||
            (gone != NULL && strncmp(e->path, gone, n) == 0 && e->path[n] == '/'))
            continue;
        if (project_push_remove(p, e->path, err) < 0)
            return err_wrap(err, "removing %s from the sandbox", e->path);
        gone = e->path;
    }
    return 0;
}

static int project_push_send(struct project *p, struct err *err) {
    struct buf body;
    int rc;
    bool applied = false;
    buf_init(&body, PROJECT_PUSH_BODY_MAX);
    rc = project_push_manifest(p, &body, err);
    for (int round = 0; rc == 0 && !applied && round < PROJECT_PUSH_ROUNDS; round++) {
        json_t *answer = project_push_sync(p, &body, err);
        rc = answer == NULL ? -1 : project_push_missing(p, json_object_get(answer, "missing"), err);
        applied = json_is_true(json_object_get(answer, "applied"));
        json_decref(answer);
    }
    buf_done(&body);
    if (rc == 0 && !applied)
        rc = err_set(err, ERR_STATE, 0,
                     "the server keeps asking for contents that it was sent; try again");
    return rc;
}

static int project_push_gone(struct project *p, struct err *err) {
    struct ws_tree last;
    unsigned char policy[WS_TREE_HASH];
    if (p->fresh || ws_cache_load(p->state, PROJECT_SENT_CACHE, &last, policy, NULL) < 0)
        return 0;
    int rc = project_push_removals(p, &last, err);
    ws_tree_done(&last);
    return rc;
}

/* What is there beside what was sent. In order: a directory before what is in it. */
struct project_push_extra {
    struct project *p;
    char last[WS_TREE_PATH_MAX];
};

static int project_push_extra(void *arg, const struct project_pull_entry *e, struct err *err) {
    struct project_push_extra *x = arg;
    size_t n = strlen(x->last);
    if (e->deleted ||
        ws_ignore_covers(&x->p->tree.ignore, e->path, strcmp(e->type, "directory") == 0) ||
        (n > 0 && strncmp(e->path, x->last, n) == 0 && e->path[n] == '/'))
        return 0;
    memcpy(x->last, e->path, strlen(e->path) + 1);
    return project_push_remove(x->p, e->path, err);
}

/* 1: there was something. */
static int project_push_extras(struct project *p, struct err *err) {
    struct project_push_extra *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    x->p = p;
    int rc = project_pull_each(p, project_push_extra, x, err);
    if (rc == 0 && x->last[0] != '\0')
        rc = 1;
    free(x);
    return rc;
}

/* Where else they are nobody can tell; what rules deny by its place was looked for there. */
static void project_push_tell_links(const struct project *p) {
    char text[WS_TREE_PATH_MAX + 200];
    if (p->tree.outside == 0 || p->options.note == NULL)
        return;
    snprintf(text, sizeof(text),
             "sending %zu file%s with another name outside of the workspace (a hard link): %s%s",
             p->tree.outside, p->tree.outside == 1 ? "" : "s", p->tree.outside_first,
             p->tree.outside == 1 ? "" : ", …");
    p->options.note(p->options.arg, text);
}

int project_push(struct project *p, struct err *err) {
    unsigned char digest[WS_TREE_HASH];
    int rc = project_box(p, err);
    if (rc == 0)
        rc = project_look(p, err);
    if (rc == 0) {
        ws_tree_digest(&p->tree, digest);
        if (p->synced && memcmp(digest, p->sent, sizeof(digest)) == 0)
            return 0;
        p->synced = false;
        rc = project_save(p, err);
    }
    /* What was refused here must not be there for later commands. Before the new files are sent:
     * changes are told against what was sent last. */
    if (rc == 0 && p->refused && !p->fresh && project_push_extras(p, err) < 0)
        rc = -1;
    if (rc == 0)
        rc = project_push_gone(p, err);
    if (rc == 0)
        project_push_tell_links(p);
    if (rc == 0)
        rc = project_push_send(p, err);
    if (rc == 0)
        rc = ws_cache_save(p->state, PROJECT_SENT_CACHE, &p->tree, p->rules.digest, err);
    if (rc == 0) {
        memcpy(p->sent, digest, sizeof(digest));
        p->synced = true;
        p->refused = false;
        rc = project_save(p, err);
    }
    return rc;
}

static int project_push_differs(void *arg, const struct project_pull_entry *e, struct err *err) {
    const struct project *p = arg;
    if (ws_ignore_covers(&p->tree.ignore, e->path, strcmp(e->type, "directory") == 0))
        return 0;
    return err_set(err, ERR_STATE, 0, "%s in the sandbox cannot be brought to what it is here",
                   e->path);
}

int project_push_exact(struct project *p, bool used, struct err *err) {
    /* Changes are told against what was sent last: what a command made before goes before. */
    if (project_look(p, err) < 0 || (used && project_push_extras(p, err) < 0) ||
        project_push_send(p, err) < 0)
        return -1;
    int extras = project_push_extras(p, err);
    /* Sent again, so that nothing was written since: the server's receipt tells. */
    if (extras < 0 || (extras > 0 && project_push_send(p, err) < 0))
        return -1;
    return project_pull_each(p, project_push_differs, p, err);
}
