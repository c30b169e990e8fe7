/* Where a command is not understood, or may run another one: nothing in it is allowed, and whatever
 * looks like the beginning of a denied command denies it. */
#include <string.h>

#include "perm_run.h"

/* Enough of the words behind a beginning to compare with any pattern. */
#define PERM_DENY_WINDOW 64u
/* What is longer is denied without a look. */
#define PERM_DENY_TEXT_MAX ((size_t)1024 * 1024)

const struct rule *perm_deny_rule(struct perm_run *run, const struct perm_words *w) {
    const struct rule_set *rules = run->perm->rules;
    struct rule_words words = {.word = w->word, .count = w->count};
    const struct rule *found = NULL;

    for (size_t i = 0; i < rules->of_count[RULE_EXEC]; i++) {
        const struct rule *rule = &rules->rules[rules->of[RULE_EXEC][i]];

        if (rule->verdict != RULE_ALLOW && (found == NULL || rule->verdict > found->verdict) &&
            rule_exec_may(rule, &words))
            found = rule;
    }
    return found;
}

/* The rule for the words from `i` on, also under the bare name of the program. */
static const struct rule *perm_deny_at(struct perm_run *run, const struct perm_words *w, size_t i) {
    const struct bash_word *words[PERM_DENY_WINDOW];
    struct perm_words part = {.word = words};
    struct bash_word bare = *w->word[i];
    char *slash = strrchr(bare.text, '/');
    const struct rule *rule;

    while (part.count < PERM_DENY_WINDOW && i + part.count < w->count) {
        words[part.count] = w->word[i + part.count];
        part.count++;
    }
    rule = perm_deny_rule(run, &part);
    if (rule != NULL || slash == NULL || bare.text[0] != '/')
        return rule;
    bare.text = slash + 1;
    words[0] = &bare;
    return perm_deny_rule(run, &part);
}

static const char *perm_deny_why(const struct rule *rule) {
    return rule->reason != NULL ? rule->reason : "what may be run by it is covered by a rule";
}

void perm_deny_suffixes(struct perm_run *run, struct perm_part *part, const struct perm_words *w,
                        bool wrapper) {
    for (size_t i = 1; i < w->count; i++) {
        const struct rule *rule = perm_deny_at(run, w, i);
        const struct perm_prog *prog;

        if (rule != NULL)
            perm_part_note(part, wrapper ? rule->verdict : RULE_ASK, rule, perm_deny_why(rule));
        prog = wrapper ? perm_prog_find(w->word[i]->text) : NULL;
        if (prog != NULL && prog->kind == PERM_PROG_SHELL)
            for (size_t k = i + 1; k < w->count; k++)
                if (strchr(w->word[k]->text, ' ') != NULL)
                    perm_deny_scan(run, part, w->word[k]->text, w->word[k]->len);
    }
}

/* ---- text ---- */

struct perm_deny_text {
    struct perm_run *run;
    struct perm_part *part;
    char *copy;
    struct bash_word *word;
    const struct bash_word **list;
    size_t count, cap;
};

static bool perm_deny_ends(char c) {
    return strchr(";&|()<>`\n{}", c) != NULL;
}

static bool perm_deny_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || (c >= 0 && c < 0x20 && c != '\n') || c == '$';
}

/* The words of one stretch without operators. */
static void perm_deny_stretch(struct perm_deny_text *t) {
    struct perm_words w = {t->list, t->count};

    for (size_t i = 0; i < t->count; i++) {
        const struct rule *rule = perm_deny_at(t->run, &w, i);

        if (rule != NULL)
            perm_part_note(t->part, rule->verdict, rule, perm_deny_why(rule));
        if (t->run->perm->reads)
            perm_path_word(t->run, t->part, t->list[i], PERM_CWD_UNKNOWN,
                           &(struct perm_path_ask){.kind = RULE_READ});
    }
    t->count = 0;
}

/* Adds text[0…len) without its quotes and backslashes. */
static void perm_deny_add(struct perm_deny_text *t, const char *text, size_t len) {
    struct bash_word *w = &t->word[t->count];
    size_t n = 0;

    if (len == 0)
        return;
    *w = (struct bash_word){.text = t->copy};
    for (size_t i = 0; i < len; i++)
        if (strchr("'\"\\", text[i]) == NULL)
            t->copy[n++] = text[i];
    t->copy[n] = '\0';
    w->len = n;
    t->copy += n + 1;
    if (n == 0)
        return;
    t->list[t->count++] = w;
    if (t->count == t->cap)
        perm_deny_stretch(t);
}

void perm_deny_scan(struct perm_run *run, struct perm_part *part, const char *text, size_t len) {
    struct perm_deny_text t = {.run = run, .part = part, .cap = 1024};
    size_t start = 0;
    struct arena *arena = &run->perm->arena;

    if (run->example != NULL)
        return;
    t.copy = len <= PERM_DENY_TEXT_MAX ? arena_get(arena, 2 * len + 2) : NULL;
    t.word = arena_get(arena, t.cap * sizeof(*t.word));
    t.list = arena_get(arena, t.cap * sizeof(*t.list));
    if (t.copy == NULL || t.word == NULL || t.list == NULL) {
        perm_part_note(part, RULE_DENY, NULL, "it is too long to be searched for what is denied");
        return;
    }
    for (size_t i = 0; i <= len; i++) {
        char c = i < len ? text[i] : '\n';

        /* A line that is continued is one line. */
        if (c == '\\' && i + 1 < len && text[i + 1] == '\n') {
            perm_deny_add(&t, text + start, i - start);
            start = i + 2;
            i++;
            continue;
        }
        if (c != '\0' && !perm_deny_blank(c) && !perm_deny_ends(c))
            continue;
        perm_deny_add(&t, text + start, i - start);
        start = i + 1;
        if (c != '\0' && !perm_deny_blank(c))
            perm_deny_stretch(&t);
    }
}
