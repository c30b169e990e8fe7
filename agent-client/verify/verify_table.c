#include "verify_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int verify_table_add(struct verify_table *t, char *field, struct err *err) {
    if (t->count == VERIFY_TABLE_COLUMNS_MAX)
        return err_set(err, ERR_LIMIT, 0, "%s line %llu has more than %u fields", t->file,
                       (unsigned long long)t->line, VERIFY_TABLE_COLUMNS_MAX);
    if (t->count == t->alloc) {
        size_t alloc = t->alloc == 0 ? 32 : t->alloc * 2;
        char **grown = reallocarray(t->fields, alloc, sizeof(*grown));
        if (grown == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "reading %s: out of memory", t->file);
        t->fields = grown;
        t->alloc = alloc;
    }
    t->fields[t->count++] = field;
    return 0;
}

/* The field at t->pos, unquoted in place. What ends it goes to *end: the separator, '\n', or '\0'
 * for the end of the file. */
static char *verify_table_unquote(struct verify_table *t, char *end, struct err *err) {
    char *data = t->text.data, *to, *begin;
    size_t len = t->text.len;
    bool quoted = t->pos < len && data[t->pos] == '"';
    if (quoted)
        t->pos++;
    begin = to = data + t->pos;
    for (;; t->pos++) {
        char c = t->pos < len ? data[t->pos] : '\0';
        if (t->pos < len && c == '\0') {
            err_set(err, ERR_INVALID, 0, "%s line %llu holds a NUL byte", t->file,
                    (unsigned long long)t->next_line);
            return NULL;
        }
        if (quoted && t->pos >= len) {
            err_set(err, ERR_INVALID, 0, "%s: the quote of line %llu does not end", t->file,
                    (unsigned long long)t->line);
            return NULL;
        }
        if (quoted && c == '"' && t->pos + 1 < len && data[t->pos + 1] == '"') {
            t->pos++;
        } else if (quoted && c == '"') {
            quoted = false;
            continue;
        } else if (!quoted && (t->pos >= len || c == '\n' || c == t->separator)) {
            *end = t->pos >= len ? '\0' : c;
            break;
        } else if (!quoted && c == '\r' && (t->pos + 1 >= len || data[t->pos + 1] == '\n')) {
            continue;
        }
        if (c == '\n')
            t->next_line++;
        *to++ = c;
    }
    if (t->pos < len)
        t->pos++;
    *to = '\0';
    return begin;
}

int verify_table_next(struct verify_table *t, struct err *err) {
    for (;;) {
        char end = '\n';
        t->count = 0;
        t->line = t->next_line;
        if (t->pos >= t->text.len)
            return 0;
        do {
            char *field = verify_table_unquote(t, &end, err);
            if (field == NULL || verify_table_add(t, field, err) < 0)
                return -1;
            /* "a," at the very end has an empty last field. */
            if (end == t->separator && t->pos >= t->text.len)
                return verify_table_add(t, t->text.data + t->text.len, err) < 0 ? -1 : 1;
        } while (end == t->separator);
        if (end == '\n')
            t->next_line++;
        if (t->count > 1 || t->fields[0][0] != '\0')
            return 1;
    }
}

int verify_table_open(struct verify_table *t, const struct verify_args *args, const char *file,
                      const char *separator, struct err *err) {
    memset(t, 0, sizeof(*t));
    t->file = file;
    t->separator = ',';
    t->next_line = 1;
    if (separator != NULL && strcmp(separator, "tab") == 0)
        t->separator = '\t';
    else if (separator != NULL && strlen(separator) == 1 && strchr("\"\n\r", separator[0]) == NULL)
        t->separator = separator[0];
    else if (separator != NULL)
        return err_set(err, ERR_INVALID, 0, "separator must be one character, or tab");
    if (verify_read(args, file, &t->text, err) < 0)
        return -1;
    /* A byte order mark, as spreadsheets write it. */
    if (t->text.len >= 3 && memcmp(t->text.data, "\xef\xbb\xbf", 3) == 0)
        t->pos = 3;
    int rc = verify_table_next(t, err);
    if (rc == 0)
        return err_set(err, ERR_INVALID, 0, "%s is empty: it has no line with names of columns",
                       file);
    if (rc < 0)
        return -1;
    t->header = t->fields;
    t->columns = t->count;
    t->fields = NULL;
    t->count = t->alloc = 0;
    return 0;
}

void verify_table_done(struct verify_table *t) {
    free(t->header);
    free(t->fields);
    buf_done(&t->text);
    memset(t, 0, sizeof(*t));
}

int verify_table_column(const struct verify_table *t, const char *name, size_t *index,
                        struct err *err) {
    char names[200] = "";
    for (size_t i = 0; i < t->columns; i++) {
        if (strcmp(t->header[i], name) == 0) {
            *index = i;
            return 0;
        }
        size_t n = strlen(names);
        snprintf(names + n, sizeof(names) - n, "%s%s", i > 0 ? ", " : "", t->header[i]);
    }
    return err_set(err, ERR_INVALID, 0, "%s has no column %.80s; it has %s", t->file, name, names);
}

const char *verify_table_field(const struct verify_table *t, size_t index) {
    return index < t->count ? t->fields[index] : "";
}
