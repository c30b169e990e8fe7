/* The verifier "csv": a table has the columns, the rows and the filled fields that it must have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"
#include "verify_decimal.h"
#include "verify_kinds.h"
#include "verify_table.h"

#define VERIFY_CSV_RULES_MAX 256u

/* What must hold for every field of a column. */
struct verify_csv_rule {
    enum { VERIFY_CSV_FILLED, VERIFY_CSV_NUMBER, VERIFY_CSV_UNIQUE } kind;
    const char *column;
    size_t index;
    bool wrong;
    struct verify_set seen;
};

struct verify_csv_job {
    struct verify_table table;
    struct verify_csv_rule rules[VERIFY_CSV_RULES_MAX];
    size_t count;
    uint64_t rows;
    bool uneven;
};

static int verify_csv_rules(struct verify_csv_job *job, const struct verify_args *args,
                            struct err *err) {
    static const char *const names[] = {"not_null", "number", "unique"};
    for (size_t kind = 0; kind < 3; kind++) {
        const char *column;
        for (size_t n = 0; (column = verify_arg_nth(args, names[kind], n)) != NULL; n++) {
            if (job->count == VERIFY_CSV_RULES_MAX)
                return err_set(err, ERR_LIMIT, 0, "at most %u rules can be checked at once",
                               VERIFY_CSV_RULES_MAX);
            struct verify_csv_rule *rule = &job->rules[job->count];
            rule->kind = (unsigned)kind;
            rule->column = column;
            if (verify_table_column(&job->table, column, &rule->index, err) < 0)
                return -1;
            job->count++;
        }
    }
    return 0;
}

static int verify_csv_field(struct verify_csv_job *job, struct verify_csv_rule *rule,
                            struct verify_report *report, struct err *err) {
    const char *text = verify_table_field(&job->table, rule->index), *file = job->table.file;
    struct verify_set_item *item;
    verify_decimal value;
    uint64_t line = job->table.line, before = report->failed;
    int rc;
    switch (rule->kind) {
    case VERIFY_CSV_FILLED:
        if (text[strspn(text, " \t")] == '\0')
            verify_fail(report, rule->column, file, line, "the field is empty");
        break;
    case VERIFY_CSV_NUMBER:
        if (text[0] != '\0' && !verify_decimal_parse(text, &value))
            verify_fail(report, rule->column, file, line, "%.100s is no decimal number", text);
        break;
    case VERIFY_CSV_UNIQUE:
        rc = verify_set_add(&rule->seen, text, line, &item, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            verify_fail(report, rule->column, file, line, "%.100s was there already, in line %llu",
                        text, (unsigned long long)item->line);
        break;
    }
    rule->wrong = rule->wrong || report->failed != before;
    return 0;
}

static int verify_csv_rows(struct verify_csv_job *job, struct verify_report *report,
                           struct err *err) {
    int more;
    while ((more = verify_table_next(&job->table, err)) > 0) {
        job->rows++;
        if (job->table.count != job->table.columns) {
            job->uneven = true;
            verify_fail(report, "fields", job->table.file, job->table.line,
                        "the row has %zu fields, the first line has %zu", job->table.count,
                        job->table.columns);
        }
        for (size_t i = 0; i < job->count; i++)
            if (verify_csv_field(job, &job->rules[i], report, err) < 0)
                return -1;
    }
    return more;
}

/* "10", "1..", "..100", "1..100" */
static int verify_csv_range(const char *text, uint64_t *min, uint64_t *max, struct err *err) {
    char low[32];
    const char *dots = strstr(text, "..");
    size_t n = dots != NULL ? (size_t)(dots - text) : strlen(text);
    *min = 0;
    *max = UINT64_MAX;
    if (n >= sizeof(low))
        return err_set(err, ERR_INVALID, 0, "rows must be N, MIN.., ..MAX or MIN..MAX");
    memcpy(low, text, n);
    low[n] = '\0';
    const char *high = dots == NULL ? low : dots + 2;
    if ((n > 0 && str_u64(low, 0, UINT64_MAX, min, err) < 0) ||
        (high[0] != '\0' && str_u64(high, 0, UINT64_MAX, max, err) < 0))
        return err_wrap(err, "rows");
    return 0;
}

static int verify_csv_header(struct verify_csv_job *job, const struct verify_args *args,
                             struct verify_report *report) {
    const char *column, *exact = verify_arg(args, "exact");
    size_t n = 0;
    for (; (column = verify_arg_nth(args, "column", n)) != NULL; n++) {
        struct err why;
        size_t index = 0;
        if (verify_table_column(&job->table, column, &index, &why) < 0)
            verify_fail(report, "column", job->table.file, 1, "%s", why.text);
        else if (exact != NULL && strcmp(exact, "yes") == 0 && index != n)
            verify_fail(report, "column", job->table.file, 1,
                        "%s is column %zu, where %zu is wanted", column, index + 1, n + 1);
        else
            report->passed++;
    }
    if (exact != NULL && strcmp(exact, "yes") == 0 && job->table.columns != n)
        verify_fail(report, "column", job->table.file, 1,
                    "there are %zu columns; exactly %zu are "
                    "wanted",
                    job->table.columns, n);
    return 0;
}

static int verify_csv_judge(struct verify_csv_job *job, const struct verify_args *args,
                            struct verify_report *report, struct err *err) {
    const char *rows = verify_arg(args, "rows");
    uint64_t min = 0, max = UINT64_MAX;
    if (rows != NULL && verify_csv_range(rows, &min, &max, err) < 0)
        return -1;
    verify_csv_header(job, args, report);
    if (verify_csv_rules(job, args, err) < 0 || verify_csv_rows(job, report, err) < 0)
        return -1;
    if (rows != NULL && (job->rows < min || job->rows > max))
        verify_fail(report, "rows", job->table.file, 0, "there are %llu rows; %s are wanted",
                    (unsigned long long)job->rows, rows);
    else if (rows != NULL)
        report->passed++;
    for (size_t i = 0; i < job->count; i++)
        report->passed += !job->rules[i].wrong;
    report->passed += !job->uneven; /* it is a table */
    return 0;
}

static int verify_csv_run(const struct verify_args *args, struct verify_report *report,
                          struct err *err) {
    struct verify_csv_job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    int rc = verify_table_open(&job->table, args, verify_arg(args, "file"),
                               verify_arg(args, "separator"), err);
    if (rc == 0)
        rc = verify_csv_judge(job, args, report, err);
    for (size_t i = 0; i < job->count; i++)
        verify_set_done(&job->rules[i].seen);
    verify_table_done(&job->table);
    free(job);
    return rc;
}

static const struct verify_key verify_csv_keys[] = {
    {"file", true, false, "the table; its first line has the names of the columns"},
    {"separator", false, false, "one character, or tab; a comma when not given"},
    {"column", false, true, "a column that must be there"},
    {"exact", false, false, "yes: these columns in this order, and no others"},
    {"rows", false, false, "how many there must be: N, MIN.., ..MAX, MIN..MAX"},
    {"not_null", false, true, "a column without an empty field"},
    {"number", false, true, "a column of decimal numbers (or empty fields)"},
    {"unique", false, true, "a column in which nothing comes twice"},
    {0},
};

const struct verifier verify_csv = {
    .name = "csv",
    .about = "a table: its columns, number of rows, empty fields, numbers, keys",
    .keys = verify_csv_keys,
    .run = verify_csv_run,
};
