/* The runner's END as the API's. Pure. */
#pragma once

#include <stdint.h>

#include "end_json.h"
#include "wire.h"

/* `bytes`: of the larger of both outputs; `cap`: what is kept of each. */
void end_wire_read(const struct wire_end *wire, uint64_t bytes, uint64_t cap, struct step_end *out);
