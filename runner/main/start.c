#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "spawn.h"
#include "str.h"

#define START_LOCK_NS (10 * CLOCK_NS_PER_S)

int start_parse(const char *program, const char *about, const struct opt *table, int argc,
                char **argv, const char *const *state) {
    struct opt_result parsed;
    struct err err;
    char usage[64];
    if (opt_parse(table, argc, argv, &parsed, &err) != 0) {
        (void)fprintf(stderr, "%s: %s (see --help)\n", program, err.text);
        return 2;
    }
    if (parsed.help) {
        (void)snprintf(usage, sizeof usage, "%s --state DIR [options]", program);
        opt_help(stdout, usage, about, table);
        return 0;
    }
    if (*state == NULL || parsed.rest != argc) {
        (void)fprintf(stderr, "%s: --state DIR is required and nothing else (see --help)\n",
                      program);
        return 2;
    }
    return -1;
}

void start_hold_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

int start_server_user(const char *name, uid_t *uid, gid_t *gid, struct err *err) {
    const struct passwd *pw = getpwnam(name);
    if (pw == NULL) {
        return err_set(err, ERR_INVALID, 0,
                       "there is no user %s; create it or name the server's user with "
                       "--server-user",
                       name);
    }
    *uid = pw->pw_uid;
    *gid = pw->pw_gid;
    return 0;
}

int start_init_program(const char *path, struct err *err) {
    char beside[4096];
    char self[4096];
    if (path != NULL) {
        return spawn_load(path, err);
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) {
        return err_sys(err, "finding the own program");
    }
    self[n] = '\0';
    if (snprintf(beside, sizeof beside, "%s/pinfold-init", dirname(self)) >= (int)sizeof beside) {
        return err_set(err, ERR_INVALID, 0, "the path of pinfold-init is too long");
    }
    return spawn_load(beside, err);
}

int start_namespace(struct err *err) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        int code = errno;
        return err_set(err, ERR_SYSTEM, code, "making a private mount namespace: %s%s",
                       strerror(code), spawn_remedy(code));
    }
    int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "opening the own mount namespace") : fd;
}

/* Two locks on one file. The record lock is this process's alone, so it says whether another one
 * lives. The other is inherited by the shards: of a runner that was killed they may hold it for a
 * moment still, and with it jails and cgroups, which nobody may sweep before they are dead. */
static int start_lock(int dirfd, const struct start_names *names, struct err *err) {
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    uint64_t deadline = clock_mono_ns() + START_LOCK_NS;
    fd_cleanup int lock =
        openat(dirfd, names->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) {
        return err_sys(err, "opening %s/%s", names->state, names->lock);
    }
    if (fcntl(lock, F_SETLK, &alone) != 0) {
        return err_set(err, ERR_STATE, errno, "another %s uses %s", names->program, names->state);
    }
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        const struct timespec pause = {.tv_nsec = 10 * CLOCK_NS_PER_MS};
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return err_sys(err, "locking %s/%s", names->state, names->lock);
        }
        if (clock_mono_ns() > deadline) {
            return err_set(err, ERR_STATE, EWOULDBLOCK, "what a killed %s left still uses %s",
                           names->program, names->state);
        }
        (void)nanosleep(&pause, NULL);
    }
    return fd_steal(&lock);
}

static int start_dirs(const struct start_names *names, struct start_state *out, struct err *err) {
    if (fchdir(out->dir) != 0) {
        return err_sys(err, "entering %s", names->state);
    }
    if (mkdir(names->mounts, 0700) != 0 && errno != EEXIST) {
        return err_sys(err, "making %s/%s", names->state, names->mounts);
    }
    if (realpath(names->mounts, out->mounts) == NULL) {
        return err_sys(err, "resolving %s/%s", names->state, names->mounts);
    }
    if (mkdir(names->disk, 0700) != 0 && errno != EEXIST) {
        return err_sys(err, "making %s/%s", names->state, names->disk);
    }
    out->disk = openat(out->dir, names->disk, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    out->images = openat(out->dir, "images", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return 0;
}

int start_state(const struct start_names *names, struct start_state *out, struct err *err) {
    struct stat st;
    out->lock = out->images = out->disk = -1;
    out->dir = open(names->state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out->dir < 0 || fstat(out->dir, &st) != 0) {
        return err_sys(err, "opening the state directory %s (pinfold-server init makes one)",
                       names->state);
    }
    if (st.st_uid != 0 || (st.st_mode & 022)) {
        return err_set(err, ERR_INVALID, 0,
                       "the state directory %s must be owned by root and writable for nobody else",
                       names->state);
    }
    (void)snprintf(out->name, sizeof out->name, "%lx-%lx", (unsigned long)st.st_dev,
                   (unsigned long)st.st_ino);
    out->lock = start_lock(out->dir, names, err);
    return out->lock < 0 ? -1 : start_dirs(names, out, err);
}

int start_filters(struct log *log, bool shares_user, struct seccomp_program programs[2],
                  struct err *err) {
    static const enum policy_syscalls sets[] = {POLICY_SYSCALLS_DEFAULT, POLICY_SYSCALLS_STRICT};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (seccomp_build(sets[i], shares_user, &programs[sets[i]], err) != 0) {
            return -1;
        }
        if (programs[sets[i]].longer) {
            struct log_line l;
            log_begin(&l, log, LOG_WARN, "filter");
            log_u64(&l, "instructions", programs[sets[i]].len);
            log_str(&l, "why",
                    "the short system call filter does not answer as that of libseccomp does, "
                    "which jails get instead: they are as safe, and made a little slower; please "
                    "report the version of libseccomp");
            log_end(&l);
        }
    }
    return 0;
}

void start_bases(struct supervise_config *cfg, const struct cgroup_host *cgroups) {
    for (size_t i = 0; i < cgroups->count; i++) {
        char *base = cfg->base[cfg->bases++];
        (void)str_copy(base, sizeof cfg->base[0], cgroups->tree[i].base_path);
        *strrchr(base, '/') = '\0';
    }
    (void)str_copy(cfg->aside, sizeof cfg->aside, cgroups->aside);
}

int start_selftest(int (*fn)(void *arg, struct selftest_result *out, struct err *err), void *arg,
                   struct selftest_result **out, struct err *err) {
    struct {
        struct selftest_result result;
        struct err err;
    } *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return err_sys(err, "mapping memory for the self-test");
    }
    *out = &shared->result;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        _exit(fn(arg, &shared->result, &shared->err) == 0 ? 0 : 1);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return err_sys(err, "running the self-test");
    }
    if (WIFSIGNALED(status)) {
        return err_set(err, ERR_STATE, 0, "the self-test died of signal %d", WTERMSIG(status));
    }
    if (WEXITSTATUS(status) != 0) {
        *err = shared->err;
        return -1;
    }
    return 0;
}

int start_tell(const char *program, int rc, const struct selftest_result *results,
               const struct err *err) {
    for (uint32_t i = 0; results != NULL && i < results->count; i++) {
        const struct wire_capability *c = &results->item[i];
        (void)printf("%-14s %-12s %s\n%-27s %s\n", c->name,
                     c->status == WIRE_CAP_ENFORCED ? "enforced" : "unavailable", c->how, "",
                     c->status == WIRE_CAP_ENFORCED ? c->proof : c->remedy);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "%s: %s\n", program, err->text);
    }
    return rc;
}
