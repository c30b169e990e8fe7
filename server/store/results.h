/* STATE/server/results: files that are named by their content (BLAKE2b-256, 64 hex digits). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "store_runs.h"

#define RESULTS_DIR "results"

/* Makes the directory in `server` (STATE/server) and opens it. */
int results_open(int server, struct err *err);

void results_hash(const void *data, size_t len, uint8_t hash[STORE_RUNS_HASH_SIZE]);
void results_name(const uint8_t hash[STORE_RUNS_HASH_SIZE], char name[STORE_RUNS_FILE_SIZE]);

/* These block: they are for workers. */
/* Writes a file, unless it is there; it is on the disk when it returns. */
int results_write(int dir, const char *name, const void *data, size_t len, struct err *err);
/* Reads one; ERR_INVALID when its content is not what its name says. */
int results_read(int dir, const char *name, struct buf *out, struct err *err);

/* Takes it away from its name; what it is called until it is unlinked goes to `hidden`, and the
 * next start removes it in any case. false: there is no such file. */
bool results_hide(int dir, const char *name, char hidden[STORE_RUNS_FILE_SIZE]);

/* Removes what an earlier life left half written. Then walks: the next name that is a file of
 * results, false at the end. */
struct results_walk {
    void *stream; /* private */
};
int results_walk_start(int dir, struct results_walk *w, struct err *err);
bool results_walk_next(struct results_walk *w, int dir, char name[STORE_RUNS_FILE_SIZE]);
void results_walk_stop(struct results_walk *w);
