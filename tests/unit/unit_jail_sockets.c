/* What the filter says to sockets and to their options, and what of it the runner is asked. */
#include "jail.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf.h"
#include "seccomp_sets.h"
#include "unit.h"

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define NOTIFY SECCOMP_RET_USER_NOTIF
#define FAIL(code) (SECCOMP_RET_ERRNO | (uint32_t)(code))
#define HIGH (1ULL << 32) /* what a 32-bit argument does not have */

static uint32_t ask(enum policy_syscalls set, long nr, uint64_t a0, uint64_t a1, uint64_t a2) {
    struct seccomp_data d = {.nr = (int)nr, .arch = ARCH, .args = {a0, a1, a2, 0, 0, 0}};
    return interpret(&programs[set], &d);
}

/* Every option of every level: what the host has one share of for all is out of reach. */
static void test_socket_options(void **state) {
    (void)state;
    static const uint32_t no[][3] = {
        {1, 26, ENOPROTOOPT},
        {1, 50, ENOPROTOOPT},
        {1, 51, ENOPROTOOPT},
        {1, 52, ENOPROTOOPT},
        {1, 37, ENOPROTOOPT},
        {1, 65, ENOPROTOOPT},
        {6, 31, ENOPROTOOPT},
        {6, 14, ENOPROTOOPT},
        {6, 32, ENOPROTOOPT},
        {6, 38, ENOPROTOOPT},
        {41, 20, ENOPROTOOPT},
        {41, 32, ENOPROTOOPT},
        {41, 42, ENOPROTOOPT},
        {41, 46, ENOPROTOOPT},
        /* done as if, without effect */
        {1, 8, 0},
        {0, 11, 0},
        {41, 25, 0},
    };
    /* Groups are joined, TCP is opened fast: the runner is told. */
    static const uint32_t told[][2] = {{0, 35},  {0, 39}, {0, 42}, {0, 46},
                                       {41, 27}, {6, 23}, {6, 30}};
    for (uint64_t i = 0; i < 512u * 128; i++) {
        uint64_t level = i / 128, option = i % 128;
        uint32_t want = ALLOW;
        for (size_t k = 0; k < UNIT_COUNT(told); k++) {
            want = level == told[k][0] && option == told[k][1] ? NOTIFY : want;
        }
        for (size_t k = 0; k < UNIT_COUNT(no); k++) {
            want = level == no[k][0] && option == no[k][1] ? FAIL(no[k][2]) : want;
        }
        assert_int_equal(ask(POLICY_SYSCALLS_DEFAULT, SYS_setsockopt, 3, level, option), want);
        assert_int_equal(ask(POLICY_SYSCALLS_STRICT, SYS_setsockopt, 3, level, option), want);
        uint32_t high = ask(POLICY_SYSCALLS_DEFAULT, SYS_setsockopt, 3, level | HIGH, option);
        assert_true(want == ALLOW || high != ALLOW);
        high = ask(POLICY_SYSCALLS_DEFAULT, SYS_setsockopt, 3, level, option | HIGH);
        assert_true(want == ALLOW || high != ALLOW);
    }
}

/* What becomes of a socket: those behind which is memory that nobody counts are reported. */
static uint32_t socket_verdict(uint64_t family, uint64_t type, uint64_t protocol) {
    bool inet = family == AF_INET || family == AF_INET6;
    if (family == AF_UNIX) {
        return ALLOW;
    }
    if (family == AF_NETLINK) {
        return protocol == 0 ? NOTIFY : FAIL(EPROTONOSUPPORT);
    }
    if (inet && (type & 15) == SOCK_STREAM && (protocol == 0 || protocol == 6)) {
        return ALLOW;
    }
    if (inet && (type & 15) == SOCK_DGRAM &&
        (protocol == 0 || protocol == 17 || protocol == (family == AF_INET ? 1 : 58))) {
        return NOTIFY;
    }
    return inet ? 0 : FAIL(EAFNOSUPPORT); /* 0: any refusal */
}

static bool is_right(uint32_t got, uint32_t want) {
    return want != 0 ? got == want : (got & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO;
}

static void test_socket_families(void **state) {
    (void)state;
    for (uint64_t family = 0; family < 1000; family++) {
        assert_int_equal(ask(POLICY_SYSCALLS_STRICT, SYS_socket, family, 0, 0),
                         family == AF_UNIX ? ALLOW : FAIL(EAFNOSUPPORT));
        assert_int_not_equal(ask(POLICY_SYSCALLS_DEFAULT, SYS_socket, family | HIGH, 1, 0), ALLOW);
        for (uint64_t protocol = 0; protocol < 300; protocol++) {
            for (uint64_t type = SOCK_STREAM; type <= SOCK_RAW; type++) {
                uint32_t want = socket_verdict(family, type, protocol);
                uint32_t got = ask(POLICY_SYSCALLS_DEFAULT, SYS_socket, family, type, protocol);
                assert_true(is_right(got, want));
            }
        }
    }
    /* Every type, whatever is around it: none but streams goes unreported. */
    for (uint64_t type = 0; type < 0x1000; type++) {
        for (uint64_t family = AF_INET; family <= AF_INET6; family += AF_INET6 - AF_INET) {
            uint32_t want = socket_verdict(family, type, 0);
            assert_true(is_right(ask(POLICY_SYSCALLS_DEFAULT, SYS_socket, family, type, 0), want));
            assert_true(
                is_right(ask(POLICY_SYSCALLS_DEFAULT, SYS_socket, family, type | HIGH, 0), want));
        }
    }
}

/* Only these two calls are the runner's to let go on: whatever else is reported ends its process.
 */
static void test_asked(void **state) {
    (void)state;
    struct seccomp_notif note = {.data = {.arch = ARCH}};
    for (int nr = 0; nr < 500; nr++) {
        note.data.nr = nr;
        assert_true(jail_sockets_asked(&note) ==
                    (nr == SYS_socket || nr == SYS_listen || nr == SYS_setsockopt));
        note.data.nr = nr | 0x40000000; /* x32 */
        assert_false(jail_sockets_asked(&note));
    }
    note.data = (struct seccomp_data){.nr = SYS_socket, .arch = AUDIT_ARCH_I386};
    assert_false(jail_sockets_asked(&note));
}

/* Whatever the answer is: here there is nobody who could hear it. */
static void test_told(void **state) {
    (void)state;
    static const int calls[] = {SYS_socket, SYS_listen, SYS_setsockopt};
    for (size_t i = 0; i < UNIT_COUNT(calls); i++) {
        struct jail_host host = {0};
        struct jail j = {.host = &host, .pid = getpid(), .filter_fd = -1};
        const struct seccomp_notif note = {.data = {.arch = ARCH, .nr = calls[i]}};
        jail_sockets_answer(&j, &note);
        assert_true(j.net_told);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket_options),
        cmocka_unit_test(test_socket_families),
        cmocka_unit_test(test_asked),
        cmocka_unit_test(test_told),
    };
    return cmocka_run_group_tests(tests, seccomp_sets_up, seccomp_sets_down);
}
