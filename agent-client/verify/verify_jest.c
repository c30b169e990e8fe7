/* jest: "● suite › test" with its message and "at … (file.test.js:5:17)", closing with
 * "Tests:       1 failed, 2 passed, 3 total". vitest: "FAIL  file.test.ts > suite > test",
 * "AssertionError: …", "❯ file.test.ts:5:17", closing with "Tests  1 failed | 2 passed (3)". */
#include <stdio.h>
#include <string.h>

#include "verify_log_kinds.h"

#define VERIFY_JEST_DOT "\xe2\x97\x8f "   /* ● */
#define VERIFY_JEST_ARROW "\xe2\x9d\xaf " /* ❯ */
#define VERIFY_JEST_LOOK 200u             /* lines that belong to a failure, at most */

/* jest repeats all failures below "Summary of all failing tests". */
static bool verify_jest_known(const struct verify_report *report, const char *name) {
    for (size_t i = 0; i < report->count; i++)
        if (strcmp(report->failures[i].name, name) == 0)
            return true;
    return false;
}

static bool verify_jest_frame(const char *text, char path[VERIFY_LINES_PATH_SIZE], uint64_t *line) {
    const char *open = strchr(text, '('), *rest;
    if (!verify_lines_after(text, "at ", &rest) || strstr(text, "node_modules") != NULL ||
        strstr(text, "node:") != NULL)
        return false;
    return verify_lines_place(open != NULL ? open + 1 : rest, path, line);
}

static void verify_jest_add(const struct verify_lines *lines, size_t at, const char *name,
                            struct verify_report *report) {
    char path[VERIFY_LINES_PATH_SIZE] = "";
    const char *message = "failed";
    uint64_t line = 0;
    bool told = false;
    if (verify_jest_known(report, name))
        return;
    for (size_t i = at + 1; i < lines->count && i < at + VERIFY_JEST_LOOK; i++) {
        const char *text = verify_lines_trim(lines->at[i]);
        if (strncmp(text, VERIFY_JEST_DOT, sizeof(VERIFY_JEST_DOT) - 1) == 0)
            break;
        if (!told && text[0] != '\0') {
            message = text;
            told = true;
        }
        if (verify_jest_frame(text, path, &line))
            break;
    }
    verify_fail(report, name, path[0] != '\0' ? path : NULL, line, "%s", message);
}

/* "1 failed, 2 passed": those that failed without a name that was seen are failures, too. */
static void verify_jest_sum(const char *text, struct verify_report *report) {
    uint64_t failed = verify_lines_number_before(text, "failed");
    report->passed = verify_lines_number_before(text, "passed");
    report->skipped =
        verify_lines_number_before(text, "skipped") + verify_lines_number_before(text, "todo");
    while (report->failed < failed)
        verify_fail(report, "unnamed test", NULL, 0, "failed");
}

int verify_jest_read(const struct verify_lines *lines, struct verify_report *report) {
    bool closed = false, seen = false;
    const char *rest;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = verify_lines_trim(lines->at[i]);
        if (verify_lines_after(text, VERIFY_JEST_DOT, &rest) && strncmp(rest, "Console", 7) != 0) {
            verify_jest_add(lines, i, rest, report);
            seen = true;
        } else if (verify_lines_after(text, "Tests:", &rest) && strstr(rest, " total") != NULL) {
            closed = true;
            verify_jest_sum(rest, report);
        }
    }
    return closed ? 2 : seen ? 1 : 0;
}

static void verify_jest_vitest_add(const struct verify_lines *lines, size_t at, const char *name,
                                   struct verify_report *report) {
    char path[VERIFY_LINES_PATH_SIZE] = "";
    const char *message = "failed", *rest;
    uint64_t line = 0;
    bool told = false;
    for (size_t i = at + 1; i < lines->count && i < at + VERIFY_JEST_LOOK; i++) {
        const char *text = verify_lines_trim(lines->at[i]);
        if (strncmp(text, "FAIL ", 5) == 0)
            break;
        if (!told && text[0] != '\0') {
            message = text;
            told = true;
        }
        if (verify_lines_after(text, VERIFY_JEST_ARROW, &rest) &&
            verify_lines_place(rest, path, &line))
            break;
    }
    verify_fail(report, name, path[0] != '\0' ? path : NULL, line, "%s", message);
}

int verify_vitest_read(const struct verify_lines *lines, struct verify_report *report) {
    bool closed = false, seen = false;
    const char *rest;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = verify_lines_trim(lines->at[i]);
        if (verify_lines_after(text, "FAIL  ", &rest) && strstr(rest, " > ") != NULL) {
            verify_jest_vitest_add(lines, i, rest, report);
            seen = true;
        } else if (verify_lines_after(text, "Tests  ", &rest) && strchr(rest, '(') != NULL) {
            closed = true;
            verify_jest_sum(rest, report);
        }
    }
    return closed ? 2 : seen ? 1 : 0;
}
