#include "links.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "state.h"
#include "str.h"

#define LINKS_WAIT_FIRST_MS 50
/* While there is no socket: a look at the directory costs microseconds, and whoever starts a runner
 * waits for it. */
#define LINKS_WAIT_SOCKET_MS 100
#define LINKS_WAIT_MAX_MS 2000
/* How often to look for shards that were added while all known ones are connected: rarely, but soon
 * after one was found, since a runner's shards do not all listen at the same moment. */
#define LINKS_LOOK_FIRST_MS 20
#define LINKS_LOOK_MS 10000

static void links_scan(void *arg);

static void links_arm(struct links *s, uint64_t ms) {
    loop_timer_at(s->loop, &s->scan, clock_mono_ns() + ms * CLOCK_NS_PER_MS, links_scan, s, NULL);
}

static void links_ready(void *arg, struct link *l) {
    struct links *s = arg;
    struct log_line line;
    s->wait_ms = LINKS_WAIT_FIRST_MS;
    s->look_ms = LINKS_LOOK_FIRST_MS;
    s->last_error[0] = '\0';
    links_arm(s, s->look_ms);
    log_begin(&line, s->log, LOG_INFO, "shard_ready");
    log_str(&line, "socket", l->name);
    log_u64(&line, "slots", l->welcome.slots);
    log_u64(&line, "sandboxes", l->welcome.sandboxes);
    log_u64(&line, "kept", l->kept.count);
    log_end(&line);
    if (s->watch.ready != NULL)
        s->watch.ready(s->watch.arg, l);
    s->watch.room(s->watch.arg);
}

static void links_wait_longer(struct links *s, uint64_t max_ms) {
    s->wait_ms = s->wait_ms * 2 > max_ms ? max_ms : s->wait_ms * 2;
}

/* A shard that was there is looked for at once; one that takes the connection and then does not
 * want it, less and less often, and without a line in the log for every time. */
static void links_down(void *arg, struct link *l, const struct err *why) {
    struct links *s = arg;
    struct log_line line;
    char text[sizeof(s->last_error)];
    snprintf(text, sizeof(text), "%.200s", why->text);
    if (l->greeted || strcmp(text, s->last_error) != 0) {
        log_begin(&line, s->log, LOG_WARN, "shard_lost");
        log_str(&line, "socket", l->name);
        log_str(&line, "why", why->text);
        log_end(&line);
    }
    memcpy(s->last_error, text, sizeof(text));
    if (l->greeted) {
        s->lost++;
        s->wait_ms = LINKS_WAIT_FIRST_MS;
    } else {
        links_wait_longer(s, LINKS_WAIT_MAX_MS);
    }
    links_arm(s, s->wait_ms);
    if (s->watch.down != NULL)
        s->watch.down(s->watch.arg, l);
}

static void links_slot_free(void *arg, struct link *l) {
    struct links *s = arg;
    (void)l;
    s->watch.room(s->watch.arg);
}

static void links_looked(void *arg, struct link *l) {
    const struct links *s = arg;
    if (s->watch.looked != NULL)
        s->watch.looked(s->watch.arg, l);
}

struct link *links_find(const struct links *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->items[i]->name, name) == 0)
            return s->items[i];
    return NULL;
}

static void links_insert(struct links *s, const char *name) {
    if (s->count == LINKS_MAX || links_find(s, name) != NULL)
        return;
    struct link *l = malloc(sizeof(*l));
    if (l == NULL)
        return; /* the next scan tries again */
    link_init(l, name, s->loop, s->log, &s->link_watch);
    size_t at = s->count++;
    while (at > 0 && strcmp(s->items[at - 1]->name, name) > 0) {
        s->items[at] = s->items[at - 1];
        at--;
    }
    s->items[at] = l;
}

/* run/runner.<digits>.sock and run/docker.<digits>.sock, as the runners name them. */
static bool links_is_socket(const char *name) {
    unsigned shard = 0;
    char runner[LINK_NAME_MAX], docker[LINK_NAME_MAX], path[LINK_NAME_MAX];
    if (sscanf(name, "runner.%5u.sock", &shard) != 1 &&
        sscanf(name, "docker.%5u.sock", &shard) != 1)
        return false;
    snprintf(runner, sizeof(runner), STATE_RUNNER_SOCKET, shard);
    snprintf(docker, sizeof(docker), STATE_DOCKER_SOCKET, shard);
    return (size_t)snprintf(path, sizeof(path), STATE_RUN "/%s", name) < sizeof(path) &&
           (strcmp(path, runner) == 0 || strcmp(path, docker) == 0);
}

static void links_look(struct links *s) {
    DIR *dir = opendir(STATE_RUN);
    if (dir == NULL) {
        snprintf(s->last_error, sizeof(s->last_error), "reading the directory " STATE_RUN ": %s",
                 strerror(errno));
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char path[LINK_NAME_MAX];
        if (!links_is_socket(entry->d_name))
            continue;
        snprintf(path, sizeof(path), STATE_RUN "/%.40s", entry->d_name);
        links_insert(s, path);
    }
    closedir(dir);
}

/* Connects to those that are not; drops those that nothing is left of. */
static bool links_connect(struct links *s) {
    bool missing = s->count == 0;
    for (size_t i = 0; i < s->count; i++) {
        struct link *l = s->items[i];
        struct err err;
        err_clear(&err);
        if (l->state != LINK_CLOSED)
            continue;
        if (link_connect(l, &err) == 0)
            continue;
        snprintf(s->last_error, sizeof(s->last_error), "%.200s", err.text);
        missing = true;
        if (s->watch.dead != NULL && (err.code == ENOENT || err.code == ECONNREFUSED))
            s->watch.dead(s->watch.arg, l->name);
        if (err.code != ENOENT)
            continue;
        link_done(l);
        free(l);
        s->count--;
        memmove(&s->items[i], &s->items[i + 1], (s->count - i) * sizeof(s->items[0]));
        i--;
    }
    return missing || s->count == 0;
}

static void links_scan(void *arg) {
    struct links *s = arg;
    links_look(s);
    bool missing = links_connect(s);
    links_arm(s, missing ? s->wait_ms : s->look_ms);
    if (!missing)
        s->look_ms = s->look_ms * 2 > LINKS_LOOK_MS ? LINKS_LOOK_MS : s->look_ms * 2;
    if (missing && s->wait_ms < LINKS_WAIT_SOCKET_MS)
        links_wait_longer(s, LINKS_WAIT_SOCKET_MS);
}

void links_start(struct links *s, struct loop *loop, struct log *log,
                 const struct links_watch *watch) {
    memset(s, 0, sizeof(*s));
    s->loop = loop;
    s->log = log;
    s->watch = *watch;
    s->link_watch = (struct link_watch){.ready = links_ready,
                                        .down = links_down,
                                        .slot_free = links_slot_free,
                                        .looked = links_looked,
                                        .arg = s};
    s->wait_ms = LINKS_WAIT_FIRST_MS;
    s->look_ms = LINKS_LOOK_FIRST_MS;
    snprintf(s->last_error, sizeof(s->last_error), "no runner has been found yet");
    links_scan(s);
}

void links_stop(struct links *s) {
    if (s->loop == NULL)
        return;
    loop_timer_stop(s->loop, &s->scan);
    for (size_t i = 0; i < s->count; i++) {
        link_done(s->items[i]);
        free(s->items[i]);
    }
    s->count = 0;
}

static uint64_t links_size(const struct link *l, enum link_pool_kind kind) {
    return kind == LINK_RUNS ? l->welcome.slots : l->welcome.sandboxes;
}

static bool links_less_busy(const struct link *a, const struct link *b, enum link_pool_kind kind) {
    bool a_well = a->shard.health[0] == '\0';
    bool b_well = b->shard.health[0] == '\0';
    if (a_well != b_well)
        return a_well;
    return a->pools[kind].in_use * links_size(b, kind) <
           b->pools[kind].in_use * links_size(a, kind);
}

static struct link *links_pick_kind(const struct links *s, enum link_pool_kind kind,
                                    const struct links_wish *wish, bool *known) {
    struct link *best = NULL;
    bool seen = false;
    for (size_t i = 0; i < s->count; i++) {
        struct link *l = s->items[i];
        if (l->state != LINK_READY)
            continue;
        const struct link_policy *p = link_policy(l, wish->policy);
        if (l->welcome.backend != wish->backend || p == NULL ||
            memcmp(p->head.sha256, wish->sha256, 32) != 0)
            continue;
        seen = true;
        bool room = kind == LINK_RUNS ? link_has_room(l) : link_has_sandbox_room(l);
        if (room && (best == NULL || links_less_busy(l, best, kind)))
            best = l;
    }
    if (known != NULL)
        *known = seen;
    return best;
}

struct link *links_pick(const struct links *s, const struct links_wish *wish, bool *known) {
    return links_pick_kind(s, LINK_RUNS, wish, known);
}

struct link *links_pick_sandbox(const struct links *s, const struct links_wish *wish, bool *known) {
    return links_pick_kind(s, LINK_SANDBOXES, wish, known);
}

const struct link *links_first_ready(const struct links *s) {
    const struct link *best = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const struct link *l = s->items[i];
        if (l->state == LINK_READY && (best == NULL || l->welcome.backend < best->welcome.backend))
            best = l;
    }
    return best;
}

const struct link *links_first_ready_of(const struct links *s, enum backend backend) {
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i]->state == LINK_READY && s->items[i]->welcome.backend == backend)
            return s->items[i];
    return NULL;
}

enum wire_disk links_disk(const struct links *s, enum backend backend) {
    const struct link *l = links_first_ready_of(s, backend);
    return l != NULL ? (enum wire_disk)l->welcome.disk : WIRE_DISK_MEMORY;
}

/* Its socket tells, also while there is no connection. */
static enum backend links_backend(const struct link *l) {
    static const char docker[] = STATE_RUN "/docker.";
    return strncmp(l->name, docker, sizeof(docker) - 1) == 0 ? BACKEND_DOCKER : BACKEND_NATIVE;
}

void links_sum(const struct links *s, enum backend backend, struct links_totals *out) {
    *out = (struct links_totals){.health = ""};
    for (size_t i = 0; i < s->count; i++) {
        const struct link *l = s->items[i];
        if (backend != BACKEND_NONE && links_backend(l) != backend)
            continue;
        out->shards++;
        if (l->state != LINK_READY)
            continue;
        out->ready++;
        out->slots += l->welcome.slots;
        out->in_use += l->pools[LINK_RUNS].in_use;
        out->sandboxes += l->welcome.sandboxes;
        out->sandboxes_in_use += l->pools[LINK_SANDBOXES].in_use;
        out->warm += l->shard.warm;
        out->jails_made += l->shard.jails_made;
        out->taken_warm += l->shard.jails_taken_warm;
        if (l->shard.health[0] == '\0')
            out->healthy++;
        else if (out->health[0] == '\0')
            out->health = l->shard.health;
    }
}
