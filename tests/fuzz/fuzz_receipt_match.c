/* Any JSON as the answer of a run with a receipt: checking it neither crashes nor believes it, and
 * a body that has a canonical form has the same one after a round trip. */
#include "receipt_match.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "receipt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_canonical(const json_t *body) {
    struct buf once, again;
    buf_init(&once, 1024 * 1024);
    buf_init(&again, 1024 * 1024);
    if (receipt_canonical(body, &once, NULL) == 0) {
        json_t *back = json_loadb(once.data, once.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (back == NULL || receipt_canonical(back, &again, NULL) < 0 || once.len != again.len ||
            memcmp(once.data, again.data, once.len) != 0)
            abort();
        json_decref(back);
    }
    buf_done(&once);
    buf_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct receipt_public key = {.bytes = {1}};
    json_t *root =
        json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *receipt = json_object_get(root, "receipt");
    const json_t *body = json_object_get(receipt, "body");
    struct receipt_match m;
    struct err err;

    if (root == NULL)
        return 0;
    if (receipt_check(receipt != NULL ? receipt : root, &key, &err) == 0)
        abort(); /* nobody has the other half of this key */
    receipt_match_init(&m);
    receipt_match_answer(&m, root, body);
    if (m.text.len > RECEIPT_MATCH_TEXT_MAX)
        abort();
    receipt_match_done(&m);
    if (body != NULL)
        fuzz_canonical(body);
    json_decref(root);
    return 0;
}
