#include "seccomp_names.h"

#include <stddef.h>

/* Allowed whatever the arguments, in both sets. */
const char *const seccomp_names_allowed[] = {
    /* files and directories */
    "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat openat2 "
    "creat close close_range lseek stat lstat fstat newfstatat statx access faccessat faccessat2 "
    "getdents getdents64 getcwd chdir fchdir rename renameat mkdir mkdirat rmdir link "
    "linkat symlink symlinkat unlink unlinkat readlink readlinkat truncate ftruncate fallocate "
    "chmod fchmod fchmodat chown fchown lchown fchownat umask utime utimes futimesat utimensat "
    "statfs fstatfs getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr "
    "lremovexattr fremovexattr",
    /* descriptors */
    "flock dup dup2 dup3 pipe pipe2 readahead "
    "sendfile splice tee copy_file_range inotify_init inotify_init1 "
    "inotify_add_watch inotify_rm_watch",
    /* waiting */
    "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait "
    "epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime "
    "timerfd_gettime",
    /* memory */
    "munmap mremap mprotect mincore madvise brk mlock mlock2 munlock mlockall "
    "munlockall pkey_alloc pkey_free pkey_mprotect membarrier",
    /* processes and threads */
    "fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid "
    "getpgrp setpgid getsid setsid arch_prctl set_tid_address set_robust_list "
    "get_robust_list rseq futex futex_waitv restart_syscall getrlimit setrlimit "
    "getrusage times getpriority setpriority ioprio_get ioprio_set sched_yield sched_getaffinity "
    "sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler "
    "sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min "
    "sched_rr_get_interval getcpu pidfd_open pidfd_send_signal",
    /* ids: with no capability they can only give up what is left */
    "getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid setregid "
    "setresuid setresgid setfsuid setfsgid setgroups capget capset",
    /* signals and time */
    "kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend "
    "rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack pause alarm getitimer "
    "setitimer nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time "
    "timer_create timer_settime timer_gettime timer_getoverrun timer_delete",
    /* sockets that exist (which can be made: the third table) */
    "connect bind accept accept4 shutdown getsockname getpeername getsockopt sendto "
    "recvfrom sendmsg recvmsg sendmmsg recvmmsg",
    /* the system, and sandboxes of the program's own, which can only narrow this one */
    "uname sysinfo getrandom landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    NULL,
};

/* Allowed in the default set, refused in the strict one: debuggers, shared memory and queues by
 * key, and the corners of the kernel that a program which is judged does not need. */
const char *const seccomp_names_default[] = {
    "ptrace process_vm_readv process_vm_writev vmsplice shmat shmdt shmctl semget "
    "semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend "
    "mq_timedreceive mq_notify mq_getsetattr",
    NULL,
};

/* EPERM, as for any user without the capability. The rest of what is closed needs no name: it is
 * answered ENOSYS like a call that does not exist, so that the caller takes the older way. Among
 * that is clone3 (its flags are in memory, where a filter cannot see them), io_uring (work that no
 * filter sees), the key rings (not all of them have a namespace), memory policies, asynchronous I/O
 * of the first kind (one count for the whole host), kcmp, memfd_secret, modify_ldt. */
const char *const seccomp_names_denied[] = {
    /* mounts and roots */
    "mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick "
    "mount_setattr open_by_handle_at quotactl quotactl_fd swapon swapoff fanotify_init "
    "fanotify_mark",
    /* kernel code and its insides */
    "init_module finit_module delete_module create_module kexec_load kexec_file_load bpf "
    "perf_event_open userfaultfd lookup_dcookie syslog",
    /* other processes' descriptors */
    "pidfd_getfd",
    /* the machine */
    "reboot acct iopl ioperm vhangup nfsservctl sethostname setdomainname settimeofday "
    "clock_settime clock_adjtime adjtimex",
    NULL,
};
