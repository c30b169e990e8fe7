/* For the tests of layers: jails as process 1 makes them, in which functions of the test run as the
 * jail's user, and an event loop that waits for one answer. Needs root. */
#pragma once

#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "clock.h"
#include "layers.h"
#include "layers_state.h"
#include "loop.h"
#include "unit_template.h"

#define JAIL_ID_COUNT 65536u
#define JAIL_MIB (1024ull * 1024)

struct test_jail {
    pid_t pid;
    int sock;
    struct layers_jail as; /* for layers_open() */
    struct layers_volume *v;
};

struct test_layers {
    struct loop *loop;
    struct layers *layers;
    struct rootfs template;
    int home_ns;
    uint32_t jails;
    char disk_dir[64];
    int disk_fd;
    bool done;
    struct layers_result result;
};

/* What a jail is asked to do: fn(arg) as its user, in a process of its own. The test and the jail
 * are forks of one program, so that addresses mean the same. */
struct test_call {
    int (*fn)(const char *arg);
    char arg[256];
    uint32_t uid;
    uint32_t stay; /* do not wait for it: `test_release()` ends it */
};

struct test_return {
    int status;
    pid_t pid;
};

static const struct {
    uint32_t bit;
    const char *name, *path;
    mode_t mode;
    uid_t owner;
} test_places[] = {
    {WIRE_WRITABLE_HOME, "/workspace/home", "/home/user", 0755, 1000},
    {WIRE_WRITABLE_TMP, "/workspace/tmp", "/tmp", 01777, 0},
    {WIRE_WRITABLE_VAR_TMP, "/workspace/var_tmp", "/var/tmp", 01777, 0},
    {WIRE_WRITABLE_SHM, "/workspace/shm", "/dev/shm", 01777, 0},
    {WIRE_WRITABLE_WORKSPACE, "/workspace/workspace", "/workspace", 0755, 1000},
};

static inline int test_jail_writable(const struct layers_jail *as) {
    char options[128];
    (void)snprintf(options, sizeof options, "mode=0755,size=%llu,nr_inodes=%llu",
                   (unsigned long long)as->disk_bytes, (unsigned long long)as->inodes);
    if (mount("tmpfs", "/workspace", "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
        return -1;
    }
    int fd = open("/workspace", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < UNIT_COUNT(test_places); i++) {
        if (!(as->writable & test_places[i].bit)) {
            continue;
        }
        uid_t owner = test_places[i].owner;
        if (mkdir(test_places[i].name, 0700) != 0 ||
            chown(test_places[i].name, owner, owner) != 0 ||
            chmod(test_places[i].name, test_places[i].mode) != 0 ||
            mount(test_places[i].name, test_places[i].path, NULL, MS_BIND, NULL) != 0) {
            return -1;
        }
    }
    return fd;
}

static inline void test_jail_serve(int sock) {
    for (;;) {
        struct test_call call;
        struct test_return ret = {0};
        int fds[FD_PASS_MAX];
        size_t nfds;
        if (fd_recv(sock, &call, sizeof call, fds, &nfds, NULL, NULL) != (ssize_t)sizeof call) {
            _exit(0);
        }
        if (call.fn == NULL) { /* the number of a process that stays */
            (void)kill((pid_t)call.stay, SIGKILL);
            (void)waitpid((pid_t)call.stay, &ret.status, 0);
            (void)fd_send(sock, &ret, sizeof ret, NULL, 0, NULL);
            continue;
        }
        ret.pid = fork();
        if (ret.pid == 0) {
            if (setresgid(call.uid, call.uid, call.uid) != 0 ||
                setresuid(call.uid, call.uid, call.uid) != 0) {
                _exit(97);
            }
            int rc = call.fn(call.arg);
            if (call.stay) {
                for (;;) {
                    (void)pause();
                }
            }
            _exit(rc);
        }
        if (!call.stay) {
            (void)waitpid(ret.pid, &ret.status, 0);
        }
        (void)fd_send(sock, &ret, sizeof ret, NULL, 0, NULL);
    }
}

static inline void test_jail_main(const struct layers_jail *as, int go, int sock) {
    char byte;
    if (read(go, &byte, 1) != 1 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0 ||
        setgroups(0, NULL) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
        _exit(98);
    }
    int fd = test_jail_writable(as);
    if (fd < 0 || fd_send(sock, "", 1, &fd, 1, NULL) != 0) {
        _exit(96);
    }
    (void)close(fd);
    if (mount("proc", "/proc", "proc", 0, NULL) != 0) {
        _exit(95);
    }
    test_jail_serve(sock);
}

static inline void test_jail_open(struct test_layers *t, struct test_jail *j, uint64_t bytes,
                                  uint64_t inodes) {
    int go[2], pair[2], fds[FD_PASS_MAX];
    char path[64], map[64], byte = 0;
    size_t nfds = 0;
    struct err e;
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                       CLONE_NEWIPC | CLONE_NEWUTS,
                              .exit_signal = SIGCHLD};
    j->as = (struct layers_jail){
        .writable_fd = -1,
        .writable = WIRE_WRITABLE_ALL,
        .id_base = ID_BASE + JAIL_ID_COUNT * t->jails++,
        .id_count = JAIL_ID_COUNT,
        .disk_bytes = bytes,
        .inodes = inodes,
    };
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(setns(t->template.mnt_ns, CLONE_NEWNS), 0);
    j->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (j->pid == 0) {
        (void)close(go[1]);
        test_jail_main(&j->as, go[0], pair[1]);
    }
    assert_int_equal(setns(t->home_ns, CLONE_NEWNS), 0);
    assert_true(j->pid > 0);
    (void)snprintf(map, sizeof map, "0 %u %u\n", j->as.id_base, JAIL_ID_COUNT);
    (void)snprintf(path, sizeof path, "/proc/%d/gid_map", (int)j->pid);
    assert_int_equal(write_text(path, map), 0);
    (void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)j->pid);
    assert_int_equal(write_text(path, map), 0);
    assert_int_equal(write(go[1], &byte, 1), 1);
    fd_close(&go[0]);
    fd_close(&go[1]);
    fd_close(&pair[1]);
    j->sock = pair[0];
    assert_int_equal(fd_recv(j->sock, &byte, 1, fds, &nfds, NULL, NULL), 1);
    assert_int_equal(nfds, 1);
    j->as.writable_fd = fds[0];
    j->as.pid = j->pid;
    j->v = layers_open(t->layers, &j->as, &e);
    assert_non_null(j->v);
}

static inline void test_jail_kill(struct test_jail *j) {
    (void)kill(j->pid, SIGKILL);
    assert_int_equal(waitpid(j->pid, NULL, 0), j->pid);
    fd_close(&j->sock);
}

static inline void test_jail_close(struct test_jail *j) {
    test_jail_kill(j);
    layers_close(j->v);
    fd_close(&j->as.writable_fd);
}

static inline struct test_return test_ask(struct test_jail *j, const struct test_call *call) {
    struct test_return ret;
    int fds[FD_PASS_MAX];
    size_t nfds;
    assert_int_equal(fd_send(j->sock, call, sizeof *call, NULL, 0, NULL), 0);
    assert_int_equal(fd_recv(j->sock, &ret, sizeof ret, fds, &nfds, NULL, NULL), sizeof ret);
    return ret;
}

/* Runs fn(arg) in the jail as its user; 0 is what it should return. */
static inline void test_in(struct test_jail *j, int (*fn)(const char *arg), const char *arg) {
    struct test_call call = {.fn = fn, .uid = 1000};
    (void)snprintf(call.arg, sizeof call.arg, "%s", arg);
    shared_text[0] = '\0';
    struct test_return ret = test_ask(j, &call);
    if (ret.status != 0) {
        fail_msg("in the jail: status 0x%x: %s", (unsigned)ret.status, shared_text);
    }
}

/* A process of the jail that does fn(arg) and stays. fn calls test_ready() when it has begun. */
static inline pid_t test_stay(struct test_jail *j, int (*fn)(const char *arg), const char *arg) {
    struct test_call call = {.fn = fn, .uid = 1000, .stay = 1};
    (void)snprintf(call.arg, sizeof call.arg, "%s", arg);
    shared_text[0] = '\0';
    volatile char *flag = shared_text + 3000;
    *flag = 0;
    pid_t pid = test_ask(j, &call).pid;
    for (int i = 0; i < 5000 && *flag == 0; i++) {
        (void)usleep(1000);
    }
    assert_int_equal(*flag, 1);
    return pid;
}

static inline void test_ready(void) {
    shared_text[3000] = 1;
}

static inline void test_release(struct test_jail *j, pid_t pid) {
    struct test_call call = {.fn = NULL, .stay = (uint32_t)pid};
    (void)test_ask(j, &call);
}

/* ---- the loop ---- */

static inline void test_done(void *arg, const struct layers_result *result) {
    struct test_layers *t = arg;
    t->done = true;
    t->result = *result;
}

static inline void test_wait(struct test_layers *t) {
    struct err e;
    uint64_t due = clock_mono_ms() + 60000;
    while (!t->done && clock_mono_ms() < due) {
        assert_int_equal(loop_once(t->loop, 100 * CLOCK_NS_PER_MS, &e), 0);
    }
    assert_true(t->done);
}

/* Workers that nobody waits for finish what they do. */
static inline void test_settle(struct test_layers *t) {
    struct err e;
    uint64_t due = clock_mono_ms() + 10000;
    while ((t->layers->jobs != NULL || t->layers->asides != NULL) && clock_mono_ms() < due) {
        assert_int_equal(loop_once(t->loop, 100 * CLOCK_NS_PER_MS, &e), 0);
    }
    assert_null(t->layers->jobs);
    assert_null(t->layers->asides);
}

static inline int test_snapshot(struct test_layers *t, struct test_jail *j, const char *key,
                                bool quiet) {
    t->done = false;
    layers_snapshot(j->v, key, quiet, test_done, t);
    test_wait(t);
    return t->result.code;
}

static inline int test_restore(struct test_layers *t, struct test_jail *j, const char *key) {
    t->done = false;
    layers_restore(j->v, key, test_done, t);
    test_wait(t);
    return t->result.code;
}

static inline int test_prepare(struct test_layers *t, struct test_jail *j, enum wire_disk disk,
                               const char *from) {
    t->done = false;
    layers_prepare(j->v, disk, from, test_done, t);
    test_wait(t);
    return t->result.code;
}

#define test_works(call, t)                                                                        \
    do {                                                                                           \
        int test_code = (call);                                                                    \
        if (test_code != 0)                                                                        \
            fail_msg("%s: %s (%s)", #call, (t)->result.text, strerror(test_code));                 \
    } while (0)

/* ---- before and after all tests of a file ---- */

static inline int test_layers_down(void **state) {
    struct test_layers *t = *state;
    if (t != NULL) {
        layers_free(t->layers);
        loop_free(t->loop);
        rootfs_done(&t->template);
        fd_close(&t->home_ns);
        fd_close(&t->disk_fd);
        assert_int_equal(count_entries(t->disk_dir), 0);
        assert_int_equal(rmdir(t->disk_dir), 0);
    }
    return 0;
}

/* Before 6.3 the ids of a tmpfs cannot be mapped. */
static inline bool test_layers_old_kernel(void) {
    struct utsname name;
    unsigned major = 0;
    unsigned minor = 0;
    assert_int_equal(uname(&name), 0);
    assert_int_equal(sscanf(name.release, "%u.%u", &major, &minor), 2);
    return major < 6 || (major == 6 && minor < 3);
}

static inline int test_layers_up(void **state) {
    static struct test_layers t; /* one per program */
    struct rootfs_config cfg = {ROOTFS_IMAGE_HOST, -1, WIRE_WRITABLE_ALL, false};
    struct err e = {0};
    *state = NULL;
    if (!is_root()) {
        return 0;
    }
    assert_true(template_init());
    /* As the runner does: a mount namespace of its own. */
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    t.home_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    (void)snprintf(t.disk_dir, sizeof t.disk_dir, "/tmp/pinfold-unit-layers.XXXXXX");
    assert_non_null(mkdtemp(t.disk_dir));
    t.disk_fd = open(t.disk_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(t.disk_fd >= 0);
    t.template.mnt_ns = -1;
    unit_works(rootfs_build(&cfg, &t.template, &e), e);
    t.loop = loop_new(&e);
    assert_non_null(t.loop);
    struct layers_config lc = {.loop = t.loop, .disk_dirfd = t.disk_fd};
    t.layers = layers_new(&lc, &e);
    if (t.layers == NULL) {
        fail_msg("%s", e.text);
    }
    if (test_layers_old_kernel() && layers_snapshots_missing(t.layers, WIRE_DISK_FILE) == NULL) {
        print_message(
            "# volumes in memory are what is tested here, and this kernel can keep those in "
            "files only: skipped\n");
        *state = &t;
        (void)test_layers_down(state);
        *state = NULL;
    } else {
        *state = &t;
    }
    return 0;
}
