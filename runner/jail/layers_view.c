#include "layers_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "mnt.h"

#define LAYERS_VIEW_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define LAYERS_VIEW_OPTIONS_MAX 4000 /* the kernel takes a page */
#define LAYERS_VIEW_BLOCK 4096u

#define LAYERS_CAP(cap) (1ULL << (cap))
/* To act on files of the jail whatever their modes are. */
#define LAYERS_CAPS_FILES                                                                          \
    (LAYERS_CAP(CAP_CHOWN) | LAYERS_CAP(CAP_DAC_OVERRIDE) | LAYERS_CAP(CAP_DAC_READ_SEARCH) |      \
     LAYERS_CAP(CAP_FOWNER) | LAYERS_CAP(CAP_FSETID) | LAYERS_CAP(CAP_MKNOD))
/* … to mount, to see what its processes have mapped, and for the attributes of an overlay. */
#define LAYERS_CAPS_MOUNT                                                                          \
    (LAYERS_CAPS_FILES | LAYERS_CAP(CAP_SYS_ADMIN) | LAYERS_CAP(CAP_SYS_CHROOT) |                  \
     LAYERS_CAP(CAP_SYS_PTRACE) | LAYERS_CAP(CAP_SETUID) | LAYERS_CAP(CAP_SETGID))

const struct layers_place layers_places[LAYERS_PLACES] = {
    {WIRE_WRITABLE_HOME, "home", "home/user", 0755, 1000},
    {WIRE_WRITABLE_VAR_TMP, "var_tmp", "var/tmp", 01777, 0},
    {WIRE_WRITABLE_TMP, "tmp", "tmp", 01777, 0},
    {WIRE_WRITABLE_SHM, "shm", "dev/shm", 01777, 0},
    {WIRE_WRITABLE_WORKSPACE, "workspace", "workspace", 0755, 1000},
};

/* ---- powers ---- */

static int layers_view_caps(uint64_t caps, struct err *err) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    if (syscall(SYS_capget, &head, data) != 0) {
        return err_sys(err, "read the own capabilities");
    }
    for (int i = 0; i < 2; i++) {
        data[i].permitted &= (uint32_t)(caps >> (32 * i));
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, data) != 0) {
        return err_sys(err, "give up capabilities");
    }
    /* A change of powers makes the kernel forget this. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 ? 0 : err_sys(err, "ask for death");
}

int layers_view_ids(uint32_t id, bool mounts, struct err *err) {
    if (setgroups(0, NULL) != 0) {
        return err_sys(err, "leave all groups");
    }
    (void)setfsgid(id);
    (void)setfsuid(id);
    if ((uint32_t)setfsgid((gid_t)-1) != id || (uint32_t)setfsuid((uid_t)-1) != id) {
        return err_set(err, ERR_SYSTEM, EPERM, "cannot take the ids of the jail's root");
    }
    /* setfsuid() took some that are needed. */
    return layers_view_caps(mounts ? LAYERS_CAPS_MOUNT : LAYERS_CAPS_FILES, err);
}

/* ---- name spaces ---- */

static int layers_view_enter(int ns, const char *whose, struct err *err) {
    return setns(ns, CLONE_NEWNS) == 0 ? 0 : err_sys(err, "enter the mount namespace of %s", whose);
}

int layers_view_jail(const struct layers_work *w, struct err *err) {
    return layers_view_enter(w->fd[LAYERS_FD_MNT], "the jail", err);
}

/* Back into the scratch one. */
static int layers_view_back(const struct layers_work *w, struct err *err) {
    if (layers_view_enter(w->scratch_ns, "the worker", err) != 0) {
        return -1;
    }
    return fchdir(w->scratch) == 0 ? 0 : err_sys(err, "enter the scratch directory");
}

/* For a file system that stays mounted when its jail is gone: under its number, where only workers
 * come. */
int layers_view_keep(struct layers_work *w, int tree, struct err *err) {
    char name[32];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)w->req.fs[0].id);
    if (mkdirat(w->home->store, name, 0700) != 0 && errno != EEXIST) {
        return err_sys(err, "make a place for a file system");
    }
    fd_cleanup int place = mnt_open_target(w->home->store, name, S_IFDIR, err);
    if (place < 0 || mnt_attach(tree, place, err) != 0) {
        return -1;
    }
    w->own_root = fcntl(tree, F_DUPFD_CLOEXEC, 0);
    return w->own_root < 0 ? err_sys(err, "keep a file system") : 0;
}

/* What process 1 mounted is seen through a mount of its own from now on. */
static int layers_view_adopt(struct layers_work *w, struct err *err) {
    if (layers_view_jail(w, err) != 0) {
        return -1;
    }
    fd_cleanup int tree = mnt_clone(w->fd[LAYERS_FD_WRITABLE], "", false, LAYERS_VIEW_ATTRS, err);
    if (tree < 0 || layers_view_enter(w->home->store_ns, "layers", err) != 0) {
        return -1;
    }
    return layers_view_keep(w, tree, err);
}

/* A copy of the mount of file system `i`, with the ids of the jail: a file of user 1000 there is
 * one of user 1000 here, whatever numbers outside either of them has. */
static int layers_view_clone(const struct layers_work *w, uint32_t i, struct err *err) {
    int root = i == 0 && w->own_root >= 0 ? w->own_root : w->fd[LAYERS_FD_FS + i];
    fd_cleanup int tree = mnt_clone(root, "", false, LAYERS_VIEW_ATTRS, err);
    if (tree < 0) {
        return -1;
    }
    /* Containers of an engine without a user namespace all have the host's ids, and there is no
     * mapping to give a mount. */
    if (w->req.id_base != 0 && (w->req.fs[i].mapped || (i == 0 && w->req.in_file))) {
        struct mount_attr attr = {
            .attr_set = MOUNT_ATTR_IDMAP,
            .userns_fd = (unsigned)w->fd[LAYERS_FD_USER],
        };
        if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0) {
            return err_sys(err, "map the ids of a mount");
        }
    }
    return fd_steal(&tree);
}

/* The scratch namespace is made from the jail's, which is small; a tmpfs takes its place. */
static int layers_view_scratch(struct layers_work *w, struct err *err) {
    static const struct mnt_option options[] = {{"source", "pinfold"},
                                                {"mode", "0700"},
                                                {"size", "64k"},
                                                {"nr_inodes", "256"},
                                                {NULL, NULL}};
    struct mnt_fs fs = {-1, -1};
    if (layers_view_jail(w, err) != 0) {
        return -1;
    }
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return err_sys(err, "make a scratch mount namespace");
    }
    w->scratch_ns = openat(w->proc_self, "ns/mnt", O_RDONLY | O_CLOEXEC);
    fd_cleanup int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->scratch_ns < 0 || root < 0) {
        return err_sys(err, "open the scratch mount namespace");
    }
    if (mnt_fs_new("tmpfs", options, LAYERS_VIEW_ATTRS, &fs, err) != 0) {
        return -1;
    }
    int rc = mnt_attach(fs.mount, root, err);
    w->scratch = fd_steal(&fs.mount);
    mnt_fs_done(&fs);
    if (rc != 0) {
        return -1;
    }
    /* Nothing of the jail's is kept alive by us: what is replaced there must really go. */
    if (fchdir(w->scratch) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || fchdir(root) != 0 ||
        umount2(".", MNT_DETACH) != 0 || fchdir(w->scratch) != 0) {
        return err_sys(err, "pivot into the scratch directory");
    }
    return 0;
}

static int layers_view_place(const struct layers_work *w, int tree, const char *name,
                             struct err *err) {
    if (mkdirat(w->scratch, name, 0700) != 0) {
        return err_sys(err, "make a scratch directory");
    }
    fd_cleanup int place = mnt_open_target(w->scratch, name, S_IFDIR, err);
    return place < 0 ? -1 : mnt_attach(tree, place, err);
}

static int layers_view_attach(struct layers_work *w, const int *tree, struct err *err) {
    static const char *const own[] = {"layers", "live", "work", "trash"};
    char name[16];
    for (uint32_t i = 0; i < w->req.fs_count; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        if (layers_view_place(w, tree[i], name, err) != 0) {
            return -1;
        }
    }
    if (layers_view_ids(w->req.id_base, true, err) != 0) {
        return -1;
    }
    w->own = openat(w->scratch, "f0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->own < 0) {
        return err_sys(err, "open the own file system");
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        mode_t mode = i < 3 ? 0755 : 0700;
        int rc = mkdirat(w->own, own[i], mode);
        /* The jail may have used up all inodes before there was a first snapshot. */
        if (rc != 0 && errno == ENOSPC && layers_view_resize(w, 0, NULL) == 0) {
            rc = mkdirat(w->own, own[i], mode);
        }
        if (rc != 0 && errno != EEXIST) {
            return err_sys(err, "make the directories of layers");
        }
    }
    return 0;
}

int layers_view_open(struct layers_work *w, struct err *err) {
    int tree[LAYERS_FS_MAX];
    uint32_t n = 0;
    /* Mounts are copied in the namespace that they are in. */
    int rc = w->req.flags & LAYERS_ADOPT ? layers_view_adopt(w, err)
                                         : layers_view_enter(w->home->store_ns, "layers", err);
    for (; rc == 0 && n < w->req.fs_count; n++) {
        tree[n] = layers_view_clone(w, n, err);
        if (tree[n] < 0) {
            rc = -1;
            break;
        }
    }
    if (rc == 0) {
        rc = layers_view_scratch(w, err);
    }
    if (rc == 0) {
        rc = layers_view_attach(w, tree, err);
    }
    while (n > 0) {
        fd_close(&tree[--n]);
    }
    return rc;
}

/* ---- what is seen ---- */

int layers_view_dir(const struct layers_work *w, const char *kind, uint32_t number,
                    struct err *err) {
    char path[32];
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    (void)snprintf(path, sizeof path, "%s/%u", kind, number);
    int fd = (int)syscall(SYS_openat2, w->own, path, &how, sizeof how);
    return fd < 0 ? err_sys(err, "open %s", path) : fd;
}

/* Names in the options are relative to the scratch directory and made by us: in no directory that
 * they go through could a jail make a link. */
int layers_view_overlay(const struct layers_work *w, const char *name, uint32_t top, uint32_t live,
                        struct err *err) {
    char text[LAYERS_VIEW_OPTIONS_MAX];
    size_t at = 0;
    const char *colon = "";
    int n = snprintf(text, sizeof text, "index=off,metacopy=off,xino=off,redirect_dir=%s",
                     live != 0 ? "on,volatile" : "follow");
    at += (size_t)n;
    if (live != 0) {
        n = snprintf(text + at, sizeof text - at, ",upperdir=f0/live/%u,workdir=f0/work/%u", live,
                     live);
        at += (size_t)n;
    }
    n = snprintf(text + at, sizeof text - at, ",lowerdir=");
    at += (size_t)n;
    if (top != 0) {
        n = snprintf(text + at, sizeof text - at, "f0/layers/%u", top);
        at += (size_t)n;
        colon = ":";
    }
    for (uint32_t i = 0; i < w->req.depth && at < sizeof text; i++, colon = ":") {
        n = snprintf(text + at, sizeof text - at, "%sf%u/layers/%u", colon, w->req.stack[i].fs,
                     w->req.stack[i].number);
        at += (size_t)n;
    }
    if (at >= sizeof text) {
        return err_set(err, ERR_LIMIT, E2BIG, "there are too many layers");
    }
    if (mkdirat(w->scratch, name, 0700) != 0) {
        return err_sys(err, "make a scratch directory");
    }
    unsigned long flags = MS_NOSUID | MS_NODEV | (live != 0 ? 0 : MS_RDONLY);
    return mount("overlay", name, "overlay", flags, text) == 0 ? 0 : err_sys(err, "mount layers");
}

/* Inodes of the own file system that are not the jail's: see layers_work.h. */
static uint64_t layers_view_overhead(const struct layers_work *w) {
    uint32_t kept = (uint32_t)__builtin_popcount(w->req.writable & LAYERS_KEPT);
    uint32_t layers = w->req.own_layers + ((w->reply.flags & LAYERS_LAYER) != 0) +
                      ((w->reply.flags & LAYERS_MERGED) != 0);
    uint32_t live = w->req.live != 0 || (w->reply.flags & LAYERS_SWITCHED) != 0;
    return 1 + (uint64_t)__builtin_popcount(w->req.writable) + 4 + (uint64_t)layers * (1 + kept) +
           live * (1 + LAYERS_WORK_INODES);
}

/* Never to 0, which would mean without a limit. */
int layers_view_resize(const struct layers_work *w, uint32_t spare, struct err *err) {
    const struct layers_request *req = &w->req;
    char size[32];
    char inodes[32];
    if (req->disk_bytes < req->other_bytes + LAYERS_VIEW_BLOCK || req->inodes <= req->other_files) {
        return err_set(err, ERR_LIMIT, ENOSPC,
                       "the snapshot holds as much as the sandbox may write in all");
    }
    if (req->in_file) {
        return layers_disk_limit(w, err);
    }
    (void)snprintf(size, sizeof size, "%llu",
                   (unsigned long long)(req->disk_bytes - req->other_bytes));
    (void)snprintf(
        inodes, sizeof inodes, "%llu",
        (unsigned long long)(req->inodes - req->other_files + layers_view_overhead(w) + spare));
    fd_cleanup int fs = fspick(w->own, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) != 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) != 0) {
        return err_sys(err, "set the size of the writable file system");
    }
    if (fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) != 0) {
        /* The kernel refuses to make it smaller than what is in it. */
        return errno == EINVAL ? err_set(err, ERR_LIMIT, ENOSPC,
                                         "what the sandbox holds already leaves no room for the "
                                         "snapshot")
                               : err_sys(err, "set the size of the writable file system");
    }
    return 0;
}

int layers_view_confine(const struct layers_work *w, struct err *err) {
    if (layers_view_back(w, err) != 0) {
        return -1;
    }
    if (chroot(".") != 0) {
        return err_sys(err, "enter the scratch directory for good");
    }
    return layers_view_ids(w->req.id_base, false, err);
}
