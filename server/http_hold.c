/* What is in memory for requests: bodies while they come and until a worker has read them, and
 * answers until they are read. Somebody who sends slowly, or does not read, can have as much of it
 * as he likes, and the server is one process for all: so it is counted, for each user and together.
 */
#include <stdlib.h>
#include <string.h>

#include "http_internal.h"
#include "str.h"

/* This part of all a user may hold in any case, while it is there; and so many times as much as is
 * left: alone he gets two thirds, and whoever comes next finds room. (One thing alone may be
 * larger: an answer cannot be had in parts.) */
#define HTTP_HOLD_PART 8u
#define HTTP_HOLD_SHARE 2u
/* What is small is not counted for its user, and fits when all is taken, up to this part of it. */
#define HTTP_HOLD_RESERVE 8u

struct http_owner {
    struct http_owner *next;
    uint64_t bytes;
    size_t holds;
    char name[ACCOUNTS_NAME_SIZE];
};

struct http_ledger {
    struct http_owner *owners;
    uint64_t bytes, max;
    size_t holds;
    bool closed; /* goes with the last hold */
};

struct http_ledger *http_ledger_new(uint64_t max) {
    struct http_ledger *l = calloc(1, sizeof(*l));
    if (l != NULL)
        l->max = max;
    return l;
}

void http_ledger_close(struct http_ledger *l) {
    if (l == NULL)
        return;
    l->closed = true;
    if (l->holds == 0)
        free(l);
}

static struct http_owner *http_hold_owner(struct http_ledger *l, const char *name) {
    struct http_owner *o = l->owners;
    while (o != NULL && strcmp(o->name, name) != 0)
        o = o->next;
    if (o != NULL)
        return o;
    o = calloc(1, sizeof(*o));
    if (o == NULL)
        return NULL;
    (void)str_copy(o->name, sizeof(o->name), name);
    o->next = l->owners;
    l->owners = o;
    return o;
}

static void http_hold_disown(struct http_ledger *l, struct http_owner *o) {
    struct http_owner **at = &l->owners;
    if (o->holds > 0)
        return;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    free(o);
}

/* What is large also counts for its user. */
static int http_hold_large(struct http_ledger *l, const char *name, struct http_hold *hold,
                           uint64_t more, struct api_error *error) {
    struct http_owner *o = hold->owner != NULL ? hold->owner : http_hold_owner(l, name);
    if (o == NULL)
        return api_error_memory(error);
    uint64_t his = o->bytes + more + (hold->owner == NULL ? hold->bytes : 0);
    uint64_t left = l->max - l->bytes - more;
    if (his > more && his > l->max / HTTP_HOLD_PART && his > HTTP_HOLD_SHARE * left) {
        api_error_set(error, 429, "memory", NULL,
                      "Your requests and the answers that you have not read hold %llu bytes of the "
                      "server's memory, and what is left is for others. Finish some of them, or "
                      "try again later.",
                      (unsigned long long)(his - more));
        http_hold_disown(l, o);
        return -1;
    }
    o->bytes = his;
    o->holds += hold->owner == NULL;
    hold->owner = o;
    return 0;
}

int http_hold_more(struct http_req *req, struct http_hold *hold, uint64_t more,
                   struct api_error *error) {
    struct http_ledger *l = req->http->ledger;
    bool small = hold->bytes + more <= HTTP_HOLD_SMALL;
    uint64_t max = l->max + (small ? l->max / HTTP_HOLD_RESERVE : 0);
    if (l->bytes >= max || more > max - l->bytes)
        return api_error_set(error, 503, "busy", NULL,
                             "The server holds too many large requests and answers; try again.");
    if (!small && http_hold_large(l, req->user_name, hold, more, error) < 0)
        return -1;
    l->holds += hold->ledger == NULL;
    hold->ledger = l;
    hold->bytes += more;
    l->bytes += more;
    return 0;
}

int http_hold_answer(struct http_req *req, uint64_t bytes, struct api_error *error) {
    struct http_hold *hold = &req->answer_hold;
    if (bytes <= HTTP_HOLD_SMALL || bytes <= hold->bytes)
        return 0;
    return http_hold_more(req, hold, bytes - hold->bytes, error);
}

void http_hold_end(struct http_hold *hold) {
    struct http_ledger *l = hold->ledger;
    if (l == NULL)
        return;
    l->bytes -= hold->bytes;
    if (hold->owner != NULL) {
        hold->owner->bytes -= hold->bytes;
        hold->owner->holds--;
        http_hold_disown(l, hold->owner);
    }
    *hold = (struct http_hold){0};
    if (--l->holds == 0 && l->closed)
        free(l);
}
