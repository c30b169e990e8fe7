#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

#define CONFIG_HELP_MAX 240

/* What opt.h needs: a table of options, where each option's text goes, and its line of help. */
struct config_flags {
    struct opt table[CONFIG_ROWS_MAX + 2];
    const char *file;
    const char *text[CONFIG_ROWS_MAX];
    bool on[CONFIG_ROWS_MAX];
    struct opt_list *list[CONFIG_ROWS_MAX]; /* owned; of those that are lists */
    char help[CONFIG_ROWS_MAX][CONFIG_HELP_MAX];
};

static void config_flag_help(const struct config_row *row, char help[CONFIG_HELP_MAX]) {
    if (row->type == CONFIG_SWITCH || row->preset == NULL)
        snprintf(help, CONFIG_HELP_MAX, "%s", row->about);
    else
        snprintf(help, CONFIG_HELP_MAX, "%s (%s)", row->about, row->preset);
}

static int config_flag(struct config_flags *f, size_t i, const struct config_row *row,
                       struct opt *o, struct err *err) {
    *o = (struct opt){.name = row->flag,
                      .letter = row->letter,
                      .arg = row->arg,
                      .type = OPT_STRING,
                      .value = &f->text[i],
                      .help = f->help[i]};
    config_flag_help(row, f->help[i]);
    if (row->type == CONFIG_SWITCH) {
        o->type = OPT_FLAG;
        o->value = &f->on[i];
    } else if (row->type == CONFIG_LIST) {
        f->list[i] = calloc(1, sizeof(*f->list[i]));
        if (f->list[i] == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
        o->type = OPT_LIST;
        o->value = f->list[i];
    }
    return 0;
}

static int config_flags_fill(struct config_flags *f, const struct opt *more, struct err *err) {
    const struct config_row *rows = config_table();
    size_t n = 0;
    for (; more != NULL && more->name != NULL; more++)
        if (n < CONFIG_ROWS_MAX)
            f->table[n++] = *more;
    f->table[n++] = (struct opt){.name = "config",
                                 .arg = "FILE",
                                 .type = OPT_STRING,
                                 .value = &f->file,
                                 .help = "Settings as JSON; flags override it"};
    for (size_t i = 0; rows[i].key != NULL; i++) {
        if (rows[i].flag == NULL)
            continue;
        if (n == CONFIG_ROWS_MAX + 1)
            return err_set(err, ERR_LIMIT, 0, "there are more options than the table has room for");
        if (config_flag(f, i, &rows[i], &f->table[n++], err) < 0)
            return -1;
    }
    return 0;
}

/* The texts behind the flags become settings; a list replaces what the file may say. */
static int config_flags_take(struct config *c, const struct config_flags *f, struct err *err) {
    const struct config_row *rows = config_table();
    for (size_t i = 0; rows[i].key != NULL; i++) {
        const struct config_row *row = &rows[i];
        const char *one = f->on[i] ? "yes" : f->text[i];
        size_t count = f->list[i] != NULL ? f->list[i]->count : one != NULL;
        if (row->type == CONFIG_LIST && count > 0)
            memset((char *)c + row->offset, 0, sizeof(struct config_list));
        for (size_t n = 0; n < count; n++)
            if (config_set(c, row, f->list[i] != NULL ? f->list[i]->item[n] : one, CONFIG_FROM_FLAG,
                           err) < 0)
                return err_wrap(err, "option --%s", row->flag);
    }
    return 0;
}

static void config_flags_free(struct config_flags *f) {
    if (f == NULL)
        return;
    for (size_t i = 0; i < CONFIG_ROWS_MAX; i++)
        free(f->list[i]);
    free(f);
}

static int config_flags_use(struct config *c, struct config_flags *f,
                            const struct config_command *command, int argc, char **argv,
                            struct err *err) {
    struct opt_result result;
    if (config_flags_fill(f, command->more, err) < 0 ||
        opt_parse(f->table, argc, argv, &result, err) < 0)
        return -1;
    if (result.help) {
        opt_help(stdout, command->usage, command->about, f->table);
        return 1;
    }
    if (result.rest < argc)
        return err_set(err, ERR_INVALID, 0, "unexpected argument %s", argv[result.rest]);
    if (f->file != NULL && config_read(c, f->file, err) < 0) {
        c->file_wrong = true;
        return -1;
    }
    return config_flags_take(c, f, err);
}

int config_load(struct config *c, const struct config_command *command, int argc, char **argv,
                struct err *err) {
    if (config_init(c, err) < 0)
        return -1;
    struct config_flags *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    int rc = config_flags_use(c, f, command, argc, argv, err);
    config_flags_free(f);
    return rc;
}
