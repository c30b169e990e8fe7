#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client_cmd.h"
#include "collect_local.h"
#include "run_options.h"
#include "run_stream.h"
#include "say.h"

/* A result holds two streams per step and the collected files. */
#define RUN_ANSWER_MAX ((size_t)512 * 1024 * 1024)

#define RUN_EXIT_PIPE 141 /* what a shell shows for a program that SIGPIPE ended */

struct run_cmd {
    struct run_options options;
    struct target target;
    struct run_body body;
    struct intr intr;
    struct run_stream stream;
};

/* The exit status when the run was not followed to its end. */
static int run_cmd_stopped(const struct run_cmd *c, enum run_stream_stop stop,
                           const struct err *err) {
    switch (stop) {
    case RUN_STREAM_SIGNAL:
        return 128 + c->stream.signal;
    case RUN_STREAM_PIPE:
        return RUN_EXIT_PIPE;
    case RUN_STREAM_AWAY:
        say_line("%s; nothing was run", err->text);
        return CLIENT_EXIT_TROUBLE;
    case RUN_STREAM_LOST:
        say_line("%s%s%s", err->text,
                 c->stream.id[0] != '\0' ? "; how it ended: pinfold runs show " : "", c->stream.id);
        return CLIENT_EXIT_TROUBLE;
    default:
        say_line("%s", err->text);
        return CLIENT_EXIT_TROUBLE;
    }
}

static int run_cmd_gather(void *arg, const char *data, size_t len, struct err *err) {
    return buf_append(arg, data, len, err);
}

static int run_cmd_fetch(struct run_cmd *c, struct buf *answer, struct err *err) {
    char path[RUN_STREAM_ID_MAX + 16];
    struct rest_call call = {
        .method = "GET", .path = path, .on_data = run_cmd_gather, .arg = answer};

    snprintf(path, sizeof(path), "/v1/runs/%s", c->stream.id);
    if (rest_perform(c->stream.rest, &call, err) < 0)
        return -1;
    return call.status >= 400 ? rest_refusal(&call, err) : 0;
}

static int run_cmd_collect(struct run_cmd *c, const struct buf *answer, struct err *err) {
    json_t *object =
        json_loadb(answer->data != NULL ? answer->data : "", answer->len, JSON_ALLOW_NUL, NULL);
    const char *dir = c->options.out != NULL ? c->options.out : ".";
    size_t failed = 0;
    int rc;

    if (object == NULL)
        return err_set(err, ERR_PROTOCOL, 0, "the server's answer is not JSON");
    rc = collect_local_write(json_object_get(object, "files"), dir, &failed, err);
    json_decref(object);
    if (rc == 0 && failed > 0)
        return err_set(err, ERR_SYSTEM, 0, "%zu of the collected files could not be written",
                       failed);
    return rc;
}

/* What is done with the answer once the run is over: print it, write its files. */
static int run_cmd_answer(struct run_cmd *c, struct err *err) {
    const struct run_options *o = &c->options;
    bool collect = o->collect.count > 0 && (!o->json || o->out != NULL);
    struct buf answer;
    int rc;

    if (!o->json && !collect)
        return 0;
    buf_init(&answer, RUN_ANSWER_MAX);
    rc = run_cmd_fetch(c, &answer, err);
    if (rc == 0 && o->json)
        rc = outq_put(&c->stream.outq[0], answer.data, answer.len, err);
    if (rc == 0 && o->json && (answer.len == 0 || answer.data[answer.len - 1] != '\n'))
        rc = outq_put(&c->stream.outq[0], "\n", 1, err);
    if (rc == 0 && collect)
        rc = run_cmd_collect(c, &answer, err);
    buf_done(&answer);
    return rc;
}

/* Where to look for the reason. */
static void run_cmd_kept(const struct run_cmd *c) {
    const struct run_stream *s = &c->stream;
    long failed = s->ok ? -1 : run_ends_failed(&s->ends, &c->body);

    if (c->options.keep_steps && failed >= 0)
        say_line("the files before it: pinfold sandbox create --from %s@%ld", s->id, failed);
}

/* The run is over. */
static int run_cmd_finish(struct run_cmd *c, struct err *err) {
    struct run_stream *s = &c->stream;
    int code = run_ends_exit_code(&s->ends, &c->body, s->ok);
    bool broken = run_cmd_answer(c, err) < 0;
    enum run_stream_stop stop;
    struct err late = {0};
    char why[1024];

    if (broken && err->kind == ERR_SYSTEM && err->code == EPIPE)
        return RUN_EXIT_PIPE;
    if (s->signal != 0)
        return 128 + s->signal;
    stop = run_stream_drain(s, &late);
    if (stop != RUN_STREAM_DONE)
        return run_cmd_stopped(c, stop, &late);
    run_ends_explain(&s->ends, &c->body, s->ok, why, sizeof(why));
    if (why[0] != '\0')
        say_line("%s", why);
    run_cmd_kept(c);
    if (broken) {
        say_line("%s", err->text);
        /* Who asked for the answer reads the end there, and it is not there. */
        return code != 0 && !c->options.json ? code : CLIENT_EXIT_TROUBLE;
    }
    return code;
}

static int run_cmd_follow(struct run_cmd *c, struct err *err) {
    uint64_t output = c->options.limits.value[LIMIT_OUTPUT_BYTES];
    enum run_stream_stop stop;
    struct err late = {0};

    if (intr_begin(&c->intr, err) < 0 ||
        run_stream_init(&c->stream, &c->target, &c->body, &c->intr, err) < 0) {
        say_line("%s", err->text);
        return CLIENT_EXIT_TROUBLE;
    }
    run_stream_set_echo(&c->stream, c->options.json, output == LIMIT_OPTIONS_UNSET ? 0 : output);
    stop = run_stream_follow(&c->stream, err);
    if (stop == RUN_STREAM_DONE)
        return run_cmd_finish(c, err);
    /* What the program had printed before the connection broke still belongs to the user. */
    if (stop == RUN_STREAM_LOST)
        (void)run_stream_drain(&c->stream, &late);
    return run_cmd_stopped(c, stop, err);
}

static int run_cmd_run(int argc, char **argv) {
    struct run_cmd c = {.intr = INTR_NONE};
    struct err err = {0};
    int code = CLIENT_EXIT_TROUBLE;

    if (run_options_parse(argc, argv, &c.options, &err) < 0) {
        say_line("run: %s (see pinfold run --help)", err.text);
        return CLIENT_EXIT_TROUBLE;
    }
    if (c.options.help) {
        run_options_help(stdout);
        return 0;
    }
    if (target_from_env(&c.target, &err) < 0 || run_body_make(&c.options, &c.body, &err) < 0)
        say_line("%s", err.text);
    else
        code = run_cmd_follow(&c, &err);
    run_stream_done(&c.stream);
    run_body_done(&c.body);
    target_done(&c.target);
    intr_end(&c.intr);
    return code;
}

const struct client_cmd run_cmd = {
    .name = "run",
    .about = "run a command in a fresh jail and show what it prints",
    .run = run_cmd_run,
};
