#include "rootfs_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "etc.h"
#include "fd.h"
#include "wire.h"

#define ROOTFS_ATTR_PLAIN (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define ROOTFS_ATTR_DEV (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
#define ROOTFS_ATTR_PROC (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Options of a tmpfs of ours: bounded, since what is written to it is the host's memory. */
#define ROOTFS_TMPFS(size_, inodes_)                                                               \
    {                                                                                              \
        {"source", "pinfold"}, {"mode", "0755"}, {"size", size_}, {"nr_inodes", inodes_},          \
            {NULL, NULL},                                                                          \
    }

/* An imported image: its directory, which only root may have written to, found without following a
 * link. The copy is detached: it belongs to no namespace yet. */
static int rootfs_image(struct rootfs_build *b, struct err *err) {
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    char path[WIRE_NAME_MAX + sizeof "/rootfs"];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/rootfs", b->cfg->image);
    fd_cleanup int dir = (int)syscall(SYS_openat2, b->cfg->images_dirfd, path, &how, sizeof how);
    if (dir < 0) {
        enum err_kind kind =
            errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? ERR_INVALID : ERR_SYSTEM;
        return err_set(err, kind, errno, "open image directory %s: %s", path, strerror(errno));
    }
    if (fstat(dir, &st) != 0) {
        return err_sys(err, "examine image directory %s", path);
    }
    if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return err_set(err, ERR_INVALID, EPERM,
                       "image directory %s must belong to root and be writable by nobody else",
                       path);
    }
    b->root = mnt_clone(dir, "", false, ROOTFS_ATTR_PLAIN | MOUNT_ATTR_RDONLY, err);
    return b->root < 0 ? -1 : 0;
}

/* Whatever is mounted from here on stays in this namespace: with a shared root (systemd's default)
 * the host would see every mount otherwise. */
static int rootfs_namespace(struct rootfs_build *b, struct err *err) {
    if (unshare(CLONE_NEWNS) != 0) {
        return err_sys(err, "make a mount namespace");
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return err_sys(err, "make all mounts private");
    }
    b->host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    b->proc_self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (b->host < 0 || b->proc_self < 0) {
        return err_sys(err, "open / and /proc/self");
    }
    b->mnt_ns = openat(b->proc_self, "ns/mnt", O_RDONLY | O_CLOEXEC);
    return b->mnt_ns < 0 ? err_sys(err, "open the mount namespace") : 0;
}

struct rootfs_dir {
    const char *path;
    mode_t mode;
};

/* Parents first. /run and /root are there because programs expect them, and are empty. */
static const struct rootfs_dir rootfs_dirs[] = {
    {"usr", 0755},      {"etc", 0755},  {"dev", 0755},       {"proc", 0555},
    {"run", 0755},      {"root", 0700}, {"tmp", 01777},      {"var", 0755},
    {"var/tmp", 01777}, {"home", 0755}, {"home/user", 0755}, {"workspace", 0755},
};

static int rootfs_mkdir(int root, const char *path, mode_t mode, struct err *err) {
    return mkdirat(root, path, mode) == 0 ? 0 : err_sys(err, "make directory %s", path);
}

static int rootfs_symlink(const char *text, int root, const char *path, struct err *err) {
    return symlinkat(text, root, path) == 0 ? 0 : err_sys(err, "make link %s", path);
}

/* Image "host": the root is a small tmpfs, nodev because /dev is another. */
static int rootfs_root(struct rootfs_build *b, struct err *err) {
    static const struct mnt_option options[] = ROOTFS_TMPFS("32m", "16k");
    if (mnt_fs_new("tmpfs", options, ROOTFS_ATTR_PLAIN, &b->own, err) != 0) {
        return -1;
    }
    b->root = b->own.mount;
    for (size_t i = 0; i < sizeof rootfs_dirs / sizeof rootfs_dirs[0]; i++) {
        if (rootfs_mkdir(b->root, rootfs_dirs[i].path, rootfs_dirs[i].mode, err) != 0) {
            return -1;
        }
    }
    return rootfs_symlink("/run", b->root, "var/run", err);
}

/* On top of the old root: the one mount point that is always there, and no path is looked up.
 * Lookups of "/" still start at the old root, below. */
static int rootfs_stack(struct rootfs_build *b, struct err *err) {
    return mnt_attach(b->root, b->host, err);
}

static int rootfs_bind_host(struct rootfs_build *b, const char *name, struct err *err) {
    fd_cleanup int tree =
        mnt_clone(b->host, name, true, ROOTFS_ATTR_PLAIN | MOUNT_ATTR_RDONLY, err);
    if (tree < 0) {
        return -1;
    }
    fd_cleanup int target = mnt_open_target(b->root, name, S_IFDIR, err);
    return target < 0 ? -1 : mnt_attach(tree, target, err);
}

/* The machine's own settings lie in these, also below /usr: package managers' tokens, proxies. */
static const char *const rootfs_covered[] = {"usr/etc", "usr/local/etc"};

static int rootfs_cover(struct rootfs_build *b, const char *path, struct err *err) {
    struct err why;
    fd_cleanup int target = mnt_open_target(b->root, path, S_IFDIR, &why);
    if (target < 0) {
        /* Not there; or a link, which leads to a place that is shared for itself, or nowhere. */
        return why.kind == ERR_INVALID ? 0 : err_set(err, why.kind, why.code, "%s", why.text);
    }
    fd_cleanup int empty = mnt_clone(b->root, "run", false, MOUNT_ATTR_RDONLY, err);
    return empty < 0 ? -1 : mnt_attach(empty, target, err);
}

static int rootfs_usr(struct rootfs_build *b, struct err *err) {
    if (rootfs_bind_host(b, "usr", err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof rootfs_covered / sizeof rootfs_covered[0]; i++) {
        if (rootfs_cover(b, rootfs_covered[i], err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* What a merged /usr makes links, and an older layout real directories. */
const char *const rootfs_usr_names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", NULL};

static int rootfs_usr_link(struct rootfs_build *b, const char *name, struct err *err) {
    char text[PATH_MAX];
    ssize_t n = readlinkat(b->host, name, text, sizeof text - 1);
    if (n < 0) {
        return err_sys(err, "read link /%s", name);
    }
    text[n] = '\0';
    const char *rest = text[0] == '/' ? text + 1 : text;
    if (strncmp(rest, "usr/", 4) != 0 || strstr(rest, "..") != NULL) {
        return err_set(err, ERR_STATE, 0, "/%s of the host is a link that does not lead into /usr",
                       name);
    }
    return rootfs_symlink(text, b->root, name, err);
}

static int rootfs_usr_names_copy(struct rootfs_build *b, struct err *err) {
    for (size_t i = 0; rootfs_usr_names[i] != NULL; i++) {
        const char *name = rootfs_usr_names[i];
        struct stat st;
        if (fstatat(b->host, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) {
                continue;
            }
            return err_sys(err, "examine /%s", name);
        }
        if (S_ISLNK(st.st_mode)) {
            if (rootfs_usr_link(b, name, err) != 0) {
                return -1;
            }
        } else if (rootfs_mkdir(b->root, name, 0755, err) != 0 ||
                   rootfs_bind_host(b, name, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static int rootfs_etc_host(struct rootfs_build *b, struct err *err) {
    fd_cleanup int etc = mnt_open_target(b->root, "etc", S_IFDIR, err);
    if (etc < 0) {
        return -1;
    }
    fd_cleanup int dir = openat(etc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? err_sys(err, "open the new /etc") : etc_build(dir, err);
}

/* An image's /etc/hosts is empty as a rule (engines bind their own over it), and localhost would
 * have no address. An image without the file is left as it is. */
static int rootfs_etc_image(struct rootfs_build *b, struct err *err) {
    static const struct mnt_option options[] = ROOTFS_TMPFS("64k", "16");
    struct mnt_fs fs = {-1, -1};
    struct err why;
    fd_cleanup int target = mnt_open_target(b->root, "etc/hosts", S_IFREG, &why);
    if (target < 0) {
        return why.kind == ERR_INVALID ? 0 : err_set(err, why.kind, why.code, "%s", why.text);
    }
    if (mnt_fs_new("tmpfs", options, ROOTFS_ATTR_PLAIN | MOUNT_ATTR_NOEXEC, &fs, err) != 0 ||
        etc_build_hosts(fs.mount, err) != 0 || mnt_fs_seal(&fs, 0, err) != 0) {
        return -1;
    }
    /* Only a mount that is attached can be copied: it gets a place in the old tree, and goes with
     * it. The host's /proc is there (it has been opened), and is not needed by path any more. */
    fd_cleanup int place = mnt_open_target(b->host, "proc", S_IFDIR, err);
    if (place < 0 || mnt_attach(fs.mount, place, err) != 0) {
        return -1;
    }
    fd_cleanup int hosts = mnt_clone(fs.mount, "hosts", false, MOUNT_ATTR_RDONLY, err);
    return hosts < 0 ? -1 : mnt_attach(hosts, target, err);
}

/* They hold no state that one jail could leave to another. */
const struct rootfs_node rootfs_nodes[ROOTFS_NODES] = {
    {"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
    {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};

struct rootfs_link {
    const char *name;
    const char *text;
};

static const struct rootfs_link rootfs_dev_links[] = {
    {"ptmx", "pts/ptmx"},          {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"},
    {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
};

/* Rootless: an empty file, the place for rootfs_dev_bind(). */
static int rootfs_mknod(int dev, const struct rootfs_node *n, bool rootless, struct err *err) {
    mode_t type = rootless ? S_IFREG : S_IFCHR;
    if (mknodat(dev, n->name, type | 0666, rootless ? 0 : makedev(n->maj, n->min)) != 0) {
        return err_sys(err, "make device node %s", n->name);
    }
    return 0;
}

static int rootfs_dev_fill(int dev, bool rootless, struct err *err) {
    for (size_t i = 0; i < ROOTFS_NODES; i++) {
        if (rootfs_mknod(dev, &rootfs_nodes[i], rootless, err) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof rootfs_dev_links / sizeof rootfs_dev_links[0]; i++) {
        if (rootfs_symlink(rootfs_dev_links[i].text, dev, rootfs_dev_links[i].name, err) != 0) {
            return -1;
        }
    }
    return rootfs_mkdir(dev, "pts", 0755, err) != 0 ? -1 : rootfs_mkdir(dev, "shm", 01777, err);
}

/* The host's own node, proved to be the device that its name says, where everybody may use it. What
 * is bound is that one file, and for a device a read-only mount means only that the node itself
 * (its mode, its times) cannot be changed. */
static int rootfs_dev_bind(struct rootfs_build *b, const struct rootfs_node *n, struct err *err) {
    char name[32];
    struct stat st;
    (void)snprintf(name, sizeof name, "dev/%s", n->name);
    fd_cleanup int node = mnt_clone(b->host, name, false, ROOTFS_ATTR_DEV | MOUNT_ATTR_RDONLY, err);
    if (node < 0) {
        return -1;
    }
    if (fstat(node, &st) != 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(n->maj, n->min) ||
        (st.st_mode & 0666) != 0666) {
        return err_set(err, ERR_STATE, 0, "/%s is not the device %u:%u with mode 0666", name,
                       n->maj, n->min);
    }
    fd_cleanup int target = mnt_open_target(b->root, name, S_IFREG, err);
    return target < 0 ? -1 : mnt_attach(node, target, err);
}

/* Device nodes work because this tmpfs belongs to the first user namespace; in one that a jail
 * mounts itself, and in one that a rootless runner mounts, the kernel ignores them. */
static int rootfs_dev(struct rootfs_build *b, struct err *err) {
    static const struct mnt_option options[] = ROOTFS_TMPFS("64k", "64");
    if (mnt_fs_new("tmpfs", options, ROOTFS_ATTR_DEV, &b->dev, err) != 0 ||
        rootfs_dev_fill(b->dev.mount, b->cfg->rootless, err) != 0 ||
        mnt_fs_seal(&b->dev, ROOTFS_ATTR_DEV, err) != 0) {
        return -1;
    }
    fd_cleanup int target = mnt_open_target(b->root, "dev", S_IFDIR, err);
    if (target < 0 || mnt_attach(b->dev.mount, target, err) != 0) {
        return -1;
    }
    for (size_t i = 0; b->cfg->rootless && i < ROOTFS_NODES; i++) {
        if (rootfs_dev_bind(b, &rootfs_nodes[i], err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Writable on purpose: the kernel lets a jail mount a procfs only with flags at least as strict as
 * those of the one that it already sees, and process 1 must be able to write in its own. */
static int rootfs_proc(struct rootfs_build *b, struct err *err) {
    static const struct mnt_option options[] = {{"source", "proc"}, {NULL, NULL}};
    struct mnt_fs fs = {-1, -1};
    if (mnt_fs_new("proc", options, ROOTFS_ATTR_PROC, &fs, err) != 0) {
        return -1;
    }
    fd_cleanup int target = mnt_open_target(b->root, "proc", S_IFDIR, err);
    return target < 0 ? -1 : mnt_attach(fs.mount, target, err);
}

struct rootfs_target {
    uint32_t bit;
    const char *path;
};

static const struct rootfs_target rootfs_targets[] = {
    {WIRE_WRITABLE_WORKSPACE, "workspace"},
    {WIRE_WRITABLE_HOME, "home/user"},
    {WIRE_WRITABLE_TMP, "tmp"},
    {WIRE_WRITABLE_VAR_TMP, "var/tmp"},
    {WIRE_WRITABLE_SHM, "dev/shm"},
};

/* Process 1 of a jail mounts on these by path. They are proved to be real directories here, and no
 * jail can change the root that holds them. */
static int rootfs_check_targets(struct rootfs_build *b, struct err *err) {
    for (size_t i = 0; i < sizeof rootfs_targets / sizeof rootfs_targets[0]; i++) {
        if (b->cfg->writable & rootfs_targets[i].bit) {
            fd_cleanup int fd = mnt_open_target(b->root, rootfs_targets[i].path, S_IFDIR, err);
            if (fd < 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int rootfs_read_only(struct rootfs_build *b, struct err *err) {
    return mnt_fs_seal(&b->own, ROOTFS_ATTR_PLAIN, err);
}

static int rootfs_pivot(struct rootfs_build *b, struct err *err) {
    if (fchdir(b->root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) {
        return err_sys(err, "pivot into the new root");
    }
    return 0;
}

/* pivot_root(".", ".") has stacked the old root on the new one; with it goes the whole tree of the
 * host. */
static int rootfs_drop_host(struct rootfs_build *b, struct err *err) {
    if (fchdir(b->host) != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) {
        return err_sys(err, "drop the old root");
    }
    return 0;
}

/* The order matters: the image is found while its descriptor still belongs to the mount namespace
 * that one is in; private before any mount; attached before anything is mounted inside; targets
 * proved before the root is sealed; the host's tree dropped before the namespace is given away. */
const struct rootfs_step rootfs_steps[] = {
    {"image", rootfs_image, ROOTFS_IMAGE},
    {"namespace", rootfs_namespace, ROOTFS_BOTH},
    {"root", rootfs_root, ROOTFS_HOST},
    {"stack", rootfs_stack, ROOTFS_BOTH},
    {"usr", rootfs_usr, ROOTFS_HOST},
    {"usr_names", rootfs_usr_names_copy, ROOTFS_HOST},
    {"etc", rootfs_etc_host, ROOTFS_HOST},
    {"etc", rootfs_etc_image, ROOTFS_IMAGE},
    {"dev", rootfs_dev, ROOTFS_BOTH},
    {"proc", rootfs_proc, ROOTFS_BOTH},
    {"targets", rootfs_check_targets, ROOTFS_BOTH},
    {"read_only", rootfs_read_only, ROOTFS_HOST},
    {"pivot", rootfs_pivot, ROOTFS_BOTH},
    {"drop_host", rootfs_drop_host, ROOTFS_BOTH},
    {"verify", rootfs_verify, ROOTFS_BOTH},
};

const size_t rootfs_step_count = sizeof rootfs_steps / sizeof rootfs_steps[0];
