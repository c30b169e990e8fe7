/* One record of the audit log: a line of JSON that carries the hash of its predecessor and its own.
 *
 *   {"seq":7,"time":1700000000000,"type":"accepted",…,"prev":"<64 hex>","hash":"<64 hex>"}
 *
 * `hash` is SHA-256 of the line without `,"hash":"…"` and without its newline. By hand:
 *   jq -c 'del(.hash)' FILE | sed -n 3p | tr -d '\n' | sha256sum
 * `prev` of the first record of all is the SHA-256 of "pinfold audit NAME", NAME being the chain's,
 * so that no record fits into another chain.
 *
 * Pure: bytes in, struct out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define AUDIT_LINE_MAX ((size_t)64 * 1024) /* with its newline */
#define AUDIT_LINE_CHAIN_SIZE 8            /* of a chain's name, with its NUL */

/* A place in a chain: the number of a record and its hash. */
struct audit_mark {
    uint64_t seq; /* 0 = before the first */
    uint8_t hash[32];
};

struct audit_line {
    uint64_t seq, time_ms;
    uint8_t prev[32], hash[32];
    bool sound; /* the hash fits the text */
};

/* Where the chain begins. */
void audit_line_genesis(const char *chain, struct audit_mark *out);

/* Appends the record behind *last, whose fields are `fields` ("\"type\":\"x\",…": no braces, valid
 * JSON, no newline), and moves *last on. ERR_LIMIT when the line would be too long. On failure
 * nothing has changed. */
int audit_line_compose(struct buf *out, struct audit_mark *last, uint64_t time_ms,
                       const struct buf *fields, struct err *err);

/* Reads a line (without its newline). -1: it does not have the form of a record. */
int audit_line_parse(const char *line, size_t len, struct audit_line *out);

/* What the server's key signs of a place in a chain: "pinfold audit 1\nNAME SEQ HASH", with the
 * word "pruned " before NAME when it says that everything up to there may be missing. */
#define AUDIT_LINE_MESSAGE_MAX 160
size_t audit_line_message(const char *chain, const struct audit_mark *mark, bool pruned,
                          char message[AUDIT_LINE_MESSAGE_MAX]);
