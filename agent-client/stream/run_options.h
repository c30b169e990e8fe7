/* The options of `pinfold run`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "err.h"
#include "limit_options.h"
#include "opt.h"

struct run_options {
    const char *policy, *image, *backend, *cwd;
    const char *shell; /* -c */
    const char *input; /* --stdin: a file's name or "-" */
    const char *steps; /* a file's name */
    const char *priority;
    const char *out; /* --out; NULL = not given */
    struct opt_list env, files, collect;
    bool json, merge_stderr, keep_steps;
    struct limit_options limits;
    char *const *argv; /* the command; argc 0 = none */
    int argc;
    bool help;
};

/* Everything in *out is borrowed from argv. ERR_INVALID for what is wrong or contradicts itself. */
int run_options_parse(int argc, char **argv, struct run_options *out, struct err *err);
void run_options_help(FILE *out);
