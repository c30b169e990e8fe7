/* Readers of what test runners print. Each looks at all lines and fills counts and failures; the
 * return value says how sure it is that these lines are of its kind:
 *
 *   0  nothing of it was seen     1  some lines look like it     2  its closing line was there
 *
 * What is printed is the program's own opinion: a reader gives structure to a failure that the exit
 * code has already shown, it is no proof of success. */
#pragma once

#include "verify.h"
#include "verify_lines.h"

struct verify_log_kind {
    const char *name;
    int (*read)(const struct verify_lines *lines, struct verify_report *report);
};

int verify_pytest_read(const struct verify_lines *lines, struct verify_report *report);
int verify_unittest_read(const struct verify_lines *lines, struct verify_report *report);
int verify_go_read(const struct verify_lines *lines, struct verify_report *report);
int verify_cargo_read(const struct verify_lines *lines, struct verify_report *report);
int verify_jest_read(const struct verify_lines *lines, struct verify_report *report);
int verify_vitest_read(const struct verify_lines *lines, struct verify_report *report);
int verify_node_read(const struct verify_lines *lines, struct verify_report *report);
int verify_ctest_read(const struct verify_lines *lines, struct verify_report *report);
int verify_tap_read(const struct verify_lines *lines, struct verify_report *report);
