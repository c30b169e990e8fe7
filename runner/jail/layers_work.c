#include "layers_work.h"

#include <unistd.h>

void layers_work_run(const struct layers_home *home) {
    (void)home;
    _exit(1);
}
