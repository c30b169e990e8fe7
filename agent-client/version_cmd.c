#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "client_cmd.h"
#include "client_version.h"
#include "say.h"

static int version_run(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0) {
        say_line("version: unexpected argument %s", argv[1]);
        return CLIENT_EXIT_USAGE;
    }
    if (argc > 1)
        puts("pinfold version\n\nPrints the version of this client and of the library it speaks "
             "HTTP with.");
    else
        printf("pinfold %s (libcurl %s)\n", CLIENT_VERSION,
               curl_version_info(CURLVERSION_NOW)->version);
    return 0;
}

const struct client_cmd version_cmd = {
    .name = "version",
    .about = "print the version",
    .run = version_run,
};
