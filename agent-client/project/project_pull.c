/* What a command changed in the sandbox comes back. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cp_path.h"
#include "fd.h"
#include "project.h"
#include "sandbox_api.h"
#include "text.h"

#define PROJECT_PULL_ANSWER_MAX ((size_t)128 * 1024 * 1024)
#define PROJECT_PULL_BYTES_MAX ((uint64_t)8 * 1024 * 1024 * 1024)
#define PROJECT_PULL_ROOM_MIN ((uint64_t)512 * 1024 * 1024) /* stays free */
#define PROJECT_PULL_DELETIONS_MAX 50u
#define PROJECT_PULL_NAMED 8u /* paths that a question names */

/* The changes that may be made, and where their contents are. */
struct project_pull_job {
    struct project *p;
    struct project_report *report;
    struct undo_change *changes;
    size_t count, alloc;
    char **paths; /* owned; one per change, as are targets */
    char **targets;
    bool *asks;
    int spool;
    uint64_t spooled;
};

void project_problem(struct project_report *report, const char *path, const char *fmt, ...) {
    char text[400];
    va_list args;
    if (report->problem_count == PROJECT_PROBLEMS_MAX)
        return;
    if (report->problems == NULL) {
        report->problems = calloc(PROJECT_PROBLEMS_MAX, sizeof(*report->problems));
        if (report->problems == NULL)
            return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    struct project_problem one = {.path = strdup(path), .why = strdup(text)};
    if (one.path == NULL || one.why == NULL) {
        free(one.path);
        free(one.why);
        return;
    }
    report->problems[report->problem_count++] = one;
}

void project_report_done(struct project_report *report) {
    for (size_t i = 0; i < report->problem_count; i++) {
        free(report->problems[i].path);
        free(report->problems[i].why);
    }
    free(report->problems);
    memset(report, 0, sizeof(*report));
}

/* What the server says of one path. */

static int project_pull_text(const json_t *entry, const char *key, char *dst, size_t size) {
    char name[32];
    const json_t *plain = json_object_get(entry, key);
    snprintf(name, sizeof(name), "%s_base64", key);
    const json_t *coded = json_object_get(entry, name);
    size_t len = 0;
    if (json_is_string(plain)) {
        len = json_string_length(plain);
        if (len >= size)
            return -1;
        memcpy(dst, json_string_value(plain), len);
    } else if (!json_is_string(coded) || json_string_length(coded) / 4 * 3 >= size ||
               text_base64_decode(json_string_value(coded), json_string_length(coded), dst, &len,
                                  NULL) < 0) {
        return -1;
    }
    dst[len] = '\0';
    return strlen(dst) == len ? 0 : -1; /* a NUL within is no path */
}

/* Relative, in its shortest form, nothing that climbs. */
static bool project_pull_path_ok(const char *path) {
    if (path[0] == '\0' || path[0] == '/')
        return false;
    for (const char *p = path; *p != '\0';) {
        size_t n = strcspn(p, "/");
        if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        if (*p == '/' && *++p == '\0')
            return false;
    }
    return true;
}

static int project_pull_read(const json_t *entry, struct project_pull_entry *out) {
    const char *change = json_string_value(json_object_get(entry, "change"));
    const char *mode = json_string_value(json_object_get(entry, "mode"));
    out->type = json_string_value(json_object_get(entry, "type"));
    out->target[0] = '\0';
    if (change == NULL || out->type == NULL ||
        project_pull_text(entry, "path", out->path, sizeof(out->path)) < 0 ||
        !project_pull_path_ok(out->path))
        return -1;
    out->deleted = strcmp(change, "deleted") == 0;
    out->mode = mode != NULL ? (uint32_t)strtoul(mode, NULL, 8) & 0777u : 0644u;
    if (!out->deleted && strcmp(out->type, "symlink") == 0)
        return project_pull_text(entry, "target", out->target, sizeof(out->target));
    return 0;
}

/* Rules. */

/* Is the path, or a directory above it, kept from the sandbox? Then whatever has that name there is
 * not what has it here. */
static bool project_pull_withheld(const struct ws_tree *t, const char *path) {
    char part[WS_TREE_PATH_MAX];
    const struct ws_entry *e = ws_tree_find(t, path);
    if (e != NULL && e->withheld)
        return true;
    for (const char *s = strchr(path, '/'); s != NULL; s = strchr(s + 1, '/')) {
        memcpy(part, path, (size_t)(s - path));
        part[s - path] = '\0';
        e = ws_tree_find(t, part);
        if (e != NULL && e->withheld)
            return true;
    }
    return false;
}

/* false: it stays away, and the report says why. *asks: a person must be asked. */
static bool project_pull_may(struct project_pull_job *job, const struct project_pull_entry *e,
                             bool *asks) {
    struct project *p = job->p;
    const struct perm_verdict *v;
    if (ws_ignore_covers(&p->tree.ignore, e->path, strcmp(e->type, "directory") == 0)) {
        job->report->ignored++;
        return false;
    }
    if (project_pull_withheld(&p->tree, e->path)) {
        job->report->denied++;
        project_problem(job->report, e->path,
                        "the file here is kept from the sandbox, so what has its name there does "
                        "not come back");
        return false;
    }
    char why[300];
    if (p->options.may_write != NULL &&
        !p->options.may_write(p->options.arg, e->path, why, sizeof(why))) {
        job->report->denied++;
        project_problem(job->report, e->path, "%s", why);
        return false;
    }
    /* A new directory by itself holds nothing: only a rule keeps it away. */
    if (strcmp(e->type, "directory") == 0 && !e->deleted &&
        ws_tree_find(&p->tree, e->path) == NULL) {
        v = perm_judge_path(&p->perm, RULE_WRITE, e->path);
        if (v->rule == NULL || v->rule->verdict != RULE_DENY)
            return true;
    }
    enum permission_answer answer = permission_exec_path(&p->decide, RULE_WRITE, e->path, &v);
    *asks = answer == PERMISSION_ASK;
    if (answer == PERMISSION_RUN || answer == PERMISSION_ASK)
        return true;
    job->report->denied++;
    if (v->rule != NULL)
        project_problem(job->report, e->path, "%s (%s:%u: %s)", v->why, v->rule->file,
                        v->rule->line, v->rule->text);
    else
        project_problem(job->report, e->path, "%s", v->why);
    return false;
}

/* Contents. */

struct project_pull_get {
    struct project_pull_job *job;
    crypto_hash_sha256_state hash;
    uint64_t size;
};

static int project_pull_data(void *arg, const char *data, size_t len, struct err *err) {
    struct project_pull_get *g = arg;
    if (g->job->spooled + g->size + len > PROJECT_PULL_BYTES_MAX)
        return err_set(err, ERR_LIMIT, 0, "the command changed more than %llu GiB of files",
                       (unsigned long long)(PROJECT_PULL_BYTES_MAX >> 30));
    /* Contents that never end are not to fill the disk of this machine. */
    struct statvfs room;
    if (((g->size + len) >> 24) != (g->size >> 24) && fstatvfs(g->job->spool, &room) == 0 &&
        (uint64_t)room.f_bavail * room.f_frsize < PROJECT_PULL_ROOM_MIN)
        return err_set(err, ERR_LIMIT, ENOSPC,
                       "the disk is nearly full of what the command changed; nothing came back");
    crypto_hash_sha256_update(&g->hash, (const unsigned char *)data, len);
    g->size += len;
    return fd_write_all(g->job->spool, data, len, err);
}

/* 1 = it is in the spool, 0 = it is gone meanwhile, -1. */
static int project_pull_fetch(struct project_pull_job *job, const char *path,
                              struct undo_change *out, struct err *err) {
    char url[3 * WS_TREE_PATH_MAX + 128];
    struct project_pull_get get = {.job = job};
    struct rest_call call = {
        .method = "GET", .path = url, .on_data = project_pull_data, .arg = &get};
    if (job->spool < 0) {
        job->spool = openat(job->p->state, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (job->spool < 0)
            return err_sys(err, "making a temporary file");
    }
    crypto_hash_sha256_init(&get.hash);
    if (project_file_url(job->p, path, "", url, sizeof(url), err) < 0 ||
        rest_perform(job->p->rest, &call, err) < 0)
        return -1;
    if (call.status == 404 || call.status == 409)
        return 0;
    if (call.status >= 400)
        return rest_refusal(&call, err);
    out->fd = job->spool;
    out->offset = job->spooled;
    out->after.size = get.size;
    crypto_hash_sha256_final(&get.hash, out->after.sha256);
    job->spooled += get.size;
    return 1;
}

/* Changes. */

static int project_pull_grow(struct project_pull_job *job, struct err *err) {
    if (job->count < job->alloc)
        return 0;
    size_t alloc = job->alloc == 0 ? 64 : job->alloc * 2;
    struct undo_change *changes = reallocarray(job->changes, alloc, sizeof(*changes));
    if (changes != NULL)
        job->changes = changes;
    char **paths = reallocarray(job->paths, alloc, sizeof(*paths));
    if (paths != NULL)
        job->paths = paths;
    char **targets = reallocarray(job->targets, alloc, sizeof(*targets));
    if (targets != NULL)
        job->targets = targets;
    bool *asks = reallocarray(job->asks, alloc, sizeof(*asks));
    if (asks != NULL)
        job->asks = asks;
    if (changes == NULL || paths == NULL || targets == NULL || asks == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    job->alloc = alloc;
    return 0;
}

static void project_pull_before(const struct ws_entry *e, struct undo_state *out) {
    *out = (struct undo_state){.type = UNDO_ABSENT};
    if (e == NULL)
        return;
    out->type = e->type == WS_FILE ? UNDO_FILE : e->type == WS_DIR ? UNDO_DIR : UNDO_LINK;
    out->mode = e->mode;
    out->size = e->type == WS_FILE ? e->size : 0;
    out->target = e->target;
    memcpy(out->sha256, e->sha256, sizeof(out->sha256));
}

/* The sandbox's files have our mode and what its user needs besides. Who else may write here is
 * not for the sandbox to say. */
static mode_t project_pull_mode(uint32_t mode, const struct ws_entry *was) {
    if (was == NULL || was->type == WS_LINK)
        return mode & ~022u;
    if (mode == (was->mode | (was->type == WS_DIR ? 0700u : 0600u)))
        return was->mode;
    return mode & ~(022u & ~was->mode);
}

static int project_pull_add(struct project_pull_job *job, const struct project_pull_entry *e,
                            bool asks, struct err *err) {
    const struct ws_entry *was = ws_tree_find(&job->p->tree, e->path);
    struct undo_change c = {.fd = -1};
    int rc = 1;
    project_pull_before(was, &c.before);
    if (!e->deleted && strcmp(e->type, "file") == 0) {
        c.after.type = UNDO_FILE;
        rc = project_pull_fetch(job, e->path, &c, err);
    } else if (!e->deleted && strcmp(e->type, "directory") == 0) {
        c.after.type = UNDO_DIR;
    } else if (!e->deleted && strcmp(e->type, "symlink") == 0) {
        c.after.type = UNDO_LINK;
    } else if (!e->deleted) {
        project_problem(job->report, e->path, "a %.20s cannot be brought here", e->type);
        return 0;
    }
    if (rc <= 0)
        return rc;
    if (c.after.type == UNDO_LINK && !cp_path_link_stays(e->path, e->target)) {
        job->report->denied++;
        project_problem(job->report, e->path, "the link leads out of the workspace, to %.200s",
                        e->target);
        return 0;
    }
    bool loosens = false;
    c.path = e->path;
    if (ws_ignore_is_file(e->path) && project_ignore_loosens(job->p, &c, &loosens, err) < 0)
        return -1;
    if (loosens) {
        job->report->denied++;
        project_problem(job->report, e->path,
                        "it would take in what is left out here; only people do that");
        return 0;
    }
    c.after.mode = project_pull_mode(e->mode, was);
    if (project_pull_grow(job, err) < 0)
        return -1;
    char *path = strdup(e->path), *target = strdup(e->target);
    if (path == NULL || target == NULL) {
        free(path);
        free(target);
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    }
    c.path = job->paths[job->count] = path;
    job->targets[job->count] = target;
    if (c.after.type == UNDO_LINK)
        c.after.target = target;
    job->asks[job->count] = asks;
    job->changes[job->count++] = c;
    return 0;
}

static int project_pull_one(void *arg, const struct project_pull_entry *e, struct err *err) {
    struct project_pull_job *job = arg;
    bool asks = false;
    return project_pull_may(job, e, &asks) ? project_pull_add(job, e, asks, err) : 0;
}

/* One question for all that no rule allows. */
static void project_pull_ask(struct project_pull_job *job) {
    char question[PROJECT_PULL_NAMED * 120 + 200];
    size_t asked = 0, at = 0, kept = 0;
    struct project *p = job->p;
    for (size_t i = 0; i < job->count; i++)
        asked += job->asks[i];
    if (asked == 0)
        return;
    at = (size_t)snprintf(question, sizeof(question),
                          "No rule says whether %zu changed %s may come "
                          "back:",
                          asked, asked == 1 ? "path" : "paths");
    /* A person must see all that is asked for: what does not fit is listed before. */
    for (size_t i = 0, shown = 0; i < job->count; i++) {
        if (!job->asks[i])
            continue;
        if (p->options.note != NULL &&
            (asked > PROJECT_PULL_NAMED || strlen(job->changes[i].path) > 100))
            p->options.note(p->options.arg, job->changes[i].path);
        if (++shown <= PROJECT_PULL_NAMED && at < sizeof(question))
            at += (size_t)snprintf(question + at, sizeof(question) - at, " %.100s",
                                   job->changes[i].path);
    }
    if (at < sizeof(question))
        snprintf(question + at, sizeof(question) - at, "%s Bring them here?",
                 asked > PROJECT_PULL_NAMED ? " ..." : ".");
    if (p->options.confirm != NULL && p->options.confirm(p->options.arg, question))
        return;
    for (size_t i = 0; i < job->count; i++) {
        if (job->asks[i]) {
            job->report->denied++;
            project_problem(job->report, job->changes[i].path, "you were asked and said no");
            free(job->paths[i]);
            free(job->targets[i]);
            continue;
        }
        job->changes[kept] = job->changes[i];
        job->paths[kept] = job->paths[i];
        job->targets[kept] = job->targets[i];
        job->asks[kept++] = false;
    }
    job->count = kept;
}

static bool project_pull_deletions(void *arg, size_t deletions) {
    struct project *p = arg;
    char question[160];
    if (p->options.confirm == NULL)
        return false;
    snprintf(
        question, sizeof(question),
        "The command deleted %zu files. Delete them here, too? (pinfold undo brings them back)",
        deletions);
    return p->options.confirm(p->options.arg, question);
}

static void project_pull_count(struct project_pull_job *job, const struct undo_result *result) {
    struct project_report *r = job->report;
    for (size_t i = 0; i < job->count; i++) {
        const struct undo_change *c = &job->changes[i];
        switch (result->outcomes[i]) {
        case UNDO_APPLIED:
            r->created += c->before.type == UNDO_ABSENT;
            r->deleted += c->after.type == UNDO_ABSENT;
            r->modified += c->before.type != UNDO_ABSENT && c->after.type != UNDO_ABSENT;
            break;
        case UNDO_CONFLICT:
            r->conflicts++;
            project_problem(r, c->path,
                            "somebody changed it here meanwhile: it was not overwritten");
            break;
        case UNDO_REFUSED:
            r->conflicts++;
            project_problem(r, c->path, "something else is in its way here");
            break;
        case UNDO_SAME:
            break;
        }
    }
    memcpy(r->id, result->id, sizeof(r->id));
    if (result->shared > 0 && job->p->options.note != NULL) {
        char text[200];
        snprintf(text, sizeof(text),
                 "%zu of the changed files had other names (hard links): those keep what they "
                 "were, and undo does not join them again",
                 result->shared);
        job->p->options.note(job->p->options.arg, text);
    }
}

static int project_pull_apply(struct project_pull_job *job, const struct project_pull *what,
                              struct err *err) {
    struct undo_result result = {0};
    const struct undo_set set = {.label = what->label,
                                 .by = what->by,
                                 .session = what->session,
                                 .rules = job->p->files.policy,
                                 .changes = job->changes,
                                 .count = job->count,
                                 .partial = true,
                                 .deletions_max = PROJECT_PULL_DELETIONS_MAX,
                                 .confirm = project_pull_deletions,
                                 .arg = job->p};
    if (job->count == 0)
        return 0;
    if (apply_changeset(job->p->undo, &set, &result, err) < 0)
        return -1;
    project_pull_count(job, &result);
    free(result.outcomes);
    return 0;
}

int project_pull_each(struct project *p,
                      int (*each)(void *arg, const struct project_pull_entry *entry,
                                  struct err *err),
                      void *arg, struct err *err) {
    char path[200];
    size_t i;
    json_t *one, *answer = NULL;
    struct project_pull_entry *e = malloc(sizeof(*e));
    int rc = e == NULL
                 ? err_set(err, ERR_SYSTEM, ENOMEM, "out of memory")
                 : sandbox_api_path(path, sizeof(path), p->sandbox,
                                    "/changes?contents=false&root=" PROJECT_ROOT_IN_SANDBOX, err);
    if (rc == 0) {
        answer = rest_get_json(p->rest, path, PROJECT_PULL_ANSWER_MAX, err);
        rc = answer == NULL ? -1 : 0;
    }
    json_array_foreach(json_object_get(answer, "entries"), i, one) {
        if (rc == 0 && project_pull_read(one, e) < 0)
            rc = err_set(err, ERR_PROTOCOL, 0, "the server tells of a change that is none");
        if (rc == 0)
            rc = each(arg, e, err);
        if (rc < 0)
            break;
    }
    json_decref(answer);
    free(e);
    return rc;
}

int project_pull(struct project *p, const struct project_pull *what, struct project_report *report,
                 struct err *err) {
    struct project_pull_job job = {.p = p, .report = report, .spool = -1};
    memset(report, 0, sizeof(*report));
    int rc = project_pull_each(p, project_pull_one, &job, err);
    if (rc == 0) {
        project_pull_ask(&job);
        rc = project_pull_apply(&job, what, err);
    }
    if (rc == 0)
        rc = project_settle(p, report, job.changes, job.count, err);
    else if (p->synced) {
        /* The sandbox has what did not come here: the next push sends all anew. */
        struct err later;
        p->synced = false;
        (void)project_save(p, &later);
    }
    for (size_t i = 0; i < job.count; i++) {
        free(job.paths[i]);
        free(job.targets[i]);
    }
    free(job.changes);
    free(job.paths);
    free(job.targets);
    free(job.asks);
    fd_close(&job.spool);
    return rc;
}
