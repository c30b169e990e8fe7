#include "perm.h"

#include <string.h>

#include "perm_run.h"

/* Enough for the longest command, its words and its parts. */
#define PERM_ARENA_MAX ((size_t)32 * 1024 * 1024)

/* Copies the components out of the memory that each command takes back. */
static int perm_fix(struct perm *p, struct rule_path *path) {
    for (size_t i = 0; i < path->count; i++) {
        path->part[i] = arena_copy(&p->fixed, path->part[i], strlen(path->part[i]));
        if (path->part[i] == NULL)
            return -1;
    }
    return 0;
}

static int perm_place(struct perm *p, const char *text, struct rule_path *path, struct err *err) {
    if (perm_path_build(p, NULL, text, path) < 0 || perm_fix(p, path) < 0)
        return err_set(err, ERR_INVALID, 0, "the path of a directory is too long: %.200s", text);
    return 0;
}

int perm_init(struct perm *p, const struct rule_set *rules, const struct perm_config *config,
              struct err *err) {
    char real[4096];

    *p = (struct perm){.rules = rules, .config = *config};
    arena_init(&p->arena, PERM_ARENA_MAX);
    arena_init(&p->fixed, PERM_ARENA_MAX);
    if (perm_place(p, rules->workspace, &p->workspace, err) < 0 ||
        perm_place(p, rules->home, &p->home, err) < 0)
        return -1;
    p->real_workspace = p->workspace;
    if (config->resolve != NULL &&
        config->resolve(config->arg, rules->workspace, real, sizeof(real)) == 0 &&
        perm_place(p, real, &p->real_workspace, err) < 0)
        return -1;
    for (size_t i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->rules[i];

        p->reads = p->reads || (rule->kind == RULE_READ && rule->verdict != RULE_ALLOW);
        p->writes = p->writes || (rule->kind == RULE_WRITE && rule->verdict != RULE_ALLOW);
    }
    return 0;
}

void perm_done(struct perm *p) {
    if (p == NULL)
        return;
    arena_done(&p->arena);
    arena_done(&p->fixed);
    *p = (struct perm){0};
}

/* ---- parts ---- */

struct perm_part *perm_part_new(struct perm_run *run, const char *text) {
    struct perm_part_link *link =
        run->count < PERM_PARTS_MAX ? arena_get(&run->perm->arena, sizeof(*link)) : NULL;

    if (link == NULL) {
        if (run->last == NULL) {
            run->first = run->last = &run->spare;
            run->spare.part.text = "…";
            run->count = 1;
        }
        run->last->part.opaque = true;
        perm_part_note(&run->last->part, RULE_DENY, NULL, "it has too many parts");
        return &run->last->part;
    }
    link->part.text = text != NULL ? text : "…";
    if (run->last == NULL)
        run->first = link;
    else
        run->last->next = link;
    run->last = link;
    run->count++;
    return &link->part;
}

void perm_part_note(struct perm_part *part, enum rule_verdict verdict, const struct rule *rule,
                    const char *why) {
    /* Of two that are as strict, the one with a rule says more. */
    if (verdict < part->verdict || (verdict == part->verdict && (part->rule != NULL || !rule)))
        return;
    part->verdict = verdict;
    part->rule = rule;
    part->why = why;
}

static const char *perm_mark(char c) {
    switch (c) {
    case BASH_MARK_ANY:
        return "…";
    case BASH_MARK_STAR:
        return "*";
    case BASH_MARK_ONE:
        return "?";
    case BASH_MARK_TILDE:
        return "~";
    case '\n':
        return "⏎";
    default:
        return NULL;
    }
}

const char *perm_text(struct perm_run *run, const struct bash_word *const *word, size_t count) {
    char text[PERM_TEXT_MAX + 16];
    size_t n = 0;

    for (size_t i = 0; i < count && n < PERM_TEXT_MAX; i++) {
        const char *s = word[i]->text;

        if (i > 0)
            text[n++] = ' ';
        for (; *s != '\0' && n < PERM_TEXT_MAX; s++) {
            const char *mark = perm_mark(*s);
            size_t len = mark != NULL ? strlen(mark) : 1;

            memcpy(text + n, mark != NULL ? mark : s, len);
            n += len;
        }
    }
    if (n >= PERM_TEXT_MAX) {
        /* Not within a character. */
        while (n > 0 && ((unsigned char)text[n - 1] & 0xc0u) == 0x80u)
            n--;
        n -= n > 0 && ((unsigned char)text[n - 1] & 0xc0u) == 0xc0u;
        memcpy(text + n, "…", 3);
        n += 3;
    }
    return arena_copy(&run->perm->arena, text, n);
}

/* ---- the verdict ---- */

/* Nobody to ask: an ask is a deny. */
static enum rule_verdict perm_final(const struct perm *p, enum rule_verdict v) {
    return v == RULE_ASK && p->config.headless ? RULE_DENY : v;
}

static const struct perm_verdict *perm_refuse(struct perm *p, const char *why, bool empty) {
    struct perm_verdict *v = arena_get(&p->arena, sizeof(*v));
    static const struct perm_verdict none = {.verdict = RULE_DENY,
                                             .why = "there is no memory to judge it"};

    if (v == NULL)
        return &none;
    *v = (struct perm_verdict){.verdict = RULE_DENY, .why = why, .empty = empty};
    return v;
}

static const struct perm_verdict *perm_sum(struct perm_run *run) {
    struct perm *p = run->perm;
    struct perm_verdict *v = arena_get(&p->arena, sizeof(*v));
    struct perm_part *parts = arena_get(&p->arena, run->count * sizeof(*parts));
    const struct perm_part *worst = NULL;
    size_t n = 0;

    /* A part, or a path in it, may have been left out. */
    if (v == NULL || parts == NULL || p->arena.failed)
        return perm_refuse(p, "there is no memory to judge it", false);
    for (const struct perm_part_link *link = run->first; link != NULL; link = link->next) {
        struct perm_part *part = &parts[n++];

        *part = link->part;
        if (part->verdict == RULE_NONE) {
            part->verdict = RULE_ASK;
            part->why = "no rule allows it";
        }
        if (part->verdict != RULE_ASK || part->rule != NULL)
            part->always = NULL;
        /* Of parts that are as strict, one with a rule says more. */
        if (worst == NULL || part->verdict > worst->verdict ||
            (part->verdict == worst->verdict && worst->rule == NULL && part->rule != NULL))
            worst = part;
    }
    if (worst == NULL)
        return perm_refuse(p, "there is nothing in it to judge", false);
    for (size_t i = 0; i < n; i++)
        parts[i].verdict = perm_final(p, parts[i].verdict);
    *v = (struct perm_verdict){.verdict = perm_final(p, worst->verdict),
                               .rule = worst->rule,
                               .why = worst->why,
                               .parts = parts,
                               .count = n};
    return v;
}

/* Builtins and the like: they need the shell. */
static bool perm_needs_shell(const char *name) {
    static const char *const names[] = {":",    "cd",      "pushd",  "popd",   "dirs", "exit",
                                        "eval", "exec",    "return", "logout", "jobs", "fg",
                                        "bg",   "command", "times",  "shift",  "type", "builtin"};
    const struct perm_prog *prog = perm_prog_find(name);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return prog != NULL && prog->kind == PERM_PROG_STATE;
}

static const char *const *perm_argv(struct perm *p, const struct bash_node *tree) {
    const char **argv;
    size_t n = 0;

    if (tree->kind != BASH_SIMPLE || tree->words == NULL || tree->assigns != NULL ||
        tree->redirs != NULL || perm_needs_shell(tree->words->text))
        return NULL;
    for (const struct bash_word *w = tree->words; w != NULL; w = w->next, n++)
        if ((w->flags & (unsigned)(BASH_WORD_DYNAMIC | BASH_WORD_GLOB | BASH_WORD_RISKY)) != 0)
            return NULL;
    argv = arena_get(&p->arena, (n + 1) * sizeof(*argv));
    n = 0;
    for (const struct bash_word *w = tree->words; argv != NULL && w != NULL; w = w->next)
        argv[n++] = w->text;
    return argv;
}

static bool perm_is_blank(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (strchr(" \t\n\r", text[i]) == NULL || text[i] == '\0')
            return false;
    return true;
}

/* The workspace is where it starts. */
static int perm_run_init(struct perm_run *run, struct perm *p) {
    *run = (struct perm_run){.perm = p, .cwds = 1};
    run->cwd[0] = &p->workspace;
    return 0;
}

const struct perm_verdict *perm_judge(struct perm *p, const char *command, size_t len) {
    struct perm_run run;
    struct bash_result result;
    const struct perm_verdict *v;

    arena_reset(&p->arena);
    if (perm_is_blank(command, len))
        return perm_refuse(p, "there is no command", true);
    perm_run_init(&run, p);
    if (bash_parse(&p->arena, command, len, &result) < 0) {
        struct perm_part *part = perm_part_new(
            &run, arena_copy(&p->arena, command, len < PERM_TEXT_MAX ? len : PERM_TEXT_MAX));

        part->opaque = true;
        perm_part_note(part, RULE_ASK, NULL, result.why);
        perm_deny_scan(&run, part, command, len);
        return perm_sum(&run);
    }
    if (result.tree == NULL)
        return perm_refuse(p, "there is nothing in it to judge", false);
    perm_walk_start(&run, result.tree);
    v = perm_sum(&run);
    if (v->verdict != RULE_DENY)
        ((struct perm_verdict *)(uintptr_t)v)->argv = perm_argv(p, result.tree);
    /* Without its words it would be run by a shell. */
    return p->arena.failed ? perm_refuse(p, "there is no memory to judge it", false) : v;
}

/* "deny read private": what is in that directory is denied with it. */
static void perm_above(struct perm_run *run, struct perm_part *part, enum rule_kind kind,
                       const char *path) {
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        const char *above = arena_copy(&run->perm->arena, path, (size_t)(slash - path));
        struct perm_part found = {.text = part->text};

        if (above == NULL) {
            perm_part_note(part, RULE_DENY, NULL, "there is no memory to judge it");
            return;
        }
        perm_path_judge(run, &found, above, 1, &(struct perm_path_ask){.kind = kind});
        if (found.verdict != RULE_DENY || found.rule == NULL)
            continue;
        /* What holds by default, a rule that allows this very path lifts. */
        if (found.rule->layer == RULE_DEFAULT && part->verdict == RULE_ALLOW && part->rule != NULL)
            continue;
        perm_part_note(part, RULE_DENY, found.rule, found.why);
    }
}

const struct perm_verdict *perm_judge_path(struct perm *p, enum rule_kind kind, const char *path) {
    struct perm_run run;
    struct perm_part *part;
    size_t at = 0;

    arena_reset(&p->arena);
    if (*path == '\0' || bash_visible(path, strlen(path), &at) != NULL)
        return perm_refuse(p, "it is no path", *path == '\0');
    perm_run_init(&run, p);
    part = perm_part_new(&run, arena_copy(&p->arena, path, strlen(path)));
    perm_path_judge(&run, part, path, 1, &(struct perm_path_ask){.kind = kind, .own = true});
    perm_above(&run, part, kind, path);
    return perm_sum(&run);
}

const struct perm_verdict *perm_judge_subject(struct perm *p, enum rule_kind kind,
                                              const char *subject) {
    const struct rule_set *rules = p->rules;
    struct perm_run run;
    struct perm_part *part;

    arena_reset(&p->arena);
    if (*subject == '\0')
        return perm_refuse(p, "there is nothing in it to judge", true);
    perm_run_init(&run, p);
    part = perm_part_new(&run, arena_copy(&p->arena, subject, strlen(subject)));
    for (size_t i = 0; i < rules->of_count[kind]; i++) {
        const struct rule *rule = &rules->rules[rules->of[kind][i]];

        if (!rule->untrusted && rule_subject_fits(rule, subject))
            perm_part_note(part, rule->verdict, rule,
                           rule->reason != NULL ? rule->reason : "a rule covers it");
    }
    return perm_sum(&run);
}

/* ---- examples ---- */

static bool perm_example_fits(struct perm *p, const struct rule_example *e) {
    struct perm_run run;
    struct bash_result result;
    struct perm_part *part;

    arena_reset(&p->arena);
    perm_run_init(&run, p);
    run.example = e;
    if (e->kind == RULE_READ || e->kind == RULE_WRITE) {
        part = perm_part_new(&run, e->text);
        perm_path_judge(&run, part, e->text, 1,
                        &(struct perm_path_ask){.kind = e->kind, .own = true});
        return run.met;
    }
    if (e->kind != RULE_EXEC) {
        for (size_t i = 0; i < e->count; i++)
            if (rule_subject_fits(&p->rules->rules[e->first + i], e->text))
                return true;
        return false;
    }
    if (bash_parse(&p->arena, e->text, strlen(e->text), &result) < 0 || result.tree == NULL)
        return false;
    perm_walk_start(&run, result.tree);
    /* An allow rule must cover all of the command, others a part of it. */
    return run.met && (p->rules->rules[e->first].verdict != RULE_ALLOW || !run.missed);
}

int perm_check_examples(struct perm *p, struct err *err) {
    for (size_t i = 0; i < p->rules->example_count; i++) {
        const struct rule_example *e = &p->rules->examples[i];

        bool fits = perm_example_fits(p, e);

        if (p->arena.failed)
            return err_set(err, ERR_LIMIT, 0, "%s:%u: no memory to check the example", e->file,
                           e->line);
        if (fits != e->must)
            return err_set(err, ERR_INVALID, 0,
                           "%s:%u: the example \"%.120s\" %s the rule \"%.80s\"", e->file, e->line,
                           e->text, e->must ? "does not match" : "matches, and must not,",
                           p->rules->rules[e->first].text);
    }
    return 0;
}
