#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "str.h"

/* For what never happens; a host that is slow may take seconds. */
#define JAIL_BUILD_NS (60 * CLOCK_NS_PER_S)
/* An engine has timeouts of its own, which say more. */
#define JAIL_CONTAINED_NS (90 * CLOCK_NS_PER_S)
#define JAIL_REMOVE_NS (60 * CLOCK_NS_PER_S)
#define JAIL_RETRY_NS (2 * CLOCK_NS_PER_MS)

static void jail_unborn(void *arg);

void jail_kill(struct jail *j) {
    if (j->state == JAIL_DYING) {
        return;
    }
    j->state = JAIL_DYING;
    loop_timer_stop(j->host->loop, &j->build_timer);
    if (j->pid_src.fd < 0) {
        /* Nobody will hear of its death, or it was not born: its maker is told from the loop. */
        (void)loop_timer_at(j->host->loop, &j->remove_timer, clock_mono_ns(), jail_unborn, j, NULL);
    }
    if (j->pidfd >= 0) {
        /* With process 1 the kernel kills its whole pid namespace, and waits for it. Its number is
         * ours until we have waited for it, so where there is no call for descriptors the plain one
         * is as safe; once it has been waited for (ESRCH), the number may be anybody's. */
        if (syscall(SYS_pidfd_send_signal, j->pidfd, SIGKILL, NULL, 0) != 0 && errno != ESRCH) {
            (void)kill(j->pid, SIGKILL);
        }
    }
}

void jail_fail(struct jail *j, const char *stage, int code, const char *text) {
    if (j->reported || j->state == JAIL_DYING) {
        return;
    }
    j->reported = true;
    jail_kill(j);
    j->events->failed(j->arg, j, stage, exec_errno(code), text);
}

static void jail_timeout(void *arg) {
    jail_fail(arg, "set-up", ETIMEDOUT, "a jail was not ready in time");
}

/* Removes what cgroups are left; comes back until they are gone. */
static void jail_remove(void *arg) {
    struct jail *j = arg;
    struct err err;
    int rc = jail_remove_execs(j, &err);
    if (rc == 0) {
        rc = cgroup_jail_remove(j->host->cgroups, &j->cgroup, &err);
    }
    if (rc != 0 && clock_mono_ns() < j->remove_deadline_ns) {
        (void)loop_timer_at(j->host->loop, &j->remove_timer, clock_mono_ns() + JAIL_RETRY_NS,
                            jail_remove, j, NULL);
        return;
    }
    jail_free_execs(j);
    cgroup_jail_abandon(&j->cgroup);
    if (j->host->maker->end != NULL && j->made != NULL) {
        j->host->maker->end(j->host->maker->arg, j);
        return;
    }
    jail_removed(j);
}

void jail_removed(struct jail *j) {
    j->events->gone(j->arg, j);
}

static void jail_close(struct jail *j) {
    struct loop *loop = j->host->loop;
    loop_timer_stop(loop, &j->build_timer);
    loop_timer_stop(loop, &j->sockets_timer);
    loop_del(loop, &j->control_src);
    loop_del(loop, &j->pid_src);
    loop_del(loop, &j->filter_src);
    fd_hang_up(&j->control);
    fd_close(&j->pidfd);
    fd_close(&j->writable_fd);
    fd_close(&j->filter_fd);
    netns_give(j->host->networks, &j->net_fd, j->net_told);
    jail_close_execs(j);
    free(j->spawn);
    j->spawn = NULL;
}

static void jail_unborn(void *arg) {
    struct jail *j = arg;
    jail_close(j);
    j->remove_deadline_ns = clock_mono_ns() + JAIL_REMOVE_NS;
    jail_remove(j);
}

/* Process 1 has ended, and with it, the kernel promises, every process of its namespace. */
static void jail_died(void *arg, uint32_t events) {
    struct jail *j = arg;
    siginfo_t info;
    (void)events;
    if (waitid(P_PIDFD, (id_t)j->pidfd, &info, WEXITED | WNOHANG) != 0 && errno != ECHILD) {
        return; /* it is there still, and so is the event */
    }
    const char *step = j->spawn ? spawn_failed_step(j->spawn) : "";
    if (*step != '\0') {
        jail_fail(j, step, j->spawn->fail_code, "process 1 could not be started");
    } else {
        jail_fail(j, "process 1", ECHILD, "process 1 of a jail died");
    }
    /* What else has happened is told first, the end of a command to somebody who waits for it: to
     * take a jail down takes a quarter of a millisecond. */
    if (loop_timer_at(j->host->loop, &j->remove_timer, clock_mono_ns(), jail_unborn, j, NULL) !=
        0) {
        jail_unborn(j);
    }
}

/* A directory, and what has no type, as a listener has none: closing such waits for nobody. */
static bool jail_are_right(const int *fds, size_t nfds) {
    struct stat root;
    struct stat listener;
    return (nfds == 1 || (fstat(fds[0], &root) == 0 && S_ISDIR(root.st_mode))) &&
           fstat(fds[nfds - 1], &listener) == 0 && (listener.st_mode & S_IFMT) == 0;
}

/* The listener of the filter comes last; in front of it, from a native jail, the root of what can
 * be written. Of one that is dying nothing is looked up: its number may be somebody else's. */
static void jail_setup_ok(struct jail *j, int *fds, size_t nfds) {
    struct statfs fs;
    char path[64];
    struct stat st;
    bool contained = j->host->maker->contained;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)j->pid);
    if (j->state != JAIL_BUILDING || nfds != (contained ? 1u : 2u) || j->filter_fd >= 0 ||
        (j->writable_fd >= 0) != contained || !jail_are_right(fds, nfds) ||
        fstatfs(contained ? j->writable_fd : fds[0], &fs) != 0 || stat(path, &st) != 0) {
        jail_fail(j, "set-up answer", EPROTO, "process 1 answered out of order");
        return;
    }
    if (!contained) {
        j->writable_fd = fd_steal(&fds[0]);
        if (!j->net_old) {
            j->net_fd = netns_adopt(j->host->networks, j->pid);
        }
    }
    j->filter_fd = fd_steal(&fds[nfds - 1]);
    if (loop_add(j->host->loop, &j->filter_src, j->filter_fd, EPOLLIN, jail_filtered, j, NULL) !=
        0) {
        jail_fail(j, "filter", errno, "the filter's listener cannot be watched");
    }
    j->pid_ns = st.st_ino;
    j->disk_base = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    j->inodes_base = fs.f_files - fs.f_ffree;
    free(j->spawn); /* it has executed: nobody stands on that stack any more */
    j->spawn = NULL;
}

/* Ready when both have said so: process 1 that it has no power any more, and the first child. */
static void jail_built(struct jail *j) {
    if (j->sealed && j->spare->state == EXEC_READY) {
        j->state = JAIL_READY;
        loop_timer_stop(j->host->loop, &j->build_timer);
        j->events->ready(j->arg, j);
    }
}

static void jail_report(struct jail *j, struct initmsg_report *r, int *fds, size_t nfds) {
    r->stage[sizeof r->stage - 1] = '\0';
    switch (nfds == 0 || r->type == INITMSG_SETUP_OK ? r->type : 0) {
    case INITMSG_SETUP_OK:
        jail_setup_ok(j, fds, nfds);
        return;
    case INITMSG_SEALED:
        if (j->state != JAIL_BUILDING || j->sealed || j->spare == NULL ||
            j->spare->state < EXEC_CONFINED) {
            break;
        }
        j->sealed = true;
        jail_built(j);
        return;
    case INITMSG_EXITED:
        jail_exited(j, r);
        return;
    case INITMSG_FAILED:
        jail_fail(j, r->stage, r->code, "process 1 could not set the jail up");
        return;
    default:
        break;
    }
    jail_fail(j, "process 1", EPROTO, "process 1 answered out of order");
}

void jail_hear(struct jail *j) {
    struct initmsg_report r;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    struct err err;
    if (j->control < 0) {
        return;
    }
    ssize_t n = fd_recv(j->control, &r, sizeof r, fds, &nfds, NULL, &err);
    if (n < 0 && err.code == ECONNRESET) {
        /* It ended without reading all we sent: what it said before is still there, behind this. */
        n = fd_recv(j->control, &r, sizeof r, fds, &nfds, NULL, &err);
    }
    if (n < 0 && err.code == EAGAIN) {
        return;
    }
    if (n < 0 && err.code != ECONNRESET) {
        /* It lives on, and what it says is lost: nobody would wait for the end of anything. */
        jail_fail(j, "process 1", err.code != 0 ? err.code : EPROTO, err.text);
        return;
    }
    if (n <= 0) {
        loop_del(j->host->loop, &j->control_src); /* its death comes through the pidfd */
        return;
    }
    if (n == (ssize_t)sizeof r) {
        jail_report(j, &r, fds, nfds);
    } else {
        jail_fail(j, "process 1", EPROTO, "process 1 sent a malformed message");
    }
    fd_drop(fds, nfds); /* those that were taken are -1 by now */
}

static void jail_control(void *arg, uint32_t events) {
    (void)events;
    jail_hear(arg);
}

uint32_t jail_ids_base(const struct jail_ids *ids, uint32_t n) {
    return ids->first + (ids->count == SPAWN_IDS_ONE ? 0 : n * ids->count);
}

uint32_t jail_core_limit(void) {
    struct buf pattern;
    buf_init(&pattern, 4096);
    bool piped = fd_read_file(AT_FDCWD, "/proc/sys/kernel/core_pattern", &pattern, NULL) == 0 &&
                 pattern.len > 0 && pattern.data[0] == '|';
    buf_done(&pattern);
    return piped ? 1 : 0;
}

static int jail_send_setup(struct jail *j, struct err *err) {
    _Alignas(8) char packet[sizeof(struct initmsg_setup) + INITMSG_BPF_MAX];
    struct initmsg_setup *msg = (struct initmsg_setup *)(void *)packet;
    size_t bpf = j->bpf->len * sizeof(struct sock_filter);
    if (bpf > INITMSG_BPF_MAX) {
        return err_set(err, ERR_LIMIT, 0, "the system call filter is too long");
    }
    *msg = (struct initmsg_setup){
        .type = INITMSG_SETUP,
        .writable = j->writable,
        .disk_bytes = j->limits.v[LIMIT_DISK_BYTES],
        .inodes = j->limits.v[LIMIT_INODES],
        .open_files = j->ceiling.v[LIMIT_OPEN_FILES],
        .file_bytes = j->ceiling.v[LIMIT_FILE_BYTES],
        .stack_bytes = j->ceiling.v[LIMIT_STACK_BYTES],
        .bpf_bytes = (uint32_t)bpf,
        .core_bytes = j->host->core_bytes,
        .network = j->net_old,
        .one_id = j->one_id,
    };
    memcpy(packet + sizeof *msg, j->bpf->insns, bpf);
    return fd_send(j->control, packet, sizeof *msg + bpf, NULL, 0, err);
}

/* Native: process 1 is cloned here and now. */
static int jail_native_begin(void *arg, struct jail *j, const struct jail_plan *plan,
                             struct err *err) {
    int pair[2];
    (void)arg;
    j->spawn = calloc(1, sizeof *j->spawn);
    if (j->spawn == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return err_sys(err, "making a control socket");
    }
    struct jail_birth birth = {.control = pair[0], .writable_fd = -1};
    j->net_fd = netns_take(j->host->networks);
    j->net_old = j->net_fd >= 0;
    fd_cleanup int init_end = pair[1];
    const struct spawn_config cfg = {
        .template_ns = plan->template_ns,
        .home_ns = j->host->home_ns,
        .net_ns = j->net_fd,
        .networks = j->host->networks,
        .init_fd = j->host->init_fd,
        .control_fd = init_end,
        .id_base = plan->id_base,
        .id_count = plan->id_count,
    };
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0) {
        (void)err_sys(err, "preparing a control socket");
        fd_close(&pair[0]);
        return -1;
    }
    if (spawn_init(j->spawn, &cfg, &birth.pid, &birth.pidfd, err) != 0) {
        fd_close(&pair[0]);
        return -1;
    }
    return jail_born(j, &birth, err);
}

const struct jail_maker jail_native = {.begin = jail_native_begin};

static int jail_cgroup(struct jail *j, struct err *err) {
    char name[CGROUP_NAME_MAX];
    struct cgroup_host *host = j->host->cgroups;
    (void)snprintf(name, sizeof name, "j%llu", (unsigned long long)++j->host->serial);
    int rc = j->host->maker->contained
                 ? cgroup_jail_adopt(host, name, j->pid, j->pidfd, &j->cgroup, err)
                 : cgroup_jail_make(host, name, j->left, &j->cgroup, err);
    return rc != 0 ? -1 : cgroup_jail_limit(host, &j->cgroup, &j->limits, err);
}

/* Process 1 works on its steps while the cgroups are made here; it cannot get ahead of them, since
 * its first child waits for a word from this thread. */
int jail_born(struct jail *j, const struct jail_birth *birth, struct err *err) {
    struct loop *loop = j->host->loop;
    j->pid = birth->pid;
    j->pidfd = birth->pidfd;
    j->control = birth->control;
    j->writable_fd = birth->writable_fd;
    if (j->host->maker->contained) {
        j->one_id = birth->one_id;
        j->id_base = birth->id_base;
    }
    if (loop_add(loop, &j->pid_src, j->pidfd, EPOLLIN, jail_died, j, err) != 0 ||
        loop_add(loop, &j->control_src, j->control, EPOLLIN, jail_control, j, err) != 0 ||
        jail_send_setup(j, err) != 0) {
        return -1;
    }
    j->bpf = NULL;
    bool contained = j->host->maker->contained;
    j->spare = exec_new(j, j->forked++, err);
    /* The groups of a container are adopted while nobody but process 1 is in them. */
    if (j->spare == NULL || (contained && jail_cgroup(j, err) != 0) ||
        exec_connect(j->spare, err) != 0 || (!contained && jail_cgroup(j, err) != 0)) {
        return -1;
    }
    return exec_make_cgroup(j->spare, err);
}

static struct jail *jail_blank(struct jail_host *host, const struct jail_plan *plan) {
    struct jail *j = calloc(1, sizeof *j);
    if (j == NULL) {
        return NULL;
    }
    j->host = host;
    j->pidfd = j->control = j->writable_fd = j->filter_fd = j->net_fd = -1;
    j->pid_src.fd = j->control_src.fd = j->filter_src.fd = -1;
    j->slot = plan->slot;
    j->id_base = plan->id_base;
    j->id_count = plan->id_count;
    j->one_id = plan->id_count == SPAWN_IDS_ONE;
    j->writable = plan->writable;
    j->left = plan->left;
    j->limits = j->applied = plan->limits;
    j->ceiling = plan->ceiling;
    j->bpf = plan->bpf;
    cgroup_jail_init(&j->cgroup);
    return j;
}

struct jail *jail_new(struct jail_host *host, const struct jail_plan *plan,
                      const struct jail_events *events, void *arg, struct err *err) {
    struct jail *j = jail_blank(host, plan);
    uint64_t patience_ns = host->maker->contained ? JAIL_CONTAINED_NS : JAIL_BUILD_NS;
    if (j == NULL) {
        (void)err_sys(err, "making a jail");
        return NULL;
    }
    j->events = events;
    j->arg = arg;
    if (loop_timer_at(host->loop, &j->build_timer, clock_mono_ns() + patience_ns, jail_timeout, j,
                      err) == 0 &&
        host->maker->begin(host->maker->arg, j, plan, err) == 0) {
        return j;
    }
    if (j->pidfd >= 0) {
        siginfo_t info;
        (void)kill(j->pid, SIGKILL);
        while (waitid(P_PIDFD, (id_t)j->pidfd, &info, WEXITED) != 0 && errno == EINTR) {
        }
    }
    jail_close(j);
    (void)jail_remove_execs(j, NULL);
    jail_free_execs(j);
    (void)cgroup_jail_remove(host->cgroups, &j->cgroup, NULL);
    cgroup_jail_abandon(&j->cgroup);
    jail_free(j);
    return NULL;
}

void jail_seal(struct jail *j) {
    const struct initmsg_word seal = {.type = INITMSG_SEAL};
    struct err err;
    if (fd_send(j->control, &seal, sizeof seal, NULL, 0, &err) != 0) {
        jail_fail(j, "seal", err.code, err.text);
    }
}

void jail_exec_ready(struct jail *j, struct exec *x) {
    if (j->state == JAIL_BUILDING) {
        jail_built(j);
    } else if (j->state == JAIL_READY && x == j->spare) {
        j->events->ready(j->arg, j);
    }
}

void jail_free(struct jail *j) {
    if (j != NULL) {
        jail_free_execs(j);
        free(j->spawn);
        free(j);
    }
}
