#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_cmd.h"
#include "exec_options.h"
#include "exec_outcome.h"
#include "exec_project.h"
#include "sandbox_api.h"
#include "sandbox_cmd.h"
#include "say.h"

struct exec_cmd {
    struct exec_options options;
    struct target target;
    struct exec_body body;
    struct intr intr;
    struct tty tty;
    struct exec_stream stream;
};

/* The answer as JSON, once it is over. */
static int exec_cmd_json(struct exec_cmd *c, struct err *err) {
    const char *const ids[2] = {c->options.sandbox, c->stream.id};
    char path[256];
    json_t *answer;

    if (sandbox_api_exec_path(path, sizeof(path), ids, "", err) < 0)
        return -1;
    answer = rest_get_json(c->stream.rest, path, (size_t)512 * 1024 * 1024, err);
    if (answer == NULL)
        return -1;
    sandbox_api_print(answer);
    json_decref(answer);
    return fflush(stdout) == 0 ? 0 : err_sys(err, "cannot write the output");
}

static int exec_cmd_follow(struct exec_cmd *c, struct err *err) {
    const struct exec_options *o = &c->options;
    uint64_t output = o->limits.value[LIMIT_OUTPUT_BYTES];
    bool raw = o->tty && isatty(STDIN_FILENO);
    const struct exec_stream_setup setup = {.target = &c->target,
                                            .sandbox = o->sandbox,
                                            .id = c->body.id,
                                            .body = &c->body.json,
                                            .input = c->body.input,
                                            .intr = &c->intr,
                                            .tty = raw ? &c->tty : NULL};
    enum exec_stop stop;
    int code;

    if (intr_begin(&c->intr, err) < 0 || exec_stream_init(&c->stream, &setup, err) < 0 ||
        (raw && tty_begin(&c->tty, STDIN_FILENO, err) < 0)) {
        say_line("%s", err->text);
        return CLIENT_EXIT_TROUBLE;
    }
    exec_stream_set_echo(&c->stream, o->json, output == LIMIT_OPTIONS_UNSET || o->tty ? 0 : output);
    stop = exec_stream_follow(&c->stream, err);
    tty_end(&c->tty);
    code = exec_outcome(&c->stream, stop, err);
    if (o->json && stop == EXEC_STOP_DONE && exec_cmd_json(c, err) < 0) {
        say_line("%s", err->text);
        return code != 0 ? code : CLIENT_EXIT_TROUBLE;
    }
    return code;
}

static int exec_cmd_background(struct exec_cmd *c, struct err *err) {
    struct rest *rest = rest_new(&c->target, NULL, err);
    char path[160];
    struct buf answer;
    struct rest_call call = {.method = "POST",
                             .path = path,
                             .body = c->body.json.data,
                             .body_len = c->body.json.len,
                             .on_data = rest_gather,
                             .arg = &answer};
    json_t *object = NULL;
    int rc = -1;

    buf_init(&answer, SANDBOX_API_ANSWER_MAX);
    if (rest != NULL && sandbox_api_path(path, sizeof(path), c->options.sandbox, "/exec", err) == 0)
        rc = rest_perform(rest, &call, err);
    if (rc == 0 && call.status >= 400)
        rc = rest_refusal(&call, err);
    if (rc == 0 && (object = json_loadb(answer.data != NULL ? answer.data : "", answer.len,
                                        JSON_ALLOW_NUL, NULL)) == NULL)
        rc = err_set(err, ERR_PROTOCOL, 0, "the server's answer is not JSON");
    if (rc == 0 && c->options.json)
        sandbox_api_print(object);
    else if (rc == 0)
        rc = sandbox_api_print_id(object, err);
    if (rc < 0)
        say_line("%s", err->text);
    json_decref(object);
    buf_done(&answer);
    rest_free(rest);
    return rc < 0 ? CLIENT_EXIT_TROUBLE : 0;
}

static int exec_cmd_begin(struct exec_cmd *c, struct err *err) {
    const struct exec_options *o = &c->options;
    struct exec_body_tty tty = {.input = -1, .term = getenv("TERM")};

    /* The size is that of the terminal that shows it. */
    if (o->tty && !tty_size(STDOUT_FILENO, &tty.rows, &tty.cols))
        (void)tty_size(STDIN_FILENO, &tty.rows, &tty.cols);
    if (o->tty && isatty(STDIN_FILENO))
        tty.input = STDIN_FILENO;
    if (target_from_env(&c->target, err) < 0 || exec_body_make(o, &tty, &c->body, err) < 0) {
        say_line("%s", err->text);
        return CLIENT_EXIT_TROUBLE;
    }
    return o->background ? exec_cmd_background(c, err) : exec_cmd_follow(c, err);
}

static int exec_cmd_in_project(void *arg) {
    struct err err = {0};

    return exec_cmd_begin(arg, &err);
}

static void exec_cmd_clean(struct exec_cmd *c) {
    exec_stream_done(&c->stream);
    exec_body_done(&c->body);
    target_done(&c->target);
    intr_end(&c->intr);
}

static int exec_cmd_main(bool operand, int argc, char **argv) {
    struct exec_cmd c = {.intr = INTR_NONE, .tty = TTY_NONE, .body = {.input = -1}};
    const char *name = operand ? "sandbox exec" : "exec";
    struct err err = {0};
    int code;

    if (exec_options_parse(operand, argc, argv, &c.options, &err) < 0) {
        say_line("%s: %s (see pinfold %s --help)", name, err.text, name);
        return CLIENT_EXIT_TROUBLE;
    }
    if (c.options.help) {
        exec_options_help(operand, stdout);
        return 0;
    }
    if (c.options.sandbox == NULL)
        c.options.sandbox = getenv("PINFOLD_SANDBOX");
    if (c.options.sandbox == NULL || *c.options.sandbox == '\0') {
        code = exec_project(&c.options, exec_cmd_in_project, &c);
        exec_cmd_clean(&c);
        return code;
    }
    if (sandbox_api_check(c.options.sandbox, "a sandbox", &err) < 0) {
        say_line("exec: %s", err.text);
        return CLIENT_EXIT_TROUBLE;
    }
    code = exec_cmd_begin(&c, &err);
    exec_cmd_clean(&c);
    return code;
}

static int exec_cmd_run(int argc, char **argv) {
    return exec_cmd_main(false, argc, argv);
}

static int exec_cmd_run_inside(int argc, char **argv) {
    return exec_cmd_main(true, argc, argv);
}

const struct client_cmd exec_cmd = {
    .name = "exec",
    .about = "run a command on the files of this directory, in a sandbox",
    .run = exec_cmd_run,
};

const struct client_cmd exec_cmd_inside = {
    .name = "exec",
    .about = "run a command in one",
    .run = exec_cmd_run_inside,
};
