/* Directories for sandboxes, made in advance: a file system takes longer to make a directory and
 * a file than the runner to make a sandbox, so a worker does it while nobody waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"
#include "work.h"

#define SANDBOX_SPARE_DIR "server/spare"
#define SANDBOX_SPARE_MAX 64u

struct sandbox_spare {
    struct loop *loop; /* borrowed, as is work */
    struct work *work;
    uint64_t numbers[SANDBOX_SPARE_MAX]; /* their names */
    size_t count;
    uint64_t next;
    bool busy; /* a worker makes some */
    struct loop_timer refill;
};

/* Takes over what an earlier server left. */
int sandbox_spare_start(struct sandbox_spare *p, struct loop *loop, struct work *work,
                        struct err *err);
void sandbox_spare_stop(struct sandbox_spare *p);
/* Moves one to `path`, which must not be there. False: there is none. Its file is empty. */
bool sandbox_spare_take(struct sandbox_spare *p, const char *path);
