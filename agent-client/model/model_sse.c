#include "model_sse.h"

#include <stdio.h>
#include <string.h>

void model_sse_init(struct model_sse *s, model_sse_fn fn, void *arg) {
    memset(s, 0, sizeof(*s));
    buf_init(&s->line, MODEL_SSE_EVENT_MAX);
    buf_init(&s->data, MODEL_SSE_EVENT_MAX);
    s->fn = fn;
    s->arg = arg;
}

void model_sse_done(struct model_sse *s) {
    buf_done(&s->line);
    buf_done(&s->data);
}

static int model_sse_deliver(struct model_sse *s, struct err *err) {
    int rc = 0;
    if (s->data.len > 0) {
        /* Each line of data has put a newline behind itself. */
        s->data.len--;
        s->data.data[s->data.len] = '\0';
        rc = s->fn(s->arg, s->event, s->data.data, s->data.len, err);
    }
    s->event[0] = '\0';
    buf_clear(&s->data);
    return rc;
}

static int model_sse_line(struct model_sse *s, struct err *err) {
    const char *line = s->line.data != NULL ? s->line.data : "", *colon = strchr(line, ':');
    size_t name = colon != NULL ? (size_t)(colon - line) : s->line.len;
    if (s->line.len == 0)
        return model_sse_deliver(s, err);
    const char *value = colon != NULL ? colon + 1 : line + s->line.len;
    if (*value == ' ')
        value++;
    size_t len = s->line.len - (size_t)(value - line);
    if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (buf_append(&s->data, value, len, err) < 0 || buf_append(&s->data, "\n", 1, err) < 0)
            return err_wrap(err, "an event of the model's answer");
    } else if (name == 5 && memcmp(line, "event", 5) == 0) {
        snprintf(s->event, sizeof(s->event), "%s", value);
    }
    return 0;
}

int model_sse_feed(struct model_sse *s, const char *bytes, size_t len, struct err *err) {
    while (len > 0) {
        if (s->cr && *bytes == '\n') {
            s->cr = false;
            bytes++;
            len--;
            continue;
        }
        size_t n = 0;
        while (n < len && bytes[n] != '\n' && bytes[n] != '\r')
            n++;
        if (buf_append(&s->line, bytes, n, err) < 0)
            return err_wrap(err, "a line of the model's answer");
        if (n == len)
            return 0;
        s->cr = bytes[n] == '\r';
        bytes += n + 1;
        len -= n + 1;
        int rc = model_sse_line(s, err);
        buf_clear(&s->line);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int model_sse_end(struct model_sse *s, struct err *err) {
    if (s->line.len > 0 && model_sse_line(s, err) < 0)
        return -1;
    buf_clear(&s->line);
    return model_sse_deliver(s, err);
}
