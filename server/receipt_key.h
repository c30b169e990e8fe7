/* The server's Ed25519 key: STATE/server/receipt.key, 0600, 64 hexadecimal digits (the seed) and a
 * newline. It signs receipts and the heads of the audit log. Made once; who replaces it keeps the
 * old public key, or old receipts cannot be checked any more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "receipt.h"

#define RECEIPT_KEY_FILE "receipt.key"

struct receipt_key {
    unsigned char secret[64]; /* as libsodium has it */
    unsigned char scalar[32]; /* the secret scalar, reduced */
    struct receipt_public public;
    char id[RECEIPT_KEY_ID_SIZE];
};

/* Loads the key from the directory, which is STATE/server, or makes it. *made (may be NULL) says
 * which. A file that is no key is ERR_INVALID and not touched. As root, a new file gets the owner
 * of the directory. */
int receipt_key_open(int dir, struct receipt_key *out, bool *made, struct err *err);
/* Only loads. */
int receipt_key_load(int dir, struct receipt_key *out, struct err *err);
/* Overwrites the secret. */
void receipt_key_wipe(struct receipt_key *key);

/* The half of a signature that does not depend on what is signed: a secret number and its point.
 * Multiplying that point is nearly all that a signature costs, so it is done beforehand, while the
 * program of the run has the processor. Good for one signature only: two with the same number give
 * the key away. So it belongs to one run and is wiped when it is used. The number comes from the
 * kernel's generator, hashed together with the key. */
struct receipt_key_half {
    unsigned char number[32], point[32];
    bool ready;
};
void receipt_key_prepare(const struct receipt_key *key, struct receipt_key_half *half);
/* As receipt_key_sign(), with a half that is ready, and is not any more afterwards. The signature
 * is one like any other to whoever checks it. */
void receipt_key_finish(const struct receipt_key *key, struct receipt_key_half *half,
                        const void *message, size_t len, char hex[129]);

/* Signature in hex (129 bytes with the NUL) of any message. */
void receipt_key_sign(const struct receipt_key *key, const void *message, size_t len,
                      char hex[129]);
