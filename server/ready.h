/* Would the server accept a run now, and if not, which layer is in the way. For /readyz, which
 * turns red with the reasons and green again by itself, and for metrics. */
#pragma once

#include <stddef.h>

struct server;

#define READY_MAX 12

struct ready_reason {
    const char *layer; /* static: see ready_layer() */
    char message[320]; /* a sentence, without the full stop */
};

/* What is in the way, the most telling first -> how many (0 = ready). Asks the file system once. */
size_t ready_reasons(struct server *s, struct ready_reason out[READY_MAX]);
/* All layers that can be in the way: "server", "runner", "sandboxes", "store", "disk", "audit",
 * "queue"; NULL behind the last one. */
const char *ready_layer(size_t index);
