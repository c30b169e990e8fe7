#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env.h"
#include "execs.h"
#include "execution.h"
#include "fd.h"
#include "packet.h"
#include "spec.h"

struct exec_send_what {
    const struct run_request *run;
    struct exec_send_parts *parts;
};

/* The stdin that came with the request, when more will follow. */
struct exec_send_first {
    struct exec_feed feed;
    char data[];
};

static void exec_send_first_over(struct exec_feed *f, bool taken) {
    (void)taken;
    free(f);
}

/* NULL: memory is short. */
static struct exec_send_first *exec_send_first_new(const struct run_request *req) {
    struct request_bytes input = request_input(req, 0);
    struct exec_send_first *first = calloc(1, sizeof(*first) + input.len);
    if (first == NULL)
        return NULL;
    memcpy(first->data, input.data, input.len);
    first->feed.data = first->data;
    first->feed.len = input.len;
    first->feed.over = exec_send_first_over;
    return first;
}

void exec_send_parts_init(struct exec_send_parts *parts) {
    packet_parts_init(&parts->packet);
    parts->first = NULL;
}

void exec_send_parts_done(struct exec_send_parts *parts) {
    packet_parts_done(&parts->packet);
    free(parts->first);
    parts->first = NULL;
}

void exec_send_parts_make(struct exec_send_parts *parts, const struct exec_request *request) {
    const struct run_request *req = &request->run;
    packet_parts_make(&parts->packet, req, 0,
                      PACKET_FILES | (request->stdin_open ? 0u : PACKET_INPUT));
    if (request->stdin_open && request_input(req, 0).len > 0)
        parts->first = exec_send_first_new(req);
}

static int exec_send_spec(struct packet *p, const struct exec *x, const struct run_request *req,
                          struct err *err) {
    const struct sandbox *sb = x->set->sandbox;
    const struct request_step *step = &req->steps[0];
    struct env_list env;
    const struct env_trace trace = {.trace = &x->trace, .state = x->trace_state};
    if (env_compose(&x->limits.values, sandbox_policy(sb)->writable, &trace, sandbox_env(sb),
                    &step->env, &env, err) < 0)
        return -1;
    int rc = spec_encode(request_cwd(req, 0), step->argv, step->argc, env.items, env.count,
                         &p->spec, err);
    env_done(&env);
    return rc;
}

static struct packet_parts *exec_send_packet_parts(const struct exec_send_what *what) {
    return what->parts != NULL ? &what->parts->packet : NULL;
}

/* A pipe of which the command reads; *write_end is ours and does not block. */
static int exec_send_stdin_pipe(struct packet *p, int *write_end, struct err *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "making a pipe for stdin");
    if (fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0 || fchmod(ends[0], 0666) < 0) {
        err_sys(err, "preparing a pipe for stdin");
        fd_close(&ends[0]);
        fd_close(&ends[1]);
        return -1;
    }
    packet_attach(p, WIRE_FD_STDIN, ends[0]);
    *write_end = ends[1];
    return 0;
}

static int exec_send_stdin(struct packet *p, struct exec *x, const struct exec_send_what *what,
                           int *write_end, struct err *err) {
    if ((x->flags & EXEC_STDIN_OPEN) != 0)
        return exec_send_stdin_pipe(p, write_end, err);
    return packet_attach_input(p, exec_send_packet_parts(what), what->run, 0, err);
}

static int exec_send_outputs(struct packet *p, struct exec *x, struct err *err) {
    int child = -1;
    if (exec_io_pipe(&x->out[SPOOL_STDOUT], &child, err) < 0)
        return -1;
    packet_attach(p, WIRE_FD_STDOUT, child);
    if ((x->flags & EXEC_MERGED) != 0)
        return 0;
    if (exec_io_pipe(&x->out[SPOOL_STDERR], &child, err) < 0)
        return -1;
    packet_attach(p, WIRE_FD_STDERR, child);
    return 0;
}

/* Descriptors in the order of their bits. */
static int exec_send_fds(struct packet *p, struct exec *x, const struct exec_send_what *what,
                         int *write_end, struct err *err) {
    bool terminal = (x->flags & EXEC_PTY) != 0;
    if (!terminal &&
        (exec_send_stdin(p, x, what, write_end, err) < 0 || exec_send_outputs(p, x, err) < 0))
        return -1;
    if (packet_attach_spec(p, err) < 0)
        return -1;
    if (packet_attach_files(p, exec_send_packet_parts(what), what->run, err) < 0)
        return -1;
    if (*write_end >= 0)
        packet_attach_kept(p, WIRE_FD_KEEP_STDIN, *write_end);
    if (x->out[SPOOL_STDOUT].fd >= 0)
        packet_attach_kept(p, WIRE_FD_KEEP_STDOUT, x->out[SPOOL_STDOUT].fd);
    if (x->out[SPOOL_STDERR].fd >= 0)
        packet_attach_kept(p, WIRE_FD_KEEP_STDERR, x->out[SPOOL_STDERR].fd);
    if (!x->input.open)
        return 0;
    if (inlet_open(&x->input.inlet, err) < 0)
        return -1;
    packet_attach_kept(p, WIRE_FD_KEEP_INPUT, x->input.inlet.fd);
    return 0;
}

/* More stdin will come, so what is there already goes through the pipe as well. */
static int exec_send_first(struct exec *x, const struct exec_send_what *what, int write_end,
                           struct err *err) {
    exec_stdin_open(x, write_end);
    if (request_input(what->run, 0).len == 0)
        return 0;
    struct exec_send_first *first = what->parts != NULL ? what->parts->first : NULL;
    if (first != NULL)
        what->parts->first = NULL;
    else
        first = exec_send_first_new(what->run);
    if (first == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "keeping stdin: out of memory");
    if (exec_stdin_feed(x, &first->feed) != 0)
        free(first);
    return 0;
}

static int exec_send_packet(struct packet *p, struct exec *x, const struct exec_send_what *what,
                            struct err *err) {
    struct link_exec packet;
    int write_end = -1;
    if (exec_send_spec(p, x, what->run, err) < 0 ||
        exec_send_fds(p, x, what, &write_end, err) < 0 || exec_record_start(x, err) < 0) {
        fd_close(&write_end);
        return -1;
    }
    packet_link(p, &packet);
    packet.number = x->number;
    if (sandbox_exec(x->set->sandbox, &x->task, &packet, err) < 0) {
        fd_close(&write_end);
        return -1;
    }
    /* From here on it runs; what goes wrong with its stdin ends that, not it. */
    if (write_end >= 0 && exec_send_first(x, what, write_end, err) < 0)
        exec_stdin_close(x);
    return 0;
}

int exec_send(struct exec *x, const struct exec_request *request, struct exec_send_parts *parts,
              struct err *err) {
    const struct run_request *req = &request->run;
    const struct exec_send_what what = {.run = req, .parts = parts};
    struct packet p;
    packet_init(&p, WIRE_EXEC_COMMAND);
    p.exec.flags = (req->steps[0].shell ? WIRE_EXEC_SHELL : 0u) |
                   ((x->flags & EXEC_PTY) != 0 ? WIRE_EXEC_PTY : 0u);
    p.exec.end_on = x->end_on;
    p.exec.limits = x->limits.values;
    p.exec.rows = x->rows;
    p.exec.cols = x->cols;
    x->number = sandbox_number(x->set->sandbox);
    x->task.number = x->number;
    if (x->number == 0) {
        packet_done(&p);
        return err_set(err, ERR_STATE, ENOSPC, "no number could be written down for it");
    }
    x->input.open = (x->flags & (EXEC_PTY | EXEC_STDIN_OPEN)) != 0;
    int rc = exec_send_packet(&p, x, &what, err);
    packet_done(&p);
    free(x->trace_state);
    x->trace_state = NULL;
    if (rc == 0)
        exec_begun(x);
    return rc;
}
