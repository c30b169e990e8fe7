/* Rules of the filter as a profile that container engines read (JSON). */
#pragma once

#include <seccomp.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct seccomp_json {
    struct buf *out;   /* borrowed; appended to */
    const char *comma; /* "" in front of the first */
    uint32_t whole;    /* which of the calls that are looked at less closely were written */
};

struct seccomp_json_args {
    unsigned count;
    const struct scmp_arg_cmp *cmp;
};

/* Appends one rule: what libseccomp would be given. */
int seccomp_json_rule(struct seccomp_json *json, const char *name, uint32_t action,
                      struct seccomp_json_args args, struct err *err);
