#include "bench_filter.h"

#include <errno.h>
#include <limits.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fd.h"

#define BENCH_FILTER_CALLS 470 /* numbers that are looked at */

static const char *const bench_filter_refused[] = {
    "acct",
    "add_key",
    "bpf",
    "chroot",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "init_module",
    "io_uring_enter",
    "io_uring_setup",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "ptrace",
    "quotactl",
    "reboot",
    "request_key",
    "setns",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
};

static bool bench_filter_allows(const char *name) {
    for (size_t i = 0; i < sizeof(bench_filter_refused) / sizeof(bench_filter_refused[0]); i++)
        if (strcmp(name, bench_filter_refused[i]) == 0)
            return false;
    return true;
}

static int bench_filter_fill(scmp_filter_ctx ctx, struct err *err) {
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (int nr = 0; rc == 0 && nr < BENCH_FILTER_CALLS; nr++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
        if (name && bench_filter_allows(name))
            rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
        free(name);
    }
    return rc ? err_set(err, ERR_SYSTEM, -rc, "build a system call filter: %s", strerror(-rc)) : 0;
}

static int bench_filter_export(scmp_filter_ctx ctx, struct sock_fprog *out, struct err *err) {
    fd_cleanup int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "make a memory file");
    int rc = seccomp_export_bpf(ctx, fd);
    off_t size = lseek(fd, 0, SEEK_END);
    if (rc < 0 || size <= 0 || size / (off_t)sizeof(struct sock_filter) > USHRT_MAX)
        return err_set(err, ERR_SYSTEM, -rc, "cannot export the system call filter");
    struct sock_filter *code = malloc((size_t)size);
    if (!code) {
        errno = ENOMEM;
        return err_sys(err, "room for the system call filter");
    }
    if (pread(fd, code, (size_t)size, 0) != size) {
        err_sys(err, "read the system call filter");
        free(code);
        return -1;
    }
    out->len = (unsigned short)(size / (off_t)sizeof(*code));
    out->filter = code;
    return 0;
}

int bench_filter_make(struct sock_fprog *out, struct err *err) {
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!ctx)
        return err_set(err, ERR_SYSTEM, ENOMEM, "cannot start a system call filter");
    int rc = bench_filter_fill(ctx, err);
    if (rc == 0)
        rc = bench_filter_export(ctx, out, err);
    seccomp_release(ctx);
    return rc;
}
