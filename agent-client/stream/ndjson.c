#include "ndjson.h"

#include <jansson.h>
#include <string.h>

void ndjson_init(struct ndjson *n, size_t line_max, ndjson_fn fn, void *arg) {
    buf_init(&n->partial, line_max);
    n->line_max = line_max;
    n->fn = fn;
    n->arg = arg;
}

void ndjson_done(struct ndjson *n) {
    if (n != NULL)
        buf_done(&n->partial);
}

void ndjson_reset(struct ndjson *n) {
    buf_clear(&n->partial);
}

static int ndjson_is_blank(const char *line, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return 0;
    return 1;
}

static int ndjson_line(struct ndjson *n, const char *line, size_t len, struct err *err) {
    json_error_t why;
    json_t *object;
    int rc;

    if (len > n->line_max)
        return err_set(err, ERR_PROTOCOL, 0, "the server sent a line of more than %zu bytes",
                       n->line_max);
    if (ndjson_is_blank(line, len))
        return 0;
    object = json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(object)) {
        json_decref(object);
        return err_set(err, ERR_PROTOCOL, 0, "the server sent a line that is not a JSON object");
    }
    rc = n->fn(n->arg, object, err);
    json_decref(object);
    return rc;
}

int ndjson_feed(struct ndjson *n, const char *data, size_t len, struct err *err) {
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t part = end != NULL ? (size_t)(end - data) : len;
        int rc = 0;

        if (end != NULL && n->partial.len == 0) {
            rc = ndjson_line(n, data, part, err);
        } else {
            if (part > n->line_max - n->partial.len)
                return err_set(err, ERR_PROTOCOL, 0,
                               "the server sent a line of more than %zu bytes", n->line_max);
            if (buf_append(&n->partial, data, part, err) < 0)
                return -1;
            if (end != NULL) {
                rc = ndjson_line(n, n->partial.data, n->partial.len, err);
                buf_clear(&n->partial);
            }
        }
        if (rc < 0)
            return -1;
        part += end != NULL;
        data += part;
        len -= part;
    }
    return 0;
}
