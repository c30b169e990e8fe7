/* One command with its words: the rules for it, what it may read and write, and what it runs. */
#include <stdio.h>
#include <string.h>

#include "perm_run.h"

struct perm_call {
    struct perm_run *run;
    const struct perm_words *w;
    perm_cwd cwd;
    struct perm_part *part;
    const struct perm_prog *prog; /* or NULL */
    const char *name;             /* bare, or NULL */
    bool fixed;                   /* no rule can allow it */
    struct perm_state state;
};

static bool perm_exec_literal(const struct bash_word *w) {
    return (w->flags & (unsigned)(BASH_WORD_DYNAMIC | BASH_WORD_GLOB)) == 0;
}

static bool perm_exec_inside(void *arg, const struct bash_word *word) {
    const struct perm_call *c = arg;
    struct perm_part probe = {0};

    /* The same question as for a file that is read, without its rules: as written and as resolved.
     */
    for (size_t i = 0; i <= PERM_CWD_MAX; i++) {
        struct rule_path path;

        if ((c->cwd & (1u << i)) == 0)
            continue;
        if (perm_path_build(c->run->perm, i < PERM_CWD_MAX ? c->run->cwd[i] : NULL, word->text,
                            &path) < 0 ||
            !perm_path_inside(c->run->perm, &path))
            return false;
    }
    perm_path_judge(c->run, &probe, word->text, c->cwd,
                    &(struct perm_path_ask){.kind = RULE_READ, .own = true});
    return probe.verdict == RULE_ALLOW;
}

static void perm_exec_refuse(struct perm_call *c, const char *why) {
    c->fixed = true;
    perm_part_note(c->part, RULE_ASK, NULL, why);
}

/* The rules that count in a test of examples. `bare` (or NULL) = under the bare name. */
static void perm_exec_example(struct perm_call *c, const struct rule_words *words,
                              const struct rule_words *bare) {
    const struct rule_example *e = c->run->example;
    bool met = false;

    for (size_t i = 0; i < e->count && e->kind == RULE_EXEC; i++) {
        const struct rule *rule = &c->run->perm->rules->rules[e->first + i];

        met = met || (rule->verdict == RULE_ALLOW ? rule_exec_must(rule, words)
                                                  : rule_exec_may(rule, words));
        met = met || (rule->verdict != RULE_ALLOW && bare != NULL && rule_exec_may(rule, bare));
    }
    c->run->met = c->run->met || met;
    c->run->missed = c->run->missed || !met;
}

/* Does the rule name every word that is risky? */
static bool perm_exec_named(const struct perm_call *c, const struct rule *rule) {
    for (size_t i = 1; i < c->w->count; i++)
        if (perm_prog_risky(c->prog, c->w, i) &&
            (i >= rule->tokens || rule->token[i].type != RULE_TOKEN_TEXT))
            return false;
    return true;
}

static void perm_exec_allow(struct perm_call *c, const struct rule_words *words) {
    const struct rule_set *rules = c->run->perm->rules;
    bool risky = false;

    for (size_t i = 0; i < rules->of_count[RULE_EXEC] && !c->fixed; i++) {
        const struct rule *rule = &rules->rules[rules->of[RULE_EXEC][i]];

        if (rule->verdict != RULE_ALLOW || rule->untrusted || !rule_exec_must(rule, words))
            continue;
        if (perm_exec_named(c, rule)) {
            perm_part_note(c->part, RULE_ALLOW, rule,
                           rule->reason != NULL ? rule->reason : "a rule allows it");
            return;
        }
        risky = true;
    }
    if (!c->fixed && c->part->verdict < RULE_ASK)
        c->part->always = perm_always_rule(c->run, c->w, c->prog);
    perm_part_note(c->part, RULE_ASK, NULL,
                   risky ? "an option that writes a file or runs something, which no rule names"
                         : "no rule allows it");
}

/* The same words with the program's bare name, when it was named by a path; or NULL. */
static const struct bash_word **perm_exec_bare(struct perm_call *c) {
    struct arena *arena = &c->run->perm->arena;
    const struct bash_word **bare = arena_get(arena, c->w->count * sizeof(*bare));
    struct bash_word *name = arena_get(arena, sizeof(*name));

    if (bare == NULL || name == NULL)
        return NULL;
    memcpy(bare, c->w->word, c->w->count * sizeof(*bare));
    *name = (struct bash_word){.text = (char *)(uintptr_t)c->name, .len = strlen(c->name)};
    bare[0] = name;
    return bare;
}

static void perm_exec_rules(struct perm_call *c, bool path) {
    struct rule_words words = {.word = c->w->word,
                               .count = c->w->count,
                               .loose = c->prog != NULL && c->prog->kind == PERM_PROG_WORDS &&
                                        c->prog->risky == NULL,
                               .inside = perm_exec_inside,
                               .arg = c};
    const struct bash_word **bare = path && c->name != NULL ? perm_exec_bare(c) : NULL;
    struct rule_words other = {.word = bare, .count = c->w->count};
    const struct rule *rule;

    if (c->run->example != NULL) {
        perm_exec_example(c, &words, bare != NULL ? &other : NULL);
        return;
    }
    rule = perm_deny_rule(c->run, c->w);
    if (bare != NULL) {
        const struct rule *named = perm_deny_rule(c->run, &(struct perm_words){bare, c->w->count});

        rule = named != NULL && (rule == NULL || named->verdict > rule->verdict) ? named : rule;
    }
    if (rule != NULL)
        perm_part_note(c->part, rule->verdict, rule,
                       rule->reason != NULL ? rule->reason : "a rule covers it");
    if (perm_exec_literal(c->w->word[0]))
        perm_exec_allow(c, &words);
}

/* What its words name, against rules about paths. */
static void perm_exec_paths(struct perm_call *c) {
    enum perm_prog_kind kind = c->prog != NULL ? c->prog->kind : PERM_PROG_OTHER;
    bool grep = c->name != NULL && strstr(c->name, "grep") != NULL;
    bool pattern = grep, risky = false, before = false, hard;

    if (kind == PERM_PROG_WORDS || kind == PERM_PROG_STATE)
        return;
    for (size_t i = 1; i < c->w->count; i++) {
        const struct bash_word *word = c->w->word[i];

        if (grep &&
            (strncmp(word->text, "-e", 2) == 0 || strncmp(word->text, "-f", 2) == 0 ||
             strncmp(word->text, "--regexp", 8) == 0 || strncmp(word->text, "--file", 6) == 0))
            pattern = false;
        if (pattern && word->text[0] != '-') {
            /* What grep looks for is no path. */
            pattern = false;
            continue;
        }
        if (c->run->perm->reads)
            perm_path_word(c->run, c->part, word, c->cwd,
                           &(struct perm_path_ask){.kind = RULE_READ});
        risky = perm_prog_risky(c->prog, c->w, i);
        hard = kind == PERM_PROG_WRITER || risky || before;
        if (c->run->perm->writes && (hard || kind != PERM_PROG_READER))
            perm_path_word(c->run, c->part, word, c->cwd,
                           &(struct perm_path_ask){.kind = RULE_WRITE, .soft = !hard});
        before = risky;
    }
}

/* ---- commands in the words ---- */

static const struct bash_word *perm_exec_unknown(struct perm_run *run, unsigned flags) {
    struct bash_word *w = arena_get(&run->perm->arena, sizeof(*w));
    char *text = arena_copy(&run->perm->arena, (const char[]){BASH_MARK_ANY, 0}, 1);

    if (w == NULL || text == NULL)
        return NULL;
    w->text = text;
    w->len = 1;
    w->flags = BASH_WORD_DYNAMIC | flags;
    return w;
}

/* The word with something unknown wherever `hole` stands. */
static const struct bash_word *perm_exec_filled(struct perm_run *run, const struct bash_word *word,
                                                const char *hole) {
    struct bash_word *w = arena_get(&run->perm->arena, sizeof(*w));
    char *text = arena_get(&run->perm->arena, word->len + 1);
    size_t skip = strlen(hole), n = 0;

    if (w == NULL || text == NULL)
        return NULL;
    for (const char *p = word->text; *p != '\0';) {
        bool here = strncmp(p, hole, skip) == 0;

        text[n++] = here ? BASH_MARK_ANY : *p;
        p += here ? skip : 1;
    }
    *w = *word;
    w->text = text;
    w->len = n;
    w->flags |= BASH_WORD_DYNAMIC;
    return w;
}

/* The words [from, to), those that hold `hole` (or NULL) unknown, and one more unknown. */
static int perm_exec_inner(struct perm_call *c, size_t from, size_t to, const char *hole,
                           bool more) {
    size_t count = to - from;
    const struct bash_word **inner = arena_get(&c->run->perm->arena, (count + 1) * sizeof(*inner));

    if (inner == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        inner[i] = c->w->word[from + i];
        if (hole != NULL && *hole != '\0' && strstr(inner[i]->text, hole) != NULL)
            inner[i] = perm_exec_filled(c->run, inner[i], hole);
        if (inner[i] == NULL)
            return -1;
    }
    if (more) {
        inner[count] = perm_exec_unknown(c->run, BASH_WORD_SPLIT);
        if (inner[count] == NULL)
            return -1;
        count++;
    }
    c->state = perm_exec(c->run, &(struct perm_words){inner, count}, c->cwd);
    return 0;
}

/* A word that a shell reads as a command, from `text` on. */
static void perm_exec_shell_text(struct perm_call *c, const struct bash_word *word,
                                 const char *text) {
    if (!perm_exec_literal(word)) {
        c->part->opaque = true;
        perm_exec_refuse(c, "the command that it runs is not known before it runs");
        perm_deny_scan(c->run, c->part, text, strlen(text));
        return;
    }
    perm_script(c->run, text, strlen(text), c->cwd);
}

/* xargs -I NAME: the text that is replaced. */
static const char *perm_exec_hole(const struct perm_words *w, size_t end) {
    for (size_t i = 1; i < end; i++) {
        const char *t = w->word[i]->text;

        if (strncmp(t, "-I", 2) == 0)
            return t[2] != '\0' ? t + 2 : i + 1 < end ? w->word[i + 1]->text : "{}";
        if (strncmp(t, "-i", 2) == 0 || strncmp(t, "--replace", 9) == 0)
            return "{}";
    }
    return "{}";
}

static void perm_exec_wrap(struct perm_call *c) {
    struct perm_inner in = perm_prog_inner(c->prog, c->w);
    bool stays = strcmp(c->name, "command") == 0 || strcmp(c->name, "builtin") == 0;
    struct perm_state before = c->state;
    perm_cwd cwd = c->cwd;

    /* "command -v x" tells where x is. */
    if (stays && c->w->count > 1 &&
        (strcmp(c->w->word[1]->text, "-v") == 0 || strcmp(c->w->word[1]->text, "-V") == 0))
        return;
    if (!in.exact) {
        perm_exec_refuse(c, "an option before the command that it runs is not known");
        perm_deny_suffixes(c->run, c->part, c->w, true);
        return;
    }
    for (size_t i = in.at - in.assigns; i < in.at; i++) {
        const char *text = c->w->word[i]->text;

        if (!perm_prog_benign(text, strcspn(text, "=")))
            perm_exec_refuse(c, "a variable that may change what runs");
    }
    for (size_t i = 1; i < in.at; i++) {
        const char *text = c->w->word[i]->text;

        /* env -C, sudo -D, sudo -R: the command runs elsewhere. */
        if (strncmp(text, "--ch", 4) == 0 || (text[0] == '-' && strpbrk(text, "CDR") != NULL))
            c->cwd = PERM_CWD_UNKNOWN;
    }
    if (in.shell != NULL)
        perm_exec_shell_text(c, in.shell, in.shell_text);
    if (in.at < c->w->count &&
        perm_exec_inner(c, in.at, c->w->count,
                        c->prog->appends ? perm_exec_hole(c->w, in.at) : NULL,
                        c->prog->appends) < 0)
        perm_exec_refuse(c, "it is too large");
    c->cwd = cwd;
    if (!stays)
        c->state = before;
}

/* Words that are joined by blanks and read again by a shell. */
static void perm_exec_join(struct perm_call *c) {
    struct perm_inner in = perm_prog_inner(c->prog, c->w);
    bool here = strcmp(c->name, "eval") == 0;
    size_t size = 1, n = 0;
    struct perm_state s;
    char *text;

    if (!in.exact) {
        perm_exec_refuse(c, "an option before the command that it runs is not known");
        perm_deny_suffixes(c->run, c->part, c->w, true);
        return;
    }
    for (size_t i = in.at; i < c->w->count; i++) {
        size += c->w->word[i]->len + 1;
        if (perm_exec_literal(c->w->word[i]))
            continue;
        c->part->opaque = true;
        perm_exec_refuse(c, "the command that it runs is not known before it runs");
        perm_deny_suffixes(c->run, c->part, c->w, true);
        for (size_t k = in.at; k < c->w->count; k++)
            perm_deny_scan(c->run, c->part, c->w->word[k]->text, c->w->word[k]->len);
        if (here)
            c->state = (struct perm_state){PERM_CWD_UNKNOWN, PERM_CWD_UNKNOWN};
        return;
    }
    text = arena_get(&c->run->perm->arena, size);
    if (text == NULL) {
        perm_exec_refuse(c, "it is too large");
        return;
    }
    for (size_t i = in.at; i < c->w->count; i++) {
        memcpy(text + n, c->w->word[i]->text, c->w->word[i]->len);
        n += c->w->word[i]->len;
        text[n++] = ' ';
    }
    s = perm_script(c->run, text, n, here ? c->cwd : PERM_CWD_UNKNOWN);
    if (here)
        c->state = s;
}

static void perm_exec_sh(struct perm_call *c) {
    static const char *const known[] = {"--norc",       "--noprofile", "--login", "--posix",
                                        "--restricted", "--verbose",   "--"};
    bool command = false, bourne = strstr("bash dash ksh mksh rbash", c->name) != NULL ||
                                   strcmp(c->name, "sh") == 0 || strcmp(c->name, "ash") == 0;
    size_t i = 1;

    for (; i < c->w->count; i++) {
        const char *text = c->w->word[i]->text;
        bool long_known = false;

        if ((text[0] != '-' && text[0] != '+') || text[1] == '\0')
            break;
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            long_known = long_known || strcmp(text, known[k]) == 0;
        if (text[1] == '-' && !long_known) {
            perm_exec_refuse(c, "an option of a shell that is not known");
            perm_deny_suffixes(c->run, c->part, c->w, true);
        }
        if (text[1] != '-' && strchr(text, 'c') != NULL)
            command = true;
        if (text[1] != '-' && (strchr(text, 'o') != NULL || strchr(text, 'O') != NULL))
            i++;
        if (strcmp(text, "--") == 0) {
            i++;
            break;
        }
    }
    if (!bourne)
        perm_exec_refuse(c, "a shell whose language is not understood");
    if (command && i < c->w->count)
        perm_exec_shell_text(c, c->w->word[i], c->w->word[i]->text);
    /* In words that are not known, "-c" may be one. */
    for (i = 1; i < c->w->count && !command; i++)
        if (!perm_exec_literal(c->w->word[i]))
            perm_exec_refuse(c, "what the shell runs is not known before it runs");
}

static void perm_exec_find(struct perm_call *c) {
    for (size_t i = 1; i < c->w->count; i++) {
        const char *text = c->w->word[i]->text;
        size_t end = i + 1;
        perm_cwd cwd = c->cwd;
        struct perm_state before = c->state;

        if (strcmp(text, "-exec") != 0 && strcmp(text, "-execdir") != 0 &&
            strcmp(text, "-ok") != 0 && strcmp(text, "-okdir") != 0)
            continue;
        while (end < c->w->count && strcmp(c->w->word[end]->text, ";") != 0 &&
               (strcmp(c->w->word[end]->text, "+") != 0 ||
                strcmp(c->w->word[end - 1]->text, "{}") != 0))
            end++;
        if (strstr(text, "dir") != NULL)
            c->cwd = PERM_CWD_UNKNOWN;
        if (end == i + 1 || end >= c->w->count)
            perm_exec_refuse(c, "the command of -exec has no end");
        if (end > i + 1 && perm_exec_inner(c, i + 1, end, "{}", false) < 0)
            perm_exec_refuse(c, "it is too large");
        c->cwd = cwd;
        c->state = before;
        i = end;
    }
}

/* A program that may run what is in its words, somewhere. */
static void perm_exec_somewhere(struct perm_call *c) {
    static const char *const plain[] = {
        "docker", "podman", "nerdctl", "kubectl", "oc",  "lxc",   "incus", "poetry", "pipenv", "uv",
        "tmux",   "nix",    "conda",   "mamba",   "pdm", "hatch", "rye",   "bundle", "pinfold"};
    static const char *const verbs[] = {"exec",  "run",     "x",    "create",
                                        "shell", "develop", "new",  "new-session",
                                        "debug", "start",   "agent"};
    bool runs = true;

    perm_deny_suffixes(c->run, c->part, c->w, true);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(plain[i], c->name) == 0)
            runs = false;
    for (size_t i = 1; i < c->w->count && !runs; i++) {
        runs = !perm_exec_literal(c->w->word[i]);
        for (size_t k = 0; k < sizeof(verbs) / sizeof(verbs[0]); k++)
            runs = runs || strcmp(c->w->word[i]->text, verbs[k]) == 0;
    }
    if (runs)
        perm_exec_refuse(c, "it runs another command, and where that begins is not known");
}

/* Builtins that set variables, read a name again, or change what names mean. */
static void perm_exec_state(struct perm_call *c) {
    static const char *const never[] = {"alias", "hash", "enable", "bind", "let", "complete"};
    static const char *const names[] = {"declare", "typeset", "local",     "export", "readonly",
                                        "read",    "mapfile", "readarray", "unset",  "getopts"};
    bool sets = false;

    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (strcmp(c->name, never[i]) == 0)
            perm_exec_refuse(c, "a builtin that changes what commands mean");
    if (strcmp(c->name, "trap") == 0 && c->w->count > 2 && c->w->word[1]->text[0] != '-') {
        perm_exec_shell_text(c, c->w->word[1], c->w->word[1]->text);
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        sets = sets || strcmp(c->name, names[i]) == 0;
    for (size_t i = 1; sets && i < c->w->count; i++) {
        const struct bash_word *w = c->w->word[i];
        size_t n = strcspn(w->text, "=+");

        if (w->text[0] == '-' && perm_exec_literal(w))
            continue;
        if (!(strcmp(c->name, "export") == 0 ? perm_prog_benign(w->text, n)
                                             : perm_prog_local(w->text, n)))
            perm_exec_refuse(c, "a variable that may change what runs");
    }
}

/* "[" and test read the name behind -v again. */
static void perm_exec_programs(struct perm_call *c) {
    struct perm_run *run = c->run;

    if (c->prog == NULL) {
        perm_deny_suffixes(run, c->part, c->w, false);
        return;
    }
    if (run->depth >= PERM_DEPTH_MAX && c->prog->kind >= PERM_PROG_WRAP) {
        perm_exec_refuse(c, "commands that run commands are nested too deeply");
        perm_deny_suffixes(run, c->part, c->w, true);
        return;
    }
    run->depth++;
    switch (c->prog->kind) {
    case PERM_PROG_WRAP:
        perm_exec_wrap(c);
        break;
    case PERM_PROG_JOIN:
        perm_exec_join(c);
        break;
    case PERM_PROG_SHELL:
        perm_exec_sh(c);
        break;
    case PERM_PROG_FIND:
        perm_exec_find(c);
        break;
    case PERM_PROG_SCAN:
        perm_exec_somewhere(c);
        break;
    case PERM_PROG_STATE:
        perm_exec_state(c);
        break;
    case PERM_PROG_OTHER:
    case PERM_PROG_WORDS:
    case PERM_PROG_READER:
    case PERM_PROG_WRITER:
    case PERM_PROG_INTERP:
        break;
    }
    run->depth--;
}

/* Its name is only known when it runs. */
static void perm_exec_dynamic(struct perm_call *c) {
    const struct bash_word *first = c->w->word[0];
    const struct bash_word **words;
    struct bash_word *alt;

    c->part->opaque = true;
    perm_exec_refuse(c, "the name of the program is not known before it runs");
    perm_deny_suffixes(c->run, c->part, c->w, true);
    words = arena_get(&c->run->perm->arena, c->w->count * sizeof(*words));
    alt = arena_get(&c->run->perm->arena, sizeof(*alt));
    if (first->alt == NULL || words == NULL || alt == NULL)
        return;
    /* ${x:-curl}: what it is when nobody set it. */
    memcpy(words, c->w->word, c->w->count * sizeof(*words));
    alt->text = (char *)(uintptr_t)first->alt;
    alt->len = strlen(first->alt);
    words[0] = alt;
    perm_exec(c->run, &(struct perm_words){words, c->w->count}, c->cwd);
}

static bool perm_exec_is_cd(const char *name) {
    return strcmp(name, "cd") == 0 || strcmp(name, "pushd") == 0 || strcmp(name, "popd") == 0;
}

struct perm_state perm_exec(struct perm_run *run, const struct perm_words *w, perm_cwd cwd) {
    struct perm_call c = {.run = run, .w = w, .cwd = cwd, .state = {cwd, cwd}};
    bool path = false;

    c.part = perm_part_new(run, perm_text(run, w->word, w->count));
    c.name = perm_path_program(run, w->word[0], cwd, &path);
    c.prog = c.name != NULL ? perm_prog_find(c.name) : NULL;
    for (size_t i = 0; i < w->count; i++)
        if ((w->word[i]->flags & (unsigned)BASH_WORD_RISKY) != 0)
            perm_exec_refuse(&c, "an expansion may run what is in a variable");
    if (!perm_exec_literal(w->word[0]))
        perm_exec_dynamic(&c);
    else
        perm_exec_programs(&c);
    perm_exec_rules(&c, path);
    perm_exec_paths(&c);
    if (perm_exec_literal(w->word[0]) && !path && c.name != NULL && perm_exec_is_cd(c.name))
        c.state.ok = perm_walk_cd(run, w, cwd);
    return c.state;
}
