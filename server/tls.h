/* The certificate and key with which HTTPS is spoken, and their renewal while connections go on.
 *
 * A connection keeps (counted) the pair that it began with; after tls_reload() new ones get the new
 * pair. A renewal that cannot be read, does not fit together or is out of date changes nothing. */
#pragma once

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define TLS_CHAIN_MAX 16u
/* TLS 1.3 and 1.2; only exchanges with forward secrecy, only authenticated ciphers. Clients guess
 * X25519; another group in front would cost them a round trip. */
#define TLS_PRIORITIES                                                                             \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-AES-128-CBC:-AES-256-CBC:-GROUP-ALL:"        \
    "+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%SERVER_PRECEDENCE"

struct tls;

/* A chain, the server's own certificate first, and its key. */
struct tls_pair {
    gnutls_pcert_st chain[TLS_CHAIN_MAX];
    unsigned count;
    gnutls_privkey_t key;
    uint64_t begins_s, ends_s; /* since the epoch: when the server's own certificate is valid */
    char names[256];           /* whom it is for: "localhost, 127.0.0.1", cut with "..." */
    unsigned refs;
};

/* Reads both files (PEM; relative names count from the current directory, now and at each reload).
 * Refuses what cannot be read, a chain that is not in order, and a key that belongs to another
 * certificate; not one that is out of date. */
int tls_open(const char *certificate, const char *key, struct tls **out, struct err *err);
void tls_free(struct tls *t); /* NULL allowed */
/* Reads both again. -1: the old pair stays. Refuses also what is out of date. */
int tls_reload(struct tls *t, struct err *err);

/* The pair that counts now; borrowed. */
struct tls_pair *tls_pair(const struct tls *t);
struct tls_pair *tls_pair_keep(struct tls_pair *p);
void tls_pair_drop(struct tls_pair *p); /* NULL allowed */
/* Is it out of date at this time? -1 with one sentence. */
int tls_pair_dates(const struct tls_pair *p, uint64_t now_s, struct err *err);
