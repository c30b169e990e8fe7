#include "bench_floor_child.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

#define BENCH_CHILD_UID 1000

static void bench_child_wait(struct bench_child *c, unsigned gate) {
    unsigned now;
    while ((now = atomic_load(&c->gate)) < gate)
        (void)syscall(SYS_futex, &c->gate, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
}

static int bench_child_begin(struct bench_child *c) {
    (void)c;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setsid() < 0)
        return -1;
    return sethostname("bench", 5);
}

static int bench_child_loopback(struct bench_child *c) {
    (void)c;
    struct ifreq req = {.ifr_name = "lo"};
    req.ifr_flags = IFF_UP | IFF_RUNNING;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &req); /* close_range() closes it */
}

static int bench_child_bounding(struct bench_child *c) {
    (void)c;
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return errno == EINVAL ? 0 : -1; /* past this kernel's last one */
    return 0;
}

/* A file system takes files only from users that have an id in it: first the maps. The raw calls,
 * because those of libc would change every thread of the parent. */
static int bench_child_maps(struct bench_child *c) {
    bench_child_wait(c, BENCH_CHILD_MAPPED);
    if (syscall(SYS_setresgid, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_setresuid, 0, 0, 0);
}

static const struct {
    const char *name, *target; /* /workspace last: it covers the rest */
    mode_t mode;
    uid_t owner;
} bench_child_dirs[] = {
    {"/workspace/home", "/home/user", 0755, BENCH_CHILD_UID},
    {"/workspace/tmp", "/tmp", 01777, 0},
    {"/workspace/var_tmp", "/var/tmp", 01777, 0},
    {"/workspace/shm", "/dev/shm", 01777, 0},
    {"/workspace/workspace", "/workspace", 0755, BENCH_CHILD_UID},
};

static int bench_child_writable(struct bench_child *c) {
    (void)c;
    if (mount("tmpfs", "/workspace", "tmpfs", MS_NOSUID | MS_NODEV,
              "mode=0755,size=536870912,nr_inodes=65536") < 0)
        return -1;
    for (size_t i = 0; i < sizeof(bench_child_dirs) / sizeof(bench_child_dirs[0]); i++) {
        const char *name = bench_child_dirs[i].name;
        if (mkdir(name, 0700) < 0 || chmod(name, bench_child_dirs[i].mode) < 0)
            return -1;
        if (bench_child_dirs[i].owner &&
            chown(name, bench_child_dirs[i].owner, bench_child_dirs[i].owner) < 0)
            return -1;
        if (mount(name, bench_child_dirs[i].target, NULL, MS_BIND, NULL) < 0)
            return -1;
    }
    return chdir("/workspace");
}

static int bench_child_proc(struct bench_child *c) {
    (void)c;
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2");
}

static int bench_child_masks(struct bench_child *c) {
    for (size_t i = 0; c->mask[i]; i++)
        if (mount("/dev/null", c->mask[i], NULL, MS_BIND, NULL) < 0)
            return -1;
    return 0;
}

static int bench_child_devpts(struct bench_child *c) {
    (void)c;
    return mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                 "newinstance,ptmxmode=0666,mode=0620");
}

static int bench_child_rlimits(struct bench_child *c) {
    static const struct {
        __rlimit_resource_t what;
        rlim_t value;
    } limits[] = {
        {RLIMIT_CORE, 0},          {RLIMIT_NOFILE, 1024},   {RLIMIT_STACK, 8u << 20},
        {RLIMIT_MEMLOCK, 65536},   {RLIMIT_MSGQUEUE, 4096}, {RLIMIT_SIGPENDING, 1024},
        {RLIMIT_FSIZE, 64u << 20},
    };
    (void)c;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit lim;
        if (getrlimit(limits[i].what, &lim) < 0)
            return -1;
        if (lim.rlim_max > limits[i].value)
            lim.rlim_max = limits[i].value; /* a limit of the host may be lower already */
        lim.rlim_cur = lim.rlim_max;
        if (setrlimit(limits[i].what, &lim) < 0)
            return -1;
    }
    return 0;
}

/* The root of a cgroup namespace is where its maker is: only now is that the jail's cgroup. */
static int bench_child_cgroupns(struct bench_child *c) {
    bench_child_wait(c, BENCH_CHILD_ATTACHED);
    return unshare(CLONE_NEWCGROUP);
}

static int bench_child_drop(struct bench_child *c) {
    (void)c;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    if (syscall(SYS_close_range, 3u, ~0u, 0u) < 0 || syscall(SYS_setgroups, 0, NULL) < 0)
        return -1;
    if (syscall(SYS_setresgid, BENCH_CHILD_UID, BENCH_CHILD_UID, BENCH_CHILD_UID) < 0 ||
        syscall(SYS_setresuid, BENCH_CHILD_UID, BENCH_CHILD_UID, BENCH_CHILD_UID) < 0)
        return -1;
    if (syscall(SYS_capset, &head, none) < 0)
        return -1;
    /* A change of ids has cleared the death signal. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -1;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int bench_child_seccomp(struct bench_child *c) {
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &c->filter);
}

static const struct bench_child_step {
    const char *name;
    int (*run)(struct bench_child *c);
} bench_child_steps[] = {
    {"session, host name", bench_child_begin},
    {"lo up", bench_child_loopback},
    {"bounding set", bench_child_bounding},
    {"wait for id maps", bench_child_maps},
    {"writable tmpfs, 5 binds", bench_child_writable},
    {"proc", bench_child_proc},
    {"proc masks", bench_child_masks},
    {"devpts", bench_child_devpts},
    {"rlimits", bench_child_rlimits},
    {"wait for cgroups, cgroup namespace", bench_child_cgroupns},
    {"close fds, ids, capabilities", bench_child_drop},
    {"seccomp filter", bench_child_seccomp},
};

#define BENCH_CHILD_STEPS (sizeof(bench_child_steps) / sizeof(bench_child_steps[0]))
_Static_assert(BENCH_CHILD_STEPS <= BENCH_CHILD_STEPS_MAX, "room for every step");

const char *bench_child_step(unsigned step) {
    return step < BENCH_CHILD_STEPS ? bench_child_steps[step].name : NULL;
}

void bench_child_init(struct bench_child *c, const struct sock_fprog *filter) {
    static const char *const masks[BENCH_CHILD_MASKS_MAX] = {
        "/proc/cmdline",    "/proc/modules", "/proc/partitions", "/proc/diskstats",
        "/proc/interrupts", "/proc/keys",    "/proc/key-users",
    };
    *c = (struct bench_child){.filter = *filter};
    size_t count = 0;
    for (size_t i = 0; i < BENCH_CHILD_MASKS_MAX && masks[i]; i++)
        if (access(masks[i], F_OK) == 0)
            c->mask[count++] = masks[i];
}

int bench_child_main(void *arg) {
    struct bench_child *c = arg;
    c->mark_ns[0] = clock_mono_ns();
    for (unsigned i = 0; i < BENCH_CHILD_STEPS; i++) {
        if (bench_child_steps[i].run(c) < 0) {
            c->code = errno;
            c->failed = i + 1;
            _exit(1);
        }
        c->mark_ns[i + 1] = clock_mono_ns();
    }
    char *argv[] = {"true", NULL};
    char *env[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL};
    execve("/usr/bin/true", argv, env);
    c->code = errno;
    c->failed = BENCH_CHILD_STEPS + 1;
    _exit(1);
}

void bench_child_open(struct bench_child *c, enum bench_child_gate gate) {
    atomic_store(&c->gate, gate);
    (void)syscall(SYS_futex, &c->gate, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
