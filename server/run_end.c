#include "end_wire.h"
#include "run.h"

void run_end_of_wire(const struct run_step *step, const struct wire_end *wire,
                     struct step_end *out) {
    uint64_t a = step->out.capture.total, b = step->err.capture.total;
    end_wire_read(wire, a > b ? a : b, step->limits.values.v[LIMIT_OUTPUT_BYTES], out);
}
