#include "snapshots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "id.h"
#include "json_out.h"
#include "store_file.h"
#include "store_snapshots.h"
#include "str.h"

#define SNAPSHOTS_FILE_MAX ((size_t)64 * 1024)
/* How long their shard is looked for. */
#define SNAPSHOTS_SETTLE_MS 5000u

void snapshots_init(struct snapshots *s, struct loop *loop, struct log *log, struct links *links) {
    memset(s, 0, sizeof(*s));
    s->loop = loop;
    s->log = log;
    s->links = links;
}

void snapshots_done(struct snapshots *s) {
    if (s->loop == NULL)
        return;
    loop_timer_stop(s->loop, &s->settle);
    loop_timer_stop(s->loop, &s->rewrite);
    while (s->oldest != NULL) {
        struct snapshot *snap = s->oldest;
        s->oldest = snap->newer;
        if (s->store != NULL)
            store_then_stop(s->store, &snap->written);
        free(snap);
    }
    snapshots_lost_done(&s->lost);
}

/* The table. */

static uint32_t snapshots_hash(const char *id) {
    return str_hash(id, strlen(id)) % SNAPSHOTS_BUCKETS;
}

struct snapshot *snapshots_find(const struct snapshots *s, const char *id) {
    for (struct snapshot *x = s->buckets[snapshots_hash(id)]; x != NULL; x = x->hash_next)
        if (strcmp(x->id, id) == 0)
            return x;
    return NULL;
}

static void snapshots_insert(struct snapshots *s, struct snapshot *snap) {
    struct snapshot **bucket = &s->buckets[snapshots_hash(snap->id)];
    struct snapshot *older = s->newest;
    snap->all = s;
    snap->hash_next = *bucket;
    *bucket = snap;
    while (older != NULL && older->created_ms > snap->created_ms)
        older = older->older;
    snap->older = older;
    snap->newer = older != NULL ? older->newer : s->oldest;
    if (snap->newer != NULL)
        snap->newer->older = snap;
    else
        s->newest = snap;
    if (older != NULL)
        older->newer = snap;
    else
        s->oldest = snap;
    s->count++;
    s->bytes += snap->added_bytes;
    quota_hold_id(s->quota, &snap->held, snap->token, snap->owner);
    quota_take(s->quota, &snap->held, QUOTA_SNAPSHOT_BYTES, snap->added_bytes);
}

static void snapshots_drop_row(struct snapshots *s, struct snapshot *snap) {
    struct err err;
    err_clear(&err);
    if (s->store == NULL)
        return;
    store_then_stop(s->store, &snap->written);
    if (snap->row && store_snapshots_drop(s->store, snap->id, &err) < 0)
        log_err(s->log, LOG_WARN, "snapshot_not_forgotten", &err); /* its shard says so then */
}

static void snapshots_forget(struct snapshots *s, struct snapshot *snap) {
    struct snapshot **at = &s->buckets[snapshots_hash(snap->id)];
    while (*at != snap)
        at = &(*at)->hash_next;
    *at = snap->hash_next;
    if (snap->newer != NULL)
        snap->newer->older = snap->older;
    else
        s->newest = snap->older;
    if (snap->older != NULL)
        snap->older->newer = snap->newer;
    else
        s->oldest = snap->newer;
    s->count--;
    s->bytes -= snap->added_bytes;
    quota_let_go(s->quota, &snap->held);
    snapshots_drop_row(s, snap);
    free(snap);
}

/* A new one that is not durable was not made: whoever asked is told so. */
static void snapshots_committed(void *arg, int rc, const struct err *err) {
    struct snapshot *snap = arg;
    struct snapshots *s = snap->all;
    snap->unsaved = rc < 0;
    if (rc < 0)
        log_err(s->log, LOG_ERROR, "snapshot_not_written", err);
    if (rc < 0 && !snap->row)
        snapshots_remove(s, snap);
    else
        snap->row = true;
}

static int snapshots_put(struct store *store, const struct snapshot *x, struct err *err) {
    struct store_snapshot row = {.id = x->id,
                                 .user = x->owner,
                                 .token = x->token,
                                 .shard = x->shard,
                                 .image = x->image,
                                 .policy = x->policy,
                                 .source = x->source,
                                 .name = x->name,
                                 .disk = x->disk,
                                 .bytes = x->bytes,
                                 .files = x->files,
                                 .added_bytes = x->added_bytes,
                                 .created_ms = x->created_ms};
    return store_snapshots_put(store, &row, err);
}

static int snapshots_write(struct snapshots *s, struct snapshot *snap) {
    struct err err;
    err_clear(&err);
    if (s->store == NULL)
        return 0;
    int rc = snapshots_put(s->store, snap, &err);
    snap->unsaved = rc < 0;
    if (rc < 0) {
        log_err(s->log, LOG_ERROR, "snapshot_not_written", &err);
        return -1;
    }
    snap->written.fn = snapshots_committed;
    snap->written.arg = snap;
    store_then(s->store, &snap->written);
    return 0;
}

static void snapshots_rewrite(void *arg) {
    struct snapshots *s = arg;
    for (struct snapshot *x = s->newest; x != NULL; x = x->older)
        if (x->unsaved && snapshots_write(s, x) < 0)
            return; /* it is sick again */
}

void snapshots_well(struct snapshots *s) {
    if (s->loop != NULL)
        loop_timer_at(s->loop, &s->rewrite, 0, snapshots_rewrite, s, NULL);
}

/* What it alone had added may be what the next one of the same sandbox stands on, and stays then:
 * that one has it from now on, though never more than it holds in all. */
static void snapshots_pass_on(struct snapshots *s, const struct snapshot *snap) {
    struct snapshot *x = snap->newer;
    while (x != NULL &&
           (strcmp(x->source, snap->source) != 0 || strcmp(x->shard, snap->shard) != 0))
        x = x->newer;
    if (x == NULL || snap->added_bytes == 0 || x->added_bytes >= x->bytes)
        return;
    uint64_t room = x->bytes - x->added_bytes;
    uint64_t more = snap->added_bytes < room ? snap->added_bytes : room;
    x->added_bytes += more;
    s->bytes += more;
    quota_take(s->quota, &x->held, QUOTA_SNAPSHOT_BYTES, more);
    if (!x->step)
        (void)snapshots_write(s, x);
}

void snapshots_remove(struct snapshots *s, struct snapshot *snap) {
    /* A shard that is away, or has not said yet what it has, hears of it when it does. */
    struct link *l = snap->settled ? links_find(s->links, snap->shard) : NULL;
    if (l != NULL)
        link_drop_snapshot(l, snap->id);
    snapshots_pass_on(s, snap);
    snapshots_forget(s, snap);
}

struct snapshot *snapshots_of_step(const struct snapshots *s, const char *run, uint32_t index) {
    struct snapshot *x = s->newest;
    while (x != NULL && (!x->step || x->step_index != index || strcmp(x->source, run) != 0))
        x = x->older;
    return x;
}

void snapshots_remove_steps(struct snapshots *s, const char *run) {
    struct snapshot *newer;
    for (struct snapshot *x = s->oldest; x != NULL; x = newer) {
        newer = x->newer;
        if (x->step && strcmp(x->source, run) == 0)
            snapshots_remove(s, x);
    }
}

/* New ones. */

static bool snapshots_full(const struct snapshots *s) {
    return s->count + s->pending >= s->options.count || s->bytes >= s->options.bytes;
}

/* What runs have kept of their steps is for looking back: the oldest make room for new ones. */
static void snapshots_make_room(struct snapshots *s) {
    struct snapshot *newer;
    for (struct snapshot *x = s->oldest; x != NULL && snapshots_full(s); x = newer) {
        newer = x->newer;
        if (x->step)
            snapshots_remove(s, x);
    }
}

int snapshots_begin(struct snapshots *s, struct snapshot *info, struct api_error *error) {
    struct err err;
    struct quota_held who = {0};
    err_clear(&err);
    quota_hold_id(s->quota, &who, info->token, info->owner);
    int rc = quota_may_snapshot(s->quota, &who, error);
    quota_let_go(s->quota, &who);
    if (rc < 0)
        return -1;
    snapshots_make_room(s);
    if (s->count + s->pending >= s->options.count)
        return api_error_set(error, 429, "quota", NULL,
                             "The server keeps %zu snapshots, which is as many as it may "
                             "(--snapshots). Delete some.",
                             s->options.count);
    if (s->bytes >= s->options.bytes)
        return api_error_set(error, 429, "quota", NULL,
                             "The snapshots hold %" PRIu64 " bytes; the server may keep %" PRIu64
                             " (--snapshot-bytes). Delete some.",
                             s->bytes, s->options.bytes);
    if (id_make(info->id, sizeof(info->id), SNAPSHOTS_PREFIX, &err) < 0) {
        log_err(s->log, LOG_ERROR, "snapshot_not_made", &err);
        return api_error_memory(error);
    }
    s->pending++;
    return 0;
}

void snapshots_give_up(struct snapshots *s) {
    s->pending--;
}

struct snapshot *snapshots_add(struct snapshots *s, const struct snapshot *info,
                               const struct wire_done *done) {
    struct snapshot *snap = malloc(sizeof(*snap));
    s->pending--;
    if (snap == NULL) {
        struct link *l = links_find(s->links, info->shard);
        if (l != NULL)
            link_drop_snapshot(l, info->id);
        return NULL;
    }
    *snap = *info;
    snap->bytes = done->bytes;
    snap->files = done->files;
    snap->added_bytes = done->added_bytes;
    snap->created_ms = clock_real_ms();
    snap->settled = true;
    snap->row = snap->unsaved = false;
    memset(&snap->written, 0, sizeof(snap->written));
    snapshots_insert(s, snap);
    if (!snap->step)
        (void)snapshots_write(s, snap);
    return snap;
}

/* Shards come and go. */

static void snapshots_lose(struct snapshots *s, struct snapshot *x) {
    char step[sizeof(x->source) + sizeof("@4294967295")];
    snprintf(step, sizeof(step), "%s@%" PRIu32, x->source, x->step_index);
    snapshots_lost_add(&s->lost, x->owner, x->step ? step : x->id);
    snapshots_forget(s, x);
}

static void snapshots_missing(void *arg) {
    struct snapshots *s = arg;
    struct snapshot *older;
    bool again = false;
    for (struct snapshot *x = s->newest; x != NULL; x = older) {
        older = x->older;
        const struct link *l = links_find(s->links, x->shard);
        if (x->settled)
            continue;
        if (l != NULL && l->state != LINK_CLOSED)
            again = true; /* it is being greeted */
        else
            snapshots_lose(s, x);
    }
    if (again)
        loop_timer_at(s->loop, &s->settle, clock_mono_ns() + SNAPSHOTS_SETTLE_MS * CLOCK_NS_PER_MS,
                      snapshots_missing, s, NULL);
}

static void snapshots_settle_later(struct snapshots *s) {
    loop_timer_at(s->loop, &s->settle, clock_mono_ns() + SNAPSHOTS_SETTLE_MS * CLOCK_NS_PER_MS,
                  snapshots_missing, s, NULL);
}

void snapshots_ready(struct snapshots *s, struct link *l) {
    for (size_t i = 0; i < l->kept_snapshots.count; i++) {
        const struct wire_kept *kept = &l->kept_snapshots.items[i];
        struct snapshot *x = snapshots_find(s, kept->key);
        if (x != NULL && strcmp(x->shard, l->name) == 0)
            x->settled = true;
        else
            link_drop_snapshot(l, kept->key);
    }
    struct snapshot *older;
    for (struct snapshot *x = s->newest; x != NULL; x = older) {
        older = x->older;
        if (!x->settled && strcmp(x->shard, l->name) == 0)
            snapshots_lose(s, x);
    }
}

void snapshots_down(struct snapshots *s, const struct link *l) {
    for (struct snapshot *x = s->newest; x != NULL; x = x->older)
        if (strcmp(x->shard, l->name) == 0)
            x->settled = false;
    snapshots_settle_later(s);
}

void snapshots_dead(struct snapshots *s, const char *shard) {
    struct snapshot *older;
    for (struct snapshot *x = s->newest; x != NULL; x = older) {
        older = x->older;
        if (!x->settled && strcmp(x->shard, shard) == 0)
            snapshots_lose(s, x);
    }
}

/* Start. */

static bool snapshots_text(const json_t *root, const char *key, char *dst, size_t size) {
    const char *text = json_string_value(json_object_get(root, key));
    return text != NULL && str_copy(dst, size, text);
}

static bool snapshots_number(const json_t *root, const char *key, uint64_t *out) {
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool snapshots_decode(const json_t *root, struct snapshot *x) {
    uint64_t disk = 0;
    bool well = snapshots_text(root, "owner", x->owner, sizeof(x->owner)) &&
                snapshots_text(root, "shard", x->shard, sizeof(x->shard)) &&
                snapshots_text(root, "image", x->image, sizeof(x->image)) &&
                snapshots_text(root, "policy", x->policy, sizeof(x->policy)) &&
                snapshots_text(root, "source", x->source, sizeof(x->source)) &&
                snapshots_text(root, "name", x->name, sizeof(x->name)) &&
                snapshots_number(root, "disk", &disk) && disk <= WIRE_DISK_FILE &&
                snapshots_number(root, "bytes", &x->bytes) &&
                snapshots_number(root, "files", &x->files) &&
                snapshots_number(root, "added_bytes", &x->added_bytes) &&
                snapshots_number(root, "created_at", &x->created_ms);
    x->disk = (uint32_t)disk;
    (void)snapshots_text(root, "token", x->token, sizeof(x->token)); /* older ones have none */
    return well;
}

/* Files of a server that kept them so: rows are made of them, and they go when those are there. */
static int snapshots_import_one(struct snapshots *s, int dir, const char *file, struct err *err) {
    struct err bad;
    struct snapshot x = {0};
    size_t len = strlen(file);
    int rc = 0;
    err_clear(&bad);
    if (len <= 5 || len - 5 >= sizeof(x.id) || strcmp(file + len - 5, ".json") != 0)
        return 0;
    memcpy(x.id, file, len - 5);
    if (!id_is(x.id, SNAPSHOTS_PREFIX))
        return 0;
    json_t *root = store_file_read(dir, file, SNAPSHOTS_FILE_MAX, &bad);
    if (root == NULL)
        log_err(s->log, LOG_WARN, "snapshot_unreadable", &bad);
    else if (snapshots_decode(root, &x))
        rc = snapshots_put(s->store, &x, err);
    json_decref(root);
    return rc;
}

static int snapshots_import(struct snapshots *s, struct err *err) {
    fd_cleanup int fd = open(SNAPSHOTS_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, "opening " SNAPSHOTS_DIR);
    DIR *dir = opendir(SNAPSHOTS_DIR);
    if (dir == NULL)
        return err_sys(err, "reading " SNAPSHOTS_DIR);
    const struct dirent *e;
    int rc = 0;
    while (rc == 0 && (e = readdir(dir)) != NULL)
        rc = snapshots_import_one(s, fd, e->d_name, err);
    closedir(dir);
    if (rc < 0 || store_commit_now(s->store, err) < 0)
        return -1;
    store_file_empty(fd, NULL);
    (void)rmdir(SNAPSHOTS_DIR);
    return 0;
}

struct snapshots_read {
    struct snapshots *all;
    bool failed;
};

static void snapshots_load(void *arg, const struct store_snapshot *row) {
    struct snapshots_read *r = arg;
    struct snapshot *x = calloc(1, sizeof(*x));
    if (x == NULL) {
        r->failed = true;
        return;
    }
    if (!id_is(row->id, SNAPSHOTS_PREFIX) || !str_copy(x->id, sizeof(x->id), row->id) ||
        !str_copy(x->owner, sizeof(x->owner), row->user) ||
        !str_copy(x->token, sizeof(x->token), row->token) ||
        !str_copy(x->shard, sizeof(x->shard), row->shard) ||
        !str_copy(x->image, sizeof(x->image), row->image) ||
        !str_copy(x->policy, sizeof(x->policy), row->policy) ||
        !str_copy(x->source, sizeof(x->source), row->source) ||
        !str_copy(x->name, sizeof(x->name), row->name) || row->disk > WIRE_DISK_FILE) {
        free(x);
        return;
    }
    x->disk = row->disk;
    x->bytes = row->bytes;
    x->files = row->files;
    x->added_bytes = row->added_bytes;
    x->created_ms = row->created_ms;
    x->row = true;
    snapshots_insert(r->all, x);
}

int snapshots_start(struct snapshots *s, const struct snapshots_options *options, struct err *err) {
    struct snapshots_read reading = {.all = s};
    s->options = *options;
    if (s->store == NULL)
        return 0;
    if (snapshots_import(s, err) < 0 ||
        store_snapshots_read(s->store, snapshots_load, &reading, err) < 0)
        return -1;
    if (reading.failed)
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading snapshots: out of memory");
    if (s->count > 0)
        snapshots_settle_later(s);
    return 0;
}

void snapshots_write_json(struct json_out *j, const char *key, const struct snapshot *snap) {
    json_out_open(j, key, '{');
    json_out_str(j, "id", snap->id);
    json_out_str(j, "name", snap->name);
    json_out_u64(j, "bytes", snap->bytes);
    json_out_u64(j, "files", snap->files);
    json_out_u64(j, "added_bytes", snap->added_bytes);
    json_out_u64(j, "created_at", snap->created_ms);
    json_out_str(j, "sandbox", snap->source);
    json_out_str(j, "image", snap->image);
    json_out_str(j, "disk", snap->disk == WIRE_DISK_FILE ? "file" : "memory");
    json_out_close(j, '}');
}
