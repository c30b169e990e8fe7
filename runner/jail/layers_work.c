#include "layers_work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fd.h"
#include "layers_copy.h"
#include "layers_maps.h"
#include "layers_trash.h"
#include "layers_walk.h"
#include "layers_worker.h"

/* Inodes for one more layer, a merged one, a live directory and directories for links. */
#define LAYERS_WORK_SPARE 24u
#define LAYERS_WORK_NICE 10

/* ---- the request ---- */

static int layers_work_check(const struct layers_work *w, struct err *err) {
    const struct layers_request *req = &w->req;
    bool ok = req->op > 0 && req->op < LAYERS_OP_COUNT && req->depth <= LAYERS_DEPTH_MAX &&
              req->fs_count <= LAYERS_FS_MAX && req->fds == LAYERS_FD_FS + req->fs_count;
    for (uint32_t i = 0; ok && i < req->depth; i++) {
        ok = req->stack[i].fs < req->fs_count;
    }
    return ok ? 0 : err_set(err, ERR_PROTOCOL, EPROTO, "a request for layers makes no sense");
}

static int layers_work_receive(struct layers_work *w, struct err *err) {
    struct layers_request *req = &w->req;
    size_t have = 0;
    uint32_t op;
    do {
        int fds[FD_PASS_MAX];
        size_t n = 0;
        void *data = have == 0 ? (void *)req : (void *)&op;
        size_t size = have == 0 ? sizeof *req : sizeof op;
        if (fd_recv(w->home->sock, data, size, fds, &n, NULL, err) != (ssize_t)size ||
            have + n > LAYERS_FDS_MAX || n == 0) {
            return err_set(err, ERR_PROTOCOL, EPROTO, "a request for layers was cut short");
        }
        memcpy(w->fd + have, fds, n * sizeof *fds);
        have += n;
    } while (have < req->fds);
    return layers_work_check(w, err);
}

/* What a caller can be told apart from "something went wrong". */
static int layers_work_code(const struct err *err) {
    switch (err->code) {
    case ENOSPC:
    case EDQUOT:
        return ENOSPC;
    case ENOENT:
    case ENOTSUP:
        return err->code;
    default:
        return EIO;
    }
}

static void layers_work_answer(struct layers_work *w, int rc, const struct err *err) {
    w->reply.type = LAYERS_REPLY;
    if (rc != 0) {
        w->reply.code = layers_work_code(err);
        (void)snprintf(w->reply.text, sizeof w->reply.text, "%s", err->text);
    }
    const int fds[2] = {w->own_root, w->own};
    size_t count = w->own_root < 0 ? 0 : w->req.flags & LAYERS_FORMAT && w->own >= 0 ? 2 : 1;
    w->reply.flags |= count > 0 ? LAYERS_OWN : 0;
    if (fd_send(w->home->sock, &w->reply, sizeof w->reply, fds, count, NULL) != 0) {
        _exit(1);
    }
}

/* ---- snapshot ---- */

/* Built beside the layers, so that a layer is whole or not there. */
static int layers_work_finish(const struct layers_work *w, uint32_t number, struct err *err) {
    char from[32];
    char to[32];
    (void)snprintf(from, sizeof from, "live/%u", number);
    (void)snprintf(to, sizeof to, "layers/%u", number);
    return renameat(w->own, from, w->own, to) == 0 ? 0 : err_sys(err, "put a layer in place");
}

static int layers_work_build(const struct layers_work *w, uint32_t number, struct err *err) {
    char path[32];
    (void)snprintf(path, sizeof path, "live/%u", number);
    if (mkdirat(w->own, path, 0755) != 0) {
        return err_sys(err, "make a layer");
    }
    return layers_view_dir(w, "live", number, err);
}

/* One directory of a new layer: with what the layers `before` have in its place. */
static int layers_work_copy_place(struct layers_copy *copy, const struct layers_place *place,
                                  int from, const int *before, size_t count, int layer,
                                  struct err *err) {
    int old[LAYERS_DEPTH_MAX];
    fd_cleanup int dir = layers_walk_open(from, place->name);
    if (dir < 0) {
        /* What is merged may be of a jail that had no such place. */
        return errno == ENOENT ? 0 : err_sys(err, "open %s", place->name);
    }
    for (size_t i = 0; i < count; i++) {
        old[i] = before[i] < 0 ? -1 : layers_walk_open(before[i], place->name);
    }
    int rc = layers_copy_tree(copy, dir, old, count, layer, place->name, err);
    while (count > 0) {
        fd_close(&old[--count]);
    }
    return rc;
}

/* The directories of `from` become layer `number`. */
static int layers_work_copy_into(const struct layers_work *w, struct layers_copy *copy, int from,
                                 const int *before, size_t count, uint32_t number,
                                 struct err *err) {
    char links[32];
    fd_cleanup int layer = layers_work_build(w, number, err);
    (void)snprintf(links, sizeof links, "trash/links%u", number);
    if (layer < 0) {
        return -1;
    }
    if (mkdirat(w->own, links, 0700) != 0) {
        return err_sys(err, "make a directory for links");
    }
    fd_cleanup int link = openat(w->own, links, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    copy->links = link;
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        const struct layers_place *place = &layers_places[i];
        if ((place->bit & LAYERS_KEPT & w->req.writable) &&
            layers_work_copy_place(copy, place, from, before, count, layer, err) != 0) {
            return -1;
        }
    }
    return layers_work_finish(w, number, err);
}

static void layers_work_abandon(const struct layers_work *w, uint32_t number) {
    char from[32];
    char to[32];
    (void)snprintf(from, sizeof from, "live/%u", number);
    (void)snprintf(to, sizeof to, "trash/layer%u", number);
    (void)renameat(w->own, from, w->own, to);
}

static int layers_work_copy(struct layers_work *w, struct err *err) {
    struct layers_mapped mapped;
    fd_cleanup int live = w->req.live == 0 ? openat(w->own, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                           : layers_view_dir(w, "live", w->req.live, err);
    fd_cleanup int before =
        w->req.copied == 0 ? -1 : layers_view_dir(w, "layers", w->req.copied, NULL);
    if (live < 0) {
        return err_sys(err, "open the live directory");
    }
    if (layers_maps_find(w->proc, w->req.pid, live, &mapped, err) != 0) {
        return -1;
    }
    struct layers_copy copy = {.live = true, .steady = true, .mapped = &mapped};
    int rc = layers_work_copy_into(w, &copy, live, &before, 1, w->req.layer, err);
    layers_maps_done(&mapped);
    if (rc != 0) {
        layers_work_abandon(w, w->req.layer);
        return -1;
    }
    w->reply.flags |= LAYERS_LAYER | LAYERS_LINKABLE;
    w->reply.linked_bytes = copy.linked_bytes;
    return 0;
}

/* The directories of a layer: itself and those of the jail are not counted. */
static int layers_work_count(const struct layers_work *w, uint32_t number, uint64_t *bytes,
                             uint64_t *files, struct err *err) {
    fd_cleanup int layer = layers_view_dir(w, "layers", number, err);
    uint64_t tops = 0;
    if (layer < 0 || layers_walk_count(layer, bytes, files, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < LAYERS_PLACES; i++) {
        tops += (layers_places[i].bit & LAYERS_KEPT & w->req.writable) != 0;
    }
    *files -= tops < *files ? tops : *files;
    return 0;
}

/* A snapshot that was made must not fail for its size: then it holds all that there is. */
static void layers_work_size(const struct layers_work *w, uint32_t number, uint64_t *bytes,
                             uint64_t *files) {
    struct statfs fs;
    if (layers_work_count(w, number, bytes, files, NULL) != 0 && fstatfs(w->own, &fs) == 0) {
        *bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        *files = fs.f_files - fs.f_ffree;
    }
}

/* What the snapshot will stand on becomes one layer. It holds what the many do, so that the live
 * directory, whose changes go on meanwhile, may lie over either. */
static int layers_work_merge(struct layers_work *w, struct err *err) {
    if (layers_view_overlay(w, "merged", 0, 0, err) != 0) {
        return -1;
    }
    fd_cleanup int from = openat(w->scratch, "merged", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0) {
        return err_sys(err, "open the merged layers");
    }
    struct layers_copy copy = {.live = false, .steady = false};
    int before[LAYERS_DEPTH_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->req.depth; i++) {
        if (w->req.stack[i].fs == 0) {
            before[count++] = layers_view_dir(w, "layers", w->req.stack[i].number, NULL);
        }
    }
    int rc = layers_work_copy_into(w, &copy, from, before, count, w->req.merge, err);
    while (count > 0) {
        fd_close(&before[--count]);
    }
    if (rc != 0) {
        layers_work_abandon(w, w->req.merge);
        return err_wrap(err, "merge layers");
    }
    layers_work_size(w, w->req.merge, &w->reply.merge_bytes, &w->reply.merge_files);
    w->reply.flags |= LAYERS_MERGED;
    w->req.depth = 1;
    w->req.stack[0] = (struct layers_request_layer){.fs = 0, .number = w->req.merge};
    return 0;
}

static int layers_work_open(struct layers_work *w, struct err *err) {
    if (layers_view_open(w, err) != 0) {
        return -1;
    }
    if (w->req.litter != 0) {
        char from[32];
        char to[32];
        (void)snprintf(from, sizeof from, "layers/%u", w->req.litter); /* it came that far */
        (void)snprintf(to, sizeof to, "trash/litter%u", w->req.litter);
        (void)renameat(w->own, from, w->own, to);
        layers_work_abandon(w, w->req.litter);
    }
    return 0;
}

/* While nobody waits. Whoever needs the volume ends this. */
static int layers_work_compact(struct layers_work *w, struct err *err) {
    (void)setpriority(PRIO_PROCESS, 0, LAYERS_WORK_NICE);
    if (layers_work_open(w, err) != 0 || layers_view_resize(w, w->req.merge_room, err) != 0) {
        return -1;
    }
    return layers_work_merge(w, err);
}

static int layers_work_snapshot(struct layers_work *w, struct err *err) {
    int busy = w->req.flags & LAYERS_QUIET ? layers_switch_busy(w, err) : 1;
    if (busy < 0 || layers_work_open(w, err) != 0 ||
        layers_view_resize(w, LAYERS_WORK_SPARE + w->req.merge_room, err) != 0) {
        return -1;
    }
    if (w->req.merge != 0 && layers_work_merge(w, err) != 0) {
        return -1;
    }
    if (busy == 0) {
        busy = layers_switch_snapshot(w, err);
    }
    if (busy < 0 || (busy > 0 && layers_work_copy(w, err) != 0)) {
        return -1;
    }
    layers_work_size(w, w->req.layer, &w->reply.layer_bytes, &w->reply.layer_files);
    return 0;
}

/* ---- restore ---- */

static void layers_work_tidy(const struct layers_work *w) {
    fd_cleanup int trash = w->own < 0 ? -1 : layers_walk_open(w->own, "trash");
    if (trash >= 0) {
        layers_trash_empty(trash);
    }
}

/* What the directories hold that a restore discards. */
static uint64_t layers_work_discarded(const struct layers_work *w) {
    fd_cleanup int live = w->req.live == 0 ? openat(w->own, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                           : layers_view_dir(w, "live", w->req.live, NULL);
    uint64_t sum = 0;
    for (size_t i = 0; live >= 0 && i < LAYERS_PLACES; i++) {
        uint64_t bytes = 0;
        uint64_t files = 0;
        fd_cleanup int dir = layers_places[i].bit & LAYERS_KEPT & w->req.writable
                                 ? layers_walk_open(live, layers_places[i].name)
                                 : -1;
        if (dir >= 0 && layers_walk_count(dir, &bytes, &files, NULL) == 0) {
            sum += bytes;
        }
    }
    return sum;
}

/* What is there now and will be gone makes room for the snapshot. */
static bool layers_work_room_later(const struct layers_work *w) {
    struct statfs fs;
    if (w->req.disk_bytes <= w->req.other_bytes || fstatfs(w->own, &fs) != 0) {
        return false;
    }
    uint64_t used = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    uint64_t gone = layers_work_discarded(w);
    return used - (gone < used ? gone : used) <= w->req.disk_bytes - w->req.other_bytes;
}

static int layers_work_restore(struct layers_work *w, struct err *err) {
    if (layers_work_open(w, err) != 0) {
        return -1;
    }
    bool later = false;
    if (layers_view_resize(w, LAYERS_WORK_SPARE, err) != 0) {
        if (err->code != ENOSPC || !layers_work_room_later(w)) {
            return -1;
        }
        later = true;
    }
    if (layers_switch_restore(w, err) != 0) {
        return -1;
    }
    if (later) {
        layers_work_tidy(w);
        if (layers_view_resize(w, LAYERS_WORK_SPARE, err) != 0) {
            w->reply.flags |= LAYERS_BROKEN;
            return err_wrap(err, "the sandbox cannot go on, it is larger than its limit");
        }
    }
    return 0;
}

static int layers_work_prepare(struct layers_work *w, struct err *err) {
    if (w->req.flags & LAYERS_FORMAT) {
        fd_cleanup int tree = layers_disk_make(w, err);
        if (tree < 0 || layers_view_keep(w, tree, err) != 0) {
            return -1;
        }
        w->req.in_file = 1;
    }
    if (layers_view_open(w, err) != 0 || layers_view_resize(w, LAYERS_WORK_SPARE, err) != 0) {
        return -1;
    }
    int rc =
        w->req.flags & LAYERS_FROM ? layers_switch_restore(w, err) : layers_switch_plain(w, err);
    struct statfs fs;
    if (rc == 0 && (w->req.flags & LAYERS_FORMAT)) {
        if (fstatfs(w->own, &fs) != 0) {
            return err_sys(err, "examine the new file system");
        }
        w->reply.base_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        w->reply.base_inodes = fs.f_files - fs.f_ffree;
    }
    return rc;
}

/* ---- what no jail waits for ---- */

/* Into the file system for good: nothing outside of it can be named any more. Its root belongs to
 * the root of the jail, the only one whose ids it knows for sure. */
static int layers_work_enter(struct layers_work *w, struct err *err) {
    struct stat st;
    w->own = openat(w->fd[LAYERS_FD_FS], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->own < 0 || fchdir(w->own) != 0 || chroot(".") != 0) {
        return err_sys(err, "enter a file system");
    }
    if (fstat(w->own, &st) != 0) {
        return err_sys(err, "examine a file system");
    }
    return layers_view_ids(st.st_uid, false, err);
}

static int layers_work_remove(struct layers_work *w, struct err *err) {
    char from[32];
    char to[32];
    if (layers_work_enter(w, err) != 0) {
        return -1;
    }
    (void)snprintf(from, sizeof from, "layers/%u", w->req.layer);
    (void)snprintf(to, sizeof to, "trash/gone%u", w->req.layer);
    return renameat(w->own, from, w->own, to) == 0 ? 0 : err_sys(err, "put a layer aside");
}

static int layers_work_clean(struct layers_work *w, struct err *err) {
    static const char *const names[] = {"home",      "tmp",  "var_tmp", "shm",
                                        "workspace", "live", "work",    "park"};
    if (layers_work_enter(w, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char to[32];
        (void)snprintf(to, sizeof to, "trash/%s", names[i]);
        (void)renameat(w->own, names[i], w->own, to);
    }
    return 0;
}

static int layers_work_forget(struct layers_work *w, struct err *err) {
    char name[32];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)w->req.fs[0].id);
    if (fchdir(w->home->store) != 0) {
        return err_sys(err, "enter the directory of file systems");
    }
    while (umount2(name, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
        /* a worker that died may have mounted it without anybody knowing */
    }
    (void)unlinkat(w->home->store, name, AT_REMOVEDIR);
    return 0;
}

/* What was given beside for the work itself is taken back: all of it, or what is not in use. */
static void layers_work_trim(const struct layers_work *w) {
    struct statfs fs;
    if (w->own >= 0 && w->req.op >= LAYERS_OP_PREPARE && w->req.op <= LAYERS_OP_MERGE &&
        layers_view_resize(w, 0, NULL) != 0 && fstatfs(w->own, &fs) == 0) {
        uint64_t most = LAYERS_WORK_SPARE + w->req.merge_room;
        (void)layers_view_resize(w, (uint32_t)(fs.f_ffree < most ? most - fs.f_ffree : 0), NULL);
    }
}

static int layers_work_run_op(struct layers_work *w, struct err *err) {
    static int (*const ops[LAYERS_OP_COUNT])(struct layers_work *, struct err *) = {
        [LAYERS_OP_PROBE_SNAPSHOTS] = layers_probe_snapshots,
        [LAYERS_OP_PROBE_FILES] = layers_probe_files,
        [LAYERS_OP_PREPARE] = layers_work_prepare,
        [LAYERS_OP_SNAPSHOT] = layers_work_snapshot,
        [LAYERS_OP_RESTORE] = layers_work_restore,
        [LAYERS_OP_MERGE] = layers_work_compact,
        [LAYERS_OP_REMOVE] = layers_work_remove,
        [LAYERS_OP_CLEAN] = layers_work_clean,
        [LAYERS_OP_FORGET] = layers_work_forget,
    };
    return ops[w->req.op](w, err);
}

void layers_work_run(const struct layers_home *home) {
    struct layers_work w = {
        .home = home, .own_root = -1, .scratch_ns = -1, .scratch = -1, .own = -1};
    struct err err = {0};
    memset(w.fd, 0xff, sizeof w.fd);
    w.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    w.proc_self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    w.sys = open("/sys", O_PATH | O_DIRECTORY | O_CLOEXEC); /* not everybody needs it */
    int rc = layers_work_receive(&w, &err);
    if (rc == 0) {
        rc = w.proc < 0 || w.proc_self < 0 ? err_sys(&err, "open /proc")
                                           : layers_work_run_op(&w, &err);
    }
    layers_work_trim(&w);
    layers_work_answer(&w, rc, &err);
    (void)setpriority(PRIO_PROCESS, 0, LAYERS_WORK_NICE); /* nobody waits for the rest */
    if (w.scratch >= 0 && layers_view_confine(&w, NULL) != 0) {
        _exit(1);
    }
    layers_work_tidy(&w);
    _exit(0);
}
