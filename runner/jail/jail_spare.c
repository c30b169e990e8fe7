/* The children that wait to exec: a run has one at most; a sandbox has one while it rests and two
 * while it is used, so that a command never waits for the making of its process, and that making
 * never stands in the way of one that runs. */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "fd.h"
#include "jail.h"

#define JAIL_LOST_MAX 2
#define JAIL_DISPLACED_MAX 4u
#define JAIL_FULL_SLACK (1u << 20)
#define JAIL_SWEEP_NS (2 * CLOCK_NS_PER_MS)
#define JAIL_SPARES_USED 2u
/* Whoever waits for a new jail comes before the second command of another, for so long … */
#define JAIL_PATIENCE_NS (30 * CLOCK_NS_PER_MS)
/* … and where many new sandboxes get their first commands, for so long; one after the other, with
 * pauses of at most: */
#define JAIL_CROWD_PATIENCE_NS (200 * CLOCK_NS_PER_MS)
#define JAIL_CROWD_NS (5 * CLOCK_NS_PER_MS)
#define JAIL_REST_NS CLOCK_NS_PER_S /* without a command: one spare is enough */

/* Its executions have left files in memory, which hold their groups: see cgroup.h. */
static bool jail_holds_groups(const struct jail *j, uint64_t *bytes) {
    if (!j->sandbox || !cgroup_dying_many(&j->host->dying, j->host->cgroups)) {
        return false;
    }
    *bytes = cgroup_jail_dying(j->host->cgroups, &j->cgroup);
    return *bytes >= j->limits.v[LIMIT_MEM_BYTES];
}

/* Not the parent's: that of what lives is never empty. */
static bool jail_lacks_group(const struct jail *j, const struct err *err) {
    return j->sandbox && j->state == JAIL_READY && (err->code == ENOENT || err->code == ENODEV) &&
           j->displaced < JAIL_DISPLACED_MAX;
}

static struct exec *jail_prepare(struct jail *j, struct err *err) {
    uint64_t bytes = 0;
    if (jail_holds_groups(j, &bytes)) {
        (void)err_set(err, ERR_LIMIT, ENOMEM, "the kernel holds %llu bytes of groups for the jail",
                      (unsigned long long)bytes);
        return NULL;
    }
    struct exec *x = exec_new(j, j->forked++, err);
    if (x != NULL && (exec_make_cgroup(x, err) != 0 || exec_connect(x, err) != 0)) {
        exec_close(x);
        (void)exec_remove(x, NULL);
        cgroup_step_abandon(&x->cgroup);
        exec_free(x);
        if (!jail_lacks_group(j, err)) {
            return NULL;
        }
        j->displaced++;
        return jail_prepare(j, err);
    }
    return x;
}

bool jail_is_ready(const struct jail *j) {
    return j->state == JAIL_READY && j->spare != NULL && j->spare->state == EXEC_READY;
}

bool jail_shares_user(const struct jail *j) {
    return j->one_id;
}

bool jail_is_spent(const struct jail *j) {
    return j->state == JAIL_READY && j->spare == NULL;
}

bool jail_is_full(const struct jail *j, uint64_t *peak_bytes) {
    uint64_t peak = 0;
    if (jail_holds_groups(j, peak_bytes)) {
        return true;
    }
    if (cgroup_jail_peak(&j->cgroup, &peak, NULL) != 0) {
        return false;
    }
    *peak_bytes = peak;
    return j->lost > JAIL_LOST_MAX || peak + JAIL_FULL_SLACK >= j->limits.v[LIMIT_MEM_BYTES];
}

/* Groups of executions that are over go; one whose dead processes are not yet reaped is tried again
 * a little later. One that is not closed is just being told of, perhaps to who has this called: its
 * turn comes. */
void jail_sweep(void *arg) {
    struct jail *j = arg;
    struct err err;
    bool left = false;
    for (struct exec **at = &j->execs; *at != NULL;) {
        struct exec *x = *at;
        bool gone = x->state == EXEC_OVER && !x->dismissed && x->sock < 0;
        if (gone && exec_remove(x, &err) == 0) {
            *at = x->next;
            exec_free(x);
            continue;
        }
        left = left || gone;
        at = &x->next;
    }
    if (left && j->state == JAIL_READY) {
        (void)loop_timer_at(j->host->loop, &j->sweep_timer, clock_mono_ns() + JAIL_SWEEP_NS,
                            jail_sweep, j, NULL);
    }
}

static void jail_add_spare(struct jail *j, struct exec *x) {
    struct exec **at = &j->spare;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = x;
    x->next = NULL;
}

int jail_renew(struct jail *j, struct err *err) {
    if (!jail_is_spent(j)) {
        return err_set(err, ERR_STATE, 0, "the jail is busy");
    }
    jail_sweep(j);
    struct exec *x = jail_prepare(j, err);
    if (x == NULL) {
        return -1;
    }
    jail_add_spare(j, x);
    return 0;
}

struct exec *jail_take_spare(struct jail *j) {
    struct exec *x = j->spare;
    j->spare = x->next;
    x->next = NULL;
    j->lost = 0;
    j->displaced = 0;
    if (j->sandbox && j->used_ns == 0) {
        jail_newest(j);
    }
    j->used_ns = clock_mono_ns();
    return x;
}

/* It is not used any more: its socket's end tells it to go, process 1 reports that, and its group
 * is removed. */
static void jail_dismiss(struct jail *j, struct exec *x) {
    exec_close(x);
    x->state = EXEC_OVER;
    x->dismissed = true;
    x->next = j->execs;
    j->execs = x;
}

/* Is the next spare to wait, because others have not had their first command yet? */
static bool jail_stands_back(const struct jail *j, uint64_t now) {
    const struct jail_host *h = j->host;
    return (h->building > 0 && now < j->used_ns + JAIL_PATIENCE_NS) ||
           (h->newest != j && now < h->newest_ns + JAIL_CROWD_NS &&
            now < j->used_ns + JAIL_CROWD_PATIENCE_NS);
}

void jail_newest(struct jail *j) {
    j->host->newest = j;
    j->host->newest_ns = clock_mono_ns();
}

/* One is made at a time, since one that has not said a word is not known by its number. */
static void jail_stock_due(void *arg) {
    struct jail *j = arg;
    struct err err;
    unsigned ready = 0;
    unsigned making = 0;
    uint64_t now = clock_mono_ns();
    bool rests = j->running == 0 && now >= j->used_ns + JAIL_REST_NS;
    if (j->state != JAIL_READY) {
        return;
    }
    if (jail_stands_back(j, now)) {
        jail_stock(j, JAIL_SWEEP_NS);
        return;
    }
    jail_sweep(j);
    for (const struct exec *x = j->spare; x != NULL; x = x->next) {
        ready += x->state == EXEC_READY;
        making += x->state != EXEC_READY;
    }
    if (rests && ready == JAIL_SPARES_USED) {
        struct exec *extra = j->spare->next;
        j->spare->next = NULL;
        jail_dismiss(j, extra);
    } else if (j->lost > JAIL_LOST_MAX && now < j->lost_ns + JAIL_REST_NS) {
        jail_stock(j, JAIL_REST_NS); /* it would die like those before it */
        return;
    } else if (!rests && making == 0 && ready < JAIL_SPARES_USED) {
        struct exec *x = jail_prepare(j, &err);
        if (x != NULL) {
            jail_add_spare(j, x);
        } else if (err.code != ENOMEM) {
            jail_fail(j, "next child", err.code, err.text);
            return;
        }
    }
    if (!rests) {
        jail_stock(j, ready + making < JAIL_SPARES_USED ? 2 * JAIL_SWEEP_NS : JAIL_REST_NS);
    }
}

void jail_stock(struct jail *j, uint64_t wait_ns) {
    uint64_t due = clock_mono_ns() + wait_ns;
    if (j->stock_timer.slot == 0 || due < j->stock_timer.due_ns) {
        (void)loop_timer_at(j->host->loop, &j->stock_timer, due, jail_stock_due, j, NULL);
    }
}

static void jail_unlink_spare(struct jail *j, const struct exec *x) {
    struct exec **at = &j->spare;
    while (*at != x) {
        at = &(*at)->next;
    }
    *at = x->next;
}

bool jail_displaces(struct jail *j, struct exec *x, const struct err *err) {
    if (!jail_lacks_group(j, err)) {
        return false;
    }
    j->displaced++;
    jail_unlink_spare(j, x);
    exec_kill_child(x); /* not only told to go: it is outside of its limits, and may be stopped */
    jail_dismiss(j, x);
    jail_stock(j, JAIL_SWEEP_NS);
    j->events->ready(j->arg, j);
    return true;
}

/* The process that waits died: the kernel's oom killer may pick it. Another one is made when it is
 * needed (jail_renew()): `ready` has the owner look again, and decide. */
static void jail_lose_spare(struct jail *j, struct exec *x) {
    jail_unlink_spare(j, x);
    j->lost++;
    jail_dismiss(j, x);
    x->dismissed = false; /* it is gone already … */
    /* … or is it? In a sandbox nobody can tell: the group of one that waits is not watched. */
    if (cgroup_step_populated(&x->cgroup, NULL) != 0) {
        (void)cgroup_step_kill(j->host->cgroups, &x->cgroup, NULL);
    }
    j->lost_ns = clock_mono_ns();
    jail_sweep(j);
    j->events->ready(j->arg, j);
}

bool jail_spare_exited(struct jail *j, uint32_t pid) {
    for (struct exec *x = j->execs; x != NULL; x = x->next) {
        if (x->dismissed && x->inside_pid == pid) {
            x->dismissed = false;
            jail_sweep(j);
            return true;
        }
    }
    if (j->state != JAIL_READY) {
        return false;
    }
    for (struct exec *x = j->spare; x != NULL; x = x->next) {
        /* One that died before it said a word is not known by its number yet. */
        if (x->inside_pid == pid || x->inside_pid == 0) {
            jail_lose_spare(j, x);
            return true;
        }
    }
    return false;
}

static void jail_gather(struct jail *j) {
    while (j->spare != NULL) {
        struct exec *x = j->spare;
        j->spare = x->next;
        x->next = j->execs;
        j->execs = x;
    }
}

void jail_close_execs(struct jail *j) {
    loop_timer_stop(j->host->loop, &j->sweep_timer);
    loop_timer_stop(j->host->loop, &j->stock_timer);
    jail_gather(j);
    for (struct exec *x = j->execs; x != NULL; x = x->next) {
        if (x->state == EXEC_RUNNING || x->state == EXEC_DRAINING) {
            j->lost_cpu_ns += exec_cpu_ns(x);
        }
        exec_close(x);
    }
}

int jail_remove_execs(struct jail *j, struct err *err) {
    int rc = 0;
    jail_gather(j);
    for (struct exec *x = j->execs; x != NULL; x = x->next) {
        if (exec_remove(x, err) != 0) {
            rc = -1;
        }
    }
    return rc;
}

void jail_free_execs(struct jail *j) {
    jail_gather(j);
    while (j->execs != NULL) {
        struct exec *x = j->execs;
        j->execs = x->next;
        cgroup_step_abandon(&x->cgroup); /* does nothing when they are gone */
        exec_free(x);
    }
}
