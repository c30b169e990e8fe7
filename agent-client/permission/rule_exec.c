/* Patterns of commands: compared word by word. */
#include <string.h>

#include "rule.h"

/* A budget instead of a depth: the answer beyond it is "may fit". */
static bool rule_glob_run(const char *p, const char *t, bool fold, unsigned *budget) {
    for (;;) {
        if (*budget == 0)
            return true;
        (*budget)--;
        if (*p == '*') {
            while (*p == '*')
                p++;
            if (*p == '\0')
                return true;
            for (;; t++) {
                if (rule_glob_run(p, t, fold, budget))
                    return true;
                if (*t == '\0')
                    return false;
            }
        }
        if (*t == BASH_MARK_ANY || *t == BASH_MARK_STAR || *t == BASH_MARK_TILDE) {
            for (;; p++) {
                if (rule_glob_run(p, t + 1, fold, budget))
                    return true;
                if (*p == '\0')
                    return false;
            }
        }
        if (*p == '\0' || *t == '\0')
            return *p == *t;
        if (*p != *t && *t != BASH_MARK_ONE && !(fold && rule_lower(*p) == rule_lower(*t)))
            return false;
        p++;
        t++;
    }
}

bool rule_glob(const char *pattern, const char *text) {
    unsigned budget = 4096;

    return rule_glob_run(pattern, text, false, &budget);
}

bool rule_glob_fold(const char *pattern, const char *text) {
    unsigned budget = 4096;

    return rule_glob_run(pattern, text, true, &budget);
}

static bool rule_word_is_literal(const struct bash_word *w) {
    return (w->flags & (unsigned)(BASH_WORD_DYNAMIC | BASH_WORD_GLOB)) == 0;
}

static bool rule_token_text(const struct rule_token *t, const char *text) {
    for (size_t i = 0; i < t->count; i++)
        if (t->plain ? strcmp(t->alt[i], text) == 0 : rule_glob(t->alt[i], text))
            return true;
    return false;
}

/* Exactly this word. */
static bool rule_token_must(const struct rule_token *t, const struct rule_words *w,
                            const struct bash_word *word) {
    switch (t->type) {
    case RULE_TOKEN_TEXT:
        return rule_word_is_literal(word) && rule_token_text(t, word->text);
    case RULE_TOKEN_ANY:
        return w->loose || rule_word_is_literal(word);
    case RULE_TOKEN_REST:
        /* The names of files that a glob becomes are words like others. */
        return w->loose || (word->flags & (unsigned)BASH_WORD_DYNAMIC) == 0;
    case RULE_TOKEN_PATH:
    case RULE_TOKEN_PATHS:
        return rule_word_is_literal(word) && w->inside(w->arg, word);
    }
    return false;
}

bool rule_exec_must(const struct rule *rule, const struct rule_words *w) {
    size_t i = 0;

    for (size_t t = 0; t < rule->tokens; t++) {
        const struct rule_token *token = &rule->token[t];

        if (token->type == RULE_TOKEN_REST || token->type == RULE_TOKEN_PATHS) {
            while (i < w->count && rule_token_must(token, w, w->word[i]))
                i++;
            return i == w->count && i > 0;
        }
        if (i >= w->count || !rule_token_must(token, w, w->word[i]))
            return false;
        i++;
    }
    return i == w->count;
}

/* This word, or one that it may become. */
static bool rule_token_may(const struct rule_token *t, const struct bash_word *word) {
    if (t->type != RULE_TOKEN_TEXT)
        return true;
    return rule_word_is_literal(word) && rule_token_text(t, word->text);
}

static bool rule_is_option(const char *text) {
    return text[0] == '-' && text[1] != '\0';
}

/* Is this letter among the options of the words, alone or in a cluster? */
static bool rule_has_letter(const struct rule_words *w, char letter) {
    for (size_t i = 1; i < w->count; i++) {
        const char *text = w->word[i]->text;

        if (strcmp(text, "--") == 0)
            break;
        if (text[0] != '-')
            continue;
        if (text[1] != '-' && strchr(text + 1, letter) != NULL)
            return true;
        if ((letter == 'r' || letter == 'R') &&
            (strncmp(text, "--recursive", strlen(text)) == 0 && strlen(text) > 3))
            return true;
        if (letter == 'f' && strncmp(text, "--force", strlen(text)) == 0 && strlen(text) > 3)
            return true;
        if (letter == 'r' && text[1] != '-' && strchr(text + 1, 'R') != NULL)
            return true;
    }
    return false;
}

static bool rule_has_long(const struct rule_words *w, const struct rule_token *t) {
    for (size_t i = 1; i < w->count; i++) {
        const struct bash_word *word = w->word[i];

        if (!rule_word_is_literal(word))
            continue;
        for (size_t a = 0; a < t->count; a++) {
            size_t n = strlen(t->alt[a]);

            if (strncmp(word->text, t->alt[a], n) == 0 &&
                (word->text[n] == '\0' || word->text[n] == '='))
                return true;
        }
    }
    return false;
}

/* An option of the pattern, wherever it is among the words. */
static bool rule_has_option(const struct rule_words *w, const struct rule_token *t) {
    const char *text = t->alt[0];

    if (text[1] == '-' || t->count > 1 || !t->plain)
        return rule_has_long(w, t);
    for (const char *p = text + 1; *p != '\0'; p++)
        if (!rule_has_letter(w, *p))
            return false;
    return true;
}

/* The next operand that the token fits, from *i on. An operand behind an option may be its value.
 */
static bool rule_next_operand(const struct rule_words *w, const struct rule_token *t, size_t *i) {
    for (; *i < w->count; (*i)++) {
        const struct bash_word *word = w->word[*i];

        if (rule_is_option(word->text))
            continue;
        if (rule_token_may(t, word)) {
            (*i)++;
            return true;
        }
        if (!rule_is_option(w->word[*i - 1]->text))
            return false;
    }
    return false;
}

/* A pattern that ends with "**", its options in any order. */
static bool rule_exec_loose(const struct rule *rule, const struct rule_words *w) {
    size_t i = 1;

    if (rule->token[rule->tokens - 1].type != RULE_TOKEN_REST || rule->tokens < 2)
        return false;
    for (size_t t = 1; t + 1 < rule->tokens; t++) {
        const struct rule_token *token = &rule->token[t];
        bool option = token->type == RULE_TOKEN_TEXT && rule_is_option(token->alt[0]);

        if (option ? !rule_has_option(w, token) : !rule_next_operand(w, token, &i))
            return false;
    }
    return true;
}

static bool rule_exec_strict(const struct rule *rule, const struct rule_words *w) {
    size_t i = 0;

    for (size_t t = 0; t < rule->tokens; t++) {
        const struct rule_token *token = &rule->token[t];

        if (token->type == RULE_TOKEN_REST || token->type == RULE_TOKEN_PATHS)
            return true;
        if (i >= w->count || !rule_token_may(token, w->word[i]))
            return false;
        i++;
    }
    return i == w->count;
}

#define RULE_SPLIT_MAX 256u

bool rule_exec_may(const struct rule *rule, const struct rule_words *w) {
    const struct bash_word *kept[RULE_SPLIT_MAX];
    struct rule_words fewer = *w;

    if (w->count == 0 || !rule_token_may(&rule->token[0], w->word[0]))
        return false;
    if (rule_exec_strict(rule, w) || rule_exec_loose(rule, w))
        return true;
    /* $x may be nothing at all. */
    fewer.count = 0;
    for (size_t i = 0; i < w->count && fewer.count < RULE_SPLIT_MAX; i++)
        if ((w->word[i]->flags & (unsigned)BASH_WORD_SPLIT) == 0 || w->word[i]->len > 1)
            kept[fewer.count++] = w->word[i];
    fewer.word = kept;
    return fewer.count < w->count && fewer.count > 0 &&
           (rule_exec_strict(rule, &fewer) || rule_exec_loose(rule, &fewer));
}
