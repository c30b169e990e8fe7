#include "end_wire.h"

#include "clock.h"
#include "str.h"

void end_wire_read(const struct wire_end *wire, uint64_t bytes, uint64_t cap,
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
    out->bytes = bytes;
    out->code = wire->code;
    out->syscall_nr = (uint64_t)(wire->syscall_nr > 0 ? wire->syscall_nr : 0);
    out->syscall_arch = wire->syscall_arch;
    str_copy(out->stage, sizeof(out->stage), wire->stage);
    str_copy(out->path, sizeof(out->path), wire->path);
    if (out->cause == CAUSE_OUTPUT) {
        /* Output is counted here: the runner only knows that it was told to end the step. */
        out->limit = cap;
        out->observed = out->bytes;
    }
}
