#include <string.h>

#include "http_internal.h"

void http_close_soon(struct http *h) {
    h->closing = true;
}

size_t http_owed(const struct http *h) {
    size_t n = 0;
    for (const struct http_conn *c = h->first; c != NULL; c = c->next) {
        const struct http_req *req = c->req;
        if (req != NULL && !req->dead && !req->live && req->phase != HTTP_HEADER)
            n++;
    }
    return n;
}

/* The handler is told what it is told when a client goes away, so it lets go of the request, which
 * then gets its answer from here. */
void http_refuse_waiting(struct http *h, const struct api_error *error) {
    for (struct http_conn *c = h->first; c != NULL; c = c->next) {
        struct http_req *req = c->req;
        if (req == NULL || req->dead || !req->asleep || req->phase != HTTP_HANDLED ||
            req->response != NULL || req->gone == NULL)
            continue;
        void (*gone)(struct http_req * req) = req->gone;
        req->gone = NULL;
        gone(req);
        http_reply_error(req, error);
    }
}
