#include "mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"

int mnt_fs_new(const char *type, const struct mnt_option *options, uint64_t attrs,
               struct mnt_fs *out, struct err *err) {
    fd_cleanup int context = fsopen(type, FSOPEN_CLOEXEC);
    if (context < 0) {
        return err_sys(err, "open a new %s", type);
    }
    for (const struct mnt_option *o = options; o->key != NULL; o++) {
        if (fsconfig(context, FSCONFIG_SET_STRING, o->key, o->value, 0) != 0) {
            return err_sys(err, "set %s=%s on a new %s", o->key, o->value, type);
        }
    }
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0) {
        return err_sys(err, "create a new %s", type);
    }
    int mount = fsmount(context, FSMOUNT_CLOEXEC, (unsigned)attrs);
    if (mount < 0) {
        return err_sys(err, "mount a new %s", type);
    }
    out->mount = mount;
    out->context = fd_steal(&context);
    return 0;
}

void mnt_fs_done(struct mnt_fs *fs) {
    if (fs != NULL) {
        fd_close(&fs->context);
        fd_close(&fs->mount);
    }
}

int mnt_fs_seal(const struct mnt_fs *fs, uint64_t attrs, struct err *err) {
    if (fsconfig(fs->context, FSCONFIG_SET_FLAG, "ro", NULL, 0) != 0 ||
        fsconfig(fs->context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) != 0) {
        return err_sys(err, "make a file system read-only");
    }
    struct mount_attr attr = {.attr_set = attrs | MOUNT_ATTR_RDONLY};
    if (mount_setattr(fs->mount, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0) {
        return err_sys(err, "make a mount read-only");
    }
    return 0;
}

int mnt_clone(int dirfd, const char *path, bool recursive, uint64_t attrs, struct err *err) {
    unsigned depth = recursive ? AT_RECURSIVE : 0;
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    fd_cleanup int tree = open_tree(dirfd, path, flags | depth);
    if (tree < 0) {
        return err_sys(err, "copy the mount at %s", path);
    }
    struct mount_attr attr = {.attr_set = attrs, .propagation = MS_PRIVATE};
    if (mount_setattr(tree, "", AT_EMPTY_PATH | depth, &attr, sizeof attr) != 0) {
        return err_sys(err, "restrict the copy of the mount at %s", path);
    }
    return fd_steal(&tree);
}

static int mnt_open_error(const char *path, struct err *err) {
    switch (errno) {
    case ELOOP:
        return err_set(err, ERR_INVALID, ELOOP, "mount target %s is a symbolic link", path);
    case ENOTDIR:
        return err_set(err, ERR_INVALID, ENOTDIR, "mount target %s is not a directory", path);
    case ENOENT:
        return err_set(err, ERR_INVALID, ENOENT, "mount target %s does not exist", path);
    default:
        return err_sys(err, "open mount target %s", path);
    }
}

int mnt_open_target(int root, const char *path, mode_t type, struct err *err) {
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    struct stat st;
    fd_cleanup int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd < 0) {
        return mnt_open_error(path, err);
    }
    if (fstat(fd, &st) != 0) {
        return err_sys(err, "examine mount target %s", path);
    }
    if ((st.st_mode & S_IFMT) != type) {
        return err_set(err, ERR_INVALID, type == S_IFDIR ? ENOTDIR : EINVAL,
                       "mount target %s is not a %s", path,
                       type == S_IFDIR ? "directory" : "regular file");
    }
    return fd_steal(&fd);
}

int mnt_attach(int mount, int target, struct err *err) {
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
        return err_sys(err, "attach a mount");
    }
    return 0;
}
