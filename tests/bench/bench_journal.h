/* What a change of a workspace through the journal costs, against a copy that is made durable. */
#pragma once

#include "bench_series.h"
#include "err.h"

#define BENCH_JOURNAL_FILES 100u
#define BENCH_JOURNAL_FILE_BYTES 8192u

struct bench_journal_result {
    struct bench_series change; /* of all the files, by apply_changeset() */
    struct bench_series copy;   /* `cp -a` of them, and fsync of each copy and of their directory */
};

/* Below `scratch`, which is on a disk. */
int bench_journal_run(const char *scratch, unsigned laps, struct bench_journal_result *r,
                      struct err *err);
