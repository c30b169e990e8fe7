/* The subcommands of `pinfold permission`; argv[0] is the name of the subcommand. */
#pragma once

#include "client_cmd.h"
#include "perm_files.h"

/* permission_test.c */
extern const struct client_cmd permission_test, permission_check;
/* permission_rules.c */
extern const struct client_cmd permission_list, permission_trust, permission_allow;

#define PERMISSION_EXIT_ASK 4
#define PERMISSION_EXIT_DENY 3

/* The rules of a workspace, loaded. */
struct permission_rules {
    struct perm_files files;
    struct rule_set set;
    struct perm perm;
};

/* Loads them; says on stderr what is wrong and returns -1. `rules` and `workspace` may be NULL. */
int permission_cmd_load(struct permission_rules *r, const char *rules, const char *workspace,
                        bool headless);
void permission_cmd_done(struct permission_rules *r);
