/* How much the model can hold: what was asked for, else what its server says. */
#include <stdio.h>

#include "agent.h"

#define AGENT_LIMIT_DEFAULT 32768u
#define AGENT_LIMIT_LEAST 2048u
#define AGENT_LIMIT_ANSWER 4096u

static int agent_limit_apply(struct agent *a, uint64_t tokens, struct err *err) {
    uint64_t quarter = tokens / 4;
    uint64_t answer = a->given.answer != 0           ? a->given.answer
                      : quarter < AGENT_LIMIT_ANSWER ? quarter
                                                     : AGENT_LIMIT_ANSWER;
    if (tokens < AGENT_LIMIT_LEAST)
        return err_set(err, ERR_LIMIT, 0,
                       "the model holds %llu tokens, and less than %u are of no use here",
                       (unsigned long long)tokens, AGENT_LIMIT_LEAST);
    if (answer * 2 > tokens)
        return err_set(err, ERR_INVALID, 0,
                       "--answer must be at most half of the context, which has %llu tokens",
                       (unsigned long long)tokens);
    a->o.context = tokens;
    a->o.answer = answer;
    a->context.budget = tokens - answer;
    return 0;
}

int agent_limit(struct agent *a, struct err *err) {
    uint64_t tokens = a->given.context;
    a->limit_from = "option";
    if (tokens == 0) {
        tokens = model_limit(a->model);
        a->limit_from = "model";
    }
    if (tokens == 0) {
        tokens = AGENT_LIMIT_DEFAULT;
        a->limit_from = "default";
    }
    return agent_limit_apply(a, tokens, err);
}

/* Some know it only of a model that is loaded, which it is when it has answered. */
void agent_limit_again(struct agent *a) {
    struct err err;
    uint64_t tokens;
    if (a->limit_asked || a->limit_from == NULL || a->limit_from[0] != 'd')
        return;
    a->limit_asked = true;
    tokens = model_limit(a->model);
    if (tokens == 0)
        return;
    a->limit_from = "model";
    if (agent_limit_apply(a, tokens, &err) < 0)
        agent_end(a, AGENT_CONTEXT, "%s", err.text);
}
