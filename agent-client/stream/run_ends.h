/* How the steps of a run ended, and what that means for our exit status. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "end_json.h"
#include "err.h"
#include "run_body.h"

struct json_t;

struct run_ends_step {
    bool ended;
    struct step_end end; /* CAUSE_INTERNAL when the server named a cause that we do not know */
    uint64_t wall_ms;    /* from its usage */
};

struct run_ends {
    struct run_ends_step *steps; /* owned */
    size_t count;
};

int run_ends_init(struct run_ends *r, size_t count, struct err *err);
void run_ends_done(struct run_ends *r);

/* Takes the "end" and "usage" of an `end` event. Events of steps that do not exist are ignored. */
void run_ends_take(struct run_ends *r, size_t step, const struct json_t *event);

/* The step that decides: the last one that was not ok and that the run did not pass over; -1 when
 * there is none. */
long run_ends_failed(const struct run_ends *r, const struct run_body *body);

/* The exit status of a run that is over; `ok` is the server's verdict. */
int run_ends_exit_code(const struct run_ends *r, const struct run_body *body, bool ok);

/* The sentence for people, "" when there is nothing to explain: an only step that returned. */
void run_ends_explain(const struct run_ends *r, const struct run_body *body, bool ok, char *dst,
                      size_t size);
