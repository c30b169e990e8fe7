/* The verifier: what decides that a task is done. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_text.h"
#include "fd.h"
#include "verify.h"

#define AGENT_VERIFY_UNPROVEN 2u /* such passes end it */
#define AGENT_VERIFY_SHOW ((size_t)8 * 1024)
#define AGENT_VERIFY_FAILURES 15u
#define AGENT_VERIFY_SPARE_MS ((uint64_t)10 * 60 * 1000) /* beside the command: to send files */
#define AGENT_VERIFY_LOG "verify.log"

/* What the output says about tests: counts, and each failure. -1: it could not be looked at, so
 * there is no verdict. */
static int agent_verify_read(struct agent *a, const struct agent_outcome *o,
                             struct agent_verdict *v, struct buf *report, struct buf *set,
                             struct err *err) {
    struct verify_report r;
    struct verify_args args = {.root = a->dir, .count = 1};
    args.items[0] = (struct verify_arg){.name = "file", .value = AGENT_VERIFY_LOG};
    if (fd_write_atomic(a->dir, AGENT_VERIFY_LOG, o->output.data != NULL ? o->output.data : "",
                        o->output.len, 0600, err) < 0)
        return err_wrap(err, "keeping the verifier's output");
    verify_run(verify_find("log"), &args, &r);
    if (r.passed + r.failed + r.skipped > 0) {
        v->counted = true;
        v->cut = o->cut && agent_count_adds(r.format);
        v->passed = r.passed;
        v->failed = r.failed;
        v->skipped = r.skipped;
    }
    for (size_t i = 0; i < r.count; i++) {
        const struct verify_failure *f = &r.failures[i];
        if (i < AGENT_VERIFY_FAILURES)
            (void)buf_printf(report, NULL, "failed: %s%s%s%s%.0llu: %.400s\n", f->name,
                             f->file != NULL ? " (" : "", f->file != NULL ? f->file : "",
                             f->file != NULL ? ") line " : "", (unsigned long long)f->line,
                             f->message);
        (void)buf_printf(set, NULL, "%s\n", f->name);
    }
    verify_report_done(&r);
    return 0;
}

/* Runners that found no test at all and are content with that. */
static bool agent_verify_is_empty(const struct agent_outcome *o) {
    static const char *const words[] = {
        "Ran 0 tests",           "no tests ran",        "collected 0 items",
        "[no test files]",       "[no tests to run]",   "1..0",
        "No tests found",        "No tests were found", "No test files found",
        "running 0 tests",       "0 passing",           "no test specified",
        "0 examples, 0 failures"};
    const char *text = o->output.data != NULL ? o->output.data : "";
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *at = strstr(text, words[i]);
        size_t n = strlen(words[i]);
        /* "1..0" is not "1..05", "0 passing" is not "10 passing". */
        if (at != NULL && !(at > text && at[-1] >= '0' && at[-1] <= '9') &&
            !(at[n] >= '0' && at[n] <= '9'))
            return true;
    }
    return false;
}

static void agent_verify_judge(struct agent *a, const struct agent_outcome *o,
                               struct agent_verdict *v) {
    const struct agent_verdict *b = &a->baseline;
    const char *runner = agent_count_runner(a->o.verify);
    if (runner == NULL && !v->counted && o->output.data != NULL)
        runner = agent_count_begun(o->output.data);
    v->pass = o->ok;
    snprintf(v->why, sizeof(v->why), o->ok ? "the verifier passed" : "the verifier did not pass");
    if (o->ok && !v->counted && agent_verify_is_empty(o)) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why),
                 "it returned 0, but its output says that there were no tests");
    } else if (o->ok && !v->counted && runner != NULL) {
        /* Whoever is tested runs in the same process, and can end it with 0 at any time. */
        v->pass = false;
        snprintf(v->why, sizeof(v->why),
                 "it returned 0, but its output does not say how many tests %s ran: it was ended "
                 "early, or prints too little",
                 runner);
    } else if (o->ok && (v->cut || b->cut)) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why),
                 "the output is too long to be kept whole, so its tests cannot be counted: let the "
                 "verifier print less");
    } else if (o->ok && v->counted && v->passed + v->failed == 0) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why), "it returned 0, but all tests were skipped");
    } else if (o->ok && v->counted && v->failed > 0) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why), "it returned 0, but its output shows %llu failures",
                 (unsigned long long)v->failed);
    } else if (o->ok && b->counted && !v->counted) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why),
                 "there were %llu tests before, and now its output shows none",
                 (unsigned long long)(b->passed + b->failed));
    } else if (o->ok && b->counted && v->passed < b->passed + b->failed) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why), "fewer tests pass (%llu) than there were before (%llu)",
                 (unsigned long long)v->passed, (unsigned long long)(b->passed + b->failed));
    } else if (o->ok && b->counted && v->skipped > b->skipped) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why), "more tests are skipped (%llu) than before (%llu)",
                 (unsigned long long)v->skipped, (unsigned long long)b->skipped);
    }
}

/* To the tree, the command's end and its output, and the server's word on them. */
static int agent_verify_bind(struct agent *a, const struct agent_outcome *o,
                             struct agent_verdict *v, struct err *err) {
    unsigned char hash[32];
    ws_tree_digest(&a->project.tree, hash);
    sodium_bin2hex(v->tree, sizeof(v->tree), hash, sizeof(hash));
    crypto_hash_sha256(hash, (const unsigned char *)(o->output.data != NULL ? o->output.data : ""),
                       o->output.len);
    sodium_bin2hex(v->output, sizeof(v->output), hash, sizeof(hash));
    memcpy(v->cause, o->cause, sizeof(v->cause));
    v->exit_code = o->exit_code;
    return agent_receipt(a, o, v, err);
}

/* In a sandbox that no command was in: what earlier ones have left beside the files (in the home
 * directory, in what ignore files name, processes) has no say in the verdict. With --verify-copy in
 * a copy of the workspace's sandbox, for what must be installed there; only processes are gone. */
static int agent_verify_apart(struct agent *a, struct agent_outcome *o, struct agent_verdict *v,
                              struct err *err) {
    struct project *p = &a->project;
    char own[PROJECT_SANDBOX_MAX], other[PROJECT_SANDBOX_MAX];
    struct err later;
    bool synced = p->synced;
    if (a->o.verify_copy) {
        if (project_box(p, err) < 0 ||
            project_box_fork(p, a->o.step_ms + AGENT_VERIFY_SPARE_MS, other, err) < 0)
            return -1;
    } else if (project_box_fresh(p, a->o.step_ms + AGENT_VERIFY_SPARE_MS, other, err) < 0) {
        return -1;
    }
    memcpy(own, p->sandbox, sizeof(own));
    memcpy(p->sandbox, other, sizeof(other));
    int rc = project_push_exact(p, a->o.verify_copy, err);
    if (rc == 0)
        rc = agent_run_command(a, a->o.verify, NULL, o, err);
    if (rc == 0)
        rc = agent_verify_bind(a, o, v, err);
    memcpy(p->sandbox, own, sizeof(own));
    p->synced = synced;
    a->cleaning = true;
    (void)project_box_delete(p, other, &later); /* else its time ends it */
    a->cleaning = false;
    return rc;
}

int agent_verify(struct agent *a, struct agent_verdict *v, struct buf *report, struct err *err) {
    struct agent_outcome o = {0};
    struct buf set;
    memset(v, 0, sizeof(*v));
    buf_init(&set, (size_t)1024 * 1024);
    agent_say_wait(a, "the verifier runs");
    int rc = agent_verify_apart(a, &o, v, err);
    if (rc == 0)
        rc = agent_verify_read(a, &o, v, report, &set, err);
    if (rc == 0) {
        v->ran = true;
        agent_verify_judge(a, &o, v);
        const char *lost = v->pass ? agent_protect_lost(a) : NULL;
        if (lost != NULL) {
            v->pass = false;
            snprintf(v->why, sizeof(v->why),
                     "%.150s was there at the start and was not sent: it is gone or left out",
                     lost);
        }
        if (!v->pass) {
            (void)buf_printf(report, NULL, "[%s: exit code %d]\n", o.cause, o.exit_code);
            (void)agent_text_bound(report, o.output.data != NULL ? o.output.data : "", o.output.len,
                                   AGENT_VERIFY_SHOW, NULL, NULL);
            if (agent_stuck_failing(&a->stuck, set.len > 0 ? set.data : v->output))
                agent_end(a, AGENT_STUCK, "the verifier failed in the same way %u times in a row",
                          AGENT_STUCK_TIMES);
        }
    }
    buf_done(&set);
    agent_outcome_done(&o);
    return rc;
}

void agent_verify_colour(struct agent *a, struct agent_verdict *v) {
    struct err err;
    if (!a->o.tests_first)
        return;
    /* Failing tests; not a program that is missing, nor a limit. */
    bool red = !v->pass && strcmp(v->cause, "exit") == 0 && v->exit_code > 0 &&
               v->exit_code < 126 && (!v->counted || v->failed > 0);
    if (red && !a->red) {
        /* From now on they stay as they are: red must become green by the code. */
        a->red = agent_protect(a, &err) == 0;
    } else if (v->pass && !a->red) {
        v->pass = false;
        snprintf(v->why, sizeof(v->why),
                 "it passes, but has not failed before: with --tests-first, write tests that fail "
                 "and call `done` before you write what they test");
        if (++a->unproven >= AGENT_VERIFY_UNPROVEN)
            agent_end(a, AGENT_NOT_VERIFIED,
                      "--tests-first: the verifier never failed, so it shows nothing");
    }
}

bool agent_verify_done(struct agent *a, const json_t *arguments, struct buf *out) {
    const char *summary = json_string_value(json_object_get(arguments, "summary"));
    struct err err;
    err_clear(&err);
    snprintf(a->summary, sizeof(a->summary), "%s", summary);
    agent_say_line(a, "verifying: %s", a->o.verify);
    if (agent_verify(a, &a->last, out, &err) < 0) {
        (void)buf_printf(out, NULL, "the verifier could not be run: %s", err.text);
        if (err.kind == ERR_SYSTEM)
            agent_end(a, AGENT_UNREACHABLE, "%s", err.text);
        return true;
    }
    agent_verify_colour(a, &a->last);
    json_t *event =
        json_pack("{s:o, s:b, s:s, s:s, s:o, s:i, s:o}", "command", agent_say_string(a->o.verify),
                  "pass", (int)a->last.pass, "tree", a->last.tree, "output_sha256", a->last.output,
                  "cause", agent_say_string(a->last.cause), "exit_code", a->last.exit_code, "why",
                  agent_say_string(a->last.why));
    agent_receipt_tell(a, &a->last, event);
    agent_say_event(a, "verify", event);
    if (!a->last.pass) {
        (void)buf_printf(out, NULL, "\nNot done: %s.", a->last.why);
        return true;
    }
    (void)buf_puts(out, "verified", NULL);
    agent_end(a, AGENT_VERIFIED, "%s", a->last.why);
    return false;
}
