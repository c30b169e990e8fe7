#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "http_internal.h"
#include "str.h"

#define HTTP_BODY_FIRST 4096u

/* What the headers say about the framing. */
struct http_body_headers {
    unsigned lengths, encodings, hosts;
    const char *length, *encoding;
    size_t length_size;
    bool bad_name, bad_value;
};

/* RFC 9110: the characters of a token. A blank before the colon would hide a Content-Length. */
static bool http_body_is_token(const char *name, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c <= 0x20 || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c) != NULL)
            return false;
    }
    return size > 0;
}

/* The library cuts values at a NUL byte, and ends each line by putting two in place of CR and LF.
 * So anything else behind a value is what was cut off, or shows a line that ended without CR. */
static bool http_body_is_whole(const char *value, size_t size) {
    return value == NULL || strchr("\r\n", value[size + 1]) != NULL;
}

static enum MHD_Result http_body_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                        size_t name_size, const char *value, size_t value_size) {
    struct http_body_headers *seen = arg;
    (void)kind;
    if (!http_body_is_token(name, name_size))
        seen->bad_name = true;
    if (!http_body_is_whole(value, value_size))
        seen->bad_value = true;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        seen->lengths++;
        seen->length = value;
        seen->length_size = value_size;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        seen->encodings++;
        seen->encoding = value;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        seen->hosts++;
    }
    return MHD_YES;
}

static int http_body_bad(struct api_error *error, const char *what) {
    return api_error_set(error, 400, "bad_request", NULL, "%s", what);
}

static int http_body_check_head(const struct http_req *req, const struct http_body_headers *seen,
                                struct api_error *error) {
    if (req->has_nul)
        return http_body_bad(error, "The path has a NUL byte in it.");
    for (const char *c = req->target; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || *c == 0x7f)
            return http_body_bad(error, "The path has a blank or a control character in it.");
    if (seen->bad_name)
        return http_body_bad(error, "A header has a name that no header may have.");
    if (seen->bad_value)
        return http_body_bad(error, "A header has a NUL byte in it or does not end with CRLF.");
    if (seen->hosts > 1 || (seen->hosts == 0 && strcmp(req->version, MHD_HTTP_VERSION_1_1) == 0))
        return http_body_bad(error, "HTTP/1.1 wants one Host header.");
    return 0;
}

/* -1: not a number of bytes. */
static int http_body_length(const struct http_body_headers *seen, uint64_t *length) {
    if (seen->length == NULL || strlen(seen->length) != seen->length_size)
        return -1;
    return str_u64(seen->length, 0, UINT64_MAX - 1, length, NULL);
}

static int http_body_bad_length(struct api_error *error) {
    return api_error_set(error, 400, "bad_framing", NULL,
                         "The Content-Length is not a number of bytes.");
}

int http_body_framing(struct http_req *req, struct api_error *error) {
    struct http_body_headers seen = {0};
    MHD_get_connection_values_n(req->mhd, MHD_HEADER_KIND, http_body_header, &seen);
    if (http_body_check_head(req, &seen, error) < 0)
        return -1;
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
    if (seen.lengths == 1 && http_body_length(&seen, &req->length) < 0)
        return http_body_bad_length(error);
    return 0;
}

/* To a Content-Length that is no number, libmicrohttpd 0.9.75 sends an answer whose head is there
 * twice, and asks nobody before. But it logs, and that is early enough: the answer is sent from
 * here, and the socket is closed for sending before the library comes to it. The log does not say
 * which connection it is about; it is one whose headers are not through yet and have such a length.
 */
void http_body_logged(void *arg, const char *fmt, va_list args) {
    struct http *h = arg;
    (void)args;
    if (strstr(fmt, "handshake") != NULL)
        http_tls_failed(h);
    if (strstr(fmt, "Content-Length") == NULL)
        return;
    for (struct http_conn *c = h->first; c != NULL; c = c->next) {
        struct http_body_headers seen = {0};
        struct api_error error = {0};
        uint64_t length;
        if (c->req == NULL || c->req->method != NULL || c->req->status != 0)
            continue;
        MHD_get_connection_values_n(c->req->mhd, MHD_HEADER_KIND, http_body_header, &seen);
        if (seen.lengths == 0 || http_body_length(&seen, &length) == 0)
            continue;
        http_body_bad_length(&error);
        http_linger(c);
        http_reply_direct(c->req, &error);
        shutdown(c->fd, SHUT_WR);
    }
}

struct http_body_joined {
    const char *name;
    char *text;
    size_t size, len, count;
    bool fits;
};

static enum MHD_Result http_body_join_one(void *arg, enum MHD_ValueKind kind, const char *key,
                                          const char *value) {
    struct http_body_joined *j = arg;
    (void)kind;
    if (strcasecmp(key, j->name) != 0)
        return MHD_YES;
    size_t len = value != NULL ? strlen(value) : 0, comma = j->count > 0 ? 1 : 0;
    j->count++;
    if (j->len + comma + len >= j->size) {
        j->fits = false;
        return MHD_NO;
    }
    if (comma != 0)
        j->text[j->len++] = ',';
    memcpy(j->text + j->len, value != NULL ? value : "", len);
    j->len += len;
    return MHD_YES;
}

size_t http_header_join(struct http_req *req, const char *name, char *text, size_t size) {
    struct http_body_joined j = {.name = name, .text = text, .size = size, .fits = true};
    (void)MHD_get_connection_values(req->mhd, MHD_HEADER_KIND, http_body_join_one, &j);
    text[j.fits ? j.len : 0] = '\0';
    return j.fits ? j.count : 0;
}

static int http_body_grow(struct http_req *req, size_t need, struct api_error *error) {
    /* The announced length is taken on trust only up to what has arrived: memory follows bytes. */
    size_t size = req->body_alloc == 0 ? HTTP_BODY_FIRST : req->body_alloc;
    while (size < need)
        size *= 2;
    if (req->length != UINT64_MAX && size > req->length + 1)
        size = (size_t)req->length + 1;
    if (http_hold_more(req, &req->body_hold, size - req->body_alloc, error) < 0)
        return -1;
    char *grown = realloc(req->body, size);
    if (grown == NULL) /* what is counted too much goes with the request */
        return api_error_memory(error);
    req->body = grown;
    req->body_alloc = size;
    return 0;
}

int http_body_take(struct http_req *req, const char *data, size_t len, struct api_error *error) {
    if (len > req->body_max - req->body_len)
        return api_error_set(error, 413, "too_large", NULL, "The body may have at most %llu bytes.",
                             (unsigned long long)req->body_max);
    size_t need = req->body_len + len + 1;
    if (need > req->body_alloc && http_body_grow(req, need, error) < 0)
        return -1;
    memcpy(req->body + req->body_len, data, len);
    req->body_len += len;
    return 0;
}

void http_take_upload(struct http_req *req, const struct http_upload *ops, void *arg) {
    req->upload = ops;
    req->upload_arg = arg;
}

void http_body_refuse(struct http_req *req, const struct api_error *error) {
    req->refused = *error;
    req->phase = HTTP_SWALLOW;
    req->upload = NULL;
    req->gone = NULL;
    req->body_seen = 0;
    http_body_deadline(req->conn);
    http_wake(req);
}

void http_body_release(struct http_req *req) {
    http_hold_end(&req->body_hold);
    free(req->body);
    req->body = NULL;
    req->body_len = 0;
    req->body_alloc = 0;
}

void http_give_body(struct http_req *req, char *body, size_t len, struct http_hold *hold) {
    req->body = body;
    req->body_len = len;
    req->body_alloc = len;
    req->body_hold = *hold;
    *hold = (struct http_hold){0};
}

char *http_take_body(struct http_req *req, size_t *len, struct http_hold *hold) {
    char *body = req->body;
    *len = req->body_len;
    if (hold != NULL)
        *hold = req->body_hold;
    else
        http_hold_end(&req->body_hold);
    req->body_hold = (struct http_hold){0};
    req->body = NULL;
    req->body_len = 0;
    req->body_alloc = 0;
    return body;
}
