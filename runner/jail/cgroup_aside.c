/* A leaf of our own group, for the runner itself: in a cgroup2 tree a group that hands controllers
 * on may have no processes of its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"
#include "clock.h"
#include "fd.h"

#define CGROUP_ASIDE_LEAF "/pinfold-runner"
#define CGROUP_ASIDE_NS CLOCK_NS_PER_S

bool cgroup_aside_without_leaf(char *below) {
    char *last = strrchr(below, '/');
    if (last == NULL || strcmp(last, CGROUP_ASIDE_LEAF) != 0) {
        return false;
    }
    last[last == below ? 1 : 0] = '\0';
    return true;
}

static int cgroup_aside_move(const char *dir, const char *leaf, struct err *err) {
    char path[900];
    char self[32];
    int n = snprintf(self, sizeof self, "%d", (int)getpid());
    (void)snprintf(path, sizeof path, "%s%s/cgroup.procs", dir, leaf);
    return fd_write_kernel(AT_FDCWD, path, self, (size_t)n, err);
}

int cgroup_aside_step(const char *dir, struct err *err) {
    char leaf[900];
    (void)snprintf(leaf, sizeof leaf, "%s%s", dir, CGROUP_ASIDE_LEAF);
    if (mkdir(leaf, 0755) != 0 && errno != EEXIST) {
        return err_sys(err, "making the cgroup %s", leaf);
    }
    return cgroup_aside_move(dir, CGROUP_ASIDE_LEAF, err);
}

void cgroup_aside_back(const char *dir) {
    char leaf[900];
    uint64_t deadline = clock_mono_ns() + CGROUP_ASIDE_NS;
    const struct timespec pause = {.tv_nsec = 2000000};
    if (cgroup_aside_move(dir, "", NULL) != 0) {
        return;
    }
    (void)snprintf(leaf, sizeof leaf, "%s%s", dir, CGROUP_ASIDE_LEAF);
    while (rmdir(leaf) != 0 && errno == EBUSY && clock_mono_ns() < deadline) {
        (void)nanosleep(&pause, NULL);
    }
}

void cgroup_aside_end(const char *dir) {
    static const char *const controllers[] = {"-memory", "-pids", "-cpu"};
    if (*dir == '\0') {
        return;
    }
    char path[900];
    (void)snprintf(path, sizeof path, "%s/cgroup.subtree_control", dir);
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        (void)fd_write_kernel(AT_FDCWD, path, controllers[i], strlen(controllers[i]), NULL);
    }
    cgroup_aside_back(dir);
}
