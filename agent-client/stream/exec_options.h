/* The options of `pinfold exec`, which is also `pinfold sandbox exec ID`. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "err.h"
#include "limit_options.h"
#include "opt.h"

struct exec_options {
    const char *sandbox; /* NULL = not given */
    const char *shell;   /* -c */
    const char *cwd;
    const char *input; /* --stdin: a file's name or "-" */
    const char *id;    /* --id */
    /* Of the workspace form, NULL = not given. */
    const char *workspace, *rules, *policy, *image;
    struct opt_list env;
    struct limit_options limits;
    bool tty, background, merge_stderr, json;
    char *const *argv; /* the command; argc 0 = none */
    int argc;
    bool help;
};

/* `operand`: the sandbox is the first operand (options may stand on both sides of it), else it is
 * --sandbox. Everything in *out is borrowed from argv. ERR_INVALID for what is wrong or contradicts
 * itself. */
int exec_options_parse(bool operand, int argc, char **argv, struct exec_options *out,
                       struct err *err);
void exec_options_help(bool operand, FILE *out);
