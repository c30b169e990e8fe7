#include "server.h"

#include <errno.h>

void server_no_store(struct server *s, const struct err *err, struct api_error *error) {
    const char *why = store_sick(s->store);
    if (store_full(s->store) || (err != NULL && err->code == ENOSPC))
        api_error_set(error, 507, "no_space", NULL,
                      "The disk of the state directory is full: no new work is taken until there "
                      "is space again.");
    else
        api_error_set(error, 503, "store", NULL, "The database cannot be written: %s",
                      err != NULL   ? err->text
                      : why != NULL ? why
                                    : "the reason is not known");
}

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
    const char *sick = store_sick(s->store);
    if (sick != NULL)
        return sick;
    return runs_may_queue(&s->runs, 0) ? NULL : "the queue is full";
}
