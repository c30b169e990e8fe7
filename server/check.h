/* What `pinfold-server check` looks at: would a server with these settings start, and would its
 * users be served? Each finding is one line: what was looked at, and a plain sentence. */
#pragma once

#include <stdbool.h>

#include "config.h"
#include "err.h"
#include "state.h"

enum check_verdict {
    CHECK_OK,
    CHECK_WARN, /* the server starts, but somebody should know */
    CHECK_FAIL, /* the server does not start, or serves nobody */
};

struct check {
    const struct config *config;
    const char *policies; /* directory; NULL = where the runner looks usually */
    bool quiet;           /* say nothing of what is right */
    struct state state;
    struct state_user user;
    bool user_known, serving; /* a server runs with this state directory */
    unsigned failed, warned;
};

void check_say(struct check *c, enum check_verdict verdict, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void check_err(struct check *c, enum check_verdict verdict, const char *what,
               const struct err *err);

/* check_state.c: the state directory, before and after root was given up. */
void check_state(struct check *c);
void check_state_as_user(struct check *c);
/* check_policies.c: what the runner reads. */
void check_policies(struct check *c);
/* check_network.c: address, port, certificate. */
void check_network(struct check *c);
void check_network_as_user(struct check *c);
