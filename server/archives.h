/* Archives that are read or made right now, each by a process without rights (tar_apart.h). The
 * helper that forks them is started with the first of them and ends when none was there for a
 * while. On the loop's thread; nothing here waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "log.h"
#include "loop.h"
#include "tar_apart.h"

/* At once, in the whole server: each is a process. */
#define ARCHIVES_MAX 48u

struct archives {
    struct loop *loop;
    struct log *log;
    int sock; /* to the helper; -1 = there is none */
    unsigned working;
    struct loop_timer idle;
};

void archives_init(struct archives *a, struct loop *loop, struct log *log);
/* The helper ends, and what works for it. Idempotent. */
void archives_stop(struct archives *a);

/* One archive. Embedded in its owner's struct. */
struct archives_job {
    struct archives *archives;
    enum tar_apart_what what;
    int fd; /* of the report; -1 = over, or not begun */
    struct loop_source source;
    void (*over)(void *arg, const struct tar_apart_report *report);
    void *arg;
};

/* As much as there may be works already. */
bool archives_full(const struct archives *a);
/* Has `in` read and `out` written; both are closed here, whatever comes of it. over(arg, report)
 * comes once, never from within; without a report when the process ended before its work was done.
 * `job` says what; it is borrowed. -1: nothing was begun and over() does not come. */
int archives_begin(struct archives *a, struct archives_job *j, const struct tar_apart_job *job,
                   int in, int out, struct err *err);
/* over() does not come any more. The process ends by itself: nobody takes what it writes.
 * Idempotent. */
void archives_forget(struct archives_job *j);
