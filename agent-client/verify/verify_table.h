/* Tables in CSV (RFC 4180): read row by row, fields unquoted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verify.h"

#define VERIFY_TABLE_COLUMNS_MAX 4096u

struct verify_table {
    const char *file; /* borrowed; for messages */
    struct buf text;
    size_t pos;
    char separator;
    uint64_t line; /* on which the row begins */
    char **fields; /* of the row; point into text */
    size_t count, alloc;
    char **header; /* of the first row */
    size_t columns;
    uint64_t next_line;
};

/* Reads the file and its first row, the names of the columns. `separator` is one character, "tab",
 * or NULL for a comma. */
int verify_table_open(struct verify_table *t, const struct verify_args *args, const char *file,
                      const char *separator, struct err *err);
void verify_table_done(struct verify_table *t);
/* The next row: 1, 0 = there is none, -1 = no CSV (a quote that does not end, NUL). Rows without
 * any character are skipped. */
int verify_table_next(struct verify_table *t, struct err *err);
/* Index of a column; -1: there is none, *err says which there are. */
int verify_table_column(const struct verify_table *t, const char *name, size_t *index,
                        struct err *err);
/* A field of the row; "" when the row is too short. */
const char *verify_table_field(const struct verify_table *t, size_t index);

#define VERIFY_SET_KEY_SIZE 16

/* A set of texts, copied. Zeroed = empty. */
struct verify_set {
    struct verify_set_item **buckets;
    size_t size, count;
    unsigned char key[VERIFY_SET_KEY_SIZE]; /* of the hash */
};
struct verify_set_item {
    struct verify_set_item *next;
    uint64_t line; /* where it was added */
    bool met;      /* for the caller */
    char text[];
};
/* The item that has the text, or NULL. */
struct verify_set_item *verify_set_find(const struct verify_set *s, const char *text);
/* Adds it: 1, 0 = it is there already (*item is the old one), -1. */
int verify_set_add(struct verify_set *s, const char *text, uint64_t line,
                   struct verify_set_item **item, struct err *err);
void verify_set_done(struct verify_set *s);
