/* The body of a model's error answer: one sentence comes out, and never the key. */
#include "fuzz.h"
#include "model_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char key[] = "sk-0123456789";
    struct model_reply reply = {0};
    struct err err = {0};
    if (size < 1)
        return 0;
    char *body = fuzz_text(data + 1, size - 1);
    model_error_read(body, size - 1, 400 + data[0], key, &reply, &err);
    fuzz_require(err.text[0] != '\0' && reply.failure != MODEL_OK);
    fuzz_require(strstr(err.text, key) == NULL);
    (void)model_error_names(body, "max_completion_tokens");
    model_reply_done(&reply);
    free(body);
    return 0;
}
