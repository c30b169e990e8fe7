#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bundle.h"
#include "env.h"
#include "fd.h"
#include "run.h"
#include "spec.h"

/* Everything that one EXEC needs; run_exec_done() closes what was passed. */
struct run_exec {
    struct wire_exec exec;
    struct buf spec;
    int fds[FD_PASS_MAX]; /* owned */
    size_t fd_count;
};

static void run_exec_init(struct run_exec *x, enum wire_exec_kind kind) {
    memset(x, 0, sizeof(*x));
    x->exec.kind = kind;
    buf_init(&x->spec, WIRE_SPEC_MAX);
}

static void run_exec_done(struct run_exec *x) {
    for (size_t i = 0; i < x->fd_count; i++)
        fd_close(&x->fds[i]);
    buf_done(&x->spec);
}

static void run_exec_attach(struct run_exec *x, enum wire_exec_fd what, int fd) {
    x->exec.fds |= what;
    x->fds[x->fd_count++] = fd;
}

/* A file in memory that can be read and nothing else, whoever opens it again. */
static int run_exec_memory(const char *name, const void *data, size_t len, struct err *err) {
    char path[64];
    fd_cleanup int fd = fd_memfd(name, data, len, true, err);
    if (fd < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int out = open(path, O_RDONLY | O_CLOEXEC);
    if (out < 0)
        return err_sys(err, "opening %s for reading", name);
    return out;
}

static int run_exec_attach_memory(struct run_exec *x, enum wire_exec_fd what, const char *name,
                                  const void *data, size_t len, struct err *err) {
    int fd = run_exec_memory(name, data, len, err);
    if (fd < 0)
        return -1;
    run_exec_attach(x, what, fd);
    return 0;
}

static int run_exec_attach_spec(struct run_exec *x, struct err *err) {
    x->exec.spec_size = (uint32_t)x->spec.len;
    if (x->spec.len <= WIRE_SPEC_INLINE_MAX)
        return 0;
    return run_exec_attach_memory(x, WIRE_FD_SPEC, "spec", x->spec.data, x->spec.len, err);
}

static int run_exec_attach_files(struct run_exec *x, const struct run_request *req,
                                 struct err *err) {
    struct buf bundle;
    size_t max = sizeof(struct bundle_record);
    for (size_t i = 0; i < req->file_count; i++)
        max += sizeof(struct bundle_record) + BUNDLE_PATH_MAX + req->files[i].size;
    buf_init(&bundle, max);
    int rc = 0;
    for (size_t i = 0; i < req->file_count && rc == 0; i++) {
        const struct request_file *f = &req->files[i];
        rc = bundle_file(&bundle, f->mode, f->path, strlen(f->path), f->data, f->size, err);
    }
    if (rc == 0)
        rc = bundle_end(&bundle, err);
    if (rc == 0)
        rc = run_exec_attach_memory(x, WIRE_FD_BUNDLE, "files", bundle.data, bundle.len, err);
    buf_done(&bundle);
    return rc;
}

static int run_exec_spec(struct run_exec *x, struct run *run, size_t index, struct err *err) {
    const struct run_request *req = &run->request;
    const struct request_step *step = &req->steps[index];
    struct env_list env;
    if (env_compose(&run->steps[index].limits.values, run->policy.writable, &req->env, &step->env,
                    &env, err) < 0)
        return -1;
    int rc = spec_encode(request_cwd(req, index), step->argv, step->argc, env.items, env.count,
                         &x->spec, err);
    env_done(&env);
    return rc;
}

/* Descriptors in the order of their bits. */
static int run_exec_step_fds(struct run_exec *x, struct run *run, size_t index, struct err *err) {
    struct run_step *step = &run->steps[index];
    uint64_t cap = step->limits.values.v[LIMIT_OUTPUT_BYTES];
    struct request_bytes input = request_input(&run->request, index);
    int child = -1;
    if (input.data != NULL &&
        run_exec_attach_memory(x, WIRE_FD_STDIN, "stdin", input.data, input.len, err) < 0)
        return -1;
    if (run_io_open(&step->out, run, EVENTS_STDOUT, cap, &child, err) < 0)
        return -1;
    run_exec_attach(x, WIRE_FD_STDOUT, child);
    if (!step->merged) {
        if (run_io_open(&step->err, run, EVENTS_STDERR, cap, &child, err) < 0)
            return -1;
        run_exec_attach(x, WIRE_FD_STDERR, child);
    }
    if (run_exec_attach_spec(x, err) < 0)
        return -1;
    if (index == 0 && run->request.file_count > 0)
        return run_exec_attach_files(x, &run->request, err);
    return 0;
}

static int run_exec_send(struct run_exec *x, struct run *run, uint32_t number,
                         const struct wire_open *open, struct err *err) {
    bool inside = (x->exec.fds & WIRE_FD_SPEC) == 0;
    struct link_exec packet = {.open = open,
                               .exec = &x->exec,
                               .number = number,
                               .spec = inside ? x->spec.data : NULL,
                               .fds = x->fds,
                               .fd_count = x->fd_count};
    return link_exec(run->jail, &packet, err);
}

int run_exec_step(struct run *run, size_t index, const struct wire_open *open, struct err *err) {
    const struct request_step *step = &run->request.steps[index];
    bool more = index + 1 < run->step_count || run->request.collect_count > 0;
    struct run_exec x;
    run_exec_init(&x, WIRE_EXEC_COMMAND);
    x.exec.flags = (step->shell ? WIRE_EXEC_SHELL : 0u) | (more ? WIRE_EXEC_MORE : 0u);
    x.exec.end_on = run->end_on;
    x.exec.limits = run->steps[index].limits.values;
    int rc = run_exec_spec(&x, run, index, err);
    if (rc == 0)
        rc = run_exec_step_fds(&x, run, index, err);
    if (rc == 0)
        rc = run_exec_send(&x, run, (uint32_t)index, open, err);
    run_exec_done(&x);
    return rc;
}

int run_exec_collect(struct run *run, struct err *err) {
    const struct run_request *req = &run->request;
    struct run_exec x;
    int child = -1;
    run_exec_init(&x, WIRE_EXEC_COLLECT);
    x.exec.limits = run->open;
    x.exec.collect_bytes = RUN_COLLECT_BYTES;
    x.exec.collect_files = RUN_COLLECT_FILES;
    int rc = spec_encode("/workspace", req->collect, req->collect_count, NULL, 0, &x.spec, err);
    if (rc == 0)
        rc = run_io_open(&run->collector, run, 0, 0, &child, err);
    if (rc == 0) {
        run_exec_attach(&x, WIRE_FD_STDOUT, child);
        rc = run_exec_attach_spec(&x, err);
    }
    if (rc == 0)
        rc = run_exec_send(&x, run, (uint32_t)run->step_count, NULL, err);
    run_exec_done(&x);
    return rc;
}
