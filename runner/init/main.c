#include "init.h"

#include <string.h>

#include "initmsg.h"

int main(int argc, char **argv) {
    return init_run(argc == 2 && strcmp(argv[1], INITMSG_CONTAINED) == 0);
}
