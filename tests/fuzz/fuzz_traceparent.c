/* The two headers of Trace Context: what is taken can be written and is taken again. */
#include "traceparent.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct traceparent t, again;
    char text[TRACEPARENT_TEXT];
    uint8_t id[TRACEPARENT_ID];
    char *value = fuzz_text(data, size);
    if (traceparent_parse(value, &t)) {
        traceparent_write(&t, text);
        fuzz_require(traceparent_parse(text, &again) && memcmp(&t, &again, sizeof(t)) == 0);
    }
    if (traceparent_parse_id(value, id)) {
        traceparent_hex(id, sizeof(id), text);
        fuzz_require(strncmp(text, value, 2 * sizeof(id)) == 0);
    }
    if (traceparent_state_ok(value))
        fuzz_require(strlen(value) <= TRACEPARENT_STATE_MAX && strchr(value, '\n') == NULL);
    free(value);
    return 0;
}
