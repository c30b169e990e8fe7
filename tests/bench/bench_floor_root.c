#include "bench_floor_root.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"

#define BENCH_ROOT_AT "/tmp" /* any directory: it is mounted over in our namespace only */
#define BENCH_ROOT_CACHE_MAX (4u << 20)

static const char *const bench_root_dirs[] = {
    "usr",       "etc",  "proc",      "dev", "dev/pts", "dev/shm",
    "workspace", "home", "home/user", "tmp", "var",     "var/tmp",
};

static const char *const bench_root_links[][2] = {
    {"/proc/self/fd", "dev/fd"},       {"/proc/self/fd/0", "dev/stdin"},
    {"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"},
    {"pts/ptmx", "dev/ptmx"},
};

static const struct {
    const char *path;
    unsigned major, minor;
} bench_root_nodes[] = {
    {"dev/null", 1, 3},   {"dev/zero", 1, 5},    {"dev/full", 1, 7},
    {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/tty", 5, 0},
};

static const char *const bench_root_files[][2] = {
    {"etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"},
    {"etc/group", "root:x:0:\nuser:x:1000:\n"},
    {"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
    {"etc/resolv.conf", ""},
};

static int bench_root_file(const char *path, const char *data, size_t len, struct err *err) {
    fd_cleanup int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, "make %s", path);
    return fd_write_all(fd, data, len, err);
}

static int bench_root_etc(struct err *err) {
    for (size_t i = 0; i < sizeof(bench_root_files) / sizeof(bench_root_files[0]); i++) {
        const char *text = bench_root_files[i][1];
        if (bench_root_file(bench_root_files[i][0], text, strlen(text), err) < 0)
            return -1;
    }
    /* Without the cache the dynamic linker searches, which is not what a jail does. */
    struct buf cache;
    buf_init(&cache, BENCH_ROOT_CACHE_MAX);
    int rc = fd_read_file(AT_FDCWD, "/etc/ld.so.cache", &cache, err);
    if (rc == 0)
        rc = bench_root_file("etc/ld.so.cache", cache.data, cache.len, err);
    buf_done(&cache);
    return rc;
}

static int bench_root_dev(struct err *err) {
    for (size_t i = 0; i < sizeof(bench_root_nodes) / sizeof(bench_root_nodes[0]); i++) {
        dev_t dev = makedev(bench_root_nodes[i].major, bench_root_nodes[i].minor);
        if (mknod(bench_root_nodes[i].path, S_IFCHR | 0666, dev) < 0 ||
            chmod(bench_root_nodes[i].path, 0666) < 0)
            return err_sys(err, "make %s", bench_root_nodes[i].path);
    }
    for (size_t i = 0; i < sizeof(bench_root_links) / sizeof(bench_root_links[0]); i++)
        if (symlink(bench_root_links[i][0], bench_root_links[i][1]) < 0)
            return err_sys(err, "make %s", bench_root_links[i][1]);
    return 0;
}

/* /bin, /lib and so on as the host has them: links into /usr, or directories of their own. */
static int bench_root_merged(struct err *err) {
    static const char *const names[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char target[256];
        struct stat st;
        if (lstat(names[i], &st) < 0)
            continue;
        if (!S_ISLNK(st.st_mode)) {
            if (mkdir(names[i] + 1, 0755) < 0 ||
                mount(names[i], names[i] + 1, NULL, MS_BIND | MS_REC, NULL) < 0)
                return err_sys(err, "bind %s", names[i]);
            continue;
        }
        ssize_t n = readlink(names[i], target, sizeof(target) - 1);
        if (n < 0)
            return err_sys(err, "read the link %s", names[i]);
        target[n] = '\0';
        if (symlink(target, names[i] + 1) < 0)
            return err_sys(err, "make the link %s", names[i]);
    }
    return 0;
}

static int bench_root_build(struct err *err) {
    if (mount("tmpfs", BENCH_ROOT_AT, "tmpfs", 0, "mode=0755,size=8m,nr_inodes=512") < 0 ||
        chdir(BENCH_ROOT_AT) < 0)
        return err_sys(err, "mount a root file system");
    for (size_t i = 0; i < sizeof(bench_root_dirs) / sizeof(bench_root_dirs[0]); i++)
        if (mkdir(bench_root_dirs[i], 0755) < 0)
            return err_sys(err, "make the directory %s", bench_root_dirs[i]);
    if (mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL) < 0)
        return err_sys(err, "bind /usr");
    if (bench_root_merged(err) < 0 || bench_root_etc(err) < 0 || bench_root_dev(err) < 0)
        return -1;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (mount_setattr(AT_FDCWD, BENCH_ROOT_AT, AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return err_sys(err, "make the root file system read-only");
    /* A whole /proc must be visible for a user namespace to mount one; each jail covers this one.
     */
    if (mount("/proc", "proc", NULL, MS_BIND, NULL) < 0)
        return err_sys(err, "bind /proc");
    return 0;
}

int bench_floor_root_enter(struct err *err) {
    mode_t mask = umask(0);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, "make a mount namespace");
    if (bench_root_build(err) < 0)
        return -1;
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, "enter the root file system");
    umask(mask);
    return 0;
}
