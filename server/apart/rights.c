#include "rights.h"

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

#define RIGHTS_NOBODY 65534u

#if defined(__x86_64__)
#define RIGHTS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define RIGHTS_ARCH AUDIT_ARCH_AARCH64
#else
#error "the filter of the processes that read archives is not written for this machine"
#endif

/* AddressSanitizer needs terabytes of address space, and calls of its own. */
#ifdef __SANITIZE_ADDRESS__
#define RIGHTS_CHECKED true
#else
#define RIGHTS_CHECKED false
#endif

/* The offsets of what a filter looks at; the low half of an argument comes first on both machines.
 */
#define RIGHTS_NUMBER ((unsigned)offsetof(struct seccomp_data, nr))
#define RIGHTS_MACHINE ((unsigned)offsetof(struct seccomp_data, arch))
#define RIGHTS_THIRD ((unsigned)offsetof(struct seccomp_data, args[2]))

#define RIGHTS_LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define RIGHTS_RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define RIGHTS_ALLOW(call)                                                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(call), 0, 1), RIGHTS_RETURN(SECCOMP_RET_ALLOW)
/* Memory that may be executed is refused. */
#define RIGHTS_ALLOW_DATA(call)                                                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(call), 0, 4), RIGHTS_LOAD(RIGHTS_THIRD),        \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0), RIGHTS_RETURN(SECCOMP_RET_ALLOW),   \
        RIGHTS_RETURN(SECCOMP_RET_ERRNO | EPERM)

/* Another architecture's calls have other numbers: they end the process. On x86-64 those of x32
 * have numbers of their own, which are on no list. */
static const struct sock_filter rights_filter[] = {
    RIGHTS_LOAD(RIGHTS_MACHINE),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RIGHTS_ARCH, 1, 0),
    RIGHTS_RETURN(SECCOMP_RET_KILL_PROCESS),
    RIGHTS_LOAD(RIGHTS_NUMBER),
    RIGHTS_ALLOW(SYS_read),
    RIGHTS_ALLOW(SYS_write),
    RIGHTS_ALLOW(SYS_writev),
    RIGHTS_ALLOW(SYS_readv),
    RIGHTS_ALLOW(SYS_lseek),
    RIGHTS_ALLOW(SYS_fstat),
#ifdef SYS_newfstatat
    RIGHTS_ALLOW(SYS_newfstatat),
#endif
    RIGHTS_ALLOW(SYS_close),
    RIGHTS_ALLOW(SYS_brk),
    RIGHTS_ALLOW(SYS_munmap),
    RIGHTS_ALLOW(SYS_mremap),
    RIGHTS_ALLOW(SYS_madvise),
    RIGHTS_ALLOW(SYS_futex),
    RIGHTS_ALLOW(SYS_getpid),
    RIGHTS_ALLOW(SYS_getrandom),
    RIGHTS_ALLOW(SYS_clock_gettime),
    RIGHTS_ALLOW(SYS_rt_sigreturn),
    RIGHTS_ALLOW(SYS_restart_syscall),
    RIGHTS_ALLOW(SYS_exit),
    RIGHTS_ALLOW(SYS_exit_group),
    RIGHTS_ALLOW_DATA(SYS_mmap),
    RIGHTS_ALLOW_DATA(SYS_mprotect),
    RIGHTS_RETURN(SECCOMP_RET_ERRNO | EPERM),
};

static int rights_limit(int resource, rlim_t value) {
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};

    return setrlimit((__rlimit_resource_t)resource, &limit);
}

/* Everything but `keep`. */
static int rights_close(const int *keep, size_t count) {
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

static int rights_limits(uint64_t memory, unsigned seconds) {
    /* No new descriptor means no file, no socket; no process means no helper program. */
    if (rights_limit(RLIMIT_NOFILE, 0) < 0 || rights_limit(RLIMIT_FSIZE, 0) < 0 ||
        rights_limit(RLIMIT_NPROC, 0) < 0 || rights_limit(RLIMIT_CORE, 0) < 0)
        return -1;
    if (seconds > 0 && rights_limit(RLIMIT_CPU, seconds) < 0)
        return -1;
    return memory == 0 || RIGHTS_CHECKED ? 0 : rights_limit(RLIMIT_AS, memory);
}

int rights_drop(const int *keep, size_t count, uint64_t memory, unsigned seconds) {
    const struct sock_fprog program = {
        .len = sizeof(rights_filter) / sizeof(rights_filter[0]),
        .filter = (struct sock_filter *)(uintptr_t)(const void *)rights_filter};

    if (count > RIGHTS_KEEP_MAX || rights_close(keep, count) < 0)
        return -1;
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(RIGHTS_NOBODY, RIGHTS_NOBODY, RIGHTS_NOBODY) < 0 ||
         setresuid(RIGHTS_NOBODY, RIGHTS_NOBODY, RIGHTS_NOBODY) < 0))
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || rights_limits(memory, seconds) < 0)
        return -1;
    if (RIGHTS_CHECKED)
        return 0;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
