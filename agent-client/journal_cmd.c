/* `pinfold journal`: what asking models has cost. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent_ledger.h"
#include "client_cmd.h"
#include "opt.h"
#include "say.h"
#include "simple_cmd.h"
#include "state_dir.h"
#include "table.h"

#define JOURNAL_GROUPS_MAX 1000u

struct journal_group {
    char key[200];
    uint64_t requests, input, cached, output, micro_usd, unpriced;
};

struct journal {
    const char *by;
    bool json;
    struct journal_group *groups;
    size_t count;
    bool full;
};

static void journal_day(const json_t *line, char *dst, size_t size) {
    time_t seconds = (time_t)(json_integer_value(json_object_get(line, "time_ms")) / 1000);
    struct tm tm;
    if (localtime_r(&seconds, &tm) == NULL || strftime(dst, size, "%Y-%m-%d", &tm) == 0)
        snprintf(dst, size, "?");
}

static struct journal_group *journal_group(struct journal *j, const json_t *line) {
    char key[200] = "";
    const char *text = json_string_value(json_object_get(line, j->by));
    if (strcmp(j->by, "day") == 0)
        journal_day(line, key, sizeof(key));
    else
        snprintf(key, sizeof(key), "%.199s", text != NULL && text[0] != '\0' ? text : "-");
    for (size_t i = 0; i < j->count; i++)
        if (strcmp(j->groups[i].key, key) == 0)
            return &j->groups[i];
    if (j->count == JOURNAL_GROUPS_MAX) {
        j->full = true;
        return NULL;
    }
    struct journal_group *g = &j->groups[j->count++];
    memset(g, 0, sizeof(*g));
    memcpy(g->key, key, sizeof(g->key));
    return g;
}

static uint64_t journal_number(const json_t *object, const char *key) {
    json_int_t v = json_integer_value(json_object_get(object, key));
    return v > 0 ? (uint64_t)v : 0;
}

static bool journal_line(void *arg, const json_t *line) {
    struct journal *j = arg;
    const json_t *tokens = json_object_get(line, "tokens");
    const json_t *cost = json_object_get(line, "cost_micro_usd");
    if (j->json) {
        json_dumpf(line, stdout, JSON_COMPACT);
        putchar('\n');
        return true;
    }
    struct journal_group *g = journal_group(j, line);
    if (g == NULL)
        return true;
    g->requests++;
    g->input += journal_number(tokens, "input") + journal_number(tokens, "cache_write");
    g->cached += journal_number(tokens, "cache_read");
    g->output += journal_number(tokens, "output");
    g->micro_usd += json_is_integer(cost) ? (uint64_t)json_integer_value(cost) : 0;
    g->unpriced += !json_is_integer(cost);
    return true;
}

static void journal_print(const struct journal *j) {
    struct table_row *rows = calloc(j->count + 1, sizeof(*rows));
    char(*cells)[5][48] = calloc(j->count + 1, sizeof(*cells));
    if (rows == NULL || cells == NULL) {
        free(rows);
        free(cells);
        return;
    }
    rows[0] = (struct table_row){{strcmp(j->by, "day") == 0     ? "DAY"
                                  : strcmp(j->by, "model") == 0 ? "MODEL"
                                                                : "BY",
                                  "REQUESTS", "INPUT", "CACHED", "OUTPUT", "USD"}};
    for (size_t i = 0; i < j->count; i++) {
        const struct journal_group *g = &j->groups[i];
        const uint64_t numbers[] = {g->requests, g->input, g->cached, g->output};
        for (size_t k = 0; k < 4; k++)
            snprintf(cells[i][k], sizeof(cells[i][k]), "%" PRIu64, numbers[k]);
        snprintf(cells[i][4], sizeof(cells[i][4]), "%" PRIu64 ".%06" PRIu64 "%s",
                 g->micro_usd / 1000000, g->micro_usd % 1000000,
                 g->unpriced > 0 ? " and what has no price" : "");
        rows[i + 1] = (struct table_row){
            {g->key, cells[i][0], cells[i][1], cells[i][2], cells[i][3], cells[i][4]}};
    }
    table_print(stdout, rows, j->count + 1, 6);
    free(rows);
    free(cells);
}

static int journal_do(struct journal *j) {
    struct err err = {0};
    int dir = state_dir_open("", false, &err), rc = 0;
    j->groups = calloc(JOURNAL_GROUPS_MAX, sizeof(*j->groups));
    if (dir < 0 && err.code == ENOENT)
        rc = 0; /* nothing was ever asked */
    else if (dir < 0 || j->groups == NULL)
        rc = -1;
    else
        rc = agent_ledger_read(dir, "costs.jsonl", journal_line, j, &err);
    if (rc < 0)
        say_line("journal: %s", err.text);
    if (!j->json && j->groups != NULL)
        journal_print(j);
    if (j->full)
        say_line("journal: only the first %u groups are shown", JOURNAL_GROUPS_MAX);
    free(j->groups);
    if (dir >= 0)
        close(dir);
    return rc < 0 ? 1 : 0;
}

static int journal_run(int argc, char **argv) {
    struct journal j = {.by = "day"};
    const struct opt table[] = {
        {"by", 0, "KIND", OPT_STRING, &j.by, 0, 0,
         "day, model, task, session, workspace or host (day)"},
        {"json", 0, NULL, OPT_FLAG, &j.json, 0, 0, "every line as it is in the journal"},
        {0},
    };
    static const char *const kinds[] = {"day", "model", "task", "session", "workspace", "host"};
    const struct simple_cmd cmd = {
        .name = "journal",
        .usage = "pinfold journal [--by KIND] [--json]",
        .about = "Sums up what asking models has cost: tokens by kind, money in millionths of a "
                 "dollar.\n"
                 "Each line of the journal holds the hash of the one before it; a line that was "
                 "changed\n"
                 "or is missing is reported (exit code 1). Local models cost nothing; a model "
                 "without a\n"
                 "price is named as such.\n\n"
                 "Example:\n"
                 "  pinfold journal --by model",
        .table = table,
    };
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);
    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i], j.by) == 0)
            return journal_do(&j);
    say_line("journal: --by is day, model, task, session, workspace or host, not %s", j.by);
    return CLIENT_EXIT_USAGE;
}

const struct client_cmd journal_cmd = {
    .name = "journal",
    .about = "what asking models has cost",
    .run = journal_run,
};
