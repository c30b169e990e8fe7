/* Patterns of paths: compared component by component, never as text. */
#include <string.h>

#include "rule.h"

static bool rule_path_is_double(const char *part) {
    return part[0] == '*' && part[1] == '*' && part[2] == '\0';
}

static int rule_path_push(struct rule_set *set, struct rule_parts *out, const char *text,
                          size_t len, struct err *err) {
    const char *part;

    if (len == 0 || (len == 1 && text[0] == '.'))
        return 0;
    if (len == 2 && text[0] == '.' && text[1] == '.')
        return err_set(err, ERR_INVALID, 0, "a pattern may not hold ..");
    if (out->count >= RULE_PARTS_MAX)
        return err_set(err, ERR_INVALID, 0, "a pattern has more than %u components",
                       RULE_PARTS_MAX);
    part = arena_copy(&set->arena, text, len);
    if (part == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    if (strstr(part, "**") != NULL && !rule_path_is_double(part))
        return err_set(err, ERR_INVALID, 0, "%.60s: ** is a component of its own", part);
    out->part[out->count++] = part;
    return 0;
}

static int rule_path_split(struct rule_set *set, struct rule_parts *out, const char *path,
                           struct err *err) {
    while (*path != '\0') {
        size_t n = strcspn(path, "/");

        if (rule_path_push(set, out, path, n, err) < 0)
            return -1;
        path += n;
        path += *path == '/';
    }
    return 0;
}

/* What rule_path_hopeless() looks at. */
static void rule_path_hints(struct rule_parts *p) {
    const char *last = p->count > 0 ? p->part[p->count - 1] : "**", *star = strrchr(last, '*');

    while (p->lead < p->count && strchr(p->part[p->lead], '*') == NULL)
        p->lead++;
    if (rule_path_is_double(last))
        return;
    p->last = star != NULL ? star + 1 : last;
    p->last_len = strlen(p->last);
    p->last_plain = star == NULL;
}

int rule_path_compile(struct rule_set *set, const char *pattern, bool allow, struct rule_parts *out,
                      struct err *err) {
    bool anywhere = strncmp(pattern, "**", 2) == 0 && (pattern[2] == '/' || pattern[2] == '\0');
    size_t len, doubles = 0;

    *out = (struct rule_parts){0};
    out->part = arena_get(&set->arena, (RULE_PARTS_MAX + 1) * sizeof(*out->part));
    if (out->part == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    if (strpbrk(pattern, "?[]\\") != NULL)
        return err_set(err, ERR_INVALID, 0, "%.60s: only *, ** and {a,b} are known in a pattern",
                       pattern);
    if (pattern[0] == '~' && (pattern[1] == '/' || pattern[1] == '\0')) {
        if (rule_path_split(set, out, set->home, err) < 0)
            return -1;
        pattern++;
    } else if (pattern[0] != '/' && (!anywhere || allow)) {
        /* "**" alone allows what is in the workspace, and denies wherever it is. */
        if (rule_path_split(set, out, set->workspace, err) < 0)
            return -1;
    }
    out->anywhere = anywhere && !allow;
    if (rule_path_split(set, out, pattern, err) < 0)
        return -1;
    /* "dir/" is all that is in it. */
    len = strlen(pattern);
    if (len > 0 && pattern[len - 1] == '/' && rule_path_push(set, out, "**", 2, err) < 0)
        return -1;
    rule_path_hints(out);
    for (size_t i = 0; i < out->count; i++)
        doubles += rule_path_is_double(out->part[i]);
    if (doubles > 4)
        return err_set(err, ERR_INVALID, 0, "a pattern has more than four **");
    return 0;
}

/* Of two plain texts. */
static bool rule_path_equal(const char *a, const char *b, bool fold) {
    if (!fold)
        return a[0] == b[0] && strcmp(a, b) == 0;
    while (*a != '\0' && rule_lower(*a) == rule_lower(*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

static bool rule_path_has(const char *part, const char *marks) {
    return strpbrk(part, marks) != NULL;
}

/* One component against one that is no "**". */
static enum rule_fit rule_path_part(const char *pattern, const char *part, bool fold) {
    static const char any[] = {BASH_MARK_ANY, BASH_MARK_TILDE, '\0'};
    static const char globs[] = {BASH_MARK_STAR, BASH_MARK_ONE, '\0'};
    bool fits = fold ? rule_glob_fold(pattern, part) : rule_glob(pattern, part);

    if (!rule_path_has(part, any) && !rule_path_has(part, globs))
        return fits ? RULE_FIT_YES : RULE_FIT_NO;
    /* The globs of the shell do not match a dot at the beginning. */
    if (strchr(globs, part[0]) != NULL && pattern[0] == '.')
        return RULE_FIT_NO;
    if (!fits)
        return RULE_FIT_NO;
    if (rule_path_has(part, any))
        return strcmp(pattern, "*") == 0 ? RULE_FIT_YES : RULE_FIT_MAYBE;
    /* "*" alone names everything that is there, and so nothing in particular. */
    return strspn(part, globs) == strlen(part) ? RULE_FIT_MAYBE : RULE_FIT_YES;
}

static enum rule_fit rule_path_more(enum rule_fit a, enum rule_fit b) {
    return a > b ? a : b;
}

static enum rule_fit rule_path_less(enum rule_fit a, enum rule_fit b) {
    return a < b ? a : b;
}

/* From the last component to the first: row[i] is how the pattern from i on fits the path from here
 * on. `next` is the row of the component behind. */
static void rule_path_row(const struct rule_parts *p, const char *part, const enum rule_fit *next,
                          enum rule_fit *row) {
    bool loose = strchr(part, BASH_MARK_ANY) != NULL || strchr(part, BASH_MARK_TILDE) != NULL;

    row[p->count] = RULE_FIT_NO;
    /* An unknown text may be nothing, and then the path is one component shorter. */
    if (loose)
        row[p->count] = rule_path_less(next[p->count], RULE_FIT_MAYBE);
    for (size_t i = p->count; i-- > 0;) {
        enum rule_fit fit;

        if (rule_path_is_double(p->part[i])) {
            row[i] = rule_path_more(row[i + 1], next[i]);
            continue;
        }
        fit = rule_path_less(rule_path_part(p->part[i], part, p->fold), next[i + 1]);
        if (loose) {
            /* It may hold slashes: several components of the pattern, or none. */
            fit = rule_path_more(fit, rule_path_less(RULE_FIT_MAYBE, next[i]));
            fit = rule_path_more(fit, rule_path_less(RULE_FIT_MAYBE, row[i + 1]));
        }
        row[i] = fit;
    }
}

/* Cheap reasons to say no before the table is filled: nearly every path fits nearly no pattern. */
static bool rule_path_hopeless(const struct rule_parts *p, const struct rule_path *path) {
    size_t lead = p->lead < path->count ? p->lead : path->count;

    if (path->marked || path->count == 0 || p->count == 0)
        return false;
    if (p->last != NULL) {
        const char *name = path->part[path->count - 1];
        size_t len = strlen(name);

        if (len < p->last_len || (p->last_plain && len != p->last_len) ||
            !rule_path_equal(name + len - p->last_len, p->last, p->fold))
            return true;
    }
    if (path->anywhere)
        return false;
    if (p->anywhere) {
        const char *name = p->count > 1 ? p->part[1] : "*";

        if (strchr(name, '*') != NULL)
            return false;
        for (size_t i = 0; i < path->count; i++)
            if (rule_path_equal(path->part[i], name, p->fold))
                return false;
        return true;
    }
    /* A shorter path fits only what "**" lets be shorter by one. */
    if (path->count < p->lead)
        return true;
    for (size_t i = lead; i-- > 0;)
        if (!rule_path_equal(p->part[i], path->part[i], p->fold))
            return true;
    return false;
}

/* How many components there are up to the last one that is a name. */
static size_t rule_path_named(const struct rule_parts *p) {
    size_t n = p->count;

    while (n > 0 && strspn(p->part[n - 1], "*") == strlen(p->part[n - 1]))
        n--;
    return n;
}

enum rule_fit rule_path_may(const struct rule_parts *p, const struct rule_path *path) {
    enum rule_fit rows[2][RULE_PARTS_MAX + 2];
    enum rule_fit *next = rows[0], *row = rows[1];
    enum rule_fit best = RULE_FIT_NO;

    if (rule_path_hopeless(p, path))
        return RULE_FIT_NO;
    /* Behind the last component: the pattern must be at its end, or at "**", which includes the
     * directory itself. */
    next[p->count] = RULE_FIT_YES;
    for (size_t i = p->count; i-- > 0;)
        next[i] = rule_path_is_double(p->part[i]) ? next[i + 1] : RULE_FIT_NO;
    for (size_t j = path->count; j-- > 0;) {
        enum rule_fit *swap = next;

        rule_path_row(p, path->part[j], next, row);
        next = row;
        row = swap;
    }
    if (!path->anywhere)
        return next[0];
    /* The directory that is not known may be any that the pattern begins with. Where nothing of the
     * pattern's own names is left to compare, that is no more than possible. */
    for (size_t i = 0, named = rule_path_named(p); i <= p->count; i++)
        best = rule_path_more(
            best, path->count > 0 && i < named ? next[i] : rule_path_less(next[i], RULE_FIT_MAYBE));
    return best;
}

bool rule_path_must(const struct rule_parts *p, const struct rule_path *path) {
    if (path->anywhere || path->marked)
        return false;
    // "src/**" allows what is in src, not src itself.
    if (p->count > 0 && rule_path_is_double(p->part[p->count - 1]) && path->count < p->count)
        return false;
    return rule_path_may(p, path) == RULE_FIT_YES;
}
