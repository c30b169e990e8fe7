/* Python's unittest: "FAIL: test_x (mod.Class.test_x)", a traceback, "Ran 3 tests in 0.001s",
 * "FAILED (failures=1, errors=1, skipped=1)" or "OK". */
#include <stdio.h>
#include <string.h>

#include "verify_log_kinds.h"

/* The traceback below a heading: the last frame, and the first line at the margin after it. */
static void verify_unittest_add(const struct verify_lines *lines, size_t at, const char *name,
                                struct verify_report *report) {
    char path[VERIFY_LINES_PATH_SIZE] = "";
    const char *message = "failed", *rest;
    uint64_t line = 0;
    bool traced = false;
    for (size_t i = at + 1; i < lines->count && strncmp(lines->at[i], "====", 4) != 0; i++) {
        const char *text = lines->at[i];
        if (strncmp(text, "Ran ", 4) == 0)
            break;
        if (verify_lines_after(verify_lines_trim(text), "File \"", &rest)) {
            size_t n = strcspn(rest, "\"");
            const char *p = rest + n;
            if (n < sizeof(path) && verify_lines_after(p, "\", line ", &p)) {
                memcpy(path, rest, n);
                path[n] = '\0';
                verify_lines_number(&p, &line);
            }
            traced = true;
        } else if (traced && text[0] != ' ' && text[0] != '\0' && text[0] != '-') {
            message = text;
            break;
        }
    }
    verify_fail(report, name, path[0] != '\0' ? path : NULL, line, "%s", message);
}

static uint64_t verify_unittest_count(const char *text, const char *key) {
    const char *p = strstr(text, key);
    uint64_t n = 0;
    if (p != NULL && (p == text || p[-1] == '(' || p[-1] == ' ')) {
        p += strlen(key);
        verify_lines_number(&p, &n);
    }
    return n;
}

int verify_unittest_read(const struct verify_lines *lines, struct verify_report *report) {
    uint64_t ran = 0, named = 0, failed = 0, skipped = 0;
    bool counted = false, closed = false;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i], *rest;
        if (i > 0 && strncmp(lines->at[i - 1], "====", 4) == 0 &&
            (verify_lines_after(text, "FAIL: ", &rest) ||
             verify_lines_after(text, "ERROR: ", &rest))) {
            verify_unittest_add(lines, i, rest, report);
            named++;
        } else if (verify_lines_after(text, "Ran ", &rest) && verify_lines_number(&rest, &ran)) {
            counted = strncmp(rest, " test", 5) == 0;
        } else if (counted && (strncmp(text, "OK", 2) == 0 || strncmp(text, "FAILED (", 8) == 0)) {
            closed = true;
            failed = verify_unittest_count(text, "failures=") +
                     verify_unittest_count(text, "errors=") +
                     verify_unittest_count(text, "unexpected successes=");
            skipped = verify_unittest_count(text, "skipped=") +
                      verify_unittest_count(text, "expected failures=");
        }
    }
    for (; closed && named < failed; named++)
        verify_fail(report, "unnamed test", NULL, 0, "failed");
    report->skipped = skipped;
    report->passed = ran > failed + skipped ? ran - failed - skipped : 0;
    return closed ? 2 : counted || named > 0 ? 1 : 0;
}
