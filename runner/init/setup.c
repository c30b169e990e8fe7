#include "setup.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/if.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "init.h"
#include "netns_sysctl.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* musl 1.2.3 does not name it */
#endif
#define SETUP_OOM_ADJ "500" /* above every process of the host: a jail is the first to go */

static int setup_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -1;
    }
    ssize_t n = write(fd, text, strlen(text));
    int code = errno;
    (void)close(fd);
    errno = code;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Nothing may look into process 1, and it dies with the runner. The kernel forgets the death signal
 * when ids change, so setup_seal() asks again. */
static int setup_undumpable(struct setup *s) {
    (void)s;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
        return -1;
    }
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

static int setup_session(struct setup *s) {
    (void)s;
    umask(022);
    if (setsid() < 0 && errno != EPERM) {
        return -1;
    }
    return chdir("/");
}

/* A session key ring of its own: the runner's would come along otherwise. A kernel without key
 * rings has nothing to inherit. */
static int setup_keyring(struct setup *s) {
    (void)s;
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS) {
        return -1;
    }
    return 0;
}

static int setup_hostname(struct setup *s) {
    (void)s;
    if (sethostname("pinfold", 7) != 0) {
        return -1;
    }
    return setdomainname("", 0);
}

/* Raising lo gives 127.0.0.1 and, where IPv6 is there, ::1. */
static int setup_loopback(struct setup *s) {
    if (s->wish->network) {
        return 0;
    }
    struct ifreq req = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    req.ifr_flags = IFF_UP | IFF_RUNNING;
    int rc = ioctl(fd, SIOCSIFFLAGS, &req);
    (void)close(fd);
    return rc;
}

/* The template is private already; a mount namespace that crosses into a user namespace turns
 * shared mounts into slaves, and private ends that too. */
static int setup_propagation(struct setup *s) {
    (void)s;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

struct setup_dir {
    uint32_t bit;
    mode_t mode;
    uid_t owner;
    const char *name;   /* within the writable file system */
    const char *target; /* where it appears; /workspace last, since it hides the base mount */
};

static const struct setup_dir setup_dirs[] = {
    {WIRE_WRITABLE_HOME, 0755, INITMSG_UID_USER, "/workspace/home", "/home/user"},
    {WIRE_WRITABLE_TMP, 01777, 0, "/workspace/tmp", "/tmp"},
    {WIRE_WRITABLE_VAR_TMP, 01777, 0, "/workspace/var_tmp", "/var/tmp"},
    {WIRE_WRITABLE_SHM, 01777, 0, "/workspace/shm", "/dev/shm"},
    {WIRE_WRITABLE_WORKSPACE, 0755, INITMSG_UID_USER, "/workspace/workspace", "/workspace"},
};

/* One tmpfs holds everything that can be written, so that its size and inode count are the disk
 * limits of the jail. It is mounted on /workspace, its directories are bound to their places, and
 * the last bind covers the base. */
static int setup_writable(struct setup *s) {
    char options[128];
    (void)snprintf(options, sizeof options, "mode=0755,size=%llu,nr_inodes=%llu",
                   (unsigned long long)s->wish->disk_bytes, (unsigned long long)s->wish->inodes);
    if (mount("tmpfs", "/workspace", "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
        return -1;
    }
    s->writable_fd = open("/workspace", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->writable_fd < 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof setup_dirs / sizeof setup_dirs[0]; i++) {
        const struct setup_dir *d = &setup_dirs[i];
        if (!(s->wish->writable & d->bit)) {
            continue;
        }
        uid_t owner = s->wish->one_id ? INITMSG_UID_USER : d->owner;
        if (mkdir(d->name, 0700) != 0 || chown(d->name, owner, owner) != 0 ||
            chmod(d->name, d->mode) != 0) {
            return -1;
        }
        if (mount(d->name, d->target, NULL, MS_BIND, NULL) != 0) {
            return -1;
        }
    }
    return 0;
}

/* hidepid=invisible: processes of another user, which are process 1 and the one that waits for the
 * next step, are not even listed. */
static int setup_proc(struct setup *s) {
    (void)s;
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2");
}

static int setup_devpts(struct setup *s) {
    (void)s;
    return mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                 "newinstance,ptmxmode=0666,mode=0620,max=128");
}

/* What /proc says of the host to any user who asks. Files that only the host's root may open need
 * no mask: user 0 of the host does not exist here. A name that this kernel lacks is skipped. */
static const char *const setup_masks[] = {
    "/proc/cmdline",
    "/proc/modules",
    "/proc/partitions",
    "/proc/diskstats",
    "/proc/sys/kernel/random/boot_id",
    "/proc/interrupts",
    "/proc/keys",
    "/proc/key-users",
};

/* The same in directories: names of the host's disks, its devices and who serves them. One empty
 * file system covers them all. */
static const char *const setup_covered[] = {
    "/proc/acpi", "/proc/asound", "/proc/bus",  "/proc/driver",
    "/proc/fs",   "/proc/irq",    "/proc/scsi",
};

static int setup_cover(void) {
    const char *empty = NULL;
    for (size_t i = 0; i < sizeof setup_covered / sizeof setup_covered[0]; i++) {
        int rc = empty != NULL
                     ? mount(empty, setup_covered[i], NULL, MS_BIND, NULL)
                     : mount("tmpfs", setup_covered[i], "tmpfs",
                             MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,nr_inodes=2");
        if (rc == 0 && empty == NULL) {
            empty = setup_covered[i];
        } else if (rc != 0 && errno != ENOENT) {
            return -1;
        }
    }
    return 0;
}

static int setup_masked(struct setup *s) {
    (void)s;
    if (setup_cover() != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof setup_masks / sizeof setup_masks[0]; i++) {
        if (mount("/dev/null", setup_masks[i], NULL, MS_BIND, NULL) != 0 && errno != ENOENT) {
            return -1;
        }
    }
    return 0;
}

/* Lowers, never raises: a limit that the host holds lower already stays as it is. */
static int setup_rlimit(int what, rlim_t soft, rlim_t hard) {
    struct rlimit now;
    if (getrlimit(what, &now) != 0) {
        return -1;
    }
    struct rlimit lim = {.rlim_max = hard < now.rlim_max ? hard : now.rlim_max};
    lim.rlim_cur = soft < lim.rlim_max ? soft : lim.rlim_max;
    return setrlimit(what, &lim);
}

/* No core dumps: a limit of 0 writes no file. Where the host pipes them to a program (core_pattern
 * that begins with '|'), that program is started by the host's root whatever the limit is, unless
 * it is 1. Hard limits are the widest that an execution may ask for; each execution sets its own.
 * Never RLIMIT_AS (breaks JVM, Go and Node) and never RLIMIT_NPROC (the pids cgroup does that). */
static int setup_rlimits(struct setup *s) {
    if (setup_rlimit(RLIMIT_CORE, s->wish->core_bytes, s->wish->core_bytes) != 0 ||
        setup_rlimit(RLIMIT_MEMLOCK, 65536, 65536) != 0 ||
        setup_rlimit(RLIMIT_MSGQUEUE, 819200, 819200) != 0 ||
        setup_rlimit(RLIMIT_SIGPENDING, 4096, 4096) != 0 || setup_rlimit(RLIMIT_NICE, 0, 0) != 0 ||
        setup_rlimit(RLIMIT_RTPRIO, 0, 0) != 0) {
        return -1;
    }
    if (setup_rlimit(RLIMIT_NOFILE, 1024, s->wish->open_files) != 0 ||
        setup_rlimit(RLIMIT_FSIZE, s->wish->file_bytes, s->wish->file_bytes) != 0) {
        return -1;
    }
    return setup_rlimit(RLIMIT_STACK, 8388608, s->wish->stack_bytes);
}

/* In our own directory of /proc. Since we are not dumpable it belongs to user 0 of the jail; where
 * there is none, to the host's, so that we are dumpable for that moment: nobody is here yet. */
static int setup_write_own(const struct setup *s, const char *path, const char *text) {
    if (s->wish->one_id && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) {
        return -1;
    }
    int rc = setup_write(path, text);
    int code = errno;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
        return -1;
    }
    errno = code;
    return rc;
}

/* EACCES: the runner itself runs with a higher value, which does as well. */
static int setup_oom(struct setup *s) {
    return setup_write_own(s, "/proc/self/oom_score_adj", SETUP_OOM_ADJ) != 0 && errno != EACCES
               ? -1
               : 0;
}

/* No user namespace can be made inside, whoever asks and however: the filter refuses the calls, and
 * the kernel counts to zero. */
static int setup_userns(struct setup *s) {
    (void)s;
    return setup_write("/proc/sys/user/max_user_namespaces", "0");
}

/* The bounding set is emptied while CAP_SETPCAP is still there. From here on no exec can bring a
 * capability back: SECBIT_NOROOT ends the meaning of user 0, and the bits are locked. */
static int setup_bounding(struct setup *s) {
    (void)s;
    for (int cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0) {
            if (errno == EINVAL && cap > CAP_AUDIT_READ) {
                break; /* beyond this kernel's last capability */
            }
            return -1;
        }
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) {
        return -1;
    }
    return prctl(PR_SET_SECUREBITS,
                 SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED | SECBIT_KEEP_CAPS_LOCKED,
                 0, 0, 0);
}

static int setup_no_new_privs(struct setup *s) {
    (void)s;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* One filter for process 1 and, by inheritance, for everything that it will ever start. The
 * listener goes to the runner: a call of another architecture is reported there, so that the cause
 * is known and not guessed from a SIGSYS that anybody can send. */
static int setup_seccomp(struct setup *s) {
    struct sock_fprog prog = {
        .len = (unsigned short)(s->wish->bpf_bytes / sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)s->bpf,
    };
    s->filter_fd =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
    return s->filter_fd < 0 ? -1 : 0;
}

/* Commands get a time namespace in which the host's uptime is not told: CLOCK_BOOTTIME and
 * /proc/uptime begin with the jail. CLOCK_MONOTONIC stays as it is, since limits are measured on it
 * from outside. Kernels before 5.6 have no such namespace, and nothing to say about it. */
static int setup_time(struct setup *s) {
    struct timespec boot;
    char text[64];
    if (access("/proc/self/timens_offsets", F_OK) != 0) {
        return errno == ENOENT ? 0 : -1;
    }
    if (unshare(CLONE_NEWTIME) != 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) {
        return -1;
    }
    (void)snprintf(text, sizeof text, "boottime %lld 0", -(long long)boot.tv_sec);
    return setup_write_own(s, "/proc/self/timens_offsets", text);
}

/* Nothing in /proc is there to be written for a command: not even its own oom_score_adj, which it
 * could lower again where the runner itself was not allowed to raise the floor under it. */
static int setup_proc_readonly(struct setup *s) {
    (void)s;
    return mount(NULL, "/proc", NULL,
                 MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

/* Empties the effective, permitted and inheritable sets of the calling process and checks that they
 * are empty. */
static int setup_drop_caps(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    if (syscall(SYS_capset, &head, data) != 0) {
        return -1;
    }
    memset(data, 0xff, sizeof data);
    if (syscall(SYS_capget, &head, data) != 0) {
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        if (data[i].effective | data[i].permitted | data[i].inheritable) {
            errno = EPERM;
            return -1;
        }
    }
    return 0;
}

/* Who made the container chose the user: nothing here could. */
static bool setup_is_user(void) {
    uid_t uid[3];
    gid_t gid[3];
    bool well = getresuid(&uid[0], &uid[1], &uid[2]) == 0 &&
                getresgid(&gid[0], &gid[1], &gid[2]) == 0 && getpid() == 1 &&
                prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    for (int i = 0; i < 3 && well; i++) {
        well = uid[i] == INITMSG_UID_USER && gid[i] == INITMSG_UID_USER;
    }
    return well;
}

/* … and dropped every capability. */
static int setup_powerless(struct setup *s) {
    (void)s;
    bool well = setup_is_user();
    for (int cap = 0; cap < 64; cap++) {
        well = well && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) <= 0;
    }
    if (!well) {
        errno = EPERM;
        return -1;
    }
    return setup_drop_caps();
}

bool setup_apart(void) {
    if (setup_powerless(NULL) != 0 || unshare(CLONE_NEWUSER) != 0) {
        return false;
    }
    (void)unshare(CLONE_NEWTIME); /* the kernel may have none */
    /* Where the container's groups are the root: some engines leave it that of the host, whose
     * names are in /proc/self/cgroup then. */
    return unshare(CLONE_NEWCGROUP) == 0;
}

/* In the user namespace of its own, whose ids are there by now. */
static int setup_user(struct setup *s) {
    (void)s;
    if (!setup_is_user()) {
        errno = EPERM;
        return -1;
    }
    return setgroups(0, NULL);
}

static int setup_sockets(struct setup *s) {
    static const char *const values[][2] = {NETNS_SYSCTL("/proc/sys/")};
    if (s->wish->network) {
        return 0;
    }
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        int fd = open(values[i][0], O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        size_t len = strlen(values[i][1]);
        ssize_t n = fd < 0 ? -1 : write(fd, values[i][1], len);
        int saved = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        errno = saved;
        if (n != (ssize_t)len && (fd >= 0 || errno != ENOENT)) {
            return -1;
        }
    }
    return 0;
}

struct setup_step {
    const char *name;
    int (*run)(struct setup *s);
};

static const struct setup_step setup_steps[] = {
    {"undumpable", setup_undumpable},
    {"session", setup_session},
    {"keyring", setup_keyring},
    {"hostname", setup_hostname},
    {"loopback", setup_loopback},
    {"propagation", setup_propagation},
    {"writable", setup_writable},
    {"proc", setup_proc},
    {"devpts", setup_devpts},
    {"sockets", setup_sockets},
    {"masked", setup_masked},
    {"rlimits", setup_rlimits},
    {"oom", setup_oom},
    {"userns", setup_userns},
    {"time", setup_time},
    {"proc_readonly", setup_proc_readonly},
    {"bounding", setup_bounding},
    {"no_new_privs", setup_no_new_privs},
    {"seccomp", setup_seccomp},
};

/* In a container. The rest was done from outside: by the engine, and in docker/place.c. */
static const struct setup_step setup_contained_steps[] = {
    {"undumpable", setup_undumpable},
    {"session", setup_session},
    {"user", setup_user},
    {"rlimits", setup_rlimits},
    {"bounding", setup_bounding},
    {"no_new_privs", setup_no_new_privs},
    {"seccomp", setup_seccomp},
};

/* … that allows no user namespaces. */
static const struct setup_step setup_one_id_steps[] = {
    {"undumpable", setup_undumpable},     {"session", setup_session},
    {"powerless", setup_powerless},       {"rlimits", setup_rlimits},
    {"no_new_privs", setup_no_new_privs}, {"seccomp", setup_seccomp},
};

static void setup_walk(struct setup *s, const struct setup_step *steps, size_t count) {
    for (size_t i = 0; i < count; i++) {
        errno = 0;
        if (steps[i].run(s) != 0) {
            init_fail(steps[i].name, errno);
        }
    }
}

void setup_run(struct setup *s) {
    setup_walk(s, setup_steps, sizeof setup_steps / sizeof setup_steps[0]);
}

void setup_contained(struct setup *s) {
    if (s->wish->one_id != 0) {
        setup_walk(s, setup_one_id_steps, sizeof setup_one_id_steps / sizeof setup_one_id_steps[0]);
    } else {
        setup_walk(s, setup_contained_steps,
                   sizeof setup_contained_steps / sizeof setup_contained_steps[0]);
    }
}

/* A process stands for its namespaces since Linux 5.8; native jails need 5.14. */
static int setup_join_cgroup(int first) {
    int process = (int)syscall(SYS_pidfd_open, first, 0);
    if (process < 0 || setns(process, CLONE_NEWCGROUP) != 0) {
        return -1;
    }
    return close(process);
}

void setup_seal(int first, bool one_id) {
    if (first == 0 && one_id) {
        if (setup_powerless(NULL) != 0) {
            init_fail("seal", errno);
        }
        return;
    }
    if (first != 0 && setup_join_cgroup(first) != 0) {
        init_fail("seal cgroup namespace", errno);
    }
    if (!one_id && (setresgid(INITMSG_UID_INIT, INITMSG_UID_INIT, INITMSG_UID_USER) != 0 ||
                    setresuid(INITMSG_UID_INIT, INITMSG_UID_INIT, INITMSG_UID_USER) != 0)) {
        init_fail("seal ids", errno);
    }
    if (setup_drop_caps() != 0) {
        init_fail("seal capabilities", errno);
    }
    if (setup_undumpable(NULL) != 0) {
        init_fail("seal undumpable", errno);
    }
}

void setup_before_fork(bool one_id) {
    if (!one_id && setresuid(INITMSG_UID_INIT, INITMSG_UID_USER, INITMSG_UID_INIT) != 0) {
        init_fail("fork ids", errno);
    }
}

void setup_after_fork(bool one_id) {
    if (!one_id && (setresuid(INITMSG_UID_INIT, INITMSG_UID_INIT, INITMSG_UID_USER) != 0 ||
                    setup_undumpable(NULL) != 0)) {
        init_fail("fork ids", errno);
    }
}

int setup_halfway_user(bool one_id, const char **stage) {
    *stage = "ids";
    if (!one_id && (setresgid(INITMSG_UID_USER, INITMSG_UID_USER, INITMSG_UID_USER) != 0 ||
                    setresuid(INITMSG_UID_INIT, INITMSG_UID_USER, INITMSG_UID_INIT) != 0)) {
        return -1;
    }
    *stage = "capabilities";
    if (setup_drop_caps() != 0) {
        return -1;
    }
    *stage = "session";
    return setsid() < 0 ? -1 : 0;
}

/* The plain call: libc's would first see to threads, of which there are none. */
int setup_become_user(void) {
    return (int)syscall(SYS_setresuid, INITMSG_UID_USER, INITMSG_UID_USER, INITMSG_UID_USER);
}
