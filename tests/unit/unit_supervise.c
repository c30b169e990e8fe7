/* Shards that stop working, each in a way of its own; the test plays them. */
#include "supervise.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#define WAIT_MS 30000

enum shard_kind { STUCK, RESTS, STOPPED, SHARDS };

static int births[2]; /* each shard that starts writes its number */

static void waits_for_the_end(void) {
    sigset_t set;
    int sig;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    while (sigwait(&set, &sig) != 0) {
    }
}

/* In a process of its own. */
int shard_run(const struct shard_config *cfg) {
    const unsigned char number = (unsigned char)cfg->index;
    *cfg->rounds = number == RESTS ? 2 : 1;
    if (write(births[1], &number, 1) != 1)
        return 1;
    if (number == STOPPED)
        raise(SIGSTOP);
    if (number == RESTS || number == STOPPED)
        waits_for_the_end();
    for (; number == STUCK;)
        pause();
    return 0;
}

/* -> the number of the next shard that starts, -1 when none does in time. */
static int born(void) {
    struct pollfd p = {.fd = births[0], .events = POLLIN};
    unsigned char number;
    return poll(&p, 1, WAIT_MS) == 1 && read(births[0], &number, 1) == 1 ? number : -1;
}

static void a_shard_that_is_held_up_is_killed_and_no_other(void **state) {
    (void)state;
    unsigned starts[SHARDS] = {0};
    int status = -1;
    assert_int_equal(pipe(births), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct log log;
        log_init(&log, STDERR_FILENO, LOG_ERROR, "unit");
        struct supervise_config cfg = {
            .shard.log = &log, .shards = SHARDS, .cgroup_name = "unit", .stuck_looks = 2};
        alarm(60);
        _exit(supervise_run(&cfg));
    }
    while (starts[STUCK] < 3) {
        int number = born();
        if (number < 0)
            break;
        starts[number]++;
    }
    kill(pid, SIGTERM);
    struct pollfd end = {.fd = births[0]};
    close(births[1]);
    (void)poll(&end, 1, WAIT_MS); /* the other ends are closed when all are dead */
    if (!(end.revents & POLLHUP))
        kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(births[0]);
    assert_int_equal(starts[STUCK], 3);
    assert_int_equal(starts[RESTS], 1);
    assert_int_equal(starts[STOPPED], 1);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_that_is_held_up_is_killed_and_no_other),
    };
    return cmocka_run_group_tests_name("supervise", tests, NULL, NULL);
}
