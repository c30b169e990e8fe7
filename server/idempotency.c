#include "idempotency.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "clock.h"
#include "server.h"
#include "store_file.h"
#include "store_idempotency.h"
#include "str.h"

#define IDEMPOTENCY_INLINE ((size_t)64 * 1024)
#define IDEMPOTENCY_ANSWER_MAX ((size_t)1024 * 1024)
/* How a run is answered, where the answer is not kept: no statuses of HTTP. */
#define IDEMPOTENCY_STATUS_WAIT 1u
#define IDEMPOTENCY_STATUS_STREAM 2u

/* A request with a key: the first of its key, or one that waits for the first. */
struct idempotency_claim {
    struct work_job job; /* while its body is hashed */
    struct server *server;
    struct http_req *req; /* NULL = the client is gone */
    struct route_args args;
    char *body; /* a large one, while a worker has it */
    size_t body_len;
    struct http_hold hold; /* of it */
    uint8_t hash[STORE_IDEMPOTENCY_HASH];
    char user[64], key[IDEMPOTENCY_KEY_MAX + 1];
    struct idempotency_claim *next;   /* the firsts of other keys */
    struct idempotency_claim *behind; /* those that wait for it */
};

struct idempotency {
    struct server *server;
    uint64_t keep_ms;
    struct idempotency_claim *first;
};

struct idempotency *idempotency_new(struct server *s, uint64_t keep_ms, struct err *err) {
    struct idempotency *all = calloc(1, sizeof(*all));
    if (all == NULL) {
        err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
        return NULL;
    }
    all->server = s;
    all->keep_ms = keep_ms;
    return all;
}

void idempotency_free(struct idempotency *all) {
    if (all == NULL)
        return;
    while (all->first != NULL) {
        struct idempotency_claim *c = all->first;
        all->first = c->next;
        while (c != NULL) {
            struct idempotency_claim *behind = c->behind;
            free(c);
            c = behind;
        }
    }
    free(all);
}

/* The key as it was sent; NULL = none, or it is not one (*error is set then). */
static const char *idempotency_key(struct http_req *req, struct api_error *error) {
    const char *key = http_header(req, "Idempotency-Key");
    if (key == NULL)
        return NULL;
    size_t len = strlen(key);
    bool good = len >= 1 && len <= IDEMPOTENCY_KEY_MAX;
    for (size_t i = 0; i < len && good; i++)
        good = key[i] >= 0x20 && key[i] < 0x7f;
    if (good)
        return key;
    api_error_set(error, 400, "invalid_value", NULL,
                  "An Idempotency-Key has 1 to %u printable characters.", IDEMPOTENCY_KEY_MAX);
    return NULL;
}

void idempotency_exec_id(struct http_req *req, char id[EXEC_ID_SIZE], struct api_error *error) {
    uint8_t hash[16];
    crypto_generichash_state state;
    const char *key = idempotency_key(req, error);
    id[0] = '\0';
    if (key == NULL)
        return;
    crypto_generichash_init(&state, NULL, 0, sizeof(hash));
    crypto_generichash_update(&state, (const unsigned char *)req->user_name,
                              strlen(req->user_name) + 1);
    crypto_generichash_update(&state, (const unsigned char *)key, strlen(key));
    crypto_generichash_final(&state, hash, sizeof(hash));
    memcpy(id, "ex_", 3);
    store_file_hex(hash, sizeof(hash), id + 3);
}

static void idempotency_conflict(struct http_req *req) {
    struct api_error error = {0};
    api_error_set(&error, 409, "idempotency_conflict", NULL,
                  "This Idempotency-Key was used for another request.");
    http_reply_error(req, &error);
}

static void idempotency_hash(struct idempotency_claim *c, const char *method, const char *target,
                             const char *body, size_t len) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof(c->hash));
    crypto_generichash_update(&state, (const unsigned char *)method, strlen(method) + 1);
    crypto_generichash_update(&state, (const unsigned char *)target, strlen(target) + 1);
    crypto_generichash_update(&state, (const unsigned char *)body, len);
    crypto_generichash_final(&state, c->hash, sizeof(c->hash));
}

/* Answers. */

static void idempotency_send(struct http_req *req, unsigned status, const char *location,
                             const void *data, size_t len) {
    char *copy = malloc(len + 1);
    if (copy != NULL)
        memcpy(copy, data, len);
    http_add_header(req, "Idempotent-Replayed", "true");
    if (location[0] != '\0')
        http_add_header(req, "Location", "%s", location);
    http_reply_json(req, (int)status, copy, len);
}

static void idempotency_follow(struct server *s, struct http_req *req, struct run *run,
                               const struct route_args *args) {
    (void)args;
    api_events_stream(s, req, run);
}

static void idempotency_wait(struct server *s, struct http_req *req, struct run *run,
                             const struct route_args *args) {
    (void)args;
    api_answer_when_done(s, req, run);
}

static void idempotency_again(struct server *s, struct http_req *req, const char *run,
                              unsigned status) {
    struct route_args args = {.count = 1};
    str_copy(args.value[0], sizeof(args.value[0]), run);
    http_add_header(req, "Idempotent-Replayed", "true");
    api_runs_with(s, req, &args,
                  status == IDEMPOTENCY_STATUS_STREAM ? idempotency_follow : idempotency_wait);
}

/* Claims. */

static struct idempotency_claim *idempotency_find(const struct idempotency *all, const char *user,
                                                  const char *key) {
    struct idempotency_claim *c = all->first;
    while (c != NULL && (strcmp(c->user, user) != 0 || strcmp(c->key, key) != 0))
        c = c->next;
    return c;
}

static void idempotency_unlink(struct idempotency_claim *c) {
    struct idempotency_claim **at = &c->server->idempotency->first;
    while (*at != NULL && *at != c)
        at = &(*at)->next;
    if (*at == c)
        *at = c->next;
}

static void idempotency_waiter_gone(struct http_req *req) {
    struct idempotency_claim *c = req->owner;
    c->req = NULL;
}

static void idempotency_enqueue(struct idempotency_claim *first, struct idempotency_claim *c) {
    c->behind = first->behind;
    first->behind = c;
    c->req->owner = c;
    c->req->gone = idempotency_waiter_gone;
}

/* Takes those that wait for it; the claim is no more. */
static struct idempotency_claim *idempotency_end(struct idempotency_claim *c) {
    struct idempotency_claim *behind = c->behind;
    idempotency_unlink(c);
    if (c->req != NULL)
        c->req->idem = NULL;
    free(c);
    return behind;
}

/* The next of those that wait, taken off; NULL at the end. */
static struct http_req *idempotency_next(struct idempotency_claim **list) {
    while (*list != NULL) {
        struct idempotency_claim *c = *list;
        struct http_req *req = c->req;
        *list = c->behind;
        free(c);
        if (req == NULL)
            continue;
        req->gone = NULL;
        return req;
    }
    return NULL;
}

static const struct route *idempotency_route(struct http_req *req) {
    return req->route;
}

/* The key is new, in progress, or known. */
static void idempotency_decide(struct idempotency_claim *c) {
    struct server *s = c->server;
    struct http_req *req = c->req;
    struct idempotency *all = s->idempotency;
    struct store_idempotency_found found;
    struct err err;
    err_clear(&err);
    struct idempotency_claim *first = idempotency_find(all, c->user, c->key);
    if (first != NULL && memcmp(first->hash, c->hash, sizeof(c->hash)) == 0) {
        idempotency_enqueue(first, c);
        return;
    }
    uint64_t now = clock_real_ms();
    int rc = first != NULL
                 ? 0
                 : store_idempotency_get(s->store, c->user, c->key,
                                         now > all->keep_ms ? now - all->keep_ms : 0, &found, &err);
    if (rc == 0 && first == NULL) {
        c->next = all->first;
        all->first = c;
        req->idem = c;
        idempotency_route(req)->handle(s, req, &c->args);
        return;
    }
    if (rc < 0) {
        struct api_error error = {0};
        server_no_store(s, &err, &error);
        http_reply_error(req, &error);
    } else if (first != NULL || memcmp(found.hash, c->hash, sizeof(c->hash)) != 0) {
        idempotency_conflict(req);
    } else if (found.answer.data != NULL) {
        idempotency_send(req, found.status, found.location, found.answer.data, found.answer.len);
    } else {
        idempotency_again(s, req, found.thing, found.status);
    }
    if (rc > 0)
        buf_done(&found.answer);
    free(c);
}

/* A large body is hashed by a worker. */

static void idempotency_hash_job(struct work_job *job) {
    struct idempotency_claim *c = (struct idempotency_claim *)(void *)job;
    idempotency_hash(c, c->args.allow, c->args.rest, c->body, c->body_len);
}

static void idempotency_hashed(struct work_job *job) {
    struct idempotency_claim *c = (struct idempotency_claim *)(void *)job;
    if (c->req == NULL) {
        free(c->body);
        http_hold_end(&c->hold);
        free(c);
        return;
    }
    c->req->gone = NULL;
    http_give_body(c->req, c->body, c->body_len, &c->hold);
    c->body = NULL;
    idempotency_decide(c);
}

static void idempotency_hash_later(struct idempotency_claim *c) {
    struct http_req *req = c->req;
    /* Routes that take a key have no {*}: there is room for what the worker needs. */
    str_copy(c->args.allow, sizeof(c->args.allow), req->method);
    (void)str_copy(c->args.rest, sizeof(c->args.rest), req->target);
    c->body = http_take_body(req, &c->body_len, &c->hold);
    c->job = (struct work_job){.run = idempotency_hash_job, .done = idempotency_hashed};
    req->owner = c;
    req->gone = idempotency_waiter_gone;
    work_add(c->server->work, &c->job);
}

bool idempotency_take(struct server *s, struct http_req *req, const struct route_args *args) {
    struct api_error error = {0};
    const char *key = idempotency_key(req, &error);
    if (key == NULL && error.status == 0)
        return false;
    struct idempotency_claim *c = key != NULL ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) {
        if (key != NULL)
            api_error_memory(&error);
        http_reply_error(req, &error);
        return true;
    }
    c->server = s;
    c->req = req;
    c->args = *args;
    str_copy(c->user, sizeof(c->user), req->user_name);
    str_copy(c->key, sizeof(c->key), key);
    if (req->body_len > IDEMPOTENCY_INLINE) {
        idempotency_hash_later(c);
        return true;
    }
    idempotency_hash(c, req->method, req->target, req->body != NULL ? req->body : "",
                     req->body_len);
    idempotency_decide(c);
    return true;
}

/* What becomes of the first. */

static int idempotency_put(struct idempotency_claim *c, struct store_idempotency *row) {
    struct err err;
    err_clear(&err);
    row->user = c->user;
    row->key = c->key;
    row->hash = c->hash;
    row->at_ms = clock_real_ms();
    if (store_idempotency_put(c->server->store, row, &err) == 0)
        return 0;
    log_err(&c->server->log, LOG_ERROR, "key_not_kept", &err);
    return -1;
}

void idempotency_run(struct server *s, struct http_req *req, const struct run *run,
                     enum idempotency_way way) {
    struct idempotency_claim *c = req->idem;
    unsigned status =
        way == IDEMPOTENCY_STREAM ? IDEMPOTENCY_STATUS_STREAM : IDEMPOTENCY_STATUS_WAIT;
    struct store_idempotency row = {.thing = run->id, .status = status};
    (void)idempotency_put(c, &row);
    if (way == IDEMPOTENCY_ASYNC)
        return; /* its answer is kept as it is */
    char id[RUN_ID_SIZE];
    memcpy(id, run->id, sizeof(id));
    struct idempotency_claim *list = idempotency_end(c);
    for (struct http_req *other; (other = idempotency_next(&list)) != NULL;)
        idempotency_again(s, other, id, status);
}

static const char *idempotency_location(const struct http_req *req) {
    for (size_t i = 0; i < req->header_count; i++)
        if (strcmp(req->headers[i].name, "Location") == 0)
            return req->headers[i].value;
    return "";
}

void idempotency_answered(void *server, struct http_req *req, int status,
                          const struct http_body *body) {
    struct idempotency_claim *c = req->idem;
    (void)server;
    struct store_idempotency row = {.thing = "",
                                    .status = (unsigned)status,
                                    .location = idempotency_location(req),
                                    .answer = body->data,
                                    .answer_len = body->len};
    if (status >= 200 && status < 300 && body->len <= IDEMPOTENCY_ANSWER_MAX)
        (void)idempotency_put(c, &row);
    struct idempotency_claim *list = idempotency_end(c);
    for (struct http_req *other; (other = idempotency_next(&list)) != NULL;)
        idempotency_send(other, (unsigned)status, row.location, body->data, body->len);
}

void idempotency_over(struct server *s, struct http_req *req) {
    struct api_error error = {0};
    (void)s;
    if (req->idem == NULL)
        return;
    /* Its client went away, and what it made was given up or has nobody to tell. */
    api_error_set(&error, 503, "retry", NULL,
                  "The first request with this Idempotency-Key was broken off. Try again.");
    struct idempotency_claim *list = idempotency_end(req->idem);
    for (struct http_req *other; (other = idempotency_next(&list)) != NULL;)
        http_reply_error(other, &error);
}
