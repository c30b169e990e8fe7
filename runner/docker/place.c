/* Theory of operation. The engine made a mount namespace: the image, read-only, an own /proc, a
 * /dev with the harmless devices, and on /workspace the one file system that can be written. Into
 * that namespace the process goes that is forked here, with all powers of the runner; no path is
 * followed through a symbolic link, since the image may have made one. In the end it looks at what
 * is mounted: anything that is not on the list of what there should be, such as a volume or a file
 * of the host that the engine put there, was taken away, or the jail is not made. */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "apart.h"
#include "buf.h"
#include "fd.h"
#include "initmsg.h"
#include "mnt.h"
#include "netns_sysctl.h"
#include "recipe.h"
#include "str.h"
#include "wire.h"

#define PLACE_TMPFS_MAGIC 0x01021994
#define PLACE_PROC_MAGIC 0x9fa0
#define PLACE_DEVPTS_MAGIC 0x1cd1
#define PLACE_MOUNTS_MAX (1u << 20)
#define PLACE_ROUNDS_MAX 256

struct place {
    struct place_wish wish;
    struct apart apart;
    int proc; /* the host's: this process is not in that of the container */
    int root; /* of the container */
    int base; /* of the writable file system */
};

struct place_dir {
    uint32_t bit;
    mode_t mode;
    uid_t owner;
    const char *name;   /* within the writable file system */
    const char *target; /* relative to the root */
};

/* As setup_dirs of init/setup.c; /workspace last, since it hides the base. */
static const struct place_dir place_dirs[] = {
    {WIRE_WRITABLE_HOME, 0755, INITMSG_UID_USER, "home", "home/user"},
    {WIRE_WRITABLE_TMP, 01777, 0, "tmp", "tmp"},
    {WIRE_WRITABLE_VAR_TMP, 01777, 0, "var_tmp", "var/tmp"},
    {WIRE_WRITABLE_SHM, 01777, 0, "shm", "dev/shm"},
    {WIRE_WRITABLE_WORKSPACE, 0755, INITMSG_UID_USER, "workspace", "workspace"},
};

/* In the container's network namespace, and by a /proc of our own that is mounted nowhere, since
 * the engine made the container's read-only. It shows the processes of this process' namespace, and
 * whoever makes one must be root where those are: root of a user namespace of the engine's is not.
 */
static int place_sockets(struct place *p, struct err *err) {
    static const char *const values[][2] = {NETNS_SYSCTL("sys/")};
    static const struct mnt_option none[] = {{NULL, NULL}};
    struct stat own, theirs;
    struct mnt_fs proc = {-1, -1};
    p->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->proc < 0) {
        return err_sys(err, "opening /proc");
    }
    if (fstatat(p->proc, "self/ns/net", &own, 0) != 0 || setns(p->wish.pidfd, CLONE_NEWNET) != 0 ||
        fstatat(p->proc, "self/ns/net", &theirs, 0) != 0) {
        return err_sys(err, "entering the network namespace of a container");
    }
    if (own.st_dev == theirs.st_dev && own.st_ino == theirs.st_ino) {
        return err_set(err, ERR_STATE, EPERM, "its network is the host's");
    }
    if (mnt_fs_new("proc", none, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, &proc,
                   err) != 0) {
        return -1;
    }
    int rc = 0;
    for (size_t i = 0; i < sizeof values / sizeof values[0] && rc == 0; i++) {
        const char *name = values[i][0];
        rc = faccessat(proc.mount, name, F_OK, 0) != 0 && errno == ENOENT
                 ? 0 /* this kernel has it for the whole host only */
                 : fd_write_kernel(proc.mount, name, values[i][1], strlen(values[i][1]), err);
    }
    mnt_fs_done(&proc);
    return rc;
}

static int place_ids(struct place *p, struct err *err) {
    return apart_ids(p->proc, p->wish.pid, p->wish.pidfd, &p->apart, err);
}

static int place_enter(struct place *p, struct err *err) {
    if (setns(p->wish.pidfd, CLONE_NEWNS) != 0) {
        return err_sys(err, "entering the mount namespace of a container");
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return err_sys(err, "making its mounts private");
    }
    p->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return p->root < 0 ? err_sys(err, "opening its root") : 0;
}

static int place_readonly(struct place *p, struct err *err) {
    struct statvfs fs;
    if (fstatvfs(p->root, &fs) != 0) {
        return err_sys(err, "looking at the root");
    }
    return fs.f_flag & ST_RDONLY ? 0 : err_set(err, ERR_STATE, EPERM, "the root can be written");
}

/* Is it one of the mounts that a jail is to have? A volume of the image's may have such a place,
 * and be a directory of the host's that can be written. /proc is masked by mounts of the engine's.
 */
static bool place_expected(const char *path, const char *type) {
    static const struct {
        const char *path, *type;
    } whole[] = {
        {"/", NULL},
        {"/proc", "proc"},
        {"/dev", "tmpfs"},
        {"/dev/pts", "devpts"},
        {"/workspace", "tmpfs"},
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        if (strcmp(path, whole[i].path) == 0) {
            return whole[i].type == NULL || strcmp(type, whole[i].type) == 0;
        }
    }
    return strncmp(path, "/proc/", 6) == 0;
}

/* An engine that maps users may make no devices, and binds those of the host's in their places:
 * they may stay where they are the harmless ones that the names promise. */
static const struct {
    const char *path;
    unsigned major, minor;
} place_devices[] = {{"/dev/null", 1, 3},   {"/dev/zero", 1, 5},    {"/dev/full", 1, 7},
                     {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};
#define PLACE_DEVICES (sizeof place_devices / sizeof place_devices[0])

static bool place_device(const struct place *p, const char *path) {
    struct stat st;
    for (size_t i = 0; i < PLACE_DEVICES; i++) {
        if (strcmp(path, place_devices[i].path) == 0) {
            return fstatat(p->root, path + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISCHR(st.st_mode) &&
                   st.st_rdev == makedev(place_devices[i].major, place_devices[i].minor);
        }
    }
    return false;
}

/* The last mount of the list that should not be there, in out[size]: the last is on top. */
static int place_stranger(const struct place *p, char *out, size_t size, struct err *err) {
    struct buf text;
    char point[512];
    char type[64];
    out[0] = '\0';
    buf_init(&text, PLACE_MOUNTS_MAX);
    int rc = fd_read_file(p->proc, "self/mountinfo", &text, err);
    char *save = NULL;
    for (char *line = rc == 0 && text.len > 0 ? strtok_r(text.data, "\n", &save) : NULL;
         line != NULL && rc == 0; line = strtok_r(NULL, "\n", &save)) {
        const char *behind = strstr(line, " - ");
        if (sscanf(line, "%*d %*d %*s %*s %511s", point) != 1 || strchr(point, '\\') != NULL ||
            behind == NULL || sscanf(behind, " - %63s", type) != 1) {
            rc = err_set(err, ERR_INVALID, EINVAL, "a mount of the image has an unusual name");
        } else if (!place_expected(point, type) && !place_device(p, point) &&
                   !str_copy(out, size, point)) {
            rc = err_set(err, ERR_INVALID, EINVAL, "a mount of the image has a very long name");
        }
    }
    buf_done(&text);
    return rc;
}

/* Volumes of the image, the engine's files over /etc, /sys, message queues. */
static int place_strangers(struct place *p, struct err *err) {
    char path[512];
    for (int i = 0; i < PLACE_ROUNDS_MAX; i++) {
        if (place_stranger(p, path, sizeof path, err) != 0) {
            return -1;
        }
        if (path[0] == '\0') {
            return 0;
        }
        if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
            return err_sys(err, "taking the mount %s away", path);
        }
    }
    return err_set(err, ERR_LIMIT, EBUSY, "the container has too many mounts");
}

static int place_cover(struct place *p, int target, mode_t mode, struct err *err) {
    static const struct mnt_option options[] = {
        {"size", "4k"}, {"nr_inodes", "2"}, {"mode", "0555"}, {NULL, NULL}};
    struct mnt_fs empty = {-1, -1};
    if (!S_ISDIR(mode)) {
        fd_cleanup int null =
            mnt_clone(p->root, "dev/null", false,
                      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
        return null < 0 ? -1 : mnt_attach(null, target, err);
    }
    if (mnt_fs_new("tmpfs", options,
                   MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                   &empty, err) != 0) {
        return -1;
    }
    int rc = mnt_attach(empty.mount, target, err);
    mnt_fs_done(&empty);
    return rc;
}

/* What the engine did not cover, though it was asked to: Podman has a list of its own, and only
 * makes the rest of it read-only. */
static int place_masked(struct place *p, struct err *err) {
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    for (size_t i = 0; i < RECIPE_MASKED_MAX; i++) {
        struct statfs fs;
        struct stat st;
        fd_cleanup int target =
            (int)syscall(SYS_openat2, p->root, recipe_masked[i] + 1, &how, sizeof how);
        if (target < 0 && errno == ENOENT) {
            continue; /* this kernel has none, or /sys is gone */
        }
        if (target < 0 || fstatfs(target, &fs) != 0 || fstat(target, &st) != 0) {
            return err_sys(err, "looking at %s", recipe_masked[i]);
        }
        if (fs.f_type == PLACE_PROC_MAGIC && place_cover(p, target, st.st_mode, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* hidepid: the processes of the runner's side, into which nobody may look, are not even listed.
 * Read-only: nothing there is to be written, not even an own oom_score_adj. The engine's mounts
 * over it stay. */
static int place_proc(struct place *p, struct err *err) {
    (void)p;
    if (mount(NULL, "/proc", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") !=
            0 ||
        mount(NULL, "/proc", NULL,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0) {
        return err_sys(err, "narrowing /proc");
    }
    return 0;
}

/* Gone when a volume of the image's stood in its place. */
static int place_terminals(struct place *p, struct err *err) {
    static const struct mnt_option options[] = {
        {"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "128"}, {NULL, NULL}};
    struct mnt_fs pts = {-1, -1};
    struct statfs fs;
    fd_cleanup int target = mnt_open_target(p->root, "dev/pts", S_IFDIR, err);
    if (target < 0 || fstatfs(target, &fs) != 0) {
        return target < 0 ? -1 : err_sys(err, "looking at /dev/pts");
    }
    if (fs.f_type == PLACE_DEVPTS_MAGIC) {
        return 0;
    }
    if (mnt_fs_new("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &pts, err) != 0) {
        return -1;
    }
    int rc = mnt_attach(pts.mount, target, err);
    mnt_fs_done(&pts);
    return rc;
}

static int place_number(int fs, const char *key, uint64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return fsconfig(fs, FSCONFIG_SET_STRING, key, text, 0);
}

/* Its size is set here as well: the engine may have read a number in its own way. */
static int place_base(struct place *p, struct err *err) {
    struct statfs st;
    p->base = mnt_open_target(p->root, "workspace", S_IFDIR, err);
    if (p->base < 0) {
        return -1;
    }
    if (fstatfs(p->base, &st) != 0 || st.f_type != PLACE_TMPFS_MAGIC) {
        return err_set(err, ERR_STATE, ENOTSUP, "the engine mounted no tmpfs on /workspace");
    }
    fd_cleanup int fs = fspick(p->base, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    if (fs < 0 || place_number(fs, "size", p->wish.disk_bytes) != 0 ||
        place_number(fs, "nr_inodes", p->wish.inodes) != 0 ||
        fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) != 0) {
        return err_sys(err, "setting the size of what can be written");
    }
    return 0;
}

static int place_bind(struct place *p, const struct place_dir *d, struct err *err) {
    if (mkdirat(p->base, d->name, 0700) != 0 ||
        fchownat(p->base, d->name, d->owner, d->owner, AT_SYMLINK_NOFOLLOW) != 0) {
        return err_sys(err, "making the directory %s", d->name);
    }
    fd_cleanup int dir = openat(p->base, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fchmod(dir, d->mode) != 0) {
        return err_sys(err, "making the directory %s", d->name);
    }
    fd_cleanup int tree = mnt_clone(dir, "", false, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    if (tree < 0) {
        return -1;
    }
    fd_cleanup int target = mnt_open_target(p->root, d->target, S_IFDIR, err);
    return target < 0 ? -1 : mnt_attach(tree, target, err);
}

static int place_writable(struct place *p, struct err *err) {
    umask(0);
    if ((p->wish.writable & WIRE_WRITABLE_SHM) && mkdirat(p->root, "dev/shm", 0755) != 0 &&
        errno != EEXIST) {
        return err_sys(err, "making /dev/shm");
    }
    for (size_t i = 0; i < sizeof place_dirs / sizeof place_dirs[0]; i++) {
        if ((p->wish.writable & place_dirs[i].bit) && place_bind(p, &place_dirs[i], err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* The engine's own were mounted here and are gone; what is left below them is empty. */
static int place_etc(struct place *p, struct err *err) {
    static const struct {
        const char *from, *to;
    } files[] = {{&RECIPE_HOSTS[1], "etc/hosts"}, {&RECIPE_HOSTNAME[1], "etc/hostname"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        fd_cleanup int file = mnt_clone(
            p->root, files[i].from, false,
            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
        if (file < 0) {
            return -1;
        }
        fd_cleanup int target = mnt_open_target(p->root, files[i].to, S_IFREG, err);
        if (target < 0 || mnt_attach(file, target, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* /dev of the engine is a tmpfs of its own, in which nothing is to be made. */
static int place_dev(struct place *p, struct err *err) {
    (void)p;
    if (mount(NULL, "/dev", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) !=
        0) {
        return err_sys(err, "making /dev read-only");
    }
    /* EINVAL: it is a device of that /dev, and no mount. */
    for (size_t i = 0; i < PLACE_DEVICES; i++) {
        if (mount(NULL, place_devices[i].path, NULL,
                  MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) != 0 &&
            errno != EINVAL && errno != ENOENT) {
            return err_sys(err, "making %s read-only", place_devices[i].path);
        }
    }
    return 0;
}

/* In this order; what the engine put there goes before anything of ours hides it. */
static const struct place_step {
    const char *name;
    int (*run)(struct place *p, struct err *err);
} place_steps[] = {
    {"sockets", place_sockets},     /* with the powers of this program */
    {"ids", place_ids},             /* without, from here on */
    {"enter", place_enter},         /* its mount namespace */
    {"root", place_readonly},       /* looked at only */
    {"strangers", place_strangers}, /* no mount that nobody expects */
    {"etc", place_etc},             /* the engine's files */
    {"terminals", place_terminals}, /* made where a volume stood */
    {"masked", place_masked},       /* what the engine covers in /proc */
    {"proc", place_proc},           /* hides processes of others */
    {"base", place_base},           /* the file system that can be written */
    {"writable", place_writable},   /* its directories, in their places */
    {"dev", place_dev},             /* read-only */
};

static void __attribute__((noreturn)) place_child(struct place *p, int sock) {
    struct place_report report = {0};
    struct err err;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (size_t i = 0; i < sizeof place_steps / sizeof place_steps[0]; i++) {
        err_clear(&err);
        if (place_steps[i].run(p, &err) == 0) {
            continue;
        }
        report.code = err.code != 0 ? err.code : EIO;
        (void)snprintf(report.step, sizeof report.step, "%s", place_steps[i].name);
        (void)snprintf(report.text, sizeof report.text, "%.250s", err.text);
        (void)fd_send(sock, &report, sizeof report, NULL, 0, NULL);
        _exit(1);
    }
    report.one_id = p->apart.one_id;
    report.id_base = p->apart.id_base;
    _exit(fd_send(sock, &report, sizeof report, &p->base, 1, NULL) == 0 ? 0 : 1);
}

/* The child holds copies of all that the shard has open: for as long as it takes, and no longer. */
int place_start(const struct place_wish *wish, int *sock, pid_t *child, struct err *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "making a socket");
    }
    pid_t pid = fork();
    if (pid == 0) {
        struct place p = {.wish = *wish, .proc = -1, .root = -1, .base = -1};
        if (dup2(wish->pidfd, 0) < 0 || dup2(pair[1], 1) < 0 ||
            syscall(SYS_close_range, 3, ~0U, 0) != 0) {
            _exit(1);
        }
        p.wish.pidfd = 0;
        place_child(&p, 1);
    }
    fd_close(&pair[1]);
    if (pid < 0) {
        (void)err_sys(err, "forking a process that prepares a container");
        fd_close(&pair[0]);
        return -1;
    }
    *sock = pair[0];
    *child = pid;
    return 0;
}
