#include <stdio.h>
#include <string.h>

#include "client_cmd.h"
#include "say.h"

static void help_overview(void) {
    const struct client_cmd *const *table = client_cmd_table();

    puts("pinfold [--ca FILE] COMMAND [options]\n\n"
         "Runs commands in jails of a Pinfold server and says why they ended.\n\n"
         "Commands:");
    for (; *table != NULL; table++)
        printf("  %-10s  %s\n", (*table)->name, (*table)->about);
    puts("\nExamples:\n"
         "  pinfold run -- python3 -c 'print(6 * 7)'\n"
         "  pinfold run --wall 2s -c 'sleep 60'; echo $?\n"
         "  id=$(pinfold sandbox create); pinfold cp -r . $id:/workspace; pinfold shell $id\n"
         "  pinfold doctor\n\n"
         "pinfold COMMAND --help tells more about each.\n\n"
         "Environment:\n"
         "  PINFOLD_URL      where the server is (http://127.0.0.1:7070)\n"
         "  PINFOLD_TOKEN    who you are\n"
         "  PINFOLD_CA       HTTPS: file with the certificate of your own authority; --ca "
         "overrides\n"
         "  PINFOLD_SANDBOX  the sandbox that pinfold exec and pinfold shell mean");
}

static int help_run(int argc, char **argv) {
    const struct client_cmd *cmd;
    char *args[] = {argv[0], "--help", NULL, NULL};

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help_overview();
        return 0;
    }
    cmd = client_cmd_find(argv[1]);
    if (cmd == NULL) {
        say_line("there is no command %s; try pinfold help", argv[1]);
        return CLIENT_EXIT_USAGE;
    }
    if (cmd == &help_cmd) {
        help_overview();
        return 0;
    }
    if (argc == 2)
        return cmd->run(2, args);
    /* "help sandbox create" */
    args[1] = argv[2];
    args[2] = "--help";
    return cmd->run(3, args);
}

const struct client_cmd help_cmd = {
    .name = "help",
    .about = "this overview, or the help of one command",
    .run = help_run,
};
