/* The verifier "reconcile": two sums must agree, as a whole or for each key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify_decimal.h"
#include "verify_kinds.h"
#include "verify_table.h"

#define VERIFY_RECONCILE_NAME 512

/* One side: FILE:COLUMN with conditions, or a number. */
struct verify_reconcile_side {
    const char *name; /* "left" or "right" */
    const char *where;
    char file[VERIFY_RECONCILE_NAME];
    const char *column; /* NULL: a number */
    verify_decimal total;
    struct verify_set keys; /* item->line is an index into sums, less 1 */
    verify_decimal *sums;
    size_t count, alloc;
};

static int verify_reconcile_parse(struct verify_reconcile_side *side, const char *text,
                                  struct err *err) {
    const char *colon = strrchr(text, ':');
    if (verify_decimal_parse(text, &side->total))
        return 0;
    if (colon == NULL || colon == text || colon[1] == '\0' ||
        (size_t)(colon - text) >= sizeof(side->file))
        return err_set(err, ERR_INVALID, 0, "%s must be FILE:COLUMN or a number, not %.80s",
                       side->name, text);
    memcpy(side->file, text, (size_t)(colon - text));
    side->file[colon - text] = '\0';
    side->column = colon + 1;
    return 0;
}

static int verify_reconcile_add(struct verify_reconcile_side *side, const char *key,
                                verify_decimal value, struct err *err) {
    struct verify_set_item *item;
    int rc = verify_set_add(&side->keys, key, side->count, &item, err);
    if (rc < 0)
        return -1;
    if (rc == 1) {
        if (side->count == side->alloc) {
            size_t alloc = side->alloc == 0 ? 64 : side->alloc * 2;
            verify_decimal *grown = reallocarray(side->sums, alloc, sizeof(*grown));
            if (grown == NULL)
                return err_set(err, ERR_SYSTEM, 0, "adding up: out of memory");
            side->sums = grown;
            side->alloc = alloc;
        }
        side->sums[side->count++] = 0;
    }
    return verify_decimal_add(&side->sums[item->line], value, err);
}

/* Does the row fulfil every "COLUMN=VALUE" of left_where or right_where? 1, 0, -1. */
static int verify_reconcile_picks(const struct verify_reconcile_side *side,
                                  const struct verify_table *t, const struct verify_args *args,
                                  struct err *err) {
    const char *text;
    for (size_t n = 0; (text = verify_arg_nth(args, side->where, n)) != NULL; n++) {
        char column[256];
        size_t len = strcspn(text, "="), index;
        if (text[len] == '\0' || len >= sizeof(column))
            return err_set(err, ERR_INVALID, 0, "%s must be COLUMN=VALUE, not %.80s", side->where,
                           text);
        memcpy(column, text, len);
        column[len] = '\0';
        if (verify_table_column(t, column, &index, err) < 0)
            return -1;
        if (strcmp(verify_table_field(t, index), text + len + 1) != 0)
            return 0;
    }
    return 1;
}

static int verify_reconcile_rows(struct verify_reconcile_side *side, struct verify_table *t,
                                 const struct verify_args *args, struct err *err) {
    const char *by = verify_arg(args, "by");
    size_t column, key = 0;
    int more;
    if (verify_table_column(t, side->column, &column, err) < 0 ||
        (by != NULL && verify_table_column(t, by, &key, err) < 0))
        return -1;
    while ((more = verify_table_next(t, err)) > 0) {
        const char *text = verify_table_field(t, column);
        verify_decimal value;
        int picked = verify_reconcile_picks(side, t, args, err);
        if (picked < 0)
            return -1;
        if (picked == 0)
            continue;
        /* An empty or odd field left out would make sums agree that do not. */
        if (!verify_decimal_parse(text, &value))
            return err_set(err, ERR_INVALID, 0, "%s line %llu: %s is no decimal number: \"%.60s\"",
                           side->file, (unsigned long long)t->line, side->column, text);
        if (verify_decimal_add(&side->total, value, err) < 0 ||
            (by != NULL && verify_reconcile_add(side, verify_table_field(t, key), value, err) < 0))
            return -1;
    }
    return more;
}

static int verify_reconcile_read(struct verify_reconcile_side *side, const struct verify_args *args,
                                 struct err *err) {
    struct verify_table t = {0};
    if (verify_reconcile_parse(side, verify_arg(args, side->name), err) < 0)
        return -1;
    if (side->column == NULL && verify_arg(args, "by") != NULL)
        return err_set(err, ERR_INVALID, 0, "%s is a number, which has no keys to compare by",
                       side->name);
    if (side->column == NULL)
        return 0;
    int rc = verify_table_open(&t, args, side->file, verify_arg(args, "separator"), err);
    if (rc == 0)
        rc = verify_reconcile_rows(side, &t, args, err);
    verify_table_done(&t);
    return rc;
}

static void verify_reconcile_compare(const char *name, verify_decimal left, verify_decimal right,
                                     verify_decimal tolerance, struct verify_report *report) {
    char a[VERIFY_DECIMAL_SIZE], b[VERIFY_DECIMAL_SIZE], d[VERIFY_DECIMAL_SIZE];
    verify_decimal difference = left - right;
    if ((difference < 0 ? -difference : difference) <= tolerance) {
        report->passed++;
        return;
    }
    verify_decimal_print(left, a);
    verify_decimal_print(right, b);
    verify_decimal_print(difference, d);
    verify_fail(report, name, NULL, 0, "left is %s, right is %s: the difference is %s", a, b, d);
}

static void verify_reconcile_keys(struct verify_reconcile_side *left,
                                  struct verify_reconcile_side *right, verify_decimal tolerance,
                                  struct verify_report *report) {
    for (size_t i = 0; i < left->keys.size; i++) {
        for (struct verify_set_item *k = left->keys.buckets[i]; k != NULL; k = k->next) {
            struct verify_set_item *other = verify_set_find(&right->keys, k->text);
            if (other != NULL)
                other->met = true;
            verify_reconcile_compare(k->text, left->sums[k->line],
                                     other != NULL ? right->sums[other->line] : 0, tolerance,
                                     report);
        }
    }
    for (size_t i = 0; i < right->keys.size; i++)
        for (struct verify_set_item *k = right->keys.buckets[i]; k != NULL; k = k->next)
            if (!k->met)
                verify_reconcile_compare(k->text, 0, right->sums[k->line], tolerance, report);
}

static int verify_reconcile_run(const struct verify_args *args, struct verify_report *report,
                                struct err *err) {
    struct verify_reconcile_side sides[2] = {{.name = "left", .where = "left_where"},
                                             {.name = "right", .where = "right_where"}};
    const char *text = verify_arg(args, "tolerance");
    verify_decimal tolerance = 0;
    int rc = 0;
    if (text != NULL && (!verify_decimal_parse(text, &tolerance) || tolerance < 0))
        return err_set(err, ERR_INVALID, 0, "tolerance must be a decimal number of at least 0");
    for (size_t i = 0; rc == 0 && i < 2; i++)
        rc = verify_reconcile_read(&sides[i], args, err);
    if (rc == 0 && verify_arg(args, "by") != NULL)
        verify_reconcile_keys(&sides[0], &sides[1], tolerance, report);
    if (rc == 0)
        verify_reconcile_compare("total", sides[0].total, sides[1].total, tolerance, report);
    for (size_t i = 0; i < 2; i++) {
        verify_set_done(&sides[i].keys);
        free(sides[i].sums);
    }
    return rc;
}

static const struct verify_key verify_reconcile_keys_table[] = {
    {"left", true, false, "FILE:COLUMN of a CSV, or a number"},
    {"right", true, false, "what it must agree with"},
    {"by", false, false, "a column of both: the sums must agree for each of its values, too"},
    {"left_where", false, true, "COLUMN=VALUE: only these rows of the left file"},
    {"right_where", false, true, "likewise"},
    {"tolerance", false, false, "how far they may be apart; 0 when not given"},
    {"separator", false, false, "of both files: one character, or tab; a comma when not given"},
    {0},
};

const struct verifier verify_reconcile = {
    .name = "reconcile",
    .about = "sums that must agree, exactly: as a whole and for each key",
    .keys = verify_reconcile_keys_table,
    .run = verify_reconcile_run,
};
