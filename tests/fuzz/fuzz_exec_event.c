/* Any bytes as the stream of an execution: the client neither crashes nor grows, and knows at its
 * end what to say. */
#include "exec_stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FUZZ_LINE 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fuzz_event(void *arg, const struct json_t *event, struct err *err) {
    return exec_event_take(arg, event, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct run_body body = {.step_count = 1};
    struct exec_stream s = {.id = "ex_1"};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct err err = {0};
    char why[700];
    size_t cut = size > 0 ? data[0] % size : 0;

    if (null < 0 || run_ends_init(&s.ends, 1, &err) < 0)
        abort();
    buf_init(&s.bytes, FUZZ_LINE);
    ndjson_init(&s.parser, FUZZ_LINE, fuzz_event, &s);
    for (int i = 0; i < 2; i++)
        outq_init(&s.outq[i], null, -1);
    exec_stream_set_echo(&s, false, 64);
    /* In two parts, as a connection may deliver it. */
    if (ndjson_feed(&s.parser, (const char *)data, cut, &err) == 0)
        (void)ndjson_feed(&s.parser, (const char *)data + cut, size - cut, &err);
    run_ends_explain(&s.ends, &body, s.ok, why, sizeof(why));
    if (run_ends_exit_code(&s.ends, &body, s.ok) > 255)
        abort();
    ndjson_done(&s.parser);
    buf_done(&s.bytes);
    run_ends_done(&s.ends);
    for (int i = 0; i < 2; i++) {
        echo_done(&s.echo[i]);
        outq_done(&s.outq[i]);
    }
    close(null);
    return 0;
}
