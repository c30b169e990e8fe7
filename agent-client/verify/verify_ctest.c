/* ctest: "1/3 Test #1: name ....   Passed    0.00 sec", "***Failed", "***Timeout", and
 * "67% tests passed, 1 tests failed out of 3". */
#include <stdio.h>
#include <string.h>

#include "verify_log_kinds.h"

int verify_ctest_read(const struct verify_lines *lines, struct verify_report *report) {
    bool closed = false, seen = false;
    for (size_t i = 0; i < lines->count; i++) {
        const char *text = verify_lines_trim(lines->at[i]);
        const char *test = strstr(text, " Test ");
        const char *name = test != NULL ? strstr(test, ": ") : NULL;
        if (strstr(text, "% tests passed, ") != NULL && strstr(text, " failed out of ") != NULL)
            closed = true;
        if (test == NULL || name == NULL || strchr(test, '#') == NULL || text[0] < '0' ||
            text[0] > '9')
            continue;
        char who[300];
        name += 2;
        snprintf(who, sizeof(who), "%.*s", (int)strcspn(name, " "), name);
        const char *stars = strstr(name, "***");
        seen = true;
        if (strstr(name, " Passed ") != NULL)
            report->passed++;
        else if (stars != NULL &&
                 (strncmp(stars, "***Skipped", 10) == 0 || strstr(stars, "(Disabled)") != NULL))
            report->skipped++;
        else if (stars != NULL)
            verify_fail(report, who, NULL, 0, "%s", stars + 3);
    }
    return closed && seen ? 2 : seen ? 1 : 0;
}
