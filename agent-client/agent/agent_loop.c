#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_text.h"
#include "clock.h"

#define AGENT_LOOP_RESULT_MAX ((size_t)256 * 1024)
#define AGENT_LOOP_SILENT 3u /* answers without a call before it ends */

void agent_end(struct agent *a, enum agent_exit code, const char *fmt, ...) {
    va_list args;
    if (a->over)
        return; /* the first reason counts */
    va_start(args, fmt);
    vsnprintf(a->why, sizeof(a->why), fmt, args);
    va_end(args);
    a->code = code;
    a->over = true;
}

/* Made anew for every request: nothing of it is ever summed up. */
static int agent_loop_head(struct agent *a, struct err *err) {
    static const char system[] =
        "You work on a workspace of files by calling tools. Commands run in a sandbox without a "
        "network. Rules decide what you may do; what is denied stays denied. Nothing is done until "
        "you call `done` and the verifier passes: what you say about it does not count. Read "
        "before you edit. Keep changes small. Tests that are there must not be weakened.";
    struct buf task;
    buf_init(&task, (size_t)1024 * 1024);
    int rc = buf_printf(&task, err, "Task:\n%s\n\nVerifier (run by `done`): %s\n", a->o.task,
                        a->o.verify);
    if (rc == 0 && a->todo != NULL)
        rc = buf_printf(&task, err, "\nYour notes:\n%s\n", a->todo);
    if (rc == 0 && a->last.ran)
        rc = buf_printf(&task, err, "\nThe verifier's last verdict: %s (%s)\n",
                        a->last.pass ? "pass" : "fail", a->last.why);
    if (rc == 0)
        rc = agent_context_set_head(&a->context, system, task.data, err);
    buf_done(&task);
    return rc;
}

static int agent_loop_compact(struct agent *a, struct err *err) {
    char note[300];
    uint64_t before = agent_context_tokens(&a->context);
    snprintf(note, sizeof(note),
             "[Earlier turns were removed to make room. So far: %llu requests, %zu sets of changes "
             "made (they are in the files). Read files again before you edit them.]",
             (unsigned long long)a->iterations, a->changes);
    if (agent_context_compact(&a->context, note, err) < 0)
        return -1;
    agent_say_event(a, "compaction",
                    json_pack("{s:I, s:I}", "before", (json_int_t)before, "after",
                              (json_int_t)agent_context_tokens(&a->context)));
    return 0;
}

uint64_t agent_loop_left_ms(const struct agent *a) {
    uint64_t wall = a->spent_ms + clock_mono_ms() - a->begun_ms;
    return wall < a->o.wall_ms ? a->o.wall_ms - wall : 0;
}

/* false: the time is over, and so is the loop. */
static bool agent_loop_in_time(struct agent *a) {
    if (agent_loop_left_ms(a) > 0)
        return true;
    agent_end(a, AGENT_BUDGET, "%llu s are over, and that is the limit",
              (unsigned long long)(a->o.wall_ms / 1000));
    return false;
}

/* Bounds that hold before a request is sent. false: the loop is over. */
static bool agent_loop_may(struct agent *a) {
    if (a->iterations >= a->o.max_iters)
        agent_end(a, AGENT_NOT_VERIFIED, "%llu requests were made, and that is the limit",
                  (unsigned long long)a->iterations);
    else if (!agent_loop_in_time(a))
        return false;
    else if (a->o.budget_tokens != UINT64_MAX && a->tokens >= a->o.budget_tokens)
        agent_end(a, AGENT_BUDGET, "%llu tokens were used, and that is the budget",
                  (unsigned long long)a->tokens);
    else if (a->o.budget_micro != UINT64_MAX && a->micro_usd >= a->o.budget_micro)
        agent_end(a, AGENT_BUDGET, "%.4f USD were spent, and that is the budget",
                  (double)a->micro_usd / 1e6);
    else if (a->o.budget_micro != UINT64_MAX && a->priceless)
        agent_end(a, AGENT_BUDGET,
                  "what a request cost is not known, so the budget cannot be kept (--prices)");
    return !a->over;
}

/* A server that tells no usage is not free: what was sent and what came, guessed high. */
static uint64_t agent_loop_guess(const struct agent *a, const struct model_reply *r) {
    uint64_t sent = agent_context_tokens(&a->context) * (r->attempts > 0 ? r->attempts : 1);
    if (r->failure != MODEL_OK && r->failure != MODEL_BROKEN && r->failure != MODEL_CANCELLED)
        return 0;
    for (size_t i = 0; i < r->message.call_count; i++)
        sent += agent_text_tokens(r->message.calls[i].arguments);
    return sent + agent_text_tokens(r->message.text);
}

static void agent_loop_charge(struct agent *a, const struct model_reply *r) {
    static const char *const failures[] = {"ok",     "overflow",  "rejected", "busy",
                                           "broken", "cancelled", "forbidden"};
    struct err err;
    uint64_t micro = 0;
    bool priced = agent_prices_cost(&a->prices, a->o.model, a->local, &r->usage, &micro);
    const struct agent_ledger_entry entry = {
        .when_ms = clock_real_ms(),
        .duration_ms = r->duration_ms,
        .session = a->session,
        .parent = a->parent,
        .task = a->o.task,
        .workspace = a->project.path,
        .provider = model_provider(a->model),
        .host = r->host,
        .model = a->o.model,
        .prices = a->prices.version,
        .rules = a->project.files.policy,
        .outcome = failures[r->failure],
        .usage = r->usage,
        .priced = priced,
        .micro_usd = micro,
    };
    a->micro_usd += micro;
    uint64_t used = agent_loop_guess(a, r), most = UINT64_MAX / 8;
    if (r->usage.known) {
        /* Each cut, so that no sum of them comes round to little. */
        const uint64_t kinds[] = {r->usage.input, r->usage.cache_read, r->usage.cache_write,
                                  r->usage.output};
        used = 0;
        for (size_t i = 0; i < 4; i++)
            used += kinds[i] < most / 4 ? kinds[i] : most / 4;
    }
    a->tokens = a->tokens > most || used > most ? UINT64_MAX / 2 : a->tokens + used;
    a->priceless = a->priceless || (!priced && r->failure == MODEL_OK);
    if (r->host[0] == '\0')
        return; /* nobody was connected to */
    if (agent_ledger_add(a->project.state, "../../costs.jsonl", &entry, &err) < 0)
        agent_end(a, AGENT_BUDGET, "costs cannot be written down: %s", err.text);
}

static enum agent_exit agent_loop_failure(enum model_failure failure) {
    return failure == MODEL_CANCELLED   ? AGENT_CANCELLED
           : failure == MODEL_FORBIDDEN ? AGENT_DENIED
           : failure == MODEL_OVERFLOW  ? AGENT_CONTEXT
                                        : AGENT_MODEL;
}

/* One request; when it was too long, once more after a compaction. */
static int agent_loop_ask(struct agent *a, struct model_reply *reply, struct err *err) {
    for (int attempt = 0;; attempt++) {
        if ((agent_context_is_near(&a->context) || attempt > 0) && agent_loop_compact(a, err) < 0) {
            reply->failure = MODEL_OVERFLOW;
            return -1;
        }
        const struct model_request request = {.messages = a->context.messages,
                                              .message_count = a->context.count,
                                              .tools = a->tools,
                                              .tool_count = a->tool_count,
                                              .answer_tokens = (uint32_t)a->o.answer,
                                              .total_ms = agent_loop_left_ms(a)};
        agent_say_wait(a, "the model thinks");
        int rc = model_ask(a->model, &request, reply, err);
        agent_loop_charge(a, reply);
        if (rc == 0)
            agent_limit_again(a);
        if (rc == 0 || reply->failure != MODEL_OVERFLOW || attempt == 1)
            return rc;
        if (reply->context_tokens > a->o.answer &&
            reply->context_tokens - a->o.answer < a->context.budget)
            a->context.budget = reply->context_tokens - a->o.answer;
        model_reply_done(reply);
    }
}

static void agent_loop_call(struct agent *a, const struct model_call *call) {
    struct buf raw, out;
    struct err err;
    agent_say_call(a, call);
    buf_init(&raw, AGENT_LOOP_RESULT_MAX);
    buf_init(&out, AGENT_LOOP_RESULT_MAX);
    bool failed = agent_tool_call(a, call, &raw);
    /* Names of files need not be UTF-8; what a model is told must be. */
    (void)agent_text_clean(&out, raw.data != NULL ? raw.data : "", raw.len, NULL);
    const char *text = out.data != NULL ? out.data : "";
    agent_say_result(a, call, text, failed);
    if (agent_context_add_result(&a->context, call->id, text, failed, &err) < 0)
        agent_end(a, AGENT_CONTEXT, "%s", err.text);
    if (agent_stuck_action(&a->stuck, call->name, call->arguments, text))
        agent_end(a, AGENT_STUCK,
                  "the model did the same, with the same outcome, %u times in a row",
                  AGENT_STUCK_TIMES);
    buf_done(&raw);
    buf_done(&out);
}

static void agent_loop_save(struct agent *a) {
    struct err err;
    if (agent_session_save(a, &err) < 0)
        agent_say_line(a, "the session could not be written down: %s", err.text);
}

/* Every call of a turn gets its answer, also those after the end: a session that is taken up again
 * must be whole. */
static void agent_loop_calls(struct agent *a, const struct model_message *m) {
    struct err err;
    for (size_t i = 0; i < m->call_count; i++) {
        if (intr_take(&a->intr) != 0)
            a->cancelled = true;
        if (a->cancelled)
            agent_end(a, AGENT_CANCELLED, "cancelled");
        if (!a->over && agent_loop_in_time(a))
            agent_loop_call(a, &m->calls[i]);
        else
            (void)agent_context_add_result(&a->context, m->calls[i].id, "not executed", true, &err);
        agent_loop_save(a);
    }
}

/* It only talks. Once it is reminded; then that is the end. */
static void agent_loop_silent(struct agent *a, const struct model_reply *reply, unsigned *silent) {
    struct err err;
    char text[400];
    struct buf clean;
    if (++*silent >= AGENT_LOOP_SILENT) {
        agent_end(a, AGENT_NOT_VERIFIED, "the model stopped calling tools without being done");
        return;
    }
    if (reply->dropped > 0)
        snprintf(text, sizeof(text), "%s: nothing was executed. Make the call again, whole.",
                 reply->dropped_why);
    else
        snprintf(text, sizeof(text),
                 "That was no call of a tool. Go on with one, or call `done`: only the verifier's "
                 "verdict counts.");
    buf_init(&clean, sizeof(text));
    if (agent_text_clean(&clean, text, strlen(text), &err) < 0 ||
        agent_context_add_text(&a->context, MODEL_USER, clean.data, &err) < 0)
        agent_end(a, AGENT_CONTEXT, "%s", err.text);
    buf_done(&clean);
}

static void agent_loop_turn(struct agent *a, unsigned *silent) {
    struct model_reply reply = {0};
    struct model_message message;
    struct err err;
    err_clear(&err);
    a->iterations++;
    if (agent_loop_head(a, &err) < 0) {
        agent_end(a, AGENT_CONTEXT, "%s", err.text);
        return;
    }
    if (agent_loop_ask(a, &reply, &err) < 0) {
        if (agent_loop_in_time(a))
            agent_end(a, agent_loop_failure(reply.failure), "%s", err.text);
        model_reply_done(&reply);
        return;
    }
    if (!a->o.json && reply.message.text != NULL)
        agent_say_text(a, "\n", 1);
    if (reply.message.text != NULL)
        agent_say_event(a, "text", json_pack("{s:s}", "text", reply.message.text));
    if (model_message_copy(&reply.message, &message) < 0 ||
        agent_context_add(&a->context, &message, &err) < 0) {
        agent_end(a, AGENT_CONTEXT, "the conversation is too long");
    } else if (reply.message.call_count > 0) {
        *silent = 0;
        agent_loop_save(a); /* before anything is changed */
        agent_loop_calls(a, &reply.message);
    } else {
        agent_loop_silent(a, &reply, silent);
    }
    model_reply_done(&reply);
    agent_loop_save(a);
}

void agent_loop(struct agent *a) {
    unsigned silent = 0;
    agent_loop_save(a);
    while (!a->over && agent_loop_may(a))
        agent_loop_turn(a, &silent);
}
