/* cargo test: "test a::b ... FAILED", "---- a::b stdout ----" with "panicked at src/lib.rs:10:5:",
 * "test result: FAILED. 1 passed; 1 failed; 0 ignored", and the compiler's "error[E0425]: …". */
#include <stdio.h>
#include <string.h>

#include "verify_log_kinds.h"

/* Rust 1.73 moved the message behind the place, to a line of its own. */
static const char *verify_cargo_panic(const struct verify_lines *lines, size_t at, char *path,
                                      uint64_t *line) {
    const char *text = strstr(lines->at[at], "panicked at ") + 12;
    if (verify_lines_place(text, path, line))
        return at + 1 < lines->count && lines->at[at + 1][0] != '\0' ? lines->at[at + 1]
                                                                     : "panicked";
    const char *comma = strrchr(text, ',');
    if (text[0] == '\'' && comma != NULL)
        verify_lines_place(verify_lines_trim(comma + 1), path, line);
    return text;
}

static void verify_cargo_add(const struct verify_lines *lines, const char *name,
                             struct verify_report *report) {
    char head[600], path[VERIFY_LINES_PATH_SIZE] = "";
    const char *message = "failed";
    uint64_t line = 0;
    bool inside = false;
    snprintf(head, sizeof(head), "---- %s stdout ----", name);
    for (size_t i = 0; i < lines->count; i++) {
        if (strcmp(lines->at[i], head) == 0) {
            inside = true;
        } else if (inside && strncmp(lines->at[i], "---- ", 5) == 0) {
            break;
        } else if (inside && strstr(lines->at[i], "panicked at ") != NULL) {
            message = verify_cargo_panic(lines, i, path, &line);
            break;
        } else if (inside && strncmp(lines->at[i], "Error: ", 7) == 0) {
            message = lines->at[i];
            break;
        }
    }
    verify_fail(report, name, path[0] != '\0' ? path : NULL, line, "%s", message);
}

static void verify_cargo_compile(const struct verify_lines *lines, size_t at,
                                 struct verify_report *report) {
    char path[VERIFY_LINES_PATH_SIZE] = "";
    uint64_t line = 0;
    for (size_t i = at + 1; i < lines->count && i < at + 4; i++) {
        const char *rest;
        if (verify_lines_after(verify_lines_trim(lines->at[i]), "--> ", &rest) &&
            verify_lines_place(rest, path, &line))
            break;
    }
    if (path[0] != '\0')
        verify_fail(report, "compile", path, line, "%s", lines->at[at]);
}

int verify_cargo_read(const struct verify_lines *lines, struct verify_report *report) {
    bool closed = false, seen = false;
    uint64_t passed = 0, ignored = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i], *rest, *dots;
        if (verify_lines_after(text, "test result: ", &rest)) {
            closed = true;
            passed += verify_lines_number_before(rest, "passed");
            ignored += verify_lines_number_before(rest, "ignored");
        } else if (verify_lines_after(text, "test ", &rest) &&
                   (dots = strstr(rest, " ... FAILED")) != NULL) {
            char name[512];
            seen = true;
            snprintf(name, sizeof(name), "%.*s", (int)(dots - rest), rest);
            verify_cargo_add(lines, name, report);
        } else if (strncmp(text, "error[E", 7) == 0 || strncmp(text, "error: ", 7) == 0) {
            uint64_t before = report->failed;
            verify_cargo_compile(lines, i, report);
            seen = seen || report->failed > before;
        }
    }
    report->passed = passed;
    report->skipped = ignored;
    return closed ? 2 : seen ? 1 : 0;
}
