/* Process 1 of a container gets ids that no command has.
 *
 * The engine makes it as user 1000 without any capability, so that nothing in a container ever has
 * power over anything of the host's, not for an instant. Process 1 then makes a user namespace of
 * its own: a capability there counts for what belongs to that namespace, which is its own ids and
 * its clock, and nothing else. Who may give such a namespace more than one id is the host's root,
 * outside. With them process 1 becomes another user than the commands, as in a native jail, and
 * gives every capability up (init/setup.c). Where the kernel lets nobody make user namespaces it
 * stays the user of the commands, and the runner says so ("separate_ids"). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct apart {
    bool one_id;      /* there is no such namespace */
    uint32_t id_base; /* outside id of its user 0: that of the engine's userns-remap, or 0 */
};

/* Of process `pid`, which `pidfd` refers to; `proc` is the host's /proc. Gives the ids, and a clock
 * since boot that begins now. With an engine that remaps users the calling process is afterwards
 * user 0 of the container's user namespace, with no power outside of it. */
int apart_ids(int proc, pid_t pid, int pidfd, struct apart *out, struct err *err);
