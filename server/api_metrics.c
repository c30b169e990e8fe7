#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "api.h"
#include "clock.h"
#include "ready.h"

#define API_METRICS_BYTES ((size_t)4 * 1024 * 1024)
#define API_METRICS_USERS 200u /* with series of their own, when those are asked for */

static void api_metrics_shards(const struct server *s, struct metrics_gauges *g) {
    for (size_t i = 0; i < s->links.count && g->shard_count < METRICS_SHARDS; i++) {
        const struct link *l = s->links.items[i];
        struct metrics_shard *m = &g->shard[g->shard_count];
        m->number = (unsigned)i;
        m->ready = l->state == LINK_READY;
        if (m->ready) {
            m->number = l->welcome.shard;
            m->healthy = l->shard.health[0] == '\0';
            m->slots = l->welcome.slots;
            m->in_use = l->pools[LINK_RUNS].in_use;
            m->warm = l->shard.warm;
            m->sandboxes = l->welcome.sandboxes;
            m->sandboxes_in_use = l->pools[LINK_SANDBOXES].in_use;
        }
        g->shard_count++;
    }
}

static void api_metrics_layers(struct server *s, struct metrics_gauges *g) {
    struct ready_reason reasons[READY_MAX];
    size_t n = ready_reasons(s, reasons);
    const char *name;
    g->ready = n == 0;
    while (g->layer_count < METRICS_LAYERS && (name = ready_layer(g->layer_count)) != NULL) {
        bool healthy = true;
        for (size_t i = 0; i < n; i++)
            healthy = healthy && strcmp(reasons[i].layer, name) != 0;
        g->layer[g->layer_count++] = (struct metrics_layer){.name = name, .healthy = healthy};
    }
}

static void api_metrics_links(const struct server *s, struct metrics_gauges *g) {
    struct links_totals t;
    links_sum(&s->links, BACKEND_NONE, &t);
    g->shards = t.shards;
    g->shards_ready = t.ready;
    g->shards_healthy = t.healthy;
    g->slots = t.slots;
    g->slots_in_use = t.in_use;
    g->warm = t.warm;
    g->jails_made = t.jails_made;
    g->jails_taken_warm = t.taken_warm;
    g->shards_lost = s->links.lost;
    g->sandbox_places = t.sandboxes;
}

static bool api_metrics_is_active(const struct accounts_user *u) {
    return u->use.v[QUOTA_RUNS] > 0 || u->use.v[QUOTA_SANDBOXES] > 0;
}

static void api_metrics_accounts(const struct server *s, struct metrics_gauges *g) {
    const struct accounts *a = s->accounts.accounts;
    for (const struct accounts_user *u = NULL; (u = accounts_user_next(a, u)) != NULL;) {
        g->users += !u->deleted;
        g->users_active += api_metrics_is_active(u);
    }
    g->tokens = accounts_live_tokens(a);
}

static void api_metrics_look(struct server *s, struct metrics_gauges *g) {
    struct statvfs st;
    for (int i = 0; i < 4; i++)
        g->sandboxes[i] = s->sandboxes.states[i];
    g->sandboxes_waiting = s->sandboxes.queue.count;
    g->snapshots = s->snapshots.count;
    g->snapshot_bytes = s->snapshots.bytes;
    g->queued = s->runs.queue.count;
    g->queued_bytes = s->runs.queue.bytes;
    g->active = s->runs.active;
    g->kept = s->runs.done_count;
    g->kept_bytes = s->runs.done_bytes;
    g->connections = http_connections(s->http);
    g->requests = http_in_flight(s->http);
    g->draining = s->draining;
    g->log_lost = s->log.lost_ever;
    if (statvfs(".", &st) == 0) {
        g->disk_free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
        g->disk_free_inodes = st.f_favail;
    }
    api_metrics_links(s, g);
    api_metrics_shards(s, g);
    api_metrics_layers(s, g);
    api_metrics_accounts(s, g);
}

/* Those that use something, at most so many. */
static int api_metrics_users(const struct server *s, struct buf *out) {
    const struct accounts *a = s->accounts.accounts;
    struct metrics_user *users = calloc(API_METRICS_USERS, sizeof(*users));
    size_t n = 0;
    if (users == NULL)
        return -1;
    for (const struct accounts_user *u = NULL;
         n < API_METRICS_USERS && (u = accounts_user_next(a, u)) != NULL;)
        if (api_metrics_is_active(u))
            users[n++] = (struct metrics_user){.name = u->name, .use = &u->use};
    int rc = metrics_write_users(users, n, out, NULL);
    free(users);
    return rc;
}

static int api_metrics_kinds(const struct server *s, struct buf *out) {
    size_t n = 0, room = 0;
    for (size_t i = 0; i < s->links.count; i++)
        room += s->links.items[i]->look.kinds.count;
    struct metrics_kind *kinds = calloc(room + 1, sizeof(*kinds));
    if (kinds == NULL)
        return -1;
    for (size_t i = 0; i < s->links.count; i++) {
        const struct link *l = s->links.items[i];
        for (size_t k = 0; k < l->look.kinds.count; k++)
            kinds[n++] = (struct metrics_kind){.shard = l->welcome.shard,
                                               .policy = l->look.kinds.items[k].policy,
                                               .image = l->look.kinds.items[k].image,
                                               .warm = l->look.kinds.items[k].warm};
    }
    int rc = metrics_write_kinds(kinds, n, out, NULL);
    free(kinds);
    return rc;
}

static void api_metrics_answer(struct server *s, struct http_req *req) {
    struct buf out;
    struct api_error error = {0};
    bool users = false;
    struct metrics_gauges *g = calloc(1, sizeof(*g));
    if (route_query_bool(req, "users", &users, &error) < 0 ||
        (g == NULL && api_error_memory(&error) < 0)) {
        free(g);
        http_reply_error(req, &error);
        return;
    }
    api_metrics_look(s, g);
    buf_init(&out, API_METRICS_BYTES);
    int rc = metrics_write(&s->metrics, g, &out, NULL);
    if (rc == 0)
        rc = api_metrics_kinds(s, &out);
    if (rc == 0 && users)
        rc = api_metrics_users(s, &out);
    free(g);
    api_reply_buf(req, 200, "text/plain; version=0.0.4; charset=utf-8", &out, rc);
}

void api_metrics_get(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    api_look_then(s, req, WIRE_LOOK_KINDS, api_metrics_answer);
}
