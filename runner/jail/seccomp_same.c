/* Two programs for the same rules, run side by side on made-up calls. */
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>

#include "seccomp_rules.h"

#define SAME_ARGS 6
#define SAME_VALUES 1024
#define SAME_NUMBERS 1024 /* more than there are */

struct same_values {
    uint64_t v[SAME_VALUES];
    size_t count;
};

struct same {
    const struct seccomp_rules *rules;
    const struct seccomp_program *a, *b;
    struct same_values arg[SAME_ARGS];
    struct seccomp_data call;
};

static bool seccomp_same_jump(const struct sock_filter *f, uint32_t a, unsigned *pc) {
    switch (f->code) {
    case BPF_JMP | BPF_JA:
        *pc += f->k;
        return true;
    case BPF_JMP | BPF_JEQ | BPF_K:
        *pc += a == f->k ? f->jt : f->jf;
        return true;
    case BPF_JMP | BPF_JGT | BPF_K:
        *pc += a > f->k ? f->jt : f->jf;
        return true;
    case BPF_JMP | BPF_JGE | BPF_K:
        *pc += a >= f->k ? f->jt : f->jf;
        return true;
    case BPF_JMP | BPF_JSET | BPF_K:
        *pc += (a & f->k) != 0 ? f->jt : f->jf;
        return true;
    default:
        return false;
    }
}

bool seccomp_same_judge(const struct seccomp_program *p, const struct seccomp_data *call,
                        uint32_t *answer) {
    uint32_t a = 0;
    for (unsigned pc = 0; pc < p->len; pc++) {
        const struct sock_filter *f = &p->insns[pc];
        if (f->code == (BPF_LD | BPF_W | BPF_ABS)) {
            if (f->k > sizeof *call - sizeof a) {
                return false;
            }
            memcpy(&a, (const char *)call + f->k, sizeof a);
        } else if (f->code == (BPF_ALU | BPF_AND | BPF_K)) {
            a &= f->k;
        } else if (f->code == (BPF_RET | BPF_K)) {
            *answer = f->k;
            return true;
        } else if (!seccomp_same_jump(f, a, &pc)) {
            return false;
        }
    }
    return false;
}

static bool seccomp_same_answer(const struct same *s) {
    uint32_t a = 0, b = 0;
    return seccomp_same_judge(s->a, &s->call, &a) && seccomp_same_judge(s->b, &s->call, &b) &&
           a == b;
}

static bool seccomp_same_value(struct same_values *to, uint64_t v) {
    for (size_t i = 0; i < to->count; i++) {
        if (to->v[i] == v) {
            return true;
        }
    }
    if (to->count == SAME_VALUES) {
        return false;
    }
    to->v[to->count++] = v;
    return true;
}

/* Where an answer may change: at the number that a comparison names and at the end of the range
 * that a mask makes of it, on both sides, with another upper half, and in the bits that are not
 * looked at. */
static bool seccomp_same_around(struct same_values *to, const struct scmp_arg_cmp *c) {
    bool masked = c->op == SCMP_CMP_MASKED_EQ;
    uint64_t v = masked ? c->datum_b : c->datum_a;
    uint64_t last = masked ? v | ~c->datum_a : v;
    return seccomp_same_value(to, v - 1) && seccomp_same_value(to, v) &&
           seccomp_same_value(to, last) && seccomp_same_value(to, last + 1) &&
           seccomp_same_value(to, v ^ (uint64_t)1 << 32) &&
           (!masked || seccomp_same_value(to, c->datum_a));
}

static bool seccomp_same_collect(struct same *s, int nr) {
    for (unsigned i = 0; i < SAME_ARGS; i++) {
        s->arg[i].count = 0;
        (void)seccomp_same_value(&s->arg[i], 0);
    }
    for (size_t i = 0; i < s->rules->count; i++) {
        const struct seccomp_rule *r = &s->rules->v[i];
        for (unsigned k = 0; r->nr == nr && k < r->count; k++) {
            if (r->cmp[k].arg >= SAME_ARGS ||
                !seccomp_same_around(&s->arg[r->cmp[k].arg], &r->cmp[k])) {
                return false;
            }
        }
    }
    return true;
}

/* Every combination of them, from this argument on, but for the one that is held. */
static bool seccomp_same_combine(struct same *s, unsigned arg, unsigned held) {
    if (arg == SAME_ARGS) {
        return seccomp_same_answer(s);
    }
    if (arg == held) {
        return seccomp_same_combine(s, arg + 1, held);
    }
    for (size_t i = 0; i < s->arg[arg].count; i++) {
        s->call.args[arg] = s->arg[arg].v[i];
        if (!seccomp_same_combine(s, arg + 1, held)) {
            return false;
        }
    }
    return true;
}

/* Each bit of each argument that a rule looks at, alone and, where that is the only such argument
 * (flags), beside each other, with every combination for the others. */
static bool seccomp_same_bits(struct same *s) {
    unsigned looked_at = 0;
    for (unsigned arg = 0; arg < SAME_ARGS; arg++) {
        looked_at += s->arg[arg].count > 1;
    }
    for (unsigned arg = 0; arg < SAME_ARGS; arg++) {
        unsigned bits = s->arg[arg].count > 1 ? 64 : 0;
        for (unsigned i = 0; i < bits * bits; i++) {
            unsigned one = i / bits, other = i % bits;
            if (other > one || (other < one && looked_at > 1)) {
                continue;
            }
            s->call.args[arg] = (uint64_t)1 << one | (uint64_t)1 << other;
            if (!seccomp_same_combine(s, 0, arg)) {
                return false;
            }
        }
    }
    return true;
}

/* Numbers that there are, those of x32, negative ones; of this machine and of others. */
static bool seccomp_same_numbers(struct same *s) {
    static const uint32_t archs[] = {SECCOMP_ARCH,    SECCOMP_ARCH - 1, SECCOMP_ARCH + 1,
                                     AUDIT_ARCH_I386, AUDIT_ARCH_ARM,   0,
                                     UINT32_MAX};
    static const uint32_t bases[] = {0, 0x40000000, 0x3fffffff - SAME_NUMBERS, 0x80000000,
                                     UINT32_MAX - SAME_NUMBERS + 1};
    memset(&s->call, 0, sizeof s->call);
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        for (size_t k = 0; k < sizeof bases / sizeof bases[0]; k++) {
            for (uint32_t n = 0; n < SAME_NUMBERS; n++) {
                s->call.arch = archs[i];
                s->call.nr = (int)(bases[k] + n);
                if (!seccomp_same_answer(s)) {
                    return false;
                }
            }
        }
    }
    return true;
}

bool seccomp_same(const struct seccomp_rules *rules, const struct seccomp_program *a,
                  const struct seccomp_program *b) {
    struct same *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return false;
    }
    s->rules = rules;
    s->a = a;
    s->b = b;
    bool same = seccomp_same_numbers(s);
    s->call.arch = SECCOMP_ARCH;
    for (int nr = 0; nr < SAME_NUMBERS && same; nr++) {
        s->call.nr = nr;
        same = seccomp_same_collect(s, nr) && seccomp_same_combine(s, 0, SAME_ARGS) &&
               seccomp_same_bits(s);
    }
    free(s);
    return same;
}
