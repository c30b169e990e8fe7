/* The receipt of an execution in a sandbox (receipt.h has its format).
 *
 * What was asked for is put into words when it is accepted, while the request is there, and lies in
 * the journal with the start of the execution. The receipt itself is made and signed when somebody
 * asks for it, of what is kept then. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "audit.h"
#include "buf.h"
#include "err.h"
#include "exec_request.h"
#include "receipt_key.h"
#include "sandbox.h"
#include "spool.h"
#include "spool_events.h"
#include "wire.h"

struct exec;
struct receipt_exec;

/* NULL: memory is short, or the command is too long to be kept twice; then there is no receipt. */
struct receipt_exec *receipt_exec_new(const struct sandbox *sb, const struct exec_request *r,
                                      const struct audit_mark *accepted);
void receipt_exec_free(struct receipt_exec *x); /* NULL allowed */

/* As bytes of the journal, borrowed; and back: NULL when they are not sound. */
struct iovec receipt_exec_bytes(const struct receipt_exec *x);
struct receipt_exec *receipt_exec_read(const void *bytes, size_t len);

/* What of its sandbox is in it: that may be gone while a worker makes the receipt. */
struct receipt_exec_place {
    char sandbox[SANDBOX_ID_SIZE], owner[SANDBOX_OWNER_SIZE];
    char image[WIRE_NAME_MAX], policy[WIRE_NAME_MAX];
    uint8_t policy_sha256[32], image_sha256[32]; /* image: zeros = it has none */
    enum backend backend;
    const struct receipt_key *key; /* borrowed */
};
void receipt_exec_place(const struct exec *x, const struct receipt_key *key,
                        struct receipt_exec_place *out);
/* Of one that is over and has x->receipt. `streams` as for exec_answer_encode(): may run on another
 * thread. */
int receipt_exec_write(const struct exec *x, const struct receipt_exec_place *place,
                       struct spool streams[SPOOL_STREAMS], struct buf *out, struct err *err);
