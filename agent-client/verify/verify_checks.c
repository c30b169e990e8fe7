#include "verify_checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY_CHECKS_NUMBERS 64u

struct verify_checks_args {
    struct verify_args args;
    char numbers[VERIFY_CHECKS_NUMBERS][24];
    size_t number_count;
};

static int verify_checks_value(struct verify_checks_args *a, const char *key, const json_t *value,
                               struct err *err) {
    const char *text = json_string_value(value);
    if (json_is_integer(value) && a->number_count < VERIFY_CHECKS_NUMBERS) {
        char *number = a->numbers[a->number_count++];
        snprintf(number, sizeof(a->numbers[0]), "%lld", (long long)json_integer_value(value));
        text = number;
    }
    if (text == NULL)
        return err_set(err, ERR_INVALID, 0, "%.60s must be a string, a whole number, or a list",
                       key);
    if (a->args.count == VERIFY_ARGS_MAX)
        return err_set(err, ERR_LIMIT, 0, "a check has more than %u arguments", VERIFY_ARGS_MAX);
    a->args.items[a->args.count++] = (struct verify_arg){.name = key, .value = text};
    return 0;
}

static int verify_checks_args(struct verify_checks_args *a, const json_t *check, struct err *err) {
    const char *key;
    json_t *value, *item;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)check, key, value) {
        if (strcmp(key, "verify") == 0 || strcmp(key, "name") == 0)
            continue;
        if (!json_is_array(value)) {
            if (verify_checks_value(a, key, value, err) < 0)
                return -1;
            continue;
        }
        json_array_foreach(value, i, item) {
            if (verify_checks_value(a, key, item, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int verify_checks_one(int root, const json_t *check, struct verify_report *report,
                             const char **name, struct err *err) {
    const char *kind = json_string_value(json_object_get(check, "verify"));
    const struct verifier *v = kind != NULL ? verify_find(kind) : NULL;
    if (v == NULL)
        return err_set(err, ERR_INVALID, 0, "there is no verifier %.60s",
                       kind != NULL ? kind : "(\"verify\" is missing)");
    struct verify_checks_args *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    a->args.root = root;
    *name = json_string_value(json_object_get(check, "name"));
    if (*name == NULL)
        *name = v->name;
    int rc = verify_checks_args(a, check, err);
    if (rc == 0)
        verify_run(v, &a->args, report);
    free(a);
    return rc;
}

static enum verify_verdict verify_checks_all(int root, const json_t *list,
                                             void (*each)(void *arg, const char *name,
                                                          const struct verify_report *report),
                                             void *arg, struct err *err) {
    enum verify_verdict worst = VERIFY_PASS;
    size_t i;
    json_t *check;
    json_array_foreach((json_t *)(uintptr_t)list, i, check) {
        struct verify_report report;
        const char *name = NULL;
        if (verify_checks_one(root, check, &report, &name, err) < 0) {
            err_wrap(err, "check %zu", i);
            return VERIFY_BROKEN;
        }
        each(arg, name, &report);
        if (report.verdict < worst)
            worst = report.verdict;
        verify_report_done(&report);
    }
    return worst;
}

enum verify_verdict verify_checks_run(int root, const char *file,
                                      void (*each)(void *arg, const char *name,
                                                   const struct verify_report *report),
                                      void *arg, struct err *err) {
    const struct verify_args args = {.root = root};
    enum verify_verdict verdict = VERIFY_BROKEN;
    struct buf text;
    json_error_t why;
    if (verify_read(&args, file, &text, err) < 0) {
        buf_done(&text);
        return VERIFY_BROKEN;
    }
    json_t *doc =
        json_loadb(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &why);
    const json_t *list = json_object_get(doc, "checks");
    if (doc == NULL)
        err_set(err, ERR_INVALID, 0, "%s is no JSON (line %d): %s", file, why.line, why.text);
    else if (json_object_size(doc) != 1 || !json_is_array(list) || json_array_size(list) == 0 ||
             json_array_size(list) > VERIFY_CHECKS_MAX)
        err_set(err, ERR_INVALID, 0, "%s must be {\"checks\": [...]} with 1 to %u of them", file,
                VERIFY_CHECKS_MAX);
    else
        verdict = verify_checks_all(root, list, each, arg, err);
    json_decref(doc);
    buf_done(&text);
    return verdict;
}

json_t *verify_checks_json(const char *name, const struct verify_report *report) {
    json_t *failures = json_array();
    for (size_t i = 0; i < report->count; i++) {
        const struct verify_failure *f = &report->failures[i];
        json_array_append_new(
            failures, json_pack("{s:s, s:s?, s:o, s:s}", "name", f->name, "file", f->file, "line",
                                f->line > 0 ? json_integer((json_int_t)f->line) : json_null(),
                                "message", f->message));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:o}", "name", name, "verifier",
                     report->verifier, "verdict", verify_verdict_name(report->verdict), "passed",
                     (json_int_t)report->passed, "failed", (json_int_t)report->failed, "skipped",
                     (json_int_t)report->skipped, "summary", report->summary, "failures", failures);
}
