/* A file system in a file. The file never has a name (or loses it at once), and the loop device
 * lets go of it with the last mount: whatever dies, nothing is left. It is ext4 without a journal,
 * since nobody will ever need what a crash leaves. */
#include "layers_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"

#define LAYERS_DISK_NOBODY "65534" /* no command has this id */
#define LAYERS_DISK_BLOCK 4096u
#define LAYERS_DISK_INODE 256u
#define LAYERS_DISK_SLACK (8ull << 20)
#define LAYERS_DISK_SPARE_MAX 4096u /* blocks that ext4 keeps for itself: 2 %, at most these */
#define LAYERS_DISK_OWN_INODES 64u  /* for what is ours */
#define LAYERS_DISK_TRIES 64
#define LAYERS_DISK_FD 3 /* in mkfs.ext4 */
#define LAYERS_DISK_LEAST                                                                          \
    (4u << 20) /* free bytes: with fewer there is no room for a file system                        \
                */

/* Places in ext4's superblock, which begins at 1024. */
#define LAYERS_DISK_SUPER 1024
#define LAYERS_DISK_AT_BLOCKS (LAYERS_DISK_SUPER + 4)
#define LAYERS_DISK_AT_RESERVED (LAYERS_DISK_SUPER + 8)
#define LAYERS_DISK_AT_FREE (LAYERS_DISK_SUPER + 12)

static int layers_disk_file(int dir, struct err *err) {
    char name[64];
    int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) {
        return fd >= 0 ? fd : err_sys(err, "make a disk file");
    }
    /* Not every file system has files without a name. */
    (void)snprintf(name, sizeof name, "disk.%d", (int)getpid());
    (void)unlinkat(dir, name, 0);
    fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || unlinkat(dir, name, 0) != 0) {
        fd_close(&fd);
        return err_sys(err, "make a disk file");
    }
    return fd;
}

/* Inode tables, bitmaps and what ext4 keeps for itself come on top of what was promised. The file
 * is sparse: only what is used is there. */
static uint64_t layers_disk_size(uint64_t bytes, uint64_t inodes) {
    uint64_t size = bytes + bytes / 64 + inodes * LAYERS_DISK_INODE +
                    (uint64_t)LAYERS_DISK_SPARE_MAX * LAYERS_DISK_BLOCK + LAYERS_DISK_SLACK;
    return size / LAYERS_DISK_BLOCK * LAYERS_DISK_BLOCK;
}

static uint64_t layers_disk_spare(uint64_t blocks) {
    return blocks / 50 < LAYERS_DISK_SPARE_MAX ? blocks / 50 : LAYERS_DISK_SPARE_MAX;
}

static void layers_disk_exec(int file, uint64_t inodes) {
    static const char *const paths[] = {"/sbin/mkfs.ext4", "/usr/sbin/mkfs.ext4"};
    char count[32];
    (void)snprintf(count, sizeof count, "%llu", (unsigned long long)inodes);
    const char *const argv[] = {
        "mkfs.ext4",
        "-q",
        "-F",
        "-b",
        "4096",
        "-I",
        "256",
        "-m",
        "0",
        "-N",
        count,
        "-O",
        "none,filetype,extent,dir_index,ext_attr,sparse_super,large_file,huge_file,dir_nlink,"
        "extra_isize,flex_bg,uninit_bg",
        "-E",
        "lazy_itable_init=1,nodiscard,root_owner=0:0",
        "/proc/self/fd/3",
        NULL};
    const char *const env[] = {"MKE2FS_CONFIG=/dev/null", "PATH=/nonexistent", NULL};
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) != 0 || dup2(null, 1) != 1 || dup2(null, 2) != 2 ||
        (file == LAYERS_DISK_FD ? fcntl(file, F_SETFD, 0) : dup2(file, LAYERS_DISK_FD)) < 0 ||
        close_range(LAYERS_DISK_FD + 1, ~0U, 0) != 0) {
        _exit(126);
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        (void)execve(paths[i], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
    }
    _exit(127);
}

static int layers_disk_format(int file, uint64_t inodes, struct err *err) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        layers_disk_exec(file, inodes);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return err_sys(err, "run mkfs.ext4");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        return err_set(err, ERR_STATE, ENOTSUP,
                       "there is no mkfs.ext4: install the package e2fsprogs");
    }
    if (status == 0)
        return 0;
    struct statvfs fs;
    if (fstatvfs(file, &fs) == 0 && fs.f_bavail * fs.f_bsize < LAYERS_DISK_LEAST)
        return err_set(err, ERR_STATE, ENOSPC, "the disk of the state directory is full");
    return err_set(err, ERR_STATE, EIO, "mkfs.ext4 failed with status 0x%x", (unsigned)status);
}

/* What there is more than promised is kept for a user who never comes: layers_disk_mount(). */
static int layers_disk_reserve(int file, uint64_t bytes, struct err *err) {
    uint32_t blocks;
    uint32_t free;
    if (pread(file, &blocks, sizeof blocks, LAYERS_DISK_AT_BLOCKS) != (ssize_t)sizeof blocks ||
        pread(file, &free, sizeof free, LAYERS_DISK_AT_FREE) != (ssize_t)sizeof free) {
        return err_sys(err, "read the new file system");
    }
    uint64_t promised = bytes / LAYERS_DISK_BLOCK + layers_disk_spare(blocks);
    if (free < promised) {
        return err_set(err, ERR_STATE, EIO, "the new file system is smaller than it should be");
    }
    uint32_t reserved = free - (uint32_t)promised;
    if (pwrite(file, &reserved, sizeof reserved, LAYERS_DISK_AT_RESERVED) !=
        (ssize_t)sizeof reserved) {
        return err_sys(err, "write to the new file system");
    }
    return 0;
}

/* -> descriptor of the device, which is free again once it is closed and unmounted */
static int layers_disk_attach(int file, char path[32], struct err *err) {
    fd_cleanup int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) {
        return err_sys(err, "open /dev/loop-control");
    }
    for (int i = 0; i < LAYERS_DISK_TRIES; i++) {
        struct loop_config config = {
            .fd = (uint32_t)file,
            .block_size = LAYERS_DISK_BLOCK,
            .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO},
        };
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0) {
            return err_sys(err, "get a loop device");
        }
        (void)snprintf(path, 32, "/dev/loop%d", number);
        fd_cleanup int loop = open(path, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
            return fd_steal(&loop);
        }
        if (errno != EBUSY && errno != ENOENT && errno != ENXIO) {
            return err_sys(err, "attach a disk file to %s", path);
        }
    }
    return err_set(err, ERR_SYSTEM, EBUSY, "others took every loop device");
}

static int layers_disk_mount(const char *device, struct err *err) {
    static const char *const flags[] = {"noinit_itable", "nobarrier"};
    fd_cleanup int fs = fsopen("ext4", FSOPEN_CLOEXEC);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) != 0) {
        return err_sys(err, "open a new ext4");
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (fsconfig(fs, FSCONFIG_SET_FLAG, flags[i], NULL, 0) != 0) {
            return err_sys(err, "set %s on a new ext4", flags[i]);
        }
    }
    /* Who writes through an overlay has the ids of who mounted it, which in a container is user 0:
     * what is kept for root would be there for the taking. */
    if (fsconfig(fs, FSCONFIG_SET_STRING, "resuid", LAYERS_DISK_NOBODY, 0) != 0) {
        return err_sys(err, "set resuid of a new ext4");
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0) {
        return err_sys(err, "open the new ext4 on %s", device);
    }
    int tree = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return tree < 0 ? err_sys(err, "mount the new ext4 on %s", device) : tree;
}

int layers_disk_make(const struct layers_work *w, struct err *err) {
    char device[32];
    uint64_t size = layers_disk_size(w->req.disk_bytes, w->req.inodes);
    if (w->req.disk_bytes >> 43 != 0 || w->req.inodes >> 31 != 0) {
        return err_set(err, ERR_LIMIT, ENOSPC, "a disk file of more than 8 TiB cannot be made");
    }
    fd_cleanup int file = layers_disk_file(w->fd[LAYERS_FD_DISK], err);
    if (file < 0) {
        return -1;
    }
    if (ftruncate(file, (off_t)size) != 0) {
        return err_sys(err, "set the size of a disk file");
    }
    uint64_t inodes = w->req.inodes > w->req.other_files ? w->req.inodes - w->req.other_files : 1;
    if (layers_disk_format(file, inodes + LAYERS_DISK_OWN_INODES, err) != 0 ||
        layers_disk_reserve(file, w->req.disk_bytes, err) != 0) {
        return -1;
    }
    fd_cleanup int loop = layers_disk_attach(file, device, err);
    if (loop < 0) {
        return -1;
    }
    int tree = layers_disk_mount(device, err);
    if (tree >= 0) {
        /* Programs that look find no trace of the file system's own. */
        (void)unlinkat(tree, "lost+found", AT_REMOVEDIR);
    }
    return tree;
}

/* A mounted ext4 cannot be made smaller, but it can be told to keep more blocks for itself. */
int layers_disk_limit(const struct layers_work *w, struct err *err) {
    const struct layers_request *req = &w->req;
    char path[64];
    char device[64];
    char text[32];
    struct stat st;
    struct statfs fs;
    if (fstat(w->own, &st) != 0 || fstatfs(w->own, &fs) != 0) {
        return err_sys(err, "examine the disk file");
    }
    if ((fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize + req->other_bytes > req->disk_bytes) {
        return err_set(err, ERR_LIMIT, ENOSPC,
                       "what the sandbox holds already leaves no room for the snapshot");
    }
    (void)snprintf(path, sizeof path, "dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    ssize_t n = readlinkat(w->sys, path, device, sizeof device - 1);
    device[n < 0 ? 0 : n] = '\0';
    const char *name = strrchr(device, '/');
    uint64_t spare =
        layers_disk_spare(layers_disk_size(req->disk_bytes, req->inodes) / LAYERS_DISK_BLOCK);
    (void)snprintf(path, sizeof path, "fs/ext4/%.24s/reserved_clusters", name ? name + 1 : "");
    n = snprintf(text, sizeof text, "%llu",
                 (unsigned long long)(spare + req->other_bytes / LAYERS_DISK_BLOCK));
    if (fd_write_kernel(w->sys, path, text, (size_t)n, err) != 0) {
        /* Without it nothing is lost but the share of others in the limit. */
        return req->other_bytes == 0 ? 0 : err_wrap(err, "limit a disk file");
    }
    return 0;
}
