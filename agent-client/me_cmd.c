/* pinfold me: who the token is, what it may use and what is used of it. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client_cmd.h"
#include "print.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

#define ME_ANSWER_MAX ((size_t)1024 * 1024)

struct me_line {
    const char *name; /* in `quota` and `used` */
    const char *text;
};

/* In the order of interest. What only one of the two objects has is shown as far as it goes. */
static const struct me_line me_lines[] = {
    {"runs", "runs that wait or run"},
    {"parallel_runs", "runs in jails"},
    {"sandboxes", "sandboxes"},
    {"mem_bytes", "memory promised to jails"},
    {"disk_bytes", "disk promised to jails"},
    {"cpu_ms_per_day", "CPU time today (UTC)"},
    {"runs_today", "runs today (UTC)"},
    {"result_bytes", "stored results"},
    {"snapshot_bytes", "snapshots"},
    {"blobs_bytes", "contents of workspaces"},
};
#define ME_LINES (sizeof(me_lines) / sizeof(me_lines[0]))

static void me_figure(const char *name, const json_t *value, char *dst, size_t size) {
    json_int_t v = json_integer_value(value);
    uint64_t u = v > 0 ? (uint64_t)v : 0;

    if (!json_is_integer(value))
        snprintf(dst, size, "%s", json_is_null(value) ? "no limit" : "");
    else if (strstr(name, "_ms") != NULL)
        str_human_ms(dst, size, u);
    else if (strstr(name, "_bytes") != NULL)
        str_human_bytes(dst, size, u);
    else
        snprintf(dst, size, "%" PRIu64, u);
}

static void me_quotas(const json_t *quota, const json_t *used, const char *head) {
    struct table_row rows[ME_LINES + 1] = {{{head, "USED", "AT MOST"}}};
    char figures[ME_LINES][2][40];
    size_t n = 0;

    for (size_t i = 0; i < ME_LINES; i++) {
        const char *name = me_lines[i].name;
        const json_t *u = json_object_get(used, name);
        if (u == NULL)
            continue;
        me_figure(name, u, figures[n][0], sizeof(figures[n][0]));
        me_figure(name, json_object_get(quota, name), figures[n][1], sizeof(figures[n][1]));
        rows[n + 1] = (struct table_row){{me_lines[i].text, figures[n][0], figures[n][1]}};
        n++;
    }
    table_print(stdout, rows, n + 1, 3);
}

static void me_words(const char *before, const json_t *list, const char *none) {
    size_t i;
    json_t *word;

    fputs(before, stdout);
    if (json_array_size(list) == 0)
        fputs(none, stdout);
    json_array_foreach((json_t *)(uintptr_t)list, i, word) {
        fputs(i > 0 ? ", " : "", stdout);
        say_put(stdout, json_string_value(word));
    }
    putchar('\n');
}

/* What a child token may still spend. Nothing is printed when it has no bounds. */
static void me_budget(const json_t *token) {
    const json_t *budget = json_object_get(token, "budget"),
                 *spent = json_object_get(token, "spent");
    char most[40], gone[40];

    if (json_is_integer(json_object_get(budget, "cpu_ms"))) {
        me_figure("cpu_ms", json_object_get(budget, "cpu_ms"), most, sizeof(most));
        me_figure("cpu_ms", json_object_get(spent, "cpu_ms"), gone, sizeof(gone));
        printf("budget    %s of %s of CPU time are spent\n", gone, most);
    }
    if (json_is_integer(json_object_get(budget, "runs")))
        printf("budget    %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " runs are spent\n",
               json_integer_value(json_object_get(spent, "runs")),
               json_integer_value(json_object_get(budget, "runs")));
}

static void me_queue(const json_t *queue) {
    json_int_t waiting = json_integer_value(json_object_get(queue, "waiting"));
    json_int_t share = json_integer_value(json_object_get(queue, "share_permille"));

    printf("queue     %" JSON_INTEGER_FORMAT " of your runs wait, %" JSON_INTEGER_FORMAT
           " run; of those who wait, %" JSON_INTEGER_FORMAT ".%" JSON_INTEGER_FORMAT
           " %% of the turns are yours\n",
           waiting, json_integer_value(json_object_get(queue, "running")), share / 10, share % 10);
    if (json_is_true(json_object_get(queue, "set_aside")))
        puts("          some wait for a quota of your own, or for memory");
}

static void me_show(const json_t *answer) {
    const json_t *token = json_object_get(answer, "token");
    const json_t *own = json_object_get(token, "quota");

    fputs("user      ", stdout);
    say_put(stdout, json_string_value(json_object_get(answer, "user")));
    fputs("\ntoken     ", stdout);
    say_put(stdout, json_string_value(json_object_get(token, "id")));
    me_words("\nscopes    ", json_object_get(answer, "scopes"), "none");
    me_words("policies  ", json_object_get(token, "policies"), "all");
    me_budget(token);
    me_queue(json_object_get(answer, "queue"));
    putchar('\n');
    me_quotas(json_object_get(answer, "quota"), json_object_get(answer, "used"), "USER");
    if (json_object_size(own) > 0) {
        putchar('\n');
        me_quotas(own, json_object_get(token, "used"), "THIS TOKEN");
    }
}

static int me_do(struct rest *rest, int argc, char **argv, const void *options, struct err *err) {
    const bool *json = options;
    json_t *answer = rest_get_json(rest, "/v1/me", ME_ANSWER_MAX, err);

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return -1;
    if (*json) {
        print_json(answer, JSON_INDENT(2));
    } else {
        me_show(answer);
    }
    json_decref(answer);
    return 0;
}

static int me_run(int argc, char **argv) {
    bool json = false;
    const struct opt table[] = {
        {"json", 0, NULL, OPT_FLAG, &json, 0, 0, "print the server's answer as JSON"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "me",
        .usage = "pinfold me [--json]",
        .about =
            "Says who the token of PINFOLD_TOKEN is, what it may do, how much of every quota is\n"
            "used, what is left of its budget, and its share of the queue.",
        .table = table,
    };

    return simple_cmd_main(&cmd, argc, argv, me_do, &json);
}

const struct client_cmd me_cmd = {
    .name = "me",
    .about = "who you are for the server, your quotas and what is used",
    .run = me_run,
};
