/* Paths that a command names, against the rules: as they are written, and where they lead. */
#include <stdio.h>
#include <string.h>

#include "perm_run.h"

static bool perm_path_unknown(const char *part, size_t len) {
    return memchr(part, BASH_MARK_ANY, len) != NULL;
}

/* One component. "." and ".." are taken away as the shell's cd does it. */
static int perm_path_push(struct perm *p, struct rule_path *out, const char *part, size_t len) {
    char *copy;

    if (len == 0 || (len == 1 && part[0] == '.'))
        return 0;
    if (len == 2 && part[0] == '.' && part[1] == '.') {
        if (out->count == 0)
            return 0;
        /* What is before an unknown text's parent is not known either. */
        if (perm_path_unknown(out->part[out->count - 1], strlen(out->part[out->count - 1]))) {
            out->anywhere = true;
            out->count = 0;
            return 0;
        }
        out->count--;
        return 0;
    }
    if (out->count >= RULE_PATH_MAX)
        return -1;
    copy = arena_copy(&p->arena, part, len);
    if (copy == NULL)
        return -1;
    for (size_t i = 0; i < len && !out->marked; i++)
        out->marked = part[i] > 0 && part[i] < ' ' && part[i] != '\n' && part[i] != '\t';
    out->part[out->count++] = copy;
    return 0;
}

static void perm_path_seal(struct rule_path *path) {
    path->name = path->count > 0 ? path->part[path->count - 1] : NULL;
    path->name_len = path->name != NULL ? strlen(path->name) : 0;
}

int perm_path_build(struct perm *p, const struct rule_path *cwd, const char *text,
                    struct rule_path *out) {
    *out = (struct rule_path){0};
    if (text[0] == BASH_MARK_TILDE && (text[1] == '/' || text[1] == '\0')) {
        *out = p->home;
        text++;
    } else if (text[0] == BASH_MARK_ANY) {
        /* It may be the beginning of an absolute path. */
        out->anywhere = true;
        if (text[1] == '/' || text[1] == '\0')
            text++;
    } else if (text[0] != '/' && cwd != NULL) {
        *out = *cwd;
    } else if (text[0] != '/') {
        out->anywhere = true;
    }
    while (*text != '\0') {
        size_t n = strcspn(text, "/");

        if (perm_path_push(p, out, text, n) < 0)
            return -1;
        text += n;
        text += *text == '/';
    }
    perm_path_seal(out);
    return 0;
}

static bool perm_path_literal(const struct rule_path *path) {
    return !path->anywhere && !path->marked;
}

static bool perm_path_below(const struct rule_path *path, const struct rule_path *base) {
    if (path->anywhere || path->count < base->count)
        return false;
    for (size_t i = 0; i < base->count; i++)
        if (strcmp(path->part[i], base->part[i]) != 0)
            return false;
    return true;
}

/* Where the path leads, with the workspace's own place put back: 1, or 0 when it leads nowhere
 * else, or -1 when nobody knows. The components are joined as written, because ".." behind a link
 * is not the directory before it. */
static int perm_path_resolve(struct perm *p, const struct rule_path *cwd, const char *text,
                             struct rule_path *out) {
    char path[4096], real[4096];
    size_t n = 0;
    struct rule_path found;

    if (p->config.resolve == NULL)
        return 0;
    if (text[0] == BASH_MARK_TILDE) {
        cwd = &p->home;
        text++;
    }
    for (size_t i = 0; text[0] != '/' && cwd != NULL && i < cwd->count; i++) {
        int len = snprintf(path + n, sizeof(path) - n, "/%s", cwd->part[i]);

        if (len < 0 || (size_t)len >= sizeof(path) - n)
            return -1;
        n += (size_t)len;
    }
    if (strlen(text) + 2 > sizeof(path) - n)
        return -1;
    snprintf(path + n, sizeof(path) - n, "%s%s", text[0] == '/' ? "" : "/", text);
    if (p->config.resolve(p->config.arg, path, real, sizeof(real)) < 0 || real[0] != '/')
        return -1;
    if (perm_path_build(p, NULL, real, &found) < 0)
        return -1;
    if (!perm_path_below(&found, &p->real_workspace)) {
        *out = found;
        return 1;
    }
    *out = p->workspace;
    for (size_t i = p->real_workspace.count; i < found.count; i++) {
        if (out->count >= RULE_PATH_MAX)
            return -1;
        out->part[out->count++] = found.part[i];
    }
    perm_path_seal(out);
    return 1;
}

bool perm_path_inside(struct perm *p, const struct rule_path *path) {
    return perm_path_literal(path) && perm_path_below(path, &p->workspace);
}

/* Files that are no files. */
static bool perm_path_device(const struct rule_path *path) {
    static const char *const names[] = {"null", "zero", "stdin", "stdout", "stderr", "tty", "full"};

    if (path->anywhere || path->count < 2 || strcmp(path->part[0], "dev") != 0)
        return false;
    if (path->count == 3 && strcmp(path->part[1], "fd") == 0)
        return path->part[2][0] >= '0' && path->part[2][0] <= '9' && path->part[2][1] == '\0';
    for (size_t i = 0; path->count == 2 && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(path->part[1], names[i]) == 0)
            return true;
    return false;
}

/* One path, as written and as resolved. */
struct perm_path_pair {
    struct rule_path written, real;
    int known; /* as perm_path_resolve() */
};

static bool perm_path_allows(const struct rule *rule, const struct perm_path_pair *pair) {
    if (rule->untrusted || !rule_path_must(&rule->parts, &pair->written))
        return false;
    return pair->known == 0 || (pair->known == 1 && rule_path_must(&rule->parts, &pair->real));
}

static enum rule_fit perm_path_hits(const struct rule *rule, const struct perm_path_pair *pair) {
    enum rule_fit fit = RULE_FIT_NO;

    if (!rule_path_far(&rule->parts, &pair->written))
        fit = rule_path_may(&rule->parts, &pair->written);
    if (fit != RULE_FIT_YES && pair->known == 1 && !rule_path_far(&rule->parts, &pair->real)) {
        enum rule_fit real = rule_path_may(&rule->parts, &pair->real);

        fit = real > fit ? real : fit;
    }
    return fit;
}

/* The allow rule for the path, or NULL. */
static const struct rule *perm_path_allowed(struct perm *p, enum rule_kind kind,
                                            const struct perm_path_pair *pair) {
    for (size_t i = 0; i < p->rules->of_count[kind]; i++) {
        const struct rule *rule = &p->rules->rules[p->rules->of[kind][i]];

        if (rule->verdict == RULE_ALLOW && perm_path_allows(rule, pair))
            return rule;
    }
    return NULL;
}

static void perm_path_note(struct perm_part *part, const struct rule *rule, enum rule_fit fit,
                           bool soft) {
    if (fit == RULE_FIT_YES && !soft)
        perm_part_note(part, rule->verdict, rule,
                       rule->reason != NULL ? rule->reason : "a rule covers the path");
    else
        perm_part_note(part, RULE_ASK, rule,
                       "a path that is not known before it runs may be one that a rule covers");
}

static void perm_path_examples(struct perm_run *run, const struct perm_path_pair *pair,
                               enum rule_kind kind) {
    for (size_t i = 0; i < run->example->count && run->example->kind == kind; i++) {
        const struct rule *rule = &run->perm->rules->rules[run->example->first + i];

        if (rule->verdict == RULE_ALLOW ? rule_path_must(&rule->parts, &pair->written)
                                        : perm_path_hits(rule, pair) == RULE_FIT_YES)
            run->met = true;
    }
}

/* A redirection without a rule: reading what is in the workspace is part of what the command may
 * do. */
static void perm_path_own(struct perm_run *run, struct perm_part *part,
                          const struct perm_path_pair *pair, const struct perm_path_ask *ask) {
    struct perm *p = run->perm;
    const struct rule *rule = perm_path_allowed(p, ask->kind, pair);

    if (rule != NULL)
        perm_part_note(part, RULE_ALLOW, rule, "a rule allows the path");
    else if (perm_path_device(&pair->written))
        perm_part_note(part, RULE_ALLOW, NULL, "a device that keeps nothing");
    else if (ask->kind == RULE_READ && perm_path_inside(p, &pair->written) &&
             (pair->known == 0 || (pair->known == 1 && perm_path_inside(p, &pair->real))))
        perm_part_note(part, RULE_ALLOW, NULL, "a file of the workspace");
    else
        perm_part_note(part, RULE_ASK, NULL,
                       ask->kind == RULE_READ ? "no rule allows to read this path"
                                              : "no rule allows to write this path");
}

static void perm_path_pair(struct perm_run *run, struct perm_part *part,
                           const struct perm_path_pair *pair, const struct perm_path_ask *ask) {
    struct perm *p = run->perm;
    const struct rule_set *rules = p->rules;
    bool lifted = false, known = false;

    if (run->example != NULL) {
        perm_path_examples(run, pair, ask->kind);
        return;
    }
    for (size_t i = 0; i < rules->of_count[ask->kind]; i++) {
        const struct rule *rule = &rules->rules[rules->of[ask->kind][i]];
        enum rule_fit fit;

        if (rule->verdict == RULE_ALLOW)
            continue;
        fit = perm_path_hits(rule, pair);
        if (fit == RULE_FIT_NO)
            continue;
        if (rule->layer == RULE_DEFAULT && !known) {
            lifted = perm_path_allowed(p, ask->kind, pair) != NULL;
            known = true;
        }
        if (rule->layer != RULE_DEFAULT || !lifted)
            perm_path_note(part, rule, fit, ask->soft);
    }
    if (ask->own)
        perm_path_own(run, part, pair, ask);
}

/* The deny rules name what must not go; a directory above it goes with all that is in it. */
static bool perm_path_above(const struct rule_path *path, const struct rule_parts *pattern) {
    if (path->anywhere || pattern->anywhere || path->count >= pattern->count)
        return false;
    for (size_t i = 0; i < path->count; i++)
        if (strchr(pattern->part[i], '*') != NULL || strcmp(path->part[i], pattern->part[i]) != 0)
            return false;
    return true;
}

static void perm_path_parents(struct perm_run *run, struct perm_part *part,
                              const struct perm_path_pair *pair) {
    const struct rule_set *rules = run->perm->rules;

    for (size_t i = 0; i < rules->of_count[RULE_WRITE]; i++) {
        const struct rule *rule = &rules->rules[rules->of[RULE_WRITE][i]];

        if (rule->verdict == RULE_DENY && perm_path_above(&pair->written, &rule->parts))
            perm_part_note(part, RULE_ASK, rule, "a denied path is below this one");
    }
}

void perm_path_judge(struct perm_run *run, struct perm_part *part, const char *text, perm_cwd cwd,
                     const struct perm_path_ask *ask) {
    bool absolute = text[0] == '/' || text[0] == BASH_MARK_TILDE || text[0] == BASH_MARK_ANY;

    for (size_t i = 0; i <= PERM_CWD_MAX; i++) {
        const struct rule_path *from = i < PERM_CWD_MAX ? run->cwd[i] : NULL;
        struct perm_path_pair pair;

        if ((cwd & (1u << i)) == 0)
            continue;
        if (perm_path_build(run->perm, from, text, &pair.written) < 0) {
            perm_part_note(part, RULE_ASK, NULL, "a path that is too long to compare");
            return;
        }
        pair.known = 0;
        if (perm_path_literal(&pair.written))
            pair.known = perm_path_resolve(run->perm, from, text, &pair.real);
        perm_path_pair(run, part, &pair, ask);
        if (ask->kind == RULE_WRITE && !ask->own && !ask->soft && run->example == NULL)
            perm_path_parents(run, part, &pair);
        if (absolute)
            break;
    }
}

void perm_path_word(struct perm_run *run, struct perm_part *part, const struct bash_word *word,
                    perm_cwd cwd, const struct perm_path_ask *ask) {
    const char *text = word->text;

    perm_path_judge(run, part, text, cwd, ask);
    if (text[0] == '-' && text[1] != '-' && text[1] != '\0' && text[2] != '\0')
        perm_path_judge(run, part, text + 2, cwd, ask);
    for (const char *p = strpbrk(text, "=@:,"); p != NULL; p = strpbrk(p + 1, "=@:,")) {
        if (p[1] != '\0')
            perm_path_judge(run, part, p + 1, cwd, ask);
        if (*p == ':' && p > text) {
            /* docker -v SOURCE:TARGET, scp FILE:… */
            char *left = arena_copy(&run->perm->arena, text, (size_t)(p - text));

            if (left != NULL)
                perm_path_judge(run, part, left, cwd, ask);
        }
    }
}

/* A directory of programs, wherever its root is. */
static bool perm_path_bin(const struct rule_path *path) {
    const char *dir = path->count >= 2 ? path->part[path->count - 2] : "";

    return strcmp(dir, "bin") == 0 || strcmp(dir, "sbin") == 0;
}

const char *perm_path_program(struct perm_run *run, const struct bash_word *word, perm_cwd cwd,
                              bool *path) {
    const char *slash = strrchr(word->text, '/');
    struct rule_path built;

    *path = slash != NULL;
    if (slash == NULL)
        return word->text;
    if (word->text[0] == '/' || word->text[0] == BASH_MARK_ANY || word->text[0] == BASH_MARK_TILDE)
        return slash + 1;
    for (size_t i = 0; i <= PERM_CWD_MAX; i++) {
        if ((cwd & (1u << i)) == 0)
            continue;
        if (perm_path_build(run->perm, i < PERM_CWD_MAX ? run->cwd[i] : NULL, word->text, &built) <
            0)
            return slash + 1;
        if (!perm_path_inside(run->perm, &built) && (built.anywhere ? perm_path_bin(&built) : true))
            return slash + 1;
    }
    return NULL;
}
