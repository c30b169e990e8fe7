#include "apart.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define APART_NOBODY 65534u

#if defined(__x86_64__)
#define APART_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define APART_ARCH AUDIT_ARCH_AARCH64
#else
#error "the filter of the processes that read archives is not written for this machine"
#endif

/* AddressSanitizer needs terabytes of address space, and calls of its own. */
#ifdef __SANITIZE_ADDRESS__
#define APART_CHECKED true
#else
#define APART_CHECKED false
#endif

/* The offsets of what a filter looks at; the low half of an argument comes first on both machines.
 */
#define APART_NUMBER ((unsigned)offsetof(struct seccomp_data, nr))
#define APART_MACHINE ((unsigned)offsetof(struct seccomp_data, arch))
#define APART_THIRD ((unsigned)offsetof(struct seccomp_data, args[2]))

#define APART_LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define APART_RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define APART_ALLOW(call)                                                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(call), 0, 1), APART_RETURN(SECCOMP_RET_ALLOW)
/* Memory that may be executed is refused. */
#define APART_ALLOW_DATA(call)                                                                     \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(call), 0, 4), APART_LOAD(APART_THIRD),          \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0), APART_RETURN(SECCOMP_RET_ALLOW),    \
        APART_RETURN(SECCOMP_RET_ERRNO | EPERM)

/* Another architecture's calls have other numbers: they end the process. On x86-64 those of x32
 * have numbers of their own, which are on no list. */
static const struct sock_filter apart_filter[] = {
    APART_LOAD(APART_MACHINE),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, APART_ARCH, 1, 0),
    APART_RETURN(SECCOMP_RET_KILL_PROCESS),
    APART_LOAD(APART_NUMBER),
    APART_ALLOW(SYS_read),
    APART_ALLOW(SYS_write),
    APART_ALLOW(SYS_writev),
    APART_ALLOW(SYS_readv),
    APART_ALLOW(SYS_lseek),
    APART_ALLOW(SYS_fstat),
#ifdef SYS_newfstatat
    APART_ALLOW(SYS_newfstatat),
#endif
    APART_ALLOW(SYS_close),
    APART_ALLOW(SYS_brk),
    APART_ALLOW(SYS_munmap),
    APART_ALLOW(SYS_mremap),
    APART_ALLOW(SYS_madvise),
    APART_ALLOW(SYS_futex),
    APART_ALLOW(SYS_getpid),
    APART_ALLOW(SYS_getrandom),
    APART_ALLOW(SYS_clock_gettime),
    APART_ALLOW(SYS_rt_sigreturn),
    APART_ALLOW(SYS_restart_syscall),
    APART_ALLOW(SYS_exit),
    APART_ALLOW(SYS_exit_group),
    APART_ALLOW_DATA(SYS_mmap),
    APART_ALLOW_DATA(SYS_mprotect),
    APART_RETURN(SECCOMP_RET_ERRNO | EPERM),
};

static int apart_limit(int resource, rlim_t value) {
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};

    return setrlimit((__rlimit_resource_t)resource, &limit);
}

/* Everything but `keep`. */
static int apart_close(const int *keep, size_t count) {
    unsigned from = 0;

    for (;;) {
        int next = -1;

        for (size_t i = 0; i < count; i++)
            if (keep[i] >= 0 && (unsigned)keep[i] >= from && (next < 0 || keep[i] < next))
                next = keep[i];
        if (next < 0)
            return close_range(from, ~0u, 0);
        if ((unsigned)next > from && close_range(from, (unsigned)next - 1, 0) < 0)
            return -1;
        from = (unsigned)next + 1;
    }
}

static int apart_limits(uint64_t memory, unsigned seconds) {
    /* No new descriptor means no file, no socket; no process means no helper program. */
    if (apart_limit(RLIMIT_NOFILE, 0) < 0 || apart_limit(RLIMIT_FSIZE, 0) < 0 ||
        apart_limit(RLIMIT_NPROC, 0) < 0 || apart_limit(RLIMIT_CORE, 0) < 0)
        return -1;
    if (seconds > 0 && apart_limit(RLIMIT_CPU, seconds) < 0)
        return -1;
    return memory == 0 || APART_CHECKED ? 0 : apart_limit(RLIMIT_AS, memory);
}

int apart_drop(const int *keep, size_t count, uint64_t memory, unsigned seconds) {
    const struct sock_fprog program = {
        .len = sizeof(apart_filter) / sizeof(apart_filter[0]),
        .filter = (struct sock_filter *)(uintptr_t)(const void *)apart_filter};

    if (count > APART_KEEP_MAX || apart_close(keep, count) < 0)
        return -1;
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(APART_NOBODY, APART_NOBODY, APART_NOBODY) < 0 ||
         setresuid(APART_NOBODY, APART_NOBODY, APART_NOBODY) < 0))
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || apart_limits(memory, seconds) < 0)
        return -1;
    if (APART_CHECKED)
        return 0;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
