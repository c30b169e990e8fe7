/* All processes of a step at once: are there any, how many; end, stop and let them go on. */
#include "buf.h"
#include "cgroup.h"
#include "fd.h"

int cgroup_step_populated(const struct cgroup_step *step, struct err *err) {
    uint64_t value = 0;
    if (fd_read_keyed_u64(step->events_fd, "populated", &value, err) != 0) {
        return -1;
    }
    return value != 0;
}

int cgroup_step_count(const struct cgroup_host *host, const struct cgroup_step *step,
                      uint32_t *count, struct err *err) {
    struct buf text;
    buf_init(&text, 1 << 20);
    int dir = step->fd[cgroup_find(host, CGROUP_KILL)];
    if (fd_read_file(dir, "cgroup.procs", &text, err) != 0) {
        buf_done(&text);
        return -1;
    }
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        n += text.data[i] == '\n';
    }
    buf_done(&text);
    *count = n;
    return 0;
}

int cgroup_step_kill(const struct cgroup_host *host, const struct cgroup_step *step,
                     struct err *err) {
    return cgroup_put(step->fd[cgroup_find(host, CGROUP_KILL)], "cgroup.kill", 1, err);
}

int cgroup_step_freeze(const struct cgroup_host *host, const struct cgroup_step *step, bool frozen,
                       struct err *err) {
    return cgroup_put(step->fd[cgroup_find(host, CGROUP_KILL)], "cgroup.freeze", frozen, err);
}

int cgroup_step_frozen(const struct cgroup_step *step, struct err *err) {
    uint64_t value = 0;
    if (fd_read_keyed_u64(step->events_fd, "frozen", &value, err) != 0) {
        return -1;
    }
    return value != 0;
}
