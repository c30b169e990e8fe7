/* How processors are divided among jails. */
#include "cgroup.h"
#include "wire.h"

int cgroup_weigh_idle(int dir, bool idle, struct err *err) {
    return cgroup_put(dir, "cpu.idle", idle, err);
}

/* The kernel's own conversion: a hundred of v2 is 1,024 of v1 (cpu_weight_write_u64()). */
int cgroup_weigh_shares(bool v2, int dir, uint64_t shares, struct err *err) {
    shares = shares < WIRE_SHARES_MAX ? shares : WIRE_SHARES_MAX;
    uint64_t weight = (shares * 100 + WIRE_SHARES - 1) / WIRE_SHARES; /* at least 1 */
    return v2 ? cgroup_put(dir, "cpu.weight", weight, err)
              : cgroup_put(dir, "cpu.shares", shares, err);
}

/* A group that is idle has no weight that could be set; one that is not any more has a new one's.
 */
static int cgroup_weigh_one(const struct cgroup_tree *tree, struct cgroup_jail *jail, int dir,
                            uint32_t shares, struct err *err) {
    bool left = shares == WIRE_SHARES_LEFT;
    bool set = left == jail->idle || cgroup_weigh_idle(dir, left, err) == 0;
    jail->idle = set ? left : jail->idle;
    if (!set && !left) {
        return -1;
    }
    return jail->idle ? 0
                      : cgroup_weigh_shares(tree->v2, dir, left ? WIRE_SHARES_MIN : shares, err);
}

int cgroup_jail_weigh(struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                      struct err *err) {
    for (size_t i = 0; i < host->count; i++) {
        if (!(host->tree[i].roles & CGROUP_CPU & ~host->lacks)) {
            continue;
        }
        if (cgroup_weigh_one(&host->tree[i], jail, jail->fd[i], shares, err) != 0) {
            return -1;
        }
        return cgroup_left_add(host, jail, shares == WIRE_SHARES_LEFT ? 0 : shares, err);
    }
    return 0;
}
