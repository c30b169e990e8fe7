/* Any bytes as a segment of the audit log: the check neither crashes nor calls them sound, unless
 * there is nothing in them. */
#include "audit_verify.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_problem(void *arg, const char *sentence) {
    (void)arg;
    if (strlen(sentence) < 10)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct receipt_public key;
    struct audit_verify *v = calloc(1, sizeof(*v));
    unsigned char secret[64], seed[32] = {7};
    if (v == NULL)
        return 0;
    crypto_sign_seed_keypair(key.bytes, secret, seed);
    v->key = &key;
    v->problem = fuzz_problem;
    audit_verify_begin(v, AUDIT_LOG_SERVER);
    audit_verify_segment(v, "audit/log-000000000001.jsonl", (const char *)data, size);
    audit_verify_end(v);
    /* Without a head, records are a problem in any case. */
    if (size > 0 && v->problems == 0)
        abort();
    free(v);
    return 0;
}
