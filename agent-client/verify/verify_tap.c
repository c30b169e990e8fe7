/* The Test Anything Protocol, versions 12 to 14 (testanything.org). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "verify_kinds.h"
#include "verify_lines.h"
#include "verify_log_kinds.h"

/* What follows the result: "message: 'x'", "at: file:1", "location: 'file:1:2'" of a YAML block, or
 * the first comment. */
static void verify_tap_details(const struct verify_lines *lines, size_t at, char *message,
                               size_t size, char path[VERIFY_LINES_PATH_SIZE], uint64_t *line) {
    message[0] = path[0] = '\0';
    *line = 0;
    for (size_t i = at + 1; i < lines->count && i < at + 60; i++) {
        const char *text = verify_lines_trim(lines->at[i]), *rest;
        if (strncmp(text, "ok ", 3) == 0 || strncmp(text, "not ok", 6) == 0 ||
            strcmp(text, "...") == 0)
            return;
        if (verify_lines_after(text, "location:", &rest) ||
            verify_lines_after(text, "at:", &rest)) {
            rest = verify_lines_trim(rest);
            if (path[0] == '\0')
                verify_lines_place(rest + (*rest == '\'' || *rest == '"'), path, line);
        } else if (message[0] == '\0' && (verify_lines_after(text, "error:", &rest) ||
                                          verify_lines_after(text, "message:", &rest) ||
                                          verify_lines_after(text, "#", &rest))) {
            rest = verify_lines_trim(rest);
            /* A YAML block: the text is on the next line. */
            if ((strncmp(rest, "|-", 2) == 0 || strcmp(rest, "|") == 0) && i + 1 < lines->count)
                rest = verify_lines_trim(lines->at[i + 1]);
            snprintf(message, size, "%s", rest);
        }
    }
}

/* " - name # SKIP why" -> the name into `name`; the directive, or NULL. */
static const char *verify_tap_name(const char *text, char *name, size_t size) {
    const char *hash = strstr(text, " # ");
    int len = hash != NULL ? (int)(hash - text) : (int)strlen(text);
    snprintf(name, size, "%.*s", len, text);
    return hash != NULL ? hash + 3 : NULL;
}

static void verify_tap_result(const struct verify_lines *lines, size_t at, bool ok,
                              const char *text, struct verify_report *report) {
    char name[512], message[VERIFY_TEXT_MAX], path[VERIFY_LINES_PATH_SIZE];
    uint64_t number = 0, line = 0;
    text = verify_lines_trim(text);
    bool numbered = verify_lines_number(&text, &number);
    text = verify_lines_trim(text);
    if (text[0] == '-' && text[1] == ' ')
        text = verify_lines_trim(text + 1);
    const char *directive = verify_tap_name(text, name, sizeof(name));
    bool skip = directive != NULL && strncasecmp(directive, "skip", 4) == 0;
    bool later = directive != NULL && strncasecmp(directive,
                                                  "to"
                                                  "do",
                                                  4) == 0;
    if (skip || later) { /* of what is expected to fail there is no verdict either way */
        report->skipped++;
    } else if (ok) {
        report->passed++;
    } else {
        if (name[0] == '\0' && numbered)
            snprintf(name, sizeof(name), "test %llu", (unsigned long long)number);
        verify_tap_details(lines, at, message, sizeof(message), path, &line);
        verify_fail(report, name[0] != '\0' ? name : "test", path[0] != '\0' ? path : NULL, line,
                    "%s", message[0] != '\0' ? message : "not ok");
    }
}

/* Only the outermost results count: a subtest's are summed up by its parent's. */
int verify_tap_read(const struct verify_lines *lines, struct verify_report *report) {
    bool plan = false, skip_all = false;
    uint64_t planned = 0, seen = 0;
    const char *rest;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i];
        if (verify_lines_after(text, "1..", &rest) && verify_lines_number(&rest, &planned)) {
            plan = true;
            skip_all = planned == 0;
        } else if (verify_lines_after(text, "Bail out!", &rest)) {
            verify_fail(report, "Bail out!", NULL, 0, "%s", verify_lines_trim(rest));
        } else if (verify_lines_after(text, "ok", &rest) && (*rest == ' ' || *rest == '\0')) {
            seen++;
            verify_tap_result(lines, i, true, rest, report);
        } else if (verify_lines_after(text, "not ok", &rest) && (*rest == ' ' || *rest == '\0')) {
            seen++;
            verify_tap_result(lines, i, false, rest, report);
        }
    }
    if (seen == 0 && !plan)
        return 0;
    if (skip_all && seen == 0)
        report->skipped++;
    if (plan && seen != planned)
        verify_fail(report, "plan", NULL, 0, "%llu tests were planned, %llu came",
                    (unsigned long long)planned, (unsigned long long)seen);
    return plan && seen > 0 ? 2 : 1;
}

static int verify_tap_run(const struct verify_args *args, struct verify_report *report,
                          struct err *err) {
    struct buf text;
    struct verify_lines lines = {0};
    int rc = verify_read(args, verify_arg(args, "file"), &text, err);
    if (rc == 0)
        rc = verify_lines_split(&text, &lines, err);
    if (rc == 0 && verify_tap_read(&lines, report) < 2)
        rc =
            err_set(err, ERR_INVALID, 0, "%s has no plan (1..N) with results, so it may be cut off",
                    verify_arg(args, "file"));
    verify_lines_done(&lines);
    buf_done(&text);
    return rc;
}

static const struct verify_key verify_tap_keys[] = {
    {"file", true, false, "the TAP; - is standard input"},
    {0},
};

const struct verifier verify_tap = {
    .name = "tap",
    .about = "the Test Anything Protocol: every planned test came and is ok",
    .keys = verify_tap_keys,
    .run = verify_tap_run,
};
