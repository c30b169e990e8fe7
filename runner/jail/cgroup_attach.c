/* How a process comes into the groups of a step. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cgroup.h"
#include "fd.h"

void cgroup_step_unexpect(struct cgroup_step *step) {
    for (size_t i = 0; i < CGROUP_TREES_MAX; i++) {
        fd_close(&step->procs_fd[i]);
    }
}

/* The directory of tree i in which the step's processes are. */
static int cgroup_step_dir(const struct cgroup_jail *jail, const struct cgroup_step *step,
                           size_t i) {
    return step->fd[i] >= 0 ? step->fd[i] : jail->fd[i];
}

int cgroup_step_expect(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err) {
    for (size_t i = 0; i < host->count; i++) {
        int dir = cgroup_step_dir(jail, step, i);
        if (dir < 0 || step->procs_fd[i] >= 0) {
            continue;
        }
        step->procs_fd[i] = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (step->procs_fd[i] < 0) {
            return err_sys(err, "opening cgroup.procs of %s", step->name);
        }
    }
    return 0;
}

int cgroup_step_attach(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err) {
    char text[16];
    size_t len = (size_t)snprintf(text, sizeof text, "%d", (int)pid);
    if (cgroup_step_expect(host, jail, step, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < host->count; i++) {
        if (step->procs_fd[i] >= 0 && fd_write_all(step->procs_fd[i], text, len, err) != 0) {
            return err_wrap(err, "moving a process into %s/%s", host->tree[i].base_path,
                            step->name);
        }
    }
    cgroup_step_unexpect(step);
    return 0;
}
