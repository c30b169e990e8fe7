/* What a session needs to be taken up again after a crash: the conversation, what was noted, what
 * it has cost. Written whole after every turn. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "fd.h"

#define AGENT_SESSION_MAX ((size_t)256 * 1024 * 1024)
#define AGENT_SESSION_VERSION 1

static void agent_session_name(const char *session, char name[AGENT_SESSION_SIZE + 8]) {
    snprintf(name, AGENT_SESSION_SIZE + 8, "%s.json", session);
}

static bool agent_session_ok(const char *id) {
    size_t n = strlen(id);
    return n > 3 && n < AGENT_SESSION_SIZE && strncmp(id, "ag_", 3) == 0 &&
           id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
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
    const char *todo = json_string_value(json_object_get(root, "todo"));
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
    if (rc == 0) {
        a->micro_usd = (uint64_t)json_integer_value(json_object_get(root, "micro_usd"));
        a->tokens = (uint64_t)json_integer_value(json_object_get(root, "tokens"));
        a->todo = todo != NULL ? strdup(todo) : NULL;
    }
    json_decref(root);
    buf_done(&text);
    return rc;
}

int agent_session_save(struct agent *a, struct err *err) {
    char name[AGENT_SESSION_SIZE + 8];
    json_t *root = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:o}", "version",
                             AGENT_SESSION_VERSION, "workspace", a->project.path, "rules",
                             a->project.files.policy, "task", a->o.task, "verify", a->o.verify,
                             "todo", a->todo, "micro_usd", (json_int_t)a->micro_usd, "tokens",
                             (json_int_t)a->tokens, "messages", agent_context_save(&a->context));
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
