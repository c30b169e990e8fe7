#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_cmd.h"
#include "print.h"
#include "replay_compare.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

#define REPLAY_ANSWER_MAX ((size_t)512 * 1024 * 1024)

static const char *replay_id(const json_t *answer) {
    const char *id = json_string_value(json_object_get(answer, "id"));
    return id != NULL ? id : "?";
}

static int replay_print(const struct replay_compare *c, const json_t *now, struct err *err) {
    struct table_row *rows = calloc(c->count + 1, sizeof(*rows));

    if (rows == NULL)
        return err_set(err, ERR_SYSTEM, 0, "no memory for the table");
    rows[0] = (struct table_row){{"WHAT", "BEFORE", "NOW", ""}};
    for (size_t i = 0; i < c->count; i++)
        rows[i + 1] = (struct table_row){{c->rows[i].what, c->rows[i].before, c->rows[i].now,
                                          c->rows[i].equal ? "equal" : "DIFFERS"}};
    table_print(stdout, rows, c->count + 1, 4);
    fputs("\nrun again as ", stdout);
    say_put(stdout, replay_id(now));
    fputs(c->equal ? ": everything is equal\n" : ": not everything is equal\n", stdout);
    free(rows);
    return 0;
}

static void replay_print_json(const struct replay_compare *c, const json_t *before,
                              const json_t *now) {
    json_t *rows = json_array();
    json_t *out = json_pack("{s:b, s:s, s:s, s:o}", "equal", c->equal, "before", replay_id(before),
                            "now", replay_id(now), "rows", rows);

    for (size_t i = 0; i < c->count; i++) {
        const struct replay_compare_row *r = &c->rows[i];
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:b}", "what", r->what, "before",
                                              r->before, "now", r->now, "equal", r->equal));
    }
    print_json(out, JSON_INDENT(2));
    json_decref(out);
}

/* -> the exit status, or -1. */
static int replay_compare_and_print(const json_t *before, const json_t *now, bool json,
                                    struct err *err) {
    struct replay_compare c;
    int rc = replay_compare_make(&c, before, now, err);

    if (rc == 0 && json)
        replay_print_json(&c, before, now);
    else if (rc == 0)
        rc = replay_print(&c, now, err);
    if (rc == 0)
        rc = c.equal ? 0 : 1;
    replay_compare_done(&c);
    return rc;
}

static int replay_do(struct rest *rest, int argc, char **argv, const void *options,
                     struct err *err) {
    const bool *json = options;
    const char *id = argv[0];
    char path[128];
    json_t *before, *now;
    int rc = -1;

    (void)argc;
    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "the cryptographic library does not work here");
    if (!str_is_name(id))
        return err_set(err, ERR_INVALID, 0, "that is not the id of a run");
    snprintf(path, sizeof(path), "/v1/runs/%s", id);
    before = rest_get_json(rest, path, REPLAY_ANSWER_MAX, err);
    if (before == NULL)
        return -1;
    const char *state = json_string_value(json_object_get(before, "state"));
    if (state == NULL || strcmp(state, "done") != 0) {
        json_decref(before);
        return err_set(err, ERR_STATE, 0, "the run is not over yet");
    }
    snprintf(path, sizeof(path), "/v1/runs/%s/replay", id);
    now = rest_json(rest, "POST", path, NULL, REPLAY_ANSWER_MAX, err);
    if (now != NULL)
        rc = replay_compare_and_print(before, now, *json, err);
    json_decref(before);
    json_decref(now);
    return rc;
}

static int replay_run(int argc, char **argv) {
    bool json = false;
    const struct opt table[] = {
        {"json", 0, NULL, OPT_FLAG, &json, 0, 0, "one JSON object"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "replay",
        .usage = "pinfold replay [--json] RUN",
        .about = "Runs the same inputs again, in a fresh jail under the policy as it is now, and "
                 "compares\nthe ends, the outputs and the collected files. The server keeps the "
                 "inputs of a run\nas long as its result, unless it was told not to.\n\n"
                 "Exit status: 0 everything is equal, 1 something differs, 125 it could not be run "
                 "again.",
        .table = table,
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, replay_do, &json);
}

const struct client_cmd replay_cmd = {
    .name = "replay",
    .about = "run the inputs of a run again and compare",
    .run = replay_run,
};
