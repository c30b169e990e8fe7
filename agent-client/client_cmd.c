#include "client_cmd.h"

#include <string.h>

static const struct client_cmd *const client_cmds[] = {
    &run_cmd,          &runs_cmd,   &receipt_cmd, &replay_cmd,        &me_cmd,
    &token_cmd,        &trace_cmd,  &top_cmd,     &sandbox_cmd,       &exec_cmd,
    &cp_cmd,           &shell_cmd,  &verify_cmd,  &policies_cmd,      &permission_cmd,
    &undo_cmd_log_cmd, &diff_cmd,   &undo_cmd,    &undo_cmd_redo_cmd, &agent_cmd,
    &journal_cmd,      &doctor_cmd, &version_cmd, &help_cmd,          NULL,
};

const struct client_cmd *const *client_cmd_table(void) {
    return client_cmds;
}

const struct client_cmd *client_cmd_find(const char *name) {
    for (size_t i = 0; client_cmds[i] != NULL; i++)
        if (strcmp(client_cmds[i]->name, name) == 0)
            return client_cmds[i];
    return NULL;
}
