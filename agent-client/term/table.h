/* Aligned columns of text for people. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS 6

struct table_row {
    const char *cell[TABLE_COLUMNS]; /* NULL = empty */
};

/* Prints `rows` with `columns` columns, the last one unpadded. Cells are cleaned (say.h), since
 * they come from a server. */
void table_print(FILE *out, const struct table_row *rows, size_t count, size_t columns);
