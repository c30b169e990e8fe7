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
