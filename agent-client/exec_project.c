#include "exec_project.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "client_cmd.h"
#include "permission_ask.h"
#include "project.h"
#include "say.h"

#define EXEC_PROJECT_LINE_MAX ((size_t)128 * 1024)
#define EXEC_PROJECT_SHOWN 20u

struct exec_project {
    struct exec_options *options;
    struct target target;
    struct rest *rest;
    struct project project;
    struct buf line; /* the command as text: for the rules and for the journal */
    char **words;    /* what the rules understood, run without a shell; owned, NULL-terminated */
    char cwd[PATH_MAX + 32];
};

static void exec_project_note(void *arg, const char *text) {
    (void)arg;
    say_line("%s", text);
}

static bool exec_project_confirm(void *arg, const char *question) {
    (void)arg;
    return ask_person(question, "yn") == 'y';
}

/* Words as a line of shell. */
static int exec_project_quote(struct buf *out, const char *word, struct err *err) {
    if (word[0] != '\0' &&
        word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+@%"
                          "=")] == '\0')
        return buf_puts(out, word, err);
    if (buf_puts(out, "'", err) < 0)
        return -1;
    for (; *word != '\0'; word++)
        if (buf_append(out, word, 1, err) < 0 || (*word == '\'' && buf_puts(out, "\\''", err) < 0))
            return -1;
    return buf_puts(out, "'", err);
}

static int exec_project_line(struct exec_project *x, struct err *err) {
    const struct exec_options *o = x->options;
    buf_init(&x->line, EXEC_PROJECT_LINE_MAX);
    if (o->shell != NULL)
        return buf_puts(&x->line, o->shell, err);
    for (int i = 0; i < o->argc; i++)
        if ((i > 0 && buf_puts(&x->line, " ", err) < 0) ||
            exec_project_quote(&x->line, o->argv[i], err) < 0)
            return -1;
    return 0;
}

/* A simple command is run as the words that the rules saw, not by a shell that might see others. */
static int exec_project_words(struct exec_project *x, const struct perm_verdict *v,
                              struct err *err) {
    int n = 0;
    if (x->options->shell == NULL || v->argv == NULL)
        return 0;
    while (v->argv[n] != NULL)
        n++;
    x->words = calloc((size_t)n + 1, sizeof(char *));
    if (x->words == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    for (int i = 0; i < n; i++)
        if ((x->words[i] = strdup(v->argv[i])) == NULL)
            return err_set(err, ERR_SYSTEM, 0, "out of memory");
    x->options->shell = NULL;
    x->options->argv = x->words;
    x->options->argc = n;
    return 0;
}

/* 1 = it may run, 0 = no (which was said), -1. */
static int exec_project_judge(struct exec_project *x, struct err *err) {
    const struct perm_verdict *v;
    if (permission_ask_command(&x->project, "You want", x->line.data, true, &v) != PERMISSION_RUN)
        return 0;
    return exec_project_words(x, v, err) < 0 ? -1 : 1;
}

static void exec_project_report(const struct project_report *r) {
    for (size_t i = 0; i < r->problem_count && i < EXEC_PROJECT_SHOWN; i++)
        say_line("not brought back: %s: %s", r->problems[i].path, r->problems[i].why);
    if (r->problem_count > EXEC_PROJECT_SHOWN)
        say_line("not brought back: %zu more", r->problem_count - EXEC_PROJECT_SHOWN);
    if (r->id[0] != '\0')
        say_line("%zu created, %zu modified, %zu deleted here (pinfold undo %s takes it back)",
                 r->created, r->modified, r->deleted, r->id);
}

static int exec_project_fetch(struct exec_project *x, int code, struct err *err) {
    struct project_report report;
    const struct project_pull what = {.label = x->line.data, .by = "exec"};
    int rc = project_pull(&x->project, &what, &report, err);
    exec_project_report(&report);
    if (rc < 0)
        err_wrap(err, "what the command changed did not come back");
    bool whole = rc == 0 && report.denied == 0 && report.conflicts == 0;
    project_report_done(&report);
    if (code != 0 && rc < 0)
        say_line("%s", err->text); /* the code is the command's own; with ours it is said later */
    return code != 0 || whole ? code : rc < 0 ? CLIENT_EXIT_TROUBLE : EXEC_PROJECT_DENIED;
}

static int exec_project_run(struct exec_project *x, int (*begin)(void *arg), void *arg,
                            struct err *err) {
    struct exec_options *o = x->options;
    struct project *p = &x->project;
    const struct project_options options = {.workspace = o->workspace,
                                            .rules = o->rules,
                                            .policy = o->policy,
                                            .image = o->image,
                                            .headless = !ask_possible(),
                                            .confirm = exec_project_confirm,
                                            .note = exec_project_note};
    if (target_from_env(&x->target, err) < 0 ||
        (x->rest = rest_new(&x->target, NULL, err)) == NULL ||
        project_open(p, &options, x->rest, x->target.url, err) < 0 || exec_project_line(x, err) < 0)
        return CLIENT_EXIT_TROUBLE;
    int may = exec_project_judge(x, err);
    if (may <= 0)
        return may < 0 ? CLIENT_EXIT_TROUBLE : EXEC_PROJECT_DENIED;
    if (project_push(p, err) < 0)
        return CLIENT_EXIT_TROUBLE;
    if (o->cwd == NULL) {
        snprintf(x->cwd, sizeof(x->cwd), PROJECT_ROOT_IN_SANDBOX "%s%s",
                 p->inside[0] != '\0' ? "/" : "", p->inside);
        o->cwd = x->cwd;
    }
    o->sandbox = p->sandbox;
    int code = begin(arg);
    if (o->background)
        return code;
    return exec_project_fetch(x, code, err);
}

int exec_project(struct exec_options *o, int (*begin)(void *arg), void *arg) {
    struct exec_project *x = calloc(1, sizeof(*x));
    struct err err = {0};
    if (x == NULL) {
        say_line("exec: out of memory");
        return CLIENT_EXIT_TROUBLE;
    }
    x->options = o;
    int code = exec_project_run(x, begin, arg, &err);
    if (err.kind != ERR_NONE && code == CLIENT_EXIT_TROUBLE)
        say_line("exec: %s", err.text);
    project_close(&x->project);
    rest_free(x->rest);
    target_done(&x->target);
    for (size_t i = 0; x->words != NULL && x->words[i] != NULL; i++)
        free(x->words[i]);
    free(x->words);
    buf_done(&x->line);
    free(x);
    return code;
}
