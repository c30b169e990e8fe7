/* The rules of the system call filter, and the program that is made of them. */
#pragma once

#include <linux/audit.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seccomp_filter.h"

#if defined(__x86_64__)
#define SECCOMP_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SECCOMP_ARCH AUDIT_ARCH_AARCH64
#else
#error "the filter does not know this architecture"
#endif

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

/* The program that libseccomp builds of them. On success the caller owns *out (seccomp_done()). */
int seccomp_library(const struct seccomp_rules *rules, struct seccomp_program *out,
                    struct err *err);

/* A shorter one: libseccomp asks for each number by itself, and every instruction costs each jail
 * time. On success the caller owns *out (seccomp_done()). */
int seccomp_compile(const struct seccomp_rules *rules, struct seccomp_program *out,
                    struct err *err);

/* Do both give the same answers? Asked on every number, and for each number on all combinations of
 * the values at which its rules may change the answer, and on each bit of an argument. */
bool seccomp_same(const struct seccomp_rules *rules, const struct seccomp_program *a,
                  const struct seccomp_program *b);
/* What a program answers to a call. False: it does not end, or has an instruction that filters of
 * ours do not have. */
struct seccomp_data;
bool seccomp_same_judge(const struct seccomp_program *p, const struct seccomp_data *call,
                        uint32_t *answer);
