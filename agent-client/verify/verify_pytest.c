/* pytest: the sections of failures, the short summary, and the closing line
 * "=== 1 failed, 2 passed, 1 skipped in 0.12s ===". */
#include <stdio.h>
#include <string.h>

#include "verify_log_kinds.h"

/* "FAILED tests/a.py::test_x - AssertionError: …": where it was is found in its section. */
struct verify_pytest_place {
    char path[VERIFY_LINES_PATH_SIZE];
    uint64_t line;
    char message[VERIFY_TEXT_MAX];
};

/* "____ Class.test_x[1] ____" of the test "a.py::Class::test_x[1]"? */
static bool verify_pytest_heads(const char *text, const char *test) {
    const char *name = strstr(test, "::");
    if (text[0] != '_' || name == NULL)
        return false;
    text += strspn(text, "_");
    if (*text != ' ')
        return false;
    text++;
    (void)verify_lines_after(text, "ERROR at setup of ", &text);
    (void)verify_lines_after(text, "ERROR at teardown of ", &text);
    for (name += 2; *name != '\0'; name++, text++) {
        if (name[0] == ':' && name[1] == ':' && *text == '.')
            name++;
        else if (*name != *text)
            return false;
    }
    return text[0] == ' ' && text[1] == '_';
}

static void verify_pytest_find(const struct verify_lines *lines, const char *test,
                               struct verify_pytest_place *out) {
    bool inside = false;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i], *rest;
        char path[VERIFY_LINES_PATH_SIZE];
        uint64_t line;
        if (verify_pytest_heads(text, test))
            inside = true;
        else if (inside && (strncmp(text, "____", 4) == 0 || strncmp(text, "====", 4) == 0))
            return;
        else if (inside && out->message[0] == '\0' && verify_lines_after(text, "E  ", &rest))
            snprintf(out->message, sizeof(out->message), "%s", verify_lines_trim(rest));
        /* The last place of the traceback is the one where it failed. */
        else if (inside && text[0] != ' ' && verify_lines_place(text, path, &line)) {
            memcpy(out->path, path, sizeof(path));
            out->line = line;
        }
    }
}

static void verify_pytest_add(const struct verify_lines *lines, const char *text,
                              struct verify_report *report) {
    char test[1024];
    struct verify_pytest_place place;
    const char *dash = strstr(text, " - ");
    int len = dash != NULL ? (int)(dash - text) : (int)strlen(text);
    snprintf(test, sizeof(test), "%.*s", len, text);
    verify_pytest_find(lines, test, &place);
    if (place.path[0] == '\0')
        snprintf(place.path, sizeof(place.path), "%.*s", (int)strcspn(test, ":"), test);
    const char *message = place.message[0] != '\0' ? place.message
                          : dash != NULL           ? dash + 3
                                                   : "failed";
    verify_fail(report, test, place.path, place.line, "%s", message);
}

static bool verify_pytest_closes(const char *text) {
    const char *p = text + strspn(text, "= ");
    return (text[0] == '=' || (*p >= '0' && *p <= '9')) && strstr(p, " in ") != NULL &&
           (strstr(p, " passed") != NULL || strstr(p, " failed") != NULL ||
            strstr(p, " error") != NULL || strstr(p, " skipped") != NULL ||
            strstr(p, "no tests ran") != NULL);
}

int verify_pytest_read(const struct verify_lines *lines, struct verify_report *report) {
    bool summary = false, closed = false;
    uint64_t failed = 0, expected = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = lines->at[i], *rest;
        if (text[0] == '=' && strstr(text, " short test summary info ") != NULL) {
            summary = true;
        } else if (summary && (verify_lines_after(text, "FAILED ", &rest) ||
                               verify_lines_after(text, "ERROR ", &rest))) {
            verify_pytest_add(lines, rest, report);
            failed++;
        } else if (verify_pytest_closes(text)) {
            closed = true;
            report->passed = verify_lines_number_before(text, "passed") +
                             verify_lines_number_before(text, "xpassed");
            report->skipped = verify_lines_number_before(text, "skipped") +
                              verify_lines_number_before(text, "xfailed");
            expected = verify_lines_number_before(text, "failed") +
                       verify_lines_number_before(text, "error") +
                       verify_lines_number_before(text, "errors");
        }
    }
    for (; closed && failed < expected; failed++)
        verify_fail(report, "unnamed test", NULL, 0,
                    "failed; run pytest with -rfE to see which one");
    return closed ? 2 : summary ? 1 : 0;
}
