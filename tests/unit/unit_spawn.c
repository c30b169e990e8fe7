#include "spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "unit.h"

#define ROUNDS 10

/* A runner that dies when the child is born: it cannot return to its own mount namespace. On the
 * same processor the child begins when the runner is dead, mostly. */
static void runner(int alive) {
    static struct spawn s;
    const struct rlimit none = {0};
    struct err err;
    pid_t pid;
    int pidfd;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    const struct spawn_config cfg = {
        .template_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC),
        .home_ns = -1,
        .net_ns = -1,
        .init_fd = alive,
        .control_fd = alive,
        .id_base = 3000000000u,
        .id_count = SPAWN_IDS_ALL,
    };
    if (setrlimit(RLIMIT_CORE, &none) == 0 && sched_setaffinity(0, sizeof(one), &one) == 0)
        (void)spawn_init(&s, &cfg, &pid, &pidfd, &err);
    _exit(1); /* not reached */
}

/* What it has open ends with it: whoever is at the other end is to notice. */
static void test_a_child_without_a_runner_ends(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    for (int i = 0; i < ROUNDS; i++) {
        int end[2], status;
        assert_int_equal(pipe2(end, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0)
            runner(end[1]);
        fd_close(&end[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
        struct pollfd p = {.fd = end[0]};
        assert_int_equal(poll(&p, 1, 5000), 1);
        assert_true((p.revents & POLLHUP) != 0);
        fd_close(&end[0]);
        while (waitpid(-1, NULL, 0) > 0)
            continue;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_without_a_runner_ends),
    };
    return cmocka_run_group_tests_name("spawn", tests, NULL, NULL);
}
