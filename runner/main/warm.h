/* How many jails are kept ready when the operator does not say: enough for a burst, and no more
 * than a small part of what the host has. */
#pragma once

#include <stdint.h>

#define WARM_FEW 4u   /* of any kind, and on the smallest host */
#define WARM_MANY 64u /* per shard */

struct warm_host {
    uint64_t mem_bytes; /* of the machine, or what the control group may have if that is less */
    uint64_t files;     /* descriptors that a shard may have open */
    unsigned shards;
};

/* Unknown figures are 0. */
struct warm_host warm_host_look(unsigned shards);
/* Per shard. */
unsigned warm_count(const struct warm_host *host);
