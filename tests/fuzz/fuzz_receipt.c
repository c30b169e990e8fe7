/* A receipt, and the key that should have signed it. Nothing that a fuzzer makes is a signature.
 * Parts are separated by 0xff: the key, the receipt. */
#include "receipt.h"

#include <jansson.h>

#include "buf.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct receipt_public key = {.bytes = {7}};
    struct err err = {0};
    struct buf one, two;
    size_t key_len = 0, len = 0;
    const uint8_t *text = fuzz_part(&data, &size, &key_len);
    const uint8_t *body = fuzz_part(&data, &size, &len);
    if (receipt_key_parse((const char *)text, key_len, &key, &err) < 0)
        fuzz_require(err.text[0] != '\0');
    json_t *root =
        json_loadb((const char *)body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (root == NULL)
        return 0;
    fuzz_require(receipt_check(root, &key, &err) < 0 && err.text[0] != '\0');
    buf_init(&one, 1u << 20);
    buf_init(&two, 1u << 20);
    /* What is canonical is so once more. */
    if (receipt_canonical(root, &one, &err) == 0) {
        json_t *again = json_loadb(one.data, one.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        fuzz_require(again != NULL && receipt_canonical(again, &two, &err) == 0);
        fuzz_require(one.len == two.len && memcmp(one.data, two.data, one.len) == 0);
        json_decref(again);
    }
    buf_done(&one);
    buf_done(&two);
    json_decref(root);
    return 0;
}
