/* "Always allow": what may be offered to be stored, so that the same question is not asked again.
 */
#include <stdio.h>
#include <string.h>

#include "perm_run.h"

/* Programs whose second word says what they do; everything behind it may differ. */
static const char *const perm_always_subcommands[] = {
    "git",  "npm", "pnpm", "yarn", "cargo",  "go",     "pip",       "pip3",  "apt",
    "brew", "gh",  "helm", "mvn",  "gradle", "dotnet", "terraform", "rustup"};

static bool perm_always_is_sub(const char *name) {
    for (size_t i = 0; i < sizeof(perm_always_subcommands) / sizeof(perm_always_subcommands[0]);
         i++)
        if (strcmp(perm_always_subcommands[i], name) == 0)
            return true;
    return false;
}

/* Appends a word as a rule spells it; -1 when it cannot. */
static int perm_always_word(char *out, size_t size, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:@%+=-";
    bool quote = *text == '\0' || strspn(text, plain) != strlen(text);
    size_t n = strlen(out);
    int len;

    if (strpbrk(text, "'\n\t") != NULL)
        return -1;
    len = snprintf(out + n, size - n, quote ? " '%s'" : " %s", text);
    return len < 0 || (size_t)len >= size - n ? -1 : 0;
}

const char *perm_always_rule(struct perm_run *run, const struct perm_words *w,
                             const struct perm_prog *prog) {
    char rule[PERM_TEXT_MAX + 64] = "allow exec";
    const char *name = w->word[0]->text;
    bool sub = perm_always_is_sub(name) && w->count >= 2 && w->word[1]->text[0] != '-';
    size_t keep = w->count;

    if (w->count < 2 || perm_prog_runs_anything(name) || strchr(name, '/') != NULL)
        return NULL;
    if (sub)
        keep = strcmp(w->word[1]->text, "run") == 0 ? 3 : 2;
    if (keep > w->count)
        return NULL;
    for (size_t i = 0; i < w->count; i++) {
        unsigned bad = BASH_WORD_DYNAMIC | BASH_WORD_GLOB | BASH_WORD_RISKY;

        if ((w->word[i]->flags & bad) != 0 || perm_prog_risky(prog, w, i))
            return NULL;
        if (i < keep && perm_always_word(rule, sizeof(rule), w->word[i]->text) < 0)
            return NULL;
    }
    if (sub && strlen(rule) + 4 < sizeof(rule))
        memcpy(rule + strlen(rule), " **", 4);
    return arena_copy(&run->perm->arena, rule, strlen(rule));
}
