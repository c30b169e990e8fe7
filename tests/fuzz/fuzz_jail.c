/* A jail whose process 1 and children say anything, in any order: the runner takes what fits and
 * gives the jail up for the rest; it ends once, is gone once, and leaves nothing. The input is a
 * row of packets: a byte that says on which socket and how much time goes by, a byte for the
 * length, the bytes; of a report, fields that nobody could guess are set right when bit 7 of the
 * first says so.
 */
#include "jail.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "clock.h"
#include "fd.h"
#include "fuzz.h"

struct fuzz_jail {
    uint64_t now_ns;
    int control, death, child; /* their ends; -1 = none */
    bool dead;
    struct jail_host host;
    struct cgroup_host cgroups;
    struct jail *jail;
    unsigned failed, gone, ended, started;
};

static struct fuzz_jail f;

uint64_t clock_mono_ns(void) {
    return f.now_ns;
}

uint64_t clock_mono_ms(void) {
    return f.now_ns / CLOCK_NS_PER_MS;
}

uint64_t clock_real_ms(void) {
    return f.now_ns / CLOCK_NS_PER_MS;
}

int spawn_init(struct spawn *s, const struct spawn_config *cfg, pid_t *pid, int *pidfd,
               struct err *err) {
    (void)s;
    (void)err;
    f.control = fcntl(cfg->control_fd, F_DUPFD_CLOEXEC, 0);
    f.death = eventfd(0, EFD_CLOEXEC);
    *pid = getpid(); /* whose namespace is looked at; kill() is below */
    *pidfd = fcntl(f.death, F_DUPFD_CLOEXEC, 0);
    return 0;
}

const char *spawn_failed_step(const struct spawn *s) {
    (void)s;
    return "";
}

int kill(pid_t pid, int sig) {
    uint64_t one = 1;
    fuzz_require(pid == getpid() && sig == SIGKILL);
    if (!f.dead)
        fuzz_require(write(f.death, &one, sizeof(one)) == sizeof(one));
    f.dead = true;
    return 0;
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
    (void)type, (void)id, (void)options;
    memset(info, 0, sizeof(*info));
    return 0;
}

/* Groups that are always there, and empty once the jail is dead. */

#define FUZZ_FINE(name, ...)                                                                       \
    int name(__VA_ARGS__) {                                                                        \
        return 0;                                                                                  \
    }
#define FUZZ_HOST const struct cgroup_host *host __attribute__((unused))
#define FUZZ_OWN struct cgroup_host *host __attribute__((unused))
#define FUZZ_JAIL const struct cgroup_jail *jail __attribute__((unused))
#define FUZZ_STEP const struct cgroup_step *step __attribute__((unused))
#define FUZZ_ERR struct err *err __attribute__((unused))
FUZZ_FINE(cgroup_jail_make, FUZZ_OWN, const char *name __attribute__((unused)),
          bool left __attribute__((unused)), struct cgroup_jail *jail __attribute__((unused)),
          FUZZ_ERR)
FUZZ_FINE(cgroup_jail_adopt, FUZZ_HOST, const char *name __attribute__((unused)),
          pid_t pid __attribute__((unused)), int pidfd __attribute__((unused)),
          struct cgroup_jail *jail __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_jail_memory, FUZZ_HOST, FUZZ_JAIL, uint64_t *bytes __attribute__((unused)),
          FUZZ_ERR)
FUZZ_FINE(cgroup_jail_limit, FUZZ_HOST, FUZZ_JAIL,
          const struct limits *limits __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_jail_weigh, FUZZ_OWN, struct cgroup_jail *jail __attribute__((unused)),
          uint32_t shares __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_jail_mark, FUZZ_HOST, struct cgroup_jail *jail __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_jail_remove, FUZZ_OWN, struct cgroup_jail *jail __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_step_make, FUZZ_HOST, struct cgroup_jail *jail __attribute__((unused)),
          unsigned n __attribute__((unused)), bool own __attribute__((unused)),
          struct cgroup_step *step __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_step_extend, FUZZ_HOST, FUZZ_JAIL,
          struct cgroup_step *step __attribute__((unused)), pid_t pid __attribute__((unused)),
          FUZZ_ERR)
FUZZ_FINE(cgroup_step_limit, FUZZ_HOST, FUZZ_STEP,
          const struct limits *limits __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_step_watch, FUZZ_HOST, struct cgroup_step *step __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_step_expect, FUZZ_HOST, FUZZ_JAIL,
          struct cgroup_step *step __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_step_attach, FUZZ_HOST, FUZZ_JAIL,
          struct cgroup_step *step __attribute__((unused)), pid_t pid __attribute__((unused)),
          FUZZ_ERR)
FUZZ_FINE(cgroup_step_kill, FUZZ_HOST, FUZZ_STEP, FUZZ_ERR)
FUZZ_FINE(cgroup_step_freeze, FUZZ_HOST, FUZZ_STEP, bool frozen __attribute__((unused)), FUZZ_ERR)
FUZZ_FINE(cgroup_step_frozen, FUZZ_STEP, FUZZ_ERR)
FUZZ_FINE(cgroup_step_remove, FUZZ_HOST, struct cgroup_jail *jail __attribute__((unused)),
          struct cgroup_step *step __attribute__((unused)), FUZZ_ERR)

void cgroup_jail_init(struct cgroup_jail *jail) {
    (void)jail;
}

void cgroup_step_init(struct cgroup_step *step) {
    memset(step, 0, sizeof(*step));
}

void cgroup_jail_rest(struct cgroup_jail *jail) {
    (void)jail;
}

void cgroup_step_rest(struct cgroup_step *step) {
    (void)step;
}

void cgroup_jail_abandon(struct cgroup_jail *jail) {
    (void)jail;
}

void cgroup_step_abandon(struct cgroup_step *step) {
    (void)step;
}

int cgroup_jail_read(FUZZ_HOST, FUZZ_JAIL, FUZZ_STEP, struct cgroup_jail_usage *usage, FUZZ_ERR) {
    *usage = (struct cgroup_jail_usage){.pids_peak = 1};
    return 0;
}

int cgroup_jail_peak(FUZZ_JAIL, uint64_t *bytes, FUZZ_ERR) {
    *bytes = 0;
    return 0;
}

int cgroup_step_cpu(FUZZ_STEP, uint64_t *cpu_ns, FUZZ_ERR) {
    *cpu_ns = 0;
    return 0;
}

int cgroup_step_read(FUZZ_STEP, struct cgroup_usage *usage, FUZZ_ERR) {
    memset(usage, 0, sizeof(*usage));
    return 0;
}

int cgroup_step_count(FUZZ_HOST, FUZZ_STEP, uint32_t *count, FUZZ_ERR) {
    *count = 0;
    return 0;
}

int cgroup_step_populated(FUZZ_STEP, FUZZ_ERR) {
    return 0;
}

/* The jail's owner: runs two commands, the first of them announcing the second. */

static void fuzz_ready(void *arg, struct jail *jail) {
    static const int none;
    struct exec_request q = {.flags = WIRE_EXEC_MORE, .number = f.started, .fd = &none};
    struct err err = {0};
    (void)arg;
    for (int i = 0; i < LIMIT_COUNT; i++)
        q.limits.v[i] = limit_info((enum limit_id)i)->max;
    q.limits.v[LIMIT_WALL_MS] = 50;
    if (f.started < 2 && jail_is_ready(jail) && jail_exec(jail, &q, &f, &err) == 0)
        f.started++;
}

static void fuzz_failed(void *arg, struct jail *jail, const char *stage, int code,
                        const char *text) {
    (void)arg;
    (void)jail;
    (void)code;
    fuzz_require(strnlen(stage, WIRE_NAME_MAX) < WIRE_NAME_MAX && text[0] != '\0');
    fuzz_require(++f.failed == 1);
}

static void fuzz_ended(void *arg, struct jail *jail, void *owner, const struct wire_end *end) {
    (void)arg;
    (void)jail;
    fuzz_require(owner == &f && ++f.ended <= f.started);
    fuzz_require(cause_name(end->cause) != NULL);
    fuzz_require(strnlen(end->stage, sizeof(end->stage)) < sizeof(end->stage));
    fuzz_require(strnlen(end->path, sizeof(end->path)) < sizeof(end->path));
}

static void fuzz_gone(void *arg, struct jail *jail) {
    (void)arg;
    fuzz_require(++f.gone == 1 && jail == f.jail);
}

/* What the runner has sent is read, for the descriptors of children. */
static void fuzz_listen(void) {
    char packet[65536];
    int fds[FD_PASS_MAX];
    size_t nfds = 0;
    for (int i = 0; i < 8; i++) {
        if (f.control < 0 ||
            fd_recv(f.control, packet, sizeof(packet), fds, &nfds, NULL, NULL) <= 0)
            return;
        if (nfds > 0) {
            fd_close(&f.child);
            f.child = fd_steal(&fds[0]);
        }
        for (size_t k = 0; k < nfds; k++)
            fd_close(&fds[k]);
    }
}

static void fuzz_round(void) {
    struct err err = {0};
    fuzz_listen();
    for (int i = 0; i < 2; i++)
        fuzz_require(loop_once(f.host.loop, 0, &err) == 0);
    fuzz_listen();
}

static void fuzz_send(unsigned choice, const uint8_t *data, size_t len) {
    struct initmsg_report r;
    int sock = choice & 1 ? f.child : f.control, fds[2];
    const void *packet = data;
    memset(&r, 0, sizeof(r));
    memcpy(&r, data, len < sizeof(r) ? len : sizeof(r));
    if (choice & 0x80) {
        r.type = (data[0] & 1 ? (uint32_t)INITMSG_SETUP_OK : 0u) +
                 (data[0] & 1 ? (data[0] >> 1) % 9u : r.type);
        packet = &r;
        len = sizeof(r);
    }
    fds[0] = open("/dev/shm", O_PATH | O_CLOEXEC);
    fds[1] = eventfd(0, EFD_CLOEXEC);
    if (sock >= 0)
        (void)fd_send(sock, packet, len, fds, choice >> 2 & 3 ? (choice >> 2 & 3) - 1u : 0, NULL);
    close(fds[0]);
    close(fds[1]);
}

static void fuzz_play(const uint8_t *data, size_t size) {
    while (size >= 3 && f.gone == 0) {
        size_t len = 1 + data[1] % (size - 2);
        if ((data[0] & 0x60) == 0x60)
            f.now_ns += 40 * CLOCK_NS_PER_MS;
        fuzz_send(data[0], data + 2, len);
        fuzz_round();
        data += 2 + len;
        size -= 2 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct jail_events events = {
        .ready = fuzz_ready, .failed = fuzz_failed, .ended = fuzz_ended, .gone = fuzz_gone};
    static struct sock_filter insn;
    const struct seccomp_program bpf = {.insns = &insn, .len = 1};
    struct jail_plan plan = {.template_ns = -1, .bpf = &bpf};
    struct err err = {0};
    for (int i = 0; i < LIMIT_COUNT; i++)
        plan.limits.v[i] = plan.ceiling.v[i] = limit_info((enum limit_id)i)->max;
    memset(&f, 0, sizeof(f));
    f.now_ns = CLOCK_NS_PER_S;
    f.child = -1;
    f.cgroups.pids_peak = true;
    f.host = (struct jail_host){
        .maker = &jail_native, .loop = loop_new(&err), .cgroups = &f.cgroups, .cpus = 2};
    f.jail = jail_new(&f.host, &plan, &events, &f, &err);
    fuzz_require(f.host.loop != NULL && f.jail != NULL);
    fuzz_require(fcntl(f.control, F_SETFL, O_NONBLOCK) == 0);
    fuzz_round();
    fuzz_play(data, size);
    jail_kill(f.jail);
    for (int i = 0; i < 20 && f.gone == 0; i++)
        fuzz_round();
    fuzz_require(f.gone == 1);
    jail_free(f.jail);
    fd_close(&f.control);
    fd_close(&f.death);
    fd_close(&f.child);
    loop_free(f.host.loop);
    return 0;
}
