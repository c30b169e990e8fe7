#include "ready.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server.h"

static const char *const ready_layers[] = {
    "server", "runner", "docker", "sandboxes", "store", "disk", "audit", "queue", NULL,
};

const char *ready_layer(size_t index) {
    return index < sizeof(ready_layers) / sizeof(ready_layers[0]) ? ready_layers[index] : NULL;
}

struct ready_list {
    struct ready_reason *items;
    size_t count;
};

__attribute__((format(printf, 3, 4))) static void ready_add(struct ready_list *l, const char *layer,
                                                            const char *fmt, ...) {
    va_list ap;
    if (l->count == READY_MAX)
        return;
    struct ready_reason *r = &l->items[l->count++];
    r->layer = layer;
    va_start(ap, fmt);
    vsnprintf(r->message, sizeof(r->message), fmt, ap);
    va_end(ap);
    /* Some of the sentences that come from elsewhere have their full stop. */
    size_t len = strlen(r->message);
    if (len > 0 && r->message[len - 1] == '.')
        r->message[len - 1] = '\0';
}

static void ready_runner(struct server *s, struct ready_list *l) {
    struct links_totals native, docker;
    links_sum(&s->links, BACKEND_NATIVE, &native);
    links_sum(&s->links, BACKEND_DOCKER, &docker);
    /* A server with containers alone is as good. */
    if (native.ready == 0 && (docker.ready == 0 || native.shards > 0))
        ready_add(l, "runner", "no runner is connected: %s", s->links.last_error);
    else if (native.ready > 0 && native.healthy == 0)
        ready_add(l, "runner", "%s", native.health);
    if (docker.shards > 0 && docker.ready == 0)
        ready_add(l, "docker", "pinfold-runner-docker does not answer");
    else if (docker.ready > 0 && docker.healthy == 0)
        ready_add(l, "docker", "%s", docker.health);
    if (l->count == 0 && sandboxes_adopting(&s->sandboxes))
        ready_add(l, "sandboxes", "sandboxes are being taken over from an earlier server");
}

static void ready_store(struct server *s, struct ready_list *l) {
    const char *sick = store_sick(s->store);
    if (sick == NULL)
        return;
    ready_add(l, "store", "%s", sick);
    if (store_full(s->store))
        ready_add(l, "disk", "there is too little space where the state directory is");
}

static void ready_audit(struct server *s, struct ready_list *l) {
    const char *sick = audit_sick(&s->audit);
    if (sick != NULL)
        ready_add(l, "audit", "%s", sick);
}

size_t ready_reasons(struct server *s, struct ready_reason out[READY_MAX]) {
    struct ready_list l = {.items = out};
    if (s->draining)
        ready_add(&l, "server", "the server is about to stop");
    ready_runner(s, &l);
    ready_store(s, &l);
    ready_audit(s, &l);
    if (!runs_may_queue(&s->runs, 0))
        ready_add(&l, "queue", "the queue is full: %zu runs wait", s->runs.queue.count);
    return l.count;
}
