/* Theory of operation. The new mount goes beneath the one that is there (Linux 6.5), which is then
 * unmounted: whoever looks sees the one or the other, never what both cover. Where the kernel
 * cannot do that, the old one goes first, and for a moment there is nothing.
 *
 * An unmount without MNT_DETACH is refused when the mount is in use, and that is the whole test of
 * "nobody has anything open". A descriptor of our own would count as well: none is held across. */
#include "layers_swap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mnt.h"

#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

#define LAYERS_SWAP_MOVE (MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)

static int layers_swap_open(const char *path, struct err *err) {
    fd_cleanup int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? err_sys(err, "open the root") : mnt_open_target(root, path, S_IFDIR, err);
}

static int layers_swap_umount(const char *path, int flags) {
    return chdir("/") != 0 ? -1 : umount2(path, UMOUNT_NOFOLLOW | flags);
}

/* MNT_EXPIRE marks a mount and answers EAGAIN when it is not in use; only a second call would
 * unmount it, and only if nobody had come by. */
int layers_swap_busy(const struct layers_swap *swap, size_t count, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        /* A mark of an earlier probe would make this the second call: looking takes it away. */
        fd_cleanup int fd = layers_swap_open(swap[i].path, err);
        if (fd < 0) {
            return -1;
        }
        fd_close(&fd);
        if (layers_swap_umount(swap[i].path, MNT_EXPIRE) == 0) {
            return err_set(err, ERR_STATE, EIO, "a mount of the jail was removed by its probe");
        }
        if (errno == EBUSY) {
            return 1;
        }
        if (errno != EAGAIN) {
            return err_sys(err, "ask whether /%s is in use", swap[i].path);
        }
    }
    return 0;
}

static int layers_swap_move(int mount, const char *path, unsigned flags) {
    fd_cleanup int place = layers_swap_open(path, NULL);
    return place < 0 ? -1 : move_mount(mount, "", place, "", LAYERS_SWAP_MOVE | flags);
}

/* Takes the mount away that lies beneath the one at `path`. The upper one is parked meanwhile: it
 * must stay the mount that it is, since somebody has something open on it. */
static int layers_swap_pull(const char *path, int park) {
    fd_cleanup int upper = layers_swap_open(path, NULL);
    if (upper < 0 || move_mount(upper, "", park, "", LAYERS_SWAP_MOVE) != 0) {
        return -1;
    }
    int rc = layers_swap_umount(path, MNT_DETACH);
    return layers_swap_move(upper, path, 0) != 0 ? -1 : rc;
}

/* The old way: first the old one goes. */
static enum layers_swap_result layers_swap_plain(const char *path, int *tree, int back,
                                                 bool force) {
    if (layers_swap_umount(path, force ? MNT_DETACH : 0) != 0) {
        return errno == EBUSY ? LAYERS_SWAP_BUSY : LAYERS_SWAP_FAILED;
    }
    if (layers_swap_move(*tree, path, 0) != 0) {
        return back >= 0 && layers_swap_move(back, path, 0) == 0 ? LAYERS_SWAP_FAILED
                                                                 : LAYERS_SWAP_LOST;
    }
    fd_close(tree);
    return LAYERS_SWAP_DONE;
}

static enum layers_swap_result layers_swap_one(const char *path, int *tree, int back, bool force,
                                               int park) {
    if (park < 0 || layers_swap_move(*tree, path, MOVE_MOUNT_BENEATH) != 0) {
        return layers_swap_plain(path, tree, back, force);
    }
    fd_close(tree);
    if (layers_swap_umount(path, force ? MNT_DETACH : 0) == 0) {
        return LAYERS_SWAP_DONE;
    }
    enum layers_swap_result result = errno == EBUSY ? LAYERS_SWAP_BUSY : LAYERS_SWAP_FAILED;
    return layers_swap_pull(path, park) == 0 ? result : LAYERS_SWAP_LOST;
}

enum layers_swap_result layers_swap_all(struct layers_swap *swap, size_t count, bool force,
                                        int park, struct err *err) {
    enum layers_swap_result result = LAYERS_SWAP_DONE;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        fd_cleanup int old = layers_swap_open(swap[i].path, err);
        swap[i].back = old < 0 ? -1 : mnt_clone(old, "", false, 0, err);
        if (swap[i].back < 0) {
            return LAYERS_SWAP_FAILED;
        }
    }
    for (; at < count && result == LAYERS_SWAP_DONE; at++) {
        result = layers_swap_one(swap[at].path, &swap[at].tree, swap[at].back, force, park);
    }
    if (result == LAYERS_SWAP_DONE) {
        return result;
    }
    (void)err_sys(err, "take the place of /%s", swap[at - 1].path);
    for (at--; at > 0; at--) { /* those before the one that did not go */
        struct layers_swap *s = &swap[at - 1];
        if (layers_swap_one(s->path, &s->back, -1, true, park) != LAYERS_SWAP_DONE) {
            result = LAYERS_SWAP_LOST;
        }
    }
    return result;
}

void layers_swap_done(struct layers_swap *swap, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fd_close(&swap[i].tree);
        fd_close(&swap[i].back);
    }
}
