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

int cgroup_left_make(struct cgroup_host *host, struct err *err) {
    const struct cgroup_tree *tree = cgroup_left_tree(host);
    if (tree == NULL) {
        return err_set(err, ERR_STATE, 0, "there are no groups for processors");
    }
    if (mkdirat(tree->base_fd, CGROUP_LEFT, 0755) != 0 && errno != EEXIST) {
        return err_sys(err, "making cgroup %s", CGROUP_LEFT);
    }
    host->left.shares = 0;
    host->left.dir =
        openat(tree->base_fd, CGROUP_LEFT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (host->left.dir < 0) {
        (void)err_sys(err, "opening cgroup %s", CGROUP_LEFT);
    } else if (cgroup_delegate(tree, host->left.dir, err) == 0 &&
               cgroup_weigh_idle(host->left.dir, true, err) == 0) {
        return 0;
    }
    cgroup_left_done(host);
    return -1;
}

int cgroup_left_add(struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                    struct err *err) {
    struct cgroup_left *left = &host->left;
    if (!jail->left || shares == jail->left_shares) {
        return 0;
    }
    uint64_t sum = left->shares - jail->left_shares + shares;
    if ((left->shares == 0) != (sum == 0) && cgroup_weigh_idle(left->dir, sum == 0, err) != 0) {
        return -1;
    }
    left->shares = sum;
    jail->left_shares = shares;
    return sum == 0 ? 0 : cgroup_weigh_shares(cgroup_left_tree(host)->v2, left->dir, sum, err);
}

void cgroup_left_done(struct cgroup_host *host) {
    const struct cgroup_tree *tree = cgroup_left_tree(host);
    if (tree != NULL) {
        (void)unlinkat(tree->base_fd, CGROUP_LEFT, AT_REMOVEDIR);
    }
    fd_close(&host->left.dir);
}
