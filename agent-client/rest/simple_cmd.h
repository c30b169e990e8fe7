/* What the small subcommands share: options, the server, one line when something is wrong. */
#pragma once

#include <stdbool.h>

#include "opt.h"
#include "rest.h"
#include "target.h"

struct simple_cmd {
    const char *name;
    const char *usage, *about; /* for the help */
    const struct opt *table;   /* may be NULL */
    int min_operands, max_operands;
    bool mixed; /* options may follow operands */
};

/* 1 = go on, with operands in argv[*rest…argc - 1]; 0 = the help was printed; -1 = wrong usage,
 * which was said. */
int simple_cmd_parse(const struct simple_cmd *cmd, int argc, char **argv, int *rest);

/* A connection to the server of the environment. NULL: the reason was said. */
struct rest *simple_cmd_connect(struct target *target);

/* What a subcommand does with its connection; argv holds its operands. -> exit status; -1: *err. */
typedef int simple_cmd_fn(struct rest *rest, int argc, char **argv, const void *options,
                          struct err *err);
/* Connects, calls, says what went wrong (also when stdout cannot be written). -> exit status. */
int simple_cmd_run(simple_cmd_fn *fn, int argc, char **argv, const void *options);
/* The same behind the options of `cmd`: a whole subcommand. */
int simple_cmd_main(const struct simple_cmd *cmd, int argc, char **argv, simple_cmd_fn *fn,
                    const void *options);
