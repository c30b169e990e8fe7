/* Receipts: what a run or an execution was asked to do and how it ended, signed by the server.
 *
 *   {"body": {…}, "signature": "<128 hex digits>"}
 *
 * The body is JSON of objects, arrays, strings and integers only. What is signed is made of its
 * canonical form: keys sorted by their bytes, no blanks, UTF-8 as it is, only '"', '\' and what is
 * below U+0020 escaped (RFC 8785 for this kind of JSON), so a receipt may be indented or carried
 * inside another document and still be checked. In Python:
 *
 *   text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
 *   message = b"pinfold receipt 1\n" + hashlib.sha512(text).hexdigest().encode()
 *
 * and the signature is Ed25519 (RFC 8032) of that message. The line in front keeps a signature of
 * anything else from being one of a receipt.
 *
 * The body (a field that does not apply is left out):
 *   receipt    1, the version              key      id of the key: RECEIPT_KEY_ID of it
 *   id, user   of the run                  image    {name, sha256}: of the archive; the engine's Id
 *   policy     {name, sha256 of the file}  network  "none"
 *   limits     {wall_ms: …} of the run     ok       1 or 0
 *   backend    "docker"; left out: a native jail
 *   created_at, ended_at   ms since the epoch, by the server's clock
 *   audit      {seq, hash} of the record in the server's audit log that accepted the run
 *   files_in   {count, bytes, sha256, list: [{path, mode, size, sha256}]}; `list` only when there
 *              are at most RECEIPT_LIST_MAX; `sha256` is the root digest, see receipt_files_root()
 *   steps      [{name, state, ok, argv | sh, cwd, env: [names], env_sha256, stdin, limits (when
 *              other than the run's), end, usage, stdout, stderr}]
 *              stdin {bytes, sha256}; end {cause, exit_code, signal, limit, observed}
 *              stdout, stderr {bytes: written, omitted, sha256: of what the answer shows, the line
 *              about what was left out included}
 *              argv of more than RECEIPT_ARGV_MAX bytes: argv_sha256 (each argument and a NUL);
 *              names of env of more than RECEIPT_ENV_MAX bytes are left out, env_sha256 is not
 *   files_out  as files_in, for what was collected; {path, error} for what could not be
 *
 * That of an execution in a sandbox differs in this:
 *   id         of the execution         sandbox    id of its sandbox; no files_out
 *   limits     of the execution         steps      just one; it may have `pty`, `merge_stderr` and
 *              `stdin_open` (1): then what came on stdin after the start is not covered
 *   files_in   of the directory that cwd is in, as the last sync brought it to its manifest: {root,
 *              count, bytes, sha256, whole, others}; left out when there was no sync since the
 *              server started. A mode that the manifest left open counts as 0. whole 1: the sync
 *              also removed what is not in the manifest. others: how many commands, writing file
 *              operations and restores may have changed files between the beginning of that sync
 *              and the end of this execution, itself aside. With 0 it ran on exactly these files.
 *
 * What a receipt proves: whoever holds the private key says that this server accepted this input
 * under this policy and saw these ends and outputs. What it does not prove: that the server is
 * honest, that its clock is right, or that the program does what its name says. A digest hides
 * nothing that can be guessed: env_sha256 of a four-digit PIN is the PIN to whoever tries them all.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

struct json_t;

#define RECEIPT_VERSION 1
#define RECEIPT_PUBLIC_SIZE 32
#define RECEIPT_SIGNATURE_SIZE 64
#define RECEIPT_KEY_ID_SIZE 17 /* 16 hex digits and NUL */
#define RECEIPT_DIGEST_HEX 129 /* SHA-512 in hex, with NUL */
#define RECEIPT_LIST_MAX 100u
#define RECEIPT_ARGV_MAX 4096u
#define RECEIPT_ENV_MAX 4096u
#define RECEIPT_MESSAGE_SIZE (18u + RECEIPT_DIGEST_HEX)

/* The public half of a server's key. */
struct receipt_public {
    uint8_t bytes[RECEIPT_PUBLIC_SIZE];
};

/* The first 8 bytes of the SHA-256 of the public key, as 16 hex digits. */
void receipt_key_id(const struct receipt_public *key, char id[RECEIPT_KEY_ID_SIZE]);
/* Reads 64 hex digits, white space around them allowed; ERR_INVALID. */
int receipt_key_parse(const char *text, size_t len, struct receipt_public *out, struct err *err);

/* 2 * len digits and a NUL. */
void receipt_hex(const uint8_t *bytes, size_t len, char *out);
/* Exactly 2 * len lower-case digits; -1 when it is anything else. */
int receipt_unhex(const char *text, uint8_t *out, size_t len);

/* Appends the canonical form. ERR_INVALID when there is a real, a boolean or a null in it. */
int receipt_canonical(const struct json_t *value, struct buf *out, struct err *err);
/* What is signed of a canonical body: RECEIPT_MESSAGE_SIZE - 1 bytes and a NUL. */
void receipt_message(const void *body, size_t len, char message[RECEIPT_MESSAGE_SIZE]);

/* Is this an object {body, signature} whose signature this key made? ERR_INVALID says why not.
 * Safe on any input. */
int receipt_check(const struct json_t *receipt, const struct receipt_public *key, struct err *err);

/* A file as a receipt names it. */
struct receipt_file {
    const char *path; /* borrowed */
    size_t path_len;
    uint32_t mode; /* 0…0777 */
    uint64_t size;
    uint8_t sha256[32];
    const char *error; /* borrowed; not NULL: it could not be had, and only the path counts */
};

/* By path, as bytes. */
void receipt_files_sort(struct receipt_file *files, size_t count);
/* SHA-256 over all (sorted) files: "0644 SIZE SHA256 PATH" or "error NAME PATH", each followed by a
 * NUL, the mode in four octal digits. */
void receipt_files_root(const struct receipt_file *files, size_t count, uint8_t root[32]);
