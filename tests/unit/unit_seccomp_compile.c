/* The program against the rules that it is made of: each call is judged by the rules one after the
 * other, as their header says, and by the program, run by a small interpreter. */
#include "seccomp_rules.h"

#include <errno.h>
#include <linux/audit.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "bpf.h"
#include "unit.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define HIGH (1ULL << 32)
#define VALUES_MAX 2048
#define NUMBERS 512 /* more than there are */

/* What is judged: a set of rules and its program. */
struct judged {
    struct seccomp_rules *rules;
    struct seccomp_program program;
    int nr; /* the call that was judged last, and the rules for it */
    size_t count;
    const struct seccomp_rule *own[SECCOMP_RULES_MAX];
};

static struct judged sets[4]; /* default and strict; process 1 apart, and of the command's user */

static bool holds(const struct scmp_arg_cmp *c, const struct seccomp_data *d) {
    uint64_t arg = d->args[c->arg];
    switch (c->op) {
    case SCMP_CMP_EQ:
        return arg == c->datum_a;
    case SCMP_CMP_NE:
        return arg != c->datum_a;
    case SCMP_CMP_LT:
        return arg < c->datum_a;
    case SCMP_CMP_GT:
        return arg > c->datum_a;
    case SCMP_CMP_MASKED_EQ:
        return (arg & c->datum_a) == c->datum_b;
    default:
        fail_msg("a rule compares by %d", (int)c->op);
        return false;
    }
}

static void choose(struct judged *j, int nr) {
    if (j->count > 0 && j->nr == nr) {
        return;
    }
    j->nr = nr;
    j->count = 0;
    for (size_t i = 0; i < j->rules->count; i++) {
        if (j->rules->v[i].nr == nr) {
            j->own[j->count++] = &j->rules->v[i];
        }
    }
}

static uint32_t by_rules(struct judged *j, const struct seccomp_data *d) {
    uint32_t action = SECCOMP_RET_ERRNO | ENOSYS;
    bool found = false;
    if (d->arch != ARCH) {
        return SECCOMP_RET_USER_NOTIF;
    }
#ifdef __x86_64__
    if ((uint32_t)d->nr >= 0x40000000 && d->nr != -1) {
        return SECCOMP_RET_USER_NOTIF;
    }
#endif
    choose(j, d->nr);
    for (size_t i = 0; i < j->count; i++) {
        const struct seccomp_rule *r = j->own[i];
        bool all = true;
        for (unsigned k = 0; k < r->count && all; k++) {
            all = holds(&r->cmp[k], d);
        }
        if (all && found && r->action != action) {
            fail_msg("two rules for call %d contradict: 0x%x and 0x%x", d->nr, action, r->action);
        }
        if (all) {
            action = r->action;
            found = true;
        }
    }
    return action;
}

static void agree(struct judged *j, const struct seccomp_data *d) {
    uint32_t want = by_rules(j, d), got = interpret(&j->program, d);
    if (got != want) {
        fail_msg("call %d of 0x%x (0x%llx, 0x%llx, 0x%llx, 0x%llx, 0x%llx): 0x%x, not 0x%x", d->nr,
                 d->arch, (unsigned long long)d->args[0], (unsigned long long)d->args[1],
                 (unsigned long long)d->args[2], (unsigned long long)d->args[3],
                 (unsigned long long)d->args[4], got, want);
    }
}

static int sets_up(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        sets[i].rules = seccomp_rules_new((enum policy_syscalls)(i / 2), i % 2 != 0, &e);
        if (sets[i].rules == NULL) {
            fail_msg("%s", e.text);
        }
        unit_works(seccomp_compile(sets[i].rules, &sets[i].program, &e), e);
    }
    return 0;
}

static int sets_down(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        free(sets[i].rules);
        seccomp_done(&sets[i].program);
    }
    return 0;
}

/* Numbers that there are, that there are not, those of x32; and all of that of other machines. */
static void test_numbers(void **state) {
    (void)state;
    static const uint32_t archs[] = {
        ARCH,     AUDIT_ARCH_I386,           AUDIT_ARCH_ARM, 0, ARCH - 1,
        ARCH + 1, ARCH ^ __AUDIT_ARCH_64BIT, UINT32_MAX};
    static const uint32_t bases[] = {0, 0x40000000, 0x3fffff00, 0x7fffff00, 0x80000000, -2100u};
    for (size_t i = 0; i < UNIT_COUNT(archs) * UNIT_COUNT(bases); i++) {
        for (uint32_t n = 0; n < 2100; n++) {
            struct seccomp_data d = {.arch = archs[i % UNIT_COUNT(archs)]};
            d.nr = (int)(bases[i / UNIT_COUNT(archs)] + n);
            agree(&sets[0], &d);
            agree(&sets[1], &d);
            agree(&sets[2], &d);
            agree(&sets[3], &d);
        }
    }
}

struct values {
    uint64_t v[VALUES_MAX];
    size_t count;
};

static void value(struct values *to, uint64_t v) {
    for (size_t i = 0; i < to->count; i++) {
        if (to->v[i] == v) {
            return;
        }
    }
    assert_true(to->count < VALUES_MAX);
    to->v[to->count++] = v;
}

/* Around a number that a rule names, in both halves of the register. */
static void around(struct values *to, uint64_t v) {
    value(to, v - 1);
    value(to, v);
    value(to, v + 1);
    value(to, v ^ HIGH);
    value(to, v | 0xffffffff00000000);
}

/* What could matter in argument `arg` of a call: where its rules change. */
static void values_of(struct judged *j, int nr, unsigned arg, struct values *out) {
    choose(j, nr);
    out->count = 0;
    value(out, 0);
    for (size_t i = 0; i < j->count; i++) {
        for (unsigned k = 0; k < j->own[i]->count; k++) {
            const struct scmp_arg_cmp *c = &j->own[i]->cmp[k];
            if (c->arg != arg) {
                continue;
            }
            around(out, c->op == SCMP_CMP_MASKED_EQ ? c->datum_b : c->datum_a);
            if (c->op == SCMP_CMP_MASKED_EQ) {
                value(out, c->datum_b | ~c->datum_a);
                value(out, c->datum_a);
            }
        }
    }
}

/* Each bit alone, and a few that are unlike any. */
static void bits(struct values *out) {
    for (unsigned bit = 0; bit < 64; bit++) {
        value(out, 1ULL << bit);
    }
    value(out, UINT32_MAX);
    value(out, UINT64_MAX);
    value(out, 0x123456789abcdef0);
}

/* Every combination for the arguments from `arg` on that a rule looks at. */
static void combine(struct judged *j, struct seccomp_data *d, unsigned arg) {
    if (arg == 6) {
        agree(j, d);
        return;
    }
    struct values *v = malloc(sizeof *v);
    assert_non_null(v);
    values_of(j, d->nr, arg, v);
    for (size_t i = 0; i < v->count; i++) {
        d->args[arg] = v->v[i];
        combine(j, d, arg + 1);
    }
    d->args[arg] = 0;
    free(v);
}

static void test_combinations(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int nr = 0; nr < NUMBERS; nr++) {
            struct seccomp_data d = {.nr = nr, .arch = ARCH};
            combine(&sets[i], &d, 0);
        }
    }
}

/* Every argument of every call, looked at or not, alone and beside one that is. */
static void test_bits(void **state) {
    (void)state;
    struct values *v = malloc(sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < 4 * NUMBERS * 6; i++) {
        struct seccomp_data d = {.nr = i / 6 % NUMBERS, .arch = ARCH};
        struct judged *j = &sets[i / 6 / NUMBERS];
        unsigned arg = (unsigned)i % 6;
        values_of(j, d.nr, arg, v);
        bits(v);
        for (size_t k = 0; k < v->count; k++) {
            for (uint64_t first = 0; first < 8; first++) {
                d.args[0] = first;
                d.args[arg] = v->v[k];
                agree(j, &d);
            }
        }
    }
    free(v);
}

/* Two bits at once, where flags are asked for. */
static void test_flags(void **state) {
    (void)state;
    static const struct {
        int nr;
        unsigned arg;
    } flags[] = {{SYS_clone, 0},  {SYS_unshare, 0},      {SYS_mmap, 3},
                 {SYS_shmget, 2}, {SYS_memfd_create, 1}, {SYS_mknodat, 2}};
    for (size_t i = 0; i < UNIT_COUNT(flags) * 64 * 64 * 4; i++) {
        struct seccomp_data d = {.nr = flags[i / 64 / 64 / 4].nr, .arch = ARCH};
        d.args[flags[i / 64 / 64 / 4].arg] = 1ULL << (i / 4 % 64) | 1ULL << (i / 4 / 64 % 64);
        agree(&sets[i % 4], &d);
    }
}

/* As the kernel does when it makes its bitmap (seccomp_is_const_allow()): with nothing but the
 * number. What is always allowed must be found so, or every such call would run the program. */
static bool known_by_number(const struct seccomp_program *p, int nr) {
    uint32_t a = 0;
    for (unsigned pc = 0; pc < p->len; pc++) {
        const struct sock_filter *f = &p->insns[pc];
        if (f->code == (BPF_LD | BPF_W | BPF_ABS)) {
            if (f->k != offsetof(struct seccomp_data, nr) &&
                f->k != offsetof(struct seccomp_data, arch)) {
                return false;
            }
            a = f->k == 0 ? (uint32_t)nr : ARCH;
        } else if (f->code == (BPF_RET | BPF_K)) {
            return f->k == SECCOMP_RET_ALLOW;
        } else if (f->code == (BPF_JMP | BPF_JA)) {
            pc += f->k;
        } else if (f->code == (BPF_JMP | BPF_JEQ | BPF_K)) {
            pc += a == f->k ? f->jt : f->jf;
        } else if (f->code == (BPF_JMP | BPF_JGE | BPF_K)) {
            pc += a >= f->k ? f->jt : f->jf;
        } else {
            return false;
        }
    }
    return false;
}

static void test_known_by_number(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < sets[i].rules->count; k++) {
            const struct seccomp_rule *r = &sets[i].rules->v[k];
            if (r->count == 0 && r->action == SECCOMP_RET_ALLOW) {
                assert_true(known_by_number(&sets[i].program, r->nr));
            }
        }
        assert_false(known_by_number(&sets[i].program, SYS_ioctl));
        assert_false(known_by_number(&sets[i].program, SYS_mount));
    }
}

static void put(struct seccomp_rules *rules, int nr, uint32_t action, unsigned count,
                const struct scmp_arg_cmp *cmp) {
    struct seccomp_rule *r = &rules->v[rules->count++];
    *r = (struct seccomp_rule){.nr = nr, .action = action, .count = count};
    for (unsigned i = 0; i < count; i++) {
        r->cmp[i] = cmp[i];
    }
}

/* So many different answers that no jump reaches all of them. */
static void test_far_jumps(void **state) {
    (void)state;
    struct judged j = {.rules = calloc(1, sizeof *j.rules)};
    struct err e = {0};
    assert_non_null(j.rules);
    for (int nr = 0; nr < 200; nr++) {
        uint64_t bound = (uint64_t)nr * 0x55555555u;
        struct scmp_arg_cmp cmp = {
            .arg = (unsigned)nr % 6, .op = SCMP_CMP_LT, .datum_a = bound + 1};
        put(j.rules, nr, SCMP_ACT_ERRNO((uint32_t)nr), 1, &cmp);
        cmp.op = SCMP_CMP_GT;
        cmp.datum_a = bound;
        put(j.rules, nr, nr % 7 == 0 ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO((uint32_t)nr + 1000), 1,
            &cmp);
    }
    unit_works(seccomp_compile(j.rules, &j.program, &e), e);
    assert_in_range(j.program.len, 1000, BPF_MAXINSNS);
    for (int nr = 0; nr < 400; nr++) {
        struct seccomp_data d = {.nr = nr, .arch = ARCH};
        combine(&j, &d, 0);
    }
    seccomp_done(&j.program);
    free(j.rules);
}

/* Whatever the operators and their order, for one argument and for two. */
static void test_operators(void **state) {
    (void)state;
    struct judged j = {.rules = calloc(1, sizeof *j.rules)};
    struct err e = {0};
    assert_non_null(j.rules);
    static const enum scmp_compare ops[] = {SCMP_CMP_EQ, SCMP_CMP_NE, SCMP_CMP_LT, SCMP_CMP_GT,
                                            SCMP_CMP_MASKED_EQ};
    static const uint64_t data[] = {1, 5, UINT32_MAX, HIGH, HIGH | 7, UINT64_MAX - 1};
    int nr = 0;
    for (size_t i = 0; i < UNIT_COUNT(ops) * UNIT_COUNT(ops) * UNIT_COUNT(data); i++, nr++) {
        uint64_t datum = data[i / UNIT_COUNT(ops) / UNIT_COUNT(ops)];
        const struct scmp_arg_cmp cmp[2] = {
            {.arg = 0, .op = ops[i % UNIT_COUNT(ops)], .datum_a = datum, .datum_b = datum & 5},
            {.arg = 3, .op = ops[i / UNIT_COUNT(ops) % UNIT_COUNT(ops)], .datum_a = datum}};
        put(j.rules, nr, SCMP_ACT_ALLOW, 2, cmp);
    }
    unit_works(seccomp_compile(j.rules, &j.program, &e), e);
    for (int n = 0; n <= nr; n++) {
        struct seccomp_data d = {.nr = n, .arch = ARCH};
        combine(&j, &d, 0);
    }
    seccomp_done(&j.program);
    free(j.rules);
}

static uint32_t dice(uint64_t *seed, uint32_t sides) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % sides;
}

/* Up to three bits among eight that lie in both halves. */
static uint64_t some_bits(uint64_t *seed) {
    static const uint64_t bit[] = {1, 2, 1 << 4, 1 << 9, 1 << 20, HIGH, HIGH << 3, HIGH << 30};
    uint64_t all = 0;
    for (uint32_t i = dice(seed, 3) + 1; i > 0; i--) {
        all |= bit[dice(seed, UNIT_COUNT(bit))];
    }
    return all;
}

static void random_rule(struct seccomp_rules *rules, uint64_t *seed, int nr, uint32_t action) {
    struct scmp_arg_cmp cmp[3];
    unsigned count = dice(seed, 3) + 1;
    for (unsigned i = 0; i < count; i++) {
        cmp[i] = (struct scmp_arg_cmp){.arg = i, .op = SCMP_CMP_MASKED_EQ};
        cmp[i].datum_a = dice(seed, 8) == 0 ? UINT64_MAX : some_bits(seed);
        cmp[i].datum_b = some_bits(seed) & cmp[i].datum_a;
    }
    put(rules, nr, action, count, cmp);
}

/* Rules that look at the same bits in many ways, in programs of many lengths. */
static void test_random_rules(void **state) {
    (void)state;
    uint64_t seed = 1;
    struct judged *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->rules = calloc(1, sizeof *j->rules);
    assert_non_null(j->rules);
    for (int round = 0; round < 400; round++) {
        struct err e = {0};
        int calls = 1 + (int)dice(&seed, 12);
        j->rules->count = j->count = 0;
        for (int i = 0; i < 3 * calls; i++) {
            random_rule(j->rules, &seed, i % calls, SCMP_ACT_ERRNO((uint32_t)(i % calls + 1)));
        }
        unit_works(seccomp_compile(j->rules, &j->program, &e), e);
        for (int i = 0; i < 500 * calls; i++) {
            struct seccomp_data d = {.nr = i % calls, .arch = ARCH};
            for (int arg = 0; arg < 3; arg++) {
                d.args[arg] = some_bits(&seed) & some_bits(&seed);
            }
            agree(j, &d);
        }
        seccomp_done(&j->program);
    }
    free(j->rules);
    free(j);
}

/* A set of rules that says two things of one call makes no program, nor does one with a rule that
 * cannot hold or compares in a way that is not known. */
static void test_refused(void **state) {
    (void)state;
    const struct scmp_arg_cmp low = {.arg = 0, .op = SCMP_CMP_LT, .datum_a = 10};
    const struct scmp_arg_cmp high = {.arg = 0, .op = SCMP_CMP_GT, .datum_a = 8};
    const struct scmp_arg_cmp never = {
        .arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = 1, .datum_b = 2};
    const struct scmp_arg_cmp unknown = {.arg = 0, .op = SCMP_CMP_GE, .datum_a = 1};
    const struct scmp_arg_cmp twice[2] = {low, high};
    struct seccomp_rules *rules = calloc(1, sizeof *rules);
    struct seccomp_program p = {0};
    struct err e = {0};
    assert_non_null(rules);
    put(rules, 1, SCMP_ACT_ALLOW, 1, &low);
    put(rules, 1, SCMP_ACT_ERRNO(1), 1, &high);
    unit_fails(seccomp_compile(rules, &p, &e), e, ERR_STATE);
    rules->v[1].action = SCMP_ACT_ALLOW;
    unit_works(seccomp_compile(rules, &p, &e), e);
    seccomp_done(&p);
    put(rules, 2, SCMP_ACT_ALLOW, 1, &never);
    unit_fails(seccomp_compile(rules, &p, &e), e, ERR_STATE);
    rules->v[2].cmp[0] = unknown;
    unit_fails(seccomp_compile(rules, &p, &e), e, ERR_STATE);
    rules->count = 0;
    put(rules, 3, SCMP_ACT_ALLOW, 2, twice);
    unit_fails(seccomp_compile(rules, &p, &e), e, ERR_STATE);
    assert_null(p.insns);
    free(rules);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_known_by_number),
        cmocka_unit_test(test_far_jumps),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_random_rules),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, sets_up, sets_down);
}
