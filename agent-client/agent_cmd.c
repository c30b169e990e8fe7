#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "ask.h"
#include "client_cmd.h"
#include "clock.h"
#include "say.h"
#include "str.h"

#define AGENT_CMD_GRACE_MS ((uint64_t)60 * 1000) /* to bring back what a last command has done */

static const char agent_cmd_usage[] = "pinfold agent TASK --verify COMMAND --model NAME [options]";
static const char agent_cmd_about[] =
    "Lets a model work on this workspace until a verifier passes. The model proposes; code "
    "decides:\n"
    "your rules judge every call (pinfold permission), every change goes through the undo journal\n"
    "(pinfold undo), every command runs in the workspace's sandbox, and only the verifier, run on\n"
    "exactly the files that are handed over, can say that the task is done. Tests that are there "
    "at\n"
    "the start, and what the verifier names, are write-protected.\n\n"
    "Exit code: 0 verified, 1 not verified, 2 wrong usage, 3 denied, 4 budget (money, tokens, "
    "time),\n"
    "5 model, 6 sandbox unreachable, 7 stuck, 8 context too small, 130 cancelled.\n\n"
    "Environment: PINFOLD_URL, PINFOLD_TOKEN (the server), PINFOLD_MODEL_URL, PINFOLD_MODEL,\n"
    "PINFOLD_MODEL_KEY (the model; the key comes from nowhere else), PINFOLD_RECEIPT_KEY.\n\n"
    "Example:\n"
    "  pinfold agent 'make the tests pass' --verify 'make test' \\\n"
    "      --model-url http://127.0.0.1:8000/v1 --model qwen3";

static bool agent_cmd_confirm(void *arg, const char *question) {
    const struct agent *a = arg;
    return !a->o.json && ask_person(question, "yn") == 'y';
}

static void agent_cmd_note(void *arg, const char *text) {
    agent_say_line(arg, "%s", text);
}

static void agent_cmd_text(void *arg, const char *text, size_t len) {
    agent_say_text(arg, text, len);
}

static void agent_cmd_retry(void *arg, unsigned attempt, uint64_t wait_ms, const char *why) {
    agent_say_line(arg, "the model: %s; trying again in %" PRIu64 " ms (%u)", why, wait_ms,
                   attempt);
}

/* While a request to the server goes on: Ctrl-C breaks it off, which cancels the command. */
static size_t agent_cmd_want(void *arg, struct pollfd fds[REST_WAIT_MAX]) {
    const struct agent *a = arg;
    fds[0] = (struct pollfd){.fd = a->intr.fd, .events = POLLIN};
    return a->intr.fd >= 0 ? 1 : 0;
}

static int agent_cmd_ready(void *arg, struct err *err) {
    struct agent *a = arg;
    uint64_t grace = a->o.wall_ms < AGENT_CMD_GRACE_MS ? a->o.wall_ms : AGENT_CMD_GRACE_MS;
    /* A server that never answers is no way around --wall. */
    if (!a->cancelled && clock_mono_ms() - a->begun_ms >= a->o.wall_ms + grace) {
        agent_end(a, AGENT_BUDGET, "the time is over, and the server has not answered");
        return err_set(err, ERR_STATE, 0, "the time is over, and the server has not answered");
    }
    if (a->cleaning || (!a->cancelled && intr_take(&a->intr) == 0))
        return 0;
    a->cancelled = true;
    agent_end(a, AGENT_CANCELLED, "cancelled");
    return err_set(err, ERR_STATE, 0, "cancelled");
}

/* "5" or "2.50" dollars, "200k" or "1M" tokens. */
static int agent_cmd_budget(struct agent_options *o, const char *text, struct err *err) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || !(value >= 0 && value <= 1e12)) /* nan is neither */
        return err_set(err, ERR_INVALID, 0, "--budget: dollars (2.50) or tokens (200k, 1M), not %s",
                       text);
    if (*end == '\0' || strcmp(end, "USD") == 0 || strcmp(end, "usd") == 0)
        o->budget_micro = (uint64_t)(value * 1e6);
    else if (strcmp(end, "k") == 0)
        o->budget_tokens = (uint64_t)(value * 1e3);
    else if (strcmp(end, "M") == 0)
        o->budget_tokens = (uint64_t)(value * 1e6);
    else
        return err_set(err, ERR_INVALID, 0, "--budget: dollars (2.50) or tokens (200k, 1M), not %s",
                       text);
    return 0;
}

static const char *agent_cmd_env(const char *given, const char *name) {
    const char *value = given != NULL ? given : getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

/* Which models the rules allow: by name, or only local ones. */
static int agent_cmd_model(struct agent *a, struct err *err) {
    struct perm *perm = &a->project.perm;
    enum rule_verdict named = perm_judge_subject(perm, RULE_MODEL, a->o.model)->verdict;
    /* "local" is a word of the rules; a model of that name is not local for its name. */
    if (named == RULE_ALLOW && strcmp(a->o.model, "local") == 0)
        named = perm->config.headless ? RULE_DENY : RULE_ASK;
    enum rule_verdict local = perm_judge_subject(perm, RULE_MODEL, "local")->verdict;
    enum model_protocol protocol = MODEL_AUTO;
    if (a->o.protocol != NULL && strcmp(a->o.protocol, "openai") == 0)
        protocol = MODEL_OPENAI;
    else if (a->o.protocol != NULL && strcmp(a->o.protocol, "anthropic") == 0)
        protocol = MODEL_ANTHROPIC;
    else if (a->o.protocol != NULL)
        return err_set(err, ERR_INVALID, 0, "--protocol is openai or anthropic, not %s",
                       a->o.protocol);
    /* Only local ones, unless a rule, or whoever started this by name, allows this one. */
    bool only_local = named == RULE_DENY || (named != RULE_ALLOW && local == RULE_ALLOW);
    struct model_options options = {.url = a->o.model_url,
                                    .name = a->o.model,
                                    .key = a->o.key,
                                    .protocol = protocol,
                                    .local_only = true,
                                    .retries = 4,
                                    .cancel_fd = a->intr.fd,
                                    .ca = a->o.ca,
                                    .on_text = agent_cmd_text,
                                    .on_retry = agent_cmd_retry,
                                    .arg = a};
    if (named == RULE_DENY && local == RULE_DENY)
        return err_set(
            err, ERR_STATE, 0,
            "the rules deny the model %s, or say nothing of it and nobody can be asked; a "
            "line \"allow model local\" in permissions.rules allows those on this machine",
            a->o.model);
    a->model = model_new(&options, err);
    a->local = a->model != NULL;
    if (a->model != NULL || only_local)
        return a->model != NULL ? 0 : -1;
    options.local_only = false;
    a->model = model_new(&options, err);
    return a->model != NULL ? 0 : -1;
}

static int agent_cmd_prices(struct agent *a, struct err *err) {
    if (a->o.prices == NULL) {
        if (a->o.budget_micro != UINT64_MAX && !a->local)
            return err_set(
                err, ERR_INVALID, 0,
                "a budget in dollars needs prices (--prices FILE); or give one in tokens");
        return 0;
    }
    return agent_prices_load(&a->prices, AT_FDCWD, a->o.prices, err);
}

/* The verifier as it is now: what must not become less. An empty workspace has none; a session that
 * is taken up again has had its own. */
static int agent_cmd_baseline(struct agent *a, struct err *err) {
    struct buf report;
    if (a->project.tree.count == 0 || a->o.resume != NULL)
        return 0;
    agent_say_line(a, "the verifier before anything is changed: %s", a->o.verify);
    buf_init(&report, (size_t)1024 * 1024);
    int rc = agent_verify(a, &a->baseline, &report, err);
    buf_done(&report);
    a->stuck = (struct agent_stuck){0};
    struct agent_verdict colour = a->baseline;
    if (rc == 0 && !colour.pass)
        agent_verify_colour(a, &colour);
    return rc;
}

static int agent_cmd_open(struct agent *a, struct err *err) {
    const struct project_options options = {.workspace = a->o.workspace,
                                            .rules = a->o.rules,
                                            .policy = a->o.policy,
                                            .image = a->o.image,
                                            .headless = a->o.json || !ask_possible(),
                                            .confirm = agent_cmd_confirm,
                                            .may_write = agent_protect_may_write,
                                            .note = agent_cmd_note,
                                            .arg = a};
    a->hooks = (struct rest_hooks){.want = agent_cmd_want, .ready = agent_cmd_ready, .arg = a};
    if (intr_begin(&a->intr, err) < 0 || target_from_env(&a->target, err) < 0 ||
        (a->rest = rest_new(&a->target, &a->hooks, err)) == NULL ||
        project_open(&a->project, &options, a->rest, a->target.url, err) < 0 ||
        agent_session_open(a, err) < 0 || agent_options_settle(a, err) < 0 ||
        agent_receipt_given(a, err) < 0)
        return -1;
    return agent_tool_make(a->tools, &a->tool_count, err);
}

static int agent_cmd_begin(struct agent *a, struct err *err) {
    if (agent_cmd_model(a, err) < 0) {
        agent_end(a, AGENT_DENIED, "%s", err->text);
        return -1;
    }
    if (agent_limit(a, err) < 0) {
        agent_end(a, err->kind == ERR_LIMIT ? AGENT_CONTEXT : AGENT_USAGE, "%s", err->text);
        return -1;
    }
    if (agent_cmd_prices(a, err) < 0) {
        agent_end(a, AGENT_USAGE, "%s", err->text);
        return -1;
    }
    /* The picture of the start: which tests there are. */
    if (project_look(&a->project, err) < 0 || (a->o.resume == NULL && agent_protect(a, err) < 0)) {
        agent_end(a, AGENT_UNREACHABLE, "%s", err->text);
        return -1;
    }
    agent_say_event(a, "start",
                    json_pack("{s:s, s:o, s:s, s:o, s:o, s:I, s:s}", "session", a->session,
                              "workspace", agent_say_string(a->project.path), "rules",
                              a->project.files.policy, "model", agent_say_string(a->o.model),
                              "verify", agent_say_string(a->o.verify), "context",
                              (json_int_t)a->o.context, "context_from", a->limit_from));
    if (project_push(&a->project, err) < 0 || agent_cmd_baseline(a, err) < 0) {
        agent_end(a, AGENT_UNREACHABLE, "%s", err->text);
        return -1;
    }
    return 0;
}

static void agent_cmd_close(struct agent *a) {
    for (size_t i = 0; i < AGENT_OUTPUTS; i++)
        free(a->outputs[i]);
    for (size_t i = 0; i < a->protected_count; i++)
        free(a->protected[i]);
    free(a->protected);
    free(a->todo);
    free(a->task);
    free(a->verify);
    json_decref(a->saved);
    agent_tool_unmake(a->tools, a->tool_count);
    agent_context_done(&a->context);
    agent_prices_done(&a->prices);
    model_free(a->model);
    if (a->dir >= 0)
        close(a->dir);
    project_close(&a->project);
    rest_free(a->rest);
    target_done(&a->target);
    intr_end(&a->intr);
    free(a);
}

static void agent_cmd_denials(const struct agent *a, json_t *list) {
    const struct permission_exec *x = &a->project.decide;
    for (size_t i = 0; i < x->count; i++)
        json_array_append_new(
            list,
            json_pack("{s:o, s:o, s:o, s:i}", "subject", agent_say_string(x->denial[i].subject),
                      "rule",
                      x->denial[i].rule != NULL ? agent_say_string(x->denial[i].rule) : json_null(),
                      "why", agent_say_string(x->denial[i].why), "times", (int)x->denial[i].times));
}

static void agent_cmd_receipt(struct agent *a) {
    char id[RECEIPT_KEY_ID_SIZE];
    if (a->last.receipt[0] == '\0') {
        if (a->last.ran)
            agent_say_line(a, "no receipt is bound to it: %s", a->last.receipt_why);
        return;
    }
    receipt_key_id(&a->key, id);
    agent_say_line(a, "the server's receipt of it, signed with the key %s (%s): %s", id,
                   strcmp(a->key_from, "given") == 0   ? "which you gave"
                   : strcmp(a->key_from, "known") == 0 ? "which is known of this server"
                                                       : "which it showed for the first time",
                   a->last.receipt);
}

static void agent_cmd_report(struct agent *a) {
    static const char *const names[] = {"verified", "not_verified", "usage", "denied", "budget",
                                        "model",    "unreachable",  "stuck", "context"};
    const char *outcome = a->code == AGENT_CANCELLED ? "cancelled" : names[a->code];
    json_t *denials = json_array();
    agent_cmd_denials(a, denials);
    if (a->o.json) {
        json_t *event =
            json_pack("{s:s, s:i, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:s, s:o, s:s}", "outcome",
                      outcome, "exit_code", (int)a->code, "why", agent_say_string(a->why),
                      "summary", agent_say_string(a->summary), "session", a->session, "requests",
                      (json_int_t)a->iterations, "tokens", (json_int_t)a->tokens, "cost_micro_usd",
                      (json_int_t)a->micro_usd, "denials", denials, "tree", a->last.tree, "verify",
                      agent_say_string(a->o.verify != NULL ? a->o.verify : ""), "output_sha256",
                      a->last.output);
        agent_receipt_tell(a, &a->last, event);
        agent_say_event(a, "end", event);
        return;
    }
    for (size_t i = 0; i < json_array_size(denials); i++) {
        const json_t *d = json_array_get(denials, i);
        const char *rule = json_string_value(json_object_get(d, "rule"));
        agent_say_line(a, "denied: %s: %s%s%s", json_string_value(json_object_get(d, "subject")),
                       json_string_value(json_object_get(d, "why")), rule != NULL ? ", " : "",
                       rule != NULL ? rule : "");
    }
    json_decref(denials);
    agent_say_line(a, "%s: %s", outcome, a->why);
    if (a->last.ran)
        agent_say_line(a, "verifier: %s (%s, exit code %d), tree %.16s, output %.16s", a->o.verify,
                       a->last.cause, a->last.exit_code, a->last.tree, a->last.output);
    agent_cmd_receipt(a);
    agent_say_line(a, "session %s: %" PRIu64 " requests, %" PRIu64 " tokens, %.4f USD%s",
                   a->session, a->iterations, a->tokens, (double)a->micro_usd / 1e6,
                   a->priceless ? " and what has no price" : "");
}

static int agent_cmd_do(const struct agent_options *o) {
    struct agent *a = calloc(1, sizeof(*a));
    struct err err = {0};
    if (a == NULL) {
        say_line("agent: out of memory");
        return AGENT_UNREACHABLE;
    }
    a->o = a->given = *o;
    a->intr = (struct intr)INTR_NONE;
    a->dir = -1;
    a->begun_ms = clock_mono_ms();
    a->parent = getenv(AGENT_SESSION_ENV);
    if (a->parent != NULL && !agent_session_ok(a->parent))
        a->parent = NULL;
    agent_context_init(&a->context, 0); /* agent_limit() */
    if (agent_cmd_open(a, &err) < 0)
        agent_end(a, err.kind == ERR_SYSTEM ? AGENT_UNREACHABLE : AGENT_USAGE, "%s", err.text);
    else if (agent_cmd_begin(a, &err) == 0)
        agent_loop(a);
    agent_cmd_report(a);
    int code = (int)a->code;
    agent_cmd_close(a);
    return code;
}

static int agent_cmd_check(struct agent_options *o, const char *budget, struct err *err) {
    o->model_url = agent_cmd_env(o->model_url, "PINFOLD_MODEL_URL");
    o->model = agent_cmd_env(o->model, "PINFOLD_MODEL");
    o->key = agent_cmd_env(NULL, "PINFOLD_MODEL_KEY");
    o->receipt_key = agent_cmd_env(o->receipt_key, "PINFOLD_RECEIPT_KEY");
    if (o->resume != NULL && o->verify == NULL)
        ; /* as the session has it */
    else if (o->verify == NULL || o->verify[strspn(o->verify, " ")] == '\0')
        return err_set(err, ERR_INVALID, 0,
                       "--verify COMMAND is missing: what shows that it is done?");
    if (o->resume == NULL && (o->model_url == NULL || o->model == NULL))
        return err_set(err, ERR_INVALID, 0, "which model? Give --model-url and --model");
    if (o->context != 0 && o->answer * 2 > o->context)
        return err_set(err, ERR_INVALID, 0, "--answer must be at most half of --context");
    return budget != NULL ? agent_cmd_budget(o, budget, err) : 0;
}

static int agent_cmd_run(int argc, char **argv) {
    struct agent_options o = {.budget_micro = UINT64_MAX, .budget_tokens = UINT64_MAX};
    const char *budget = NULL;
    const struct opt table[] = {
        {"verify", 0, "COMMAND", OPT_STRING, &o.verify, 0, 0, "what must pass, in the sandbox"},
        {"model-url", 0, "URL", OPT_STRING, &o.model_url, 0, 0, "http://127.0.0.1:8000/v1"},
        {"model", 0, "NAME", OPT_STRING, &o.model, 0, 0, "its name there"},
        {"protocol", 0, "NAME", OPT_STRING, &o.protocol, 0, 0, "openai or anthropic (by the URL)"},
        {"ca", 0, "FILE", OPT_STRING, &o.ca, 0, 0, "certificate authority of the model's server"},
        {"rules", 0, "FILE", OPT_STRING, &o.rules, 0, 0, "permissions instead of your own"},
        {"workspace", 'w', "DIR", OPT_STRING, &o.workspace, 0, 0, "as for pinfold exec"},
        {"policy", 0, "NAME", OPT_STRING, &o.policy, 0, 0, "of a sandbox that is made"},
        {"image", 0, "NAME", OPT_STRING, &o.image, 0, 0, "of a sandbox that is made"},
        {"max-iters", 0, "N", OPT_U64, &o.max_iters, 1, 100000, "requests to the model (50)"},
        {"budget", 0, "USD|TOKENS", OPT_STRING, &budget, 0, 0, "2.50, or 200k, or 1M"},
        {"prices", 0, "FILE", OPT_STRING, &o.prices, 0, 0, "what tokens cost"},
        {"wall", 0, "TIME", OPT_DURATION, &o.wall_ms, 0, 0, "for everything (1h)"},
        {"step-wall", 0, "TIME", OPT_DURATION, &o.step_ms, 0, 0, "for each command (10m)"},
        {"context", 0, "N", OPT_U64, &o.context, 2048, 100000000,
         "tokens of the model's context (what its server says, or 32768)"},
        {"answer", 0, "N", OPT_U64, &o.answer, 64, 1000000, "tokens of one answer (4096)"},
        {"protect", 0, "PATTERN", OPT_LIST, &o.protect, 0, 0, "more files that must not change"},
        {"allow-tests", 0, NULL, OPT_FLAG, &o.allow_tests, 0, 0, "tests may be changed"},
        {"verify-copy", 0, NULL, OPT_FLAG, &o.verify_copy, 0, 0,
         "verify in a copy of the sandbox, with what was installed there"},
        {"tests-first", 0, NULL, OPT_FLAG, &o.tests_first, 0, 0, "it must fail before it passes"},
        {"resume", 0, "ID", OPT_STRING, &o.resume, 0, 0,
         "take a session up again, with its task, verifier and options"},
        {"receipt-key", 0, "HEX|FILE", OPT_STRING, &o.receipt_key, 0, 0,
         "the key of the server's receipts, from its administrator"},
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "one JSON object a line; asks nobody"},
        {0},
    };
    struct opt_result got;
    struct err err = {0};
    char **rest = argv;
    int left = argc;
    /* The task may stand in front of the options. */
    if (argc > 1 && argv[1][0] != '-') {
        o.task = argv[1];
        rest = argv + 1;
        left = argc - 1;
    }
    if (opt_parse(table, left, rest, &got, &err) < 0) {
        say_line("agent: %s (see pinfold agent --help)", err.text);
        return CLIENT_EXIT_USAGE;
    }
    if (got.help) {
        opt_help(stdout, agent_cmd_usage, agent_cmd_about, table);
        return 0;
    }
    if (o.task == NULL && got.rest < left)
        o.task = rest[got.rest++];
    if ((o.task == NULL && o.resume == NULL) || got.rest < left) {
        say_line("agent: give the task as one argument (see pinfold agent --help)");
        return CLIENT_EXIT_USAGE;
    }
    if (agent_cmd_check(&o, budget, &err) < 0) {
        say_line("agent: %s", err.text);
        return CLIENT_EXIT_USAGE;
    }
    return agent_cmd_do(&o);
}

const struct client_cmd agent_cmd = {
    .name = "agent",
    .about = "let a model work here until a verifier passes",
    .run = agent_cmd_run,
};
