/* Commands of the model, in the workspace's sandbox. */
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_text.h"
#include "permission_ask.h"
#include "sandbox_api.h"
#include "say.h"
#include "text.h"

#define AGENT_RUN_OUTPUT ((json_int_t)4 * 1024 * 1024) /* kept of a command */
#define AGENT_RUN_SHOW ((size_t)16 * 1024)             /* shown to the model at once */
#define AGENT_RUN_PROBLEMS 20u
#define AGENT_RUN_ANSWER_MAX ((size_t)64 * 1024 * 1024)

void agent_outcome_done(struct agent_outcome *outcome) {
    buf_done(&outcome->output);
}

/* Keeps an output; "out:N" is its name, the same one for the same text. */
static const char *agent_run_keep(struct agent *a, const char *text, char name[AGENT_OUTPUT_NAME]) {
    /* The same again has the same name: a model that repeats itself is then seen to do so. */
    for (size_t n = a->output_count; n > 0 && a->output_count - n < AGENT_OUTPUTS; n--)
        if (strcmp(a->outputs[(n - 1) % AGENT_OUTPUTS], text) == 0) {
            snprintf(name, AGENT_OUTPUT_NAME, "out:%zu", n);
            return name;
        }
    char **slot = &a->outputs[a->output_count % AGENT_OUTPUTS];
    char *copy = strdup(text);
    if (copy == NULL)
        return NULL;
    free(*slot);
    *slot = copy;
    snprintf(name, AGENT_OUTPUT_NAME, "out:%zu", ++a->output_count);
    return name;
}

const char *agent_run_kept(const struct agent *a, const char *name) {
    unsigned long n;
    char *end;
    if (strncmp(name, "out:", 4) != 0)
        return NULL;
    n = strtoul(name + 4, &end, 10);
    if (*end != '\0' || n == 0 || n > a->output_count || a->output_count - n >= AGENT_OUTPUTS)
        return NULL;
    return a->outputs[(n - 1) % AGENT_OUTPUTS];
}

/* Nobody is there to answer: what would ask, open an editor or a pager must not. */
static json_t *agent_run_env(const struct agent *a) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "GIT_EDITOR", "true",
                     "EDITOR", "true", "VISUAL", "true", "GIT_TERMINAL_PROMPT", "0", "GIT_PAGER",
                     "cat", "PAGER", "cat", "DEBIAN_FRONTEND", "noninteractive", "TERM", "dumb",
                     AGENT_SESSION_ENV, a->session);
}

static json_t *agent_run_body(const struct agent *a, const char *line, const char *const *words) {
    uint64_t left = agent_loop_left_ms(a), wall = a->o.step_ms < left ? a->o.step_ms : left;
    json_t *body = json_pack("{s:o, s:s, s:b, s:b, s:b, s:{s:I, s:I}}", "env", agent_run_env(a),
                             "cwd", PROJECT_ROOT_IN_SANDBOX, "wait", 1, "merge_stderr", 1,
                             "cancel_on_disconnect", 1, "limits", "wall_ms",
                             (json_int_t)(wall > 0 ? wall : 1), "output_bytes", AGENT_RUN_OUTPUT);
    if (words == NULL) {
        json_object_set_new(body, "sh", json_string(line));
        return body;
    }
    json_t *argv = json_array();
    for (size_t i = 0; words[i] != NULL; i++)
        json_array_append_new(argv, json_string(words[i]));
    json_object_set_new(body, "argv", argv);
    return body;
}

static int agent_run_read(const json_t *answer, struct agent_outcome *out, struct err *err) {
    const json_t *end = json_object_get(answer, "end");
    const json_t *code = json_object_get(end, "exit_code");
    const char *cause = json_string_value(json_object_get(end, "cause"));
    const char *id = json_string_value(json_object_get(answer, "id"));
    snprintf(out->id, sizeof(out->id), "%s", id != NULL ? id : "");
    if (cause == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "the server's answer does not say how it ended");
    snprintf(out->cause, sizeof(out->cause), "%s", cause);
    out->exit_code = json_is_integer(code) ? (int)json_integer_value(code) : -1;
    out->cut = json_integer_value(json_object_get(answer, "stdout_omitted")) > 0;
    out->wall_ms =
        (uint64_t)json_integer_value(json_object_get(json_object_get(answer, "usage"), "wall_ms"));
    out->ok = json_is_true(json_object_get(answer, "ok")) && strcmp(cause, "exit") == 0 &&
              out->exit_code == 0;
    return text_from_json(answer, "stdout", &out->output, err);
}

int agent_run_command(struct agent *a, const char *line, const char *const *words,
                      struct agent_outcome *outcome, struct err *err) {
    char path[160];
    struct buf text;
    json_t *body = agent_run_body(a, line, words), *answer = NULL;
    char *json = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct rest_call call = {.method = "POST",
                             .path = path,
                             .body = json,
                             .body_len = json != NULL ? strlen(json) : 0,
                             .on_data = rest_gather,
                             .arg = &text};
    memset(outcome, 0, sizeof(*outcome));
    outcome->exit_code = -1;
    buf_init(&outcome->output, (size_t)AGENT_RUN_OUTPUT * 2);
    buf_init(&text, AGENT_RUN_ANSWER_MAX);
    json_decref(body);
    int rc = json == NULL ? err_set(err, ERR_INVALID, 0, "the command is not UTF-8")
                          : sandbox_api_path(path, sizeof(path), a->project.sandbox, "/exec", err);
    if (rc == 0)
        rc = rest_perform(a->rest, &call, err);
    if (rc == 0 && call.status >= 400)
        rc = rest_refusal(&call, err);
    if (rc == 0) {
        answer = json_loadb(text.data != NULL ? text.data : "", text.len, JSON_ALLOW_NUL, NULL);
        rc = answer == NULL ? err_set(err, ERR_PROTOCOL, 0, "the server's answer is not JSON")
                            : agent_run_read(answer, outcome, err);
    }
    json_decref(answer);
    buf_done(&text);
    free(json);
    return rc;
}

/* Without the time: the same outcome must read the same. */
static void agent_run_end(const struct agent_outcome *o, struct buf *out) {
    if (strcmp(o->cause, "exit") != 0)
        (void)buf_printf(out, NULL, "[ended by %s]\n", o->cause);
    else
        (void)buf_printf(out, NULL, "[exit code %d%s]\n", o->exit_code,
                         o->exit_code != 0 ? "; stdin was empty" : "");
}

/* At most a quarter of what the model can hold. */
static size_t agent_run_show(const struct agent *a) {
    uint64_t bytes = a->context.budget * 3 / 4;
    return bytes < AGENT_RUN_SHOW ? (size_t)bytes : AGENT_RUN_SHOW;
}

static void agent_run_text(struct agent *a, const struct buf *text, struct buf *out) {
    char name[AGENT_OUTPUT_NAME], handle[64];
    const char *kept = NULL;
    if (text->len > agent_run_show(a))
        kept = agent_run_keep(a, text->data, name);
    if (kept != NULL)
        snprintf(handle, sizeof(handle), "read %s shows them", kept);
    (void)agent_text_bound(out, text->data != NULL ? text->data : "", text->len, agent_run_show(a),
                           kept != NULL ? handle : NULL, NULL);
    if (out->len > 0 && out->data[out->len - 1] != '\n')
        (void)buf_puts(out, "\n", NULL);
}

static void agent_run_output(struct agent *a, const struct agent_outcome *o, struct buf *out) {
    const struct buf *raw = &o->output;
    struct buf text;
    if (raw->len == 0) {
        (void)buf_puts(out, "[no output]\n", NULL);
        return;
    }
    if (agent_text_is_binary(raw->data, raw->len)) {
        unsigned char hash[crypto_hash_sha256_BYTES];
        char hex[2 * sizeof(hash) + 1];
        crypto_hash_sha256(hash, (const unsigned char *)raw->data, raw->len);
        sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
        (void)buf_printf(out, NULL,
                         "[binary output, %zu bytes, sha256 %s: not shown; write it to a file, or "
                         "look at it with xxd]\n",
                         raw->len, hex);
        return;
    }
    buf_init(&text, raw->max);
    if (agent_text_plain(&text, raw->data, raw->len, NULL) == 0)
        agent_run_text(a, &text, out);
    buf_done(&text);
}

/* What the command changed, and what of it did not come back. */
static void agent_run_changes(struct agent *a, const struct project_report *r, struct buf *out) {
    if (r->id[0] != '\0') {
        (void)buf_printf(out, NULL, "[files: %zu created, %zu modified, %zu deleted]\n", r->created,
                         r->modified, r->deleted);
        a->changes++;
    }
    for (size_t i = 0; i < r->problem_count && i < AGENT_RUN_PROBLEMS; i++)
        (void)buf_printf(out, NULL, "[not brought back: %s: %s]\n", r->problems[i].path,
                         r->problems[i].why);
    if (r->problem_count > AGENT_RUN_PROBLEMS)
        (void)buf_printf(out, NULL, "[not brought back: %zu more]\n",
                         r->problem_count - AGENT_RUN_PROBLEMS);
    if (r->denied > 0)
        agent_say_event(a, "denied", json_pack("{s:I}", "paths", (json_int_t)r->denied));
}

bool agent_run(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *line = json_string_value(json_object_get(arguments, "command"));
    const struct perm_verdict *v;
    struct agent_outcome o = {0};
    struct project_report report = {0};
    struct err err;
    char label[UNDO_LABEL_MAX];
    err_clear(&err);
    enum permission_answer answer =
        permission_ask_command(&a->project, "The model wants", line, false, &v);
    if (answer != PERMISSION_RUN)
        return agent_say_denied(a, out, answer, v);
    /* Copied: the verdict is gone with the next question, and sending asks many. */
    json_t *words = NULL;
    const char **argv = NULL;
    size_t n = 0;
    if (v->argv != NULL) {
        words = json_array();
        for (; v->argv[n] != NULL; n++)
            json_array_append_new(words, json_string(v->argv[n]));
        argv = calloc(n + 1, sizeof(*argv));
        for (size_t i = 0; argv != NULL && i < n; i++)
            argv[i] = json_string_value(json_array_get(words, i));
    }
    snprintf(label, sizeof(label), "%s", line);
    agent_say_wait(a, "the command runs");
    int rc = project_push(&a->project, &err);
    if (rc == 0)
        rc = agent_run_command(a, line, argv, &o, &err);
    if (rc == 0) {
        const struct project_pull what = {.label = label, .by = "run", .session = a->session};
        agent_run_output(a, &o, out);
        agent_run_end(&o, out);
        rc = project_pull(&a->project, &what, &report, &err);
        agent_run_changes(a, &report, out);
    }
    if (rc < 0) {
        (void)buf_printf(out, NULL, "the sandbox: %s", err.text);
        if (err.kind == ERR_SYSTEM)
            agent_end(a, AGENT_UNREACHABLE, "%s", err.text);
    }
    project_report_done(&report);
    agent_outcome_done(&o);
    free(argv);
    json_decref(words);
    return rc < 0 || !o.ok;
}
