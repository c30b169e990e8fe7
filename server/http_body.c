#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http_internal.h"
#include "str.h"

#define HTTP_BODY_FIRST 4096u

struct http_body_headers {
    unsigned lengths, encodings;
    const char *length, *encoding;
    size_t length_size;
};

static enum MHD_Result http_body_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                        size_t name_size, const char *value, size_t value_size) {
    struct http_body_headers *seen = arg;
    (void)kind;
    (void)name_size;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        seen->lengths++;
        seen->length = value;
        seen->length_size = value_size;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        seen->encodings++;
        seen->encoding = value;
    }
    return MHD_YES;
}

int http_body_framing(struct http_req *req, struct api_error *error) {
    struct http_body_headers seen = {0};
    MHD_get_connection_values_n(req->mhd, MHD_HEADER_KIND, http_body_header, &seen);
    if (req->has_nul)
        return api_error_set(error, 400, "bad_request", NULL, "The path has a NUL byte in it.");
    if (seen.lengths + seen.encodings > 1)
        return api_error_set(error, 400, "bad_framing", NULL,
                             "The request says more than once how long its body is.");
    if (seen.encodings == 1) {
        if (seen.encoding == NULL || strcasecmp(seen.encoding, "chunked") != 0)
            return api_error_set(error, 400, "bad_framing", NULL,
                                 "The only transfer encoding that is understood is chunked.");
        req->length = UINT64_MAX;
        return 0;
    }
    if (seen.lengths == 1 && (seen.length == NULL || strlen(seen.length) != seen.length_size ||
                              str_u64(seen.length, 0, UINT64_MAX - 1, &req->length, NULL) < 0))
        return api_error_set(error, 400, "bad_framing", NULL,
                             "The Content-Length is not a number of bytes.");
    return 0;
}

static int http_body_grow(struct http_req *req, size_t need) {
    /* The announced length is taken on trust only up to what has arrived: memory follows bytes. */
    size_t size = req->body_alloc == 0 ? HTTP_BODY_FIRST : req->body_alloc;
    while (size < need)
        size *= 2;
    if (req->length != UINT64_MAX && size > req->length + 1)
        size = (size_t)req->length + 1;
    char *grown = realloc(req->body, size);
    if (grown == NULL)
        return -1;
    req->http->body_bytes += size - req->body_alloc;
    req->body = grown;
    req->body_alloc = size;
    return 0;
}

int http_body_take(struct http_req *req, const char *data, size_t len, struct api_error *error) {
    struct http *h = req->http;
    if (len > req->body_max - req->body_len)
        return api_error_set(error, 413, "too_large", NULL, "The body may have at most %llu bytes.",
                             (unsigned long long)req->body_max);
    size_t need = req->body_len + len + 1;
    if (need > req->body_alloc) {
        if (h->body_bytes + need > h->options.max_body_bytes)
            return api_error_set(error, 503, "busy", NULL,
                                 "The server holds too many large requests; try again.");
        if (http_body_grow(req, need) < 0)
            return api_error_memory(error);
    }
    memcpy(req->body + req->body_len, data, len);
    req->body_len += len;
    return 0;
}

void http_body_release(struct http_req *req) {
    req->http->body_bytes -= req->body_alloc;
    free(req->body);
    req->body = NULL;
    req->body_len = 0;
    req->body_alloc = 0;
}

char *http_take_body(struct http_req *req, size_t *len) {
    char *body = req->body;
    *len = req->body_len;
    req->http->body_bytes -= req->body_alloc;
    req->body = NULL;
    req->body_len = 0;
    req->body_alloc = 0;
    return body;
}
