/* Walks a command as bash would run it, and keeps account of the directories that it may be in. */
#include <string.h>

#include "perm_run.h"

static void perm_walk_subs(struct perm_run *run, const struct bash_word *words, perm_cwd cwd) {
    for (; words != NULL; words = words->next)
        for (const struct bash_node *sub = words->subs; sub != NULL; sub = sub->next)
            perm_walk(run, sub, cwd);
}

/* ---- does it change its directory? ---- */

static bool perm_walk_moves(const struct bash_node *n);

static bool perm_walk_words_move(const struct bash_word *w) {
    static const char *const names[] = {"cd", "pushd", "popd", "eval", "source", ".", "trap"};

    /* Behind "command", "builtin" and the like the name stands later. */
    for (; w != NULL; w = w->next) {
        if (w->text[0] == BASH_MARK_ANY)
            return true;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strcmp(w->text, names[i]) == 0)
                return true;
        if (strchr(w->text, ' ') != NULL && strstr(w->text, "cd ") != NULL)
            return true;
    }
    return false;
}

static bool perm_walk_moves(const struct bash_node *n) {
    if (n == NULL)
        return false;
    if (n->kind == BASH_SIMPLE)
        return perm_walk_words_move(n->words);
    for (const struct bash_node *child = n->a; child != NULL; child = child->next)
        if (perm_walk_moves(child))
            return true;
    return perm_walk_moves(n->b) || perm_walk_moves(n->c);
}

/* ---- cd ---- */

static bool perm_walk_same(const struct rule_path *a, const struct rule_path *b) {
    if (a->anywhere != b->anywhere || a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->part[i], b->part[i]) != 0)
            return false;
    return true;
}

static perm_cwd perm_walk_intern(struct perm_run *run, const struct rule_path *path) {
    struct rule_path *copy;

    if (path->anywhere)
        return PERM_CWD_UNKNOWN;
    for (size_t i = 0; i < run->cwds; i++)
        if (perm_walk_same(run->cwd[i], path))
            return 1u << i;
    copy = run->cwds < PERM_CWD_MAX ? arena_get(&run->perm->arena, sizeof(*copy)) : NULL;
    if (copy == NULL)
        return PERM_CWD_UNKNOWN;
    *copy = *path;
    run->cwd[run->cwds] = copy;
    return 1u << run->cwds++;
}

perm_cwd perm_walk_cd(struct perm_run *run, const struct perm_words *w, perm_cwd cwd) {
    size_t i = 1;
    perm_cwd to = 0;
    const struct bash_word *dir;

    if (strcmp(w->word[0]->text, "cd") != 0 && w->count < 2)
        return PERM_CWD_UNKNOWN;
    while (i < w->count && w->word[i]->text[0] == '-' && strchr("PLe@-", w->word[i]->text[1]) &&
           w->word[i]->text[1] != '\0')
        i++;
    if (i >= w->count)
        return perm_walk_intern(run, &run->perm->home);
    dir = w->word[i];
    if (strcmp(w->word[0]->text, "popd") == 0 || dir->text[0] == '-' || dir->text[0] == '+' ||
        dir->text[0] == '\0' || strchr(dir->text, BASH_MARK_ANY) != NULL ||
        (dir->flags & (unsigned)BASH_WORD_GLOB) != 0)
        return PERM_CWD_UNKNOWN;
    for (size_t k = 0; k <= PERM_CWD_MAX; k++) {
        struct rule_path path;

        if ((cwd & (1u << k)) == 0)
            continue;
        if (perm_path_build(run->perm, k < PERM_CWD_MAX ? run->cwd[k] : NULL, dir->text, &path) < 0)
            return PERM_CWD_UNKNOWN;
        to |= perm_walk_intern(run, &path);
    }
    return to;
}

/* ---- parts that are no commands ---- */

static void perm_walk_redirs(struct perm_run *run, const struct bash_redir *r, perm_cwd cwd) {
    for (; r != NULL; r = r->next) {
        static const char *const signs[] = {"<", ">", "<>", ">&", "<<", "<<<"};
        struct perm_part *part;
        struct bash_word sign = {.text = (char *)(uintptr_t)signs[r->op]};
        const struct bash_word *shown[] = {&sign, r->word};

        perm_walk_subs(run, r->word, cwd);
        if ((r->op == BASH_DUP || r->op == BASH_HERE || r->op == BASH_HERE_STRING) && !r->var &&
            (r->word->flags & (unsigned)BASH_WORD_RISKY) == 0)
            continue;
        part = perm_part_new(run, perm_text(run, shown, 2));
        if (r->var)
            perm_part_note(part, RULE_ASK, NULL, "it assigns to a variable");
        if ((r->word->flags & (unsigned)BASH_WORD_RISKY) != 0)
            perm_part_note(part, RULE_ASK, NULL, "an expansion may run what is in a variable");
        if (r->op == BASH_IN || r->op == BASH_BOTH)
            perm_path_judge(run, part, r->word->text, cwd,
                            &(struct perm_path_ask){.kind = RULE_READ, .own = true});
        if (r->op == BASH_OUT || r->op == BASH_BOTH)
            perm_path_judge(run, part, r->word->text, cwd,
                            &(struct perm_path_ask){.kind = RULE_WRITE, .own = true});
    }
}

static void perm_walk_assigns(struct perm_run *run, const struct bash_word *w, perm_cwd cwd) {
    perm_walk_subs(run, w, cwd);
    for (; w != NULL; w = w->next) {
        struct perm_part *part = perm_part_new(run, perm_text(run, &w, 1));

        if ((w->flags & (unsigned)BASH_WORD_RISKY) != 0)
            perm_part_note(part, RULE_ASK, NULL, "an expansion may run what is in a variable");
        else if (perm_prog_benign(w->text, w->name_len))
            perm_part_note(part, RULE_ALLOW, NULL, "a variable that changes no program");
        else
            perm_part_note(part, RULE_ASK, NULL, "a variable that may change what runs");
    }
}

static struct perm_state perm_walk_simple(struct perm_run *run, const struct bash_node *n,
                                          perm_cwd cwd) {
    struct perm_state same = {cwd, cwd};
    const struct bash_word **words;
    size_t count = 0;

    perm_walk_assigns(run, n->assigns, cwd);
    perm_walk_subs(run, n->words, cwd);
    perm_walk_redirs(run, n->redirs, cwd);
    for (const struct bash_word *w = n->words; w != NULL; w = w->next)
        count++;
    if (count == 0)
        return same;
    words = arena_get(&run->perm->arena, count * sizeof(*words));
    if (words == NULL || count > PERM_WORDS_MAX) {
        struct perm_part *part = perm_part_new(run, "…");

        part->opaque = true;
        perm_part_note(part, RULE_DENY, NULL, "it has too many words to look at");
        return same;
    }
    count = 0;
    for (const struct bash_word *w = n->words; w != NULL; w = w->next)
        words[count++] = w;
    return perm_exec(run, &(struct perm_words){words, count}, cwd);
}

/* ---- compound commands ---- */

static struct perm_state perm_walk_seq(struct perm_run *run, const struct bash_node *n,
                                       perm_cwd cwd) {
    struct perm_state s = {cwd, cwd};

    for (const struct bash_node *child = n->a; child != NULL; child = child->next) {
        s = perm_walk(run, child, cwd);
        cwd = s.ok | s.fail;
    }
    return s;
}

static struct perm_state perm_walk_if(struct perm_run *run, const struct bash_node *n,
                                      perm_cwd cwd) {
    struct perm_state c = perm_walk(run, n->a, cwd), t = perm_walk(run, n->b, c.ok);
    struct perm_state e =
        n->c != NULL ? perm_walk(run, n->c, c.fail) : (struct perm_state){c.fail, c.fail};

    return (struct perm_state){t.ok | e.ok, t.fail | e.fail};
}

static void perm_walk_name(struct perm_run *run, const char *name) {
    struct perm_part *part;

    if (name == NULL || perm_prog_local(name, strlen(name)))
        return;
    part = perm_part_new(run, arena_copy(&run->perm->arena, name, strlen(name)));
    perm_part_note(part, RULE_ASK, NULL, "a variable that may change what runs");
}

/* A loop that moves may be anywhere when it goes round again. */
static struct perm_state perm_walk_loop(struct perm_run *run, const struct bash_node *n,
                                        perm_cwd cwd) {
    struct perm_state c, b;
    perm_cwd all;

    perm_walk_subs(run, n->words, cwd);
    perm_walk_name(run, n->name);
    for (const struct bash_word *w = n->words; w != NULL; w = w->next)
        if ((w->flags & (unsigned)BASH_WORD_RISKY) != 0)
            perm_part_note(perm_part_new(run, "for"), RULE_ASK, NULL,
                           "an expansion may run what is in a variable");
    if (perm_walk_moves(n->a) || perm_walk_moves(n->b))
        cwd |= PERM_CWD_UNKNOWN;
    c = n->a != NULL ? perm_walk(run, n->a, cwd) : (struct perm_state){cwd, cwd};
    b = perm_walk(run, n->b, c.ok);
    all = cwd | c.ok | c.fail | b.ok | b.fail;
    return (struct perm_state){all, all};
}

static struct perm_state perm_walk_case(struct perm_run *run, const struct bash_node *n,
                                        perm_cwd cwd) {
    perm_cwd all = cwd;

    perm_walk_subs(run, n->words, cwd);
    for (const struct bash_node *body = n->a; body != NULL; body = body->next) {
        struct perm_state s = perm_walk(run, body, all);

        all |= s.ok | s.fail;
    }
    return (struct perm_state){all, all};
}

static void perm_walk_test(struct perm_run *run, const struct bash_node *n, perm_cwd cwd) {
    bool cond = n->kind == BASH_COND, risky = n->risky;
    struct perm_part *part;

    perm_walk_subs(run, n->words, cwd);
    for (const struct bash_word *w = n->words; w != NULL; w = w->next)
        risky = risky || (w->flags & (unsigned)BASH_WORD_RISKY) != 0;
    part = perm_part_new(run, cond ? "[[ … ]]" : "(( … ))");
    if (risky)
        perm_part_note(part, RULE_ASK, NULL, "arithmetic may run what is in a variable");
    else
        perm_part_note(part, RULE_ALLOW, NULL, "a test");
}

static struct perm_state perm_walk_kind(struct perm_run *run, const struct bash_node *n,
                                        perm_cwd cwd) {
    struct perm_state same = {cwd, cwd}, a, b;

    switch (n->kind) {
    case BASH_SIMPLE:
        return perm_walk_simple(run, n, cwd);
    case BASH_SEQ:
        return perm_walk_seq(run, n, cwd);
    case BASH_AND:
        a = perm_walk(run, n->a, cwd);
        b = perm_walk(run, n->b, a.ok);
        return (struct perm_state){b.ok, a.fail | b.fail};
    case BASH_OR:
        a = perm_walk(run, n->a, cwd);
        b = perm_walk(run, n->b, a.fail);
        return (struct perm_state){a.ok | b.ok, b.fail};
    case BASH_NOT:
        a = perm_walk(run, n->a, cwd);
        return (struct perm_state){a.fail, a.ok};
    case BASH_GROUP:
        return perm_walk(run, n->a, cwd);
    case BASH_ASYNC:
    case BASH_SUBSHELL:
        perm_walk(run, n->a, cwd);
        return same;
    case BASH_PIPE:
        for (const struct bash_node *child = n->a; child != NULL; child = child->next)
            perm_walk(run, child, cwd);
        return same;
    case BASH_IF:
        return perm_walk_if(run, n, cwd);
    case BASH_WHILE:
    case BASH_FOR:
        return perm_walk_loop(run, n, cwd);
    case BASH_CASE:
        return perm_walk_case(run, n, cwd);
    case BASH_FUNCTION:
        /* It runs later, perhaps elsewhere, and may move whoever calls it. */
        perm_walk(run, n->a, run->moves ? cwd | PERM_CWD_UNKNOWN : cwd);
        return perm_walk_moves(n->a)
                   ? (struct perm_state){cwd | PERM_CWD_UNKNOWN, cwd | PERM_CWD_UNKNOWN}
                   : same;
    case BASH_COND:
    case BASH_ARITH:
        perm_walk_test(run, n, cwd);
        return same;
    }
    return same;
}

struct perm_state perm_walk(struct perm_run *run, const struct bash_node *n, perm_cwd cwd) {
    if (n->kind != BASH_SIMPLE)
        perm_walk_redirs(run, n->redirs, cwd);
    return perm_walk_kind(run, n, cwd);
}

struct perm_state perm_script(struct perm_run *run, const char *text, size_t len, perm_cwd cwd) {
    struct perm_state same = {cwd, cwd};
    struct bash_result result;
    struct perm_part *part;
    bool moves = run->moves;

    if (bash_parse(&run->perm->arena, text, len, &result) == 0 && result.tree != NULL) {
        run->moves = moves || perm_walk_moves(result.tree);
        same = perm_walk(run, result.tree, cwd);
        run->moves = moves || run->moves;
        return same;
    }
    if (result.why == NULL)
        return same;
    part = perm_part_new(
        run, arena_copy(&run->perm->arena, text, len < PERM_TEXT_MAX ? len : PERM_TEXT_MAX));
    part->opaque = true;
    perm_part_note(part, RULE_ASK, NULL, result.why);
    perm_deny_scan(run, part, text, len);
    return same;
}

void perm_walk_start(struct perm_run *run, const struct bash_node *tree) {
    run->moves = perm_walk_moves(tree);
    perm_walk(run, tree, 1);
}
