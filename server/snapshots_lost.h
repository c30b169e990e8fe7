/* Snapshots that went with the runner that had them. Who names one is told so for a while, as with
 * sandboxes, and not that there never was one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SNAPSHOTS_LOST_MAX 1024u /* the newest since the server started */

struct snapshots_lost_row;
struct snapshots_lost {
    struct snapshots_lost_row *rows; /* NULL = nothing was lost yet; owned */
    size_t next;
};

void snapshots_lost_done(struct snapshots_lost *l);
/* `ref` is what users call it: "snap_…", or "run_…@5" for the state before a step. Both are copied.
 * Does nothing when memory is short. */
void snapshots_lost_add(struct snapshots_lost *l, const char *owner, const char *ref);
/* Was it this owner's? */
bool snapshots_lost_has(const struct snapshots_lost *l, const char *owner, const char *ref);
