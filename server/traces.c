#include "traces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

static const char traces_state_name[] = "TRACESTATE=";

/* The list may be spread over several headers; the parts are joined. One that is too long or not
 * well formed is not passed on; that is no error. */
static int traces_read_state(struct http_req *req, char **state, struct err *err) {
    const size_t head = sizeof(traces_state_name) - 1;
    char text[sizeof(traces_state_name) + TRACEPARENT_STATE_MAX];
    *state = NULL;
    if (http_header_join(req, "tracestate", text + head, sizeof(text) - head) == 0 ||
        !traceparent_state_ok(text + head))
        return 0;
    memcpy(text, traces_state_name, head);
    *state = strdup(text);
    return *state != NULL ? 0 : err_set(err, ERR_SYSTEM, ENOMEM, "keeping tracestate");
}

/* The request's traceparent. Two of them are as good as none. */
static bool traces_read_header(struct http_req *req, struct traceparent *out) {
    char text[2 * TRACEPARENT_TEXT + 16];
    const char *first = http_header(req, "traceparent");
    return first != NULL && http_header_join(req, "traceparent", text, sizeof(text)) == 1 &&
           traceparent_parse(first, out);
}

int traces_begin(struct server *s, struct http_req *req, const struct trace *inside,
                 struct trace *out, char **state, struct err *err) {
    struct traceparent header;
    struct trace_above above = {.inside = inside};
    if (traces_read_header(req, &header))
        above.header = &header;
    if (trace_begin(&s->trace_pool, &above, out, err) < 0)
        return -1;
    if (state == NULL)
        return 0;
    *state = NULL;
    /* It belongs to the trace of the header, which may not have counted. */
    if (above.header == NULL || memcmp(header.id, out->id, sizeof(header.id)) != 0)
        return 0;
    return traces_read_state(req, state, err);
}

void traces_answer(struct http_req *req, const struct trace *t) {
    char text[TRACEPARENT_TEXT];
    trace_header(t, text);
    http_add_header(req, "traceparent", "%s", text);
}
