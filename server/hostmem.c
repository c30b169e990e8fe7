#include "hostmem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

#define HOSTMEM_GIB ((uint64_t)1 << 30)
#define HOSTMEM_KIB UINT64_C(1024)
#define HOSTMEM_FILE_MAX 8192
#define HOSTMEM_PATH_MAX 512

/* Looking. */

/* The file as text; "" when it cannot be read. */
static void hostmem_read(const char *path, char text[HOSTMEM_FILE_MAX]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, HOSTMEM_FILE_MAX - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* The number behind `key` at the beginning of a line; `otherwise` when there is none ("max"). */
static uint64_t hostmem_number(const char *text, const char *key, uint64_t otherwise) {
    size_t len = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, len) == 0) {
            char *end;
            unsigned long long value = strtoull(line + len, &end, 10);
            return end != line + len ? value : otherwise;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return otherwise;
}

/* How the two kinds of control groups name the same things. */
struct hostmem_group {
    const char *line, *root, *limit, *usage, *inactive;
};
static const struct hostmem_group hostmem_groups[] = {
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
};

/* One group: what may be used more in it. Page cache that nobody has used lately is not in the way.
 */
static void hostmem_look_group(const struct hostmem_group *g, const char *path,
                               struct hostmem_seen *seen) {
    char file[HOSTMEM_PATH_MAX + 64], text[HOSTMEM_FILE_MAX];
    snprintf(file, sizeof(file), "%s%s/%s", g->root, path, g->limit);
    hostmem_read(file, text);
    uint64_t limit = hostmem_number(text, "", UINT64_MAX);
    if (limit >= seen->total)
        return;
    snprintf(file, sizeof(file), "%s%s/%s", g->root, path, g->usage);
    hostmem_read(file, text);
    uint64_t usage = hostmem_number(text, "", 0);
    snprintf(file, sizeof(file), "%s%s/memory.stat", g->root, path);
    hostmem_read(file, text);
    uint64_t cache = hostmem_number(text, g->inactive, 0);
    usage = usage > cache ? usage - cache : 0;
    uint64_t left = limit > usage ? limit - usage : 0;
    seen->total = limit;
    if (left < seen->available)
        seen->available = left;
}

/* The group that this process is in, and all above it: each of them bounds it. */
static void hostmem_look_groups(struct hostmem_seen *seen) {
    char text[HOSTMEM_FILE_MAX], path[HOSTMEM_PATH_MAX];
    hostmem_read("/proc/self/cgroup", text);
    for (size_t i = 0; i < sizeof(hostmem_groups) / sizeof(hostmem_groups[0]); i++) {
        const struct hostmem_group *g = &hostmem_groups[i];
        const char *at = strstr(text, g->line);
        if (at == NULL)
            continue;
        at += strlen(g->line);
        snprintf(path, sizeof(path), "%.*s", (int)strcspn(at, "\n"), at);
        for (;;) {
            hostmem_look_group(g, path, seen);
            char *slash = strrchr(path, '/');
            if (slash == NULL)
                break;
            *slash = '\0';
        }
    }
}

void hostmem_look(struct hostmem_seen *seen) {
    char text[HOSTMEM_FILE_MAX];
    hostmem_read("/proc/meminfo", text);
    /* A kernel that does not say has none to spare for us to know of. */
    seen->total = hostmem_number(text, "MemTotal:", UINT64_MAX / HOSTMEM_KIB) * HOSTMEM_KIB;
    seen->available =
        hostmem_number(text, "MemAvailable:", seen->total / HOSTMEM_KIB) * HOSTMEM_KIB;
    hostmem_look_groups(seen);
    hostmem_read("/proc/pressure/memory", text);
    seen->pressure = (unsigned)hostmem_number(text, "some avg10=", 0);
}

uint64_t hostmem_total(void) {
    struct hostmem_seen seen = {0};
    hostmem_look(&seen);
    return seen.total;
}

static void hostmem_grow_up(struct hostmem *m, uint64_t now_ns) {
    while (m->oldest != NULL &&
           m->oldest->since_ns + HOSTMEM_YOUNG_MS * CLOCK_NS_PER_MS <= now_ns) {
        struct hostmem_hold *h = m->oldest;
        m->oldest = h->next;
        if (m->oldest != NULL)
            m->oldest->prev = NULL;
        else
            m->newest = NULL;
        h->next = NULL;
        h->young = false;
        m->young -= h->bytes;
    }
}

static void hostmem_saw(struct hostmem *m, const struct hostmem_seen *seen) {
    m->seen = *seen;
    m->seen_ns = clock_mono_ns();
    hostmem_grow_up(m, m->seen_ns);
}

static void hostmem_refresh(struct hostmem *m) {
    struct hostmem_seen seen;
    m->look(&seen);
    hostmem_saw(m, &seen);
}

static void hostmem_tick(void *arg);

static void hostmem_look_later(struct hostmem *m) {
    if (m->timer.slot == 0)
        loop_timer_at(m->loop, &m->timer, clock_mono_ns() + HOSTMEM_LOOK_MS * CLOCK_NS_PER_MS,
                      hostmem_tick, m, NULL);
}

static void hostmem_looked(struct hostmem *m, const struct hostmem_seen *seen) {
    bool waits = m->waits;
    m->waits = false;
    hostmem_saw(m, seen);
    if (waits || m->young > 0)
        hostmem_look_later(m);
    if (waits && m->room != NULL)
        m->room(m->arg);
}

/* A look by a worker. */
struct hostmem_job {
    struct work_job job;
    struct hostmem *mem; /* NULL = nobody wants to know any more */
    void (*look)(struct hostmem_seen *seen);
    struct hostmem_seen seen;
};

static void hostmem_job_run(struct work_job *job) {
    struct hostmem_job *j = (struct hostmem_job *)(void *)job;
    j->look(&j->seen);
}

static void hostmem_job_done(struct work_job *job) {
    struct hostmem_job *j = (struct hostmem_job *)(void *)job;
    struct hostmem *m = j->mem;
    if (m != NULL) {
        m->job = NULL;
        hostmem_looked(m, &j->seen);
    }
    free(j);
}

static void hostmem_tick(void *arg) {
    struct hostmem *m = arg;
    struct hostmem_seen seen;
    if (m->job != NULL) {
        hostmem_look_later(m); /* it takes its time */
        return;
    }
    struct hostmem_job *j = m->work != NULL ? calloc(1, sizeof(*j)) : NULL;
    if (j == NULL) {
        m->look(&seen);
        hostmem_looked(m, &seen);
        return;
    }
    j->job = (struct work_job){.run = hostmem_job_run, .done = hostmem_job_done};
    j->mem = m;
    j->look = m->look;
    m->job = j;
    work_add(m->work, &j->job);
}

void hostmem_init(struct hostmem *m, struct loop *loop, uint64_t budget, unsigned overcommit) {
    if (m->look == NULL)
        m->look = hostmem_look;
    m->loop = loop;
    m->overcommit = overcommit != 0 ? overcommit
                    : budget != 0   ? HOSTMEM_OVERCOMMIT_GIVEN
                                    : HOSTMEM_OVERCOMMIT_AUTO;
    hostmem_refresh(m);
    uint64_t reserve = m->seen.total / 8 < HOSTMEM_GIB ? m->seen.total / 8 : HOSTMEM_GIB;
    m->budget = budget != 0 ? budget : m->seen.total - reserve;
}

void hostmem_stop(struct hostmem *m) {
    if (m->loop != NULL)
        loop_timer_stop(m->loop, &m->timer);
    if (m->job != NULL)
        m->job->mem = NULL;
    m->job = NULL;
}

/* Asking. */

static uint64_t hostmem_part(const struct hostmem *m, uint64_t limit) {
    uint64_t part = limit / m->overcommit * 100 + limit % m->overcommit * 100 / m->overcommit;
    return part > 0 ? part : 1;
}

bool hostmem_never(const struct hostmem *m, uint64_t limit) {
    return m != NULL && m->loop != NULL && hostmem_part(m, limit) > m->budget;
}

bool hostmem_fits_later(const struct hostmem *m, uint64_t limit) {
    if (m == NULL || m->loop == NULL)
        return true;
    uint64_t part = hostmem_part(m, limit), runs = m->committed - m->boxes;
    return part <= m->budget && m->boxes <= m->budget - part && runs > 0;
}

bool hostmem_fits(struct hostmem *m, uint64_t limit) {
    if (m == NULL || m->loop == NULL)
        return true;
    uint64_t part = hostmem_part(m, limit);
    /* A look takes longer than all the rest of a start, so it is put off where plenty was free. */
    if (clock_mono_ns() - m->seen_ns > HOSTMEM_STALE_MS * CLOCK_NS_PER_MS &&
        m->seen.available / HOSTMEM_PLENTY <= part + m->young)
        hostmem_refresh(m);
    bool fits = part <= m->budget && m->committed <= m->budget - part &&
                part <= m->seen.available && m->young <= m->seen.available - part &&
                (m->committed == 0 || m->seen.pressure < HOSTMEM_PRESSURE_MAX);
    if (!fits) {
        m->waits = true;
        hostmem_look_later(m);
    }
    return fits;
}

void hostmem_take(struct hostmem *m, struct hostmem_hold *h, uint64_t limit, bool box) {
    if (m == NULL || m->loop == NULL || h->bytes > 0)
        return;
    *h = (struct hostmem_hold){.bytes = hostmem_part(m, limit),
                               .since_ns = clock_mono_ns(),
                               .young = true,
                               .box = box,
                               .prev = m->newest};
    if (m->newest != NULL)
        m->newest->next = h;
    else
        m->oldest = h;
    m->newest = h;
    m->committed += h->bytes;
    m->young += h->bytes;
    m->boxes += box ? h->bytes : 0;
    hostmem_look_later(m);
}

void hostmem_give(struct hostmem *m, struct hostmem_hold *h) {
    if (m == NULL || h->bytes == 0)
        return;
    if (h->young) {
        if (h->prev != NULL)
            h->prev->next = h->next;
        else
            m->oldest = h->next;
        if (h->next != NULL)
            h->next->prev = h->prev;
        else
            m->newest = h->prev;
        m->young -= h->bytes;
    }
    m->committed -= h->bytes;
    m->boxes -= h->box ? h->bytes : 0;
    *h = (struct hostmem_hold){0};
    if (m->waits && m->room != NULL)
        m->room(m->arg);
}
