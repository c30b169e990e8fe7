/* The verifier "log": the output of a test runner, whichever of those that it knows. */
#include <string.h>

#include "verify_kinds.h"
#include "verify_log_kinds.h"

static const struct verify_log_kind verify_log_kinds[] = {
    {"pytest", verify_pytest_read}, {"unittest", verify_unittest_read},
    {"go", verify_go_read},         {"cargo", verify_cargo_read},
    {"jest", verify_jest_read},     {"vitest", verify_vitest_read},
    {"node", verify_node_read},     {"ctest", verify_ctest_read},
    {"tap", verify_tap_read},
};

#define VERIFY_LOG_KINDS (sizeof(verify_log_kinds) / sizeof(verify_log_kinds[0]))

static const struct verify_log_kind *verify_log_named(const char *name) {
    for (size_t i = 0; i < VERIFY_LOG_KINDS; i++)
        if (strcmp(verify_log_kinds[i].name, name) == 0)
            return &verify_log_kinds[i];
    return NULL;
}

/* Keeps `found` when it is better than what *best has. */
static int verify_log_better(struct verify_report *best, int sure, struct verify_report *found,
                             int now) {
    if (now <= sure) {
        verify_report_done(found);
        return sure;
    }
    found->verifier = best->verifier;
    verify_report_done(best);
    *best = *found;
    return now;
}

static int verify_log_judge(const struct verify_lines *lines, const char *format,
                            struct verify_report *report, struct err *err) {
    const struct verify_log_kind *only = NULL;
    int sure = 0;
    if (format != NULL && strcmp(format, "auto") != 0) {
        only = verify_log_named(format);
        if (only == NULL)
            return err_set(err, ERR_INVALID, 0,
                           "there is no format %.40s; known are auto, pytest, unittest, go, cargo, "
                           "jest, vitest, node, ctest and tap",
                           format);
    }
    for (size_t i = 0; i < VERIFY_LOG_KINDS; i++) {
        struct verify_report found = {.verifier = report->verifier,
                                      .format = verify_log_kinds[i].name};
        if (only != NULL && only != &verify_log_kinds[i])
            continue;
        int now = verify_log_kinds[i].read(lines, &found);
        sure = verify_log_better(report, sure, &found, now);
    }
    if (sure == 0)
        return err_set(err, ERR_INVALID, 0,
                       "nothing in these %zu lines looks like the output of a test runner that "
                       "is known here",
                       lines->count);
    return 0;
}

static int verify_log_run(const struct verify_args *args, struct verify_report *report,
                          struct err *err) {
    struct buf text;
    struct verify_lines lines = {0};
    int rc = verify_read(args, verify_arg(args, "file"), &text, err);
    if (rc == 0)
        rc = verify_lines_split(&text, &lines, err);
    if (rc == 0)
        rc = verify_log_judge(&lines, verify_arg(args, "format"), report, err);
    verify_lines_done(&lines);
    buf_done(&text);
    return rc;
}

static const struct verify_key verify_log_keys[] = {
    {"file", true, false, "what the runner printed; - is standard input"},
    {"format", false, false,
     "pytest, unittest, go, cargo, jest, vitest, node, ctest, tap; auto (default) finds out"},
    {0},
};

const struct verifier verify_log = {
    .name = "log",
    .about = "what a test runner printed: which tests failed, where, and why",
    .keys = verify_log_keys,
    .run = verify_log_run,
};
