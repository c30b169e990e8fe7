#include <stdlib.h>

#include "api.h"

struct api_look {
    struct look_wait wait; /* first */
    struct server *server;
    struct http_req *req;
    void (*fn)(struct server *s, struct http_req *req);
};

static void api_look_gone(struct http_req *req) {
    struct api_look *a = req->owner;
    look_forget(&a->server->look, &a->wait);
    free(a);
}

static void api_look_known(struct look_wait *w) {
    struct api_look *a = (struct api_look *)(void *)w;
    struct server *s = a->server;
    struct http_req *req = a->req;
    void (*fn)(struct server * s, struct http_req * req) = a->fn;
    req->gone = NULL;
    req->owner = NULL;
    free(a);
    fn(s, req);
}

void api_look_then(struct server *s, struct http_req *req, uint32_t what,
                   void (*fn)(struct server *s, struct http_req *req)) {
    struct api_look *a = calloc(1, sizeof(*a));
    struct api_error error = {0};
    if (a == NULL) {
        api_error_memory(&error);
        http_reply_error(req, &error);
        return;
    }
    a->server = s;
    a->req = req;
    a->fn = fn;
    a->wait.fn = api_look_known;
    if (look_ask(&s->look, &a->wait, what)) {
        free(a);
        fn(s, req);
        return;
    }
    req->owner = a;
    req->gone = api_look_gone;
}
