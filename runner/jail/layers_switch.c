#include "layers_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "layers_copy.h"
#include "layers_swap.h"
#include "mnt.h"

#define LAYERS_SWITCH_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Mounts that are to take places in the jail. */
struct layers_switch {
    struct layers_swap swap[LAYERS_PLACES];
    size_t count;
};

static bool layers_switch_has(const struct layers_work *w, const struct layers_place *place) {
    return (w->req.writable & place->bit) != 0;
}

static bool layers_switch_keeps(const struct layers_work *w, const struct layers_place *place) {
    return layers_switch_has(w, place) && (place->bit & LAYERS_KEPT) != 0;
}

int layers_switch_busy(const struct layers_work *w, struct err *err) {
    struct layers_switch s = {.count = 0};
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        if (layers_switch_keeps(w, &layers_places[i])) {
            s.swap[s.count++].path = layers_places[i].path;
        }
    }
    return layers_view_jail(w, err) != 0 ? -1 : layers_swap_busy(s.swap, s.count, err);
}

/* ---- directories ---- */

static int layers_switch_mkdir(const struct layers_work *w, const char *kind, uint32_t number,
                               mode_t mode, struct err *err) {
    char path[32];
    (void)snprintf(path, sizeof path, "%s/%u", kind, number);
    if (mkdirat(w->own, path, mode) != 0) {
        return err_sys(err, "make %s", path);
    }
    return layers_view_dir(w, kind, number, err);
}

/* A directory of the jail that has never been written to. */
static int layers_switch_fresh(const struct layers_work *w, int dir,
                               const struct layers_place *place, struct err *err) {
    uid_t owner = w->req.id_base + place->owner;
    if (mkdirat(dir, place->name, 0700) != 0 ||
        fchownat(dir, place->name, owner, owner, AT_SYMLINK_NOFOLLOW) != 0 ||
        fchmodat(dir, place->name, place->mode, 0) != 0) {
        return err_sys(err, "make directory %s", place->name);
    }
    return 0;
}

/* As the uppermost layer has it that has it at all. */
static int layers_switch_like(const struct layers_work *w, int dir,
                              const struct layers_place *place, struct err *err) {
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    for (uint32_t i = 0; i < w->req.depth; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "f%u/layers/%u/%s", w->req.stack[i].fs,
                       w->req.stack[i].number, place->name);
        fd_cleanup int from = (int)syscall(SYS_openat2, w->scratch, path, &how, sizeof how);
        if (from >= 0) {
            return layers_copy_dir(from, dir, place->name, err);
        }
        if (errno != ENOENT) {
            return err_sys(err, "open %s", path);
        }
    }
    return layers_switch_fresh(w, dir, place, err);
}

/* A new live directory and what its overlay needs. `layer`: where owners and modes of the
 * directories come from; -1 = the layers of the request. */
static int layers_switch_live(const struct layers_work *w, int layer, struct err *err) {
    fd_cleanup int live = layers_switch_mkdir(w, "live", w->req.live_next, 0755, err);
    fd_cleanup int work =
        live < 0 ? -1 : layers_switch_mkdir(w, "work", w->req.live_next, 0700, err);
    if (work < 0) {
        return -1;
    }
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        const struct layers_place *place = &layers_places[i];
        if (!layers_switch_keeps(w, place)) {
            continue;
        }
        int rc = -1;
        if (layer >= 0) {
            fd_cleanup int from =
                openat(layer, place->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            rc = from < 0 ? err_sys(err, "open %s", place->name)
                          : layers_copy_dir(from, live, place->name, err);
        } else {
            rc = layers_switch_like(w, live, place, err);
        }
        if (rc != 0) {
            return -1;
        }
    }
    return 0;
}

/* Best effort: what is left goes with the file system. */
static void layers_switch_put_aside(const struct layers_work *w, const char *kind,
                                    uint32_t number) {
    char from[32];
    char to[32];
    (void)snprintf(from, sizeof from, "%s/%u", kind, number);
    (void)snprintf(to, sizeof to, "trash/%s%u", kind, number);
    (void)renameat(w->own, from, w->own, to);
}

/* The old live directory is not needed any more. */
static void layers_switch_discard(const struct layers_work *w) {
    char to[32];
    if (w->req.live != 0) {
        layers_switch_put_aside(w, "live", w->req.live);
        layers_switch_put_aside(w, "work", w->req.live);
        return;
    }
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        if (layers_switch_keeps(w, &layers_places[i])) {
            (void)snprintf(to, sizeof to, "trash/%s%u", layers_places[i].name, w->req.live_next);
            (void)renameat(w->own, layers_places[i].name, w->own, to);
        }
    }
}

/* ---- the live directory becomes a layer, or is itself again ---- */

static int layers_switch_move_dirs(const struct layers_work *w, int from, int to, struct err *err) {
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        const char *name = layers_places[i].name;
        if (layers_switch_keeps(w, &layers_places[i]) && renameat(from, name, to, name) != 0) {
            return err_sys(err, "move directory %s", name);
        }
    }
    return 0;
}

/* -> directory of the layer */
static int layers_switch_freeze(const struct layers_work *w, struct err *err) {
    char from[32];
    char to[32];
    (void)snprintf(to, sizeof to, "layers/%u", w->req.layer);
    if (w->req.live != 0) {
        (void)snprintf(from, sizeof from, "live/%u", w->req.live);
        if (renameat(w->own, from, w->own, to) != 0) {
            return err_sys(err, "move the live directory");
        }
        return layers_view_dir(w, "layers", w->req.layer, err);
    }
    fd_cleanup int layer = layers_switch_mkdir(w, "layers", w->req.layer, 0755, err);
    if (layer < 0 || layers_switch_move_dirs(w, w->own, layer, err) != 0) {
        return -1;
    }
    return fd_steal(&layer);
}

/* Whatever of layers_switch_freeze() was done. -1 when it cannot be undone. */
static int layers_switch_thaw(const struct layers_work *w) {
    char from[32];
    char to[32];
    (void)snprintf(from, sizeof from, "layers/%u", w->req.layer);
    if (w->req.live != 0) {
        (void)snprintf(to, sizeof to, "live/%u", w->req.live);
        return renameat(w->own, from, w->own, to) == 0 || errno == ENOENT ? 0 : -1;
    }
    fd_cleanup int layer = layers_view_dir(w, "layers", w->req.layer, NULL);
    if (layer < 0) {
        return 0; /* it did not come that far */
    }
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        const char *name = layers_places[i].name;
        if (layers_switch_keeps(w, &layers_places[i]) && renameat(layer, name, w->own, name) != 0 &&
            errno != ENOENT) {
            return -1;
        }
    }
    (void)unlinkat(w->own, from, AT_REMOVEDIR);
    return 0;
}

/* ---- mounts ---- */

static int layers_switch_add(struct layers_switch *s, int dir, const char *path,
                             const struct layers_place *place, struct err *err) {
    struct layers_swap *swap = &s->swap[s->count];
    swap->path = place->path;
    swap->back = -1;
    swap->tree = mnt_clone(dir, path, false, LAYERS_SWITCH_ATTRS, err);
    if (swap->tree < 0) {
        return -1;
    }
    s->count++;
    return 0;
}

/* The overlay, a mount of each of its directories. */
static int layers_switch_overlay(const struct layers_work *w, struct layers_switch *s, uint32_t top,
                                 struct err *err) {
    if (layers_view_overlay(w, "new", top, w->req.live_next, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        const struct layers_place *place = &layers_places[i];
        char path[32];
        (void)snprintf(path, sizeof path, "new/%s", place->name);
        if (layers_switch_keeps(w, place) &&
            layers_switch_add(s, w->scratch, path, place, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static enum layers_swap_result layers_switch_swap(const struct layers_work *w,
                                                  struct layers_switch *s, bool force,
                                                  struct err *err) {
    static const char name[] = "park";
    int base = w->fd[LAYERS_FD_WRITABLE];
    enum layers_swap_result result = LAYERS_SWAP_FAILED;
    (void)mkdirat(base, name, 0700); /* a full disk has no room for it, and it is not necessary */
    {
        fd_cleanup int park = mnt_open_target(base, name, S_IFDIR, NULL);
        if (layers_view_jail(w, err) == 0) {
            result = layers_swap_all(s->swap, s->count, force, park, err);
        }
    }
    (void)unlinkat(base, name, AT_REMOVEDIR);
    return result;
}

static int layers_switch_lost(struct layers_work *w, struct err *err) {
    w->reply.flags |= LAYERS_BROKEN;
    (void)err_wrap(err, "the sandbox cannot go on, its files lost their place");
    if (err != NULL) {
        err->code = EIO;
    }
    return -1;
}

/* ---- operations ---- */

static int layers_switch_try(struct layers_work *w, struct layers_switch *s, struct err *err) {
    fd_cleanup int layer = layers_switch_freeze(w, err);
    if (layer < 0 || layers_switch_live(w, layer, err) != 0 ||
        layers_switch_overlay(w, s, w->req.layer, err) != 0) {
        return LAYERS_SWAP_FAILED;
    }
    return (int)layers_switch_swap(w, s, false, err);
}

int layers_switch_snapshot(struct layers_work *w, struct err *err) {
    struct layers_switch s = {.count = 0};
    int result = layers_switch_try(w, &s, err);
    layers_swap_done(s.swap, s.count);
    if (result == LAYERS_SWAP_DONE) {
        w->reply.flags |= LAYERS_SWITCHED | LAYERS_LAYER;
        layers_switch_put_aside(w, "work", w->req.live);
        return 0;
    }
    if (layers_switch_thaw(w) != 0 || result == LAYERS_SWAP_LOST) {
        return layers_switch_lost(w, err);
    }
    layers_switch_put_aside(w, "live", w->req.live_next);
    layers_switch_put_aside(w, "work", w->req.live_next);
    return result == LAYERS_SWAP_BUSY ? 1 : -1;
}

static int layers_switch_scratch(const struct layers_work *w, struct layers_switch *s,
                                 struct err *err) {
    /* On a new file system these have no directory yet. */
    for (size_t i = 0; (w->req.flags & LAYERS_FORMAT) && i < LAYERS_PLACES; i++) {
        const struct layers_place *place = &layers_places[i];
        bool kept = (place->bit & LAYERS_KEPT) && (w->req.flags & LAYERS_FROM);
        if (layers_switch_has(w, place) && !kept &&
            (layers_switch_fresh(w, w->own, place, err) != 0 ||
             layers_switch_add(s, w->own, place->name, place, err) != 0)) {
            return -1;
        }
    }
    return 0;
}

static int layers_switch_force(struct layers_work *w, struct layers_switch *s, struct err *err) {
    enum layers_swap_result result = layers_switch_swap(w, s, true, err);
    if (result == LAYERS_SWAP_LOST) {
        return layers_switch_lost(w, err);
    }
    return result == LAYERS_SWAP_DONE ? 0 : -1;
}

int layers_switch_restore(struct layers_work *w, struct err *err) {
    struct layers_switch s = {.count = 0};
    int rc = layers_switch_scratch(w, &s, err);
    if (rc == 0) {
        rc = layers_switch_live(w, -1, err);
    }
    if (rc == 0) {
        rc = layers_switch_overlay(w, &s, 0, err);
    }
    if (rc == 0) {
        rc = layers_switch_force(w, &s, err);
    }
    layers_swap_done(s.swap, s.count);
    if (rc != 0) {
        layers_switch_put_aside(w, "live", w->req.live_next);
        layers_switch_put_aside(w, "work", w->req.live_next);
        return -1;
    }
    w->reply.flags |= LAYERS_SWITCHED;
    layers_switch_discard(w);
    return 0;
}

int layers_switch_plain(struct layers_work *w, struct err *err) {
    struct layers_switch s = {.count = 0};
    int rc = layers_switch_scratch(w, &s, err);
    if (rc == 0) {
        rc = layers_switch_force(w, &s, err);
    }
    layers_swap_done(s.swap, s.count);
    return rc;
}
