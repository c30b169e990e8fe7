#include "clock.h"
#include "run.h"
#include "str.h"

static uint64_t run_end_bytes(const struct run_step *step) {
    uint64_t out = step->out.capture.total, err = step->err.capture.total;
    return out > err ? out : err;
}

void run_end_of_wire(const struct run_step *step, const struct wire_end *wire,
                     struct step_end *out) {
    const struct wire_usage *u = &wire->usage;
    end_init(out, (enum cause)wire->cause);
    out->exit_code = wire->exit_code;
    out->signal = wire->signal;
    out->limit = wire->limit;
    out->observed = wire->observed;
    out->wall_ms = u->wall_ns / CLOCK_NS_PER_MS;
    out->cpu_ms = (u->cpu_user_ns + u->cpu_system_ns) / CLOCK_NS_PER_MS;
    out->oom_kills = u->oom_kills;
    out->refused = u->pids_refused;
    out->disk_bytes = u->disk_bytes;
    out->inodes = u->inodes;
    out->bytes = run_end_bytes(step);
    out->code = wire->code;
    out->syscall_nr = (uint64_t)(wire->syscall_nr > 0 ? wire->syscall_nr : 0);
    out->syscall_arch = wire->syscall_arch;
    str_copy(out->stage, sizeof(out->stage), wire->stage);
    str_copy(out->path, sizeof(out->path), wire->path);
    if (out->cause == CAUSE_OUTPUT) {
        /* Output is counted here: the runner only knows that it was told to end the step. */
        out->limit = step->limits.values.v[LIMIT_OUTPUT_BYTES];
        out->observed = out->bytes;
    }
}
