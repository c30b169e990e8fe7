#include "project.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fd.h"
#include "state_dir.h"
#include "ws_find.h"

#define PROJECT_STATE "sandbox.json"
#define PROJECT_STATE_MAX ((size_t)64 * 1024)

/* Where it is. */

static int project_locate(struct project *p, struct err *err) {
    struct ws_place *place = malloc(sizeof(*place));
    int rc = place == NULL ? err_set(err, ERR_SYSTEM, ENOMEM, "out of memory")
                           : ws_find(p->options.workspace, place, err);
    if (rc == 0) {
        memcpy(p->path, place->path, sizeof(p->path));
        memcpy(p->inside, place->inside, sizeof(p->inside));
        p->root = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = p->root < 0 ? err_sys(err, "opening the workspace %s", p->path) : 0;
    }
    free(place);
    return rc;
}

/* Outside the workspace, so that nothing in it can speak for us. */
static int project_state_dir(struct project *p, struct err *err) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    char below[] = "workspaces/0123456789abcdef0123456789abcdef";
    crypto_hash_sha256(hash, (const unsigned char *)p->path, strlen(p->path));
    sodium_bin2hex(below + 11, sizeof(below) - 11, hash, 16);
    p->state = state_dir_open(below, true, err);
    return p->state < 0 ? -1 : 0;
}

/* Two commands at once would send and fetch over each other. */
static int project_lock(struct project *p, struct err *err) {
    p->lock = openat(p->state, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (p->lock < 0)
        return err_sys(err, "opening the lock of the workspace");
    if (flock(p->lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (p->options.note != NULL)
        p->options.note(p->options.arg,
                        "another pinfold works in this workspace; waiting until it is done");
    while (flock(p->lock, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_sys(err, "waiting for the lock of the workspace");
    return 0;
}

/* What is known of last time. */

static void project_remember(struct project *p) {
    struct buf text;
    struct err err;
    buf_init(&text, PROJECT_STATE_MAX);
    if (fd_read_file(p->state, PROJECT_STATE, &text, &err) == 0) {
        json_t *root = json_loadb(text.data != NULL ? text.data : "", text.len, 0, NULL);
        const char *url = json_string_value(json_object_get(root, "url"));
        const char *id = json_string_value(json_object_get(root, "sandbox"));
        const char *sent = json_string_value(json_object_get(root, "sent"));
        size_t n = 0;
        /* The sandbox of another server is not ours to talk about here. */
        if (url != NULL && id != NULL && strcmp(url, p->url) == 0 &&
            strlen(id) < sizeof(p->sandbox)) {
            memcpy(p->sandbox, id, strlen(id) + 1);
            p->synced =
                sent != NULL &&
                sodium_hex2bin(p->sent, sizeof(p->sent), sent, strlen(sent), NULL, &n, NULL) == 0 &&
                n == sizeof(p->sent);
            p->refused = json_is_true(json_object_get(root, "refused"));
        }
        json_decref(root);
    }
    buf_done(&text);
}

int project_save(const struct project *p, struct err *err) {
    char sent[2 * WS_TREE_HASH + 1];
    sodium_bin2hex(sent, sizeof(sent), p->sent, sizeof(p->sent));
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:s, s:b}", "workspace", p->path, "url", p->url, "sandbox",
                  p->sandbox, "sent", p->synced ? sent : "", "refused", (int)p->refused);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (text == NULL)
        return err_set(err, ERR_INVALID, 0, "the path of the workspace is not UTF-8");
    int rc = fd_write_atomic(p->state, PROJECT_STATE, text, strlen(text), 0600, err);
    free(text);
    return rc;
}

/* Opening. */

static int project_rules_load(struct project *p, struct perm_files *files, struct rule_set *rules,
                              struct perm *perm, struct err *err) {
    const struct perm_config config = {
        .resolve = perm_files_resolve, .arg = files, .headless = p->options.headless};
    return perm_files_find(files, p->path, err) < 0
               ? -1
               : perm_files_load(files, p->options.rules, p->options.session, &config, rules, perm,
                                 err);
}

/* Is every file as it was, but for the one that answers of a person are stored in? */
static bool project_rules_same(const struct perm_files *a, const struct perm_files *b) {
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->file[i].what, PERM_FILES_GRANTS) != 0 &&
            (a->file[i].there != b->file[i].there || a->file[i].trusted != b->file[i].trusted ||
             strcmp(a->file[i].hash, b->file[i].hash) != 0))
            return false;
    return true;
}

int project_regrant(struct project *p, struct err *err) {
    struct perm_files *files = calloc(1, sizeof(*files));
    struct rule_set rules;
    struct perm perm;
    if (files == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    /* Tried first: what is there must not go before what follows is known to be good. */
    int rc = project_rules_load(p, files, &rules, &perm, err);
    bool same = rc == 0 && project_rules_same(&p->files, files);
    if (rc == 0) {
        perm_done(&perm);
        rule_set_done(&rules);
    }
    free(files);
    if (rc < 0 || !same)
        return 1;
    perm_done(&p->perm);
    rule_set_done(&p->rules);
    return project_rules_load(p, &p->files, &p->rules, &p->perm, err);
}

static int project_rules(struct project *p, struct err *err) {
    if (project_rules_load(p, &p->files, &p->rules, &p->perm, err) < 0)
        return -1;
    permission_exec_init(&p->decide, &p->perm);
    return 0;
}

static int project_journal(struct project *p, struct err *err) {
    const struct undo_options o = {.root = p->root, .path = p->path};
    p->undo = undo_open(&o, err);
    return p->undo == NULL ? -1 : 0;
}

int project_open(struct project *p, const struct project_options *options, struct rest *rest,
                 const char *url, struct err *err) {
    memset(p, 0, sizeof(*p));
    p->options = *options;
    p->root = p->state = p->lock = -1;
    p->rest = rest;
    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "libsodium could not be started");
    if (snprintf(p->url, sizeof(p->url), "%s", url) >= (int)sizeof(p->url))
        return err_set(err, ERR_INVALID, 0, "the server's URL is too long");
    if (project_locate(p, err) < 0 || project_rules(p, err) < 0 || project_state_dir(p, err) < 0 ||
        project_lock(p, err) < 0 || project_journal(p, err) < 0)
        return -1;
    project_remember(p);
    return 0;
}

void project_close(struct project *p) {
    if (p->url[0] == '\0')
        return; /* never opened */
    undo_close(p->undo);
    permission_exec_done(&p->decide);
    perm_done(&p->perm);
    rule_set_done(&p->rules);
    ws_tree_done(&p->tree);
    fd_close(&p->lock);
    fd_close(&p->state);
    fd_close(&p->root);
    memset(p, 0, sizeof(*p));
}
