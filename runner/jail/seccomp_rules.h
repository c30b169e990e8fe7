/* The rules of the system call filter, and the program that is made of them. */
#pragma once

#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "seccomp_filter.h"

#define SECCOMP_RULES_MAX 1024
#define SECCOMP_ACT_ABSENT SCMP_ACT_ERRNO(ENOSYS) /* no rule says anything of the call */
#define SECCOMP_ACT_FOREIGN SCMP_ACT_NOTIFY       /* a call of another architecture */

/* A call with this number for which all comparisons hold is answered with the action. Two rules
 * that can both hold have the same one. */
struct seccomp_rule {
    int nr;
    uint32_t action;
    unsigned count;
    struct scmp_arg_cmp cmp[3];
};

struct seccomp_rules {
    size_t count;
    struct seccomp_rule v[SECCOMP_RULES_MAX];
};

/* All rules of seccomp_build()'s program; the caller frees them. NULL on failure. */
struct seccomp_rules *seccomp_rules_new(enum policy_syscalls set, bool shares_user,
                                        struct err *err);

/* On success the caller owns *out (seccomp_done()). */
int seccomp_compile(const struct seccomp_rules *rules, struct seccomp_program *out,
                    struct err *err);
