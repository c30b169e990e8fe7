/* `pinfold agent`: a loop that reads, edits and runs until a verifier says that it is done.
 *
 * The model proposes; code decides: every call passes the rules, every change the undo journal,
 * every command the workspace's sandbox. "done" is a call whose answer is the verifier's verdict,
 * on exactly the tree that is handed over, in a sandbox in which nothing else has run. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent_context.h"
#include "agent_ledger.h"
#include "agent_stuck.h"
#include "intr.h"
#include "model.h"
#include "opt.h"
#include "project.h"
#include "receipt.h"

#define AGENT_SESSION_SIZE 32
#define AGENT_SESSION_ENV "PINFOLD_SESSION" /* tells an agent in an agent whose it is */
#define AGENT_TOOLS_MAX 12u
#define AGENT_OUTPUTS 32u /* of which the model can ask for more */
#define AGENT_OUTPUT_NAME 32

enum agent_exit {
    AGENT_VERIFIED = 0,
    AGENT_NOT_VERIFIED = 1,
    AGENT_USAGE = 2,
    AGENT_DENIED = 3,
    AGENT_BUDGET = 4,
    AGENT_MODEL = 5,
    AGENT_UNREACHABLE = 6,
    AGENT_STUCK = 7,
    AGENT_CONTEXT = 8,
    AGENT_CANCELLED = 130,
};

struct agent_options {
    const char *task, *verify;
    const char *model_url, *model, *protocol, *key, *ca;
    const char *workspace, *rules, *policy, *image;
    const char *resume, *prices, *receipt_key;
    uint64_t max_iters, context, answer, wall_ms, step_ms;
    uint64_t budget_micro, budget_tokens; /* UINT64_MAX = none */
    struct opt_list protect;
    bool json, tests_first, allow_tests, verify_copy;
};

/* One command's end, in the sandbox. */
struct agent_outcome {
    char id[64]; /* of the execution */
    char cause[32];
    int exit_code; /* -1 = it has none */
    uint64_t wall_ms;
    struct buf output; /* both streams, in order */
    bool cut;          /* the middle of the output is left out */
    bool ok;
};

/* What a verifier said of a tree. */
struct agent_verdict {
    bool ran, pass;
    char tree[2 * WS_TREE_HASH + 1]; /* digest */
    char output[65];                 /* SHA-256 of its output */
    char receipt[PATH_MAX];          /* the file that the server's receipt is in; "" = none */
    char receipt_why[240];           /* … because: one sentence without a full stop */
    char cause[32];
    int exit_code;
    bool counted; /* the numbers below were found in its output */
    bool cut;     /* … which lacks its middle, so that they may be too low */
    uint64_t passed, failed, skipped;
    char why[300]; /* one sentence */
};

struct agent {
    struct agent_options o;     /* with what holds when nothing was said */
    struct agent_options given; /* as it was said, now or when the session began */
    json_t *saved;              /* a session's options, whose texts `given` borrows; owned */
    const char *limit_from;     /* "option", "model" or "default": o.context */
    bool limit_asked;           /* … a second time */
    struct target target;
    struct rest_hooks hooks;
    struct rest *rest;
    struct project project;
    struct model *model;
    bool local;                /* the model runs on this machine */
    struct receipt_public key; /* of the server's receipts */
    const char *key_from;      /* "given", "known" or "first"; NULL = it is not known yet */
    struct intr intr;
    bool cancelled;
    int dir; /* STATE/pinfold/agent; owned */
    char session[AGENT_SESSION_SIZE];
    const char *parent; /* session of the agent that started us; NULL = none */

    struct agent_context context;
    struct agent_stuck stuck;
    struct agent_prices prices;
    struct model_tool tools[AGENT_TOOLS_MAX];
    size_t tool_count;
    char *todo;                   /* owned */
    char *outputs[AGENT_OUTPUTS]; /* owned; a ring */
    size_t output_count;
    char **protected; /* owned */
    size_t protected_count;
    bool red;            /* the verifier has failed, with the tests that are protected */
    unsigned unproven;   /* passes that came before any failure, with --tests-first */
    char *task, *verify; /* of a session that is taken up again; owned, o.task points to it */
    bool waiting;        /* the line of agent_say_wait() is there */
    bool cleaning;       /* Ctrl-C does not break off what tidies up */
    uint64_t spent_ms;   /* before this process */

    uint64_t begun_ms, iterations, micro_usd, tokens;
    bool priceless; /* a request had no price */
    struct agent_verdict baseline, last;
    size_t changes; /* journal entries of this session */
    char summary[500];
    enum agent_exit code;
    bool over;
    char why[400]; /* how it ended, one sentence */
};

/* agent_options.c: numbers that were not given are 0, budgets UINT64_MAX. */
json_t *agent_options_save(struct agent *a);
/* Takes what was not given now. Keeps a reference. */
int agent_options_load(struct agent *a, json_t *saved, struct err *err);
/* Fills a->o in. */
int agent_options_settle(struct agent *a, struct err *err);

/* agent_limit.c: sets o.context, o.answer and the budget of the conversation. */
int agent_limit(struct agent *a, struct err *err);
void agent_limit_again(struct agent *a); /* after an answer */

/* agent_cmd.c sets it up; agent_loop.c */
void agent_loop(struct agent *a);
/* What is left of --wall; 0 = the loop is over. */
uint64_t agent_loop_left_ms(const struct agent *a);
/* The loop ends after this. */
void agent_end(struct agent *a, enum agent_exit code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* agent_tool.c: what the model may call. */
int agent_tool_make(struct model_tool tools[AGENT_TOOLS_MAX], size_t *count, struct err *err);
void agent_tool_unmake(struct model_tool *tools, size_t count);
/* Executes a call; appends its result to `out`. true: it failed, from the model's point of view. */
bool agent_tool_call(struct agent *a, const struct model_call *call, struct buf *out);

/* agent_files.c */
/* "./a//b/" -> "a/b"; absolute paths of the workspace lose its name. false: it leads out. */
bool agent_files_path(const struct agent *a, const char *given, char path[WS_TREE_PATH_MAX],
                      struct buf *out);
/* The whole of a file of the workspace. */
int agent_files_load(const struct agent *a, const char *path, struct buf *text, struct stat *st,
                     struct err *err);
bool agent_files_list(struct agent *a, const json_t *arguments, struct buf *out);
bool agent_files_read(struct agent *a, const json_t *arguments, struct buf *out);
bool agent_files_edit(struct agent *a, const json_t *arguments, struct buf *out);
bool agent_files_write(struct agent *a, const json_t *arguments, struct buf *out);

/* agent_search.c */
bool agent_search(struct agent *a, const json_t *arguments, struct buf *out);

/* agent_run.c */
bool agent_run(struct agent *a, const json_t *arguments, struct buf *out);
/* Runs a command in the project's sandbox, as words or as a line for the shell. -1: it could not be
 * run (*err); the outcome is to be released in any case. */
int agent_run_command(struct agent *a, const char *line, const char *const *words,
                      struct agent_outcome *outcome, struct err *err);
void agent_outcome_done(struct agent_outcome *outcome);
const char *agent_run_kept(const struct agent *a, const char *name);

/* agent_count.c */
/* Does this command run tests that are always counted in what it prints? The program's name, or
 * NULL. */
const char *agent_count_runner(const char *command);
/* A runner that has begun in this output, or NULL: `make test` does not name it. */
const char *agent_count_begun(const char *output);
/* Are the numbers of this format (verify_report) the sum of many lines, and not read off one? */
bool agent_count_adds(const char *format);

/* agent_verify.c */
/* Runs the verifier on the tree as it is. -1: it could not be run. */
int agent_verify(struct agent *a, struct agent_verdict *v, struct buf *report, struct err *err);
/* --tests-first: red before green. May turn a pass into none. */
void agent_verify_colour(struct agent *a, struct agent_verdict *v);
bool agent_verify_done(struct agent *a, const json_t *arguments, struct buf *out);

/* agent_receipt.c: fetches the server's receipt of the verifier, while its sandbox is there, checks
 * it, and keeps it beside the session. Without a receipt or a key to check it with, none is bound,
 * and v->receipt_why says so. -1: also when another key has signed it, or when it says something
 * else than the answer did. */
int agent_receipt(struct agent *a, const struct agent_outcome *o, struct agent_verdict *v,
                  struct err *err);
/* What --receipt-key or PINFOLD_RECEIPT_KEY gives. */
int agent_receipt_given(struct agent *a, struct err *err);
/* Adds to an event: the path of the receipt, its key's id and where that is known from, or null and
 * why there is none. */
void agent_receipt_tell(const struct agent *a, const struct agent_verdict *v, json_t *event);

/* agent_protect.c: what must not be changed: tests that are there, the verifier, and what steers
 * them (a conftest.py, another Makefile), there or new. Taken from the tree as it was looked
 * at last, beside what is protected already. */
int agent_protect(struct agent *a, struct err *err);
bool agent_protect_may_write(void *agent, const char *path, char *why, size_t size);
/* One of them that the tree that was sent last lacks, or NULL. */
const char *agent_protect_lost(const struct agent *a);

/* agent_session.c */
bool agent_session_ok(const char *id); /* looks like an id of a session */
int agent_session_open(struct agent *a, struct err *err);
/* Whole, after everything that is told to the model or by it: at most the outcome of one call is
 * lost when this process dies. */
int agent_session_save(struct agent *a, struct err *err);

/* agent_say.c: for people, or one JSON object a line. */
void agent_say_event(struct agent *a, const char *type, json_t *more); /* steals `more` */
/* What is waited for, and what was used so far: a line on a terminal that the next output wipes. */
void agent_say_wait(struct agent *a, const char *what);
void agent_say_text(struct agent *a, const char *text, size_t len);
void agent_say_line(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void agent_say_call(struct agent *a, const struct model_call *call);
void agent_say_result(struct agent *a, const struct model_call *call, const char *text,
                      bool failed);
/* A string of JSON whatever the text holds: it may have been cut within a character. */
json_t *agent_say_string(const char *text);
/* A denial as the model and people are told it. */
bool agent_say_denied(struct agent *a, struct buf *out, enum permission_answer answer,
                      const struct perm_verdict *verdict);
/* Asks a person when the rules want that. true: go on. */
bool agent_say_may(struct agent *a, enum permission_answer answer, const char *what,
                   const struct perm_verdict *verdict);
