#include "recipe.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "initmsg.h"

#define RECIPE_BLOCK 512u
#define RECIPE_PERIOD_US 100000u
#define RECIPE_NPROC 32768u /* what Podman has itself, and no more */

/* The engine's own list, and what setup_masks and setup_covered in init/setup.c add to it. */
const char *const recipe_masked[RECIPE_MASKED_MAX] = {
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/irq",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sys/kernel/random/boot_id",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
};

static const char *const recipe_readonly[] = {"/proc/sys", "/proc/sysrq-trigger"};

static json_t *recipe_strings(const char *const *items, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_string(items[i]));
    }
    return list;
}

static void recipe_ulimit(json_t *list, const char *name, int what, uint64_t soft, uint64_t hard) {
    struct rlimit own;
    /* An engine cannot give more than it has; process 1 lowers what it finds. */
    if (getrlimit(what, &own) == 0 && own.rlim_max != RLIM_INFINITY && hard > own.rlim_max) {
        hard = own.rlim_max;
    }
    soft = soft < hard ? soft : hard;
    (void)json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "Name", name, "Soft",
                                                (json_int_t)soft, "Hard", (json_int_t)hard));
}

static json_t *recipe_ulimits(const struct recipe *r) {
    const uint64_t *v = r->ceiling.v;
    json_t *list = json_array();
    recipe_ulimit(list, "core", RLIMIT_CORE, r->core_bytes, r->core_bytes);
    recipe_ulimit(list, "nofile", RLIMIT_NOFILE, 1024, v[LIMIT_OPEN_FILES]);
    recipe_ulimit(list, "fsize", RLIMIT_FSIZE, v[LIMIT_FILE_BYTES], v[LIMIT_FILE_BYTES]);
    recipe_ulimit(list, "stack", RLIMIT_STACK, 8388608, v[LIMIT_STACK_BYTES]);
    recipe_ulimit(list, "memlock", RLIMIT_MEMLOCK, 65536, 65536);
    if (r->podman) { /* which would set its own, that it may not be allowed to; pids are a group's
                      */
        recipe_ulimit(list, "nproc", RLIMIT_NPROC, RECIPE_NPROC, RECIPE_NPROC);
    }
    return list;
}

/* All that can be written is one tmpfs, so that its size and inode count are the disk limits of the
 * jail; the runner sets the count, which Podman does not take, and binds its directories to their
 * places (place.h). */
static json_t *recipe_tmpfs(const struct recipe *r) {
    char options[160];
    (void)snprintf(options, sizeof options, "rw,exec,nosuid,nodev,mode=0755,size=%llu",
                   (unsigned long long)r->limits.v[LIMIT_DISK_BYTES]);
    return json_pack("{s:s}", "/workspace", options);
}

static json_t *recipe_security(const struct recipe *r) {
    json_t *list = json_array();
    size_t size = strlen(r->seccomp) + sizeof "seccomp=";
    char *profile = malloc(size);
    if (profile != NULL) {
        (void)snprintf(profile, size, "seccomp=%s", r->seccomp);
        (void)json_array_append_new(list, json_string("no-new-privileges"));
        (void)json_array_append_new(list, json_string(profile));
    }
    free(profile);
    return profile != NULL ? list : NULL;
}

/* Memory and swap together are as much as memory alone: no swap. The score is that of process 1:
 * commands get a higher one (exec_child.c). */
static int recipe_limits(const struct recipe *r, json_t *host) {
    const uint64_t *v = r->limits.v;
    json_t *limits = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "Memory", (json_int_t)v[LIMIT_MEM_BYTES],
        "MemorySwap", (json_int_t)v[LIMIT_MEM_BYTES], "CpuPeriod", (json_int_t)RECIPE_PERIOD_US,
        "CpuQuota", (json_int_t)(v[LIMIT_CPUS_MILLI] * RECIPE_PERIOD_US / 1000), "PidsLimit",
        (json_int_t)v[LIMIT_PIDS], "OomScoreAdj", (json_int_t)0, "Ulimits", recipe_ulimits(r),
        "Tmpfs", recipe_tmpfs(r));
    int rc = limits != NULL ? json_object_update(host, limits) : -1;
    json_decref(limits);
    return rc;
}

/* The engine is told not to remove it by itself: when Docker starts it removes such containers also
 * when they run and it was told to keep what runs (live-restore), and one whose removal its end
 * breaks off it can never remove again. The maker does it, or the next one. */
static json_t *recipe_host(const struct recipe *r) {
    json_t *host = json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:b, s:[s], s:o, s:{s:s}, s:o, s:o}", "NetworkMode",
        "none", "IpcMode", "none", "CgroupnsMode", "private", "PidMode", "", "ReadonlyRootfs", 1,
        "Privileged", 0, "AutoRemove", 0, "Init", 0, "CapDrop", "ALL", "SecurityOpt",
        recipe_security(r), "LogConfig", "Type", "none", "MaskedPaths",
        recipe_strings(recipe_masked, RECIPE_MASKED_MAX), "ReadonlyPaths",
        recipe_strings(recipe_readonly, sizeof recipe_readonly / sizeof recipe_readonly[0]));
    if (host != NULL && recipe_limits(r, host) == 0) {
        return host;
    }
    json_decref(host);
    return NULL;
}

int recipe_container(const struct recipe *r, struct buf *out, struct err *err) {
    char user[32];
    (void)snprintf(user, sizeof user, "%u:%u", INITMSG_UID_USER, INITMSG_UID_USER);
    json_t *root = json_pack(
        "{s:s, s:s, s:[s,s], s:[], s:s, s:s, s:s, s:b, s:b, s:{s:[s]}, s:{s:s, s:s}, s:o}", "Image",
        r->image, "User", user, "Entrypoint", RECIPE_INIT, INITMSG_CONTAINED, "Cmd", "WorkingDir",
        "/", "Hostname", "pinfold", "Domainname", "", "NetworkDisabled", 1, "Tty", 0, "Healthcheck",
        "Test", "NONE", "Labels", RECIPE_LABEL_OWNER, r->owner, RECIPE_LABEL_JAIL, r->name,
        "HostConfig", recipe_host(r));
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL) {
        return err_set(err, ERR_SYSTEM, ENOMEM, "describing a container: out of memory");
    }
    int rc = buf_puts(out, text, err);
    free(text);
    return rc;
}

/* ---- the layer: a plain tar (ustar) ---- */

struct recipe_entry {
    const char *path;
    char type;
    mode_t mode;
    const char *text; /* of a file; of a link */
};

static const struct recipe_entry recipe_entries[] = {
    {"workspace/", '5', 0755, NULL},
    {"home/", '5', 0755, NULL},
    {"home/user/", '5', 0755, NULL},
    {"tmp/", '5', 01777, NULL},
    {"var/", '5', 0755, NULL},
    {"var/tmp/", '5', 01777, NULL},
    {"etc/", '5', 0755, NULL},
    {&RECIPE_HOSTNAME[1], '0', 0644, "pinfold\n"},
    {&RECIPE_HOSTS[1], '0', 0644, "127.0.0.1 localhost pinfold\n::1 localhost ip6-localhost\n"},
};

/* What an image brings itself, or does not need. */
static const struct recipe_entry recipe_whole[] = {
    {"etc/passwd", '0', 0644,
     "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n"},
    {"etc/group", '0', 0644, "root:x:0:\nuser:x:1000:\n"},
};

static int recipe_header(const struct recipe_entry *e, uint64_t size, struct buf *out,
                         struct err *err) {
    char block[RECIPE_BLOCK] = {0};
    unsigned sum = 0;
    (void)snprintf(block, 100, "%s", e->path);
    (void)snprintf(block + 100, 8, "%07o", (unsigned)e->mode);
    (void)snprintf(block + 108, 8, "%07o", 0u);
    (void)snprintf(block + 116, 8, "%07o", 0u);
    (void)snprintf(block + 124, 12, "%011llo", (unsigned long long)size);
    (void)snprintf(block + 136, 12, "%011o", 0u);
    memset(block + 148, ' ', 8);
    block[156] = e->type;
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof block; i++) {
        sum += (unsigned char)block[i];
    }
    (void)snprintf(block + 148, 8, "%06o", sum);
    return buf_append(out, block, sizeof block, err);
}

static int recipe_file(const struct recipe_entry *e, const void *data, size_t size, struct buf *out,
                       struct err *err) {
    static const char zeros[RECIPE_BLOCK];
    size_t pad = (RECIPE_BLOCK - size % RECIPE_BLOCK) % RECIPE_BLOCK;
    if (recipe_header(e, size, out, err) != 0 || buf_append(out, data, size, err) != 0) {
        return -1;
    }
    return buf_append(out, zeros, pad, err);
}

static int recipe_add(const struct recipe_entry *e, size_t count, struct buf *out,
                      struct err *err) {
    for (size_t i = 0; i < count; i++) {
        const char *text = e[i].text != NULL ? e[i].text : "";
        if (recipe_file(&e[i], text, strlen(text), out, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int recipe_layer(int init_fd, bool whole, struct buf *out, struct err *err) {
    static const char end[2 * RECIPE_BLOCK];
    static const struct recipe_entry init = {&RECIPE_INIT[1], '0', 0555, NULL};
    struct stat st;
    if (fstat(init_fd, &st) != 0) {
        return err_sys(err, "reading pinfold-init");
    }
    size_t size = (size_t)st.st_size;
    char *program = malloc(size > 0 ? size : 1);
    if (program == NULL || pread(init_fd, program, size, 0) != (ssize_t)size) {
        free(program);
        return err_sys(err, "reading pinfold-init");
    }
    int rc = recipe_add(recipe_entries, sizeof recipe_entries / sizeof recipe_entries[0], out, err);
    if (rc == 0 && whole) {
        rc = recipe_add(recipe_whole, sizeof recipe_whole / sizeof recipe_whole[0], out, err);
    }
    if (rc == 0) {
        rc = recipe_file(&init, program, size, out, err);
    }
    free(program);
    return rc == 0 ? buf_append(out, end, sizeof end, err) : -1;
}
