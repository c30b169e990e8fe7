/* inject PLAN PID: lets one system call of a process, or of what it starts, fail; or kills the
 * process in it.
 *
 * PLAN is a file that is mapped here and by whoever drives this: what is to fail, and what was
 * seen. Processes are followed by ptrace, which needs nothing of them: the programs are the real
 * ones, static or not, and may filter, drop and clone as they like. Each has a role, which tells
 * the runner's parts from one another:
 *
 *   supervisor → shard → birth, which becomes init by exec → child, let go as a command
 *                shard → layers → worker, let go when it becomes another program
 *
 * Calls are counted for each role and number since the plan changed last. */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define INJECT_CALLS 512  /* numbers of system calls */
#define INJECT_LOG 65536  /* calls of one recording */
#define INJECT_PROCS 1024 /* traced at once */
#define INJECT_KILL 0     /* as an error: SIGKILL instead */
#define INJECT_STACK 160  /* words of the stack that are looked at */
#define INJECT_FRAMES 5   /* of those, return addresses that tell one place from another */
#define INJECT_OPTIONS                                                                             \
    (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |      \
     PTRACE_O_TRACEEXEC)

enum role { SUPERVISOR, SHARD, BIRTH, INIT, CHILD, LAYERS, WORKER, ROLES, NONE };

/* The layout is known to injector.py. */
struct call {
    uint32_t role, number, nth;
    uint32_t site; /* a hash of where in the program it is made */
};

struct plan {
    _Atomic uint32_t generation; /* counts up with each change */
    uint32_t role, number, nth;  /* which call; nth counts from 1, 0 = none */
    int32_t error;
    uint32_t record;
    _Atomic uint32_t hit;    /* the process in which it happened */
    _Atomic uint32_t traced; /* 1 once everything is followed */
    _Atomic uint32_t calls;
    struct call log[INJECT_LOG];
};

struct proc {
    pid_t pid;
    enum role role;
    bool stopped; /* it has come before its parent told of it */
    bool begun;
    bool fail; /* at the end of this call */
    int32_t error;
    uint64_t flags;          /* of the clone that it is in */
    uint64_t text, text_end; /* of the program; 0 = not looked up yet */
};

struct inject {
    struct plan *plan;
    uint32_t generation;
    uint32_t count[ROLES][INJECT_CALLS];
    struct proc proc[INJECT_PROCS];
};

static struct proc *inject_find(struct inject *in, pid_t pid) {
    for (size_t i = 0; i < INJECT_PROCS; i++) {
        if (in->proc[i].pid == pid) {
            return &in->proc[i];
        }
    }
    return NULL;
}

static struct proc *inject_add(struct inject *in, pid_t pid, enum role role) {
    struct proc *p = inject_find(in, 0);
    if (p == NULL) {
        (void)fprintf(stderr, "inject: too many processes\n");
        exit(1);
    }
    *p = (struct proc){.pid = pid, .role = role};
    return p;
}

static void inject_go(struct proc *p, int signal) {
    (void)ptrace(PTRACE_SYSCALL, p->pid, 0, (void *)(uintptr_t)signal);
}

static void inject_release(struct proc *p) {
    (void)ptrace(PTRACE_DETACH, p->pid, 0, 0);
    p->pid = 0;
}

/* The call is not made: number -1 is none. */
static void inject_skip(pid_t pid) {
#if defined(__x86_64__)
    (void)ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), -1L);
#else
    int none = -1;
    struct iovec io = {&none, sizeof none};
    (void)ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &io);
#endif
}

static void inject_result(pid_t pid, long result) {
#if defined(__x86_64__)
    (void)ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rax), result);
#else
    struct user_regs_struct regs;
    struct iovec io = {&regs, sizeof regs};
    (void)ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &io);
    regs.regs[0] = (unsigned long long)result;
    (void)ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &io);
#endif
}

/* These do what they are for even when they fail, and whoever skipped them would leak. */
static bool inject_is_done_first(uint64_t number) {
    return number == SYS_close || number == SYS_munmap;
}

static void inject_fail(struct inject *in, struct proc *p, uint64_t number) {
    p->error = in->plan->error;
    in->plan->hit = (uint32_t)p->pid;
    if (p->error == INJECT_KILL) {
        (void)kill(p->pid, SIGKILL);
        return;
    }
    p->fail = true;
    if (!inject_is_done_first(number)) {
        inject_skip(p->pid);
    }
}

/* Where the program's code is: it may be somewhere else in each process. */
static void inject_text(struct proc *p) {
    char path[64];
    char line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)p->pid);
    FILE *maps = fopen(path, "re");
    while (maps != NULL && p->text_end == 0 && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from = 0, to = 0;
        char rights[8] = "";
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && rights[2] == 'x') {
            p->text = from;
            p->text_end = to;
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
}

/* Nothing is known of the frames: what looks like a return address into the program is one. Words
 * of earlier calls are taken for more than one place, never two places for one. */
static uint32_t inject_site(struct proc *p, const struct __ptrace_syscall_info *si) {
    uint64_t words[INJECT_STACK] = {0};
    struct iovec here = {words, sizeof words};
    struct iovec there = {(void *)(uintptr_t)si->stack_pointer, sizeof words};
    uint32_t hash = 2166136261u;
    int frames = 0;
    if (p->text_end == 0) {
        inject_text(p);
    }
    while (there.iov_len > 0 && process_vm_readv(p->pid, &here, 1, &there, 1, 0) < 0) {
        there.iov_len /= 2; /* the end of the stack */
    }
    for (size_t i = 0; i < INJECT_STACK && frames < INJECT_FRAMES; i++) {
        if (words[i] >= p->text && words[i] < p->text_end) {
            hash = (hash ^ (uint32_t)(words[i] - p->text)) * 16777619u;
            frames++;
        }
    }
    return hash;
}

static void inject_note(struct inject *in, struct proc *p, const struct __ptrace_syscall_info *si) {
    struct plan *plan = in->plan;
    uint32_t number = (uint32_t)si->entry.nr;
    uint32_t at = plan->calls;
    if (plan->record && at < INJECT_LOG) {
        plan->log[at] =
            (struct call){p->role, number, in->count[p->role][number], inject_site(p, si)};
        plan->calls = at + 1;
    }
}

static void inject_entry(struct inject *in, struct proc *p,
                         const struct __ptrace_syscall_info *si) {
    struct plan *plan = in->plan;
    uint64_t number = si->entry.nr;
    uint32_t generation = plan->generation;
    if (generation != in->generation) {
        in->generation = generation;
        memset(in->count, 0, sizeof in->count);
    }
    p->flags = number == SYS_clone ? si->entry.args[0] : 0;
    if (number >= INJECT_CALLS || p->role >= ROLES) {
        return;
    }
    uint32_t nth = ++in->count[p->role][number];
    inject_note(in, p, si);
    if (plan->nth == nth && plan->role == p->role && plan->number == number && plan->hit == 0) {
        inject_fail(in, p, number);
    }
}

static void inject_call(struct inject *in, struct proc *p) {
    struct __ptrace_syscall_info si;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, p->pid, (void *)sizeof si, &si) <= 0) {
        return;
    }
    if (si.op == PTRACE_SYSCALL_INFO_ENTRY) {
        inject_entry(in, p, &si);
    } else if (si.op == PTRACE_SYSCALL_INFO_EXIT && p->fail) {
        p->fail = false;
        inject_result(p->pid, -(long)p->error);
    }
}

static enum role inject_role_of_child(const struct proc *parent) {
    switch (parent->role) {
    case SUPERVISOR:
        return SHARD;
    case SHARD:
        return parent->flags & CLONE_NEWPID ? BIRTH : LAYERS;
    case INIT:
    case CHILD:
        return CHILD;
    default:
        return WORKER;
    }
}

static void inject_born(struct inject *in, const struct proc *parent) {
    unsigned long pid = 0;
    if (ptrace(PTRACE_GETEVENTMSG, parent->pid, 0, &pid) != 0) {
        return;
    }
    struct proc *p = inject_find(in, (pid_t)pid);
    if (p == NULL) {
        (void)inject_add(in, (pid_t)pid, inject_role_of_child(parent));
        return;
    }
    p->role = inject_role_of_child(parent);
    if (p->stopped) {
        p->stopped = false;
        inject_go(p, 0);
    }
}

/* -> is it still ours? */
static bool inject_executed(struct proc *p) {
    p->text = p->text_end = 0;
    if (p->role == BIRTH) {
        p->role = INIT;
    } else if (p->role == CHILD || p->role == WORKER) {
        inject_release(p);
        return false;
    }
    return true;
}

static void inject_stopped(struct inject *in, struct proc *p, int status) {
    int event = status >> 16;
    int signal = WSTOPSIG(status);
    switch (event) {
    case 0:
        if (signal == (SIGTRAP | 0x80)) {
            inject_call(in, p);
            signal = 0;
        } else if (p->role == INIT && (signal == SIGSEGV || signal == SIGILL || signal == SIGBUS)) {
            /* The kernel ends a process 1 that faults; what a tracer passes on it would ignore. */
            (void)kill(p->pid, SIGKILL);
            signal = 0;
        }
        break;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        inject_born(in, p);
        signal = 0;
        break;
    case PTRACE_EVENT_EXEC:
        if (!inject_executed(p)) {
            return;
        }
        signal = 0;
        break;
    case PTRACE_EVENT_STOP:
        if (p->role == NONE) {
            p->stopped = true;
            return;
        }
        if (p->begun && signal != SIGTRAP) {
            (void)ptrace(PTRACE_LISTEN, p->pid, 0, 0);
            return;
        }
        p->begun = true;
        signal = 0;
        break;
    default:
        signal = 0;
        break;
    }
    inject_go(p, signal);
}

static pid_t inject_parent(pid_t pid, char comm[32]) {
    char path[64];
    char text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *open = strchr(text, '(');
    const char *close = strrchr(text, ')');
    if (open == NULL || close == NULL) {
        return 0;
    }
    (void)snprintf(comm, 32, "%.*s", (int)(close - open - 1), open + 1);
    return (pid_t)strtol(close + 4, NULL, 10);
}

static void inject_seize(struct inject *in, pid_t pid, enum role role) {
    if (ptrace(PTRACE_SEIZE, pid, 0, (void *)(uintptr_t)INJECT_OPTIONS) != 0) {
        (void)fprintf(stderr, "inject: cannot follow process %d: %s\n", (int)pid, strerror(errno));
        exit(1);
    }
    (void)inject_add(in, pid, role);
    (void)ptrace(PTRACE_INTERRUPT, pid, 0, 0);
}

/* What is there already. Nothing is born meanwhile: whoever starts this waits until all is at
 * rest. */
static void inject_seize_below(struct inject *in, pid_t parent, enum role role) {
    DIR *proc = opendir("/proc");
    struct dirent *e;
    char comm[32];
    while (proc != NULL && (e = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid <= 0 || inject_parent(pid, comm) != parent) {
            continue;
        }
        enum role mine = role == SUPERVISOR                ? SHARD
                         : role == SHARD && comm[8] == 'l' ? LAYERS /* pinfold-layers */
                         : role == SHARD                   ? INIT
                         : role == INIT                    ? CHILD
                                                           : WORKER;
        inject_seize(in, pid, mine);
        if (mine != CHILD) {
            inject_seize_below(in, pid, mine);
        }
    }
    (void)closedir(proc);
}

static struct plan *inject_map(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED
                      : mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

int main(int argc, char **argv) {
    struct inject *in = calloc(1, sizeof *in);
    if (argc != 3 || in == NULL || (in->plan = inject_map(argv[1])) == NULL) {
        (void)fprintf(stderr, "usage: inject PLAN PID\n");
        return 2;
    }
    pid_t root = (pid_t)strtol(argv[2], NULL, 10);
    inject_seize(in, root, SUPERVISOR);
    inject_seize_below(in, root, SUPERVISOR);
    in->plan->traced = 1;
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) {
            return errno == ECHILD ? 0 : 1;
        }
        struct proc *p = inject_find(in, pid);
        if (p == NULL) {
            p = inject_add(in, pid, NONE);
        }
        if (WIFSTOPPED(status)) {
            inject_stopped(in, p, status);
        } else {
            p->pid = 0;
        }
    }
}
