/* Durable state: one SQLite database, STATE/server/pinfold.db, behind this header. No other file of
 * the server but store*.c knows a statement, a table or sqlite3.h, so that a second implementation
 * (PostgreSQL) is a second set of these files.
 *
 * One connection, on the loop's thread. Journal mode WAL, synchronous=NORMAL: a commit is a
 * write(2) into the page cache, which survives every death of the process (kill -9 included); a
 * power cut may lose the last moments, never the consistency. The fsyncs that WAL needs
 * (checkpoints) are made by a thread with a connection of its own. What is left for the loop to
 * wait for is one fdatasync of the log's first page, when the log begins anew after a checkpoint:
 * were it left out, a power cut could bring back frames that are older than the database.
 *
 * Group commit: everything that is written within one round of the loop is one transaction. Who
 * must not speak before his words are durable asks store_then(); after the commit, still within the
 * round, his function is called. When a commit fails (disk full, I/O error) everything of the round
 * is rolled back, each function gets the error, and the store is `sick` until a write succeeds
 * again; store_probe() tries one now and then.
 *
 * Text and blobs that are returned are copies that the caller frees, unless a comment says else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "log.h"
#include "loop.h"

struct store;

struct store_options {
    struct loop *loop; /* borrowed; NULL = a command line tool: each call commits for itself */
    struct log *log;
    int dir; /* STATE/server; borrowed; ERR_STATE unless its owner is the caller */
};

/* For a command of the administrator: as root it becomes the owner of STATE/server for good, so
 * that no file of the database gets another owner, then opens. It may run beside the server. */
struct state;
int store_open_tool(const struct state *state, struct store **out, struct err *err);

/* Opens, and brings the tables to the newest version (PRAGMA user_version, one transaction a step).
 * A database of a newer version is refused with one sentence and not touched (ERR_STATE). */
int store_open(const struct store_options *options, struct store **out, struct err *err);
/* Commits what is open, runs the functions that wait, checkpoints. NULL allowed. */
void store_close(struct store *s);

/* Would store_open() take the database in this directory? 0: yes, or there is none yet; -1: *err
 * says why not. Changes nothing, and may be asked beside a running server. */
int store_check(int dir, struct err *err);

/* Called when what was written in this round is durable (rc 0), or is not (rc -1, *err says why).
 */
struct store_waiter {
    void (*fn)(void *arg, int rc, const struct err *err);
    void *arg;
    struct store_waiter *next; /* private */
    bool waiting;              /* private, as is the rest */
    bool settled, failed;      /* what it waits for has been committed, or not */
};
/* Embedded in its owner; idempotent while it waits. Without a loop, or with nothing written in this
 * round, fn is called before the function returns. */
void store_then(struct store *s, struct store_waiter *w);
void store_then_stop(struct store *s, struct store_waiter *w);
/* Has anything been written in this round that is not durable yet? The answer to a request that is
 * made meanwhile is held back by http until it is (http_hold()), and becomes 507 or 503 when it
 * cannot be; handlers that write a few rows and answer need not care. */
bool store_writing(const struct store *s);

/* Commits what has been written in this round before it is over, for what must not begin before.
 * Waiters are called at the end of the round all the same, each with what became of his own. */
int store_commit_now(struct store *s, struct err *err);
/* Transactions committed so far: two calls that see the same number are in the same one. */
uint64_t store_round(const struct store *s);
/* Nothing is asked for: pages of the database that are kept in memory go. */
void store_rest(struct store *s);
/* Somebody else met a full disk beside the database. */
void store_failed(struct store *s, const struct err *why);
/* Called when it was sick and can write again. */
void store_on_well(struct store *s, void (*fn)(void *arg), void *arg);

/* Why nothing can be written now (one sentence, valid until the next call), or NULL. While it is
 * not NULL no new work is taken (507 no_space, else 503 store). */
const char *store_sick(struct store *s);
/* Is it the space that is short? */
bool store_full(const struct store *s);
/* Tries to write, when it was sick. True = it works. */
bool store_probe(struct store *s);
