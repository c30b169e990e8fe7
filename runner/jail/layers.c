#include "layers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fd.h"
#include "layers_state.h"
#include "str.h"

#define LAYERS_EDGE 16u /* blocks that ext4 refuses to give to a file when hardly any are left */

static void layers_probe(struct layers *layers) {
    char *missing = layers->snapshots_missing[WIRE_DISK_FILE];
    layers_job_probe(layers, LAYERS_OP_PROBE_SNAPSHOTS, 0,
                     layers->snapshots_missing[WIRE_DISK_MEMORY]);
    if (layers->disk_dirfd < 0) {
        (void)snprintf(layers->files_missing, sizeof layers->files_missing,
                       "there is no directory for disk files: give the runner a state directory");
    } else {
        layers_job_probe(layers, LAYERS_OP_PROBE_FILES, 0, layers->files_missing);
    }
    if (*layers->files_missing) {
        (void)snprintf(missing, WIRE_TEXT_MAX, "%s", layers->files_missing);
    } else if (*layers->snapshots_missing[WIRE_DISK_MEMORY]) {
        layers_job_probe(layers, LAYERS_OP_PROBE_SNAPSHOTS, LAYERS_FORMAT, missing);
    } /* else: what a tmpfs can an ext4 can, and its ids were mapped a moment ago */
}

struct layers *layers_new(const struct layers_config *cfg, struct err *err) {
    struct layers *layers = calloc(1, sizeof *layers);
    if (layers == NULL) {
        (void)err_sys(err, "make room for layers");
        return NULL;
    }
    layers->loop = cfg->loop;
    layers->zygote_src.fd = -1;
    layers->disk_dirfd = cfg->disk_dirfd;
    layers->layer_bytes = cfg->layer_bytes;
    layers->lost = cfg->lost;
    layers->lost_arg = cfg->arg;
    if (layers_zygote_start(&layers->zygote, err) != 0) {
        free(layers);
        return NULL;
    }
    if (layers_job_watch(layers, err) != 0) {
        layers_zygote_stop(&layers->zygote);
        free(layers);
        return NULL;
    }
    if (cfg->rootless) {
        for (int disk = 0; disk < WIRE_DISK_COUNT; disk++) {
            (void)snprintf(layers->snapshots_missing[disk], WIRE_TEXT_MAX,
                           "snapshots need a runner that is root: an overlay keeps what was "
                           "removed in attributes that only root may write");
        }
        (void)snprintf(layers->files_missing, sizeof layers->files_missing,
                       "disk files need a runner that is root: they are loop devices");
        return layers;
    }
    layers_probe(layers);
    return layers;
}

void layers_free(struct layers *layers) {
    if (layers == NULL) {
        return;
    }
    while (layers->jobs != NULL) {
        layers_job_end(layers->jobs);
    }
    layers_aside_free(layers);
    loop_del(layers->loop, &layers->zygote_src);
    /* Everything is mounted in the name space of that process: it goes as a whole. */
    layers_zygote_stop(&layers->zygote);
    while (layers->snaps != NULL) {
        layers_drop(layers, layers->snaps->key);
    }
    while (layers->fs != NULL) {
        struct layers_fs *fs = layers->fs;
        layers->fs = fs->next;
        fd_close(&fs->root_fd);
        free(fs);
    }
    free(layers);
}

const char *layers_snapshots_missing(const struct layers *layers, enum wire_disk disk) {
    return *layers->snapshots_missing[disk] ? layers->snapshots_missing[disk] : NULL;
}

const char *layers_files_missing(const struct layers *layers) {
    return *layers->files_missing ? layers->files_missing : NULL;
}

/* ---- volumes ---- */

struct layers_volume *layers_open(struct layers *layers, const struct layers_jail *jail,
                                  struct err *err) {
    struct layers_volume *v = calloc(1, sizeof *v);
    if (v == NULL) {
        (void)err_sys(err, "remember a volume");
        return NULL;
    }
    v->layers = layers;
    v->jail = *jail;
    v->view_fd = -1;
    return v;
}

void layers_close(struct layers_volume *v) {
    if (v == NULL) {
        return;
    }
    struct layers *layers = v->layers;
    for (struct layers_job *job = layers->jobs, *next; job != NULL; job = next) {
        next = job->next;
        if (job->v == v) {
            layers_job_end(job);
        }
    }
    struct layers_fs *own = v->own;
    if (own != NULL) {
        own->owner = NULL;
        own->layers++; /* stays until we are through with it */
    }
    layers_store_drop(layers, &v->stack);
    layers_store_unref(layers, v->merged);
    if (own != NULL) {
        own->layers--;
        if (own->layers > 0) {
            layers_aside_clean(layers, own);
        }
        layers_store_fs_check(layers, own);
    }
    fd_close(&v->view_fd);
    free(v);
}

bool layers_broken(const struct layers_volume *v) {
    return v->broken;
}

int layers_upper(const struct layers_volume *v, struct err *err) {
    if (v->live == 0 || v->own == NULL || v->own->root_fd < 0) {
        return err_set(err, ERR_STATE, 0, "there is no snapshot yet");
    }
    char path[32];
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    (void)snprintf(path, sizeof path, "live/%u", v->live);
    int root = v->view_fd >= 0 ? v->view_fd : v->own->root_fd;
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    return fd < 0 ? err_sys(err, "open the live directory") : fd;
}

int layers_use(const struct layers_volume *v, uint64_t *bytes, uint64_t *inodes, bool *full) {
    struct statfs fs;
    uint64_t other_bytes = 0;
    uint64_t other_files = 0;
    bool own = v->own != NULL && v->own->root_fd >= 0;
    if (fstatfs(own ? v->own->root_fd : v->jail.writable_fd, &fs) != 0) {
        return -1;
    }
    uint64_t used = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    uint64_t files = fs.f_files - fs.f_ffree;
    uint64_t base = v->base_inodes + layers_store_overhead(v);
    layers_store_sum(&v->stack, v->own, &other_bytes, &other_files);
    *bytes = (used > v->base_bytes ? used - v->base_bytes : 0) + other_bytes;
    *inodes = (files > base ? files - base : 0) + other_files;
    *full = fs.f_bavail <= (own && v->own->in_file ? LAYERS_EDGE : 0) || fs.f_ffree == 0;
    return 0;
}

/* ---- operations ---- */

static enum wire_disk layers_disk(const struct layers_volume *v) {
    return v->own != NULL && v->own->in_file ? WIRE_DISK_FILE : WIRE_DISK_MEMORY;
}

/* What is the same for all: a job for this volume, or an answer that says why not. NULL: answered,
 * or there is no memory even for that. */
static struct layers_job *layers_begin(struct layers_volume *v, enum layers_op op,
                                       layers_done *done, void *arg) {
    struct layers_job *job = layers_job_new(v->layers, op, v, NULL);
    if (job == NULL) {
        abort(); /* a caller who waits for ever would be worse */
    }
    job->done = done;
    job->arg = arg;
    if (v->busy) {
        job->v = NULL; /* its end does not end the other's */
        layers_job_answer(job, EBUSY, "another operation is in progress");
        return NULL;
    }
    v->busy = true;
    layers_compact_stop(v);
    if (v->broken) {
        layers_job_answer(job, EIO, "an earlier operation broke the files of the sandbox");
        return NULL;
    }
    if (v->own == NULL) {
        v->own = layers_store_fs(v->layers, v, NULL);
        if (v->own == NULL) {
            layers_job_answer(job, ENOMEM, "no memory to remember a file system");
            return NULL;
        }
    }
    job->fs = v->own;
    return job;
}

static void layers_go(struct layers_job *job) {
    struct layers_volume *v = job->v;
    struct layers *layers = job->layers;
    layers_done *done = job->done;
    void *arg = job->arg;
    struct err err = {0};
    job->req.litter = v->litter;
    v->litter = 0;
    layers_job_limits(job);
    if (layers_job_start(job, &err) == 0) {
        return;
    }
    job = layers_job_new(layers, LAYERS_OP_SNAPSHOT, v, NULL);
    if (job == NULL) {
        abort();
    }
    job->done = done;
    job->arg = arg;
    layers_job_answer(job, EIO, err.text);
}

void layers_prepare(struct layers_volume *v, enum wire_disk disk, const char *from,
                    layers_done *done, void *arg) {
    struct layers *layers = v->layers;
    struct layers_job *job = layers_begin(v, LAYERS_OP_PREPARE, done, arg);
    if (job == NULL) {
        return;
    }
    const struct layers_snap *snap = *from != '\0' ? layers_store_find(layers, from) : NULL;
    if (*from != '\0' && snap == NULL) {
        layers_job_answer(job, ENOENT, "there is no such snapshot");
    } else if (snap != NULL && *layers->snapshots_missing[disk]) {
        layers_job_answer(job, ENOTSUP, layers->snapshots_missing[disk]);
    } else if (disk == WIRE_DISK_FILE && *layers->files_missing) {
        layers_job_answer(job, ENOTSUP, layers->files_missing);
    } else if (v->live != 0 || (v->own->root_fd >= 0 && disk == WIRE_DISK_FILE)) {
        layers_job_answer(job, EBUSY, "the volume is in use already");
    } else if (disk != WIRE_DISK_FILE && snap == NULL) {
        layers_job_answer(job, 0, "");
    } else {
        job->req.flags |= disk == WIRE_DISK_FILE ? LAYERS_FORMAT : 0;
        if (snap != NULL) {
            job->req.flags |= LAYERS_FROM;
            job->req.live_next = ++v->own->number;
            layers_store_copy(&job->stack, &snap->stack);
        }
        layers_go(job);
    }
}

void layers_snapshot(struct layers_volume *v, const char *key, bool quiet, layers_done *done,
                     void *arg) {
    struct layers *layers = v->layers;
    struct layers_job *job = layers_begin(v, LAYERS_OP_SNAPSHOT, done, arg);
    if (job == NULL) {
        return;
    }
    const char *missing = layers->snapshots_missing[layers_disk(v)];
    if (*missing) {
        layers_job_answer(job, ENOTSUP, missing);
    } else if (*key == '\0' || !str_copy(job->key, sizeof job->key, key) ||
               layers_store_find(layers, key) != NULL) {
        layers_job_answer(job, EEXIST, "the key of the snapshot is taken, empty or too long");
    } else if (layers->layer_bytes > 0 && layers_store_held(layers, v) >= layers->layer_bytes) {
        /* Whoever keeps snapshots counts what each has added. That is not what is left when an
         * earlier one was dropped whose layer a later one needs. */
        layers_job_answer(job, ENOSPC,
                          "the snapshots hold as much as the runner keeps (--layer-bytes)");
    } else {
        struct layers_request *req = &job->req;
        req->flags |= quiet ? LAYERS_QUIET : 0;
        req->live_next = ++v->own->number;
        req->layer = ++v->own->number;
        if (v->merged != NULL) {
            job->stack.depth = 1;
            job->stack.layer[0] = v->merged;
            layers_store_ref(v->merged);
        } else {
            layers_store_copy(&job->stack, &v->stack);
            req->merge = v->stack.depth >= LAYERS_DEPTH_MAX ? ++v->own->number : 0;
        }
        if (v->copied != NULL) {
            job->copied = v->copied;
            layers_store_ref(v->copied);
            req->copied = v->copied->number;
        }
        layers_go(job);
    }
}

void layers_restore(struct layers_volume *v, const char *key, layers_done *done, void *arg) {
    struct layers *layers = v->layers;
    struct layers_job *job = layers_begin(v, LAYERS_OP_RESTORE, done, arg);
    if (job == NULL) {
        return;
    }
    const struct layers_snap *snap = layers_store_find(layers, key);
    if (snap == NULL) {
        layers_job_answer(job, ENOENT, "there is no such snapshot");
    } else {
        job->req.live_next = ++v->own->number;
        layers_store_copy(&job->stack, &snap->stack);
        layers_go(job);
    }
}

/* ---- snapshots ---- */

bool layers_find(const struct layers *layers, const char *key, uint64_t *bytes, uint64_t *files) {
    const struct layers_snap *snap = layers_store_find(layers, key);
    uint64_t b = 0;
    uint64_t f = 0;
    if (snap == NULL) {
        return false;
    }
    layers_store_sum(&snap->stack, NULL, &b, &f);
    if (bytes != NULL) {
        *bytes = b;
    }
    if (files != NULL) {
        *files = f;
    }
    return true;
}

void layers_drop(struct layers *layers, const char *key) {
    for (struct layers_snap **p = &layers->snaps; *p != NULL; p = &(*p)->next) {
        struct layers_snap *snap = *p;
        if (strcmp(snap->key, key) == 0) {
            *p = snap->next;
            snap->stack.layer[0]->named--;
            layers_store_drop(layers, &snap->stack);
            free(snap);
            layers_compact_look(layers);
            return;
        }
    }
}

void layers_each(const struct layers *layers,
                 void (*fn)(void *arg, const char *key, uint64_t bytes, uint64_t files),
                 void *arg) {
    for (const struct layers_snap *s = layers->snaps; s != NULL; s = s->next) {
        uint64_t bytes = 0;
        uint64_t files = 0;
        layers_store_sum(&s->stack, NULL, &bytes, &files);
        fn(arg, s->key, bytes, files);
    }
}
