#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "collect.h"
#include "fd.h"
#include "fileop_main.h"
#include "init.h"
#include "launch.h"
#include "probe.h"
#include "scratch.h"
#include "setup.h"
#include "spec.h"
#include "unpack.h"

#define CHILD_PAGE 4096u
#define CHILD_STACK 16384u /* what launching a command takes */
#define CHILD_GATE (INITMSG_FD + 1)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct child {
    bool contained, one_id;
    _Alignas(8) char message[sizeof(struct initmsg_exec) + WIRE_SPEC_INLINE_MAX];
    struct spec spec;
};

static void child_send(const struct initmsg_report *r) {
    if (fd_send(INITMSG_FD, r, sizeof *r, NULL, 0, NULL) != 0) {
        _exit(125);
    }
}

/* Tells the runner what could not be done, to what and why, and ends. */
static void __attribute__((noreturn)) child_refuse(const char *stage, const char *path, int code) {
    struct initmsg_report r = {.type = INITMSG_REFUSED, .code = code};
    strncpy(r.stage, stage, sizeof r.stage - 1);
    strncpy(r.path, path, sizeof r.path - 1);
    child_send(&r);
    _exit(125);
}

/* One message of the expected type; the end of the socket ends the child. */
static size_t child_expect(struct child *c, uint32_t type, int fds[FD_PASS_MAX], size_t *nfds) {
    ssize_t n = fd_recv(INITMSG_FD, c->message, sizeof c->message, fds, nfds, NULL, NULL);
    uint32_t got = 0;
    if (n < (ssize_t)sizeof got) {
        _exit(125);
    }
    memcpy(&got, c->message, sizeof got);
    if (got != type) {
        _exit(125);
    }
    return (size_t)n;
}

/* Keeps 0, 1, 2 (/dev/null), the socket, which moves to INITMSG_FD, and the gate, if there is one.
 */
static void child_descriptors(int sock, int gate, int signals) {
    (void)close(signals);
    if (dup3(sock, INITMSG_FD, O_CLOEXEC) < 0 ||
        (gate >= 0 && gate != CHILD_GATE && dup3(gate, CHILD_GATE, O_CLOEXEC) < 0) ||
        syscall(SYS_close_range, gate >= 0 ? CHILD_GATE + 1 : CHILD_GATE, ~0U, 0) != 0) {
        _exit(125);
    }
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Before anything else: the runner has work to do with it. */
static void child_hello(void) {
    const struct initmsg_report r = {.type = INITMSG_HELLO, .pid = (uint32_t)getpid()};
    child_send(&r);
}

/* Process 1 waits for it: it joins our control group's namespace while we go on. */
static void child_open_gate(void) {
    if (write(CHILD_GATE, "", 1) != 1 || close(CHILD_GATE) != 0) {
        child_refuse("gate", "", errno);
    }
}

static void child_confine(struct child *c) {
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    if (child_expect(c, INITMSG_GO, fds, &nfds) != sizeof(struct initmsg_word) || nfds != 0) {
        _exit(125);
    }
    const struct initmsg_word *go = (const struct initmsg_word *)(const void *)c->message;
    if (go->first && !c->contained && unshare(CLONE_NEWCGROUP) != 0) {
        child_refuse("cgroup namespace", "", errno);
    }
    if (go->first) {
        child_open_gate();
    }
    const char *stage = "";
    if (setup_halfway_user(c->one_id, &stage) != 0) {
        child_refuse(stage, "", errno);
    }
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
        child_refuse("undumpable", "", errno);
    }
    const struct initmsg_report r = {.type = INITMSG_READY, .pid = (uint32_t)getpid()};
    child_send(&r);
}

struct child_fds {
    int spec;
    int bundle;
    int upper;
};

/* Puts the attached descriptors, in the order of the mask's bits, where they belong. */
static struct child_fds child_take_fds(const struct initmsg_exec *e, const int *fds, size_t nfds) {
    struct child_fds out = {-1, -1, -1};
    size_t next = 0;
    for (uint32_t bit = 1; bit <= WIRE_FD_BUNDLE; bit <<= 1) {
        if (!(e->fds & bit)) {
            continue;
        }
        if (next == nfds) {
            child_refuse("descriptors", "", EPROTO);
        }
        int fd = fds[next++];
        if (bit == WIRE_FD_SPEC) {
            out.spec = fd;
        } else if (bit == WIRE_FD_BUNDLE) {
            out.bundle = fd;
        } else {
            int target = bit == WIRE_FD_STDIN ? 0 : bit == WIRE_FD_STDOUT ? 1 : 2;
            if (dup2(fd, target) < 0) {
                child_refuse("descriptors", "", errno);
            }
        }
    }
    if (e->upper && next < nfds) {
        out.upper = fds[next++];
    }
    if (next != nfds) {
        child_refuse("descriptors", "", EPROTO);
    }
    if (!(e->fds & WIRE_FD_STDERR) && (e->fds & WIRE_FD_STDOUT) && dup2(1, 2) < 0) {
        child_refuse("descriptors", "", errno);
    }
    return out;
}

static void child_rlimit(int what, uint64_t value, const char *name) {
    struct rlimit lim = {.rlim_cur = value, .rlim_max = value};
    if (setrlimit(what, &lim) != 0) {
        child_refuse("limit", name, errno);
    }
}

static void child_limits(const struct initmsg_exec *e) {
    child_rlimit(RLIMIT_NOFILE, e->open_files, "open_files");
    child_rlimit(RLIMIT_FSIZE, e->file_bytes, "file_bytes");
    child_rlimit(RLIMIT_STACK, e->stack_bytes, "stack_bytes");
}

/* The spec's bytes: they follow the message, or are mapped from their memfd. */
static void child_spec(struct child *c, const struct initmsg_exec *e, size_t size, int fd) {
    char *bytes = c->message + sizeof *e;
    if (fd >= 0) {
        bytes = launch_map(fd, e->spec_size);
        if (bytes == NULL) {
            child_refuse("spec", "", errno);
        }
    } else if (size != sizeof *e + e->spec_size) {
        child_refuse("spec", "", EPROTO);
    }
    struct err err;
    if (spec_decode(bytes, e->spec_size, &c->spec, &err) != 0) {
        child_refuse("spec", "", EPROTO);
    }
}

/* A terminal of the jail's own devpts, made by the runner there, which keeps its master. */
static int child_slave(void) {
    const struct initmsg_report r = {.type = INITMSG_TERMINAL};
    struct initmsg_word word;
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    int where = open("/dev/ptmx", O_PATH | O_CLOEXEC);
    if (where < 0) {
        child_refuse("terminal", "/dev/ptmx", errno);
    }
    if (fd_send(INITMSG_FD, &r, sizeof r, &where, 1, NULL) != 0 ||
        fd_recv(INITMSG_FD, &word, sizeof word, fds, &nfds, NULL, NULL) != (ssize_t)sizeof word ||
        word.type != INITMSG_SLAVE) {
        _exit(125);
    }
    if (word.first != 0 || nfds != 1) {
        child_refuse("terminal", "/dev/ptmx", (int)word.first);
    }
    (void)close(where);
    return fds[0];
}

/* It becomes 0, 1 and 2. */
static void child_terminal(const struct initmsg_exec *e) {
    const struct winsize size = {.ws_row = e->rows, .ws_col = e->cols};
    int slave = child_slave();
    if (ioctl(slave, TIOCSWINSZ, &size) != 0 || ioctl(slave, TIOCSCTTY, 0) != 0 ||
        dup2(slave, 0) < 0 || dup2(slave, 1) < 0 || dup2(slave, 2) < 0) {
        child_refuse("terminal", "/dev/pts", errno);
    }
}

static void child_started(void) {
    struct timespec cpu = {0, 0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    struct initmsg_report r = {.type = INITMSG_STARTED,
                               .mono_ns = clock_mono_ns(),
                               .cpu_ns =
                                   (uint64_t)cpu.tv_sec * CLOCK_NS_PER_S + (uint64_t)cpu.tv_nsec};
    child_send(&r);
}

static void __attribute__((noreturn))
child_run(struct child *c, size_t size, const int *fds, size_t nfds) {
    struct initmsg_exec e;
    if (size < sizeof e) {
        child_refuse("message", "", EPROTO);
    }
    memcpy(&e, c->message, sizeof e);
    /* What reads and writes files for the server stays a process that nobody inside may signal. */
    if (e.kind == WIRE_EXEC_COMMAND && setup_become_user() != 0) {
        child_refuse("ids", "", errno);
    }
    struct child_fds extra = child_take_fds(&e, fds, nfds);
    child_limits(&e);
    if (e.probe != INITMSG_PROBE_NONE) {
        child_started();
        _exit(probe_run((enum initmsg_probe)e.probe));
    }
    child_spec(c, &e, size, extra.spec);
    char path[WIRE_TEXT_MAX] = "";
    if (extra.bundle >= 0 && unpack_bundle(extra.bundle, path, sizeof path) != 0) {
        child_refuse("files", path, errno);
    }
    if (e.flags & WIRE_EXEC_PTY) {
        child_terminal(&e);
    }
    if (e.kind == WIRE_EXEC_FILES) {
        child_started();
        _exit(fileop_run(&c->spec, extra.upper));
    }
    if (chdir(c->spec.cwd) != 0) {
        child_refuse("chdir", c->spec.cwd, errno);
    }
    if (syscall(SYS_close_range, INITMSG_FD + 1, ~0U, 0) != 0) {
        child_refuse("descriptors", "", errno);
    }
    child_started();
    if (e.kind == WIRE_EXEC_COLLECT) {
        _exit(collect_run(1, &c->spec, e.collect_bytes, e.collect_files));
    }
    launch_exec(&c->spec, (e.flags & WIRE_EXEC_SHELL) != 0, path, sizeof path);
    child_refuse("exec", path, errno);
}

/* Touches what the start of a command will need, so that it meets no page fault here: the message,
 * the first strings, the stack, and the program itself, whose pages a fork does not map. */
static void child_warm(struct child *c) {
    extern const char __executable_start[], etext[];
    volatile char stack[CHILD_STACK];
    for (size_t i = 0; i < sizeof stack; i += CHILD_PAGE) {
        stack[i] = 0;
    }
    memset(c, 0, sizeof(struct initmsg_exec) + CHILD_PAGE);
    memset(&c->spec, 0, 64 * sizeof(char *));
    memset(c->spec.env, 0, 64 * sizeof(char *));
    uintptr_t from = (uintptr_t)__executable_start & ~(uintptr_t)(CHILD_PAGE - 1);
    (void)madvise((void *)from, (uintptr_t)etext - from, MADV_POPULATE_READ); /* since 5.14 */
    (void)clock_mono_ns(); /* the kernel's own page of code for it, and its data */
}

void child_main(const struct child_start *start) {
    child_descriptors(start->sock, start->gate, start->signals);
    child_hello();
    struct child *c = scratch_new(sizeof *c);
    child_warm(c);
    c->contained = start->contained;
    c->one_id = start->one_id;
    child_confine(c);
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    size_t size = child_expect(c, INITMSG_EXEC, fds, &nfds);
    child_run(c, size, fds, nfds);
}
