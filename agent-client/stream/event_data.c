#include "event_data.h"

#include <jansson.h>
#include <string.h>

#include "text.h"

int event_data_bad(struct err *err, const char *type) {
    return err_set(err, ERR_PROTOCOL, 0, "the server sent a malformed event of type %s", type);
}

int event_data_stream(const char *type) {
    if (type == NULL)
        return -1;
    return strcmp(type, "stdout") == 0 ? 0 : strcmp(type, "stderr") == 0 ? 1 : -1;
}

int event_data_bytes(const struct json_t *event, struct buf *space, const char **data, size_t *len,
                     struct err *err) {
    const json_t *value = json_object_get(event, "data");
    const char *encoding = json_string_value(json_object_get(event, "encoding"));
    const char *text = json_string_value(value);
    size_t size = json_string_length(value);

    if (text == NULL)
        return event_data_bad(err, "output");
    if (encoding == NULL || strcmp(encoding, "utf-8") == 0) {
        *data = text;
        *len = size;
        return 0;
    }
    if (strcmp(encoding, "base64") != 0)
        return event_data_bad(err, "output");
    buf_clear(space);
    if (buf_reserve(space, size / 4 * 3 + 4, err) == NULL)
        return -1;
    if (text_base64_decode(text, size, space->data, &space->len, err) < 0)
        return event_data_bad(err, "output");
    *data = space->data;
    *len = space->len;
    return 0;
}
