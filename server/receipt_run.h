/* The receipt of a run (receipt.h has its format).
 *
 * What goes in is hashed when the request has been decoded, while the request is still there: here
 * and now, or by the worker that decoded it when it is large. What comes out is hashed when the run
 * is over: here and now up to RECEIPT_RUN_INLINE bytes, else by a worker. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "receipt.h"
#include "receipt_key.h"
#include "request.h"

#define RECEIPT_RUN_INLINE ((size_t)64 * 1024)

struct run;

/* Where the members that are known beforehand lie in `text`, ready to be copied: argv and cwd, env,
 * sh, stdin. Each ends where the next begins. */
struct receipt_run_step {
    size_t head, env, sh, input, end;
    uint8_t out[32], err[32]; /* digests of its outputs, once it is over */
};

/* Digests of a request. */
struct receipt_inputs {
    struct buf text;
    struct receipt_run_step *steps;
    size_t step_count;
    size_t files_len;        /* `text` begins with the value of "files_in" */
    uint8_t argv_sha256[32]; /* over all steps: "argv" or "sh", NUL, each argument, NUL, NUL */
    uint8_t files_sha256[32];
    uint64_t files, file_bytes;
    char digest[RECEIPT_DIGEST_HEX]; /* of the receipt's body, once there is one */
};

/* Pure; may run on any thread. NULL when memory is short. */
struct receipt_inputs *receipt_inputs_new(const struct run_request *r);
/* Only the digest of the commands. */
void receipt_inputs_argv(const struct run_request *r, uint8_t out[32]);
void receipt_inputs_free(struct receipt_inputs *in); /* NULL allowed */

struct json_out;
/* Members of an object {count, bytes, sha256, list} of sorted files. */
void receipt_inputs_write_files(struct json_out *j, const struct receipt_file *files, size_t count,
                                uint8_t root[32]);
/* A member with 64 hex digits. */
void receipt_inputs_hex(struct json_out *j, const char *key, const uint8_t hash[32]);

/* Bytes that have to be hashed when it is over. */
size_t receipt_run_weight(const struct run *run);
/* Makes and signs the receipt of a run that is over (but for its phase): sets run->receipt. Touches
 * nothing else of the run but run->inputs, and may run on a thread while nobody else changes it.
 * Without run->inputs it makes none. */
int receipt_run_make(struct run *run, const struct receipt_key *key, struct err *err);
