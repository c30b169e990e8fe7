/* The group of jails that get what others leave. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "fd.h"

#define CGROUP_LEFT "left"

static const struct cgroup_tree *cgroup_left_tree(const struct cgroup_host *host) {
    for (size_t i = 0; i < host->count; i++) {
        if (host->tree[i].roles & CGROUP_CPU & ~host->lacks) {
            return &host->tree[i];
        }
    }
    return NULL;
}

/* Without the group: not yet, not any more, or somebody has removed it. */
static int cgroup_left_open(struct cgroup_host *host, const struct cgroup_tree *tree,
                            struct err *err) {
    fd_close(&host->left.dir);
    host->left.shares = 0;
    host->left.dir =
        openat(tree->base_fd, CGROUP_LEFT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (host->left.dir < 0) {
        return err_sys(err, "opening cgroup %s", CGROUP_LEFT);
    }
    return cgroup_delegate(tree, host->left.dir, err) != 0 ||
                   cgroup_weigh_idle(host->left.dir, true, err) != 0
               ? -1
               : 0;
}

int cgroup_left_enter(struct cgroup_host *host, struct err *err) {
    const struct cgroup_tree *tree = cgroup_left_tree(host);
    if (tree == NULL) {
        return err_set(err, ERR_STATE, 0, "there are no groups for processors");
    }
    bool fresh = mkdirat(tree->base_fd, CGROUP_LEFT, 0755) == 0;
    if (!fresh && errno != EEXIST) {
        return err_sys(err, "making cgroup %s", CGROUP_LEFT);
    }
    if ((fresh || host->left.dir < 0) && cgroup_left_open(host, tree, err) != 0) {
        cgroup_left_leave(host);
        fd_close(&host->left.dir);
        return -1;
    }
    return 0;
}

void cgroup_left_leave(struct cgroup_host *host) {
    const struct cgroup_tree *tree = cgroup_left_tree(host);
    if (tree != NULL &&
        (unlinkat(tree->base_fd, CGROUP_LEFT, AT_REMOVEDIR) == 0 || errno == ENOENT)) {
        fd_close(&host->left.dir);
        host->left.shares = 0;
    }
}

int cgroup_left_init(struct cgroup_host *host, struct err *err) {
    host->left.can = cgroup_left_enter(host, err) == 0;
    cgroup_left_leave(host);
    return host->left.can ? 0 : -1;
}

static int cgroup_left_set(const struct cgroup_host *host, uint64_t sum, struct err *err) {
    const struct cgroup_left *left = &host->left;
    if ((left->shares == 0) != (sum == 0) && cgroup_weigh_idle(left->dir, sum == 0, err) != 0) {
        return -1;
    }
    return sum == 0 ? 0 : cgroup_weigh_shares(cgroup_left_tree(host)->v2, left->dir, sum, err);
}

int cgroup_left_add(struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                    struct err *err) {
    struct cgroup_left *left = &host->left;
    uint32_t had = jail->left_shares;
    if (!jail->left || shares == had || left->dir < 0) {
        return 0;
    }
    uint64_t sum = left->shares - (had < left->shares ? had : left->shares) + shares;
    if (cgroup_left_set(host, sum, err) != 0) {
        return -1;
    }
    left->shares = sum;
    jail->left_shares = shares;
    return 0;
}
