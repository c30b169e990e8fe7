/* A subcommand of pinfold, each in a file of its own. */
#pragma once

#include <stddef.h>

#include "client_exit.h"

struct client_cmd {
    const char *name;
    const char *about; /* one line for the overview */
    /* argv[0] is the subcommand's name. Returns the exit status. */
    int (*run)(int argc, char **argv);
};

extern const struct client_cmd run_cmd;
extern const struct client_cmd doctor_cmd;
extern const struct client_cmd runs_cmd;
extern const struct client_cmd token_cmd;
extern const struct client_cmd me_cmd;
extern const struct client_cmd trace_cmd;
extern const struct client_cmd receipt_cmd;
extern const struct client_cmd top_cmd;
extern const struct client_cmd replay_cmd;
extern const struct client_cmd sandbox_cmd;
extern const struct client_cmd exec_cmd;
extern const struct client_cmd cp_cmd;
extern const struct client_cmd shell_cmd;
extern const struct client_cmd agent_cmd;
extern const struct client_cmd journal_cmd;
extern const struct client_cmd verify_cmd;
extern const struct client_cmd policies_cmd;
extern const struct client_cmd permission_cmd;
extern const struct client_cmd undo_cmd, undo_cmd_redo_cmd, undo_cmd_log_cmd, diff_cmd;
extern const struct client_cmd version_cmd;
extern const struct client_cmd help_cmd;

/* All of them, in the order in which the help shows them; NULL-terminated. */
const struct client_cmd *const *client_cmd_table(void);
const struct client_cmd *client_cmd_find(const char *name); /* NULL when unknown */
