/* Removed groups that the kernel keeps: a page that was charged to a group (of a file that was read
 * first by it, or left in a file in memory) holds it until the page is gone, and a group costs the
 * kernel about 200 KB. See cgroup.h for what is done about it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cgroup.h"
#include "clock.h"
#include "fd.h"

enum {
    CGROUP_KEEP_BYTES = 2 << 20,  /* what may be left in a group that is used again */
    CGROUP_EMPTY_BYTES = 4 << 20, /* what is taken from one: it is waited for */
    CGROUP_DYING_LOOK_NS = 1000000000,
};

/* The tree that limits memory; NULL when none does. */
static const struct cgroup_tree *cgroup_keep_tree(const struct cgroup_host *host, size_t *at) {
    for (size_t i = 0; i < host->count; i++) {
        if (host->tree[i].roles & CGROUP_MEMORY & ~host->lacks) {
            *at = i;
            return &host->tree[i];
        }
    }
    return NULL;
}

static int cgroup_keep_value(int dir, const char *file, uint64_t *value) {
    fd_cleanup int fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -1 : fd_read_u64(fd, value, NULL);
}

static int cgroup_keep_ooms(int dir, uint64_t *value) {
    fd_cleanup int fd = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -1 : fd_read_keyed_u64(fd, "oom_kill", value, NULL);
}

/* Nobody is in it, and little. */
static bool cgroup_keep_fit(int dir) {
    struct buf text;
    uint64_t bytes = 0;
    buf_init(&text, 64);
    bool fit = fd_read_file(dir, "cgroup.procs", &text, NULL) == 0 && text.len == 0 &&
               cgroup_keep_value(dir, "memory.usage_in_bytes", &bytes) == 0 &&
               bytes <= CGROUP_KEEP_BYTES;
    buf_done(&text);
    return fit;
}

bool cgroup_keep_put(const struct cgroup_host *host, struct cgroup_jail *jail,
                     struct cgroup_step *step) {
    size_t mem = 0;
    const struct cgroup_tree *tree = cgroup_keep_tree(host, &mem);
    if (tree == NULL || tree->v2 || !step->keep || !step->own || jail->adopted ||
        step->fd[mem] < 0 || jail->kept_count == CGROUP_KEPT_MAX ||
        !cgroup_keep_fit(step->fd[mem])) {
        return false;
    }
    struct cgroup_kept *k = &jail->kept[jail->kept_count++];
    k->fd = fd_steal(&step->fd[mem]);
    memcpy(k->name, step->mem_name, sizeof k->name);
    return true;
}

/* Gives up the last that was kept. */
static void cgroup_keep_drop(const struct cgroup_host *host, struct cgroup_jail *jail) {
    size_t mem = 0;
    struct cgroup_kept *k = &jail->kept[--jail->kept_count];
    if (cgroup_keep_tree(host, &mem) != NULL && jail->fd[mem] >= 0) {
        (void)unlinkat(jail->fd[mem], k->name, AT_REMOVEDIR);
    }
    fd_close(&k->fd);
}

/* Its counters begin again: the peak can be set back, the others cannot and are remembered. */
bool cgroup_keep_take(const struct cgroup_host *host, struct cgroup_jail *jail,
                      struct cgroup_step *step) {
    size_t mem = 0;
    if (cgroup_keep_tree(host, &mem) == NULL) {
        return false;
    }
    while (jail->kept_count > 0) {
        struct cgroup_kept *k = &jail->kept[jail->kept_count - 1];
        uint64_t ooms = 0;
        if (!cgroup_keep_fit(k->fd) || cgroup_keep_ooms(k->fd, &ooms) != 0 ||
            fd_write_kernel(k->fd, "memory.max_usage_in_bytes", "0", 1, NULL) != 0) {
            cgroup_keep_drop(host, jail);
            continue;
        }
        jail->kept_count--;
        step->fd[mem] = fd_steal(&k->fd);
        step->ooms_base = ooms;
        memcpy(step->mem_name, k->name, sizeof step->mem_name);
        return true;
    }
    return false;
}

void cgroup_keep_done(const struct cgroup_host *host, struct cgroup_jail *jail) {
    while (jail->kept_count > 0) {
        cgroup_keep_drop(host, jail);
    }
}

static uint64_t cgroup_dying_below(int dir) {
    uint64_t count = 0;
    fd_cleanup int fd = openat(dir, "cgroup.stat", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    (void)(fd < 0 ? -1 : fd_read_keyed_u64(fd, "nr_dying_descendants", &count, NULL));
    return count;
}

/* v2: of our own base group. v1 counts all groups of the host together, those that live as well. */
static uint64_t cgroup_dying_count(const struct cgroup_host *host) {
    size_t mem = 0;
    uint64_t count = 0;
    const struct cgroup_tree *tree = cgroup_keep_tree(host, &mem);
    if (tree != NULL && tree->v2) {
        return cgroup_dying_below(tree->base_fd);
    }
    struct buf text;
    buf_init(&text, 4096);
    if (tree != NULL && fd_read_file(AT_FDCWD, "/proc/cgroups", &text, NULL) == 0 && text.len > 0) {
        const char *line = strstr(text.data, "\nmemory\t");
        (void)(line != NULL ? sscanf(line, " memory %*u %lu", &count) : 0);
    }
    buf_done(&text);
    return count;
}

bool cgroup_dying_many(struct cgroup_dying *dying, const struct cgroup_host *host) {
    uint64_t now = clock_mono_ns();
    if (dying->looked_ns == 0 || now >= dying->looked_ns + CGROUP_DYING_LOOK_NS) {
        dying->looked_ns = now;
        dying->count = cgroup_dying_count(host);
    }
    return dying->count > dying->most;
}

uint64_t cgroup_jail_dying(const struct cgroup_host *host, const struct cgroup_jail *jail) {
    size_t mem = 0;
    const struct cgroup_tree *tree = cgroup_keep_tree(host, &mem);
    return tree != NULL && tree->v2 ? cgroup_dying_below(jail->fd[mem]) * CGROUP_DYING_BYTES : 0;
}

void cgroup_step_empty(const struct cgroup_host *host, const struct cgroup_step *step) {
    size_t mem = 0;
    uint64_t bytes = 0;
    char text[32];
    const struct cgroup_tree *tree = cgroup_keep_tree(host, &mem);
    if (tree == NULL || step->fd[mem] < 0 ||
        cgroup_keep_value(step->fd[mem], tree->v2 ? "memory.current" : "memory.usage_in_bytes",
                          &bytes) != 0 ||
        bytes == 0 || bytes > CGROUP_EMPTY_BYTES) {
        return;
    }
    int n = snprintf(text, sizeof text, "%llu", tree->v2 ? (unsigned long long)bytes : 0);
    (void)fd_write_kernel(step->fd[mem], tree->v2 ? "memory.reclaim" : "memory.force_empty", text,
                          (size_t)n, NULL);
}
