/* What operators see of the server's work: each event is counted (metrics.h) and, as far as the
 * log's level wants it, one line of the log.
 *
 *   event          level   when
 *   run_accepted   debug
 *   run_ended      debug   warn when it is our fault: internal, interrupted
 *   exec_ended     debug   likewise
 *   request        debug   every answer
 *   refused        info    401, 403, 429, 503, 507; at most SEEN_REFUSED_MAX lines a second
 *   not_ready      warn    /readyz has turned red (layer, why), and
 *   ready          info    … green again, as those who ask for it see it
 *   admin          info    changes of users and tokens, done or refused
 *
 * Fields: run or exec, user, token (its id), trace; route and status. Never what users send: no
 * command, no body, no path but as a pattern, no query, no token. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "http.h"
#include "run.h"

#define SEEN_REFUSED_MAX 20u

struct server;
struct exec;

/* How many lines about refusals this second has had. */
struct seen {
    uint64_t second;
    unsigned lines;
    uint64_t left_out; /* since the last line */
    bool red;          /* /readyz, when somebody asked last */
};

struct ready_reason;
/* What /readyz answers. */
void seen_ready(struct server *s, const struct ready_reason *reasons, size_t count);
void seen_request(struct server *s, struct http_req *req);
void seen_run_accepted(struct runs *runs, const struct run *run);
void seen_run_ended(struct runs *runs, const struct run *run);
void seen_exec_ended(const struct exec *x);
