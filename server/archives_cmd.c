#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "subcommand.h"
#include "tar_apart.h"

static int archives_cmd_run(int argc, char **argv) {
    struct err err = {0};
    int type = 0;
    socklen_t size = sizeof(type);
    (void)argc;
    (void)argv;
    if (getsockopt(0, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fputs("pinfold-server: " TAR_APART_COMMAND
              " is what the server starts by itself to read and make archives\n",
              stderr);
        return 2;
    }
    if (tar_apart_serve(0, &err) == 0)
        return 0;
    fprintf(stderr, "pinfold-server " TAR_APART_COMMAND ": %s\n", err.text);
    return 1;
}

const struct subcommand archives_cmd = {.name = TAR_APART_COMMAND, .run = archives_cmd_run};
