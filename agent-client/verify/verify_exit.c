/* The verifier "exit": the answer of a run (`pinfold run --json`, or GET /v1/runs/ID) says that
 * every step ended by itself with code 0. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "verify_kinds.h"

static void verify_exit_step(const json_t *step, size_t index, struct verify_report *report) {
    const json_t *end = json_object_get(step, "end");
    const char *name = json_string_value(json_object_get(step, "name"));
    const char *state = json_string_value(json_object_get(step, "state"));
    const char *cause = json_string_value(json_object_get(end, "cause"));
    const json_t *code = json_object_get(end, "exit_code");
    char text[160];
    if (name == NULL) {
        snprintf(text, sizeof(text), "step %zu", index);
        name = text;
    }
    if (state == NULL || strcmp(state, "done") != 0)
        verify_fail(report, name, NULL, 0, "the step is %s, not done", state != NULL ? state : "?");
    else if (cause == NULL || strcmp(cause, "exit") != 0)
        verify_fail(report, name, NULL, 0, "it ended by %s",
                    cause != NULL ? cause : "nothing known");
    else if (!json_is_integer(code) || json_integer_value(code) != 0)
        verify_fail(report, name, NULL, 0, "exit code %lld",
                    json_is_integer(code) ? (long long)json_integer_value(code) : -1LL);
    else
        report->passed++;
}

static int verify_exit_judge(const json_t *root, const char *file, struct verify_report *report,
                             struct err *err) {
    const json_t *steps = json_object_get(root, "steps"), *step;
    size_t i;
    /* An execution in a sandbox is one step by itself. */
    if (steps == NULL && json_is_object(json_object_get(root, "end"))) {
        verify_exit_step(root, 0, report);
        return 0;
    }
    if (!json_is_array(steps) || json_array_size(steps) == 0)
        return err_set(err, ERR_INVALID, 0, "%s is not the answer of a run: it has no steps", file);
    json_array_foreach((json_t *)(uintptr_t)steps, i, step) verify_exit_step(step, i, report);
    return 0;
}

static int verify_exit_run(const struct verify_args *args, struct verify_report *report,
                           struct err *err) {
    const char *file = verify_arg(args, "file");
    struct buf text;
    json_error_t why;
    int rc = verify_read(args, file, &text, err);
    if (rc == 0) {
        json_t *root =
            json_loadb(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &why);
        rc = root == NULL ? err_set(err, ERR_INVALID, 0, "%s is no JSON (line %d): %s", file,
                                    why.line, why.text)
                          : verify_exit_judge(root, file, report, err);
        json_decref(root);
    }
    buf_done(&text);
    return rc;
}

static const struct verify_key verify_exit_keys[] = {
    {"file", true, false, "the answer as JSON; - is standard input"},
    {0},
};

const struct verifier verify_exit = {
    .name = "exit",
    .about = "the answer of a run: every step is done, ended by itself, with code 0",
    .keys = verify_exit_keys,
    .run = verify_exit_run,
};
