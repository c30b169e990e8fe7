#include "print.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "client_exit.h"
#include "say.h"

void print_json(const struct json_t *value, size_t flags) {
    if (value == NULL)
        return;
    if (json_dumpf(value, stdout, flags) < 0 && !ferror(stdout)) {
        say_line("memory is too short to print the answer: what is there of it is not whole");
        exit(CLIENT_EXIT_TROUBLE);
    }
    putchar('\n');
}
