#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "clock.h"
#include "fd.h"
#include "scratch.h"
#include "setup.h"

#define INIT_SIGNALS 64
#define INIT_CHILDREN_MAX 256

/* What process 1 knows: which of its children are executions. Everything else that dies here is an
 * orphan of a command and is only reaped. */
struct init {
    int signals; /* signalfd for SIGCHLD */
    bool contained;
    bool apart; /* contained: in a user namespace of its own */
    bool ready; /* SETUP is done */
    bool sealed;
    bool one_id; /* see setup.h */
    pid_t first; /* the child forked before SEAL */
    int gate;    /* … and where it says that its control group's namespace is there; -1 */
    pid_t child[INIT_CHILDREN_MAX];
    /* The largest message: SETUP with its program. */
    _Alignas(8) char message[sizeof(struct initmsg_setup) + INITMSG_BPF_MAX];
};

static void init_report(const struct initmsg_report *r, const int *fds, size_t nfds) {
    /* The runner is gone when this fails, and then so is the jail. */
    if (fd_send(INITMSG_FD, r, sizeof *r, fds, nfds, NULL) != 0) {
        _exit(1);
    }
}

void init_fail(const char *stage, int code) {
    struct initmsg_report r = {.type = INITMSG_FAILED, .code = code};
    strncpy(r.stage, stage, sizeof r.stage - 1);
    init_report(&r, NULL, 0);
    _exit(1);
}

static void init_setup(struct init *in, size_t size) {
    const struct initmsg_setup *wish = (const struct initmsg_setup *)(const void *)in->message;
    if (in->ready || size < sizeof *wish || wish->bpf_bytes > INITMSG_BPF_MAX ||
        wish->bpf_bytes % sizeof(struct sock_filter) != 0 || wish->bpf_bytes == 0 ||
        size != sizeof *wish + wish->bpf_bytes) {
        init_fail("setup message", EPROTO);
    }
    struct setup s = {.wish = wish, .bpf = in->message + sizeof *wish, .writable_fd = -1};
    if (in->contained) {
        if (in->apart != (wish->one_id == 0)) {
            init_fail("user namespace", EPROTO);
        }
        setup_contained(&s);
    } else {
        setup_run(&s);
    }
    struct initmsg_report r = {.type = INITMSG_SETUP_OK};
    const int fds[2] = {s.writable_fd, s.filter_fd};
    init_report(&r, in->contained ? fds + 1 : fds, in->contained ? 1 : 2);
    if (!in->contained) {
        (void)close(s.writable_fd);
    }
    (void)close(s.filter_fd);
    in->one_id = wish->one_id != 0;
    in->ready = true;
}

static void init_fork(struct init *in, size_t size, int sock) {
    if (!in->ready || size != sizeof(struct initmsg_fork) || sock < 0 ||
        (!in->sealed && in->first != 0)) {
        init_fail("fork message", EPROTO);
    }
    size_t i = 0;
    while (i < INIT_CHILDREN_MAX && in->child[i] != 0) {
        i++;
    }
    if (i == INIT_CHILDREN_MAX) {
        init_fail("fork", EAGAIN);
    }
    int gate[2] = {-1, -1};
    if (in->sealed) {
        setup_before_fork(in->one_id);
    } else if (pipe2(gate, O_CLOEXEC) != 0) {
        init_fail("gate", errno);
    }
    pid_t pid = fork();
    if (pid < 0) {
        init_fail("fork", errno);
    }
    if (pid == 0) {
        const struct child_start start = {.sock = sock,
                                          .signals = in->signals,
                                          .gate = gate[1],
                                          .contained = in->contained,
                                          .one_id = in->one_id};
        child_main(&start);
    }
    if (in->sealed) {
        setup_after_fork(in->one_id);
    }
    (void)close(sock);
    in->child[i] = pid;
    if (!in->sealed) {
        in->first = pid;
        in->gate = gate[0];
        (void)close(gate[1]);
    }
}

/* Is the first child where it should be? Else it has ended, of which the runner will hear. */
static bool init_waited(struct init *in) {
    char word;
    ssize_t n = read(in->gate, &word, 1);
    if (n < 0) {
        init_fail("gate", errno);
    }
    (void)close(in->gate);
    in->gate = -1;
    return n == 1;
}

static void init_seal(struct init *in, size_t size) {
    if (in->sealed || in->gate < 0 || size != sizeof(struct initmsg_word)) {
        init_fail("seal message", EPROTO);
    }
    if (!init_waited(in)) {
        return;
    }
    setup_seal(in->contained ? 0 : in->first, in->one_id);
    in->sealed = true;
    struct initmsg_report r = {.type = INITMSG_SEALED};
    init_report(&r, NULL, 0);
}

/* To the process group of an execution, whose first process leads it: setup_halfway_user(). Only
 * while that one is not reaped, so that its number is its own. */
static void init_signal(const struct init *in, size_t size) {
    struct initmsg_signal msg;
    if (!in->sealed || size != sizeof msg) {
        init_fail("signal message", EPROTO);
    }
    memcpy(&msg, in->message, sizeof msg);
    for (size_t i = 0; i < INIT_CHILDREN_MAX; i++) {
        if (in->child[i] > 0 && (uint32_t)in->child[i] == msg.pid) {
            setup_before_fork(in->one_id); /* as process 1 it may signal nobody */
            (void)kill(-in->child[i], (int)msg.signal);
            setup_after_fork(in->one_id);
            return;
        }
    }
}

/* Reports the end of an execution's process; an orphan's is nobody's business. */
static void init_tell(struct init *in, const siginfo_t *si) {
    int status = si->si_code == CLD_EXITED ? (si->si_status & 0xff) << 8 : si->si_status;
    for (size_t i = 0; i < INIT_CHILDREN_MAX; i++) {
        if (in->child[i] == si->si_pid) {
            in->child[i] = 0;
            struct initmsg_report r = {.type = INITMSG_EXITED,
                                       .pid = (uint32_t)si->si_pid,
                                       .status = status,
                                       .mono_ns = clock_mono_ns()};
            init_report(&r, NULL, 0);
            return;
        }
    }
}

static void init_reap(struct init *in) {
    struct signalfd_siginfo info;
    /* A SIGCHLD that somebody sent (si_code <= 0) and no child caused: a command may do that as
     * often as it likes. It is served at leisure, or it would have process 1 burn a processor. */
    if (read(in->signals, &info, sizeof info) == (ssize_t)sizeof info && info.ssi_code <= 0) {
        const struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
    }
    /* First told, then reaped: giving a process back takes longer than telling of it. */
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) != 0 && errno != ECHILD) {
            init_fail("wait", errno); /* nobody would be told of an end any more */
        }
        if (si.si_pid == 0) {
            return;
        }
        init_tell(in, &si);
        (void)waitpid(si.si_pid, NULL, WNOHANG);
    }
}

/* The closed list of what the runner may ask. */
static void init_command(struct init *in) {
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    ssize_t n = fd_recv(INITMSG_FD, in->message, sizeof in->message, fds, &nfds, NULL, NULL);
    if (n <= 0) {
        _exit(0); /* the runner is gone: with process 1 everything ends */
    }
    if (in->contained && !in->ready) {
        /* From here on the end of the runner is the end of the socket. */
        (void)close(INITMSG_FAR_FD);
    }
    uint32_t type = 0;
    if ((size_t)n < sizeof type) {
        init_fail("message", EPROTO);
    }
    memcpy(&type, in->message, sizeof type);
    if (nfds != (type == INITMSG_FORK ? 1u : 0u)) {
        init_fail("message descriptors", EPROTO);
    }
    switch (type) {
    case INITMSG_SETUP:
        init_setup(in, (size_t)n);
        break;
    case INITMSG_FORK:
        init_fork(in, (size_t)n, fds[0]);
        break;
    case INITMSG_SEAL:
        init_seal(in, (size_t)n);
        break;
    case INITMSG_SIGNAL:
        init_signal(in, (size_t)n);
        break;
    default:
        init_fail("message type", EPROTO);
    }
}

/* Whatever the runner's disposition and mask are, commands start with the defaults: an inherited
 * ignored SIGPIPE breaks pipelines. SIGCHLD is blocked here for the signalfd; child_main() opens
 * it. */
static void init_signals(struct init *in) {
    /* The kernel's own call and struct (all zero is SIG_DFL): libc keeps three signals to itself
     * and would leave them as they came. SIGKILL and SIGSTOP refuse. */
    const uint64_t act[4] = {0, 0, 0, 0};
    for (int sig = 1; sig <= INIT_SIGNALS; sig++) {
        (void)syscall(SYS_rt_sigaction, sig, act, NULL, sizeof(uint64_t));
    }
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &mask, NULL) != 0) {
        init_fail("signals", errno);
    }
    in->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in->signals < 0) {
        init_fail("signals", errno);
    }
}

/* Nobody is there to be told before the socket is: the code alone says it. */
static void init_socket(void) {
    int pair[2];
    if (syscall(SYS_close_range, INITMSG_FD, ~0U, 0) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 || pair[0] != INITMSG_FD ||
        pair[1] != INITMSG_FAR_FD || fcntl(INITMSG_FAR_FD, F_SETFD, FD_CLOEXEC) != 0) {
        _exit(1);
    }
}

/* Of all that was open before, only the control socket stays. The other end of one that is made
 * here is the last to be there: then the runner takes it. */
static void init_descriptors(struct init *in) {
    if (!in->contained && syscall(SYS_close_range, INITMSG_FD + 1, ~0U, 0) != 0) {
        init_fail("descriptors", errno);
    }
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0) {
        init_fail("descriptors", errno);
    }
    if (null > 2) {
        (void)close(null);
    }
    if (in->contained) {
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
            _exit(1);
        }
        in->apart = setup_apart();
        init_socket();
    }
    if (fcntl(INITMSG_FD, F_SETFD, FD_CLOEXEC) != 0) {
        init_fail("descriptors", errno);
    }
}

int init_run(bool contained) {
    struct init *in = scratch_new(sizeof *in);
    in->contained = contained;
    in->gate = -1;
    init_descriptors(in);
    init_signals(in);
    struct pollfd poll_fds[2] = {{.fd = INITMSG_FD, .events = POLLIN},
                                 {.fd = in->signals, .events = POLLIN}};
    for (;;) {
        if (poll(poll_fds, 2, -1) < 0) {
            if (errno == EINTR) {
                continue;
            }
            return 1;
        }
        if (poll_fds[1].revents) {
            init_reap(in);
        }
        if (poll_fds[0].revents) {
            init_command(in);
        }
    }
}
