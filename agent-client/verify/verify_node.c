/* node --test, the "spec" reporter: "✔ name (1ms)", "✖ name (1ms)", "ℹ pass 2", and below
 * "✖ failing tests:" for each "test at file.js:3:1", "✖ name", the error. (Its TAP is read by
 * verify_tap.c.) */
#include <stdio.h>
#include <string.h>

#include "verify_log_kinds.h"

#define VERIFY_NODE_CROSS "\xe2\x9c\x96 " /* ✖ */
#define VERIFY_NODE_INFO "\xe2\x84\xb9 "  /* ℹ */

/* "name (1.2ms)" without the time. */
static void verify_node_name(const char *text, char *name, size_t size) {
    const char *open = strrchr(text, '(');
    size_t n = strlen(text);
    if (open != NULL && open > text && strstr(open, "ms)") != NULL)
        n = (size_t)(open - text) - 1;
    snprintf(name, size, "%.*s", (int)n, text);
}

static void verify_node_failing(const struct verify_lines *lines, size_t from,
                                struct verify_report *report) {
    char path[VERIFY_LINES_PATH_SIZE] = "";
    uint64_t line = 0;
    for (size_t i = from; i < lines->count; i++) {
        const char *text = lines->at[i], *rest;
        char name[512];
        if (verify_lines_after(text, "test at ", &rest)) {
            path[0] = '\0';
            verify_lines_place(rest, path, &line);
        } else if (verify_lines_after(text, VERIFY_NODE_CROSS, &rest)) {
            const char *message =
                i + 1 < lines->count ? verify_lines_trim(lines->at[i + 1]) : "failed";
            verify_node_name(rest, name, sizeof(name));
            verify_fail(report, name, path[0] != '\0' ? path : NULL, line, "%s",
                        message[0] != '\0' ? message : "failed");
            path[0] = '\0';
            line = 0;
        }
    }
}

int verify_node_read(const struct verify_lines *lines, struct verify_report *report) {
    uint64_t tests = 0, fail = 0;
    bool counted = false;
    const char *rest;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i];
        if (verify_lines_after(text, VERIFY_NODE_CROSS "failing tests:", NULL)) {
            verify_node_failing(lines, i + 1, report);
            break;
        }
        if (!verify_lines_after(text, VERIFY_NODE_INFO, &rest))
            continue;
        if (verify_lines_after(rest, "tests ", &rest))
            counted = verify_lines_number(&rest, &tests);
        else if (verify_lines_after(rest, "pass ", &rest))
            verify_lines_number(&rest, &report->passed);
        else if (verify_lines_after(rest, "fail ", &rest))
            verify_lines_number(&rest, &fail);
        else if (verify_lines_after(rest, "skipped ", &rest))
            verify_lines_number(&rest, &report->skipped);
    }
    while (counted && report->failed < fail)
        verify_fail(report, "unnamed test", NULL, 0, "failed");
    return counted ? 2 : 0;
}
