/* pinfold-server: the HTTP service, and the commands that prepare its state directory.
 *
 * Theory of operation. `serve` takes the lock of the state directory and the listening socket as
 * root, becomes an unprivileged user for good, and only then looks at a byte from outside. One
 * thread runs a loop (runner/base/loop.h) with everything in it:
 *
 *   http*.c   connections and requests            route*.c  which handler gets them
 *   api_*.c   the handlers                        admit.c   what a request may have
 *   runs.c    queue, table, retention             run*.c    the life of one run
 *   link*.c   connections to the runner shards    answer.c  a run as JSON
 *   store*.c  the database                        run_store*.c  runs in it
 *   archives.c  processes without rights that read and make archives
 *
 * What is pure and large (decoding a body of megabytes, encoding an answer) goes to work.c's
 * threads. The server never touches a jail: it hands descriptors to the runner and reads pipes. */
#include <stdio.h>
#include <string.h>

#include "json_memory.h"
#include "serve.h"
#include "server.h"
#include "subcommand.h"

static const struct subcommand *const main_table[] = {
    &serve_cmd, &check_cmd, &config_cmd, &init_cmd,        &user_cmd,
    &token_cmd, &image_cmd, &audit_cmd,  &receipt_key_cmd, &archives_cmd,
};
#define MAIN_COUNT (sizeof(main_table) / sizeof(main_table[0]))

static void main_help(FILE *out) {
    fputs("usage: pinfold-server COMMAND [OPTIONS]\n\n", out);
    for (size_t i = 0; i < MAIN_COUNT; i++)
        if (main_table[i]->about != NULL)
            fprintf(out, "  %-12s %s\n", main_table[i]->name, main_table[i]->about);
    fputs("\npinfold-server COMMAND --help explains a command; --version prints the version.\n",
          out);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    json_memory_watch();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        main_help(argc > 1 ? stdout : stderr);
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0) {
        puts("pinfold-server " SERVER_VERSION);
        return 0;
    }
    for (size_t i = 0; i < MAIN_COUNT; i++)
        if (strcmp(main_table[i]->name, name) == 0)
            return main_table[i]->run(argc - 1, argv + 1);
    fprintf(stderr, "pinfold-server: there is no command named %s\n", name);
    main_help(stderr);
    return 2;
}
