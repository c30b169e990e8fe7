/* Between the death of a command's first process and the report of process 1.
 *
 * What is killed dies when it gets a processor, and process 1 tells of it when it gets one: on a
 * host that hundreds of processes want, that takes long, and a command's end is not called our
 * fault for that. It is when process 1 has all that it needs for the report and does not make it.
 * Looks are counted and not seconds, because this process waits for its turn, too. */
#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"

#define EXEC_REPORT_LOOKS 60u /* of EXEC_HELD_NS, from its death to the report of process 1 */
#define EXEC_STUCK_LOOKS 8u   /* of these, in which process 1 had all it needs for it */
#define EXEC_HELD_NS (1 * CLOCK_NS_PER_S) /* from its death to a look at who holds it back */

struct exec_held_sight {
    char state;   /* as in /proc: R, S, D, T, Z …; 0: it is gone */
    pid_t tracer; /* 0: none */
};

static struct exec_held_sight exec_held_look(pid_t pid) {
    static const char tracer[] = "\nTracerPid:\t";
    static const char state[] = "\nState:\t";
    char path[64];
    char text[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    fd_cleanup int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, tracer);
    const char *is = strstr(text, state);
    return (struct exec_held_sight){
        .state = is == NULL ? '\0' : is[sizeof state - 1],
        .tracer = at == NULL ? 0 : (pid_t)strtol(at + sizeof tracer - 1, NULL, 10),
    };
}

/* Whoever traces a process is told of its death first, and until he has listened, its parent is
 * not: a program of another execution could so keep this one from ever ending. It is killed. The
 * directory in /proc stands for the very process that was looked at, whoever gets its number. */
static void exec_held(void *arg) {
    struct exec *x = arg;
    char path[64];
    struct stat st;
    if (x->state != EXEC_RUNNING) {
        return;
    }
    /* It is dead for its parent, who does not even want a processor. */
    struct exec_held_sight sight = exec_held_look(x->outside_pid);
    bool stuck = (sight.state == 'Z' || sight.state == '\0') && sight.tracer == 0 &&
                 exec_held_look(x->jail->pid).state != 'R';
    x->looks = x->frozen ? 0 : x->looks + 1; /* who holds it back stands still as well */
    x->stuck = x->frozen || !stuck ? 0 : x->stuck + 1;
    if (x->looks > EXEC_REPORT_LOOKS || x->stuck > EXEC_STUCK_LOOKS) {
        jail_fail(x->jail, "wait", ETIMEDOUT, "process 1 did not report the end of a command");
        return;
    }
    (void)snprintf(path, sizeof path, "/proc/%d", (int)sight.tracer);
    fd_cleanup int tracer = x->frozen ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tracer >= 0 && fstatat(tracer, "ns/pid", &st, 0) == 0 && st.st_ino == x->jail->pid_ns) {
        (void)syscall(SYS_pidfd_send_signal, tracer, SIGKILL, NULL, 0);
    }
    (void)loop_timer_at(x->jail->host->loop, &x->drain_timer, clock_mono_ns() + EXEC_HELD_NS,
                        exec_held, x, NULL);
}

void exec_held_expect(struct exec *x) {
    uint64_t now = clock_mono_ns();
    if (x->state == EXEC_RUNNING && !x->expected) {
        x->expected = true;
        (void)loop_timer_at(x->jail->host->loop, &x->drain_timer, now + EXEC_HELD_NS, exec_held, x,
                            NULL);
    }
}
