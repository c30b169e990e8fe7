#include "layers_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

#define LAYERS_PROBE_MS 10000

struct layers_job *layers_job_new(struct layers *layers, enum layers_op op, struct layers_volume *v,
                                  struct err *err) {
    struct layers_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        (void)err_sys(err, "remember a piece of work");
        return NULL;
    }
    job->layers = layers;
    job->v = v;
    job->sock = job->pidfd = job->theirs = job->src.fd = -1;
    job->req.op = op;
    if (v != NULL) {
        job->req.pid = v->jail.pid;
        job->req.writable = v->jail.writable;
        job->req.id_base = v->jail.id_base;
        job->req.disk_bytes = v->jail.disk_bytes;
        job->req.inodes = v->jail.inodes;
        job->req.live = v->live;
    }
    job->next = layers->jobs;
    layers->jobs = job;
    return job;
}

void layers_job_limits(struct layers_job *job) {
    const struct layers_volume *v = job->v;
    struct layers_request *req = &job->req;
    uint64_t bytes = 0;
    uint64_t files = 0;
    layers_store_sum(&job->stack, v->own, &req->other_bytes, &req->other_files);
    layers_store_sum(&job->stack, NULL, &bytes, &files);
    req->merge_room = req->merge == 0          ? 0
                      : files < UINT32_MAX / 2 ? (uint32_t)files
                                               : UINT32_MAX / 2;
    req->own_layers = v->own->layers;
    req->in_file = v->own->in_file;
    if (v->own->root_fd < 0 && !(req->flags & LAYERS_FORMAT)) {
        req->flags |= LAYERS_ADOPT;
    }
    v->own->asked = true;
}

static void layers_job_free(struct layers_job *job) {
    struct layers *layers = job->layers;
    for (struct layers_job **p = &layers->jobs; *p != NULL; p = &(*p)->next) {
        if (*p == job) {
            *p = job->next;
            break;
        }
    }
    loop_del(layers->loop, &job->src);
    loop_defer_stop(layers->loop, &job->defer);
    fd_close(&job->sock);
    fd_close(&job->pidfd);
    fd_close(&job->theirs);
    layers_store_drop(layers, &job->stack);
    layers_store_unref(layers, job->copied);
    if (job->aside) {
        layers_aside_ended(layers);
    }
    free(job);
}

void layers_job_end(struct layers_job *job) {
    if (job->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, job->pidfd, SIGKILL, NULL, 0);
    }
    layers_job_free(job);
}

/* ---- what comes back ---- */

static void layers_job_event(void *arg, uint32_t events) {
    struct layers_job *job = arg;
    union {
        struct layers_birth birth;
        struct layers_reply reply;
    } msg;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    (void)events;
    memset(&msg, 0, sizeof msg);
    ssize_t n = fd_recv(job->sock, &msg, sizeof msg, fds, &nfds, NULL, NULL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n == (ssize_t)sizeof msg.birth && msg.birth.type == LAYERS_BIRTH && nfds == 1) {
        fd_close(&job->pidfd);
        job->pidfd = fd_steal(&fds[0]);
    } else if (n == (ssize_t)sizeof msg.reply && msg.reply.type == LAYERS_REPLY) {
        msg.reply.text[sizeof msg.reply.text - 1] = '\0';
        layers_done_take(job, &msg.reply, fds, nfds);
    } else {
        n = 0; /* the end, or nonsense, which is the end as well */
    }
    for (size_t i = 0; i < nfds; i++) {
        fd_close(&fds[i]);
    }
    if (n <= 0) {
        loop_del(job->layers->loop, &job->src);
        layers_done_take(job, NULL, NULL, 0);
        layers_job_free(job);
    }
}

static void layers_job_deferred(void *arg) {
    struct layers_job *job = arg;
    layers_done *done = job->done;
    void *done_arg = job->arg;
    struct layers_result result = job->result;
    if (job->v != NULL) {
        job->v->busy = false;
    }
    layers_job_free(job);
    done(done_arg, &result);
}

void layers_job_answer(struct layers_job *job, int code, const char *text) {
    job->result.code = code;
    (void)snprintf(job->result.text, sizeof job->result.text, "%s", text);
    loop_defer(job->layers->loop, &job->defer, layers_job_deferred, job);
}

/* ---- sending it off ---- */

/* Which number in req.fs has this one? */
static uint32_t layers_job_fs(struct layers_job *job, const struct layers_fs *fs, int *fds) {
    struct layers_request *req = &job->req;
    for (uint32_t i = 0; i < req->fs_count; i++) {
        if (req->fs[i].id == fs->id) {
            return i;
        }
    }
    uint32_t i = req->fs_count++;
    req->fs[i].id = fs->id;
    req->fs[i].mapped = fs->in_file || job->v == NULL || job->v->own != fs;
    fds[LAYERS_FD_FS + i] = fs->root_fd;
    return i;
}

static int layers_job_ns(const struct layers_job *job, const char *name, struct err *err) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)job->req.pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open %s of the jail", name) : fd;
}

/* Somebody else waits for process 1 of a container, and then its number may stand for any process.
 * As long as it lives what was opened by that number is its own. */
static int layers_job_alive(const struct layers_job *job, struct err *err) {
    struct pollfd died = {.fd = job->v->jail.pidfd, .events = POLLIN};
    return died.fd == 0 || poll(&died, 1, 0) == 0
               ? 0
               : err_set(err, ERR_STATE, ESRCH, "process 1 of the jail has ended");
}

static int layers_job_send(struct layers_job *job, int *fds, struct err *err) {
    size_t count = LAYERS_FD_FS + job->req.fs_count;
    job->req.fds = (uint32_t)count;
    for (size_t at = 0; at < count; at += FD_PASS_MAX) {
        size_t n = count - at < FD_PASS_MAX ? count - at : FD_PASS_MAX;
        for (size_t i = at; i < at + n; i++) {
            fds[i] = fds[i] < 0 ? job->sock : fds[i]; /* a placeholder, which is not used */
        }
        const void *data = at == 0 ? (const void *)&job->req : (const void *)&job->req.op;
        size_t len = at == 0 ? sizeof job->req : sizeof job->req.op;
        if (fd_send(job->sock, data, len, fds + at, n, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static int layers_job_fill(struct layers_job *job, int ns[2], int *fds, struct err *err) {
    memset(fds, 0xff, LAYERS_FDS_MAX * sizeof *fds);
    if (job->v != NULL) {
        ns[0] = layers_job_ns(job, "mnt", err);
        ns[1] = ns[0] < 0 ? -1 : layers_job_ns(job, "user", err);
        if (ns[1] < 0 || layers_job_alive(job, err) != 0) {
            return -1;
        }
        fds[LAYERS_FD_MNT] = ns[0];
        fds[LAYERS_FD_USER] = ns[1];
        fds[LAYERS_FD_WRITABLE] = job->v->jail.writable_fd;
    }
    fds[LAYERS_FD_DISK] = job->layers->disk_dirfd;
    if (job->fs != NULL) {
        (void)layers_job_fs(job, job->fs, fds);
    }
    for (uint32_t i = 0; i < job->stack.depth; i++) {
        const struct layers_layer *layer = job->stack.layer[i];
        job->req.stack[i].fs = layers_job_fs(job, layer->fs, fds);
        job->req.stack[i].number = layer->number;
    }
    job->req.depth = job->stack.depth;
    return 0;
}

static int layers_job_sock(struct layers_job *job, int *theirs, struct err *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "make a socket pair for a worker");
    }
    job->sock = pair[0];
    *theirs = pair[1];
    return 0;
}

/* 0 also when its socket is full: then the worker is forked later. */
static int layers_job_fork(struct layers_job *job, struct err *err) {
    struct layers *layers = job->layers;
    int rc = layers_zygote_fork(&layers->zygote, job->theirs, err);
    if (rc > 0 && layers->crowded) {
        return 0;
    }
    if (rc > 0) {
        rc = loop_mod(layers->loop, &layers->zygote_src, EPOLLOUT, err);
        layers->crowded = rc == 0;
        return rc;
    }
    fd_close(&job->theirs); /* so that the end of the worker is the end of the file */
    return rc;
}

static void layers_job_room(struct layers *layers) {
    for (struct layers_job *job = layers->jobs; job != NULL; job = job->next) {
        /* A job whose end is closed hears of it by itself. */
        if (job->theirs >= 0 && layers_job_fork(job, NULL) == 0 && job->theirs >= 0) {
            return;
        }
    }
    layers->crowded = false;
    (void)loop_mod(layers->loop, &layers->zygote_src, 0, NULL);
}

/* It says nothing by itself: there is room again, or it is gone, and what was mounted in its mount
 * namespace with it. Nothing that was made of it can go on. */
static void layers_job_zygote(void *arg, uint32_t events) {
    struct layers *layers = arg;
    if (!(events & (EPOLLHUP | EPOLLERR))) {
        layers_job_room(layers);
        return;
    }
    loop_del(layers->loop, &layers->zygote_src);
    if (layers->lost != NULL) {
        layers->lost(layers->lost_arg);
    }
}

int layers_job_watch(struct layers *layers, struct err *err) {
    return loop_add(layers->loop, &layers->zygote_src, layers->zygote.sock, 0, layers_job_zygote,
                    layers, err);
}

static int layers_job_launch(struct layers_job *job, int *fds, struct err *err) {
    if (layers_job_sock(job, &job->theirs, err) != 0 || layers_job_send(job, fds, err) != 0) {
        return -1;
    }
    if (fcntl(job->sock, F_SETFL, O_NONBLOCK) != 0) {
        return err_sys(err, "prepare the socket of a worker");
    }
    /* Watched first: once the worker is there, nothing may fail any more. */
    if (loop_add(job->layers->loop, &job->src, job->sock, EPOLLIN, layers_job_event, job, err) !=
        0) {
        return -1;
    }
    return layers_job_fork(job, err);
}

int layers_job_start(struct layers_job *job, struct err *err) {
    int ns[2] = {-1, -1};
    int fds[LAYERS_FDS_MAX];
    int rc = layers_job_fill(job, ns, fds, err);
    if (rc == 0) {
        rc = layers_job_launch(job, fds, err);
    }
    fd_close(&ns[0]);
    fd_close(&ns[1]);
    if (rc != 0) {
        layers_job_free(job);
    }
    return rc;
}

/* ---- at start, when nobody's loop runs yet ---- */

static int layers_job_wait(struct layers_job *job, struct layers_reply *reply, struct err *err) {
    uint64_t due = clock_mono_ms() + LAYERS_PROBE_MS;
    for (;;) {
        struct pollfd p = {.fd = job->sock, .events = POLLIN};
        uint64_t now = clock_mono_ms();
        int fds[FD_PASS_MAX];
        size_t nfds = 0;
        int rc = now < due ? poll(&p, 1, (int)(due - now)) : 0;
        if (rc == 0) {
            return err_set(err, ERR_SYSTEM, ETIMEDOUT, "no answer in time");
        }
        ssize_t n = rc < 0 ? 0 : fd_recv(job->sock, reply, sizeof *reply, fds, &nfds, NULL, err);
        if (nfds == 1 && n == (ssize_t)sizeof(struct layers_birth)) {
            job->pidfd = fd_steal(&fds[0]);
        }
        for (size_t i = 0; i < nfds; i++) {
            fd_close(&fds[i]);
        }
        if (n == (ssize_t)sizeof *reply && reply->type == LAYERS_REPLY) {
            reply->text[sizeof reply->text - 1] = '\0';
            return 0;
        }
        if (n <= 0 && !(rc < 0 && errno == EINTR)) {
            return err_set(err, ERR_PROTOCOL, 0, "it died");
        }
    }
}

void layers_job_probe(struct layers *layers, enum layers_op op, uint32_t flags,
                      char missing[WIRE_TEXT_MAX]) {
    struct layers_reply reply = {0};
    struct err err = {0};
    int fds[LAYERS_FDS_MAX];
    int ns[2];
    struct layers_job *job = layers_job_new(layers, op, NULL, &err);
    if (job != NULL) {
        job->req.flags = flags;
    }
    if (job != NULL && layers_job_fill(job, ns, fds, &err) == 0 &&
        layers_job_sock(job, &job->theirs, &err) == 0 && layers_job_send(job, fds, &err) == 0 &&
        layers_zygote_fork(&layers->zygote, job->theirs, &err) == 0) {
        fd_close(&job->theirs); /* so that the end of the worker is the end of the file */
        if (layers_job_wait(job, &reply, &err) == 0) {
            (void)snprintf(missing, WIRE_TEXT_MAX, "%s", reply.code != 0 ? reply.text : "");
            layers_job_end(job);
            return;
        }
    }
    (void)snprintf(missing, WIRE_TEXT_MAX, "the attempt failed: %.400s", err.text);
    if (job != NULL) {
        layers_job_end(job);
    }
}
