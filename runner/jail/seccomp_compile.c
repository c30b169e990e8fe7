/* From rules, which compare 64-bit arguments, to cases, which test 32-bit words. */
#include <errno.h>
#include <stdlib.h>

#include "seccomp_emit.h"
#include "seccomp_graph.h"
#include "seccomp_rules.h"

#define COMPILE_ALL 0xffffffffu
#define COMPILE_CASES_MAX (4 * SECCOMP_RULES_MAX)

struct compile {
    struct seccomp_case *cases;
    size_t count;
    const struct seccomp_rule *rule;
    struct err *err;
};

static int seccomp_compile_rule(struct compile *c, const struct seccomp_case *so_far, unsigned n);

static void seccomp_compile_test(struct seccomp_case *to, uint32_t word, uint32_t low,
                                 uint32_t high) {
    if (low != 0 || high != COMPILE_ALL) {
        to->test[to->count++] =
            (struct seccomp_test){.word = word, .mask = COMPILE_ALL, .low = low, .high = high};
    }
}

/* The rest of the rule's comparisons, after the n-th, with two more tests. */
static int seccomp_compile_halves(struct compile *c, struct seccomp_case so_far, unsigned n,
                                  const uint32_t upper[2], const uint32_t lower[2]) {
    uint32_t word = SECCOMP_WORD_ARGS + 2 * c->rule->cmp[n].arg;
    seccomp_compile_test(&so_far, word, upper[0], upper[1]);
    seccomp_compile_test(&so_far, word + 1, lower[0], lower[1]);
    return seccomp_compile_rule(c, &so_far, n + 1);
}

/* Argument n is in a range of 64 bits that begins with 0 or ends with the largest number: in its
 * upper half beyond the bound's, or there equal and beyond it in the lower one. */
static int seccomp_compile_side(struct compile *c, const struct seccomp_case *so_far, unsigned n,
                                bool above) {
    static const uint32_t any[2] = {0, COMPILE_ALL};
    uint64_t bound = c->rule->cmp[n].datum_a;
    uint32_t upper = (uint32_t)(bound >> 32), lower = (uint32_t)bound;
    const uint32_t same[2] = {upper, upper};
    const uint32_t far[2] = {above ? upper + 1 : 0, above ? COMPILE_ALL : upper - 1};
    const uint32_t near[2] = {above ? lower + 1 : 0, above ? COMPILE_ALL : lower - 1};
    if (upper != (above ? COMPILE_ALL : 0) &&
        seccomp_compile_halves(c, *so_far, n, far, any) != 0) {
        return -1;
    }
    return lower != (above ? COMPILE_ALL : 0) ? seccomp_compile_halves(c, *so_far, n, same, near)
                                              : 0;
}

static void seccomp_compile_bits(struct seccomp_case *to, uint32_t word, uint32_t mask,
                                 uint32_t value) {
    if ((mask | (mask - 1)) == COMPILE_ALL) {
        seccomp_compile_test(to, word, value, value | ~mask); /* the upper ones: a range */
    } else if (mask != 0) {
        to->test[to->count++] =
            (struct seccomp_test){.word = word, .mask = mask, .low = value, .high = value};
    }
}

static int seccomp_compile_masked(struct compile *c, struct seccomp_case so_far, unsigned n,
                                  uint64_t mask, uint64_t value) {
    uint32_t word = SECCOMP_WORD_ARGS + 2 * c->rule->cmp[n].arg;
    if ((value & ~mask) != 0) {
        return err_set(c->err, ERR_STATE, 0, "a rule of the filter never holds");
    }
    seccomp_compile_bits(&so_far, word, (uint32_t)(mask >> 32), (uint32_t)(value >> 32));
    seccomp_compile_bits(&so_far, word + 1, (uint32_t)mask, (uint32_t)value);
    return seccomp_compile_rule(c, &so_far, n + 1);
}

static int seccomp_compile_case(struct compile *c, const struct seccomp_case *one) {
    if (c->count == COMPILE_CASES_MAX) {
        return err_set(c->err, ERR_LIMIT, 0, "the system call filter has too many cases");
    }
    c->cases[c->count++] = *one;
    return 0;
}

/* The cases of a rule from its n-th comparison on. */
static int seccomp_compile_rule(struct compile *c, const struct seccomp_case *so_far, unsigned n) {
    if (n == c->rule->count) {
        return seccomp_compile_case(c, so_far);
    }
    const struct scmp_arg_cmp *cmp = &c->rule->cmp[n];
    switch (cmp->op) {
    case SCMP_CMP_EQ:
        return seccomp_compile_masked(c, *so_far, n, UINT64_MAX, cmp->datum_a);
    case SCMP_CMP_MASKED_EQ:
        return seccomp_compile_masked(c, *so_far, n, cmp->datum_a, cmp->datum_b);
    case SCMP_CMP_NE:
        return seccomp_compile_side(c, so_far, n, false) != 0
                   ? -1
                   : seccomp_compile_side(c, so_far, n, true);
    case SCMP_CMP_LT:
        return seccomp_compile_side(c, so_far, n, false);
    case SCMP_CMP_GT:
        return seccomp_compile_side(c, so_far, n, true);
    default:
        return err_set(c->err, ERR_STATE, 0, "a rule of the filter compares in an unknown way");
    }
}

static void seccomp_compile_number(struct seccomp_case *to, uint32_t low, uint32_t high) {
    seccomp_compile_test(to, SECCOMP_WORD_ARCH, SECCOMP_ARCH, SECCOMP_ARCH);
    seccomp_compile_test(to, SECCOMP_WORD_NR, low, high);
}

/* Calls of another architecture: of x32, too, which are told by their number only. As in
 * libseccomp, number -1 is nobody's. */
static int seccomp_compile_foreign(struct compile *c) {
    struct seccomp_case below = {.action = SECCOMP_ACT_FOREIGN};
    struct seccomp_case above = below;
    seccomp_compile_test(&below, SECCOMP_WORD_ARCH, 0, SECCOMP_ARCH - 1);
    seccomp_compile_test(&above, SECCOMP_WORD_ARCH, SECCOMP_ARCH + 1, COMPILE_ALL);
    if (seccomp_compile_case(c, &below) != 0 || seccomp_compile_case(c, &above) != 0) {
        return -1;
    }
#ifdef __x86_64__
    struct seccomp_case x32 = {.action = SECCOMP_ACT_FOREIGN};
    seccomp_compile_number(&x32, 0x40000000, COMPILE_ALL - 1);
    return seccomp_compile_case(c, &x32);
#else
    return 0;
#endif
}

static int seccomp_compile_all(struct compile *c, const struct seccomp_rules *rules) {
    if (seccomp_compile_foreign(c) != 0) {
        return -1;
    }
    for (size_t i = 0; i < rules->count; i++) {
        struct seccomp_case one = {.action = rules->v[i].action};
        seccomp_compile_number(&one, (uint32_t)rules->v[i].nr, (uint32_t)rules->v[i].nr);
        c->rule = &rules->v[i];
        if (seccomp_compile_rule(c, &one, 0) != 0) {
            return -1;
        }
    }
    return 0;
}

int seccomp_compile(const struct seccomp_rules *rules, struct seccomp_program *out,
                    struct err *err) {
    struct compile c = {.cases = calloc(COMPILE_CASES_MAX, sizeof *c.cases), .err = err};
    struct seccomp_graph *g = calloc(1, sizeof *g);
    int rc = -1;
    if (c.cases == NULL || g == NULL) {
        (void)err_sys(err, "making the system call filter");
    } else if (seccomp_compile_all(&c, rules) == 0 &&
               seccomp_graph_build(c.cases, c.count, SECCOMP_ACT_ABSENT, g, err) == 0) {
        rc = seccomp_emit(g, out, err);
    }
    free(g);
    free(c.cases);
    return rc;
}
