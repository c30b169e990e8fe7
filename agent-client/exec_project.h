/* `pinfold exec -- COMMAND` in a workspace: permission, what is sent, the command in the
 * workspace's sandbox, what comes back. */
#pragma once

#include "err.h"
#include "exec_options.h"

/* A denied command. */
#define EXEC_PROJECT_DENIED 126

/* Runs `begin`, which executes the command as the options say (their sandbox, cwd, shell and argv
 * are filled in), between sending and fetching. -> exit status */
int exec_project(struct exec_options *o, int (*begin)(void *arg), void *arg);
