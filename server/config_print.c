#include <stdio.h>
#include <string.h>

#include "config.h"
#include "json_out.h"

#define CONFIG_TEXT_MAX ((size_t)16 * 1024)

static const char *const config_from_words[] = {"default", "file", "flag"};

/* As config_show(), in a buffer of its own. */
static int config_print_value(const struct config *c, const struct config_row *row, struct buf *out,
                              struct err *err) {
    buf_clear(out);
    return config_show(c, row, out, err) < 0 ? err_wrap(err, "%s", row->key) : 0;
}

static const char *config_print_text(const struct buf *b) {
    return b->len == 0 ? "not set" : b->data;
}

static int config_print_row(const struct config *c, const struct config_row *row, struct buf *value,
                            struct buf *out, struct err *err) {
    enum config_from from = config_from(c, row);
    if (config_print_value(c, row, value, err) < 0 ||
        buf_printf(out, err, "%s = %s\n    %s.\n    From ", row->key, config_print_text(value),
                   row->about) < 0)
        return -1;
    if (from == CONFIG_FROM_FILE && buf_printf(out, err, "the file %s", c->path) < 0)
        return -1;
    if (from == CONFIG_FROM_FLAG && buf_printf(out, err, "the flag --%s", row->flag) < 0)
        return -1;
    if (from == CONFIG_FROM_DEFAULT && buf_puts(out, "the default", err) < 0)
        return -1;
    if (from != CONFIG_FROM_DEFAULT &&
        buf_printf(out, err, "; the default is %s", row->preset != NULL ? row->preset : "not set") <
            0)
        return -1;
    if (from != CONFIG_FROM_FLAG && row->flag != NULL &&
        buf_printf(out, err, "; flag --%s%s%s", row->flag, row->arg != NULL ? " " : "",
                   row->arg != NULL ? row->arg : "") < 0)
        return -1;
    return buf_puts(out, ".\n", err);
}

int config_print(const struct config *c, struct buf *out, struct err *err) {
    struct buf value;
    int rc = 0;
    buf_init(&value, CONFIG_TEXT_MAX);
    for (const struct config_row *row = config_table(); row->key != NULL && rc == 0; row++)
        rc = config_print_row(c, row, &value, out, err);
    buf_done(&value);
    return rc;
}

int config_print_json(const struct config *c, struct buf *out, struct err *err) {
    struct json_out j;
    struct buf value;
    int rc = 0;
    buf_init(&value, CONFIG_TEXT_MAX);
    json_out_init(&j, out);
    json_out_open(&j, NULL, '{');
    json_out_open(&j, "settings", '[');
    for (const struct config_row *row = config_table(); row->key != NULL && rc == 0; row++) {
        rc = config_print_value(c, row, &value, err);
        json_out_open(&j, NULL, '{');
        json_out_str(&j, "name", row->key);
        json_out_str(&j, "about", row->about);
        if (value.len > 0)
            json_out_str(&j, "value", value.data);
        else
            json_out_null(&j, "value");
        if (row->preset != NULL)
            json_out_str(&j, "default", row->preset);
        else
            json_out_null(&j, "default");
        json_out_str(&j, "from", config_from_words[config_from(c, row)]);
        if (row->flag != NULL)
            json_out_str(&j, "flag", row->flag);
        json_out_close(&j, '}');
    }
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    buf_done(&value);
    return rc < 0 ? -1 : json_out_end(&j, err);
}

/* The example. */

static int config_print_preset(const struct config_row *row, struct buf *out, struct err *err) {
    const char *text = row->preset;
    if (row->type == CONFIG_LIST)
        return buf_puts(out, "[]", err);
    if (text == NULL)
        return buf_puts(out, "null", err);
    if (row->type == CONFIG_SWITCH || row->type == CONFIG_BOOL)
        return buf_puts(out, strcmp(text, "yes") == 0 ? "true" : "false", err);
    if (row->type == CONFIG_U64 && strcmp(text, "unlimited") != 0)
        return buf_puts(out, text, err);
    return buf_printf(out, err, "\"%s\"", text);
}

/* The rows whose keys begin with the first `len` bytes of row->key: those of one object. -> the row
 * behind them, or NULL. */
static const struct config_row *config_print_object(const struct config_row *row, size_t len,
                                                    unsigned depth, struct buf *out,
                                                    struct err *err) {
    const struct config_row *first = row;
    int indent = (int)(depth * 4);
    if (buf_puts(out, "{\n", err) < 0)
        return NULL;
    while (row->key != NULL && strncmp(row->key, first->key, len) == 0) {
        const char *name = row->key + len;
        size_t size = strcspn(name, ".");
        if (row != first && buf_puts(out, ",\n", err) < 0)
            return NULL;
        if (name[size] == '.') {
            if (buf_printf(out, err, "%*s\"%.*s\": ", indent + 4, "", (int)size, name) < 0)
                return NULL;
            row = config_print_object(row, len + size + 1, depth + 1, out, err);
            if (row == NULL)
                return NULL;
            continue;
        }
        if (buf_printf(out, err, "%*s\"// %s\": \"%s.\",\n%*s\"%s\": ", indent + 4, "", name,
                       row->about, indent + 4, "", name) < 0 ||
            config_print_preset(row, out, err) < 0)
            return NULL;
        row++;
    }
    return buf_printf(out, err, "\n%*s}", indent, "") < 0 ? NULL : row;
}

int config_print_example(struct buf *out, struct err *err) {
    if (config_print_object(config_table(), 0, 0, out, err) == NULL)
        return -1;
    return buf_puts(out, "\n", err);
}
