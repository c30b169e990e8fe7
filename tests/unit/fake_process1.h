/* Jails without a kernel: process 1, its children and their control groups are played by the test,
 * as far as jail.c, exec.c and what is between them can see. For one file of a program: it defines
 * the functions of spawn.h, cgroup.h and clock.h, and kill(2) and waitid(2). */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "clock.h"
#include "fd.h"
#include "initmsg.h"
#include "spawn.h"
#include "unit.h"

#define FAKE_CHILDREN 16u

struct fake_child {
    int sock;             /* its end; -1 = it is not there */
    const void *step;     /* the struct cgroup_step that it is in; NULL = none yet */
    uint32_t pid;         /* inside */
    bool running, killed; /* it executes a command; it is dead and not reaped */
    bool started;
};

struct fake_jail {
    int control, death; /* process 1's end; an eventfd in place of its pidfd. -1 = none */
    bool dead;
    struct fake_child child[FAKE_CHILDREN];
    unsigned children;
};

struct fake_kernel {
    uint64_t now_ns;
    struct fake_jail jail; /* one at a time */
    unsigned made, gone;   /* groups of steps */
    unsigned attached;     /* processes that were put into one */
    unsigned homeless;     /* so many of the next find theirs removed */
    uint64_t oom_kills, cpu_ns;
    int root;     /* what process 1 gives as the root of what can be written; 0 = any directory */
    int listener; /* … and as the listener of its filter; 0 = one that is silent */
    bool slow;   /* the first child is confined some time after process 1 was told to seal itself */
    bool silent; /* process 1 does not say that it has */
};

static struct fake_kernel fake;

uint64_t clock_mono_ns(void) {
    return fake.now_ns;
}

uint64_t clock_mono_ms(void) {
    return fake.now_ns / CLOCK_NS_PER_MS;
}

uint64_t clock_real_ms(void) {
    return fake.now_ns / CLOCK_NS_PER_MS;
}

/* Process 1. */

int spawn_init(struct spawn *s, const struct spawn_config *cfg, pid_t *pid, int *pidfd,
               struct err *err) {
    struct fake_jail *j = &fake.jail;
    (void)s;
    (void)err;
    *j = (struct fake_jail){.death = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    j->control = fcntl(cfg->control_fd, F_DUPFD_CLOEXEC, 0);
    assert_true(j->control >= 0 && j->death >= 0);
    assert_int_equal(fcntl(j->control, F_SETFL, O_NONBLOCK), 0);
    *pid = getpid(); /* whose namespace is looked at; kill() is below */
    *pidfd = fcntl(j->death, F_DUPFD_CLOEXEC, 0);
    return 0;
}

const char *spawn_failed_step(const struct spawn *s) {
    (void)s;
    return "";
}

/* All of the jail is dead: its sockets are closed, and then its parent hears of it. */
static void fake_dies(void) {
    struct fake_jail *j = &fake.jail;
    uint64_t one = 1;
    if (j->dead)
        return;
    j->dead = true;
    for (unsigned i = 0; i < j->children; i++)
        fd_close(&j->child[i].sock);
    fd_close(&j->control);
    assert_int_equal(write(j->death, &one, sizeof(one)), sizeof(one));
    fd_close(&j->death);
}

int kill(pid_t pid, int sig) {
    assert_int_equal(pid, getpid());
    assert_int_equal(sig, SIGKILL);
    fake_dies();
    return 0;
}

/* Whoever was heard to be dead is. */
int waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
    (void)type, (void)id, (void)options;
    memset(info, 0, sizeof(*info));
    return 0;
}

static void fake_says(int sock, uint32_t type, uint32_t pid, int status, int *fds, size_t nfds) {
    const struct initmsg_report r = {
        .type = type, .pid = pid, .status = status, .mono_ns = fake.now_ns};
    (void)fd_send(sock, &r, sizeof(r), fds, nfds, NULL);
}

static void fake_told(const struct initmsg_word *word, int *fds, size_t nfds) {
    struct fake_jail *j = &fake.jail;
    int give[2];
    switch (word->type) {
    case INITMSG_SETUP:
        give[0] = fake.root > 0 ? dup(fake.root) : open("/dev/shm", O_PATH | O_CLOEXEC);
        give[1] = fake.listener > 0 ? dup(fake.listener) : eventfd(0, EFD_CLOEXEC);
        fake_says(j->control, INITMSG_SETUP_OK, 0, 0, give, 2);
        fd_close(&give[0]);
        fd_close(&give[1]);
        break;
    case INITMSG_FORK:
        assert_true(nfds == 1 && j->children < FAKE_CHILDREN);
        struct fake_child *c = &j->child[j->children++];
        *c = (struct fake_child){.sock = fd_steal(&fds[0]), .pid = 100 + j->children};
        assert_int_equal(fcntl(c->sock, F_SETFL, O_NONBLOCK), 0);
        fake_says(c->sock, INITMSG_HELLO, c->pid, 0, NULL, 0);
        break;
    case INITMSG_SEAL:
        if (!fake.silent)
            fake_says(j->control, INITMSG_SEALED, 0, 0, NULL, 0);
        if (fake.slow)
            fake_says(j->child[0].sock, INITMSG_READY, j->child[0].pid, 0, NULL, 0);
        break;
    default: /* SIGNAL */
        break;
    }
}

static void fake_child_told(struct fake_child *c, const struct initmsg_word *word) {
    if (word->type == INITMSG_GO && !fake.slow)
        fake_says(c->sock, INITMSG_READY, c->pid, 0, NULL, 0);
    else if (word->type == INITMSG_EXEC)
        c->running = true;
}

/* Reads one packet -> false when there was none. */
static bool fake_reads(int sock, struct fake_child *child) {
    char packet[65536];
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    ssize_t n = sock < 0 ? -1 : fd_recv(sock, packet, sizeof(packet), fds, &nfds, NULL, NULL);
    if (n == 0 && child != NULL && !child->running) { /* told to go: it ends, and is reaped */
        fd_close(&child->sock);
        fake_says(fake.jail.control, INITMSG_EXITED, child->pid, 0, NULL, 0);
        child->killed = false;
        return true;
    }
    if (n < (ssize_t)sizeof(struct initmsg_word))
        return false;
    struct initmsg_word word;
    memcpy(&word, packet, sizeof(word));
    if (child != NULL)
        fake_child_told(child, &word);
    else
        fake_told(&word, fds, nfds);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    return true;
}

/* Process 1 and its children do what they were told -> did they do anything? */
static bool fake_works(void) {
    struct fake_jail *j = &fake.jail;
    bool some = false;
    if (j->dead || j->death < 0)
        return false;
    while (fake_reads(j->control, NULL))
        some = true;
    for (unsigned i = 0; i < j->children; i++)
        while (!j->dead && fake_reads(j->child[i].sock, &j->child[i]))
            some = true;
    return some;
}

static struct fake_child *fake_running(unsigned nth) {
    for (unsigned i = 0; i < fake.jail.children && !fake.jail.dead; i++)
        if (fake.jail.child[i].running && !fake.jail.child[i].killed && nth-- == 0)
            return &fake.jail.child[i];
    return NULL;
}

/* The command has begun. */
static void fake_starts(struct fake_child *c) {
    if (c->started)
        return;
    c->started = true;
    fake_says(c->sock, INITMSG_STARTED, c->pid, 0, NULL, 0);
}

/* It ends, and process 1 reports that. */
static void fake_ends(struct fake_child *c, int status) {
    c->killed = true;
    fd_close(&c->sock);
    fake_says(fake.jail.control, INITMSG_EXITED, c->pid, status, NULL, 0);
}

/* Control groups: the n-th group that is made is that of the n-th child. */

void cgroup_jail_init(struct cgroup_jail *jail) {
    (void)jail;
}

int cgroup_jail_make(struct cgroup_host *host, const char *name, bool left,
                     struct cgroup_jail *jail, struct err *err) {
    (void)host, (void)name, (void)left, (void)jail, (void)err;
    return 0;
}

int cgroup_jail_adopt(const struct cgroup_host *host, const char *name, pid_t pid, int pidfd,
                      struct cgroup_jail *jail, struct err *err) {
    (void)host, (void)name, (void)pid, (void)pidfd, (void)jail;
    return err_set(err, ERR_STATE, 0, "there are no containers");
}

int cgroup_jail_memory(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       uint64_t *bytes, struct err *err) {
    (void)host, (void)jail, (void)err;
    *bytes = 0;
    return 0;
}

int cgroup_jail_limit(const struct cgroup_host *host, const struct cgroup_jail *jail,
                      const struct limits *limits, struct err *err) {
    (void)host, (void)jail, (void)limits, (void)err;
    return 0;
}

int cgroup_jail_weigh(struct cgroup_host *host, struct cgroup_jail *jail, uint32_t shares,
                      struct err *err) {
    (void)host, (void)jail, (void)shares, (void)err;
    return 0;
}

int cgroup_jail_mark(const struct cgroup_host *host, struct cgroup_jail *jail, struct err *err) {
    (void)host, (void)jail, (void)err;
    return 0;
}

int cgroup_jail_read(const struct cgroup_host *host, const struct cgroup_jail *jail,
                     const struct cgroup_step *step, struct cgroup_jail_usage *usage,
                     struct err *err) {
    (void)host, (void)jail, (void)step, (void)err;
    *usage = (struct cgroup_jail_usage){.pids_peak = 1};
    return 0;
}

int cgroup_jail_peak(const struct cgroup_jail *jail, uint64_t *bytes, struct err *err) {
    (void)jail, (void)err;
    *bytes = 0;
    return 0;
}

void cgroup_jail_rest(struct cgroup_jail *jail) {
    (void)jail;
}

void cgroup_step_rest(struct cgroup_step *step) {
    step->events_fd = -1;
}

void cgroup_jail_abandon(struct cgroup_jail *jail) {
    (void)jail;
}

int cgroup_jail_remove(struct cgroup_host *host, struct cgroup_jail *jail, struct err *err) {
    (void)host, (void)jail, (void)err;
    return 0;
}

void cgroup_step_init(struct cgroup_step *step) {
    memset(step, 0, sizeof(*step));
    step->usage_fd = step->events_fd = -1;
}

/* usage_fd says which child it is for. */
int cgroup_step_make(const struct cgroup_host *host, struct cgroup_jail *jail, unsigned n, bool own,
                     struct cgroup_step *step, struct err *err) {
    (void)host, (void)jail, (void)own, (void)err;
    step->usage_fd = (int)n;
    fake.made++;
    return 0;
}

int cgroup_step_extend(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err) {
    (void)host, (void)jail, (void)pid, (void)err;
    step->own = true;
    return 0;
}

int cgroup_step_limit(const struct cgroup_host *host, const struct cgroup_step *step,
                      const struct limits *limits, struct err *err) {
    (void)host, (void)step, (void)limits, (void)err;
    return 0;
}

/* events_fd says whether its counters can be read. */
int cgroup_step_watch(const struct cgroup_host *host, struct cgroup_step *step, struct err *err) {
    (void)host, (void)err;
    step->events_fd = 0;
    return 0;
}

int cgroup_step_expect(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err) {
    (void)host, (void)jail, (void)step, (void)err;
    return 0;
}

int cgroup_step_attach(const struct cgroup_host *host, const struct cgroup_jail *jail,
                       struct cgroup_step *step, pid_t pid, struct err *err) {
    (void)host, (void)jail, (void)step, (void)pid;
    if (fake.homeless > 0) {
        fake.homeless--;
        return err_set(err, ERR_SYSTEM, ENOENT, "opening cgroup.procs");
    }
    fake.attached++;
    return 0;
}

static struct fake_child *fake_in(const struct cgroup_step *step) {
    unsigned n = (unsigned)step->usage_fd;
    return step->usage_fd >= 0 && n < fake.jail.children ? &fake.jail.child[n] : NULL;
}

int cgroup_step_cpu(const struct cgroup_step *step, uint64_t *cpu_ns, struct err *err) {
    (void)step, (void)err;
    *cpu_ns = fake.cpu_ns;
    return 0;
}

int cgroup_step_read(const struct cgroup_step *step, struct cgroup_usage *usage, struct err *err) {
    (void)step, (void)err;
    *usage = (struct cgroup_usage){.oom_kills = fake.oom_kills};
    return 0;
}

int cgroup_step_populated(const struct cgroup_step *step, struct err *err) {
    const struct fake_child *c = fake_in(step);
    if (step->events_fd < 0)
        return err_set(err, ERR_SYSTEM, EBADF, "a step that nobody watches");
    return !fake.jail.dead && c != NULL && !c->killed && c->sock >= 0;
}

int cgroup_step_count(const struct cgroup_host *host, const struct cgroup_step *step,
                      uint32_t *count, struct err *err) {
    (void)host, (void)step, (void)err;
    *count = 0;
    return 0;
}

int cgroup_step_kill(const struct cgroup_host *host, const struct cgroup_step *step,
                     struct err *err) {
    struct fake_child *c = fake_in(step);
    (void)host, (void)err;
    if (!fake.jail.dead && c != NULL && !c->killed)
        fake_ends(c, SIGKILL);
    return 0;
}

int cgroup_step_freeze(const struct cgroup_host *host, const struct cgroup_step *step, bool frozen,
                       struct err *err) {
    (void)host, (void)step, (void)frozen, (void)err;
    return 0;
}

int cgroup_step_frozen(const struct cgroup_step *step, struct err *err) {
    (void)step, (void)err;
    return 0;
}

int cgroup_step_remove(const struct cgroup_host *host, struct cgroup_jail *jail,
                       struct cgroup_step *step, struct err *err) {
    (void)host, (void)jail, (void)err;
    if (step->usage_fd >= 0)
        fake.gone++;
    step->usage_fd = -1;
    return 0;
}

void cgroup_step_abandon(struct cgroup_step *step) {
    if (step->usage_fd >= 0)
        fail_msg("a group of a step was left behind");
}
