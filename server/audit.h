/* The audit log of the server: who asked for what, under which policy and limits, what was denied,
 * and how it ended. Digests, never contents; no environment, no stdin, no token.
 *
 * STATE/server/audit/log-NNNNNNNNNNNN.jsonl (audit_log.h), outside every jail and closed to all but
 * the server's user. A record is written with one write(2) before what it speaks of begins; when
 * that is not possible nothing begins (503 `audit`), until it is possible again: this is tried with
 * each request and once a second. What ends meanwhile, by itself or by a DELETE, is recorded as
 * soon as it can be.
 *
 * Types of records ("type"):
 *   started     by the server, as is stopped
 *   asked       a request that changes something, before it is looked at closer:
 *               {what, op, id, sandbox, user, token, path}
 *   failed      {of: number of the record `asked`, user, method, route, status, code}
 *   accepted    a run, an execution, a sandbox is about to begin:
 *               {what, id, sandbox, user, token, policy, policy_sha256, image,
 *               image_sha256, limits, argv_sha256, files, files_sha256, from}
 *   ended       {what, id, sandbox, user, cause, exit_code, signal, usage, digests of outputs,
 *               receipt_sha512}
 *   denied      {user, client, method, route, status, code}: 401, 403, 429
 *   summed      {of, user, count, from, to}: what was too much to be written one by one
 *   checkpoint  {key, signature}: the server's key signs the place in the chain
 *   repaired, cut_found, disturbed, lost, recovered: what happened to the log itself
 *
 * What an editor of the log can do, and what shows it: an edit, a cut, a move or a new record
 * breaks the chain. Who computes the chain anew lacks the signatures of the checkpoints. Who
 * removes the end contradicts audit.head. Who has the server's user has the key and the head as
 * well, and can forge all of it: then only what was kept elsewhere speaks (`pinfold-server audit
 * head` on another machine, `audit verify --expect-head`, receipts of users: each names the record
 * that accepted its run, by number and hash). The last second before a kill of the machine, not of
 * the process, may be missing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_error.h"
#include "audit_log.h"
#include "audit_rate.h"
#include "limits_json.h"
#include "log.h"
#include "loop.h"
#include "receipt_key.h"
#include "work.h"

struct audit_options {
    struct loop *loop; /* borrowed, as are the others */
    struct log *log;
    struct work *work;
    const struct receipt_key *key;
    int server_dir;      /* STATE/server; duplicated */
    const char *version; /* of the server */
};

struct audit_sync;

struct audit {
    struct audit_options options;
    struct audit_log chain;
    bool open;
    bool sick;
    char why[480];
    uint64_t tried_ns; /* when writing was last tried while sick */
    uint64_t sick_ms;  /* since when (epoch) */
    uint64_t lost;     /* records that neither could be written nor kept */
    struct buf fields; /* the record that is being made */
    struct audit_rate rate;
    uint64_t unsigned_records; /* since the last checkpoint */
    uint64_t signed_ns;
    uint64_t fired_ns; /* when the timer did its work last */
    uint64_t synced;   /* number of the newest record that is on disk */
    struct loop_timer timer, sums;
    struct audit_sync *sync; /* one that goes on */
};

/* What somebody asks for. NULL and 0: does not apply. */
struct audit_asked {
    const char *type; /* NULL = "accepted"; "asked": whether it is done is not known yet */
    const char *what; /* "run", "exec", "sandbox", "snapshot", "files", "sync", "tokens", "users" */
    const char *op;   /* "create", "delete", … */
    const char *id, *sandbox, *user, *token;
    const char *policy;
    const uint8_t *policy_sha256;
    const char *image;
    const uint8_t *image_sha256; /* zeros: it has none */
    const struct limits *limits;
    const uint8_t *argv_sha256, *files_sha256;
    uint64_t files;
    const char *path; /* as it was asked for; recorded escaped and cut */
    const char *from; /* the run, the snapshot or the sandbox that it is made of */
};

/* Opens the log, repairs and records what has to be, and says that the server has started. */
int audit_start(struct audit *a, const struct audit_options *options, struct err *err);
/* Says that it stops, brings everything to the disk. A zeroed one is allowed, as everywhere. */
void audit_stop(struct audit *a);

/* Why nothing can be recorded, one sentence, valid until the next call; NULL = all is well. Tries
 * again first, when it is time. */
const char *audit_sick(struct audit *a);
/* 0, or -1 with *error = 503 `audit`. */
int audit_check(struct audit *a, struct api_error *error);

/* Records it, before it begins. *mark (may be NULL) is the record's place. -1 with 503 `audit`: it
 * must not begin, and no record says that it did. */
int audit_accepted(struct audit *a, const struct audit_asked *asked, struct audit_mark *mark,
                   struct api_error *error);
/* As audit_accepted(), but no more than some hundred a minute of each user are written one by one;
 * what was only counted has mark->seq 0. */
int audit_accepted_bounded(struct audit *a, const struct audit_asked *asked,
                           struct audit_mark *mark, struct api_error *error);

/* Records what ends something (a cancellation, a deletion): that needs no room and frees some, so
 * it may go on when nothing can be written. The record then waits, as those of ends do. */
void audit_asked_to_end(struct audit *a, const struct audit_asked *asked, struct audit_mark *mark);

/* audit_record.c: fields of records. */
void audit_record_asked(struct buf *out, const struct audit_asked *asked);
struct run;
/* What is asked for with a run that has a name, an owner and inputs; borrowed from it. */
void audit_record_run(struct audit_asked *out, const struct run *run);
void audit_record_run_ended(struct buf *out, const struct run *run);
struct exec;
void audit_record_exec_ended(struct buf *out, const struct exec *x);

void audit_run_ended(struct audit *a, const struct run *run);
void audit_exec_ended(struct audit *a, const struct exec *x);
struct sandbox_spec;
int audit_sandbox_accepted(struct audit *a, const char *id, const struct sandbox_spec *spec,
                           struct api_error *error);
/* A sandbox is gone; `why` as the API says it. */
void audit_sandbox_ended(struct audit *a, const char *id, const char *user, const char *why);
/* What was accepted (as record `seq`) was not done. */
struct audit_answer {
    const char *user, *client, *method, *route; /* client: its address */
    int status;
    const char *code;
};
void audit_failed(struct audit *a, uint64_t seq, const struct audit_answer *answer);
/* Somebody was turned away. */
void audit_denied(struct audit *a, const struct audit_answer *answer);
