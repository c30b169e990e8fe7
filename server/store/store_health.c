/* Can the store write?
 *
 * A disk that fills up should be noticed while there is still room for what must be written yet:
 * the results of the work that runs. So no new work is taken from a low-water mark on, and taken
 * again above a higher one. A write that fails for any reason makes the store sick as well; then it
 * tries one now and then. */
#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "clock.h"
#include "store_internal.h"
#include "str.h"

/* Space that is kept for work that runs: so much, or this part of a small file system. */
#define STORE_HEALTH_RESERVE ((uint64_t)16 * 1024 * 1024)
#define STORE_HEALTH_PART 16u
/* How old what is known of the free space may be. */
#define STORE_HEALTH_LOOK_MS 200u
#define STORE_HEALTH_PROBE_MS 500u

static const char store_health_no_space[] =
    "The disk of the state directory is full, so results could not be kept; work is taken again as "
    "soon as there is space.";

static void store_health_log(struct store *s, enum log_level level, const char *event) {
    struct log_line line;
    if (s->log == NULL)
        return;
    log_begin(&line, s->log, level, event);
    if (s->health.sick)
        log_str(&line, "why", s->health.why);
    log_end(&line);
}

static void store_health_timer(void *arg) {
    (void)store_probe(arg);
}

static void store_health_probe_later(struct store *s) {
    if (s->loop != NULL && s->health.probe.slot == 0)
        loop_timer_at(s->loop, &s->health.probe,
                      clock_mono_ns() + STORE_HEALTH_PROBE_MS * CLOCK_NS_PER_MS, store_health_timer,
                      s, NULL);
}

static void store_health_set(struct store *s, bool full, const char *why) {
    struct store_health *h = &s->health;
    bool was = h->sick;
    h->sick = true;
    h->full = full;
    snprintf(h->why, sizeof(h->why), "%s", why);
    if (!was)
        store_health_log(s, LOG_ERROR, "store_sick");
    store_health_probe_later(s);
}

static void store_health_clear(struct store *s) {
    struct store_health *h = &s->health;
    if (!h->sick)
        return;
    h->sick = h->full = false;
    store_health_log(s, LOG_INFO, "store_well");
    if (s->loop != NULL)
        loop_timer_stop(s->loop, &h->probe);
    if (s->well != NULL)
        s->well(s->well_arg);
}

/* Is there less than the reserve, or while it is full already less than twice that? */
static bool store_health_short(struct store *s) {
    struct statvfs st;
    if (fstatvfs(s->dir, &st) < 0)
        return false;
    uint64_t reserve = (uint64_t)st.f_blocks * st.f_frsize / STORE_HEALTH_PART;
    if (reserve > STORE_HEALTH_RESERVE)
        reserve = STORE_HEALTH_RESERVE;
    if (s->health.full)
        reserve *= 2;
    return (uint64_t)st.f_bavail * st.f_frsize < reserve || (st.f_files > 0 && st.f_favail < 64);
}

static void store_health_look(struct store *s) {
    uint64_t now = clock_mono_ms();
    if (now - s->health.looked_ms < STORE_HEALTH_LOOK_MS)
        return;
    s->health.looked_ms = now;
    if (store_health_short(s))
        store_health_set(s, true, store_health_no_space);
}

void store_health_well(struct store *s) {
    /* What was written has found room, but is there room for more? */
    if (s->health.sick && !(s->health.full && store_health_short(s)))
        store_health_clear(s);
}

void store_health_failed(struct store *s, const struct err *why) {
    bool full = why->code == ENOSPC || why->code == EDQUOT;
    /* Somebody else held the lock for long: that passes, and says nothing of the disk. */
    if (why->code == EBUSY)
        return;
    store_health_set(s, full, full ? store_health_no_space : why->text);
}

const char *store_sick(struct store *s) {
    if (!s->health.sick)
        store_health_look(s);
    return s->health.sick ? s->health.why : NULL;
}

bool store_full(const struct store *s) {
    return s->health.full;
}

/* A row of some size, so that it needs a page of the log. */
bool store_probe(struct store *s) {
    static const char sql[] =
        "INSERT INTO probe (id, filler) VALUES (1, zeroblob(65536)) ON CONFLICT (id) DO UPDATE "
        "SET filler = zeroblob(65536), count = count + 1";
    if (!s->health.sick)
        return true;
    if (s->health.full && store_health_short(s)) {
        store_health_probe_later(s);
        return false;
    }
    struct err err;
    err_clear(&err);
    int rc = store_begin(s, &err);
    if (rc == 0) {
        sqlite3_stmt *q = store_sql(s, sql, &err);
        rc = store_end(s, q != NULL ? store_sql_run(s, q, &err) : -1, &err);
    }
    /* With a loop, the commit tells. */
    if (s->health.sick)
        store_health_probe_later(s);
    return !s->health.sick;
}

void store_health_stop(struct store *s) {
    if (s->loop != NULL)
        loop_timer_stop(s->loop, &s->health.probe);
}
