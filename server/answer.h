/* A run as JSON: the answer, its events, its line in a listing. */
#pragma once

#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "run.h"

/* Encoded bytes that several answers may share. Counted on the loop's thread only. */
struct answer_bytes {
    size_t refs;
    size_t len;
    char *data; /* owned */
};

/* Takes over `data` (malloc'ed). NULL when memory is short, `data` is then freed. */
struct answer_bytes *answer_bytes_new(char *data, size_t len);
struct answer_bytes *answer_bytes_keep(struct answer_bytes *b);
void answer_bytes_drop(struct answer_bytes *b); /* NULL allowed */

/* Roughly how many bytes answer_encode() has to look at. */
size_t answer_weight(const struct run *run);
/* The whole object. Of a finished run it may be made on any thread; it only reads. `position` is
 * that in the queue, for runs that wait. */
int answer_encode(const struct run *run, size_t position, struct buf *out, struct err *err);
/* {"id", "state", "ok", "created_at", "policy", "steps", "failed_step", "cause",
 * "exit_code"}: for listings. `over`: of one that is about to be stored as done. */
int answer_encode_summary(const struct run *run, bool over, struct buf *out, struct err *err);

/* The end that counts: that of the step that failed, else of the last one that ran; NULL = none. */
const struct step_end *answer_run_end(const struct run *run);

/* Parts that the answers of runs and of executions have alike: "usage", "end", both outputs,
 * "limits", "end_on". */
struct json_out;
void answer_usage(struct json_out *j, const struct wire_usage *u);
void answer_end(struct json_out *j, const struct step_end *end);
void answer_outputs(struct json_out *j, const struct capture *out, const struct capture *err);
void answer_limits(struct json_out *j, const struct limits_effective *limits);
void answer_end_on(struct json_out *j, uint32_t mask);
/* Ends an event and its line. */
int answer_event_close(struct json_out *j, struct err *err);
/* Takes off what is not a whole line: memory was short in the middle of an event. */
void answer_event_cut(struct buf *out);

/* Appends the events after w->after as lines, about `want` bytes of them, and moves the watcher on.
 * Returns 1 when the last event of the run was among them or before, else 0; -1 when memory is
 * short. */
int answer_events(struct run *run, struct run_watcher *w, size_t want, struct buf *out,
                  struct err *err);
