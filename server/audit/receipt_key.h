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

/* Signature in hex (129 bytes with the NUL) of any message. All of it is made here, from the key
 * and the message alone: a secret number that was drawn beforehand, while there is time, would be
 * the same number in a copy of the machine's memory (a snapshot that is resumed twice), and two
 * signatures with the same number give the key away. */
void receipt_key_sign(const struct receipt_key *key, const void *message, size_t len,
                      char hex[129]);
