#include "archives.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"

/* The helper is kept for the next archive for so long: its start takes longer than a small one. */
#define ARCHIVES_IDLE_MS 600000u

void archives_init(struct archives *a, struct loop *loop, struct log *log) {
    memset(a, 0, sizeof(*a));
    a->loop = loop;
    a->log = log;
    a->sock = -1;
}

void archives_stop(struct archives *a) {
    if (a->loop == NULL)
        return;
    loop_timer_stop(a->loop, &a->idle);
    fd_close(&a->sock);
}

bool archives_full(const struct archives *a) {
    return a->working >= ARCHIVES_MAX;
}

/* The helper. */

static int archives_spawn_as(int sock, posix_spawn_file_actions_t *actions,
                             posix_spawnattr_t *attr) {
    static const char *const argv[] = {"pinfold-server", TAR_APART_COMMAND, NULL};
    sigset_t none, usual;
    pid_t pid;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGCHLD);
    sigaddset(&usual, SIGXFSZ);
    int rc = posix_spawn_file_actions_adddup2(actions, sock, 0);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attr, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(attr, &usual);
    if (rc == 0)
        rc = posix_spawn(&pid, "/proc/self/exe", actions, attr, (char *const *)(uintptr_t)argv,
                         environ);
    return rc;
}

static int archives_spawn(int sock, struct err *err) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc == 0) {
        rc = posix_spawnattr_init(&attr);
        if (rc == 0) {
            rc = archives_spawn_as(sock, &actions, &attr);
            posix_spawnattr_destroy(&attr);
        }
        posix_spawn_file_actions_destroy(&actions);
    }
    return rc == 0
               ? 0
               : err_set(err, ERR_SYSTEM, rc, "starting the helper for archives: %s", strerror(rc));
}

static int archives_helper(struct archives *a, struct err *err) {
    int ends[2];
    if (a->sock >= 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "making a socket for the helper for archives");
    /* Only this end: the helper has nothing else to do than to wait. */
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 || archives_spawn(ends[1], err) < 0) {
        fd_close(&ends[0]);
        fd_close(&ends[1]);
        return -1;
    }
    fd_close(&ends[1]);
    a->sock = ends[0];
    return 0;
}

/* A helper that has died is found out here; the next one is asked. */
static int archives_send(struct archives *a, const struct tar_apart_job *job, const int *fds,
                         struct err *err) {
    for (int tries = 0;; tries++) {
        struct err why = {0};
        if (archives_helper(a, err) < 0)
            return -1;
        if (fd_send(a->sock, job, sizeof(*job), fds, 3, &why) == 0)
            return 0;
        if (why.code != EPIPE && why.code != ECONNRESET)
            tries = 1;
        else
            fd_close(&a->sock);
        if (tries > 0) {
            if (err != NULL)
                *err = why;
            return -1;
        }
    }
}

static void archives_rest(void *arg) {
    struct archives *a = arg;
    if (a->working == 0)
        fd_close(&a->sock);
}

/* Reports. */

void archives_forget(struct archives_job *j) {
    struct archives *a = j->archives;
    if (a == NULL || j->fd < 0)
        return;
    loop_del(a->loop, &j->source);
    fd_close(&j->fd);
    a->working--;
    if (a->working == 0 && a->sock >= 0)
        (void)loop_timer_at(a->loop, &a->idle, clock_mono_ns() + ARCHIVES_IDLE_MS * CLOCK_NS_PER_MS,
                            archives_rest, a, NULL);
}

/* A report is written at once, and a pipe takes that whole. */
static void archives_event(void *arg, uint32_t events) {
    struct archives_job *j = arg;
    struct tar_apart_report report;
    struct err err = {0};
    (void)events;
    ssize_t n;
    do
        n = read(j->fd, &report, sizeof(report));
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return;
    bool good = n == (ssize_t)sizeof(report) && tar_apart_check(&report, j->what, &err) == 0;
    if (!good) {
        if (err.text[0] == '\0')
            err_set(&err, ERR_PROTOCOL, 0, "the process of an archive ended before its work");
        log_err(j->archives->log, LOG_ERROR, "archive_broken_off", &err);
    }
    archives_forget(j);
    j->over(j->arg, good ? &report : NULL);
}

int archives_begin(struct archives *a, struct archives_job *j, const struct tar_apart_job *job,
                   int in, int out, struct err *err) {
    fd_cleanup int from = in;
    fd_cleanup int to = out;
    fd_cleanup int theirs = -1;
    int ends[2];
    j->archives = a;
    j->what = (enum tar_apart_what)job->what;
    j->fd = j->source.fd = -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "making a pipe for the report on an archive");
    j->fd = ends[0];
    theirs = ends[1];
    a->working++;
    loop_timer_stop(a->loop, &a->idle);
    const int fds[] = {from, to, theirs};
    if (fcntl(j->fd, F_SETFL, O_NONBLOCK) < 0)
        err_sys(err, "preparing a pipe for the report on an archive");
    else if (loop_add(a->loop, &j->source, j->fd, EPOLLIN, archives_event, j, err) == 0 &&
             archives_send(a, job, fds, err) == 0)
        return 0;
    archives_forget(j);
    return -1;
}
