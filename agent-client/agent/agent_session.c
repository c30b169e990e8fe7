/* What a session needs to be taken up again after a crash: the conversation, what was noted, what
 * it has cost, and what held at its start (the verifier's verdict, the files that are protected):
 * taken anew, it would be that of a workspace that the model has changed already. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "clock.h"
#include "fd.h"

#define AGENT_SESSION_MAX ((size_t)256 * 1024 * 1024)
#define AGENT_SESSION_VERSION 2

static void agent_session_name(const char *session, char name[AGENT_SESSION_SIZE + 8]) {
    snprintf(name, AGENT_SESSION_SIZE + 8, "%s.json", session);
}

bool agent_session_ok(const char *id) {
    size_t n = strlen(id);
    return n > 3 && n < AGENT_SESSION_SIZE && strncmp(id, "ag_", 3) == 0 &&
           id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static json_t *agent_session_verdict(const struct agent_verdict *v) {
    return json_pack("{s:b, s:b, s:b, s:b, s:I, s:I, s:I}", "ran", (int)v->ran, "pass",
                     (int)v->pass, "counted", (int)v->counted, "cut", (int)v->cut, "passed",
                     (json_int_t)v->passed, "failed", (json_int_t)v->failed, "skipped",
                     (json_int_t)v->skipped);
}

static uint64_t agent_session_number(const json_t *object, const char *key) {
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n > 0 ? (uint64_t)n : 0;
}

static json_t *agent_session_protected(const struct agent *a) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->protected_count; i++)
        json_array_append_new(list, json_string(a->protected[i]));
    return list;
}

static char *agent_session_text(const json_t *root, const char *key) {
    const char *text = json_string_value(json_object_get(root, key));
    return text != NULL ? strdup(text) : NULL;
}

/* Everything but the conversation. */
static int agent_session_take(struct agent *a, const json_t *root, struct err *err) {
    const json_t *b = json_object_get(root, "baseline"), *list = json_object_get(root, "protected");
    a->baseline = (struct agent_verdict){.ran = json_is_true(json_object_get(b, "ran")),
                                         .pass = json_is_true(json_object_get(b, "pass")),
                                         .counted = json_is_true(json_object_get(b, "counted")),
                                         .cut = json_is_true(json_object_get(b, "cut")),
                                         .passed = agent_session_number(b, "passed"),
                                         .failed = agent_session_number(b, "failed"),
                                         .skipped = agent_session_number(b, "skipped")};
    a->micro_usd = agent_session_number(root, "micro_usd");
    a->tokens = agent_session_number(root, "tokens");
    a->iterations = agent_session_number(root, "requests");
    a->changes = (size_t)agent_session_number(root, "changes");
    a->spent_ms = agent_session_number(root, "wall_ms");
    a->red = json_is_true(json_object_get(root, "red"));
    a->priceless = json_is_true(json_object_get(root, "priceless"));
    a->todo = agent_session_text(root, "todo");
    a->task = agent_session_text(root, "task");
    a->verify = agent_session_text(root, "verify");
    a->protected = calloc(json_array_size(list) + 1, sizeof(char *));
    if (a->task == NULL || a->verify == NULL || a->protected == NULL)
        return err_set(err, ERR_INVALID, 0, "the session %s is not understood", a->session);
    a->o.task = a->o.task != NULL ? a->o.task : a->task;
    a->o.verify = a->o.verify != NULL ? a->o.verify : a->verify;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *path = json_string_value(json_array_get(list, i));
        char *copy = path != NULL ? strdup(path) : NULL;
        if (copy == NULL)
            return err_set(err, ERR_INVALID, 0, "the session %s is not understood", a->session);
        a->protected[a->protected_count++] = copy;
    }
    return agent_options_load(a, json_object_get(root, "options"), err);
}

static int agent_session_load(struct agent *a, struct err *err) {
    char name[AGENT_SESSION_SIZE + 8];
    struct buf text;
    if (!agent_session_ok(a->o.resume))
        return err_set(err, ERR_INVALID, 0, "%.60s is not the id of a session", a->o.resume);
    snprintf(a->session, sizeof(a->session), "%s", a->o.resume);
    agent_session_name(a->session, name);
    buf_init(&text, AGENT_SESSION_MAX);
    int rc = fd_read_file(a->dir, name, &text, err);
    json_t *root =
        rc == 0 ? json_loadb(text.data != NULL ? text.data : "", text.len, 0, NULL) : NULL;
    const char *workspace = json_string_value(json_object_get(root, "workspace"));
    const char *policy = json_string_value(json_object_get(root, "rules"));
    if (rc == 0 && (workspace == NULL || policy == NULL ||
                    json_integer_value(json_object_get(root, "version")) != AGENT_SESSION_VERSION))
        rc = err_set(err, ERR_INVALID, 0, "the session %s is not understood", a->session);
    if (rc == 0 && strcmp(workspace, a->project.path) != 0)
        rc = err_set(err, ERR_STATE, 0, "the session %s belongs to the workspace %s", a->session,
                     workspace);
    /* The rules of a session stay those that it began with. */
    if (rc == 0 && strcmp(policy, a->project.files.policy) != 0)
        rc = err_set(err, ERR_STATE, 0,
                     "the rules have changed since the session %s began: start a new one",
                     a->session);
    if (rc == 0)
        rc = agent_context_load(&a->context, json_object_get(root, "messages"), err);
    if (rc == 0)
        rc =
            agent_context_complete(&a->context,
                                   "not known: the session was interrupted in this call, or before "
                                   "it. Look at the files before you do it again.",
                                   err);
    if (rc == 0)
        rc = agent_session_take(a, root, err);
    json_decref(root);
    buf_done(&text);
    return rc;
}

int agent_session_save(struct agent *a, struct err *err) {
    char name[AGENT_SESSION_SIZE + 8];
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:o}",
        "version", AGENT_SESSION_VERSION, "workspace", a->project.path, "rules",
        a->project.files.policy, "task", a->o.task, "verify", a->o.verify, "todo", a->todo,
        "micro_usd", (json_int_t)a->micro_usd, "tokens", (json_int_t)a->tokens, "requests",
        (json_int_t)a->iterations, "changes", (json_int_t)a->changes, "wall_ms",
        (json_int_t)(a->spent_ms + clock_mono_ms() - a->begun_ms), "red", (int)a->red, "priceless",
        (int)a->priceless, "options", agent_options_save(a), "baseline",
        agent_session_verdict(&a->baseline), "protected", agent_session_protected(a), "messages",
        agent_context_save(&a->context));
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL)
        return err_set(err, ERR_INVALID, 0, "the session cannot be written: a text is not UTF-8");
    agent_session_name(a->session, name);
    int rc = fd_write_atomic(a->dir, name, text, strlen(text), 0600, err);
    free(text);
    return rc;
}

int agent_session_open(struct agent *a, struct err *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    if (mkdirat(a->project.state, "agent", 0700) < 0 && errno != EEXIST)
        return err_sys(err, "making the directory of sessions");
    a->dir = openat(a->project.state, "agent", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (a->dir < 0)
        return err_sys(err, "opening the directory of sessions");
    if (a->o.resume != NULL)
        return agent_session_load(a, err);
    memcpy(a->session, "ag_", 3);
    for (size_t i = 3; i < 23; i++)
        a->session[i] = letters[randombytes_uniform(36)];
    a->session[23] = '\0';
    return 0;
}
