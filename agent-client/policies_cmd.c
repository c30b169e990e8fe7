#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_cmd.h"
#include "limit.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

#define POLICIES_ANSWER_MAX ((size_t)4 * 1024 * 1024)

static int policies_list(const json_t *answer, struct err *err) {
    const json_t *list = json_object_get(answer, "policies");
    size_t count = json_array_size(list), i;
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    json_t *p;

    if (rows == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "no memory for the list");
    rows[0] = (struct table_row){{"NAME", "ABOUT"}};
    json_array_foreach((json_t *)(uintptr_t)list, i, p) rows[i + 1] =
        (struct table_row){{json_string_value(json_object_get(p, "name")),
                            json_string_value(json_object_get(p, "about"))}};
    table_print(stdout, rows, count + 1, 2);
    free(rows);
    return 0;
}

/* A limit's value for people, by what its name ends with. */
static void policies_figure(const char *name, const json_t *value, char *dst, size_t size) {
    json_int_t v = json_integer_value(value);
    uint64_t u = v > 0 ? (uint64_t)v : 0;
    const char *unit = strrchr(name, '_');

    if (unit != NULL && strcmp(unit, "_ms") == 0)
        str_human_ms(dst, size, u);
    else if (unit != NULL && strcmp(unit, "_bytes") == 0)
        str_human_bytes(dst, size, u);
    else if (unit != NULL && strcmp(unit, "_milli") == 0)
        snprintf(dst, size, "%" PRIu64 ".%03" PRIu64 " CPUs", u / 1000, u % 1000);
    else
        snprintf(dst, size, "%" PRIu64, u);
}

static void policies_limits(const json_t *limits) {
    struct table_row rows[LIMIT_COUNT + 1] = {{{"LIMIT", "DEFAULT", "AT MOST", "WHY"}}};
    char figures[LIMIT_COUNT][2][40];
    size_t n = 1;
    const char *name;
    json_t *limit;

    json_object_foreach((json_t *)(uintptr_t)limits, name, limit) {
        char *preset, *most;

        if (n > LIMIT_COUNT)
            break;
        preset = figures[n - 1][0];
        most = figures[n - 1][1];
        policies_figure(name, json_object_get(limit, "default"), preset, sizeof(figures[0][0]));
        policies_figure(name, json_object_get(limit, "ceiling"), most, sizeof(figures[0][0]));
        rows[n++] = (struct table_row){
            {name, preset, most, json_string_value(json_object_get(limit, "why"))}};
    }
    table_print(stdout, rows, n, 4);
}

static void policies_sentences(const json_t *list) {
    size_t i;
    json_t *line;

    json_array_foreach((json_t *)(uintptr_t)list, i, line) {
        fputs("  ", stdout);
        say_put(stdout, json_string_value(line));
        putchar('\n');
    }
}

static void policies_show(const json_t *answer) {
    static const char *const parts[][2] = {{"read", "What it can read:"},
                                           {"write", "What it can write:"},
                                           {"reach", "What it can reach:"}};
    const json_t *sentences = json_object_get(answer, "sentences");

    say_put(stdout, json_string_value(json_object_get(answer, "name")));
    fputs(": ", stdout);
    say_put(stdout, json_string_value(json_object_get(answer, "about")));
    puts("");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        printf("\n%s\n", parts[i][1]);
        policies_sentences(json_object_get(sentences, parts[i][0]));
    }
    putchar('\n');
    policies_limits(json_object_get(answer, "limits"));
}

static int policies_do(struct rest *rest, int argc, char **argv, const void *options,
                       struct err *err) {
    const char *name = argc > 0 ? argv[0] : NULL;
    char path[128] = "/v1/policies";
    json_t *answer;
    int rc = 0;

    (void)options;
    if (name != NULL && !str_is_name(name))
        return err_set(err, ERR_INVALID, 0, "%s is not the name of a policy", name);
    if (name != NULL)
        snprintf(path, sizeof(path), "/v1/policies/%s", name);
    answer = rest_get_json(rest, path, POLICIES_ANSWER_MAX, err);
    if (answer == NULL)
        return -1;
    if (name != NULL)
        policies_show(answer);
    else
        rc = policies_list(answer, err);
    json_decref(answer);
    return rc;
}

static int policies_run(int argc, char **argv) {
    static const struct simple_cmd cmd = {
        .name = "policies",
        .usage = "pinfold policies [NAME]",
        .about =
            "Lists the policies of the server, or says of one in plain sentences what a program\n"
            "can read, write and reach under it, with its limits.\n\n"
            "Example:\n"
            "  pinfold policies default",
        .max_operands = 1,
    };

    return simple_cmd_main(&cmd, argc, argv, policies_do, NULL);
}

const struct client_cmd policies_cmd = {
    .name = "policies",
    .about = "what a program may do under each policy",
    .run = policies_run,
};
