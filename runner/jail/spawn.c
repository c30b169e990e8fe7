#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "initmsg.h"
#include "rawcall.h"

#define SPAWN_INIT_MAX (16u * 1024 * 1024)
#define SPAWN_TRIES 1000
/* How long the child waits for its id maps: a minute, in looks. */
#define SPAWN_LOOK_NS 100000000L
#define SPAWN_LOOKS 600

enum spawn_step {
    SPAWN_WAIT,
    SPAWN_GIDS,
    SPAWN_UIDS,
    SPAWN_GROUPS,
    SPAWN_KEEP,
    SPAWN_CONTROL,
    SPAWN_EXEC
};

static const char *const spawn_step_names[] = {
    [SPAWN_WAIT] = "id maps",      [SPAWN_GIDS] = "group ids",
    [SPAWN_UIDS] = "user ids",     [SPAWN_GROUPS] = "groups",
    [SPAWN_KEEP] = "capabilities", [SPAWN_CONTROL] = "control socket",
    [SPAWN_EXEC] = "execute init",
};

/* Runs in the child, on its own stack, in the runner's memory. No libc call: errno, stdio and
 * malloc belong to the runner, which goes on meanwhile. */
static void spawn_step(struct spawn *s, enum spawn_step step, long result) {
    if (result < 0) {
        s->fail_step = (uint32_t)step;
        __atomic_store_n(&s->fail_code, (int32_t)-result, __ATOMIC_RELEASE);
        for (;;) {
            rawcall(SYS_exit, 1, 0, 0, 0, 0);
        }
    }
}

/* The ids that process 1 begins with: user 0 of the new namespace, before exec, or exec would take
 * the capabilities away. Where there is no user 0 they are handed over as ambient ones; process 1
 * gives them up where it seals itself, like those that user 0 has. With one id there is nothing to
 * change, and an unprivileged user may not even leave groups: rootless.h sees to them. */
static void spawn_ids(struct spawn *s) {
    if (s->ids != SPAWN_IDS_ONE) {
        spawn_step(s, SPAWN_GROUPS, rawcall(SYS_setgroups, 0, 0, 0, 0, 0));
        spawn_step(s, SPAWN_GIDS, rawcall(SYS_setresgid, 0, 0, 0, 0, 0));
        spawn_step(s, SPAWN_UIDS, rawcall(SYS_setresuid, 0, 0, 0, 0, 0));
        return;
    }
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    spawn_step(s, SPAWN_KEEP, rawcall(SYS_capget, (long)&head, (long)data, 0, 0, 0));
    data[0].inheritable = data[0].permitted;
    data[1].inheritable = data[1].permitted;
    spawn_step(s, SPAWN_KEEP, rawcall(SYS_capset, (long)&head, (long)data, 0, 0, 0));
    for (int cap = 0; cap < 64; cap++) {
        if (data[cap / 32].permitted & (1u << (cap % 32))) {
            spawn_step(s, SPAWN_KEEP,
                       rawcall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0));
        }
    }
}

static bool spawn_runner_is_dead(const struct spawn *s) {
    struct pollfd runner = {.fd = s->runner_fd, .events = POLLIN};
    struct timespec now = {0};
    return rawcall(SYS_ppoll, (long)&runner, 1, (long)&now, 0, 0) > 0;
}

/* The runner may die at any moment, with nobody left to say go. When it does before the child has
 * asked for the signal, none comes; and the child holds all that the runner had open, so that the
 * server would not notice that the runner is dead. */
static void spawn_wait(struct spawn *s) {
    const struct timespec look = {.tv_nsec = SPAWN_LOOK_NS};
    uint32_t go;
    int looks = 0;
    spawn_step(s, SPAWN_WAIT, rawcall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
    while ((go = __atomic_load_n(&s->go, __ATOMIC_ACQUIRE)) == 0) {
        spawn_step(s, SPAWN_WAIT, spawn_runner_is_dead(s) ? -ESRCH : 0);
        long rc = rawcall(SYS_futex, (long)&s->go, FUTEX_WAIT_PRIVATE, 0, (long)&look, 0);
        spawn_step(s, SPAWN_WAIT, rc == -ETIMEDOUT && ++looks == SPAWN_LOOKS ? rc : 0);
    }
    spawn_step(s, SPAWN_WAIT, go == 1 ? 0 : -ECANCELED);
}

static int spawn_child(void *arg) {
    static const char *const argv[] = {"pinfold-init", NULL};
    static const char *const env[] = {NULL};
    struct spawn *s = arg;
    spawn_wait(s);
    spawn_ids(s);
    if (s->control_fd != INITMSG_FD) {
        spawn_step(s, SPAWN_CONTROL, rawcall(SYS_dup3, s->control_fd, INITMSG_FD, 0, 0, 0));
    } else {
        spawn_step(s, SPAWN_CONTROL, rawcall(SYS_fcntl, INITMSG_FD, F_SETFD, 0, 0, 0));
    }
    /* INITMSG_FD may be the number of init_fd itself: the runner keeps init_fd above it. */
    spawn_step(s, SPAWN_EXEC,
               rawcall(SYS_execveat, s->init_fd, (long)"", (long)argv, (long)env, AT_EMPTY_PATH));
    return 1;
}

static int spawn_map(pid_t pid, const char *file, const struct spawn_config *cfg, struct err *err) {
    char path[64];
    char text[128];
    uint32_t base = cfg->id_base;
    int n;
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    if (cfg->id_count == SPAWN_IDS_ONE) {
        n = snprintf(text, sizeof text, "%u %u 1\n", INITMSG_UID_USER, base);
    } else if (cfg->id_count == SPAWN_IDS_FEW) {
        n = snprintf(text, sizeof text, "0 %u 3\n%u %u 1\n65534 %u 1\n", base, INITMSG_UID_USER,
                     base + 3, base + 4);
    } else {
        n = snprintf(text, sizeof text, "0 %u %u\n", base, cfg->id_count);
    }
    struct err why;
    for (int i = 0; i < SPAWN_TRIES; i++) {
        /* A child that becomes another user makes the memory that it shares with us undumpable, and
         * then the files of both in /proc belong to the host's root. Only one that has not executed
         * yet can come in between again. */
        if (cfg->id_count != SPAWN_IDS_ALL) {
            (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
        if (fd_write_kernel(AT_FDCWD, path, text, (size_t)n, &why) == 0) {
            return 0;
        }
        if (why.code != EACCES || cfg->id_count == SPAWN_IDS_ALL) {
            break;
        }
    }
    if (err != NULL) {
        *err = why;
    }
    return -1;
}

/* What the kernel counts for a user (inotify instances and watches, queued signals, locked memory)
 * it counts in every user namespace up to the first: there for the user who made the namespace. If
 * that were root for all jails, one that takes all there is would leave nothing to the others and
 * to the host's root. So each jail's is made by the jail's own first id. The capabilities stay, or
 * hosts that keep namespaces from the unprivileged would refuse: of who leaves root for a while the
 * kernel only takes them out of effect, and to put them back needs none (to say beforehand that
 * they stay would need SETPCAP). A change of user turns off the signal at the parent's death, which
 * is therefore asked for again. Where ids are few the runner is one user with all of its jails. */
static int spawn_owner(uint32_t uid, struct err *err) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {0};
    int signal = 0;
    pid_t parent = getppid();
    if (prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) != 0 || syscall(SYS_capget, &head, caps) != 0 ||
        setresuid((uid_t)-1, uid, (uid_t)-1) != 0) {
        return err_sys(err, "becoming the user who owns the jail's namespaces");
    }
    if (syscall(SYS_capset, &head, caps) != 0) {
        abort(); /* as another user, or without them, nothing here may go on */
    }
    if (signal != 0 && (prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) != 0 || getppid() != parent)) {
        abort(); /* nobody is left to end this process */
    }
    return 0;
}

const char *spawn_remedy(int code) {
    switch (code) {
    case EPERM:
    case EACCES:
    case ENOSYS: /* what some filters answer instead */
        return "; the runner must be root with CAP_SYS_ADMIN, and no seccomp filter or AppArmor "
               "profile may keep it from making namespaces and mounts (in a container: --cap-add "
               "SYS_ADMIN, --security-opt seccomp=unconfined and apparmor=unconfined)";
    case ENOSPC:
    case EUSERS:
        return "; raise user.max_user_namespaces and the like of it for other namespaces";
    default:
        return "";
    }
}

static pid_t spawn_clone_as(struct spawn *s, const struct spawn_config *cfg, int *pidfd,
                            struct err *err) {
    const int flags = CLONE_VM | CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
                      CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD | (cfg->net_ns < 0 ? CLONE_NEWNET : 0);
    bool own = cfg->id_count == SPAWN_IDS_ALL;
    pid_t pid = -1;
    if (!own || spawn_owner(cfg->id_base, err) == 0) {
        pid = clone(spawn_child, s->stack + sizeof s->stack, flags, s, pidfd);
        if (pid < 0) {
            int code = errno;
            (void)err_set(err, ERR_SYSTEM, code, "making the jail's namespaces (clone): %s%s",
                          strerror(code), spawn_remedy(code));
        }
        if (own && spawn_owner(0, NULL) != 0) {
            abort(); /* as another user nothing here may go on */
        }
    }
    return pid;
}

static pid_t spawn_clone(struct spawn *s, const struct spawn_config *cfg, int *pidfd,
                         struct err *err) {
    if (cfg->net_ns >= 0 && netns_enter(cfg->net_ns, err) != 0) {
        return -1;
    }
    pid_t pid = -1;
    if (setns(cfg->template_ns, CLONE_NEWNS) == 0) {
        pid = spawn_clone_as(s, cfg, pidfd, err);
    } else {
        (void)err_sys(err, "entering the image's mount namespace");
    }
    if (cfg->net_ns >= 0) {
        netns_leave(cfg->networks);
    }
    if (setns(cfg->home_ns, CLONE_NEWNS) != 0) {
        abort(); /* in a mount namespace that isn't ours nothing here may go on */
    }
    return pid;
}

int spawn_init(struct spawn *s, const struct spawn_config *cfg, pid_t *pid, int *pidfd,
               struct err *err) {
    s->init_fd = cfg->init_fd;
    s->control_fd = cfg->control_fd;
    s->fail_code = 0;
    s->fail_step = SPAWN_WAIT;
    s->go = 0;
    s->ids = cfg->id_count;
    int fd = -1;
    fd_cleanup int runner = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (runner < 0) {
        return err_sys(err, "opening the runner's own pidfd");
    }
    s->runner_fd = runner;
    pid_t child = spawn_clone(s, cfg, &fd, err);
    if (child < 0) {
        return -1;
    }
    int rc = spawn_map(child, "gid_map", cfg, err);
    if (rc == 0) {
        rc = spawn_map(child, "uid_map", cfg, err);
    }
    __atomic_store_n(&s->go, rc == 0 ? 1u : 2u, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &s->go, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    if (rc != 0) {
        siginfo_t info;
        (void)waitid(P_PIDFD, (id_t)fd, &info, WEXITED);
        fd_close(&fd);
        return err_wrap(err, "mapping the jail's user ids");
    }
    *pid = child;
    *pidfd = fd;
    return 0;
}

const char *spawn_failed_step(const struct spawn *s) {
    return s->fail_code != 0 ? spawn_step_names[s->fail_step] : "";
}

int spawn_load(const char *path, struct err *err) {
    struct buf bytes;
    buf_init(&bytes, SPAWN_INIT_MAX);
    int low = -1;
    if (fd_read_file(AT_FDCWD, path, &bytes, err) == 0) {
        low = fd_memfd("pinfold-init", bytes.data, bytes.len, true, err);
    }
    buf_done(&bytes);
    if (low < 0) {
        return err_wrap(err, "loading %s", path);
    }
    /* Opened again for reading: the kernel executes nothing that somebody holds open for writing.
     */
    char self[64];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", low);
    int readable = open(self, O_RDONLY | O_CLOEXEC);
    fd_close(&low);
    int fd = readable < 0 ? -1 : fcntl(readable, F_DUPFD_CLOEXEC, 64); /* see spawn_child() */
    if (fd < 0) {
        (void)err_sys(err, "loading %s", path);
    }
    fd_close(&readable);
    return fd;
}
