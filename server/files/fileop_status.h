/* How a file operation ended, in words and as an HTTP status. Pure. */
#pragma once

#include <stdbool.h>

#include "api_error.h"
#include "cause.h"
#include "fileop.h"

struct fileop_result {
    enum fileop_code code; /* FILEOP_OK, or why it failed as a whole */
    int sys;               /* errno, 0 = none */
    bool more;             /* of list */
    bool gone;             /* the sandbox is gone */
    char message[256];     /* one plain sentence when code is not OK; names the path; ASCII */
};

/* How HTTP says it: 404 not_found, 403 denied, 409 …, 413, 507 no_space, 500 io. */
int fileop_status(enum fileop_code code);
/* Fills code, sys and message. `path` as the operation was asked about it, any bytes. */
void fileop_status_set(struct fileop_result *result, enum fileop_code code, int sys,
                       const char *path);
/* It was cut short by the end of its process: why that ended. */
void fileop_status_cut(struct fileop_result *result, enum cause cause, const char *path);
/* As an error of the API: `gone` is 410. Returns -1. */
int fileop_status_error(const struct fileop_result *result, struct api_error *error);
