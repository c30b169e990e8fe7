/* The bodies of large requests, which lie in files named by their content (results.h). The same one
 * may be brought by several requests at once: its file stays as long as one of them needs it, and
 * afterwards as long as a row of the database does. Any thread may hold one and let it go. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "err.h"
#include "store_runs.h"
#include "work.h"

#define BODIES_BUCKETS 256u

struct bodies_held;

struct bodies {
    pthread_mutex_t lock;
    struct bodies_held *held[BODIES_BUCKETS];
};

void bodies_init(struct bodies *b);
void bodies_done(struct bodies *b);

/* From now on its file is not removed: to be called before it is written, or found to be there. */
int bodies_hold(struct bodies *b, const char name[STORE_RUNS_FILE_SIZE], struct err *err);
/* Of one that was held. -> nobody else holds it. */
bool bodies_let_go(struct bodies *b, const char name[STORE_RUNS_FILE_SIZE]);
/* Removes the file that no row names, unless somebody holds it: a worker does what takes long. */
void bodies_remove(struct bodies *b, struct work *work, int dir,
                   const char name[STORE_RUNS_FILE_SIZE]);
