/* Command-line options as tables. `--name value` and `--name=value`; `-h`/`--help` is recognised
 * everywhere; `--` ends options. Each option at most once unless OPT_LIST. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "err.h"

enum opt_type {
    OPT_FLAG,     /* bool *; no argument */
    OPT_STRING,   /* const char **; borrowed from argv */
    OPT_U64,      /* uint64_t *; decimal between min and max */
    OPT_BYTES,    /* uint64_t *; str_bytes() */
    OPT_DURATION, /* uint64_t * in ms; str_duration_ms() */
    OPT_LIST,     /* struct opt_list *; repeatable, borrowed from argv */
};

#define OPT_LIST_MAX 256
struct opt_list {
    size_t count;
    const char *item[OPT_LIST_MAX];
};

struct opt {
    const char *name; /* without "--" */
    char letter;      /* one-letter form, 0 = none */
    const char *arg;  /* placeholder in the help, NULL for flags */
    enum opt_type type;
    void *value;
    uint64_t min, max; /* OPT_U64 only */
    const char *help;
};

struct opt_result {
    bool help;   /* --help was there: print and exit 0 */
    int rest;    /* index in argv of the first operand */
    bool dashes; /* operands were introduced by "--" */
};

/* Parses argv[1…]. Stops at the first operand or at "--". The table ends with .name == NULL. */
int opt_parse(const struct opt *table, int argc, char **argv, struct opt_result *result,
              struct err *err);
/* Prints `usage` (the synopsis lines), `about`, then the options, aligned and
 * wrapped at 100 columns. */
void opt_help(FILE *out, const char *usage, const char *about, const struct opt *table);
