/* One shard: a single-threaded process with its own socket, slots and cgroups. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "jail.h"
#include "log.h"
#include "policy.h"
#include "rootless.h"
#include "selftest.h"

/* Who makes a shard's jails when it is not the shard itself. */
struct shard_maker {
    /* On the shard's loop; `changed` is to be called when jail_maker.health() changes. The maker
     * lives until stop(). NULL on failure. */
    const struct jail_maker *(*start)(void *arg, struct loop *loop, void (*changed)(void *arg),
                                      void *changed_arg, struct err *err);
    void (*stop)(void *arg);
    bool host;                  /* there is an image "host" … */
    const uint8_t *host_sha256; /* … which is this one; 32 bytes */
    void *arg;
};

struct shard_config {
    enum backend backend;
    const struct shard_maker *maker; /* NULL: native */
    unsigned index;
    unsigned slots, sandboxes;
    unsigned warm, warm_more; /* struct pool_config */
    uint64_t layer_bytes;     /* what snapshots may hold */
    uint64_t removed_groups;  /* struct cgroup_dying; 0: CGROUP_DYING_MOST */
    uint64_t keep_ms;         /* how long sandboxes wait for a server */
    int disk_dir;             /* STATE/disk or -1 */
    bool disk_chosen;         /* else what can be kept is: memory, where the kernel can */
    enum wire_disk disk;      /* … by the operator: what sandboxes get that ask for none */
    int images_dir;           /* STATE/images or -1 */
    int init_fd;
    int home_ns;
    uid_t server_uid;        /* the only user, besides root, that may connect */
    gid_t server_gid;        /* group of the socket */
    const char *cgroup_name; /* "pinfold-<id>/<index>" */
    const char *mount_dir;   /* for a cgroup2 tree of our own */
    const struct policy_set *policies;
    const struct selftest_result *capabilities;
    struct seccomp_program programs[2];
    struct jail_ids ids;
    const struct rootless *rootless; /* NULL = the runner is root */
    uint32_t may_lack;               /* roles of cgroups that the operator gave up */
    uint64_t *rounds;                /* loop_rounds(), for the supervisor to look at */
    struct log *log;
};

/* The trees as this runner has them, with base groups of this name. */
int shard_cgroups(const struct shard_config *cfg, const char *name, struct cgroup_host *host,
                  struct err *err);

/* Serves until SIGTERM or SIGINT, then kills its jails, waits for them and removes its cgroups.
 * Returns the exit code of the process. */
int shard_run(const struct shard_config *cfg);
