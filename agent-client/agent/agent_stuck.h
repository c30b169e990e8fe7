/* Going round in circles: the same action, with the same outcome, again and again. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_STUCK_TIMES 3u

struct agent_stuck {
    unsigned char action[32]; /* digest of the last one */
    unsigned actions;         /* how often it came in a row */
    unsigned char failing[32];
    unsigned failures;
};

/* An action (tool and arguments) with its outcome. true: it is the same for the third time in a
 * row. */
bool agent_stuck_action(struct agent_stuck *s, const char *tool, const char *arguments,
                        const char *outcome);
/* A verifier's failures, as one text. true: the same set for the third time in a row. "" = none,
 * which begins anew. */
bool agent_stuck_failing(struct agent_stuck *s, const char *set);
