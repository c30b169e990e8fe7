/* A rule, from its line. */
#include <stdio.h>
#include <string.h>

#include "rule.h"

struct rule_scan {
    struct rule_set *set;
    const struct rule_where *where;
    const char *at;
    char text[RULE_LINE_MAX]; /* of the token */
    char quote;               /* it was in quotes of this kind; 0 = none */
    bool example;             /* it is a lone ? or ! */
};

/* The next token; 1, 0 at the end, -1. */
static int rule_next(struct rule_scan *s, struct err *err) {
    size_t n = 0;

    s->at += strspn(s->at, " \t");
    s->quote = 0;
    if (*s->at == '\0' || *s->at == '#')
        return 0;
    if (*s->at == '"' || *s->at == '\'') {
        const char *close = strchr(s->at + 1, *s->at);

        if (close == NULL || (close[1] != '\0' && close[1] != ' ' && close[1] != '\t'))
            return err_set(err, ERR_INVALID, 0, "a quote is not closed at the end of a word");
        s->quote = *s->at;
        n = (size_t)(close - s->at) - 1;
        memcpy(s->text, s->at + 1, n);
        s->at = close + 1;
    } else {
        n = strcspn(s->at, " \t");
        memcpy(s->text, s->at, n);
        s->at += n;
    }
    s->text[n] = '\0';
    s->example = s->quote == 0 && n == 1 && (s->text[0] == '?' || s->text[0] == '!');
    return 1;
}

static int rule_pick(const char *const *names, size_t count, const char *text) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0)
            return (int)i;
    return -1;
}

static int rule_head(struct rule_scan *s, struct rule *rule, struct err *err) {
    static const char *const verdicts[] = {"allow", "ask", "deny"};
    static const char *const kinds[] = {"exec", "read", "write", "net", "model", "tool"};
    int v = -1, k = -1;

    if (rule_next(s, err) < 0)
        return -1;
    v = rule_pick(verdicts, 3, s->text);
    if (v < 0)
        return err_set(err, ERR_INVALID, 0, "a rule begins with deny, ask or allow, not with %.40s",
                       s->text);
    s->text[0] = '\0';
    if (rule_next(s, err) < 0)
        return -1;
    k = rule_pick(kinds, RULE_KINDS, s->text);
    if (k < 0)
        return err_set(err, ERR_INVALID, 0,
                       "behind %s comes exec, read, write, net, model or tool, not \"%.40s\"",
                       verdicts[v], s->text);
    rule->verdict = (enum rule_verdict)(v + 1);
    rule->kind = (enum rule_kind)k;
    return 0;
}

/* Finds the first {…} with a comma; false when there is none. */
static bool rule_braces(const char *text, const char **open, const char **close) {
    *open = strchr(text, '{');
    *close = *open != NULL ? strchr(*open, '}') : NULL;
    return *close != NULL && memchr(*open, ',', (size_t)(*close - *open)) != NULL;
}

/* Appends the alternatives of one text to out[count…]. */
static int rule_alternatives_add(struct rule_set *set, const char *text, const char **out,
                                 size_t *count, struct err *err) {
    const char *open, *close;
    size_t total = strlen(text);

    if (!rule_braces(text, &open, &close)) {
        if (*count >= RULE_ALTERNATIVES_MAX)
            return err_set(err, ERR_INVALID, 0, "more than %u alternatives", RULE_ALTERNATIVES_MAX);
        out[*count] = arena_copy(&set->arena, text, total);
        if (out[*count] == NULL)
            return err_set(err, ERR_LIMIT, 0, "no memory for rules");
        (*count)++;
        return 0;
    }
    for (const char *from = open + 1; from <= close;) {
        size_t n = strcspn(from, ",}"), head = (size_t)(open - text);
        char made[RULE_LINE_MAX];

        if (memchr(from, '{', n) != NULL)
            return err_set(err, ERR_INVALID, 0, "alternatives within alternatives");
        memcpy(made, text, head);
        memcpy(made + head, from, n);
        memcpy(made + head + n, close + 1, strlen(close + 1) + 1);
        if (rule_alternatives_add(set, made, out, count, err) < 0)
            return -1;
        from += n + 1;
    }
    return 0;
}

/* {a,b} alternatives of `text`, at most RULE_ALTERNATIVES_MAX. Returns their number, 0 on failure.
 */
static size_t rule_alternatives(struct rule_set *set, const char *text, const char ***alt,
                                struct err *err) {
    const char **out = arena_get(&set->arena, RULE_ALTERNATIVES_MAX * sizeof(*out));
    size_t count = 0;

    if (out == NULL) {
        err_set(err, ERR_LIMIT, 0, "no memory for rules");
        return 0;
    }
    if (rule_alternatives_add(set, text, out, &count, err) < 0)
        return 0;
    *alt = out;
    return count;
}

static int rule_token(struct rule_scan *s, struct rule_token *t, struct err *err) {
    const char *text = s->text;

    *t = (struct rule_token){.type = RULE_TOKEN_TEXT, .plain = true};
    if (s->quote != 0) {
        t->alt = arena_get(&s->set->arena, sizeof(*t->alt));
        if (t->alt == NULL)
            return err_set(err, ERR_LIMIT, 0, "no memory for rules");
        t->alt[0] = arena_copy(&s->set->arena, text, strlen(text));
        t->count = 1;
        return t->alt[0] != NULL ? 0 : err_set(err, ERR_LIMIT, 0, "no memory for rules");
    }
    if (strcmp(text, "*") == 0)
        t->type = RULE_TOKEN_ANY;
    else if (strcmp(text, "**") == 0)
        t->type = RULE_TOKEN_REST;
    else if (strcmp(text, "<path>") == 0)
        t->type = RULE_TOKEN_PATH;
    else if (strcmp(text, "<path>*") == 0)
        t->type = RULE_TOKEN_PATHS;
    else if (strstr(text, "**") != NULL)
        return err_set(err, ERR_INVALID, 0, "%.60s: ** stands alone, as the last word", text);
    else if (text[0] == '<' && strchr(text, '>') != NULL)
        return err_set(err, ERR_INVALID, 0, "%.60s: only <path> is known", text);
    if (t->type != RULE_TOKEN_TEXT)
        return 0;
    t->count = rule_alternatives(s->set, text, &t->alt, err);
    for (size_t i = 0; i < t->count; i++)
        t->plain = t->plain && strchr(t->alt[i], '*') == NULL;
    return t->count > 0 ? 0 : -1;
}

/* Adds a token to rule->token. */
static int rule_exec_word(struct rule_scan *s, struct rule *rule, struct err *err) {
    struct rule_token *last = rule->tokens > 0 ? &rule->token[rule->tokens - 1] : NULL;

    if (last != NULL && (last->type == RULE_TOKEN_REST || last->type == RULE_TOKEN_PATHS))
        return err_set(err, ERR_INVALID, 0, "%s must be the last word of the pattern",
                       last->type == RULE_TOKEN_REST ? "**" : "<path>*");
    if (rule->token == NULL) {
        rule->token = arena_get(&s->set->arena, RULE_TOKENS_MAX * sizeof(*rule->token));
        if (rule->token == NULL)
            return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    }
    if (rule->tokens >= RULE_TOKENS_MAX)
        return err_set(err, ERR_INVALID, 0, "a pattern has more than %u words", RULE_TOKENS_MAX);
    return rule_token(s, &rule->token[rule->tokens++], err);
}

/* A pattern of the other kinds is a rule of its own. */
static int rule_other_word(struct rule_scan *s, const struct rule *head, struct err *err) {
    const char **alt;
    size_t count = rule_alternatives(s->set, s->text, &alt, err);

    if (count == 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct rule rule = *head;

        rule.subject = alt[i];
        if ((rule.kind == RULE_READ || rule.kind == RULE_WRITE) &&
            rule_path_compile(s->set, alt[i], rule.verdict == RULE_ALLOW, &rule.parts, err) < 0)
            return -1;
        /* ".ENV" is ".env" on some file systems, and a secret on all of them. */
        rule.parts.fold =
            rule.verdict == RULE_DENY && (rule.layer == RULE_GUARD || rule.layer == RULE_DEFAULT);
        if (rule_add(s->set, &rule, err) < 0)
            return -1;
    }
    return 0;
}

/* "verdict kind patterns" with single blanks, for people. */
static const char *rule_folded(struct rule_set *set, const char *line, size_t len) {
    char *text = arena_get(&set->arena, len + 1);
    size_t n = 0;

    for (size_t i = 0; text != NULL && i < len; i++) {
        bool blank = line[i] == ' ' || line[i] == '\t';

        if (!blank)
            text[n++] = line[i];
        else if (n > 0 && text[n - 1] != ' ')
            text[n++] = ' ';
    }
    while (n > 0 && text[n - 1] == ' ')
        text[--n] = '\0';
    return text;
}

/* The examples at the end of the line: s->text is "?" or "!". */
static int rule_examples(struct rule_scan *s, struct err *err) {
    while (s->example) {
        bool must = s->text[0] == '?';
        const char *start = s->at + strspn(s->at, " \t"), *end = start;
        char text[RULE_LINE_MAX];
        int rc;

        do {
            s->text[0] = '\0';
            rc = rule_next(s, err);
            if (rc < 0)
                return -1;
            if (rc == 1 && !s->example)
                end = s->at;
        } while (rc == 1 && !s->example);
        if (rc == 0)
            s->example = false;
        memcpy(text, start, (size_t)(end - start));
        text[end - start] = '\0';
        if (rule_add_example(s->set, s->where, must, text, err) < 0)
            return -1;
    }
    return 0;
}

/* Where the patterns end, and the reason behind them. */
static int rule_survey(struct rule_scan s, size_t *len, const char **reason, struct err *err) {
    const char *line = s.at;
    int rc;

    *reason = NULL;
    while ((rc = rule_next(&s, err)) == 1 && !s.example) {
        if (*reason != NULL)
            return err_set(err, ERR_INVALID, 0, "something stands behind the reason");
        if (s.quote != '"') {
            *len = (size_t)(s.at - line);
            continue;
        }
        *reason = arena_copy(&s.set->arena, s.text, strlen(s.text));
        if (*reason == NULL)
            return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    }
    return rc < 0 ? -1 : 0;
}

int rule_line(struct rule_set *set, const struct rule_where *where, const char *line,
              struct err *err) {
    struct rule_scan s = {.set = set, .where = where, .at = line};
    struct rule rule = {.layer = where->layer, .file = where->file, .line = where->line};
    size_t len = 0, patterns = 0;
    int rc;

    if (rule_survey(s, &len, &rule.reason, err) < 0 || rule_head(&s, &rule, err) < 0)
        return -1;
    rule.untrusted = !where->trusted && rule.verdict == RULE_ALLOW;
    rule.text = rule_folded(set, line, len);
    if (rule.text == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    while ((rc = rule_next(&s, err)) == 1 && !s.example && s.quote != '"') {
        patterns++;
        if ((rule.kind == RULE_EXEC ? rule_exec_word(&s, &rule, err)
                                    : rule_other_word(&s, &rule, err)) < 0)
            return -1;
    }
    if (rc < 0)
        return -1;
    if (patterns == 0)
        return err_set(err, ERR_INVALID, 0, "a rule has no pattern");
    if (rule.kind == RULE_EXEC && rule_add(set, &rule, err) < 0)
        return -1;
    if (rc == 1 && s.quote == '"' && rule_next(&s, err) < 0)
        return -1;
    return s.example ? rule_examples(&s, err) : 0;
}
