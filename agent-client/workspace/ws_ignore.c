#include "ws_ignore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A pattern from somebody else's repository may be made to take for ever. */
#define WS_IGNORE_STEPS_MAX 20000u
#define WS_IGNORE_PATH_MAX 4096u

/* "[a-z]", "[!a]": the end of the class, or NULL when it has none; *in = c is in it. */
static const char *ws_ignore_class(const char *p, char c, bool *in) {
    bool other = p[1] == '!' || p[1] == '^', found = false;
    p += other ? 2 : 1;
    for (const char *first = p; *p != '\0' && (*p != ']' || p == first); p++) {
        char low = *p == '\\' && p[1] != '\0' ? *++p : *p, high = low;
        if (p[1] == '-' && p[2] != ']' && p[2] != '\0') {
            p += 2;
            high = *p == '\\' && p[1] != '\0' ? *++p : *p;
        }
        found = found || (c >= low && c <= high);
    }
    if (*p != ']')
        return NULL;
    *in = found != other && c != '/';
    return p + 1;
}

static bool ws_ignore_try(const char *p, const char *s, unsigned *steps);

/* At "**": any number of whole components, none included. */
static bool ws_ignore_stars(const char *p, const char *s, unsigned *steps) {
    p += 2;
    if (*p == '\0')
        return *s != '\0';
    p++;
    for (;; s++) {
        if (ws_ignore_try(p, s, steps))
            return true;
        s = strchr(s, '/');
        if (s == NULL || *steps > WS_IGNORE_STEPS_MAX)
            return false;
    }
}

static bool ws_ignore_try(const char *p, const char *s, unsigned *steps) {
    const char *begin = s, *star = NULL, *back = NULL;
    for (;;) {
        bool in = false;
        const char *next = NULL;
        if (++*steps > WS_IGNORE_STEPS_MAX)
            return false;
        if (p[0] == '*' && p[1] == '*' && (s == begin || s[-1] == '/') &&
            (p[2] == '/' || p[2] == '\0'))
            return ws_ignore_stars(p, s, steps);
        if (*p == '*') {
            star = ++p;
            back = s;
            continue;
        }
        if (*p == '\0' && *s == '\0')
            return true;
        if (*s != '\0') {
            if (*p == '[' && (next = ws_ignore_class(p, *s, &in)) != NULL)
                next = in ? next : NULL;
            else if (*p == '\\' && p[1] == *s)
                next = p + 2;
            else if (*p == '?' ? *s != '/' : *p == *s && *p != '\\')
                next = p + 1;
        }
        if (next != NULL) {
            p = next;
            s++;
        } else if (star != NULL && *back != '\0' && *back != '/') {
            s = ++back;
            p = star;
        } else {
            return false;
        }
    }
}

bool ws_ignore_glob(const char *pattern, const char *path) {
    unsigned steps = 0;
    return ws_ignore_try(pattern, path, &steps);
}

/* Rules. */

static int ws_ignore_push(struct ws_ignore *g, const struct ws_ignore_rule *rule, struct err *err) {
    if (g->count == WS_IGNORE_RULES_MAX)
        return err_set(err, ERR_LIMIT, 0, "more than %u patterns in ignore files",
                       WS_IGNORE_RULES_MAX);
    if (g->count == g->alloc) {
        size_t alloc = g->alloc == 0 ? 64 : g->alloc * 2;
        struct ws_ignore_rule *grown = reallocarray(g->rules, alloc, sizeof(*grown));
        if (grown == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "reading ignore files: out of memory");
        g->rules = grown;
        g->alloc = alloc;
    }
    g->rules[g->count++] = *rule;
    return 0;
}

/* A blank at the end counts only behind a backslash. */
static size_t ws_ignore_trim(const char *line, size_t len) {
    while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\r') &&
           (len < 2 || line[len - 2] != '\\'))
        len--;
    return len;
}

static int ws_ignore_line(struct ws_ignore *g, const char *directory, const char *line, size_t len,
                          struct err *err) {
    struct ws_ignore_rule rule = {.base = strlen(directory)};
    len = ws_ignore_trim(line, len);
    if (len == 0 || line[0] == '#' || memchr(line, '\0', len) != NULL)
        return 0;
    if (line[0] == '!') {
        rule.negated = true;
        line++;
        len--;
    }
    while (len > 0 && line[len - 1] == '/') {
        rule.only_dirs = true;
        len--;
    }
    rule.anchored = len > 0 && memchr(line, '/', len) != NULL;
    if (len > 0 && line[0] == '/') {
        line++;
        len--;
    }
    if (len == 0)
        return 0;
    rule.pattern = malloc(len + 1); /* the text need not end with a NUL, which strndup() may read */
    if (rule.pattern != NULL) {
        memcpy(rule.pattern, line, len);
        rule.pattern[len] = '\0';
    }
    rule.directory = strdup(directory);
    if (rule.pattern != NULL && rule.directory != NULL && ws_ignore_push(g, &rule, err) == 0)
        return 0;
    if (rule.pattern == NULL || rule.directory == NULL)
        err_set(err, ERR_SYSTEM, ENOMEM, "reading ignore files: out of memory");
    free(rule.pattern);
    free(rule.directory);
    return -1;
}

int ws_ignore_add(struct ws_ignore *g, const char *directory, const char *text, size_t len,
                  struct err *err) {
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end != NULL ? (size_t)(end - text) : len;
        if (ws_ignore_line(g, directory, text, n, err) < 0)
            return -1;
        n += end != NULL;
        text += n;
        len -= n;
    }
    return 0;
}

int ws_ignore_init(struct ws_ignore *g, struct err *err) {
    static const char built_in[] = "__pycache__\n";
    *g = (struct ws_ignore){0};
    return ws_ignore_add(g, "", built_in, sizeof(built_in) - 1, err);
}

/* Drops all rules but the first `count`: a directory is left. */
static void ws_ignore_cut(struct ws_ignore *g, size_t count) {
    while (g->count > count) {
        struct ws_ignore_rule *rule = &g->rules[--g->count];
        free(rule->pattern);
        free(rule->directory);
    }
}

void ws_ignore_done(struct ws_ignore *g) {
    if (g == NULL)
        return;
    ws_ignore_cut(g, 0);
    free(g->rules);
    *g = (struct ws_ignore){0};
}

/* *tired: the pattern asked for too much, and nobody knows. */
static bool ws_ignore_fits(const struct ws_ignore_rule *rule, const char *path, bool is_dir,
                           bool *tired) {
    unsigned steps = 0;
    if (rule->only_dirs && !is_dir)
        return false;
    if (rule->base > 0) {
        if (strncmp(path, rule->directory, rule->base) != 0 || path[rule->base] != '/')
            return false;
        path += rule->base + 1;
    }
    if (!rule->anchored) {
        const char *slash = strrchr(path, '/');
        path = slash != NULL ? slash + 1 : path;
    }
    bool fits = ws_ignore_try(rule->pattern, path, &steps);
    *tired = steps > WS_IGNORE_STEPS_MAX;
    return fits;
}

/* Nothing in a repository says otherwise: git runs what stands in .git, and it has passwords; what
 * stands in .pinfold is rules. In any case, for file systems that do not tell cases apart. */
static bool ws_ignore_own(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return strcasecmp(name, ".git") == 0 || strcasecmp(name, ".pinfold") == 0;
}

bool ws_ignore_match(const struct ws_ignore *g, const char *path, bool is_dir) {
    if (ws_ignore_own(path))
        return true;
    for (size_t i = g->count; i-- > 0;) {
        bool tired = false;
        if (ws_ignore_fits(&g->rules[i], path, is_dir, &tired))
            return !g->rules[i].negated;
        if (tired)
            return true; /* what may be meant to stay, stays */
    }
    return false;
}

/* The next line that is a pattern; NULL at the end. */
static const char *ws_ignore_next(const char **at, const char *end, size_t *len) {
    while (*at < end) {
        const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = stop != NULL ? (size_t)(stop - line) : (size_t)(end - line);
        *at = line + n + (stop != NULL);
        *len = ws_ignore_trim(line, n);
        if (*len > 0 && line[0] != '#')
            return line;
    }
    return NULL;
}

bool ws_ignore_loosens(const char *was, size_t was_len, const char *now, size_t now_len) {
    const char *old_end = was + was_len, *end = now + now_len, *line, *old;
    size_t len = 0, old_len = 0;
    old = ws_ignore_next(&was, old_end, &old_len);
    while ((line = ws_ignore_next(&now, end, &len)) != NULL) {
        if (old != NULL && old_len == len && memcmp(old, line, len) == 0)
            old = ws_ignore_next(&was, old_end, &old_len);
        else if (line[0] == '!')
            return true;
    }
    return old != NULL;
}

bool ws_ignore_is_file(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return strcmp(name, ".gitignore") == 0 || strcmp(name, ".pinfoldignore") == 0;
}

bool ws_ignore_covers(const struct ws_ignore *g, const char *path, bool is_dir) {
    char part[WS_IGNORE_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        if (n >= sizeof(part))
            return true;
        memcpy(part, path, n);
        part[n] = '\0';
        if (ws_ignore_match(g, part, true))
            return true;
    }
    return ws_ignore_match(g, path, is_dir);
}
