#include "server.h"

const char *server_not_ready(const struct server *s) {
    struct links_totals t;
    if (s->draining)
        return "the server is about to stop";
    links_sum(&s->links, &t);
    if (t.ready == 0)
        return s->links.last_error;
    if (t.healthy == 0)
        return t.health;
    if (sandboxes_adopting(&s->sandboxes))
        return "sandboxes are being taken over from an earlier server";
    return runs_may_queue(&s->runs, 0) ? NULL : "the queue is full";
}
