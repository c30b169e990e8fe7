/* How processors are divided among jails. */
#include <stdio.h>

#include "cgroup.h"
#include "fd.h"
#include "wire.h"

static int cgroup_weigh_put(int dir, const char *file, uint64_t value, struct err *err) {
    char text[32];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return fd_write_kernel(dir, file, text, (size_t)n, err);
}

/* A group that is idle has no weight that could be set; one that is not any more has a new one's.
 */
static int cgroup_weigh_idle(struct cgroup_jail *jail, int dir, bool idle, struct err *err) {
    if (idle != jail->idle && cgroup_weigh_put(dir, "cpu.idle", idle, err) != 0) {
        return -1;
    }
    jail->idle = idle;
    return 0;
}

/* The kernel's own conversion: a hundred of v2 is 1,024 of v1 (cpu_weight_write_u64()). */
static int cgroup_weigh_shares(bool v2, int dir, uint32_t shares, struct err *err) {
    uint64_t weight = ((uint64_t)shares * 100 + WIRE_SHARES - 1) / WIRE_SHARES; /* at least 1 */
    return v2 ? cgroup_weigh_put(dir, "cpu.weight", weight, err)
              : cgroup_weigh_put(dir, "cpu.shares", shares, err);
}

int cgroup_jail_weigh(const struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                      struct err *err) {
    bool left = shares == WIRE_SHARES_LEFT;
    for (size_t i = 0; i < host->count; i++) {
        if (!(host->tree[i].roles & CGROUP_CPU & ~host->lacks)) {
            continue;
        }
        int dir = jail->fd[i];
        if (cgroup_weigh_idle(jail, dir, left, err) != 0 && !left) {
            return -1;
        }
        shares = left ? WIRE_SHARES_MIN : shares;
        return jail->idle ? 0 : cgroup_weigh_shares(host->tree[i].v2, dir, shares, err);
    }
    return 0;
}
