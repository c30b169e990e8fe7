#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_cmd.h"
#include "exec_options.h"
#include "exec_outcome.h"
#include "sandbox_api.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"

/* The shell that the image has. */
#define SHELL_LINE "if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi"

struct shell_cmd {
    const char *attach; /* an execution that runs already */
    struct exec_options options;
    struct target target;
    struct exec_body body;
    struct intr intr;
    struct tty tty;
    struct exec_stream stream;
    struct rest *rest; /* for what is asked before */
    uint64_t replay;   /* the last event that it has had */
    uint64_t typed;    /* bytes that its stdin has had */
};

/* A shell lives for as long as the policy gives, not for as long as a command usually takes. The
 * policy may not be told to us; then the defaults hold. */
static void shell_ask_ceilings(struct shell_cmd *c) {
    static const enum limit_id ids[] = {LIMIT_WALL_MS, LIMIT_CPU_MS, LIMIT_OUTPUT_BYTES};
    char path[160];
    json_t *sandbox = NULL, *policy = NULL;
    const char *name;

    if (sandbox_api_path(path, sizeof(path), c->options.sandbox, "", NULL) == 0)
        sandbox = sandbox_api_call(c->rest, "GET", path, NULL, NULL);
    name = sandbox_api_policy(sandbox);
    if (name != NULL && str_is_name(name)) {
        snprintf(path, sizeof(path), "/v1/policies/%s", name);
        policy = sandbox_api_call(c->rest, "GET", path, NULL, NULL);
    }
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        const json_t *limit =
            json_object_get(json_object_get(policy, "limits"), limit_info(ids[i])->name);
        json_int_t most = json_integer_value(json_object_get(limit, "ceiling"));
        uint64_t *mine = &c->options.limits.value[ids[i]];

        if (*mine == LIMIT_OPTIONS_UNSET && most > 0)
            *mine = (uint64_t)most;
    }
    json_decref(policy);
    json_decref(sandbox);
}

/* Is there such an execution, with a terminal? Up to where is its output old, and how much was
 * typed into it before? */
static int shell_find(struct shell_cmd *c, struct err *err) {
    const char *const ids[2] = {c->options.sandbox, c->attach};
    char path[256];
    json_t *ex;
    json_int_t seq, typed;
    bool has_tty;

    if (sandbox_api_exec_path(path, sizeof(path), ids, "", err) < 0)
        return -1;
    ex = sandbox_api_call(c->rest, "GET", path, NULL, err);
    if (ex == NULL)
        return -1;
    seq = json_integer_value(json_object_get(ex, "last_seq"));
    typed = json_integer_value(json_object_get(ex, "stdin_bytes"));
    has_tty = json_is_object(json_object_get(ex, "pty"));
    json_decref(ex);
    if (!has_tty)
        return err_set(err, ERR_INVALID, 0,
                       "%s has no terminal; pinfold sandbox logs shows its output", c->attach);
    c->replay = seq > 0 ? (uint64_t)seq : 0;
    c->typed = typed > 0 ? (uint64_t)typed : 0;
    return 0;
}

static int shell_prepare(struct shell_cmd *c, struct err *err) {
    struct exec_body_tty tty = {.input = STDIN_FILENO, .term = getenv("TERM")};

    if (target_from_env(&c->target, err) < 0)
        return -1;
    c->rest = rest_new(&c->target, NULL, err);
    if (c->rest == NULL)
        return -1;
    if (c->attach != NULL)
        return shell_find(c, err);
    shell_ask_ceilings(c);
    (void)tty_size(STDOUT_FILENO, &tty.rows, &tty.cols);
    return exec_body_make(&c->options, &tty, &c->body, err);
}

static int shell_follow(struct shell_cmd *c, struct err *err) {
    bool attach = c->attach != NULL;
    const struct exec_stream_setup setup = {.target = &c->target,
                                            .sandbox = c->options.sandbox,
                                            .id = attach ? c->attach : c->body.id,
                                            .body = attach ? NULL : &c->body.json,
                                            .input = STDIN_FILENO,
                                            .intr = &c->intr,
                                            .tty = &c->tty,
                                            .escapes = true};
    enum exec_stop stop;

    if (intr_begin(&c->intr, err) < 0 || exec_stream_init(&c->stream, &setup, err) < 0 ||
        tty_begin(&c->tty, STDIN_FILENO, err) < 0)
        return -1;
    c->stream.keep = true;
    c->stream.replay = c->replay;
    c->stream.input.offset = c->typed;
    c->stream.resize_due = attach;
    stop = exec_stream_follow(&c->stream, err);
    tty_end(&c->tty);
    return exec_outcome(&c->stream, stop, err);
}

static int shell_start(struct shell_cmd *c) {
    struct err err = {0};
    int code = shell_prepare(c, &err);

    rest_free(c->rest);
    if (code == 0)
        code = shell_follow(c, &err);
    if (code < 0)
        say_line("%s", err.text);
    exec_stream_done(&c->stream);
    exec_body_done(&c->body);
    target_done(&c->target);
    intr_end(&c->intr);
    return code < 0 ? CLIENT_EXIT_TROUBLE : code;
}

static int shell_check(struct shell_cmd *c, struct err *err) {
    if (c->options.sandbox == NULL || *c->options.sandbox == '\0')
        return err_set(
            err, ERR_INVALID, 0,
            "in which sandbox? Give its id or set PINFOLD_SANDBOX; pinfold sandbox create "
            "makes one");
    if (sandbox_api_check(c->options.sandbox, "a sandbox", err) < 0)
        return -1;
    if (c->attach != NULL && sandbox_api_check(c->attach, "an execution", err) < 0)
        return -1;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return err_set(err, ERR_STATE, 0,
                       "standard input and output must be a terminal; pinfold sandbox exec needs "
                       "none");
    return 0;
}

static int shell_run(int argc, char **argv) {
    struct shell_cmd c = {.intr = INTR_NONE, .tty = TTY_NONE, .body = {.input = -1}};
    const struct opt table[] = {
        {"attach", 0, "EX", OPT_STRING, &c.attach, 0, 0,
         "come back to a shell that was left, or to another execution with a terminal"},
        {"env", 'e', "K=V", OPT_LIST, &c.options.env, 0, 0, "set a variable"},
        {"cwd", 0, "DIR", OPT_STRING, &c.options.cwd, 0, 0, "start there (default: /workspace)"},
        {"wall", 0, "TIME", OPT_DURATION, &c.options.limits.value[LIMIT_WALL_MS], 0, 0,
         "it ends after that long (default: the most that the policy gives)"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "shell",
        .usage = "pinfold shell [ID] [options]",
        .about = "An interactive shell in a sandbox. It survives a lost connection and a restart "
                 "of the\n"
                 "server; ~. at the start of a line leaves it running (~~ types one ~). Without ID "
                 "it is\n"
                 "in the sandbox of PINFOLD_SANDBOX.\n\n"
                 "Examples:\n"
                 "  pinfold shell $id\n"
                 "  pinfold shell $id --attach ex_…\n\n"
                 "Exit status: the shell's own; 0 after ~. ; otherwise as with pinfold exec.",
        .table = table,
        .max_operands = 1,
        .mixed = true,
    };
    struct err err = {0};
    int first, rc;

    limit_options_init(&c.options.limits);
    rc = simple_cmd_parse(&cmd, argc, argv, &first);
    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_TROUBLE : 0;
    c.options.sandbox = first < argc ? argv[first] : getenv("PINFOLD_SANDBOX");
    c.options.shell = SHELL_LINE;
    c.options.tty = true;
    if (shell_check(&c, &err) < 0) {
        say_line("shell: %s", err.text);
        return CLIENT_EXIT_TROUBLE;
    }
    return shell_start(&c);
}

const struct client_cmd shell_cmd = {
    .name = "shell",
    .about = "an interactive shell in a sandbox",
    .run = shell_run,
};
