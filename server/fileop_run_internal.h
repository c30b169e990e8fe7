/* What the files of the fileop_run module share. */
#pragma once

#include <sys/uio.h>

#include "clock.h"
#include "fileop_feed.h"
#include "fileop_parse.h"
#include "fileop_run.h"
#include "loop.h"
#include "sandbox.h"

/* What the pipe of an operation that fills it is widened to: fewer wake-ups per byte. */
#define FILEOP_RUN_PIPE (1024 * 1024)
#define FILEOP_RUN_PIPE_FULL ((size_t)64 * 1024)
/* Reads per event, so that one operation does not hold up the loop. */
#define FILEOP_RUN_READS 4
/* For so long records are handed out in one turn. With contents much may be done (hashing, a file
 * on our disk for each), so the clock is looked at after each; with others next to nothing, and so
 * many pass. */
#define FILEOP_RUN_NS (CLOCK_NS_PER_MS / 2)
#define FILEOP_RUN_ITEMS 32u

/* The operations of one sandbox. */
struct fileop_lane {
    struct sandbox *sandbox;
    struct loop *loop;
    struct fileop_run *first, *last; /* all, in the order of their coming */
    size_t running, watching, waiting;
    struct loop_timer retry;
};

enum fileop_run_phase {
    FILEOP_RUN_WAITING, /* for a slot */
    FILEOP_RUN_WORKING,
    FILEOP_RUN_OVER, /* done() was called; its process is not gone yet */
};

struct fileop_run {
    struct sandbox_task task;
    struct fileop_lane *lane;
    struct fileop_run *next, *prev;
    enum fileop_run_phase phase;
    const struct fileop_run_ops *ops;
    void *arg;
    bool watch, upload;
    bool opened; /* its stdin was made */
    bool active; /* the task is on the sandbox's list */
    bool paused, skips, cancelled, eof, widened;
    bool taken;       /* its stdout is read by somebody else */
    enum cause cause; /* of the process's end */
    char *path;       /* for sentences; owned */
    struct buf spec;
    int child_in, child_out; /* until they are sent */
    int fd;                  /* its stdout */
    struct loop_source source;
    struct fileop_feed feed;
    struct fileop_parse parse;
    struct loop_defer later;
};

/* A descriptor that is not to be read now is not in the loop at all: a hang-up would be told again
 * and again. */
int fileop_run_watch(struct fileop_run *r);
/* Bytes read, 0 = nothing now or the end (r->eof). */
size_t fileop_run_fill(struct fileop_run *r, const struct iovec *parts, int count);
void fileop_run_end_of_file(struct fileop_run *r);
/* `came` bytes were there at once. */
void fileop_run_widen(struct fileop_run *r, size_t came);
/* Works on from the loop. */
void fileop_run_soon(struct fileop_run *r);
