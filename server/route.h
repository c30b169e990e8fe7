/* Which request goes where: a table of method and path. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "http.h"

struct server;

#define ROUTE_ARGS_MAX 4
#define ROUTE_ARG_SIZE 128
#define ROUTE_REST_SIZE 4096

/* The values of the {} in a pattern, percent-decoded. */
struct route_args {
    size_t count;
    char value[ROUTE_ARGS_MAX][ROUTE_ARG_SIZE];
    /* Of {*}, which takes all that is left of the path, slashes included ("" possible). It is
     * decoded as a whole: an encoded slash is a slash. Any bytes but NUL. */
    char rest[ROUTE_REST_SIZE];
    char allow[64]; /* when the method does not fit: those that do */
};

enum route_flag {
    ROUTE_PUBLIC = 1, /* no token needed */
    ROUTE_BODY = 4,   /* takes a JSON body; others ignore a short one */
    ROUTE_LARGE = 2,  /* … which may be large: its handler has a worker decode one that is */
    ROUTE_KEYED = 32, /* makes something: an Idempotency-Key counts */
    ROUTE_RAW = 16,   /* takes a body of any type, at most SERVER_RAW_MAX bytes */
    ROUTE_UPLOAD = 8, /* called when the headers are in, and takes the body in pieces:
                         http_take_upload() */
};

struct route {
    const char *method;
    const char *pattern; /* "/v1/runs/{}/events", "/v1/sandboxes/{}/files/{*}" */
    unsigned flags;
    void (*handle)(struct server *s, struct http_req *req, const struct route_args *args);
    unsigned scopes; /* enum accounts_scope: the token needs one of them; 0 = any token will do */
};

/* The routes of the server; ends with a row whose method is NULL. */
extern const struct route route_table[];

/* Finds the row for a method and a path (as it was sent) in `table`. NULL: *error is filled with
 * 400 (a path that cannot be decoded), 404, or 405, and `allow` (size bytes) then lists the
 * methods. */
const struct route *route_find(const struct route *table, const char *method, const char *path,
                               struct route_args *args, struct api_error *error);

/* Query parameters: 0, or -1 with *error = 400 naming the parameter. Absent: *value is untouched.
 */
int route_query_u64(struct http_req *req, const char *name, uint64_t min, uint64_t max,
                    uint64_t *value, struct api_error *error);
int route_query_bool(struct http_req *req, const char *name, bool *value, struct api_error *error);
/* Percent-decoded into `text` (size bytes with the NUL); "" when absent. */
int route_query_text(struct http_req *req, const char *name, char *text, size_t size,
                     struct api_error *error);

/* What http.h wants. */
int route_begin(void *server, struct http_req *req, uint64_t *body_max, struct api_error *error);
void route_handle(void *server, struct http_req *req);
void route_ended(void *server, struct http_req *req);
