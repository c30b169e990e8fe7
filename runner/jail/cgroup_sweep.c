/* cgroup_sweep() of cgroup.h: what an earlier life left behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"
#include "clock.h"
#include "fd.h"

#define CGROUP_SWEEP_DEPTH 8

/* cgroup.kill reaches the whole subtree at once; v1 has none, so there every process is named. */
static void cgroup_sweep_kill(int dir) {
    if (fd_write_kernel(dir, "cgroup.kill", "1", 1, NULL) == 0) {
        return;
    }
    struct buf text;
    buf_init(&text, 1 << 20);
    if (fd_read_file(dir, "cgroup.procs", &text, NULL) == 0 && text.len > 0) {
        char *save = NULL;
        for (char *p = strtok_r(text.data, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
            long pid = strtol(p, NULL, 10);
            if (pid > 1) {
                (void)kill((pid_t)pid, SIGKILL);
            }
        }
    }
    buf_done(&text);
}

/* One pass, children first. Returns the number of directories that are still there. */
static unsigned cgroup_sweep_pass(int dir, unsigned depth) {
    unsigned left = 0;
    cgroup_sweep_kill(dir);
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d == NULL) {
        fd_close(&copy);
        return 1;
    }
    struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        if (e->d_type != DT_DIR || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        fd_cleanup int sub =
            openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub < 0) {
            continue;
        }
        left += depth > 0 ? cgroup_sweep_pass(sub, depth - 1) : 1;
        if (unlinkat(dir, e->d_name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
            left++;
        }
    }
    (void)closedir(d);
    return left;
}

int cgroup_sweep(const char *path, uint64_t patience_ns, struct err *err) {
    fd_cleanup int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct statfs fs;
    if (dir < 0) {
        return errno == ENOENT ? 0 : err_sys(err, "opening the left-over cgroup %s", path);
    }
    if (fstatfs(dir, &fs) != 0 ||
        (fs.f_type != CGROUP_SUPER_MAGIC && fs.f_type != CGROUP2_SUPER_MAGIC)) {
        return err_set(err, ERR_INVALID, 0, "%s is recorded as a cgroup and is none", path);
    }
    uint64_t deadline = clock_mono_ns() + patience_ns;
    const struct timespec pause = {.tv_nsec = 2000000};
    for (;;) {
        unsigned left = cgroup_sweep_pass(dir, CGROUP_SWEEP_DEPTH);
        if (left == 0 && (rmdir(path) == 0 || errno == ENOENT)) {
            return 0;
        }
        if (clock_mono_ns() > deadline) {
            return err_set(err, ERR_STATE, EBUSY, "the left-over cgroup %s cannot be emptied",
                           path);
        }
        (void)nanosleep(&pause, NULL);
    }
}
