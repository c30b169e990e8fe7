/* What /proc says of processes and of the machine's memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define BENCH_PROC_TREE_MAX 1024u

/* A process and its descendants; those that live in a process namespace other than the caller's are
 * the contents of jails. */
struct bench_tree {
    size_t count; /* outside of jails, the process itself included */
    pid_t pid[BENCH_PROC_TREE_MAX];
    size_t jailed_count;
    pid_t jailed[BENCH_PROC_TREE_MAX];
    size_t jails; /* different process namespaces among them */
};

int bench_proc_tree(pid_t root, struct bench_tree *tree, struct err *err);

/* Proportional set size: private pages plus a share of each shared one (smaps_rollup). 0 for a
 * process that has ended meanwhile. */
uint64_t bench_proc_pss_bytes(pid_t pid);

/* VmRSS and VmHWM; resetting makes the peak start again at what is resident now. */
int bench_proc_rss(pid_t pid, uint64_t *now_bytes, uint64_t *peak_bytes, struct err *err);
int bench_proc_reset_peak(pid_t pid, struct err *err);

struct bench_meminfo {
    uint64_t available_bytes;
    uint64_t kernel_bytes; /* slab, kernel stacks, page tables, per-CPU memory */
};
int bench_proc_meminfo(struct bench_meminfo *m, struct err *err);

/* Direct children of this process. -> their number, at most `max`. */
size_t bench_proc_children(pid_t *out, size_t max);
