#include "run_event.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "event_data.h"
#include "run_stream.h"
#include "say.h"
#include "str.h"

static int run_event_accepted(struct run_stream *s, const json_t *event, struct err *err) {
    const char *id = json_string_value(json_object_get(event, "id"));

    /* It becomes a part of paths. */
    if (id == NULL || !str_is_name(id) || !str_copy(s->id, sizeof(s->id), id))
        return event_data_bad(err, "accepted");
    return 0;
}

static int run_event_output(struct run_stream *s, int stream, const json_t *event,
                            struct err *err) {
    const char *data;
    size_t len;

    if (event_data_bytes(event, &s->bytes, &data, &len, err) < 0)
        return -1;
    return s->quiet ? 0 : echo_put(&s->echo[stream], data, len, err);
}

static int run_event_omitted(struct run_stream *s, const json_t *event) {
    const char *stream = json_string_value(json_object_get(event, "stream"));
    json_int_t bytes = json_integer_value(json_object_get(event, "bytes"));

    if (!s->quiet && event_data_stream(stream) >= 0 && bytes > 0)
        say_line("%" PRId64 " bytes of %s were lost on the way", (int64_t)bytes, stream);
    return 0;
}

static int run_event_end(struct run_stream *s, const json_t *event, struct err *err) {
    json_int_t step = json_integer_value(json_object_get(event, "step"));

    if (step < 0)
        return event_data_bad(err, "end");
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
    if (event_data_stream(type) >= 0)
        return run_event_output(s, event_data_stream(type), event, err);
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
