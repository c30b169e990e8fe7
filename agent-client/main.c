/* pinfold: the client.
 *
 * Everything it knows of the server comes from PINFOLD_URL, PINFOLD_TOKEN and PINFOLD_CA. It never
 * runs a command on this machine: when the server is away, that is an error. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_cmd.h"
#include "say.h"

/* A descriptor 0, 1 or 2 that is closed would become the socket to the server, and what is printed
 * would go there. */
static int main_open_standard(void) {
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

/* The JSON library goes on without the bytes that it has no memory for: a command or the contents
 * of a file could become others. What was begun with the workspace is in the journal. */
static void *main_json_alloc(size_t size) {
    static const char text[] = "pinfold: out of memory\n";
    void *p = malloc(size);

    if (p == NULL) {
        ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);
        _exit(n < 0 ? CLIENT_EXIT_USAGE : CLIENT_EXIT_TROUBLE);
    }
    return p;
}

/* Takes "--ca FILE" and "--ca=FILE" in front of the command. -1: the file is missing. */
static int main_take_ca(int *argc, char ***argv) {
    const char *first = *argc > 1 ? (*argv)[1] : "";
    const char *file = NULL;
    int words = 1;

    if (strncmp(first, "--ca=", 5) == 0) {
        file = first + 5;
    } else if (strcmp(first, "--ca") == 0) {
        file = *argc > 2 ? (*argv)[2] : "";
        words = 2;
    } else {
        return 0;
    }
    if (*file == '\0' || setenv("PINFOLD_CA", file, 1) < 0)
        return -1;
    *argc -= words;
    *argv += words;
    return 0;
}

/* Who asked must not take what is not there for an answer. */
static int main_told(int code) {
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0) {
        say_line("not all of the output could be written");
        return CLIENT_EXIT_TROUBLE;
    }
    return code;
}

int main(int argc, char **argv) {
    const char *name;
    const struct client_cmd *cmd;

    if (main_open_standard() < 0)
        return CLIENT_EXIT_TROUBLE;
    json_set_alloc_funcs(main_json_alloc, free);
    if (main_take_ca(&argc, &argv) < 0) {
        say_line("--ca needs the file with the certificate of the authority");
        return CLIENT_EXIT_USAGE;
    }
    name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0)
        name = "version";
    cmd = client_cmd_find(name);
    if (cmd == NULL && *name == '\0') {
        say_line("which command? Try pinfold help");
        return CLIENT_EXIT_USAGE;
    }
    if (cmd == NULL) {
        say_line("there is no command %s; try pinfold help", name);
        return CLIENT_EXIT_USAGE;
    }
    return main_told(cmd->run(argc - 1, argv + 1));
}
