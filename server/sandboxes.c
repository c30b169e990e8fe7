#include "sandboxes.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit.h"
#include "clock.h"
#include "fd.h"
#include "id.h"
#include "sandbox_internal.h"
#include "store_sandboxes.h"
#include "str.h"

#define SANDBOXES_QUEUE_DEFAULT 1024u

void sandboxes_init(struct sandboxes *s, struct loop *loop, struct log *log, struct links *links,
                    struct metrics *metrics, struct work *work) {
    memset(s, 0, sizeof(*s));
    s->loop = loop;
    s->log = log;
    s->links = links;
    s->metrics = metrics;
    s->work = work;
    s->options.queue_count = SANDBOXES_QUEUE_DEFAULT;
    queue_init(&s->queue, s->options.queue_count, SIZE_MAX);
    s->options.live_max = SIZE_MAX;
    s->answer_ms = SANDBOX_ANSWER_MS;
    s->gone_ms = SANDBOXES_GONE_MS;
}

void sandboxes_done(struct sandboxes *s) {
    if (s->loop == NULL)
        return;
    loop_defer_stop(s->loop, &s->dispatch);
    loop_timer_stop(s->loop, &s->forget);
    loop_timer_stop(s->loop, &s->shrink);
    loop_timer_stop(s->loop, &s->rewrite);
    sandbox_spare_stop(&s->spare);
    queue_done(&s->queue);
    while (s->oldest != NULL) {
        struct sandbox *sb = s->oldest;
        s->oldest = sb->newer;
        sandbox_free(sb);
    }
    while (s->forgotten != NULL) {
        struct sandbox *sb = s->forgotten;
        s->forgotten = sb->older;
        sandbox_free(sb);
    }
}

void sandboxes_log(struct sandboxes *s, const struct sandbox *sb, const char *event,
                   const char *why) {
    struct log_line line;
    log_begin(&line, s->log, LOG_INFO, event);
    log_str(&line, "sandbox", sb->id);
    log_str(&line, "user", sb->owner);
    log_str(&line, "policy", sb->live->spec.policy.name);
    if (why != NULL)
        log_str(&line, "why", why);
    log_end(&line);
}

/* The table. */

static uint32_t sandboxes_hash(const char *id) {
    return str_hash(id, strlen(id)) % SANDBOXES_BUCKETS;
}

struct sandbox *sandboxes_find(const struct sandboxes *s, const char *id) {
    for (struct sandbox *sb = s->buckets[sandboxes_hash(id)]; sb != NULL; sb = sb->hash_next)
        if (strcmp(sb->id, id) == 0)
            return sb;
    return NULL;
}

/* It lives: its places and its promises are taken. */
static void sandboxes_charge(struct sandboxes *s, struct sandbox *sb) {
    const uint64_t *limits = sb->live->spec.limits.values.v;
    sb->live->held.box = true;
    quota_hold_id(s->quota, &sb->live->held, sb->live->spec.token, sb->owner);
    quota_take(s->quota, &sb->live->held, QUOTA_SANDBOXES, 1);
    quota_take(s->quota, &sb->live->held, QUOTA_MEM_BYTES, limits[LIMIT_MEM_BYTES]);
    quota_take(s->quota, &sb->live->held, QUOTA_DISK_BYTES, limits[LIMIT_DISK_BYTES]);
}

static void sandboxes_insert(struct sandboxes *s, struct sandbox *sb) {
    struct sandbox **bucket = &s->buckets[sandboxes_hash(sb->id)];
    sb->hash_next = *bucket;
    *bucket = sb;
    sb->older = s->newest;
    sb->newer = NULL;
    if (sb->older != NULL)
        sb->older->newer = sb;
    else
        s->oldest = sb;
    s->newest = sb;
    s->states[sb->state]++;
    if (sb->state != SANDBOX_GONE)
        sandboxes_charge(s, sb);
}

static void sandboxes_remove(struct sandboxes *s, struct sandbox *sb) {
    struct sandbox **at = &s->buckets[sandboxes_hash(sb->id)];
    while (*at != sb)
        at = &(*at)->hash_next;
    *at = sb->hash_next;
    if (sb->newer != NULL)
        sb->newer->older = sb->older;
    else
        s->newest = sb->older;
    if (sb->older != NULL)
        sb->older->newer = sb->newer;
    else
        s->oldest = sb->newer;
    s->states[sb->state]--;
    if (sb->live == NULL)
        return;
    quota_let_go(s->quota, &sb->live->held);
    hostmem_give(s->mem, &sb->live->mem);
    queue_remove(&s->queue, &sb->live->queued);
}

void sandboxes_forget(struct sandboxes *s, struct sandbox *sb) {
    struct sandbox_live *live = sb->live;
    sandboxes_gone_forget(s, sb);
    sandboxes_remove(s, sb);
    sandbox_store_drop(sb);
    if (live != NULL && live->stored)
        sandbox_store_remove(s, sb->id);
    if (live == NULL || !live->closing) {
        sandbox_free(sb);
        return;
    }
    loop_timer_stop(s->loop, &live->life);
    live->forgotten = true;
    sb->newer = NULL;
    sb->older = s->forgotten;
    if (sb->older != NULL)
        sb->older->newer = sb;
    s->forgotten = sb;
}

void sandboxes_closed(struct sandboxes *s, struct sandbox *sb) {
    if (!sb->live->forgotten)
        return;
    if (sb->newer != NULL)
        sb->newer->older = sb->older;
    else
        s->forgotten = sb->older;
    if (sb->older != NULL)
        sb->older->newer = sb->newer;
    sandbox_free(sb);
}

/* Waiting for a slot. */

static void sandboxes_no_room(void *arg) {
    struct sandbox *sb = arg;
    struct api_error why;
    api_error_set(
        &why, 503, "no_room", NULL,
        "As many sandboxes live as the runners take, or as there is memory for. Try again "
        "later.");
    sandbox_life_fail(sb, &why);
}

static size_t sandboxes_live(const struct sandboxes *s) {
    return s->states[SANDBOX_READY] + s->states[SANDBOX_PAUSED] + s->states[SANDBOX_OPENING] -
           s->queue.count;
}

void sandboxes_not_written(const struct err *err, struct api_error *why) {
    if (err->code == ENOSPC || err->code == EDQUOT)
        api_error_set(why, 507, "no_space", NULL, "The server's disk is full.");
    else
        api_error_set(why, 500, "internal", NULL, "The sandbox could not be written down.");
}

static void sandboxes_rewrite(void *arg) {
    struct sandboxes *s = arg;
    struct err err;
    err_clear(&err);
    for (struct sandbox *sb = s->newest; sb != NULL; sb = sb->older)
        if (sb->live != NULL && sb->live->unsaved && sandbox_store_write(sb, &err) < 0)
            return; /* it is sick again */
}

void sandboxes_well(struct sandboxes *s) {
    if (s->loop != NULL)
        loop_timer_at(s->loop, &s->rewrite, 0, sandboxes_rewrite, s, NULL);
}

/* 1: opened; 0: it must wait; -1: *why says why it never will be. */
static int sandboxes_launch(struct sandboxes *s, struct sandbox *sb, struct api_error *why) {
    struct err err;
    bool known = false;
    struct link *link;
    err_clear(&err);
    if (sandboxes_live(s) + (sb->live->queued.queued ? 1 : 0) > s->options.live_max)
        return 0;
    if (sb->live->spec.shard[0] != '\0') {
        link = links_find(s->links, sb->live->spec.shard);
        if (link == NULL || link->state != LINK_READY)
            return api_error_set(why, 410, "gone", "/from",
                                 "The runner that had the snapshot is not there any more.");
        if (!link_has_sandbox_room(link))
            return 0;
    } else {
        const struct wire_policy *p = &sb->live->spec.policy;
        const struct links_wish wish = {p->name, p->sha256, sb->live->spec.backend};
        link = links_pick_sandbox(s->links, &wish, &known);
        if (link == NULL && !known &&
            links_first_ready_of(s->links, sb->live->spec.backend) != NULL)
            return api_error_set(why, 503, "policy_changed", "/policy",
                                 "The policy changed meanwhile. Try again.");
        if (link == NULL)
            return 0;
    }
    if (!hostmem_fits(s->mem, sb->live->spec.limits.values.v[LIMIT_MEM_BYTES]))
        return 0;
    hostmem_take(s->mem, &sb->live->mem, sb->live->spec.limits.values.v[LIMIT_MEM_BYTES], true);
    if (sandbox_life_open(sb, link, &err) < 0) {
        log_err(s->log, LOG_ERROR, "sandbox_not_opened", &err);
        return api_error_memory(why);
    }
    if (sandbox_store_write(sb, &err) == 0)
        return 1;
    log_err(s->log, LOG_ERROR, "sandbox_not_written", &err);
    sandboxes_not_written(&err, why);
    return -1;
}

static struct sandbox *sandboxes_of_node(struct queue_node *node) {
    const struct sandbox_live *live =
        (const void *)((char *)node - offsetof(struct sandbox_live, queued));
    return live->sandbox;
}

/* One that only a certain shard can make waits for that one; its user's others wait behind it, and
 * everybody else goes on. */
static void sandboxes_dispatch(void *arg) {
    struct sandboxes *s = arg;
    queue_go_on(&s->queue, NULL);
    for (struct queue_node *node; (node = queue_next(&s->queue)) != NULL;) {
        struct sandbox *sb = sandboxes_of_node(node);
        struct api_error why;
        int rc = sandboxes_launch(s, sb, &why);
        if (rc == 0 && sb->live->spec.shard[0] == '\0')
            break;
        if (rc == 0) {
            queue_aside(&s->queue, node);
        } else if (rc > 0) {
            queue_take(&s->queue, node);
            queue_ended(&s->queue, node, 0); /* it lives for hours: that is no matter of turns */
        } else {
            queue_remove(&s->queue, node);
            sandbox_life_fail(sb, &why);
        }
    }
}

void sandboxes_room(struct sandboxes *s) {
    if (s->queue.count > 0)
        loop_defer(s->loop, &s->dispatch, sandboxes_dispatch, s);
}

void sandboxes_refuse_queued(struct sandboxes *s, const struct api_error *why) {
    for (struct queue_node *node; (node = queue_any(&s->queue)) != NULL;) {
        queue_remove(&s->queue, node);
        sandbox_life_fail(sandboxes_of_node(node), why);
    }
}

bool sandboxes_may_queue(const struct sandboxes *s, const char *user, size_t count) {
    return queue_fits(&s->queue, user, count, 0) == QUEUE_ROOM;
}

static int sandboxes_enqueue(struct sandboxes *s, struct sandbox *sb, struct api_error *error) {
    struct queue_entry entry = {.user = sb->owner,
                                .weight =
                                    sb->live->held.user != NULL ? sb->live->held.user->weight : 0,
                                .lane = QUEUE_NORMAL};
    if (queue_push(&s->queue, &sb->live->queued, &entry, NULL) < 0)
        return api_error_memory(error);
    loop_timer_at(s->loop, &sb->live->watchdog, clock_mono_ns() + SANDBOX_SLOT_MS * CLOCK_NS_PER_MS,
                  sandboxes_no_room, sb, NULL);
    sandboxes_room(s);
    return 0;
}

static int sandboxes_name(struct sandboxes *s, struct sandbox *sb, struct api_error *error) {
    struct err err;
    err_clear(&err);
    if (id_make(sb->id, sizeof(sb->id), "sb_", &err) == 0)
        return 0;
    log_err(s->log, LOG_ERROR, "sandbox_not_made", &err);
    return api_error_memory(error);
}

/* Its row is written while the runner works. */
static int sandboxes_begin(struct sandboxes *s, struct sandbox *sb, struct api_error *error) {
    bool first = s->queue.count == 0 || sb->live->spec.shard[0] != '\0';
    int rc = first ? sandboxes_launch(s, sb, error) : 0;
    if (rc == 0)
        rc = sandboxes_enqueue(s, sb, error);
    return rc < 0 ? -1 : 0;
}

struct sandbox *sandboxes_create(struct sandboxes *s, struct sandbox_spec *spec,
                                 struct api_error *error) {
    struct sandbox *sb = sandbox_new(s, spec->owner, NULL);
    if (sb == NULL || sandboxes_name(s, sb, error) < 0) {
        if (sb == NULL)
            api_error_memory(error);
        sandbox_free(sb);
        return NULL;
    }
    if (s->audit != NULL && audit_sandbox_accepted(s->audit, sb->id, spec, error) < 0) {
        sandbox_free(sb);
        return NULL;
    }
    sb->live->spec = *spec;
    sb->trace = spec->trace;
    sb->state = SANDBOX_OPENING;
    sb->created_ms = clock_real_ms();
    sb->live->expires_ms = sb->created_ms + spec->ttl_ms;
    sb->live->expires_ns = clock_mono_ns() + spec->ttl_ms * CLOCK_NS_PER_MS;
    sandboxes_insert(s, sb);
    if (sandboxes_begin(s, sb, error) < 0) {
        memset(&sb->live->spec.env, 0, sizeof(sb->live->spec.env)); /* still the caller's */
        sb->live->spec.metadata = NULL;
        sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
        return NULL;
    }
    memset(spec, 0, sizeof(*spec));
    return sb;
}

void sandboxes_opened(struct sandboxes *s, struct sandbox *sb) {
    s->metrics->sandboxes_created++;
    sandboxes_log(s, sb, "sandbox_ready", NULL);
}

/* Shards come and go. */

static const struct link_jail_ops sandboxes_unknown_ops = {0};

/* Nobody knows it: it is adopted and closed. */
static void sandboxes_close_unknown(struct sandboxes *s, struct link *l, const char *key) {
    struct link_jail *j = link_open_sandbox(l, &sandboxes_unknown_ops, s);
    struct log_line line;
    if (j == NULL)
        return;
    link_adopt(j, key);
    link_close_jail(j);
    log_begin(&line, s->log, LOG_WARN, "sandbox_unknown");
    log_str(&line, "key", key);
    log_str(&line, "socket", l->name);
    log_end(&line);
}

void sandboxes_ready(struct sandboxes *s, struct link *l) {
    for (size_t i = 0; i < l->kept.count; i++) {
        struct sandbox *sb = sandboxes_find(s, l->kept.items[i].key);
        if (sb != NULL && sb->detached && sb->live->jail == NULL &&
            strcmp(sb->live->shard, l->name) == 0)
            sandbox_life_adopt(sb, l);
        else
            sandboxes_close_unknown(s, l, l->kept.items[i].key);
    }
    for (struct sandbox *sb = s->newest; sb != NULL; sb = sb->older)
        if (sb->detached && sb->live->jail == NULL && strcmp(sb->live->shard, l->name) == 0)
            sandbox_life_end(sb, SANDBOX_END_RUNNER_ENDED, NULL);
    if (s->options.reconciled != NULL)
        s->options.reconciled(s->options.arg, l);
}

void sandboxes_dead(struct sandboxes *s, const char *shard) {
    for (struct sandbox *sb = s->newest; sb != NULL; sb = sb->older)
        if (sb->detached && sb->live->jail == NULL && strcmp(sb->live->shard, shard) == 0)
            sandbox_life_end(sb, SANDBOX_END_RUNNER_DIED, NULL);
}

bool sandboxes_adopting(const struct sandboxes *s) {
    for (const struct sandbox *sb = s->newest; sb != NULL; sb = sb->older)
        if (sb->detached && sb->live->jail != NULL)
            return true;
    return false;
}

bool sandboxes_unsettled(const struct sandboxes *s, const char *owner) {
    for (const struct sandbox *sb = s->newest; sb != NULL; sb = sb->older)
        if (sb->detached && strcmp(sb->owner, owner) == 0)
            return true;
    return false;
}

/* Start. */

struct sandboxes_found {
    struct sandboxes *all;
    struct sandbox **items;
    size_t count, room;
    char (*bad)[SANDBOX_ID_SIZE]; /* rows that are of no use */
    size_t bad_count;
};

static int sandboxes_by_age(const void *a, const void *b) {
    const struct sandbox *const *x = a, *const *y = b;
    return ((*x)->created_ms > (*y)->created_ms) - ((*x)->created_ms < (*y)->created_ms);
}

static int sandboxes_by_end(const void *a, const void *b) {
    const struct sandbox *const *x = a, *const *y = b;
    return ((*x)->gone_ms > (*y)->gone_ms) - ((*x)->gone_ms < (*y)->gone_ms);
}

static int sandboxes_grow(struct sandboxes_found *f, struct err *err) {
    if (f->count < f->room)
        return 0;
    size_t room = f->room > 0 ? 2 * f->room : 256;
    struct sandbox **items = realloc(f->items, room * sizeof(struct sandbox *));
    if (items == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading sandboxes: out of memory");
    f->items = items;
    f->room = room;
    return 0;
}

static void sandboxes_read_bad(struct sandboxes_found *f, const char *id, const struct err *why) {
    log_err(f->all->log, LOG_WARN, "sandbox_unreadable", why);
    void *bad = realloc(f->bad, (f->bad_count + 1) * sizeof(*f->bad));
    if (bad == NULL)
        return; /* the next start finds it again */
    f->bad = bad;
    if (str_copy(f->bad[f->bad_count], sizeof(*f->bad), id))
        f->bad_count++;
}

static void sandboxes_read_row(void *arg, const struct store_sandbox *row) {
    struct sandboxes_found *f = arg;
    struct err err;
    err_clear(&err);
    struct sandbox *sb = sandboxes_grow(f, &err) < 0 ? NULL : sandbox_store_read(f->all, row, &err);
    if (sb == NULL) {
        if (err.code != ENOMEM)
            sandboxes_read_bad(f, row->id, &err);
        return;
    }
    sandbox_shrink(sb);
    f->items[f->count++] = sb;
}

static void sandboxes_load(struct sandboxes *s, struct sandboxes_found *f) {
    size_t gone = 0;
    if (f->count == 0)
        return;
    qsort(f->items, f->count, sizeof(*f->items), sandboxes_by_age);
    for (size_t i = 0; i < f->count; i++) {
        struct sandbox *sb = f->items[i];
        sandboxes_insert(s, sb);
        if (sb->state == SANDBOX_GONE) {
            f->items[gone++] = sb;
            continue;
        }
        hostmem_take(s->mem, &sb->live->mem, sb->live->spec.limits.values.v[LIMIT_MEM_BYTES], true);
        sandbox_life_detach(sb);
        sandbox_life_arm(sb);
        if (s->options.loaded != NULL)
            s->options.loaded(s->options.arg, sb);
    }
    qsort(f->items, gone, sizeof(*f->items), sandboxes_by_end);
    for (size_t i = 0; i < gone; i++)
        sandboxes_gone_bury(s, f->items[i]);
}

/* Directories of sandboxes that are gone, or that nobody knows. */
static void sandboxes_sweep(struct sandboxes *s, DIR *dir) {
    const struct dirent *e;
    rewinddir(dir);
    while ((e = readdir(dir)) != NULL) {
        const struct sandbox *sb = e->d_name[0] != '.' ? sandboxes_find(s, e->d_name) : NULL;
        if (e->d_name[0] != '.' && (sb == NULL || sb->state == SANDBOX_GONE))
            sandbox_store_remove(s, e->d_name);
    }
}

static int sandboxes_read_all(struct sandboxes *s, DIR *dir, struct err *err) {
    struct sandboxes_found found = {.all = s};
    if (sandbox_import_all(s, dir, err) < 0)
        return -1;
    int rc = store_sandboxes_read(s->store, sandboxes_read_row, &found, err);
    sandboxes_load(s, &found);
    for (size_t i = 0; rc == 0 && i < found.bad_count; i++)
        rc = store_sandboxes_drop(s->store, found.bad[i], err);
    free(found.items);
    free(found.bad);
    if (rc == 0)
        sandboxes_sweep(s, dir);
    return rc;
}

int sandboxes_start(struct sandboxes *s, const struct sandboxes_options *options, struct err *err) {
    s->options = *options;
    queue_init(&s->queue, options->queue_count, SIZE_MAX);
    if (mkdir(SANDBOXES_DIR, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "making " SANDBOXES_DIR);
    DIR *dir = opendir(SANDBOXES_DIR);
    if (dir == NULL)
        return err_sys(err, "reading " SANDBOXES_DIR);
    int rc = sandboxes_read_all(s, dir, err);
    closedir(dir);
    if (rc < 0)
        return -1;
    struct log_line line;
    log_begin(&line, s->log, LOG_INFO, "sandboxes_read");
    log_u64(&line, "there", s->states[SANDBOX_READY]);
    log_u64(&line, "gone", s->states[SANDBOX_GONE]);
    log_end(&line);
    return sandbox_spare_start(&s->spare, s->loop, s->work, err);
}
