/* go test: "--- FAIL: TestX (0.00s)" with indented "x_test.go:12: message", "ok  \tpkg\t0.01s",
 * "FAIL\tpkg [build failed]", and the same inside `go test -json` events. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify_log_kinds.h"

/* The first "file.go:12: message" among the lines that belong to the test. */
static void verify_go_add(const struct verify_lines *lines, size_t at, size_t indent,
                          struct verify_report *report) {
    char name[512], path[VERIFY_LINES_PATH_SIZE] = "";
    const char *text = strstr(lines->at[at], "--- FAIL: ") + 10, *message = "failed";
    uint64_t line = 0;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, " "), text);
    for (size_t i = at + 1; i < lines->count; i++) {
        const char *body = verify_lines_trim(lines->at[i]);
        if ((size_t)(body - lines->at[i]) <= indent || strncmp(body, "--- ", 4) == 0)
            break;
        if (verify_lines_place(body, path, &line)) {
            message = strchr(body, ':') + 1;
            message += strspn(message, "0123456789: ");
            break;
        }
    }
    verify_fail(report, name, path[0] != '\0' ? path : NULL, line, "%s", message);
}

/* A test that has failed subtests is only their sum. */
static bool verify_go_has_failed_child(const struct verify_lines *lines, size_t at, size_t indent) {
    for (size_t i = at + 1; i < lines->count; i++) {
        const char *body = verify_lines_trim(lines->at[i]);
        if ((size_t)(body - lines->at[i]) <= indent)
            return false;
        if (strncmp(body, "--- FAIL: ", 10) == 0)
            return true;
    }
    return false;
}

/* "./x.go:10:2: undefined: y" below "# package". */
static bool verify_go_compiles_not(const struct verify_lines *lines, size_t at,
                                   struct verify_report *report) {
    char path[VERIFY_LINES_PATH_SIZE];
    uint64_t line;
    bool any = false;
    for (size_t i = at + 1; i < lines->count; i++) {
        const char *text = lines->at[i];
        if (!verify_lines_place(text, path, &line) || strstr(path, ".go") == NULL)
            break;
        const char *message = strchr(text, ':') + 1;
        message += strspn(message, "0123456789:");
        verify_fail(report, lines->at[at] + 2, path, line, "%s", verify_lines_trim(message));
        any = true;
    }
    return any;
}

static int verify_go_text(const struct verify_lines *lines, struct verify_report *report) {
    bool closed = false, seen = false;
    uint64_t packages = 0;
    const char *rest;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i], *body = verify_lines_trim(text);
        size_t indent = (size_t)(body - text);
        if (strncmp(body, "--- FAIL: ", 10) == 0) {
            seen = true;
            if (!verify_go_has_failed_child(lines, i, indent))
                verify_go_add(lines, i, indent, report);
        } else if (strncmp(body, "--- PASS: ", 10) == 0) {
            seen = true;
            report->passed++;
        } else if (strncmp(body, "--- SKIP: ", 10) == 0) {
            seen = true;
            report->skipped++;
        } else if (verify_lines_after(text, "# ", NULL)) {
            seen = verify_go_compiles_not(lines, i, report) || seen;
        } else if (verify_lines_after(text, "ok  \t", &rest)) {
            closed = true;
            packages += strstr(rest, "[no tests to run]") == NULL;
        } else if (verify_lines_after(text, "FAIL\t", &rest)) {
            closed = true;
            if (report->failed == 0)
                verify_fail(report, rest, NULL, 0, "the package failed");
        }
    }
    /* Without -v only packages are told of. */
    if (report->passed == 0)
        report->passed = packages;
    return closed ? 2 : seen ? 1 : 0;
}

/* Events of `go test -json`, brought back to text: the lines are those of go test -v. */
static int verify_go_events(const struct verify_lines *lines, struct buf *text) {
    int events = 0;
    for (size_t i = 0; i < lines->count; i++) {
        if (lines->at[i][0] != '{')
            continue;
        json_t *event = json_loads(lines->at[i], JSON_REJECT_DUPLICATES, NULL);
        const char *action = json_string_value(json_object_get(event, "Action"));
        const char *output = json_string_value(json_object_get(event, "Output"));
        if (action != NULL && json_string_value(json_object_get(event, "Package")) != NULL)
            events++;
        if (action != NULL && strcmp(action, "output") == 0 && output != NULL &&
            buf_puts(text, output, NULL) < 0)
            events = -1;
        json_decref(event);
        if (events < 0)
            break;
    }
    return events;
}

int verify_go_read(const struct verify_lines *lines, struct verify_report *report) {
    struct buf text;
    struct verify_lines inner = {0};
    int sure = 0;
    buf_init(&text, VERIFY_INPUT_MAX);
    if (verify_go_events(lines, &text) > 0) {
        if (verify_lines_split(&text, &inner, NULL) == 0)
            sure = verify_go_text(&inner, report);
    } else {
        sure = verify_go_text(lines, report);
    }
    verify_lines_done(&inner);
    buf_done(&text);
    return sure;
}
