/* The back ends: what a jail is made of. A runner has one, and says in its WELCOME which; policies
 * list those they allow, requests may name one. */
#pragma once

#include <stdint.h>

enum backend {
    BACKEND_NONE = 0, /* not said */
    BACKEND_NATIVE,   /* namespaces and control groups of pinfold-runner's own */
    BACKEND_DOCKER,   /* a container of a Docker engine: pinfold-runner-docker */
    BACKEND_COUNT
};

#define BACKEND_BIT(backend) (1u << (backend))
#define BACKEND_BITS_ALL (BACKEND_BIT(BACKEND_NATIVE) | BACKEND_BIT(BACKEND_DOCKER))

/* "native", "docker"; NULL when out of range or BACKEND_NONE. */
const char *backend_name(uint32_t backend);
/* -> backend, BACKEND_NONE for an unknown name. */
enum backend backend_by_name(const char *name);
