/* Two programs are told apart by any difference that a call could meet: whatever is changed in one
 * of them is found. */
#include "seccomp_rules.h"

#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static struct {
    struct seccomp_rules *rules;
    struct seccomp_program library, shorter;
} sets[4]; /* default and strict; process 1 apart, and of the command's user */

static int sets_up(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        sets[i].rules = seccomp_rules_new((enum policy_syscalls)(i / 2), i % 2 != 0, &e);
        assert_non_null(sets[i].rules);
        unit_works(seccomp_library(sets[i].rules, &sets[i].library, &e), e);
        unit_works(seccomp_compile(sets[i].rules, &sets[i].shorter, &e), e);
    }
    return 0;
}

static int sets_down(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        free(sets[i].rules);
        seccomp_done(&sets[i].library);
        seccomp_done(&sets[i].shorter);
    }
    return 0;
}

static void test_the_shorter_program_answers_as_the_one_of_libseccomp(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct seccomp_program out = {0};
        struct err e = {0};
        assert_true(seccomp_same(sets[i].rules, &sets[i].library, &sets[i].shorter));
        assert_true(sets[i].shorter.len < sets[i].library.len / 3);
        unit_works(seccomp_build((enum policy_syscalls)(i / 2), i % 2 != 0, &out, &e), e);
        assert_int_equal(out.len, sets[i].shorter.len); /* it is the one that jails get */
        assert_memory_equal(out.insns, sets[i].shorter.insns, out.len * sizeof *out.insns);
        seccomp_done(&out);
    }
}

static bool found(int set) {
    return !seccomp_same(sets[set].rules, &sets[set].library, &sets[set].shorter);
}

static void test_any_other_number_or_answer_in_it_is_found(void **state) {
    (void)state;
    for (int set = 0; set < 4; set += 3) {
        uint32_t word = 0;
        unsigned idle = 0;
        for (unsigned i = 0; i < sets[set].shorter.len; i++) {
            struct sock_filter *f = &sets[set].shorter.insns[i];
            word = BPF_CLASS(f->code) == BPF_LD ? f->k : word;
            if (f->code == (BPF_JMP | BPF_JA)) {
                continue;
            }
            /* Where a range of system calls is cut in two to find one faster, another place for the
             * cut may do as well; that all numbers are answered alike is asked of each of them. */
            if (word == offsetof(struct seccomp_data, nr) &&
                f->code == (BPF_JMP | BPF_JGE | BPF_K)) {
                continue;
            }
            /* Words are loaded 4 by 4, the rest is compared or answered. */
            f->k ^= BPF_CLASS(f->code) == BPF_LD ? 4 : 1;
            if (!found(set)) {
                /* clone(): all bits that one of these asks for are refused by some of them. */
                idle += f->code == (BPF_JMP | BPF_JSET | BPF_K);
                if (f->code != (BPF_JMP | BPF_JSET | BPF_K) || idle > 4) {
                    fail_msg("set %d: instruction %u (0x%x, 0x%x)", set, i, f->code, f->k);
                }
            }
            f->k ^= BPF_CLASS(f->code) == BPF_LD ? 4 : 1;
        }
        assert_false(found(set));
    }
}

static void test_any_branch_that_is_turned_round_is_found(void **state) {
    (void)state;
    for (int set = 0; set < 4; set += 3) {
        for (unsigned i = 0; i < sets[set].shorter.len; i++) {
            struct sock_filter *f = &sets[set].shorter.insns[i];
            const struct sock_filter was = *f;
            f->jt = was.jf;
            f->jf = was.jt;
            if (was.jt != was.jf && !found(set)) {
                fail_msg("set %d: branch %u was turned round", set, i);
            }
            *f = was;
        }
        assert_false(found(set));
    }
}

static void test_a_program_without_an_end_is_like_no_other(void **state) {
    (void)state;
    struct sock_filter load[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 4}};
    struct sock_filter unknown[] = {{BPF_ALU | BPF_ADD | BPF_K, 0, 0, 1},
                                    {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_filter beyond[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, sizeof(struct seccomp_data)},
                                   {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    const struct seccomp_program bad[] = {
        {.insns = load, .len = 1}, {.insns = unknown, .len = 2}, {.insns = beyond, .len = 2}, {0}};
    const struct seccomp_data call = {.arch = SECCOMP_ARCH};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++) {
        uint32_t answer = 0;
        assert_false(seccomp_same_judge(&bad[i], &call, &answer));
        assert_false(seccomp_same(sets[0].rules, &bad[i], &bad[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_shorter_program_answers_as_the_one_of_libseccomp),
        cmocka_unit_test(test_any_other_number_or_answer_in_it_is_found),
        cmocka_unit_test(test_any_branch_that_is_turned_round_is_found),
        cmocka_unit_test(test_a_program_without_an_end_is_like_no_other),
    };
    return cmocka_run_group_tests(tests, sets_up, sets_down);
}
