#include "opt.h"

#include <string.h>

#include "str.h"

/* One parse: the table, and which rows were already there. */
struct opt_scan {
    const struct opt *table;
    uint64_t seen; /* a bit per row */
    int argc;
    char **argv;
    int at;
    bool help;
};

#define OPT_ROWS_MAX 64
#define OPT_HELP_WIDTH 100 /* columns */

static int opt_list_add(struct opt_list *list, const char *text, struct err *err) {
    if (list->count >= OPT_LIST_MAX)
        return err_set(err, ERR_INVALID, 0, "given more than %d times", OPT_LIST_MAX);
    list->item[list->count++] = text;
    return 0;
}

static int opt_store(const struct opt *o, const char *text, struct err *err) {
    switch (o->type) {
    case OPT_FLAG:
        *(bool *)o->value = true;
        return 0;
    case OPT_STRING:
        *(const char **)o->value = text;
        return 0;
    case OPT_U64:
        return str_u64(text, o->min, o->max, o->value, err);
    case OPT_BYTES:
        return str_bytes(text, o->value, err);
    case OPT_DURATION:
        return str_duration_ms(text, o->value, err);
    case OPT_LIST:
        return opt_list_add(o->value, text, err);
    }
    return err_set(err, ERR_INVALID, 0, "has no type");
}

/* Takes row `o`, whose value is `text` (NULL: the next argument is). */
static int opt_take(struct opt_scan *s, const struct opt *o, const char *text, struct err *err) {
    size_t row = (size_t)(o - s->table);
    if (row >= OPT_ROWS_MAX)
        return err_set(err, ERR_LIMIT, 0, "the option table has more than %d rows", OPT_ROWS_MAX);
    uint64_t bit = 1ULL << row;
    if (o->type != OPT_LIST && (s->seen & bit))
        return err_set(err, ERR_INVALID, 0, "option --%s is there twice", o->name);
    s->seen |= bit;
    if (o->type != OPT_FLAG && !text) {
        if (s->at + 1 >= s->argc)
            return err_set(err, ERR_INVALID, 0, "option --%s needs a value", o->name);
        text = s->argv[++s->at];
    }
    if (opt_store(o, text, err) < 0)
        return err_wrap(err, "option --%s", o->name);
    return 0;
}

static int opt_long(struct opt_scan *s, const char *arg, struct err *err) {
    const char *eq = strchr(arg, '=');
    size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
    for (const struct opt *o = s->table; o->name; o++) {
        if (strlen(o->name) != len || memcmp(o->name, arg, len) != 0)
            continue;
        if (eq && o->type == OPT_FLAG)
            return err_set(err, ERR_INVALID, 0, "option --%s takes no value", o->name);
        return opt_take(s, o, eq ? eq + 1 : NULL, err);
    }
    if (strcmp(arg, "help") == 0) {
        s->help = true;
        return 0;
    }
    char shown[80];
    str_escape(shown, sizeof(shown), arg, len);
    return err_set(err, ERR_INVALID, 0, "unknown option --%s", shown);
}

/* "-v", "-vq" (flags together), "-c TEXT", "-cTEXT". */
static int opt_short(struct opt_scan *s, const char *letters, struct err *err) {
    for (const char *p = letters; *p; p++) {
        const struct opt *o = s->table;
        while (o->name && o->letter != *p)
            o++;
        if (!o->name && *p == 'h') {
            s->help = true;
            return 0;
        }
        if (!o->name) {
            char shown[8];
            str_escape(shown, sizeof(shown), p, 1);
            return err_set(err, ERR_INVALID, 0, "unknown option -%s", shown);
        }
        if (o->type != OPT_FLAG)
            return opt_take(s, o, p[1] ? p + 1 : NULL, err);
        if (opt_take(s, o, NULL, err) < 0)
            return -1;
    }
    return 0;
}

int opt_parse(const struct opt *table, int argc, char **argv, struct opt_result *result,
              struct err *err) {
    struct opt_scan s = {.table = table, .argc = argc, .argv = argv, .at = 1};
    bool dashes = false;
    for (; s.at < argc && !s.help; s.at++) {
        const char *arg = argv[s.at];
        if (arg[0] != '-' || arg[1] == '\0')
            break;
        if (strcmp(arg, "--") == 0) {
            dashes = true;
            s.at++;
            break;
        }
        int rc = arg[1] == '-' ? opt_long(&s, arg + 2, err) : opt_short(&s, arg + 1, err);
        if (rc < 0)
            return -1;
    }
    *result = (struct opt_result){.help = s.help, .rest = s.at, .dashes = dashes};
    return 0;
}

/* "-c, --command TEXT"; returns its width. */
static int opt_label(char *out, size_t size, const struct opt *o) {
    char letter[5] = "    ";
    if (o->letter)
        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    return snprintf(out, size, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
                    o->arg ? o->arg : "");
}

/* One row: `text` wrapped at OPT_HELP_WIDTH, always in its own column. */
static void opt_row(FILE *out, int width, const char *label, const char *text) {
    size_t room =
        (size_t)(width < OPT_HELP_WIDTH / 2 ? OPT_HELP_WIDTH - 4 - width : OPT_HELP_WIDTH / 2);
    fprintf(out, "  %-*s  ", width, label);
    for (;;) {
        size_t len = strlen(text), n = len;
        if (len > room)
            for (n = room; n > 0 && text[n] != ' '; n--)
                ;
        if (n == 0) /* a word that is longer than the column */
            n = strcspn(text, " ");
        fprintf(out, "%.*s\n", (int)n, text);
        text += n;
        if (*text == '\0')
            return;
        text++;
        fprintf(out, "%*s", width + 4, "");
    }
}

void opt_help(FILE *out, const char *usage, const char *about, const struct opt *table) {
    static const struct opt help = {
        .name = "help", .letter = 'h', .type = OPT_FLAG, .help = "show this and exit"};
    char label[160];
    int width = opt_label(label, sizeof(label), &help);
    for (const struct opt *o = table; o->name; o++) {
        int w = opt_label(label, sizeof(label), o);
        width = w > width ? w : width;
    }
    fprintf(out, "%s\n\n%s\n\nOptions:\n", usage, about);
    for (const struct opt *o = table; o->name; o++) {
        opt_label(label, sizeof(label), o);
        if (o->help)
            opt_row(out, width, label, o->help);
        else
            fprintf(out, "  %s\n", label);
    }
    opt_label(label, sizeof(label), &help);
    opt_row(out, width, label, help.help);
}
