#include "verify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify_kinds.h"

static const struct verifier *const verify_all[] = {
    &verify_exit, &verify_log,       &verify_junit,        &verify_tap, &verify_schema,
    &verify_csv,  &verify_reconcile, &verify_completeness, NULL,
};

const struct verifier *const *verify_table(void) {
    return verify_all;
}

const struct verifier *verify_find(const char *name) {
    for (size_t i = 0; verify_all[i] != NULL; i++)
        if (strcmp(verify_all[i]->name, name) == 0)
            return verify_all[i];
    return NULL;
}

const char *verify_verdict_name(enum verify_verdict verdict) {
    return verdict == VERIFY_PASS ? "pass" : verdict == VERIFY_FAIL ? "fail" : "broken";
}

/* Arguments. */

const char *verify_arg_nth(const struct verify_args *args, const char *name, size_t n) {
    for (size_t i = 0; i < args->count; i++)
        if (strcmp(args->items[i].name, name) == 0 && n-- == 0)
            return args->items[i].value;
    return NULL;
}

const char *verify_arg(const struct verify_args *args, const char *name) {
    return verify_arg_nth(args, name, 0);
}

static int verify_check_args(const struct verifier *v, const struct verify_args *args,
                             struct err *err) {
    for (size_t i = 0; i < args->count; i++) {
        const struct verify_key *key = v->keys;
        while (key->name != NULL && strcmp(key->name, args->items[i].name) != 0)
            key++;
        if (key->name == NULL)
            return err_set(err, ERR_INVALID, 0, "%s has no argument named %.60s", v->name,
                           args->items[i].name);
        if (!key->many && verify_arg_nth(args, key->name, 1) != NULL)
            return err_set(err, ERR_INVALID, 0, "%s takes one %s, not several", v->name, key->name);
    }
    for (const struct verify_key *key = v->keys; key->name != NULL; key++)
        if (key->required && verify_arg(args, key->name) == NULL)
            return err_set(err, ERR_INVALID, 0, "%s needs %s=… (%s)", v->name, key->name,
                           key->help);
    return 0;
}

/* Reports. */

static char *verify_text(const char *text) {
    size_t len = strnlen(text, VERIFY_TEXT_MAX);
    char *copy = malloc(len + 1);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        copy[i] = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : (char)c;
    }
    copy[len] = '\0';
    return copy;
}

void verify_fail(struct verify_report *report, const char *name, const char *file, uint64_t line,
                 const char *fmt, ...) {
    char message[VERIFY_TEXT_MAX + 1];
    va_list args;
    report->failed++;
    if (report->count == VERIFY_FAILURES_MAX)
        return;
    if (report->count == report->alloc) {
        size_t alloc = report->alloc == 0 ? 16 : report->alloc * 2;
        struct verify_failure *grown =
            reallocarray(report->failures, alloc, sizeof(*report->failures));
        if (grown == NULL)
            return; /* it is counted all the same */
        report->failures = grown;
        report->alloc = alloc;
    }
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    struct verify_failure f = {.name = verify_text(name),
                               .file = file != NULL ? verify_text(file) : NULL,
                               .line = line,
                               .message = verify_text(message)};
    if (f.name == NULL || f.message == NULL) {
        free(f.name);
        free(f.file);
        free(f.message);
        return;
    }
    report->failures[report->count++] = f;
}

void verify_report_done(struct verify_report *report) {
    if (report == NULL)
        return;
    for (size_t i = 0; i < report->count; i++) {
        free(report->failures[i].name);
        free(report->failures[i].file);
        free(report->failures[i].message);
    }
    free(report->failures);
    memset(report, 0, sizeof(*report));
}

static void verify_sum_up(struct verify_report *report) {
    char skipped[48] = "";
    if (report->skipped > 0)
        snprintf(skipped, sizeof(skipped), ", %llu skipped", (unsigned long long)report->skipped);
    snprintf(report->summary, sizeof(report->summary), "%llu passed, %llu failed%s",
             (unsigned long long)report->passed, (unsigned long long)report->failed, skipped);
    if (report->failed > 0) {
        report->verdict = VERIFY_FAIL;
    } else if (report->passed > 0) {
        report->verdict = VERIFY_PASS;
    } else {
        report->verdict = VERIFY_BROKEN;
        snprintf(report->summary, sizeof(report->summary),
                 "nothing was checked (0 passed, 0 failed%s), so nothing is shown", skipped);
    }
}

void verify_run(const struct verifier *v, const struct verify_args *args,
                struct verify_report *report) {
    struct err err;
    err_clear(&err);
    memset(report, 0, sizeof(*report));
    report->verifier = v->name;
    if (verify_check_args(v, args, &err) == 0 && v->run(args, report, &err) == 0) {
        verify_sum_up(report);
        return;
    }
    report->verdict = VERIFY_BROKEN;
    snprintf(report->summary, sizeof(report->summary), "%s", err.text);
}
