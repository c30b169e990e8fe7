/* The verifier "completeness": everything that was asked for is there. Keys of one list in another
 * list, and files by pattern. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "verify_kinds.h"
#include "verify_lines.h"
#include "verify_table.h"

#define VERIFY_COMPLETENESS_NAME 512

static int verify_completeness_add(struct verify_set *set, const char *key, uint64_t line,
                                   struct err *err) {
    if (key[strspn(key, " \t")] == '\0')
        return 0;
    return verify_set_add(set, key, line, NULL, err) < 0 ? -1 : 0;
}

static int verify_completeness_column(const struct verify_args *args, const char *file,
                                      const char *column, struct verify_set *set, struct err *err) {
    struct verify_table t = {0};
    size_t index;
    int more = -1;
    if (verify_table_open(&t, args, file, verify_arg(args, "separator"), err) == 0 &&
        verify_table_column(&t, column, &index, err) == 0)
        while ((more = verify_table_next(&t, err)) > 0 &&
               verify_completeness_add(set, verify_table_field(&t, index), t.line, err) == 0)
            continue;
    verify_table_done(&t);
    return more == 0 ? 0 : -1;
}

static int verify_completeness_lines(const struct verify_args *args, const char *file,
                                     struct verify_set *set, struct err *err) {
    struct buf text;
    struct verify_lines lines = {0};
    int rc = verify_read(args, file, &text, err);
    if (rc == 0)
        rc = verify_lines_split(&text, &lines, err);
    for (size_t i = 0; rc == 0 && i < lines.count; i++)
        rc = verify_completeness_add(set, lines.at[i], i + 1, err);
    verify_lines_done(&lines);
    buf_done(&text);
    return rc;
}

/* "FILE:COLUMN" of a CSV, or "FILE" with one key a line. */
static int verify_completeness_keys(const struct verify_args *args, const char *text,
                                    struct verify_set *set, struct err *err) {
    char file[VERIFY_COMPLETENESS_NAME];
    const char *colon = strrchr(text, ':');
    if (colon == NULL)
        return verify_completeness_lines(args, text, set, err);
    if ((size_t)(colon - text) >= sizeof(file))
        return err_set(err, ERR_INVALID, 0, "%.80s… is too long a name", text);
    memcpy(file, text, (size_t)(colon - text));
    file[colon - text] = '\0';
    return verify_completeness_column(args, file, colon + 1, set, err);
}

static void verify_completeness_compare(const char *expected, const char *actual,
                                        const struct verify_set *want,
                                        const struct verify_set *have, bool extra,
                                        struct verify_report *report) {
    for (size_t i = 0; i < want->size; i++) {
        for (const struct verify_set_item *k = want->buckets[i]; k != NULL; k = k->next) {
            if (verify_set_find(have, k->text) != NULL)
                report->passed++;
            else
                verify_fail(report, k->text, expected, k->line, "it is not in %s", actual);
        }
    }
    for (size_t i = 0; !extra && i < have->size; i++)
        for (const struct verify_set_item *k = have->buckets[i]; k != NULL; k = k->next)
            if (verify_set_find(want, k->text) == NULL)
                verify_fail(report, k->text, actual, k->line, "nobody asked for it in %s",
                            expected);
}

static int verify_completeness_lists(const struct verify_args *args, struct verify_report *report,
                                     struct err *err) {
    const char *expected = verify_arg(args, "expected"), *actual = verify_arg(args, "actual");
    const char *extra = verify_arg(args, "extra");
    struct verify_set want = {0}, have = {0};
    if (expected == NULL && actual == NULL)
        return 0;
    if (expected == NULL || actual == NULL)
        return err_set(err, ERR_INVALID, 0, "expected and actual belong together: both or none");
    if (extra != NULL && strcmp(extra, "allow") != 0 && strcmp(extra, "refuse") != 0)
        return err_set(err, ERR_INVALID, 0, "extra must be allow or refuse");
    int rc = verify_completeness_keys(args, expected, &want, err);
    if (rc == 0)
        rc = verify_completeness_keys(args, actual, &have, err);
    if (rc == 0)
        verify_completeness_compare(expected, actual, &want, &have,
                                    extra == NULL || strcmp(extra, "allow") == 0, report);
    verify_set_done(&want);
    verify_set_done(&have);
    return rc;
}

static int verify_completeness_files(const struct verify_args *args, struct verify_report *report,
                                     struct err *err) {
    const char *pattern;
    for (size_t n = 0; (pattern = verify_arg_nth(args, "files", n)) != NULL; n++) {
        char **names = NULL;
        size_t count = 0;
        if (verify_glob(args, pattern, &names, &count, err) < 0)
            return -1;
        if (count == 0)
            verify_fail(report, pattern, NULL, 0, "no file matches");
        for (size_t i = 0; i < count; i++) {
            struct stat st;
            if (fstatat(args->root, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size == 0)
                verify_fail(report, pattern, names[i], 0, "the file is empty");
            else
                report->passed++;
        }
        verify_names_done(names, count);
    }
    return 0;
}

static int verify_completeness_run(const struct verify_args *args, struct verify_report *report,
                                   struct err *err) {
    if (verify_completeness_lists(args, report, err) < 0)
        return -1;
    return verify_completeness_files(args, report, err);
}

static const struct verify_key verify_completeness_keys_table[] = {
    {"expected", false, false, "the keys that were asked for: FILE (one a line) or FILE:COLUMN"},
    {"actual", false, false, "where each of them must be: FILE or FILE:COLUMN"},
    {"extra", false, false, "keys that nobody asked for: allow (default) or refuse"},
    {"files", false, true, "a pattern that must match, and match no empty file: out/**/*.pdf"},
    {"separator", false, false, "of CSV files: one character, or tab; a comma when not given"},
    {0},
};

const struct verifier verify_completeness = {
    .name = "completeness",
    .about = "everything that was asked for is there: keys of a list, files by pattern",
    .keys = verify_completeness_keys_table,
    .run = verify_completeness_run,
};
