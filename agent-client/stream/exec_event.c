#include "exec_stream.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <termios.h>

#include "event_data.h"
#include "say.h"
#include "str.h"

static int exec_event_accepted(struct exec_stream *s, const json_t *event, struct err *err) {
    const char *id = json_string_value(json_object_get(event, "id"));

    /* It becomes a part of paths. */
    if (id == NULL || !str_is_name(id) || !str_copy(s->id, sizeof(s->id), id))
        return event_data_bad(err, "accepted");
    s->accepted = true;
    return 0;
}

static int exec_event_output(struct exec_stream *s, int stream, const json_t *event,
                             struct err *err) {
    const char *data;
    size_t len;

    if (event_data_bytes(event, &s->bytes, &data, &len, err) < 0)
        return -1;
    if (s->tty != NULL)
        modes_feed(&s->modes, data, len);
    return s->quiet ? 0 : echo_put(&s->echo[stream], data, len, err);
}

static void exec_event_omitted(struct exec_stream *s, const json_t *event) {
    const char *stream = json_string_value(json_object_get(event, "stream"));
    json_int_t bytes = json_integer_value(json_object_get(event, "bytes"));

    if (!s->quiet && bytes > 0)
        say_line("%" PRId64 " bytes of %s were lost on the way", (int64_t)bytes,
                 stream != NULL ? stream : "the output");
}

static int exec_event_end(struct exec_stream *s, const json_t *event, struct err *err) {
    run_ends_take(&s->ends, 0, event);
    if (s->quiet)
        return 0;
    if (echo_flush(&s->echo[0], err) < 0)
        return -1;
    return echo_flush(&s->echo[1], err);
}

int exec_event_take(struct exec_stream *s, const struct json_t *event, struct err *err) {
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *number = json_object_get(event, "seq");
    json_int_t seq = json_integer_value(number);

    if (type == NULL || !json_is_integer(number) || seq < 0)
        return err_set(err, ERR_PROTOCOL, 0, "the server sent an event without type or number");
    resume_heard(&s->resume);
    if (strcmp(type, "accepted") == 0)
        return exec_event_accepted(s, event, err);
    s->accepted = true;
    if ((uint64_t)seq <= s->seq)
        return 0;
    s->seq = (uint64_t)seq;
    if (s->tty != NULL && s->replay != 0 && s->seq >= s->replay) {
        tcflush(s->tty->fd, TCIFLUSH);
        s->replay = 0;
    }
    if (event_data_stream(type) >= 0)
        return exec_event_output(s, event_data_stream(type), event, err);
    if (strcmp(type, "end") == 0)
        return exec_event_end(s, event, err);
    if (strcmp(type, "omitted") == 0)
        exec_event_omitted(s, event);
    if (strcmp(type, "done") == 0) {
        s->done = true;
        s->ok = json_is_true(json_object_get(event, "ok"));
    }
    return 0;
}
