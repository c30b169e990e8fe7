/* What runs in a jail that a server opened: from EXEC to END. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "layers.h"
#include "pool.h"
#include "session_jail.h"

#define SESSION_TOLD_NS (2 * CLOCK_NS_PER_S)
/* Numbers of descriptors that requests leave free: for jails, and for all that one packet can bring
 * (253). What finds no number the kernel closes itself, and would wait for it here: fd_drop().
 * Where there are so few that nothing could be done with the rest, a part of them. */
#define SESSION_FDS_FREE 320u
#define SESSION_FDS_PART 8u

void session_fds_close(int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fd_close(&fds[i]);
    }
}

/* What was only needed until the command was handed over. */
static void session_wish_drop(struct session_exec *x) {
    free(x->spec);
    x->spec = NULL;
    session_fds_close(x->fd, x->wish.nfds);
    x->wish.nfds = 0;
}

static void session_exec_free(struct session_jail *e, struct session_exec *x) {
    if (x->started && !x->ended) {
        pool_ended(e->cfg->pool);
    }
    session_wish_drop(x);
    session_fds_close(x->keep, SESSION_KEEP);
    free(x);
}

static void session_exec_unlink(struct session_jail *e, struct session_exec *x) {
    struct session_exec **p = &e->execs;
    while (*p != x) {
        p = &(*p)->next;
    }
    *p = x->next;
    e->exec_count--;
}

static void session_told_drop(struct session_jail *e) {
    struct session_exec *x = e->told;
    e->told = x->next;
    e->told_count--;
    session_exec_free(e, x);
}

void session_exec_drop_all(struct session_jail *e) {
    loop_timer_stop(e->cfg->loop, &e->told_timer);
    while (e->execs != NULL) {
        struct session_exec *x = e->execs;
        session_exec_unlink(e, x);
        session_exec_free(e, x);
    }
    while (e->told != NULL) {
        session_told_drop(e);
    }
}

/* What was told long enough ago is forgotten. */
static void session_told_old(void *arg) {
    struct session_jail *e = arg;
    uint64_t now = clock_mono_ns();
    while (e->told != NULL && e->told->told_ns + SESSION_TOLD_NS <= now) {
        session_told_drop(e);
    }
    if (e->told != NULL) {
        (void)loop_timer_at(e->cfg->loop, &e->told_timer, e->told->told_ns + SESSION_TOLD_NS,
                            session_told_old, e, NULL);
    }
}

/* Its END has been sent. */
static void session_told(struct session_jail *e, struct session_exec *x) {
    if (!e->sandbox || x->wish.kind != WIRE_EXEC_COMMAND) {
        session_exec_free(e, x);
        return;
    }
    struct session_exec **at = &e->told;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = x;
    x->next = NULL;
    if (x->told_ns == 0) { /* telling it again does not make it younger */
        x->told_ns = clock_mono_ns();
    }
    e->told_count++;
    if (e->told_timer.slot == 0) {
        session_told_old(e);
    }
}

/* After the sending: to close what the oldest held open takes longer than that. */
static void session_told_trim(struct session_jail *e) {
    while (e->told != NULL && e->told_count > WIRE_TOLD_MAX) {
        session_told_drop(e);
    }
}

void session_exec_hold(struct session_jail *e) {
    session_told_old(e);
    loop_timer_stop(e->cfg->loop, &e->told_timer);
}

static struct session_exec *session_exec_find(const struct session_jail *e, uint32_t number) {
    struct session_exec *x = e->execs;
    while (x != NULL && x->wish.number != number) {
        x = x->next;
    }
    return x;
}

/* Tells the server, or keeps it for the next one. */
static void session_send_end(struct session_jail *e, struct session_exec *x,
                             const struct wire_end *from) {
    struct wire_end end = *from;
    wire_head_init(&end.head, WIRE_END, sizeof end, e->id, x->wish.number);
    if (x->started) {
        pool_ended(e->cfg->pool);
    }
    x->ended = true;
    x->end = end;
    if (e->session != NULL) {
        session_exec_unlink(e, x);
        session_told(e, x);
        session_send(e->session, &end, sizeof end);
        session_told_trim(e);
    }
}

/* An EXEC that was stopped before its command began. */
static void session_end_early(struct session_jail *e, struct session_exec *x, enum cause cause) {
    struct wire_end end;
    memset(&end, 0, sizeof end);
    end.cause = cause;
    end.exit_code = -1;
    session_wish_drop(x);
    session_send_end(e, x, &end);
}

/* The memory of the jail is used up, by files: what was to run cannot even begin. That is the limit
 * of the run, not a fault of the service. */
static void session_end_full(struct session_jail *e, struct session_exec *x, uint64_t peak_bytes) {
    struct wire_end end;
    memset(&end, 0, sizeof end);
    end.cause = CAUSE_MEMORY;
    end.exit_code = -1;
    end.limit = e->limits.v[LIMIT_MEM_BYTES];
    end.observed = peak_bytes;
    end.usage.mem_peak_bytes = peak_bytes;
    session_wish_drop(x);
    session_send_end(e, x, &end);
}

/* Asks for another child to exec. False when `x` had to end instead. */
static bool session_renew(struct session_jail *e, struct session_exec *x) {
    struct err err;
    uint64_t peak = 0;
    if (e->jail->lost > 0 && jail_is_full(e->jail, &peak)) {
        session_end_full(e, x, peak);
        return false;
    }
    if (jail_renew(e->jail, &err) == 0) {
        return true;
    }
    if (err.code == ENOMEM && jail_is_full(e->jail, &peak)) {
        session_end_full(e, x, peak);
        return false;
    }
    jail_fail(e->jail, "next child", err.code, err.text);
    return true;
}

/* The first that may start now. */
static struct session_exec *session_next(const struct session_jail *e) {
    for (struct session_exec *x = e->execs; x != NULL; x = x->next) {
        bool stopped = e->frozen && x->wish.kind == WIRE_EXEC_COMMAND;
        if (!x->started && !x->ended && !stopped) {
            return x;
        }
    }
    return NULL;
}

static int session_limits(struct session_jail *e, struct err *err) {
    if (e->limits_set) {
        return 0;
    }
    if (jail_set_limits(e->jail, &e->limits, err) != 0) {
        return -1;
    }
    e->limits_set = true;
    return 0;
}

static void session_start(struct session_jail *e, struct session_exec *x) {
    struct err err;
    int upper = -1;
    x->started = true;
    pool_began(e->cfg->pool);
    if (x->wish.kind == WIRE_EXEC_FILES && e->jail->volume != NULL) {
        upper = layers_upper(e->jail->volume, NULL); /* -1: there is none yet */
        x->wish.upper = upper;
    }
    if (session_limits(e, &err) != 0) {
        jail_fail(e->jail, "limits", err.code, err.text);
    } else if (jail_exec(e->jail, &x->wish, x, &err) != 0) {
        jail_fail(e->jail, "start", err.code, err.text);
    }
    fd_close(&upper);
}

/* After a failure the executions are gone from the list, and `failed` is set. */
void session_try(struct session_jail *e) {
    while (e->jail != NULL && !e->failed && !e->dying && !e->busy_layers) {
        struct session_exec *x = session_next(e);
        if (x == NULL || (session_jail_opens(e) && !e->opened)) {
            return;
        }
        if (jail_is_ready(e->jail)) {
            session_weigh_now(e); /* not later: it may be what keeps this process from its turns */
            session_start(e, x);
            if (!e->failed) {
                session_wish_drop(x);
            }
            continue;
        }
        if (!jail_is_spent(e->jail) || session_renew(e, x)) {
            return;
        }
    }
}

/* Limits of one step: within the policy, and within the run's where the run as a whole is limited.
 */
static int session_step_limits(const struct session_jail *e, const struct wire_exec *q,
                               struct err *err) {
    static const enum limit_id of_run[] = {LIMIT_MEM_BYTES, LIMIT_PIDS, LIMIT_CPUS_MILLI,
                                           LIMIT_DISK_BYTES, LIMIT_INODES};
    struct limits ceiling = session_ceiling(e->cfg, e->policy);
    for (size_t i = 0; i < sizeof of_run / sizeof of_run[0]; i++) {
        ceiling.v[of_run[i]] = e->limits.v[of_run[i]];
    }
    if (q->kind == WIRE_EXEC_FILES) {
        /* Our own code, which takes as long as the files are large and their reader is slow. */
        ceiling.v[LIMIT_WALL_MS] = limit_info(LIMIT_WALL_MS)->max;
        ceiling.v[LIMIT_CPU_MS] = limit_info(LIMIT_CPU_MS)->max;
    }
    return limit_check(&q->limits, &ceiling, err);
}

/* Output goes to pipes only: nothing else can be handed to a command as its stdout. What is kept of
 * stdin no command gets, and nobody here reads. */
static int session_check_fds(const struct session_config *cfg, const struct wire_exec *q,
                             const int *fds, size_t nfds, struct err *err) {
    const uint32_t pipes = WIRE_FD_STDOUT | WIRE_FD_STDERR | WIRE_FD_KEEP_STDIN |
                           WIRE_FD_KEEP_STDOUT | WIRE_FD_KEEP_STDERR;
    uint64_t most = cfg->host_max->v[LIMIT_OPEN_FILES];
    most -= most >= 2 * SESSION_FDS_FREE ? SESSION_FDS_FREE : most / SESSION_FDS_PART;
    size_t i = 0;
    for (uint32_t bit = 1; bit <= WIRE_FD_KEEP_INPUT && i < nfds; bit <<= 1) {
        struct stat st;
        if (!(q->fds & bit)) {
            continue;
        }
        if (fstat(fds[i++], &st) != 0) {
            return err_sys(err, "looking at a descriptor");
        }
        if ((uint64_t)fds[i - 1] > most) {
            return err_set(err, ERR_LIMIT, 0, "more descriptors than there is room for");
        }
        if (fcntl(fds[i - 1], F_GETFL) & O_PATH) {
            return err_set(err, ERR_PROTOCOL, 0, "a descriptor that cannot be used");
        }
        bool pipe = S_ISFIFO(st.st_mode);
        bool file = S_ISREG(st.st_mode);
        if (bit & pipes ? !pipe : bit == WIRE_FD_STDIN ? !(pipe || file) : !file) {
            return err_set(err, ERR_PROTOCOL, 0, "a descriptor of the wrong type");
        }
    }
    return 0;
}

/* Keeps the request until the jail is ready for it. From here on its descriptors are the entry's:
 * those for the command come first, the server's own ends last. */
static void session_wish_keep(struct session_jail *e, struct session_exec *x,
                              const struct wire_exec *q, const int *fds, size_t nfds) {
    size_t kept = wire_fd_count(q->fds & WIRE_FD_KEEP);
    const int *end = fds + (nfds - kept);
    x->wish = (struct exec_request){
        .number = q->head.exec,
        .kind = q->kind,
        .fds = q->fds & ~(uint32_t)WIRE_FD_KEEP,
        .flags = q->flags,
        .end_on = q->end_on,
        .limits = q->limits,
        .collect_bytes = q->collect_bytes,
        .collect_files = q->collect_files,
        .spec_size = q->spec_size,
        .rows = q->rows,
        .cols = q->cols,
        .upper = -1,
        .spec = x->spec,
        .fd = x->fd,
        .nfds = nfds - kept,
        .received_ns = !e->used && !e->sandbox ? e->opened_ns : clock_mono_ns(),
    };
    memcpy(x->fd, fds, (nfds - kept) * sizeof *fds);
    for (int i = 0; i < SESSION_KEEP; i++) {
        x->keep[i] = q->fds & ((uint32_t)WIRE_FD_KEEP_STDIN << i) ? *end++ : -1;
    }
    e->used = true;
}

static struct session_exec *session_exec_new(struct session_jail *e, const struct wire_exec *q) {
    struct session_exec *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return NULL;
    }
    if (!(q->fds & WIRE_FD_SPEC)) {
        x->spec = malloc((size_t)q->spec_size + 1);
        if (x->spec == NULL) {
            free(x);
            return NULL;
        }
        memcpy(x->spec, q + 1, q->spec_size);
    }
    struct session_exec **at = &e->execs;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = x;
    e->exec_count++;
    return x;
}

/* A run has one execution at a time and nothing that is kept. */
static int session_exec_fits(const struct session_jail *e, const struct wire_exec *q,
                             struct err *err) {
    if (e->exec_count >= (e->sandbox ? SESSION_EXECS_MAX : 1)) {
        return err_set(err, ERR_PROTOCOL, 0, "too many EXECs in one jail");
    }
    if (session_exec_find(e, q->head.exec) != NULL) {
        return err_set(err, ERR_PROTOCOL, 0, "an EXEC whose number is in use");
    }
    if (!e->sandbox &&
        (q->fds & WIRE_FD_KEEP || q->flags & WIRE_EXEC_PTY || q->kind == WIRE_EXEC_FILES)) {
        return err_set(err, ERR_PROTOCOL, 0, "an EXEC that only a sandbox can have");
    }
    return session_step_limits(e, q, err);
}

int session_exec(struct session *s, const struct wire_exec *q, int *fds, size_t nfds,
                 struct err *err) {
    struct session_jail *e = session_find(s, q->head.jail);
    if (e == NULL || e->failed || e->dying) {
        fd_drop(fds, nfds); /* it crossed our FAILED or CLOSED on the way */
        return 0;
    }
    if (session_exec_fits(e, q, err) != 0 || session_check_fds(s->cfg, q, fds, nfds, err) != 0) {
        return -1;
    }
    struct session_exec *x = session_exec_new(e, q);
    if (x == NULL) {
        return err_sys(err, "keeping an EXEC");
    }
    session_wish_keep(e, x, q, fds, nfds);
    session_try(e);
    return 0;
}

void session_kill(struct session *s, const struct wire_kill *q) {
    struct session_jail *e = session_find(s, q->head.jail);
    struct session_exec *x = e != NULL && !e->failed ? session_exec_find(e, q->head.exec) : NULL;
    if (x == NULL) {
        return; /* it ended meanwhile */
    }
    if (x->started) {
        jail_stop(e->jail, x, (enum cause)q->cause);
    } else {
        session_end_early(e, x, (enum cause)q->cause);
    }
}

/* Signal 0 lets go of the end of the command's stdin that is kept here. */
void session_signal(struct session *s, const struct wire_signal *q) {
    struct session_jail *e = session_find(s, q->head.jail);
    struct session_exec *x = e != NULL && !e->failed ? session_exec_find(e, q->head.exec) : NULL;
    if (x != NULL && q->signal == 0) {
        fd_close(&x->keep[0]);
    } else if (x != NULL && x->started) {
        jail_signal(e->jail, x, (int)q->signal);
    }
}

void session_exec_ended(struct session_jail *e, struct session_exec *x,
                        const struct wire_end *end) {
    session_send_end(e, x, end);
    session_try(e);
}

void session_exec_terminal(struct session_jail *e, struct session_exec *x, int master) {
    struct wire_started msg;
    memset(&msg, 0, sizeof msg);
    wire_head_init(&msg.head, WIRE_STARTED, sizeof msg, e->id, x->wish.number);
    x->keep[1] = master;
    session_send_fds(e->session, &msg, sizeof msg, &x->keep[1], 1);
}

void session_exec_stop_waiting(struct session_jail *e, enum cause cause) {
    struct session_exec *next;
    for (struct session_exec *x = e->execs; x != NULL; x = next) {
        next = x->next;
        if (!x->started && !x->ended) {
            session_end_early(e, x, cause);
        }
    }
}

static void session_tell_kept(struct session_jail *e, struct session_exec *x) {
    struct wire_kept_exec msg = {.flags = x->wish.flags & WIRE_EXEC_PTY};
    int fds[SESSION_KEEP];
    size_t nfds = 0;
    wire_head_init(&msg.head, WIRE_KEPT_EXEC, sizeof msg, e->id, x->wish.number);
    for (int i = 0; i < SESSION_KEEP; i++) {
        if (x->keep[i] >= 0) {
            msg.fds |= (uint32_t)WIRE_FD_KEEP_STDIN << i;
            fds[nfds++] = x->keep[i];
        }
    }
    session_send_fds(e->session, &msg, sizeof msg, fds, nfds);
}

/* The connection may end at any of these: what an earlier server was told is out of the way then,
 * or the hold would forget it here, and the next server never hear of it. */
void session_exec_tell_kept(struct session_jail *e) {
    struct session_exec *told = e->told;
    unsigned count = e->told_count;
    e->told = NULL;
    e->told_count = 0;
    for (struct session_exec *x = told; x != NULL; x = x->next) {
        session_tell_kept(e, x);
    }
    e->told = told;
    e->told_count = count;
    for (struct session_exec *x = e->execs; x != NULL; x = x->next) {
        session_tell_kept(e, x);
    }
}

/* The connection may end at any of these: what is not told then stays for the next one. */
void session_exec_tell_ends(struct session_jail *e) {
    struct session_exec *again = e->told;
    struct session_exec **last = &again;
    struct session_exec *next;
    e->told = NULL;
    e->told_count = 0;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    for (struct session_exec *x = e->execs; x != NULL; x = next) {
        next = x->next;
        if (x->ended) {
            session_exec_unlink(e, x);
            x->next = NULL;
            *last = x;
            last = &x->next;
        }
    }
    for (; again != NULL && e->session != NULL; again = next) {
        struct wire_end end = again->end;
        next = again->next;
        end.head.jail = e->id;
        session_told(e, again);
        session_send(e->session, &end, sizeof end);
        session_told_trim(e);
    }
    for (last = &e->told; *last != NULL;) {
        last = &(*last)->next;
    }
    *last = again;
    for (; again != NULL; again = again->next) {
        again->told_ns = again->told_ns != 0 ? again->told_ns : clock_mono_ns();
        e->told_count++;
    }
}
