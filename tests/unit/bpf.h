/* A program of the filter's language, run on a made-up call. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <string.h>

#include "seccomp_filter.h"
#include "unit.h"

static inline uint32_t interpret(const struct seccomp_program *p, const struct seccomp_data *d) {
    uint32_t a = 0;
    for (unsigned pc = 0; pc < p->len; pc++) {
        const struct sock_filter *f = &p->insns[pc];
        switch (f->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(f->k + sizeof a <= sizeof *d);
            memcpy(&a, (const char *)d + f->k, sizeof a);
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= f->k;
            break;
        case BPF_JMP | BPF_JA:
            pc += f->k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            pc += a == f->k ? f->jt : f->jf;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            pc += a > f->k ? f->jt : f->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            pc += a >= f->k ? f->jt : f->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            pc += (a & f->k) != 0 ? f->jt : f->jf;
            break;
        case BPF_RET | BPF_K:
            return f->k;
        default:
            fail_msg("instruction %u has the code 0x%x", pc, f->code);
        }
    }
    fail_msg("the program has no end");
    return 0;
}
