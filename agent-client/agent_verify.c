/* The verifier: what decides that a task is done. */
#include <fnmatch.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "agent_text.h"
#include "fd.h"
#include "verify.h"

#define AGENT_VERIFY_SHOW ((size_t)8 * 1024)
#define AGENT_VERIFY_FAILURES 15u
#define AGENT_VERIFY_LOG "verify.log"

/* Names of files that tests have by the customs of their languages. */
static const char *const agent_verify_tests[] = {
    "test_*",      "*_test.*",    "*_tests.*",     "*.test.*",        "*.spec.*",
    "*Test.java",  "*Tests.java", "*_spec.rb",     "*.bats",          "*.snap",
    "conftest.py", "pytest.ini",  "jest.config.*", "vitest.config.*", "tox.ini",
};
static const char *const agent_verify_dirs[] = {"test", "tests", "spec", "__tests__", "testdata"};

static bool agent_verify_is_test(const char *path) {
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    for (size_t i = 0; i < sizeof(agent_verify_tests) / sizeof(agent_verify_tests[0]); i++)
        if (fnmatch(agent_verify_tests[i], name, 0) == 0)
            return true;
    for (const char *p = path; p < name;) {
        size_t n = strcspn(p, "/");
        for (size_t i = 0; i < sizeof(agent_verify_dirs) / sizeof(agent_verify_dirs[0]); i++)
            if (strlen(agent_verify_dirs[i]) == n && strncmp(p, agent_verify_dirs[i], n) == 0)
                return true;
        p += n + 1;
    }
    return false;
}

/* A word of the verifier that is a file here; and what programs of this name read. */
static bool agent_verify_is_named(const char *command, const char *path) {
    static const char *const reads[][2] = {{"make", "Makefile"},    {"make", "makefile"},
                                           {"make", "GNUmakefile"}, {"npm", "package.json"},
                                           {"cargo", "Cargo.toml"}, {"ctest", "CMakeLists.txt"},
                                           {"just", "justfile"}};
    size_t n = strlen(path);
    for (const char *p = command; *p != '\0';) {
        p += strspn(p, " \t;&|()'\"");
        size_t len = strcspn(p, " \t;&|()'\"");
        const char *word = len > 2 && p[0] == '.' && p[1] == '/' ? p + 2 : p;
        size_t rest = len - (size_t)(word - p);
        if (rest == n && strncmp(word, path, n) == 0)
            return true;
        for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
            if (strlen(reads[i][0]) == len && strncmp(p, reads[i][0], len) == 0 &&
                strcmp(reads[i][1], path) == 0)
                return true;
        p += len;
    }
    return false;
}

static bool agent_verify_is_listed(const struct agent *a, const char *path) {
    for (size_t i = 0; i < a->o.protect.count; i++)
        if (ws_ignore_glob(a->o.protect.item[i], path))
            return true;
    return false;
}

int agent_verify_protect(struct agent *a, struct err *err) {
    const struct ws_tree *t = &a->project.tree;
    a->protected = calloc(t->count + 1, sizeof(char *));
    if (a->protected == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    for (size_t i = 0; i < t->count; i++) {
        const char *path = t->entries[i].path;
        bool own = !a->o.allow_tests &&
                   (agent_verify_is_test(path) || agent_verify_is_named(a->o.verify, path));
        if (t->entries[i].type == WS_DIR || !(own || agent_verify_is_listed(a, path)))
            continue;
        a->protected[a->protected_count] = strdup(path);
        if (a->protected[a->protected_count] == NULL)
            return err_set(err, ERR_SYSTEM, 0, "out of memory");
        a->protected_count++;
    }
    return 0;
}

/* The file itself, a directory that holds one, or something below one (which would need it to be a
 * directory). */
bool agent_verify_may_write(void *agent, const char *path, char *why, size_t size) {
    const struct agent *a = agent;
    size_t n = strlen(path);
    for (size_t i = 0; i < a->protected_count; i++) {
        const char *one = a->protected[i];
        size_t len = strlen(one);
        size_t less = n < len ? n : len;
        if (strncmp(one, path, less) != 0 || (n < len && one[n] != '/') ||
            (n > len && path[len] != '/'))
            continue;
        /* A directory by itself may be written into; only a change of what stands there counts. */
        if (n < len) {
            const struct ws_entry *e = ws_tree_find(&a->project.tree, path);
            if (e != NULL && e->type == WS_DIR)
                continue;
        }
        snprintf(why, size,
                 "%.150s is a test or part of the verifier, and write-protected (--allow-tests "
                 "lifts that)",
                 one);
        return false;
    }
    return true;
}

/* What the output says about tests: counts, and each failure. */
static void agent_verify_read(struct agent *a, const struct agent_outcome *o,
                              struct agent_verdict *v, struct buf *report, struct buf *set) {
    struct verify_report r;
    struct verify_args args = {.root = a->dir, .count = 1};
    struct err err;
    args.items[0] = (struct verify_arg){.name = "file", .value = AGENT_VERIFY_LOG};
    if (fd_write_atomic(a->dir, AGENT_VERIFY_LOG, o->output.data != NULL ? o->output.data : "",
                        o->output.len, 0600, &err) < 0)
        return;
    verify_run(verify_find("log"), &args, &r);
    if (r.passed + r.failed + r.skipped > 0) {
        v->counted = true;
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
}

static void agent_verify_judge(struct agent *a, const struct agent_outcome *o,
                               struct agent_verdict *v) {
    const struct agent_verdict *b = &a->baseline;
    v->pass = o->ok;
    snprintf(v->why, sizeof(v->why), o->ok ? "the verifier passed" : "the verifier did not pass");
    if (o->ok && v->counted && v->failed > 0) {
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

static void agent_verify_bind(struct agent *a, const struct agent_outcome *o,
                              struct agent_verdict *v) {
    unsigned char hash[32];
    ws_tree_digest(&a->project.tree, hash);
    sodium_bin2hex(v->tree, sizeof(v->tree), hash, sizeof(hash));
    crypto_hash_sha256(hash, (const unsigned char *)(o->output.data != NULL ? o->output.data : ""),
                       o->output.len);
    sodium_bin2hex(v->output, sizeof(v->output), hash, sizeof(hash));
    memcpy(v->cause, o->cause, sizeof(v->cause));
    v->exit_code = o->exit_code;
}

/* In a copy: no process of an earlier command is there to change files while the verifier runs, and
 * the sandbox stays as it is. */
static int agent_verify_in_copy(struct agent *a, struct agent_outcome *o, struct err *err) {
    struct project *p = &a->project;
    char own[PROJECT_SANDBOX_MAX], copy[PROJECT_SANDBOX_MAX];
    struct err later;
    bool synced = p->synced;
    if (project_box(p, err) < 0 || project_box_fork(p, copy, err) < 0)
        return -1;
    memcpy(own, p->sandbox, sizeof(own));
    memcpy(p->sandbox, copy, sizeof(copy));
    int rc = project_push_exact(p, err);
    if (rc == 0)
        rc = agent_run_command(a, a->o.verify, NULL, o, err);
    memcpy(p->sandbox, own, sizeof(own));
    p->synced = synced;
    (void)project_box_delete(p, copy, &later); /* it ends by itself when idle */
    return rc;
}

int agent_verify(struct agent *a, struct agent_verdict *v, struct buf *report, struct err *err) {
    struct agent_outcome o = {0};
    struct buf set;
    memset(v, 0, sizeof(*v));
    buf_init(&set, (size_t)1024 * 1024);
    int rc = agent_verify_in_copy(a, &o, err);
    if (rc == 0) {
        v->ran = true;
        agent_verify_read(a, &o, v, report, &set);
        agent_verify_judge(a, &o, v);
        agent_verify_bind(a, &o, v);
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
    agent_say_event(a, "verify",
                    json_pack("{s:s, s:b, s:s, s:s, s:s, s:i, s:s}", "command", a->o.verify, "pass",
                              (int)a->last.pass, "tree", a->last.tree, "output_sha256",
                              a->last.output, "cause", a->last.cause, "exit_code",
                              a->last.exit_code, "why", a->last.why));
    if (!a->last.pass) {
        (void)buf_printf(out, NULL, "\nNot done: %s.", a->last.why);
        return true;
    }
    (void)buf_puts(out, "verified", NULL);
    agent_end(a, AGENT_VERIFIED, "%s", a->last.why);
    return false;
}
