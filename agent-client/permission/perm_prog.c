#include "perm_prog.h"

#include <string.h>

const struct perm_prog *perm_prog_find(const char *name) {
    size_t high, low = 0;
    const struct perm_prog *rows = perm_prog_table(&high);

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, rows[middle].name);

        if (order == 0)
            return &rows[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Is `word` (of `len` bytes) among the words of `list`? */
static bool perm_prog_listed(const char *list, const char *word, size_t len) {
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, " ");

        if (n == len && memcmp(list, word, len) == 0)
            return true;
        list += n;
        list += *list == ' ';
    }
    return false;
}

static bool perm_prog_is_literal(const struct bash_word *w) {
    return (w->flags & (unsigned)(BASH_WORD_DYNAMIC | BASH_WORD_GLOB)) == 0;
}

/* One option of the list against a word: "-o" also fits "-oFILE" and a cluster that holds o,
 * "--out" fits what programs take as short for "--output", "NAME=" fits what begins with it. */
static bool perm_prog_fits(const char *option, size_t n, const char *text) {
    size_t len = strcspn(text, "=");

    if (n > 2 && option[0] == '-' && option[1] == '-')
        return len > 3 && len <= n && memcmp(option, text, len) == 0;
    if (option[n - 1] == '=')
        return strncmp(text, option, n) == 0;
    if (n == 2 && option[0] == '-')
        return text[0] == '-' && text[1] != '-' && strchr(text + 1, option[1]) != NULL;
    return strncmp(text, option, n) == 0 && (text[n] == '\0' || text[n] == '=');
}

static bool perm_prog_in(const char *list, const char *text, bool first) {
    while (*list != '\0') {
        size_t n = strcspn(list, " ");
        /* A word that is no option is a subcommand: nothing but the first can be one. */
        bool subcommand = strchr("-.", list[0]) == NULL && list[n - 1] != '=';

        if ((!subcommand || first) && perm_prog_fits(list, n, text))
            return true;
        list += n;
        list += *list == ' ';
    }
    return false;
}

/* Options before git's subcommand change which repository, configuration or pager it uses; a few
 * behind it write files or start programs. */
static bool perm_prog_git(const struct perm_words *w, size_t i) {
    static const char *const harmless[] = {"--no-pager", "--version", "--help", "-v", "-h"};
    const char *text = w->word[i]->text;
    size_t sub = 1;

    if (text[0] != '-')
        return strcmp(text, "foreach") == 0 || strcmp(text, "bisect") == 0 ||
               strcmp(text, "filter-branch") == 0 || strcmp(text, "difftool") == 0 ||
               strcmp(text, "mergetool") == 0;
    while (sub < w->count && w->word[sub]->text[0] == '-')
        sub++;
    if (i < sub) {
        for (size_t k = 0; k < sizeof(harmless) / sizeof(harmless[0]); k++)
            if (strcmp(text, harmless[k]) == 0)
                return false;
        return true;
    }
    if (sub < w->count && strcmp(w->word[sub]->text, "grep") == 0 &&
        perm_prog_in("-O", text, false))
        return true;
    if (sub < w->count && strcmp(w->word[sub]->text, "rebase") == 0 &&
        perm_prog_in("-x", text, false))
        return true;
    return perm_prog_in("--output --ext-diff --textconv --exec --upload-pack --receive-pack "
                        "--open-files-in-pager --exec-path --config-env --config --template "
                        "--extcmd --output-directory --upload-archive",
                        text, false);
}

/* A script of sed that only prints, deletes and replaces: no "w", "r", "e", and no flag of "s" that
 * writes or runs. */
static bool perm_prog_sed_is_plain(const char *s) {
    while (*s != '\0') {
        s += strspn(s, " 0123456789,$;!");
        if (*s == '\0')
            return true;
        if (strchr("pdqQ=hHgGxnND", *s) != NULL) {
            s++;
        } else if (*s == 's' && s[1] != '\0' && strchr("/|#,:@", s[1]) != NULL) {
            char delimiter = s[1];

            s += 2;
            for (int part = 0; part < 2; part++) {
                while (*s != '\0' && *s != delimiter) {
                    if (*s == '[' || *s == '\n')
                        return false;
                    s += *s == '\\' && s[1] != '\0' ? 2 : 1;
                }
                if (*s == '\0')
                    return false;
                s++;
            }
            s += strspn(s, "gpiI0123456789");
        } else {
            return false;
        }
        if (*s != '\0' && *s != ';' && *s != ' ')
            return false;
    }
    return true;
}

static bool perm_prog_sed(const struct perm_words *w, size_t i) {
    const char *text = w->word[i]->text;
    bool script = false;

    if (text[0] == '-' && text[1] != '\0') {
        static const char *const harmless[] = {
            "-n", "-E",  "-r",  "--quiet", "--silent", "--regexp-extended",
            "-e", "-nE", "-En", "-ne",     "-s",       "--"};

        for (size_t k = 0; k < sizeof(harmless) / sizeof(harmless[0]); k++)
            if (strcmp(text, harmless[k]) == 0)
                return false;
        return true;
    }
    if (i > 1 &&
        (strcmp(w->word[i - 1]->text, "-e") == 0 || strcmp(w->word[i - 1]->text, "-ne") == 0))
        script = true;
    for (size_t k = 1; !script && k < w->count; k++) {
        const char *t = w->word[k]->text;

        if (strcmp(t, "-e") == 0 || strcmp(t, "-ne") == 0)
            break;
        if (t[0] == '-' && t[1] != '\0')
            continue;
        script = k == i;
        break;
    }
    return script && (!perm_prog_is_literal(w->word[i]) || !perm_prog_sed_is_plain(text));
}

/* The second operand is a file that is written. */
static bool perm_prog_second(const struct perm_words *w, size_t i) {
    size_t operands = 0;

    for (size_t k = 1; k <= i; k++)
        operands += w->word[k]->text[0] != '-' || w->word[k]->text[1] == '\0';
    return operands >= 2;
}

bool perm_prog_risky(const struct perm_prog *prog, const struct perm_words *w, size_t i) {
    const struct bash_word *word = w->word[i];
    bool any = (word->flags & (unsigned)BASH_WORD_DYNAMIC) != 0;
    size_t at;

    if (prog == NULL || prog->risky == NULL || i == 0)
        return false;
    if (strcmp(prog->risky, "#2") == 0)
        return any || perm_prog_second(w, i);
    /* The name of a file may look like an option. */
    if (!perm_prog_is_literal(word) && word->text[0] > 0 && word->text[0] < ' ')
        return true;
    if (strcmp(prog->risky, "git") == 0)
        return perm_prog_git(w, i);
    if (strcmp(prog->risky, "sed") == 0)
        return perm_prog_sed(w, i);
    for (at = 1; at < i; at++)
        if (strcmp(w->word[at]->text, "--") == 0)
            return false;
    return perm_prog_in(prog->risky, word->text, i == 1);
}

/* ---- wrappers ---- */

/* What an option is: '\0' = not known, 'f' = a flag, 'v' = has a value, '!' = that is a command. */
static char perm_prog_short(const char *options, char letter) {
    for (; *options != '\0' && *options != ' '; options++)
        if (*options == letter)
            return options[1] == ':' ? 'v' : options[1] == '!' ? '!' : 'f';
    return '\0';
}

static char perm_prog_long(const char *options, const char *text) {
    const char *list = strchr(options, ' ');
    size_t len = strcspn(text, "=");
    char with[64];

    if (list == NULL || len + 2 > sizeof(with))
        return '\0';
    list++;
    if (perm_prog_listed(list, text, len))
        return 'f';
    memcpy(with, text, len);
    with[len] = '=';
    if (perm_prog_listed(list, with, len + 1))
        return 'v';
    with[len] = '!';
    return perm_prog_listed(list, with, len + 1) ? '!' : '\0';
}

struct perm_prog_scan {
    const struct perm_prog *prog;
    const struct perm_words *w;
    struct perm_inner in;
    struct bash_word *part;
};

/* An option with its value, if it has one. False when it is not known. */
static bool perm_prog_option(struct perm_prog_scan *s) {
    const struct bash_word *word = s->w->word[s->in.at];
    const char *text = word->text;
    bool own = s->in.at + 1 < s->w->count;
    char kind = 'f';
    const char *rest = NULL;

    if (text[1] == '-') {
        kind = perm_prog_long(s->prog->options, text + 2);
        rest = strchr(text, '=');
        rest = rest != NULL ? rest + 1 : NULL;
    } else {
        for (const char *p = text + 1; *p != '\0' && kind == 'f'; p++) {
            kind = perm_prog_short(s->prog->options, *p);
            rest = p[1] != '\0' ? p + 1 : NULL;
        }
    }
    if (kind == '\0')
        return false;
    s->in.at++;
    if (kind == 'f')
        return true;
    if (kind == '!' && rest != NULL) {
        s->in.shell = word;
        s->in.shell_text = rest;
    }
    if (rest != NULL)
        return true;
    if (!own)
        return false;
    if (kind == '!') {
        s->in.shell = s->w->word[s->in.at];
        s->in.shell_text = s->in.shell->text;
    }
    s->in.at++;
    return true;
}

/* NAME=VALUE ? */
static bool perm_prog_is_assign(const char *text) {
    const char *p = text;

    while ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' ||
           (p > text && *p >= '0' && *p <= '9'))
        p++;
    return p > text && *p == '=';
}

struct perm_inner perm_prog_inner(const struct perm_prog *prog, const struct perm_words *w) {
    struct perm_prog_scan s = {.prog = prog, .w = w, .in = {.exact = true, .at = 1}};
    size_t skip = prog->skip;
    bool ended = false;

    for (; s.in.at < w->count; skip--) {
        const char *text;

        while (s.in.at < w->count && !ended) {
            text = w->word[s.in.at]->text;
            if (!perm_prog_is_literal(w->word[s.in.at]))
                break;
            ended = strcmp(text, "--") == 0;
            if (ended)
                s.in.at++;
            if (ended || text[0] != '-' || text[1] == '\0')
                break;
            if (!perm_prog_option(&s)) {
                s.in.exact = false;
                return s.in;
            }
        }
        if (s.in.at >= w->count || skip == 0)
            break;
        /* A value that may be none or several words moves what is behind it. */
        if ((w->word[s.in.at]->flags & (unsigned)(BASH_WORD_SPLIT | BASH_WORD_GLOB)) != 0)
            s.in.exact = false;
        s.in.at++;
        ended = ended || prog->skip < 9;
        /* flock FILE -c COMMAND */
        if (skip == 1 && s.in.at + 1 < w->count && strcmp(w->word[s.in.at]->text, "-c") == 0 &&
            perm_prog_short(prog->options, 'c') == '!') {
            s.in.shell = w->word[s.in.at + 1];
            s.in.shell_text = s.in.shell->text;
            s.in.at = w->count;
        }
    }
    if (s.in.at < w->count && w->word[s.in.at]->text[0] == '-' && !ended)
        s.in.exact = false;
    while (prog->assigns && s.in.at < w->count && perm_prog_is_assign(w->word[s.in.at]->text)) {
        s.in.assigns++;
        s.in.at++;
    }
    return s.in;
}

/* ---- variables and "always" ---- */

bool perm_prog_benign(const char *name, size_t len) {
    static const char names[] =
        "LANG LANGUAGE TZ TERM CI NODE_ENV NO_COLOR FORCE_COLOR CLICOLOR COLUMNS LINES "
        "PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE DEBIAN_FRONTEND RUST_BACKTRACE "
        "SOURCE_DATE_EPOCH CGO_ENABLED GOOS GOARCH";

    return len == 1 || (len > 3 && memcmp(name, "LC_", 3) == 0) ||
           perm_prog_listed(names, name, len);
}

bool perm_prog_local(const char *name, size_t len) {
    if (perm_prog_benign(name, len))
        return true;
    for (size_t i = 0; i < len; i++)
        if ((name[i] < 'a' || name[i] > 'z') && (i == 0 || name[i] < '0' || name[i] > '9'))
            return false;
    return len > 0 && len <= 16;
}

bool perm_prog_runs_anything(const char *name) {
    const struct perm_prog *prog = perm_prog_find(name);

    if (prog == NULL)
        return false;
    return prog->kind >= PERM_PROG_WRAP || strcmp(name, "make") == 0 || strcmp(name, "sed") == 0;
}
