/* Checks a chain of the audit log and says, in sentences, what is wrong with which record of which
 * file: an edit, a record that is missing, moved, doubled or put in, a missing segment, a cut at
 * either end.
 *
 * What the chain alone cannot show: somebody who can write the log can compute it anew from any
 * record on. The signed checkpoints in it bind that to the key, the head (audit_log.h) shows a cut
 * at the end, and both can be overcome by who has the key as well. Hashes that are kept elsewhere
 * (`expect`) cannot.
 *
 * Safe on any bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit_log.h"
#include "receipt.h"

#define AUDIT_VERIFY_PRUNED_MAX 1024u

/* Hashes of records that must be there, because somebody has kept them. */
struct audit_verify_expect {
    uint8_t hash[32];
    bool found;
};

struct audit_verify {
    /* Set by the caller: */
    const struct receipt_public *key; /* NULL: signatures are not checked */
    void (*problem)(void *arg, const char *sentence);
    void *arg;
    struct audit_verify_expect *expect;
    size_t expect_count;
    const struct audit_mark *pruned; /* everything up to one of these may be missing, signed */
    size_t pruned_count;

    /* Answers: */
    char chain[AUDIT_LINE_CHAIN_SIZE];
    uint64_t first, records, checkpoints, problems, segments;
    struct audit_mark last;
    /* Of records that say what of the chain "log" was removed (they stand in "cmd"). */
    struct audit_mark removed[AUDIT_VERIFY_PRUNED_MAX];
    size_t removed_count;

    /* Private: */
    bool head_seen, head_differs;
    struct audit_log_head head;
    int has_head;
};

/* `v` is zeroed but for what the caller sets. */
void audit_verify_begin(struct audit_verify *v, const char *chain);
/* The segments in their order. */
void audit_verify_segment(struct audit_verify *v, const char *file, const char *data, size_t len);
void audit_verify_end(struct audit_verify *v);

/* All of it for one chain. -1: it could not be read, which says nothing about it. */
int audit_verify_chain(struct audit_verify *v, int server_dir, const char *chain, struct err *err);
