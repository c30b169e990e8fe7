#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body_parts.h"
#include "exec_outcome.h"
#include "sandbox_api.h"
#include "sandbox_cmd.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

struct sandbox_execs_options {
    bool json, follow;
    const char *signal;
};

/* ps */

struct sandbox_execs_cells {
    char started[32], result[64], took[32];
};

static void sandbox_execs_row(const json_t *ex, struct sandbox_execs_cells *made,
                              struct table_row *row) {
    const char *state = json_string_value(json_object_get(ex, "state"));
    const json_t *end = json_object_get(ex, "end");
    const char *cause = json_string_value(json_object_get(end, "cause"));
    const json_t *code = json_object_get(end, "exit_code");
    json_int_t created = json_integer_value(json_object_get(ex, "created_at"));
    json_int_t took = json_integer_value(json_object_get(ex, "ended_at")) - created;

    sandbox_api_time(json_object_get(ex, "created_at"), made->started, sizeof(made->started));
    snprintf(made->result, sizeof(made->result), "-");
    snprintf(made->took, sizeof(made->took), "-");
    if (cause != NULL) {
        str_human_ms(made->took, sizeof(made->took), took > 0 ? (uint64_t)took : 0);
        if (json_is_integer(code))
            snprintf(made->result, sizeof(made->result), "exit %" PRId64,
                     (int64_t)json_integer_value(code));
        else
            snprintf(made->result, sizeof(made->result), "%s", cause);
    }
    *row = (struct table_row){{json_string_value(json_object_get(ex, "id")), state, made->result,
                               made->took, made->started,
                               json_string_value(json_object_get(ex, "command"))}};
}

static int sandbox_execs_print(const json_t *list) {
    size_t count = json_array_size(list), i;
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    struct sandbox_execs_cells *made = calloc(count + 1, sizeof(*made));
    int rc = rows != NULL && made != NULL ? 0 : -1;
    json_t *ex;

    if (rc == 0) {
        rows[0] = (struct table_row){{"ID", "STATE", "RESULT", "TOOK", "STARTED", "COMMAND"}};
        json_array_foreach((json_t *)(uintptr_t)list, i, ex)
            sandbox_execs_row(ex, &made[i], &rows[i + 1]);
        table_print(stdout, rows, count + 1, 6);
    }
    free(rows);
    free(made);
    return rc;
}

static int sandbox_execs_do_ps(struct rest *rest, int argc, char **argv, const void *options,
                               struct err *err) {
    const struct sandbox_execs_options *o = options;
    char path[160];
    json_t *answer;
    int rc = 0;

    (void)argc;
    if (sandbox_api_path(path, sizeof(path), argv[0], "/exec", err) < 0)
        return -1;
    answer = sandbox_api_call(rest, "GET", path, NULL, err);
    if (answer == NULL)
        return -1;
    if (o->json)
        sandbox_api_print(answer);
    else if (sandbox_execs_print(json_object_get(answer, "execs")) < 0)
        rc = body_parts_memory(err);
    json_decref(answer);
    return rc;
}

static int sandbox_execs_run_ps(int argc, char **argv) {
    struct sandbox_execs_options o = {0};
    const struct opt table[] = {
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print the answer as JSON"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox ps",
        .usage = "pinfold sandbox ps ID [--json]",
        .about = "The executions of a sandbox: those that run and those that ended, with how.",
        .table = table,
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_execs_do_ps, &o);
}

const struct client_cmd sandbox_execs_ps = {
    .name = "ps",
    .about = "its executions",
    .run = sandbox_execs_run_ps,
};

/* kill */

/* "TERM", "SIGTERM", "term", "15". */
static json_t *sandbox_execs_signal(const char *text) {
    char upper[24];
    uint64_t number = 0;
    size_t i = 0;

    if (str_u64(text, 1, 64, &number, NULL) == 0)
        return json_integer((json_int_t)number);
    for (; text[i] != '\0' && i + 1 < sizeof(upper); i++)
        upper[i] = (char)toupper((unsigned char)text[i]);
    upper[i] = '\0';
    return json_string(upper);
}

/* Without a signal the whole tree is ended. That is DELETE, which makes one that is over forgotten:
 * so its state is asked for first. */
static int sandbox_execs_end(struct rest *rest, const char *const ids[2], struct err *err) {
    char path[256];
    json_t *ex, *answer;
    const char *state;

    if (sandbox_api_exec_path(path, sizeof(path), ids, "", err) < 0)
        return -1;
    ex = sandbox_api_call(rest, "GET", path, NULL, err);
    if (ex == NULL)
        return -1;
    state = json_string_value(json_object_get(ex, "state"));
    if (state != NULL && strcmp(state, "done") == 0) {
        json_decref(ex);
        return err_set(err, ERR_STATE, 0, "%s is over already", ids[1]);
    }
    json_decref(ex);
    answer = sandbox_api_call(rest, "DELETE", path, NULL, err);
    json_decref(answer);
    return answer != NULL ? 0 : -1;
}

static int sandbox_execs_do_kill(struct rest *rest, int argc, char **argv, const void *options,
                                 struct err *err) {
    const struct sandbox_execs_options *o = options;
    const char *const ids[2] = {argv[0], argv[1]};
    char path[256];
    json_t *body, *answer;

    (void)argc;
    if (o->signal == NULL)
        return sandbox_execs_end(rest, ids, err);
    if (sandbox_api_exec_path(path, sizeof(path), ids, "/signal", err) < 0)
        return -1;
    body = json_pack("{s:o}", "signal", sandbox_execs_signal(o->signal));
    if (body == NULL)
        return err_set(err, ERR_INVALID, 0, "%s is not the name of a signal", o->signal);
    answer = sandbox_api_call(rest, "POST", path, body, err);
    json_decref(answer);
    return answer != NULL ? 0 : -1;
}

static int sandbox_execs_run_kill(int argc, char **argv) {
    struct sandbox_execs_options o = {0};
    const struct opt table[] = {
        {"signal", 's', "SIGNAL", OPT_STRING, &o.signal, 0, 0,
         "send this to its process group (TERM, INT, 15)"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox kill",
        .usage = "pinfold sandbox kill ID EX [--signal SIGNAL]",
        .about = "Ends an execution with all its processes, or sends it a signal.",
        .table = table,
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_execs_do_kill, &o);
}

const struct client_cmd sandbox_execs_kill = {
    .name = "kill",
    .about = "end an execution, or send it a signal",
    .run = sandbox_execs_run_kill,
};

/* logs and wait */

/* Follows one that was started before. -> exit status */
static int sandbox_execs_watch(char **argv, bool quiet, bool follow) {
    struct target target = {0};
    struct intr intr = INTR_NONE;
    struct exec_stream s = {0};
    struct err err = {0};
    const struct exec_stream_setup setup = {
        .target = &target, .sandbox = argv[0], .id = argv[1], .input = -1, .intr = &intr};
    enum exec_stop stop;
    int code = CLIENT_EXIT_TROUBLE;

    if (sandbox_api_check(argv[0], "a sandbox", &err) < 0 ||
        sandbox_api_check(argv[1], "an execution", &err) < 0 ||
        target_from_env(&target, &err) < 0 || intr_begin(&intr, &err) < 0 ||
        exec_stream_init(&s, &setup, &err) < 0) {
        say_line("%s", err.text);
        goto out;
    }
    exec_stream_set_echo(&s, quiet, 0);
    s.follow = follow;
    stop = exec_stream_follow(&s, &err);
    if (stop == EXEC_STOP_DONE && !s.done)
        /* It still runs: there is nothing to say of its end. */
        code = exec_stream_drain(&s, &err) == EXEC_STOP_DONE ? 0 : CLIENT_EXIT_TROUBLE;
    else
        code = exec_outcome(&s, stop, &err);
    if (!quiet && stop == EXEC_STOP_DONE)
        code = 0;
out:
    exec_stream_done(&s);
    target_done(&target);
    intr_end(&intr);
    return code;
}

static int sandbox_execs_run_logs(int argc, char **argv) {
    struct sandbox_execs_options o = {0};
    const struct opt table[] = {
        {"follow", 'f', NULL, OPT_FLAG, &o.follow, 0, 0, "go on until it is over"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox logs",
        .usage = "pinfold sandbox logs ID EX [--follow]",
        .about = "What an execution printed, to stdout and stderr as it did. The exit status says\n"
                 "whether that worked; `pinfold sandbox wait` gives the program's own.",
        .table = table,
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    return sandbox_execs_watch(argv + first, false, o.follow);
}

const struct client_cmd sandbox_execs_logs = {
    .name = "logs",
    .about = "what an execution printed",
    .run = sandbox_execs_run_logs,
};

static int sandbox_execs_run_wait(int argc, char **argv) {
    const struct simple_cmd cmd = {
        .name = "sandbox wait",
        .usage = "pinfold sandbox wait ID EX",
        .about = "Waits for the end of an execution; the exit status is as with exec.",
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    return sandbox_execs_watch(argv + first, true, true);
}

const struct client_cmd sandbox_execs_wait = {
    .name = "wait",
    .about = "wait for an execution; the exit status is its own",
    .run = sandbox_execs_run_wait,
};
