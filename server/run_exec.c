#include <string.h>

#include "env.h"
#include "packet.h"
#include "run.h"
#include "runs.h"
#include "spec.h"

static int run_exec_spec(struct packet *x, struct run *run, size_t index, struct err *err) {
    const struct run_request *req = &run->request;
    const struct request_step *step = &req->steps[index];
    struct env_list env;
    const struct env_trace trace = {.trace = &run->trace, .state = run->trace_state};
    if (env_compose(&run->steps[index].limits.values, run->policy.writable, &trace, &req->env,
                    &step->env, &env, err) < 0)
        return -1;
    int rc = spec_encode(request_cwd(req, index), step->argv, step->argc, env.items, env.count,
                         &x->spec, err);
    env_done(&env);
    return rc;
}

/* Descriptors in the order of their bits. */
static int run_exec_step_fds(struct packet *x, struct run *run, size_t index, struct err *err) {
    struct run_step *step = &run->steps[index];
    uint64_t cap = step->limits.values.v[LIMIT_OUTPUT_BYTES];
    struct packet_parts *parts = run_pack_parts(run);
    int child = -1;
    if (packet_attach_input(x, parts, &run->request, index, err) < 0)
        return -1;
    if (run_io_open(&step->out, run, EVENTS_STDOUT, cap, &child, err) < 0)
        return -1;
    packet_attach(x, WIRE_FD_STDOUT, child);
    if (!step->merged) {
        if (run_io_open(&step->err, run, EVENTS_STDERR, cap, &child, err) < 0)
            return -1;
        packet_attach(x, WIRE_FD_STDERR, child);
    }
    if (packet_attach_spec(x, err) < 0)
        return -1;
    return index == 0 && run->keep == NULL ? packet_attach_files(x, parts, &run->request, err) : 0;
}

static int run_exec_send(struct packet *x, struct run *run, uint32_t number,
                         const struct wire_open *open, struct err *err) {
    struct link_exec packet;
    packet_link(x, &packet);
    packet.open = open;
    packet.number = number;
    return link_exec(run->jail, &packet, err);
}

/* What the steps before have used of what is held for the run is not there any more. */
static void run_exec_budget(const struct run *run, struct limits *limits) {
    if (run->hold.token == NULL)
        return;
    uint64_t used = runs_cpu_ms(run);
    uint64_t left = run->hold.cpu_ms > used ? run->hold.cpu_ms - used : 1;
    if (limits->v[LIMIT_CPU_MS] > left)
        limits->v[LIMIT_CPU_MS] = left;
}

int run_exec_step(struct run *run, size_t index, const struct wire_open *open, struct err *err) {
    const struct request_step *step = &run->request.steps[index];
    bool more = index + 1 < run->step_count || run->request.collect_count > 0;
    struct packet x;
    packet_init(&x, WIRE_EXEC_COMMAND);
    x.exec.flags = (step->shell ? WIRE_EXEC_SHELL : 0u) | (more ? WIRE_EXEC_MORE : 0u);
    x.exec.end_on = run->end_on;
    x.exec.limits = run->steps[index].limits.values;
    run_exec_budget(run, &x.exec.limits);
    int rc = run_exec_spec(&x, run, index, err);
    if (rc == 0)
        rc = run_exec_step_fds(&x, run, index, err);
    if (rc == 0)
        rc = run_exec_send(&x, run, (uint32_t)index, open, err);
    packet_done(&x);
    return rc;
}

int run_exec_collect(struct run *run, struct err *err) {
    const struct run_request *req = &run->request;
    struct packet x;
    int child = -1;
    packet_init(&x, WIRE_EXEC_COLLECT);
    x.exec.limits = run->open;
    x.exec.collect_bytes = RUN_COLLECT_BYTES;
    x.exec.collect_files = RUN_COLLECT_FILES;
    int rc = spec_encode("/workspace", req->collect, req->collect_count, NULL, 0, &x.spec, err);
    if (rc == 0)
        rc = run_io_open(&run->collector, run, 0, 0, &child, err);
    if (rc == 0) {
        packet_attach(&x, WIRE_FD_STDOUT, child);
        rc = packet_attach_spec(&x, err);
    }
    if (rc == 0)
        rc = run_exec_send(&x, run, (uint32_t)run->step_count, NULL, err);
    packet_done(&x);
    return rc;
}
