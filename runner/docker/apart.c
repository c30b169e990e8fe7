#include "apart.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"

#define APART_MAP "0 0 65536\n" /* the same numbers as outside of it */

static int apart_same(int a, int b, struct err *err) {
    struct stat one;
    struct stat two;
    if (fstat(a, &one) != 0 || fstat(b, &two) != 0) {
        return err_sys(err, "looking at user namespaces");
    }
    return one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

/* The first line of its map, as the host sees it: is there one, and what is its user 0? */
static int apart_map(int map, bool *mapped, uint32_t *base, struct err *err) {
    char text[256];
    unsigned inside = 0;
    ssize_t n = pread(map, text, sizeof text - 1, 0);
    if (n < 0) {
        return err_sys(err, "reading the ids of a container");
    }
    text[n] = '\0';
    *mapped = n > 0;
    if (*mapped && (sscanf(text, "%u %u", &inside, base) != 2 || inside != 0)) {
        return err_set(err, ERR_STATE, EINVAL, "a container has no user 0");
    }
    return 0;
}

/* Only who is in the namespace above, which is the engine's, may write a map. */
static int apart_enter(int outer, int own, struct err *err) {
    int same = apart_same(outer, own, err);
    if (same != 0) {
        return same < 0 ? -1 : 0;
    }
    if (setns(outer, CLONE_NEWUSER) != 0 || setgroups(0, NULL) != 0 || setresgid(0, 0, 0) != 0 ||
        setresuid(0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
        return err_sys(err, "entering the user namespace of a container");
    }
    return 0;
}

static int apart_write(int dir, const char *name, const char *text, struct err *err) {
    fd_cleanup int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        return err_sys(err, "writing %s of a container", name);
    }
    return 0;
}

/* What it starts sees no uptime of the host's. Kernels before 5.6 have no such namespace. */
static int apart_clock(int dir, struct err *err) {
    struct timespec boot;
    struct stat own;
    struct stat theirs;
    char text[64];
    if (fstatat(dir, "ns/time_for_children", &theirs, 0) != 0 ||
        stat("/proc/self/ns/time_for_children", &own) != 0 || own.st_ino == theirs.st_ino) {
        return 0;
    }
    if (clock_gettime(CLOCK_BOOTTIME, &boot) != 0) {
        return err_sys(err, "reading the clock");
    }
    (void)snprintf(text, sizeof text, "boottime %lld 0", -(long long)boot.tv_sec);
    return apart_write(dir, "timens_offsets", text, err);
}

int apart_ids(int proc, pid_t pid, int pidfd, struct apart *out, struct err *err) {
    struct apart a = {0};
    bool mapped = false;
    char name[16];
    (void)snprintf(name, sizeof name, "%d", (int)pid);
    fd_cleanup int dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    /* If it lives now, the number was its own when the directory was opened. */
    if (dir < 0 || syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) != 0) {
        return err_sys(err, "looking at process 1 of a container");
    }
    fd_cleanup int own = openat(proc, "self/ns/user", O_RDONLY | O_CLOEXEC);
    fd_cleanup int theirs = openat(dir, "ns/user", O_RDONLY | O_CLOEXEC);
    fd_cleanup int map = openat(dir, "uid_map", O_RDONLY | O_CLOEXEC);
    if (own < 0 || theirs < 0 || map < 0) {
        return err_sys(err, "looking at the user namespace of a container");
    }
    if (apart_map(map, &mapped, &a.id_base, err) != 0) {
        return -1;
    }
    if (mapped) {
        a.one_id = true;
        *out = a;
        return apart_enter(theirs, own, err);
    }
    fd_cleanup int outer = ioctl(theirs, NS_GET_PARENT);
    if (outer < 0) {
        return err_sys(err, "looking at the user namespace of a container");
    }
    if (apart_enter(outer, own, err) != 0 || apart_write(dir, "gid_map", APART_MAP, err) != 0 ||
        apart_write(dir, "uid_map", APART_MAP, err) != 0 || apart_clock(dir, err) != 0 ||
        apart_map(map, &mapped, &a.id_base, err) != 0) {
        return -1;
    }
    *out = a;
    return 0;
}
