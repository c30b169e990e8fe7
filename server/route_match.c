#include <stdio.h>
#include <string.h>

#include "route.h"
#include "str.h"

static int route_hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One segment of a path: 0, 1 when it is too long for any value, -1 for a bad escape or a NUL. */
static int route_decode(const char *from, size_t len, char *to, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = from[i];
        if (c == '%') {
            int high = i + 2 < len ? route_hex(from[i + 1]) : -1;
            int low = high >= 0 ? route_hex(from[i + 2]) : -1;
            if (low < 0 || (high == 0 && low == 0))
                return -1;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (n + 1 >= size)
            return 1;
        to[n++] = c;
    }
    to[n] = '\0';
    return 0;
}

/* 1 = matches, 0 = does not, -1 = cannot be decoded, -2 = too long. */
static int route_match(const char *pattern, const char *path, struct route_args *args) {
    args->count = 0;
    args->rest[0] = '\0';
    while (*pattern == '/' && *path == '/') {
        pattern++;
        path++;
        if (strcmp(pattern, "{*}") == 0) {
            int rest = route_decode(path, strlen(path), args->rest, sizeof(args->rest));
            return rest == 0 ? 1 : rest < 0 ? -1 : -2;
        }
        size_t want = strcspn(pattern, "/"), have = strcspn(path, "/");
        char *to = args->value[args->count < ROUTE_ARGS_MAX ? args->count : 0];
        char segment[ROUTE_ARG_SIZE];
        bool variable = want == 2 && strncmp(pattern, "{}", 2) == 0;
        int rc = route_decode(path, have, segment, sizeof(segment));
        if (rc != 0)
            return rc < 0 ? -1 : 0;
        if (variable ? segment[0] == '\0' || args->count == ROUTE_ARGS_MAX
                     : strlen(segment) != want || strncmp(segment, pattern, want) != 0)
            return 0;
        if (variable) {
            memcpy(to, segment, sizeof(segment));
            args->count++;
        }
        pattern += want;
        path += have;
    }
    return *pattern == '\0' && *path == '\0';
}

static bool route_method_is(const struct route *r, const char *method) {
    return strcmp(r->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
}

static void route_allow(char *allow, size_t size, const char *method) {
    size_t len = strlen(allow);
    snprintf(allow + len, size - len, "%s%s", len > 0 ? ", " : "", method);
}

const struct route *route_find(const struct route *table, const char *method, const char *path,
                               struct route_args *args, struct api_error *error) {
    args->allow[0] = '\0';
    for (const struct route *r = table; r->method != NULL; r++) {
        int rc = route_match(r->pattern, path, args);
        if (rc == -2) {
            api_error_set(error, 400, "name_too_long", NULL,
                          "The path of a file may have at most %d bytes.", ROUTE_REST_SIZE - 1);
            return NULL;
        }
        if (rc < 0) {
            api_error_set(error, 400, "bad_path", NULL, "The path has a bad escape in it.");
            return NULL;
        }
        if (rc == 1 && route_method_is(r, method))
            return r;
        if (rc == 1)
            route_allow(args->allow, sizeof(args->allow), r->method);
    }
    if (args->allow[0] != '\0')
        api_error_set(error, 405, "method_not_allowed", NULL,
                      "This path does not take the method that was used; it takes %s.",
                      args->allow);
    else
        api_error_set(error, 404, "not_found", NULL, "There is nothing at this path.");
    return NULL;
}

int route_query_u64(struct http_req *req, const char *name, uint64_t min, uint64_t max,
                    uint64_t *value, struct api_error *error) {
    const char *text = http_query(req, name);
    if (text == NULL || str_u64(text, min, max, value, NULL) == 0)
        return 0;
    return api_error_set(error, 400, "bad_query", NULL,
                         "The query parameter %s must be a number from %llu to %llu.", name,
                         (unsigned long long)min, (unsigned long long)max);
}

int route_query_bool(struct http_req *req, const char *name, bool *value, struct api_error *error) {
    const char *text = http_query(req, name);
    if (text == NULL)
        return 0;
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        *value = true;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        *value = false;
    else
        return api_error_set(error, 400, "bad_query", NULL,
                             "The query parameter %s must be true or false.", name);
    return 0;
}

int route_query_text(struct http_req *req, const char *name, char *text, size_t size,
                     struct api_error *error) {
    const char *value = http_query(req, name);
    text[0] = '\0';
    if (value == NULL)
        return 0;
    int rc = route_decode(value, strlen(value), text, size);
    if (rc == 0)
        return 0;
    return api_error_set(error, 400, "bad_query", NULL, "The query parameter %s is %s.", name,
                         rc > 0 ? "too long" : "badly escaped");
}
