/* The conversation with a model, within a hard budget of tokens.
 *
 * Message 0 is the system's, message 1 the task: both are made by code for every request and are
 * never summed up. What follows are turns: an assistant's message and the results of its calls.
 * When the budget is near, old results are cut first, then whole old turns go; a note made by code
 * says so. A compaction that does not take a third away is a failure, not a success. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "model.h"

#define AGENT_CONTEXT_MESSAGES_MAX 20000u

struct agent_context {
    struct model_message *messages;
    size_t count, alloc;
    uint64_t budget; /* tokens of all messages together */
    size_t compactions;
};

void agent_context_init(struct agent_context *c, uint64_t budget);
void agent_context_done(struct agent_context *c); /* zeroed allowed */
/* Adds a message whose contents are taken over (also on failure). */
int agent_context_add(struct agent_context *c, struct model_message *message, struct err *err);
int agent_context_add_text(struct agent_context *c, enum model_role role, const char *text,
                           struct err *err);
/* The answer to a call. */
int agent_context_add_result(struct agent_context *c, const char *call_id, const char *text,
                             bool failed, struct err *err);
/* The first two, made anew. */
int agent_context_set_head(struct agent_context *c, const char *system, const char *task,
                           struct err *err);
uint64_t agent_context_tokens(const struct agent_context *c);
bool agent_context_is_near(const struct agent_context *c); /* over four fifths of the budget */
/* Shrinks to at most two thirds of what is there, and below half of the budget. `note` (made by
 * code: what was done, what is open) takes the place of what goes. -1: ERR_LIMIT. */
int agent_context_compact(struct agent_context *c, const char *note, struct err *err);

/* As JSON, for a session that is taken up again. */
json_t *agent_context_save(const struct agent_context *c);
/* Answers the calls of the last turn that have no result: whoever was to execute them died. */
int agent_context_complete(struct agent_context *c, const char *text, struct err *err);
int agent_context_load(struct agent_context *c, const json_t *saved, struct err *err);
