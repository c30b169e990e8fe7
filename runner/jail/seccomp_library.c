/* The program that libseccomp makes of the rules. */
#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "seccomp_rules.h"

static int seccomp_library_attr(scmp_filter_ctx ctx, enum scmp_filter_attr attr, uint32_t value,
                                struct err *err) {
    int rc = seccomp_attr_set(ctx, attr, value);
    return rc == 0
               ? 0
               : err_set(err, ERR_SYSTEM, -rc, "set up a system call filter: %s", strerror(-rc));
}

static int seccomp_library_fill(scmp_filter_ctx ctx, const struct seccomp_rules *rules,
                                struct err *err) {
    if (seccomp_library_attr(ctx, SCMP_FLTATR_ACT_BADARCH, SECCOMP_ACT_FOREIGN, err) != 0 ||
        seccomp_library_attr(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2, err) != 0) { /* a binary tree */
        return -1;
    }
    for (size_t i = 0; i < rules->count; i++) {
        const struct seccomp_rule *r = &rules->v[i];
        int rc = seccomp_rule_add_array(ctx, r->action, r->nr, r->count, r->cmp);
        if (rc != 0) {
            return err_set(err, ERR_SYSTEM, -rc, "add the rule for system call %d: %s", r->nr,
                           strerror(-rc));
        }
    }
    return 0;
}

/* libseccomp writes programs to descriptors only. */
static int seccomp_library_export(scmp_filter_ctx ctx, struct seccomp_program *out,
                                  struct err *err) {
    struct stat st;
    fd_cleanup int fd = memfd_create("seccomp", MFD_CLOEXEC);
    if (fd < 0) {
        return err_sys(err, "make a memory file for the filter");
    }
    int rc = seccomp_export_bpf(ctx, fd);
    if (rc != 0) {
        return err_set(err, ERR_SYSTEM, -rc, "compile the filter: %s", strerror(-rc));
    }
    if (fstat(fd, &st) != 0) {
        return err_sys(err, "examine the compiled filter");
    }
    size_t size = (size_t)st.st_size;
    if (size == 0 || size % sizeof(struct sock_filter) != 0 ||
        size / sizeof(struct sock_filter) > BPF_MAXINSNS) {
        return err_set(err, ERR_LIMIT, 0, "the compiled filter has an impossible size: %zu bytes",
                       size);
    }
    struct sock_filter *insns = malloc(size);
    if (insns == NULL || pread(fd, insns, size, 0) != (ssize_t)size) {
        free(insns);
        return err_sys(err, "read the compiled filter");
    }
    out->insns = insns;
    out->len = (unsigned short)(size / sizeof(struct sock_filter));
    return 0;
}

int seccomp_library(const struct seccomp_rules *rules, struct seccomp_program *out,
                    struct err *err) {
    scmp_filter_ctx ctx = seccomp_init(SECCOMP_ACT_ABSENT);
    if (ctx == NULL) {
        return err_set(err, ERR_SYSTEM, ENOMEM, "start a system call filter");
    }
    int rc = seccomp_library_fill(ctx, rules, err);
    if (rc == 0) {
        rc = seccomp_library_export(ctx, out, err);
    }
    seccomp_release(ctx);
    return rc;
}
