#include "sandbox_cmd.h"

#include <stdio.h>
#include <string.h>

#include "say.h"

static const struct client_cmd *const sandbox_cmd_table[] = {
    &sandbox_create,      &sandbox_life_list,  &sandbox_life_get,     &sandbox_life_delete,
    &sandbox_life_ttl,    &sandbox_life_pause, &sandbox_life_resume,  &exec_cmd_inside,
    &sandbox_execs_ps,    &sandbox_execs_logs, &sandbox_execs_wait,   &sandbox_execs_kill,
    &sandbox_snap_take,   &sandbox_snap_list,  &sandbox_snap_restore, &sandbox_snap_fork,
    &sandbox_snap_delete,
};

#define SANDBOX_CMD_COUNT (sizeof(sandbox_cmd_table) / sizeof(sandbox_cmd_table[0]))

static void sandbox_cmd_overview(void) {
    puts("pinfold sandbox COMMAND [options]\n\n"
         "A sandbox is a jail that stays: for minutes or days, with its files and whatever runs\n"
         "in it, until it is deleted or its time is over.\n\n"
         "Commands:");
    for (size_t i = 0; i < SANDBOX_CMD_COUNT; i++)
        printf("  %-15s  %s\n", sandbox_cmd_table[i]->name, sandbox_cmd_table[i]->about);
    puts("\nExample:\n"
         "  id=$(pinfold sandbox create --ttl 1h)\n"
         "  pinfold cp -r . $id:/workspace\n"
         "  pinfold sandbox exec $id -c 'make && make test'\n"
         "  pinfold shell $id\n"
         "  pinfold sandbox delete $id\n\n"
         "pinfold sandbox COMMAND --help tells more about each.");
}

static int sandbox_cmd_run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        sandbox_cmd_overview();
        return 0;
    }
    for (size_t i = 0; i < SANDBOX_CMD_COUNT; i++)
        if (strcmp(sandbox_cmd_table[i]->name, name) == 0)
            return sandbox_cmd_table[i]->run(argc - 1, argv + 1);
    if (*name == '\0')
        say_line("sandbox: which command? Try pinfold sandbox --help");
    else
        say_line("there is no command sandbox %s; try pinfold sandbox --help", name);
    return CLIENT_EXIT_USAGE;
}

const struct client_cmd sandbox_cmd = {
    .name = "sandbox",
    .about = "make and use sandboxes: jails that stay",
    .run = sandbox_cmd_run,
};
