#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_cmd.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"
#include "trace_tree.h"
#include "traceparent.h"

#define TRACE_ANSWER_MAX ((size_t)64 * 1024 * 1024)
#define TRACE_PAGES 16 /* of 1,000 parts */

static const char *trace_cmd_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* The trace of a run or of a sandbox. */
static int trace_cmd_of(struct rest *rest, const char *kind, const char *id,
                        char trace[TRACEPARENT_ID_TEXT], struct err *err) {
    char path[128];
    int rc = 0;

    snprintf(path, sizeof(path), "/v1/%s/%s", kind, id);
    json_t *answer = rest_get_json(rest, path, TRACE_ANSWER_MAX, err);
    if (answer == NULL)
        return -1;
    const char *text = trace_cmd_text(json_object_get(answer, "trace"), "id");
    if (text == NULL || !str_copy(trace, TRACEPARENT_ID_TEXT, text))
        rc = err_set(err, ERR_STATE, 0, "%s is in no trace: it is older than traces are", id);
    json_decref(answer);
    return rc;
}

static int trace_cmd_resolve(struct rest *rest, const char *what, char trace[TRACEPARENT_ID_TEXT],
                             struct err *err) {
    uint8_t id[TRACEPARENT_ID];
    struct traceparent parent;

    if (traceparent_parse_id(what, id)) {
        memcpy(trace, what, TRACEPARENT_ID_TEXT);
        return 0;
    }
    if (traceparent_parse(what, &parent)) {
        traceparent_hex(parent.id, sizeof(parent.id), trace);
        return 0;
    }
    if (str_is_name(what) && strncmp(what, "run_", 4) == 0)
        return trace_cmd_of(rest, "runs", what, trace, err);
    if (str_is_name(what) && strncmp(what, "sb_", 3) == 0)
        return trace_cmd_of(rest, "sandboxes", what, trace, err);
    return err_set(err, ERR_INVALID, 0,
                   "%s is neither a trace (32 hexadecimal digits) nor the id of a run or a sandbox",
                   what);
}

/* All pages as one array; a new reference. */
static json_t *trace_cmd_fetch(struct rest *rest, const char *trace, bool *cut, struct err *err) {
    char path[256];
    char after[64] = "";
    json_t *all = json_array();

    for (int page = 0; all != NULL && page < TRACE_PAGES; page++) {
        snprintf(path, sizeof(path), "/v1/traces/%s?limit=1000&after=%s", trace, after);
        json_t *answer = rest_get_json(rest, path, TRACE_ANSWER_MAX, err);
        const char *next = trace_cmd_text(answer, "next");

        if (answer == NULL || json_array_extend(all, json_object_get(answer, "spans")) < 0) {
            json_decref(answer);
            json_decref(all);
            return NULL;
        }
        *cut = json_is_true(json_object_get(answer, "cut"));
        bool more = next != NULL && str_is_name(next) && str_copy(after, sizeof(after), next);
        json_decref(answer);
        if (!more)
            break;
    }
    if (all == NULL)
        err_set(err, ERR_SYSTEM, 0, "no memory for the trace");
    return all;
}

struct trace_cells {
    char what[TRACE_TREE_PREFIX + 128], end[48], time[32], start[32];
};

static void trace_cmd_end(const json_t *span, char *text, size_t size) {
    const char *cause = trace_cmd_text(span, "cause"), *state = trace_cmd_text(span, "state");
    const json_t *code = json_object_get(span, "exit_code");

    if (cause == NULL)
        snprintf(text, size, "%s", state != NULL ? state : "");
    else if (strcmp(cause, "exit") == 0 && json_is_integer(code))
        snprintf(text, size, "exit %" PRId64, (int64_t)json_integer_value(code));
    else
        snprintf(text, size, "%s", cause);
}

static void trace_cmd_row(const struct trace_part *parts, size_t index, const json_t *span,
                          uint64_t origin, struct trace_cells *made) {
    const char *label = trace_cmd_text(span, "label"), *kind = trace_cmd_text(span, "kind");
    const json_t *took = json_object_get(span, "duration_ms");
    uint64_t created = (uint64_t)json_integer_value(json_object_get(span, "created_at"));
    char prefix[TRACE_TREE_PREFIX], after[sizeof(made->start) - 1];

    trace_tree_prefix(parts, index, prefix);
    snprintf(made->what, sizeof(made->what), "%s%.100s", prefix,
             label != NULL && label[0] != '\0' ? label
             : kind != NULL                    ? kind
                                               : "");
    trace_cmd_end(span, made->end, sizeof(made->end));
    snprintf(made->time, sizeof(made->time), "-");
    if (json_is_integer(took))
        str_human_ms(made->time, sizeof(made->time), (uint64_t)json_integer_value(took));
    str_human_ms(after, sizeof(after), created > origin ? created - origin : 0);
    snprintf(made->start, sizeof(made->start), "+%s", after);
}

static int trace_cmd_rows(const json_t *spans, struct trace_part *parts, size_t *order,
                          struct trace_cells *made, struct table_row *rows) {
    size_t count = json_array_size(spans);
    uint64_t origin =
        (uint64_t)json_integer_value(json_object_get(json_array_get(spans, 0), "created_at"));

    for (size_t i = 0; i < count; i++) {
        const json_t *span = json_array_get(spans, i);
        parts[i] = (struct trace_part){.id = trace_cmd_text(span, "id"),
                                       .span = trace_cmd_text(span, "span"),
                                       .parent = trace_cmd_text(span, "parent"),
                                       .from = trace_cmd_text(span, "from")};
        if (parts[i].id == NULL || parts[i].span == NULL)
            return -1;
    }
    if (trace_tree_order(parts, count, order) < 0)
        return -1;
    rows[0] = (struct table_row){{"WHAT", "END", "TIME", "START", "ID"}};
    for (size_t i = 0; i < count; i++) {
        const json_t *span = json_array_get(spans, order[i]);
        trace_cmd_row(parts, order[i], span, origin, &made[i]);
        rows[i + 1] = (struct table_row){
            {made[i].what, made[i].end, made[i].time, made[i].start, parts[order[i]].id}};
    }
    return 0;
}

static int trace_cmd_print(const json_t *spans, struct err *err) {
    size_t count = json_array_size(spans);
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    struct trace_cells *made = calloc(count + 1, sizeof(*made));
    struct trace_part *parts = calloc(count + 1, sizeof(*parts));
    size_t *order = calloc(count + 1, sizeof(*order));
    int rc = -1;

    if (rows != NULL && made != NULL && parts != NULL && order != NULL)
        rc = trace_cmd_rows(spans, parts, order, made, rows);
    if (rc == 0)
        table_print(stdout, rows, count + 1, 5);
    free(rows);
    free(made);
    free(parts);
    free(order);
    return rc < 0 ? err_set(err, ERR_PROTOCOL, 0, "the server's answer cannot be shown") : 0;
}

static int trace_cmd_do(struct rest *rest, int argc, char **argv, const void *options,
                        struct err *err) {
    const bool *json = options;
    char trace[TRACEPARENT_ID_TEXT];
    bool cut = false;

    (void)argc;
    if (trace_cmd_resolve(rest, argv[0], trace, err) < 0)
        return -1;
    json_t *spans = trace_cmd_fetch(rest, trace, &cut, err);
    if (spans == NULL)
        return -1;
    int rc = 0;
    if (*json) {
        json_t *object = json_pack("{s:s, s:O, s:b}", "id", trace, "spans", spans, "cut", cut);
        rc = object != NULL ? json_dumpf(object, stdout, JSON_INDENT(1)) : -1;
        json_decref(object);
        putchar('\n');
        if (rc < 0)
            err_set(err, ERR_SYSTEM, 0, "the trace could not be written");
    } else {
        printf("trace %s\n", trace);
        rc = trace_cmd_print(spans, err);
        if (cut)
            say_line("there is more of it than the server shows");
    }
    json_decref(spans);
    return rc;
}

static int trace_cmd_run(int argc, char **argv) {
    bool json = false;
    const struct opt table[] = {
        {"json", 0, NULL, OPT_FLAG, &json, 0, 0, "as JSON: every part with its span and parent"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "trace",
        .usage = "pinfold trace [--json] TRACE|RUN|SANDBOX",
        .about =
            "Shows what belongs together: a run, what was started from inside it, the sandbox\n"
            "that an agent worked in, each under what it was started by. A trace begins with\n"
            "the traceparent of the caller (the client sends what TRACEPARENT says), or with\n"
            "the first run; inside a jail TRACEPARENT names the run.\n\n"
            "TIME is from the request to the end, waiting included; START counts from the\n"
            "first part that is shown.\n\n"
            "Example:\n"
            "  pinfold trace run_…",
        .table = table,
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, trace_cmd_do, &json);
}

const struct client_cmd trace_cmd = {
    .name = "trace",
    .about = "what was started by what: runs, executions, sandboxes as a tree",
    .run = trace_cmd_run,
};
