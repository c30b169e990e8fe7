#include "config.h"

#include <stdio.h>
#include <string.h>

#include "str.h"

static void *config_at(struct config *c, const struct config_row *row) {
    return (char *)c + row->offset;
}

static const void *config_in(const struct config *c, const struct config_row *row) {
    return (const char *)c + row->offset;
}

/* Numbers. */

static int config_number(const struct config_row *row, const char *text, uint64_t *value,
                         struct err *err) {
    if (row->unlimited && strcmp(text, "unlimited") == 0) {
        *value = CONFIG_UNLIMITED;
        return 0;
    }
    if (row->type == CONFIG_BYTES)
        return str_bytes(text, value, err);
    if (row->type == CONFIG_DURATION)
        return str_duration_ms(text, value, err);
    return str_u64(text, 0, UINT64_MAX - 1, value, err);
}

/* 1536 MiB as "1536M", and what is no multiple as it is. */
static void config_number_text(const struct config_row *row, uint64_t value, char text[32]) {
    static const struct {
        uint64_t factor;
        const char *name;
    } sizes[] = {{1ULL << 40, "T"}, {1ULL << 30, "G"}, {1ULL << 20, "M"}, {1ULL << 10, "k"}},
      times[] = {{3600000, "h"}, {60000, "m"}, {1000, "s"}};
    const char *unit = row->type == CONFIG_DURATION ? "ms" : "";
    if (row->unlimited && value == CONFIG_UNLIMITED) {
        snprintf(text, 32, "unlimited");
        return;
    }
    for (size_t i = 0; row->type == CONFIG_BYTES && value != 0 && i < 4; i++)
        if (value % sizes[i].factor == 0) {
            snprintf(text, 32, "%llu%s", (unsigned long long)(value / sizes[i].factor),
                     sizes[i].name);
            return;
        }
    for (size_t i = 0; row->type == CONFIG_DURATION && value != 0 && i < 3; i++)
        if (value % times[i].factor == 0) {
            snprintf(text, 32, "%llu%s", (unsigned long long)(value / times[i].factor),
                     times[i].name);
            return;
        }
    snprintf(text, 32, "%llu%s", (unsigned long long)value, unit);
}

static int config_set_number(struct config *c, const struct config_row *row, const char *text,
                             struct err *err) {
    uint64_t value = 0;
    if (config_number(row, text, &value, err) < 0)
        return -1;
    if (value == CONFIG_UNLIMITED || (value >= row->min && (row->max == 0 || value <= row->max))) {
        *(uint64_t *)config_at(c, row) = value;
        return 0;
    }
    char is[32], min[32], max[32];
    config_number_text(row, value, is);
    config_number_text(row, row->min, min);
    config_number_text(row, row->max, max);
    if (row->max == 0)
        return err_set(err, ERR_INVALID, 0, "%s is less than %s", is, min);
    return err_set(err, ERR_INVALID, 0, "%s is not between %s and %s", is, min, max);
}

/* Words. */

static int config_set_bool(struct config *c, const struct config_row *row, const char *text,
                           struct err *err) {
    bool yes = strcmp(text, "yes") == 0;
    if (!yes && strcmp(text, "no") != 0)
        return err_set(err, ERR_INVALID, 0, "yes or no is wanted");
    *(bool *)config_at(c, row) = yes;
    return 0;
}

/* The word number `which`; "" when there are not that many. */
static size_t config_word(const char *choices, unsigned which, const char **word) {
    for (; which > 0 && *choices != '\0'; which--) {
        choices += strcspn(choices, "|");
        choices += *choices == '|';
    }
    *word = choices;
    return strcspn(choices, "|");
}

static int config_set_choice(struct config *c, const struct config_row *row, const char *text,
                             struct err *err) {
    const char *word = NULL;
    size_t len;
    for (unsigned i = 0; (len = config_word(row->choices, i, &word)) > 0; i++)
        if (strlen(text) == len && memcmp(text, word, len) == 0) {
            *(unsigned *)config_at(c, row) = i;
            return 0;
        }
    return err_set(err, ERR_INVALID, 0, "it must be one of %s", row->choices);
}

static int config_set_item(struct config *c, const struct config_row *row, const char *text,
                           struct err *err) {
    struct config_list *list = config_at(c, row);
    if (list->count == CONFIG_LIST_MAX)
        return err_set(err, ERR_INVALID, 0, "it may have %u items at most", CONFIG_LIST_MAX);
    list->item[list->count++] = text;
    return 0;
}

int config_set(struct config *c, const struct config_row *row, const char *text,
               enum config_from from, struct err *err) {
    int rc = 0;
    if ((row->type == CONFIG_STRING || row->type == CONFIG_LIST) && *text == '\0')
        return err_set(err, ERR_INVALID, 0, "it is empty");
    if (row->check != NULL && row->check(text, err) < 0)
        return -1;
    switch (row->type) {
    case CONFIG_STRING:
        *(const char **)config_at(c, row) = text;
        break;
    case CONFIG_U64:
    case CONFIG_BYTES:
    case CONFIG_DURATION:
        rc = config_set_number(c, row, text, err);
        break;
    case CONFIG_SWITCH:
    case CONFIG_BOOL:
        rc = config_set_bool(c, row, text, err);
        break;
    case CONFIG_CHOICE:
        rc = config_set_choice(c, row, text, err);
        break;
    case CONFIG_LIST:
        rc = config_set_item(c, row, text, err);
        break;
    }
    if (rc == 0)
        c->from[row - config_table()] = (unsigned char)from;
    return rc;
}

enum config_from config_from(const struct config *c, const struct config_row *row) {
    return (enum config_from)c->from[row - config_table()];
}

int config_show(const struct config *c, const struct config_row *row, struct buf *out,
                struct err *err) {
    const void *at = config_in(c, row);
    const struct config_list *list = at;
    const char *text = NULL;
    char number[32];
    switch (row->type) {
    case CONFIG_STRING:
        text = *(const char *const *)at;
        return text == NULL ? 0 : buf_puts(out, text, err);
    case CONFIG_U64:
    case CONFIG_BYTES:
    case CONFIG_DURATION:
        config_number_text(row, *(const uint64_t *)at, number);
        return buf_puts(out, number, err);
    case CONFIG_SWITCH:
    case CONFIG_BOOL:
        return buf_puts(out, *(const bool *)at ? "yes" : "no", err);
    case CONFIG_CHOICE: {
        size_t len = config_word(row->choices, *(const unsigned *)at, &text);
        return buf_append(out, text, len, err);
    }
    case CONFIG_LIST:
        for (size_t i = 0; i < list->count; i++)
            if (buf_printf(out, err, "%s%s", i == 0 ? "" : ", ", list->item[i]) < 0)
                return -1;
        return 0;
    }
    return 0;
}

/* From the beginning to the end. */

int config_init(struct config *c, struct err *err) {
    memset(c, 0, sizeof(*c));
    buf_init(&c->text, CONFIG_FILE_MAX);
    for (const struct config_row *row = config_table(); row->key != NULL; row++)
        if (row->preset != NULL && config_set(c, row, row->preset, CONFIG_FROM_DEFAULT, err) < 0)
            return err_wrap(err, "the default of %s", row->key);
    return 0;
}

void config_done(struct config *c) {
    buf_done(&c->text);
}
