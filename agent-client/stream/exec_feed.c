#include "exec_stream.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "say.h"

static void exec_feed_resized(void *arg, int rc, const struct err *err) {
    struct exec_stream *s = arg;

    (void)err;
    s->resizing = false;
    /* Lost on the way: once more, when the connection is back. */
    if (rc < 0 || resume_worth(s->resize_call.status))
        s->resize_due = true;
    else
        exec_feed_next(s);
}

static void exec_feed_resize(struct exec_stream *s) {
    unsigned rows, cols;

    s->resize_due = false;
    if (!tty_size(s->tty->fd, &rows, &cols))
        return;
    snprintf(s->resize_path, sizeof(s->resize_path), "/v1/sandboxes/%s/exec/%s/resize", s->sandbox,
             s->id);
    snprintf(s->resize_body, sizeof(s->resize_body), "{\"rows\":%u,\"cols\":%u}", rows, cols);
    s->resize_call = (struct rest_call){.method = "POST",
                                        .path = s->resize_path,
                                        .body = s->resize_body,
                                        .body_len = strlen(s->resize_body)};
    s->resizing = rest_beside(s->rest, &s->resize_call, exec_feed_resized, s, NULL) == 0;
}

static void exec_feed_delivered(void *arg, int rc, const struct err *why) {
    struct exec_stream *s = arg;
    struct err err = {0};

    (void)why;
    if (exec_input_answer(&s->input, rc, clock_mono_ms(), &err) < 0)
        say_line("%s", err.text);
    exec_feed_next(s);
}

void exec_feed_next(struct exec_stream *s) {
    struct rest_call *call;

    /* Before the execution is known there is nothing to feed, and while the connection is lost the
     * stream of events is what looks for the server. */
    if (!s->accepted || s->done || !s->online || rest_beside_busy(s->rest))
        return;
    if (s->resize_due && s->tty != NULL) {
        exec_feed_resize(s);
        if (s->resizing)
            return;
    }
    call = exec_input_call(&s->input, s->sandbox, s->id, clock_mono_ms());
    if (call != NULL && rest_beside(s->rest, call, exec_feed_delivered, s, NULL) < 0)
        (void)exec_input_answer(&s->input, -1, clock_mono_ms(), NULL);
}
