#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client_cmd.h"
#include "fd.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

#define RUNS_ANSWER_MAX ((size_t)512 * 1024 * 1024)

/* The cells that are made up for one row. */
struct runs_cells {
    char when[32], verdict[48], steps[24];
};

static void runs_row(const json_t *run, struct runs_cells *made, struct table_row *row) {
    const char *state = json_string_value(json_object_get(run, "state"));
    const json_t *failed = json_object_get(run, "failed_step");
    time_t seconds = (time_t)(json_integer_value(json_object_get(run, "created_at")) / 1000);
    struct tm tm;

    if (gmtime_r(&seconds, &tm) != NULL)
        strftime(made->when, sizeof(made->when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(made->steps, sizeof(made->steps), "%" PRId64,
             (int64_t)json_integer_value(json_object_get(run, "steps")));
    if (state == NULL || strcmp(state, "done") != 0)
        snprintf(made->verdict, sizeof(made->verdict), "-");
    else if (json_is_true(json_object_get(run, "ok")))
        snprintf(made->verdict, sizeof(made->verdict), "ok");
    else if (json_is_integer(failed))
        snprintf(made->verdict, sizeof(made->verdict), "failed at step %" PRId64,
                 (int64_t)json_integer_value(failed) + 1);
    else
        snprintf(made->verdict, sizeof(made->verdict), "failed");
    *row = (struct table_row){{json_string_value(json_object_get(run, "id")), state, made->verdict,
                               made->steps, json_string_value(json_object_get(run, "policy")),
                               made->when}};
}

static int runs_print(const json_t *list) {
    size_t count = json_array_size(list), i;
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    struct runs_cells *made = calloc(count + 1, sizeof(*made));
    json_t *run;
    int rc = rows != NULL && made != NULL ? 0 : -1;

    if (rc == 0) {
        rows[0] = (struct table_row){{"ID", "STATE", "RESULT", "STEPS", "POLICY", "CREATED"}};
        json_array_foreach((json_t *)(uintptr_t)list, i, run) runs_row(run, &made[i], &rows[i + 1]);
        table_print(stdout, rows, count + 1, 6);
    }
    free(rows);
    free(made);
    return rc;
}

static int runs_list(struct rest *rest, uint64_t limit, struct err *err) {
    char path[64];
    json_t *answer;
    int rc;

    snprintf(path, sizeof(path), "/v1/runs?limit=%" PRIu64, limit);
    answer = rest_get_json(rest, path, RUNS_ANSWER_MAX, err);
    if (answer == NULL)
        return -1;
    rc = runs_print(json_object_get(answer, "runs"));
    json_decref(answer);
    return rc < 0 ? err_set(err, ERR_SYSTEM, 0, "no memory for the list") : 0;
}

static int runs_gather(void *arg, const char *data, size_t len, struct err *err) {
    return buf_append(arg, data, len, err);
}

/* One request about one run; the answer, as it came, goes to stdout when `print` is set. */
static int runs_one(struct rest *rest, const char *method, const char *id, bool print,
                    struct err *err) {
    struct buf answer;
    char path[128];
    struct rest_call call = {
        .method = method, .path = path, .on_data = runs_gather, .arg = &answer};
    int rc;

    if (!str_is_name(id))
        return err_set(err, ERR_INVALID, 0, "%s is not the id of a run", id);
    snprintf(path, sizeof(path), "/v1/runs/%s", id);
    buf_init(&answer, RUNS_ANSWER_MAX);
    rc = rest_perform(rest, &call, err);
    if (rc == 0 && call.status >= 400)
        rc = rest_refusal(&call, err);
    const char *text = answer.data != NULL ? answer.data : "";
    if (rc == 0 && print)
        rc = fd_write_all(STDOUT_FILENO, text, answer.len, err);
    if (rc == 0 && print && (answer.len == 0 || text[answer.len - 1] != '\n'))
        rc = fd_write_all(STDOUT_FILENO, "\n", 1, err);
    buf_done(&answer);
    return rc;
}

/* list takes no id; show and cancel need one. */
static bool runs_is_right(const char *what, const char *id) {
    if (strcmp(what, "list") == 0)
        return id == NULL;
    return (strcmp(what, "show") == 0 || strcmp(what, "cancel") == 0) && id != NULL;
}

static int runs_do(struct rest *rest, int argc, char **argv, const void *options, struct err *err) {
    const uint64_t *limit = options;
    const char *what = argc > 0 ? argv[0] : "list", *id = argc > 1 ? argv[1] : NULL;

    if (id == NULL)
        return runs_list(rest, *limit, err);
    if (strcmp(what, "show") == 0)
        return runs_one(rest, "GET", id, true, err);
    return runs_one(rest, "DELETE", id, false, err);
}

static int runs_run(int argc, char **argv) {
    uint64_t limit = 20;
    const struct opt table[] = {
        {"limit", 0, "N", OPT_U64, &limit, 1, 1000, "list: how many, the newest first (20)"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "runs",
        .usage = "pinfold runs [--limit N] [list]\n"
                 "pinfold runs show ID\n"
                 "pinfold runs cancel ID",
        .about =
            "Your runs on the server: lists them, prints the answer of one as JSON, ends one.\n\n"
            "Example:\n"
            "  pinfold runs show run_… | python3 -m json.tool",
        .table = table,
        .max_operands = 2,
    };
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    if (first < argc && !runs_is_right(argv[first], first + 1 < argc ? argv[first + 1] : NULL)) {
        say_line("runs: expected list, show ID or cancel ID");
        return CLIENT_EXIT_USAGE;
    }
    return simple_cmd_run(runs_do, argc - first, argv + first, &limit);
}

const struct client_cmd runs_cmd = {
    .name = "runs",
    .about = "list, show and cancel your runs",
    .run = runs_run,
};
