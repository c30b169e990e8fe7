#include "table.h"

#include "say.h"

void table_print(FILE *out, const struct table_row *rows, size_t count, size_t columns) {
    size_t width[TABLE_COLUMNS] = {0};
    char clean[600];

    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < columns; c++) {
            const char *text = rows[i].cell[c] != NULL ? rows[i].cell[c] : "";
            size_t w = say_columns(say_clean(clean, sizeof(clean), text));

            width[c] = w > width[c] ? w : width[c];
        }
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < columns; c++) {
            const char *text = rows[i].cell[c] != NULL ? rows[i].cell[c] : "";
            size_t w = say_columns(say_clean(clean, sizeof(clean), text));

            fputs(clean, out);
            if (c + 1 < columns)
                fprintf(out, "%*s", (int)(width[c] - w + 2), "");
            else
                fputc('\n', out);
        }
}
