#include "run_event.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "run_stream.h"
#include "say.h"
#include "str.h"
#include "text.h"

static int run_event_bad(struct err *err, const char *type) {
    return err_set(err, ERR_PROTOCOL, 0, "the server sent a malformed event of type %s", type);
}

static int run_event_accepted(struct run_stream *s, const json_t *event, struct err *err) {
    const char *id = json_string_value(json_object_get(event, "id"));

    /* It becomes a part of paths. */
    if (id == NULL || !str_is_name(id) || !str_copy(s->id, sizeof(s->id), id))
        return run_event_bad(err, "accepted");
    return 0;
}

/* 0 = stdout, 1 = stderr, -1 = neither. */
static int run_event_stream_index(const char *name) {
    if (name == NULL)
        return -1;
    return strcmp(name, "stdout") == 0 ? 0 : strcmp(name, "stderr") == 0 ? 1 : -1;
}

static int run_event_output(struct run_stream *s, int stream, const json_t *event,
                            struct err *err) {
    const json_t *data = json_object_get(event, "data");
    const char *encoding = json_string_value(json_object_get(event, "encoding"));
    const char *text = json_string_value(data);
    size_t len = json_string_length(data);

    if (text == NULL)
        return run_event_bad(err, "output");
    if (s->quiet)
        return 0;
    if (encoding == NULL || strcmp(encoding, "utf-8") == 0)
        return echo_put(&s->echo[stream], text, len, err);
    if (strcmp(encoding, "base64") != 0)
        return run_event_bad(err, "output");
    buf_clear(&s->bytes);
    if (buf_reserve(&s->bytes, len / 4 * 3 + 4, err) == NULL)
        return -1;
    if (text_base64_decode(text, len, s->bytes.data, &s->bytes.len, err) < 0)
        return run_event_bad(err, "output");
    return echo_put(&s->echo[stream], s->bytes.data, s->bytes.len, err);
}

static int run_event_omitted(struct run_stream *s, const json_t *event) {
    const char *stream = json_string_value(json_object_get(event, "stream"));
    json_int_t bytes = json_integer_value(json_object_get(event, "bytes"));

    if (!s->quiet && run_event_stream_index(stream) >= 0 && bytes > 0)
        say_line("%" PRId64 " bytes of %s were lost on the way", (int64_t)bytes, stream);
    return 0;
}

static int run_event_end(struct run_stream *s, const json_t *event, struct err *err) {
    json_int_t step = json_integer_value(json_object_get(event, "step"));

    if (step < 0)
        return run_event_bad(err, "end");
    run_ends_take(&s->ends, (size_t)step, event);
    if (s->quiet)
        return 0;
    if (echo_flush(&s->echo[0], err) < 0)
        return -1;
    return echo_flush(&s->echo[1], err);
}

int run_event_take(struct run_stream *s, const struct json_t *event, struct err *err) {
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *number = json_object_get(event, "seq");
    json_int_t seq = json_integer_value(number);

    if (type == NULL || !json_is_integer(number) || seq < 0)
        return err_set(err, ERR_PROTOCOL, 0, "the server sent an event without type or number");
    if (strcmp(type, "accepted") == 0)
        return run_event_accepted(s, event, err);
    if ((uint64_t)seq <= s->seq)
        return 0;
    s->seq = (uint64_t)seq;
    if (run_event_stream_index(type) >= 0)
        return run_event_output(s, run_event_stream_index(type), event, err);
    if (strcmp(type, "end") == 0)
        return run_event_end(s, event, err);
    if (strcmp(type, "omitted") == 0)
        return run_event_omitted(s, event);
    if (strcmp(type, "done") == 0) {
        s->done = true;
        s->ok = json_is_true(json_object_get(event, "ok"));
    }
    return 0;
}
