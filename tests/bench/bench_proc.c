#include "bench_proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"

#define BENCH_PROC_FILE_MAX (1u << 20)

/* The number after "\n<key>" in a file of "key: number kB" lines, in bytes; 0 when it is missing.
 */
static uint64_t bench_proc_kb(const struct buf *file, const char *key) {
    size_t len = strlen(key);
    for (const char *p = file->data; p && *p;) {
        if (strncmp(p, key, len) == 0 && p[len] == ':')
            return strtoull(p + len + 1, NULL, 10) * 1024;
        p = strchr(p, '\n');
        if (p)
            p++;
    }
    return 0;
}

static int bench_proc_read(pid_t pid, const char *name, struct buf *out, struct err *err) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    buf_init(out, BENCH_PROC_FILE_MAX);
    return fd_read_file(AT_FDCWD, path, out, err);
}

uint64_t bench_proc_pss_bytes(pid_t pid) {
    struct buf file;
    uint64_t bytes = 0;
    if (bench_proc_read(pid, "smaps_rollup", &file, NULL) == 0)
        bytes = bench_proc_kb(&file, "Pss");
    buf_done(&file);
    return bytes;
}

int bench_proc_rss(pid_t pid, uint64_t *now_bytes, uint64_t *peak_bytes, struct err *err) {
    struct buf file;
    int rc = bench_proc_read(pid, "status", &file, err);
    if (rc == 0) {
        *now_bytes = bench_proc_kb(&file, "VmRSS");
        *peak_bytes = bench_proc_kb(&file, "VmHWM");
    }
    buf_done(&file);
    return rc;
}

int bench_proc_reset_peak(pid_t pid, struct err *err) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/clear_refs", pid);
    return fd_write_kernel(AT_FDCWD, path, "5", 1, err);
}

int bench_proc_meminfo(struct bench_meminfo *m, struct err *err) {
    static const char *const kernel[] = {"Slab", "KernelStack", "PageTables", "Percpu"};
    struct buf file;
    buf_init(&file, BENCH_PROC_FILE_MAX);
    int rc = fd_read_file(AT_FDCWD, "/proc/meminfo", &file, err);
    *m = (struct bench_meminfo){.available_bytes = bench_proc_kb(&file, "MemAvailable")};
    for (size_t i = 0; i < sizeof(kernel) / sizeof(kernel[0]); i++)
        m->kernel_bytes += bench_proc_kb(&file, kernel[i]);
    buf_done(&file);
    return rc;
}

/* The parent of `pid`, 0 when it is gone or a zombie. */
static pid_t bench_proc_parent(pid_t pid) {
    struct buf file;
    long parent = 0;
    if (bench_proc_read(pid, "stat", &file, NULL) == 0 && file.len) {
        /* The name may hold blanks and brackets; what follows the last ')' is the state. */
        const char *p = strrchr(file.data, ')');
        if (p && p[1] == ' ' && p[2] != 'Z')
            parent = strtol(p + 3, NULL, 10);
    }
    buf_done(&file);
    return (pid_t)parent;
}

/* All processes with their parents. -> their number. */
struct bench_proc_link {
    pid_t pid, parent;
};

static size_t bench_proc_all(struct bench_proc_link *out, size_t max) {
    DIR *dir = opendir("/proc");
    size_t count = 0;
    struct dirent *ent;
    while (dir && count < max && (ent = readdir(dir))) {
        pid_t pid = (pid_t)strtol(ent->d_name, NULL, 10);
        pid_t parent = pid > 0 ? bench_proc_parent(pid) : 0;
        if (parent > 0)
            out[count++] = (struct bench_proc_link){pid, parent};
    }
    if (dir)
        closedir(dir);
    return count;
}

size_t bench_proc_children(pid_t *out, size_t max) {
    struct bench_proc_link all[4096];
    size_t total = bench_proc_all(all, sizeof(all) / sizeof(all[0]));
    size_t count = 0;
    for (size_t i = 0; i < total && count < max; i++)
        if (all[i].parent == getpid())
            out[count++] = all[i].pid;
    return count;
}

/* Which process namespace, as a number; 0 when the process is gone. */
static unsigned long long bench_proc_namespace(pid_t pid) {
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return 0;
    target[n] = '\0';
    const char *p = strchr(target, '[');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static void bench_proc_sort(struct bench_tree *tree, const pid_t *pids, size_t count) {
    unsigned long long ours = bench_proc_namespace(getpid());
    unsigned long long *seen = calloc(count, sizeof(*seen));
    for (size_t i = 0; i < count; i++) {
        unsigned long long ns = bench_proc_namespace(pids[i]);
        if (ns == 0)
            continue;
        if (ns == ours) {
            tree->pid[tree->count++] = pids[i];
            continue;
        }
        tree->jailed[tree->jailed_count++] = pids[i];
        size_t k = 0;
        while (seen && k < tree->jails && seen[k] != ns)
            k++;
        if (seen && k == tree->jails)
            seen[tree->jails++] = ns;
    }
    free(seen);
}

int bench_proc_tree(pid_t root, struct bench_tree *tree, struct err *err) {
    struct bench_proc_link all[4096];
    size_t total = bench_proc_all(all, sizeof(all) / sizeof(all[0]));
    pid_t found[BENCH_PROC_TREE_MAX] = {root};
    size_t count = 1;
    *tree = (struct bench_tree){0};
    /* Each round of the outer loop looks for the children of one found process. */
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < total; k++) {
            if (all[k].parent != found[i])
                continue;
            if (count == BENCH_PROC_TREE_MAX)
                return err_set(err, ERR_LIMIT, 0, "more than %u processes below process %d",
                               BENCH_PROC_TREE_MAX, root);
            found[count++] = all[k].pid;
        }
    bench_proc_sort(tree, found, count);
    return tree->count ? 0 : err_set(err, ERR_STATE, 0, "process %d has ended", root);
}
