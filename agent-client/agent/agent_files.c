/* Tools that look at and change files of the workspace on this machine. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "agent_edit.h"
#include "agent_text.h"
#include "fd.h"

#define AGENT_FILES_LISTED 500u
#define AGENT_FILES_LINES 400u
#define AGENT_FILES_SHOW ((size_t)24 * 1024)
#define AGENT_FILES_MAX ((size_t)16 * 1024 * 1024)

bool agent_files_path(const struct agent *a, const char *given, char path[WS_TREE_PATH_MAX],
                      struct buf *out) {
    size_t root = strlen(a->project.path), n = 0;
    if (strncmp(given, a->project.path, root) == 0 && (given[root] == '/' || given[root] == '\0'))
        given += root;
    else if (given[0] == '/' &&
             strncmp(given, PROJECT_ROOT_IN_SANDBOX, sizeof(PROJECT_ROOT_IN_SANDBOX) - 1) == 0)
        given += sizeof(PROJECT_ROOT_IN_SANDBOX) - 1;
    else if (given[0] == '/')
        goto outside;
    while (*given != '\0') {
        size_t len = strcspn(given, "/");
        if (len == 2 && given[0] == '.' && given[1] == '.')
            goto outside;
        if (len > 0 && !(len == 1 && given[0] == '.')) {
            if (n + len + 2 >= WS_TREE_PATH_MAX)
                goto outside;
            if (n > 0)
                path[n++] = '/';
            memcpy(path + n, given, len);
            n += len;
        }
        given += len + (given[len] == '/');
    }
    path[n] = '\0';
    return true;
outside:
    (void)buf_puts(out, "only paths within the workspace are possible", NULL);
    return false;
}

static bool agent_files_may(struct agent *a, enum rule_kind kind, const char *path,
                            struct buf *out) {
    const struct perm_verdict *v;
    char what[WS_TREE_PATH_MAX + 16];
    enum permission_answer answer;
    /* A model is somebody else, as a sandbox is: what is not sent there is not told here. And what
     * git runs, or a build tool keeps, is not written from here either. */
    if (ws_ignore_covers(&a->project.tree.ignore, path, false)) {
        (void)buf_puts(out, "denied: ignore files, or Pinfold itself, leave this path out", NULL);
        return false;
    }
    answer = permission_exec_path(&a->project.decide, kind, path, &v);
    snprintf(what, sizeof(what), "%s %s", kind == RULE_READ ? "read" : "write", path);
    if (agent_say_may(a, answer, what, v))
        return true;
    agent_say_denied(a, out, answer, v);
    return false;
}

bool agent_files_list(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *given = json_string_value(json_object_get(arguments, "path"));
    char path[WS_TREE_PATH_MAX];
    struct err err;
    size_t shown = 0, more = 0, n;
    if (!agent_files_path(a, given != NULL ? given : "", path, out))
        return true;
    if (project_look(&a->project, &err) < 0) {
        (void)buf_puts(out, err.text, NULL);
        return true;
    }
    n = strlen(path);
    for (size_t i = 0; i < a->project.tree.count; i++) {
        const struct ws_entry *e = &a->project.tree.entries[i];
        if (n > 0 && (strncmp(e->path, path, n) != 0 || e->path[n] != '/'))
            continue;
        if (shown == AGENT_FILES_LISTED) {
            more++;
            continue;
        }
        shown++;
        (void)buf_printf(out, NULL, "%s%s%s%s\n", e->path, e->type == WS_DIR ? "/" : "",
                         e->type == WS_LINK ? " -> a link" : "",
                         e->withheld ? " (may not be read)" : "");
    }
    if (more > 0)
        (void)buf_printf(out, NULL, "[%zu more; list a directory]\n", more);
    if (shown == 0)
        (void)buf_puts(out, "nothing is there", NULL);
    return false;
}

int agent_files_load(const struct agent *a, const char *path, struct buf *text, struct stat *st,
                     struct err *err) {
    char block[65536];
    ssize_t n;
    buf_init(text, AGENT_FILES_MAX);
    fd_cleanup int fd = ws_tree_open(a->project.root, path, err);
    if (fd < 0)
        return -1;
    if (fstat(fd, st) < 0)
        return err_sys(err, "looking at %s", path);
    while ((n = read(fd, block, sizeof(block))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "reading %s", path);
        if (buf_append(text, block, (size_t)n, err) < 0)
            return err_wrap(err, "reading %s", path);
    }
    return 0;
}

static void agent_files_show(const char *text, size_t len, const json_t *arguments,
                             struct buf *out) {
    const json_t *from = json_object_get(arguments, "from");
    const json_t *count = json_object_get(arguments, "count");
    size_t first = from != NULL ? (size_t)json_integer_value(from) : 1, total = 0;
    size_t lines = count != NULL ? (size_t)json_integer_value(count) : AGENT_FILES_LINES;
    struct buf all;
    lines = lines < AGENT_FILES_LINES ? lines : AGENT_FILES_LINES;
    buf_init(&all, AGENT_FILES_MAX * 2);
    if (agent_text_lines(&all, text, len, first, lines, &total, NULL) == 0) {
        (void)agent_text_bound(out, all.data != NULL ? all.data : "", all.len, AGENT_FILES_SHOW,
                               "read fewer lines at once", NULL);
        if (first + lines <= total || first > 1)
            (void)buf_printf(out, NULL, "[lines %zu to %zu of %zu]\n", first,
                             first + lines - 1 < total ? first + lines - 1 : total, total);
    }
    if (total == 0)
        (void)buf_puts(out, "[the file is empty]\n", NULL);
    buf_done(&all);
}

/* Another name of what may not be read is no way to it. */
static int agent_files_check_links(struct agent *a, const char *path, const struct stat *st,
                                   struct err *err) {
    const struct ws_entry *e;
    struct err unseen;
    if (st->st_nlink < 2)
        return 0;
    if (project_look(&a->project, &unseen) == 0) {
        e = ws_tree_find(&a->project.tree, path);
        if (e == NULL || !e->linked)
            return 0;
    }
    return err_set(err, ERR_STATE, 0, "denied: %s is another name of a file that may not be read",
                   path);
}

bool agent_files_read(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *given = json_string_value(json_object_get(arguments, "path"));
    const char *kept = agent_run_kept(a, given);
    char path[WS_TREE_PATH_MAX];
    struct stat st;
    struct err err;
    struct buf text;
    if (kept != NULL) {
        agent_files_show(kept, strlen(kept), arguments, out);
        return false;
    }
    if (!agent_files_path(a, given, path, out) || !agent_files_may(a, RULE_READ, path, out))
        return true;
    int rc = agent_files_load(a, path, &text, &st, &err);
    if (rc == 0)
        rc = agent_files_check_links(a, path, &st, &err);
    if (rc < 0)
        (void)buf_puts(out, err.text, NULL);
    else
        agent_files_show(text.data != NULL ? text.data : "", text.len, arguments, out);
    buf_done(&text);
    return rc < 0;
}

/* Changing. */

static bool agent_files_may_be(const char *path, const struct buf *was, const struct buf *text,
                               struct buf *out) {
    if (!ws_ignore_is_file(path) ||
        !ws_ignore_loosens(was->data != NULL ? was->data : "", was->len,
                           text->data != NULL ? text->data : "", text->len))
        return true;
    (void)buf_puts(out, "denied: it would take in what is left out here; only people do that",
                   NULL);
    return false;
}

/* Makes one file, or a new text of it, by way of the journal. */
static bool agent_files_apply(struct agent *a, const char *path, const struct buf *text,
                              const struct undo_state *before, const char *by, struct buf *out) {
    struct undo_result result = {0};
    struct err err;
    char label[WS_TREE_PATH_MAX + 16];
    fd_cleanup int fd =
        fd_memfd("pinfold-edit", text->data != NULL ? text->data : "", text->len, false, &err);
    struct undo_change change = {.path = path, .fd = fd, .before = *before};
    const struct undo_set set = {.label = label,
                                 .by = by,
                                 .session = a->session,
                                 .rules = a->project.files.policy,
                                 .changes = &change,
                                 .count = 1};
    snprintf(label, sizeof(label), "%s %s", by, path);
    change.after = (struct undo_state){.type = UNDO_FILE,
                                       .mode = before->type == UNDO_FILE ? before->mode : 0644,
                                       .size = text->len};
    crypto_hash_sha256(change.after.sha256,
                       (const unsigned char *)(text->data != NULL ? text->data : ""), text->len);
    int rc = fd < 0 ? -1 : apply_changeset(a->project.undo, &set, &result, &err);
    bool made = rc == 0 && result.conflicts == 0 && result.refused == 0;
    if (rc < 0)
        (void)buf_puts(out, err.text, NULL);
    else if (result.conflicts > 0)
        (void)buf_puts(out, "somebody else changed the file meanwhile; read it again", NULL);
    else if (!made)
        (void)buf_puts(out,
                       "something else is in its way: a link, or a file where the path needs a "
                       "directory",
                       NULL);
    if (made && result.shared > 0)
        agent_say_line(a,
                       "%s had other names (hard links): they keep what they were, and undo does "
                       "not join them again",
                       path);
    a->changes += result.applied > 0;
    free(result.outcomes);
    return made;
}

static void agent_files_state(const struct buf *text, const struct stat *st,
                              struct undo_state *out) {
    *out = (struct undo_state){
        .type = UNDO_FILE, .mode = st->st_mode & 0777, .size = (uint64_t)text->len};
    crypto_hash_sha256(out->sha256, (const unsigned char *)(text->data != NULL ? text->data : ""),
                       text->len);
}

static bool agent_files_may_change(struct agent *a, const char *path, struct buf *out) {
    char why[300];
    if (path[0] == '\0') {
        (void)buf_puts(out, "name a file", NULL);
        return false;
    }
    if (!agent_protect_may_write(a, path, why, sizeof(why))) {
        (void)buf_printf(out, NULL, "denied: %s", why);
        return false;
    }
    return agent_files_may(a, RULE_WRITE, path, out);
}

bool agent_files_edit(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *old = json_string_value(json_object_get(arguments, "old"));
    const char *fresh = json_string_value(json_object_get(arguments, "new"));
    char path[WS_TREE_PATH_MAX];
    struct undo_state before;
    struct stat st;
    struct err err;
    struct buf text, edited;
    size_t line = 0;
    if (!agent_files_path(a, json_string_value(json_object_get(arguments, "path")), path, out) ||
        !agent_files_may(a, RULE_READ, path, out) || !agent_files_may_change(a, path, out))
        return true;
    buf_init(&edited, 0);
    bool made = false;
    if (agent_files_load(a, path, &text, &st, &err) < 0 ||
        agent_files_check_links(a, path, &st, &err) < 0 ||
        agent_edit(text.data != NULL ? text.data : "", text.len, old, fresh, &edited, &line, &err) <
            0) {
        (void)buf_puts(out, err.text, NULL);
    } else if (agent_files_may_be(path, &text, &edited, out)) {
        agent_files_state(&text, &st, &before);
        made = agent_files_apply(a, path, &edited, &before, "edit", out);
        if (made)
            (void)buf_printf(out, NULL, "changed %s at line %zu", path, line);
    }
    buf_done(&edited);
    buf_done(&text);
    return !made;
}

bool agent_files_write(struct agent *a, const json_t *arguments, struct buf *out) {
    const json_t *content = json_object_get(arguments, "content");
    char path[WS_TREE_PATH_MAX];
    struct undo_state before = {.type = UNDO_ABSENT};
    struct stat st;
    struct err err;
    struct buf was, text;
    if (!agent_files_path(a, json_string_value(json_object_get(arguments, "path")), path, out) ||
        !agent_files_may_change(a, path, out))
        return true;
    err_clear(&err);
    int rc = agent_files_load(a, path, &was, &st, &err);
    if (rc == 0)
        agent_files_state(&was, &st, &before);
    if (rc < 0 && err.code != ENOENT) {
        (void)buf_puts(out, err.text, NULL);
        buf_done(&was);
        return true;
    }
    buf_init(&text, AGENT_FILES_MAX);
    bool made = false;
    if (buf_append(&text, json_string_value(content), json_string_length(content), &err) < 0)
        (void)buf_puts(out, err.text, NULL);
    else if (agent_files_may_be(path, &was, &text, out))
        made = agent_files_apply(a, path, &text, &before, "write", out);
    if (made)
        (void)buf_printf(out, NULL, "%s %s, %zu bytes", rc == 0 ? "replaced" : "made", path,
                         text.len);
    buf_done(&was);
    buf_done(&text);
    return !made;
}
