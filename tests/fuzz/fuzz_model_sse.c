/* The stream of a model, bytes as they come: server-sent events, then a protocol's events, then the
 * reply that is made of them. The first byte chooses the protocol, whether it is a whole answer
 * rather than a stream, and into how many pieces it falls. */
#include "model_sse.h"

#include <jansson.h>

#include "fuzz.h"
#include "model_internal.h"

struct fuzz_stream {
    const struct model_wire *wire;
    struct model_answer *answer;
};

static int fuzz_event(void *arg, const char *event, const char *data, size_t len, struct err *err) {
    struct fuzz_stream *f = arg;
    fuzz_require(len <= MODEL_SSE_EVENT_MAX && event != NULL);
    if (len == 6 && memcmp(data, "[DONE]", 6) == 0)
        return f->wire->event(f->answer, event, NULL, err);
    json_t *object = json_loadb(data, len, 0, NULL);
    int rc = json_is_object(object) ? f->wire->event(f->answer, event, object, err)
                                    : err_set(err, ERR_PROTOCOL, 0, "no object");
    json_decref(object);
    return rc;
}

static int fuzz_whole(struct fuzz_stream *f, const char *data, size_t size, struct err *err) {
    json_t *root = json_loadb(data, size, 0, NULL);
    int rc = json_is_object(root) ? f->wire->whole(f->answer, root, err)
                                  : err_set(err, ERR_PROTOCOL, 0, "no object");
    json_decref(root);
    return rc;
}

static int fuzz_pieces(struct fuzz_stream *f, const char *data, size_t size, size_t piece,
                       struct err *err) {
    struct model_sse sse;
    int rc = 0;
    model_sse_init(&sse, fuzz_event, f);
    for (size_t at = 0; rc == 0 && at < size; at += piece)
        rc = model_sse_feed(&sse, data + at, size - at < piece ? size - at : piece, err);
    if (rc == 0)
        rc = model_sse_end(&sse, err);
    model_sse_done(&sse);
    return rc;
}

static void fuzz_reply(const struct model_reply *reply) {
    for (size_t i = 0; i < reply->message.call_count; i++) {
        const struct model_call *call = &reply->message.calls[i];
        json_t *arguments = json_loads(call->arguments, 0, NULL);
        fuzz_require(call->id != NULL && call->name != NULL && json_is_object(arguments));
        json_decref(arguments);
    }
    fuzz_require(reply->message.call_count <= MODEL_CALLS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model m = {0};
    struct model_answer answer;
    struct model_reply reply = {0};
    struct err err = {0};
    if (size == 0)
        return 0;
    struct fuzz_stream f = {data[0] & 1 ? &model_openai : &model_anthropic, &answer};
    const char *bytes = (const char *)data + 1;
    size_t piece = data[0] & 4 ? 1u + (size_t)(data[0] >> 3) : size;
    model_answer_init(&answer, &m);
    int rc = data[0] & 2 ? fuzz_whole(&f, bytes, size - 1, &err)
                         : fuzz_pieces(&f, bytes, size - 1, piece, &err);
    fuzz_require(rc == 0 || err.text[0] != '\0');
    if (rc == 0 && model_answer_finish(&answer, &reply, &err) == 0)
        fuzz_reply(&reply);
    model_reply_done(&reply);
    model_answer_done(&answer);
    return 0;
}
