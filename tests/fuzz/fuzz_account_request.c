/* The bodies of requests about users and tokens. The first byte chooses the request. */
#include "account_request.h"

#include "fuzz.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const quotas[] = {"runs", "parallel_runs", "sandboxes", "mem_bytes", NULL};
    struct account_request r;
    struct api_error error = {0};
    if (size == 0)
        return 0;
    enum account_request_kind kind = (enum account_request_kind)(data[0] % 4);
    char *json = fuzz_text(data + 1, size - 1);
    if (account_request_decode(json, size - 1, kind, quotas, &r, &error) == 0) {
        fuzz_require((kind != ACCOUNT_REQUEST_USER && kind != ACCOUNT_REQUEST_TOKEN) ||
                     r.name != NULL);
        fuzz_require(r.label == NULL || strlen(r.label) <= ACCOUNT_REQUEST_LABEL_MAX);
        fuzz_require(r.weight <= ACCOUNT_REQUEST_WEIGHT_MAX);
        fuzz_require(r.scopes.count <= ACCOUNT_REQUEST_LIST_MAX &&
                     r.policies.count <= ACCOUNT_REQUEST_LIST_MAX);
        for (size_t i = 0; i < r.scopes.count; i++)
            fuzz_require(r.scopes.item[i] != NULL);
        for (size_t i = 0; i < r.policies.count; i++)
            fuzz_require(r.policies.item[i] != NULL);
        fuzz_require(!r.quota_set[4]);
        account_request_done(&r);
    } else {
        fuzz_require(error.status == 400 || error.status == 413);
        fuzz_require(error.code[0] != '\0' && error.message[0] != '\0');
        fuzz_require(text_is_utf8(error.message, strlen(error.message)) &&
                     text_is_utf8(error.field, strlen(error.field)));
    }
    free(json);
    return 0;
}
