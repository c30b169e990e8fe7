#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "leftovers.h"

#define SUPERVISE_QUICK_NS (2 * CLOCK_NS_PER_S) /* a shard that dies sooner did not work at all */
#define SUPERVISE_QUICK_MAX 5
#define SUPERVISE_LOOK_NS (1 * CLOCK_NS_PER_S)

struct supervise_shard {
    pid_t pid;
    uint64_t started_ns;
    unsigned quick_deaths;
    uint64_t *rounds; /* shared with it */
    uint64_t seen;    /* of these, at the last look */
    unsigned looks;   /* in a row that found it in the middle of the same round */
};

static void supervise_log(const struct supervise_config *cfg, enum log_level level,
                          const char *event, unsigned shard, int status) {
    struct log_line l;
    log_begin(&l, cfg->shard.log, level, event);
    log_u64(&l, "shard", shard);
    if (WIFSIGNALED(status)) {
        log_i64(&l, "signal", WTERMSIG(status));
    } else {
        log_i64(&l, "exit", WEXITSTATUS(status));
    }
    log_end(&l);
}

static pid_t supervise_start(const struct supervise_config *cfg, struct supervise_shard *s,
                             unsigned index) {
    pid_t parent = getpid();
    *s->rounds = s->seen = s->looks = 0;
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    char name[CGROUP_NAME_MAX * 2];
    struct shard_config shard = cfg->shard;
    (void)snprintf(name, sizeof name, "%s/%u", cfg->cgroup_name, index);
    shard.index = index;
    shard.rounds = s->rounds;
    shard.cgroup_name = name;
    /* Dies with its parent, also if that was gone before the request was made. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent) {
        _exit(1);
    }
    _exit(shard_run(&shard));
}

/* A dead shard's jails are dying by themselves (process 1 dies with its parent); their cgroups are
 * not. */
static void supervise_sweep(const struct supervise_config *cfg, unsigned index) {
    uint64_t patience_ns = CGROUP_SWEEP_NS;
    for (unsigned i = 0; i < cfg->bases; i++) {
        char path[600];
        struct err err;
        (void)snprintf(path, sizeof path, "%s/%u", cfg->base[i], index);
        if (leftovers_group(path, &patience_ns, cfg->shard.log, &err) != 0) {
            log_err(cfg->shard.log, LOG_WARN, "sweep.failed", &err);
        }
    }
}

/* Waits for SIGCHLD, SIGTERM or SIGINT; 0 means that a second is over. */
static int supervise_wait(const sigset_t *set) {
    const struct timespec second = {.tv_sec = 1};
    int sig = sigtimedwait(set, NULL, &second);
    return sig > 0 ? sig : 0;
}

/* By a signal, or by who traces it. */
static bool supervise_is_stopped(pid_t pid) {
    char path[64];
    char text[512];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd_cleanup int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && (name_end[2] == 'T' || name_end[2] == 't');
}

static void supervise_look(const struct supervise_config *cfg, struct supervise_shard *shards,
                           uint64_t *look_ns) {
    unsigned most = cfg->stuck_looks > 0 ? cfg->stuck_looks : SUPERVISE_STUCK_LOOKS;
    uint64_t now = clock_mono_ns();
    if (now < *look_ns) {
        return; /* woken by a signal */
    }
    *look_ns = now + SUPERVISE_LOOK_NS;
    for (unsigned i = 0; i < cfg->shards; i++) {
        struct supervise_shard *s = &shards[i];
        uint64_t rounds = __atomic_load_n(s->rounds, __ATOMIC_RELAXED);
        bool held = s->pid > 0 && rounds % 2 == 1 && rounds == s->seen;
        s->seen = rounds;
        s->looks = held && !supervise_is_stopped(s->pid) ? s->looks + 1 : 0;
        if (s->looks == most) {
            struct log_line l;
            log_begin(&l, cfg->shard.log, LOG_ERROR, "shard.stuck");
            log_u64(&l, "shard", i);
            log_u64(&l, "seconds", most);
            log_end(&l);
            (void)kill(s->pid, SIGKILL);
        }
    }
}

static void supervise_stop(const struct supervise_config *cfg, struct supervise_shard *shards,
                           const sigset_t *set) {
    uint64_t look_ns = 0;
    for (unsigned i = 0; i < cfg->shards; i++) {
        if (shards[i].pid > 0) {
            (void)kill(shards[i].pid, SIGTERM);
            (void)kill(shards[i].pid, SIGCONT);
        }
    }
    for (unsigned i = 0; i < cfg->shards; i++) {
        while (shards[i].pid > 0 && waitpid(shards[i].pid, NULL, WNOHANG) == 0) {
            (void)supervise_wait(set);
            supervise_look(cfg, shards, &look_ns);
        }
        shards[i].pid = 0;
    }
}

static int supervise_reap(struct supervise_config *cfg, struct supervise_shard *shards) {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (unsigned i = 0; i < cfg->shards; i++) {
            struct supervise_shard *s = &shards[i];
            if (s->pid != pid) {
                continue;
            }
            supervise_log(cfg, LOG_ERROR, "shard.died", i, status);
            s->pid = 0;
            bool quick = clock_mono_ns() < s->started_ns + SUPERVISE_QUICK_NS;
            s->quick_deaths = quick ? s->quick_deaths + 1 : 0;
            if (s->quick_deaths >= SUPERVISE_QUICK_MAX) {
                return -1;
            }
            supervise_sweep(cfg, i);
        }
    }
    return 0;
}

static int supervise_fill(struct supervise_config *cfg, struct supervise_shard *shards) {
    for (unsigned i = 0; i < cfg->shards; i++) {
        if (shards[i].pid > 0 ||
            (shards[i].quick_deaths > 0 &&
             clock_mono_ns() < shards[i].started_ns + shards[i].quick_deaths * CLOCK_NS_PER_S)) {
            continue;
        }
        shards[i].started_ns = clock_mono_ns();
        shards[i].pid = supervise_start(cfg, &shards[i], i);
        if (shards[i].pid < 0) {
            shards[i].pid = 0;
            return -1;
        }
    }
    return 0;
}

int supervise_run(struct supervise_config *cfg) {
    struct supervise_shard shards[SUPERVISE_SHARDS_MAX];
    const size_t size = SUPERVISE_SHARDS_MAX * sizeof *shards[0].rounds;
    sigset_t set;
    uint64_t look_ns = 0;
    int rc = 0;
    memset(shards, 0, sizeof shards);
    uint64_t *rounds = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rounds == MAP_FAILED) {
        struct err err;
        (void)err_sys(&err, "sharing memory with the shards");
        log_err(cfg->shard.log, LOG_ERROR, "supervisor.failed", &err);
        return 1;
    }
    for (unsigned i = 0; i < cfg->shards; i++) {
        shards[i].rounds = &rounds[i];
    }
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &set, NULL) != 0) {
        return 1;
    }
    for (;;) {
        if (supervise_fill(cfg, shards) != 0 || supervise_reap(cfg, shards) != 0) {
            rc = 1;
            break;
        }
        int sig = supervise_wait(&set);
        supervise_look(cfg, shards, &look_ns);
        if (sig == SIGTERM || sig == SIGINT) {
            break;
        }
    }
    supervise_stop(cfg, shards, &set);
    for (unsigned i = 0; i < cfg->shards; i++) {
        supervise_sweep(cfg, i);
    }
    for (unsigned i = 0; i < cfg->bases; i++) {
        (void)rmdir(cfg->base[i]);
    }
    (void)munmap(rounds, size);
    return rc;
}
