#include "backend.h"

#include <stddef.h>
#include <string.h>

static const char *const backend_names[BACKEND_COUNT] = {
    [BACKEND_NATIVE] = "native",
    [BACKEND_DOCKER] = "docker",
};

const char *backend_name(uint32_t backend) {
    return backend < BACKEND_COUNT ? backend_names[backend] : NULL;
}

enum backend backend_by_name(const char *name) {
    for (uint32_t i = BACKEND_NONE + 1; i < BACKEND_COUNT; i++) {
        if (strcmp(name, backend_names[i]) == 0)
            return (enum backend)i;
    }
    return BACKEND_NONE;
}
