/* The subcommands of `pinfold sandbox`. They are client_cmd like the others; argv[0] is the name
 * of the subcommand. */
#pragma once

#include "client_cmd.h"

/* sandbox_create.c */
extern const struct client_cmd sandbox_create;
/* sandbox_life.c */
extern const struct client_cmd sandbox_life_list, sandbox_life_get, sandbox_life_delete,
    sandbox_life_ttl, sandbox_life_pause, sandbox_life_resume;
/* sandbox_snap.c */
extern const struct client_cmd sandbox_snap_take, sandbox_snap_list, sandbox_snap_delete,
    sandbox_snap_restore, sandbox_snap_fork;
/* exec_cmd.c */
extern const struct client_cmd exec_cmd_inside;
/* sandbox_execs.c */
extern const struct client_cmd sandbox_execs_logs, sandbox_execs_wait, sandbox_execs_kill,
    sandbox_execs_ps;
