#include "warm.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fd.h"

/* What a jail holds that waits (make bench): nearly all of it the kernel's, for namespaces, mounts
 * and control groups, the rest that of two processes. */
#define WARM_JAIL_BYTES (450u * 1000)
#define WARM_PART 400u     /* of the memory for all of them */
#define WARM_FILES 24u     /* of the shard, for one */
#define WARM_FILES_PART 8u /* the rest is for those in use */

/* Those of the root as it is seen from here: in a container its own. */
static const char *const warm_groups[] = {
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
};

struct warm_host warm_host_look(unsigned shards) {
    struct warm_host host = {.shards = shards};
    struct rlimit files;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) {
        host.mem_bytes = (uint64_t)pages * (uint64_t)page;
    }
    for (size_t i = 0; i < sizeof warm_groups / sizeof warm_groups[0]; i++) {
        fd_cleanup int fd = open(warm_groups[i], O_RDONLY | O_CLOEXEC);
        uint64_t bytes = 0;
        /* "max" is no number. */
        if (fd >= 0 && fd_read_u64(fd, &bytes, NULL) == 0 && bytes < host.mem_bytes) {
            host.mem_bytes = bytes;
        }
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        host.files = files.rlim_max; /* a shard raises its own to that */
    }
    return host;
}

unsigned warm_count(const struct warm_host *host) {
    uint64_t mem = host->mem_bytes / WARM_PART / WARM_JAIL_BYTES / (host->shards + !host->shards);
    uint64_t files = host->files / WARM_FILES_PART / WARM_FILES;
    uint64_t n = mem < files ? mem : files;
    n = n > WARM_MANY ? WARM_MANY : n;
    return n < WARM_FEW ? WARM_FEW : (unsigned)n;
}
