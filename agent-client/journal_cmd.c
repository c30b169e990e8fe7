/* `pinfold journal`: what asking models has cost. */
#include <ctype.h>
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
#include "print.h"
#include "say.h"
#include "simple_cmd.h"
#include "state_dir.h"
#include "table.h"

#define JOURNAL_GROUPS_MAX 1000u

struct journal_group {
    char key[200];
    char parent[200]; /* by session: the one that started it; "" = nobody */
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
    text = json_string_value(json_object_get(line, "parent"));
    if (text != NULL && strcmp(j->by, "session") == 0)
        snprintf(g->parent, sizeof(g->parent), "%.199s", text);
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
        print_json(line, JSON_COMPACT);
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

#define JOURNAL_DEPTH_MAX 16u

/* The table's rows as they are built. */
struct journal_table {
    const struct journal *j;
    struct table_row *rows;
    char (*cells)[6][224];
    bool *done;
    size_t count;
};

static void journal_row(struct journal_table *t, size_t group, size_t depth) {
    const struct journal_group *g = &t->j->groups[group];
    const uint64_t numbers[] = {g->requests, g->input, g->cached, g->output};
    char(*cell)[224] = t->cells[t->count - 1];
    snprintf(cell[0], sizeof(cell[0]), "%*s%s", (int)(2 * depth), "", g->key);
    for (size_t k = 0; k < 4; k++)
        snprintf(cell[k + 1], sizeof(cell[k + 1]), "%" PRIu64, numbers[k]);
    snprintf(cell[5], sizeof(cell[5]), "%" PRIu64 ".%06" PRIu64 "%s", g->micro_usd / 1000000,
             g->micro_usd % 1000000, g->unpriced > 0 ? " and what has no price" : "");
    t->rows[t->count++] =
        (struct table_row){{cell[0], cell[1], cell[2], cell[3], cell[4], cell[5]}};
    t->done[group] = true;
}

static bool journal_known(const struct journal *j, const char *key) {
    for (size_t i = 0; i < j->count; i++)
        if (strcmp(j->groups[i].key, key) == 0)
            return true;
    return false;
}

/* Those below `parent` ("" = of nobody that is known), each with those below it. A circle is not
 * reached, and comes at the end. */
static void journal_below(struct journal_table *t, const char *parent, size_t depth) {
    const struct journal *j = t->j;
    for (size_t i = 0; i < j->count && depth < JOURNAL_DEPTH_MAX; i++) {
        const struct journal_group *g = &j->groups[i];
        bool top = parent[0] == '\0' && (g->parent[0] == '\0' || !journal_known(j, g->parent));
        if (t->done[i] || !(top || (parent[0] != '\0' && strcmp(g->parent, parent) == 0)))
            continue;
        journal_row(t, i, depth);
        if (strcmp(j->by, "session") == 0)
            journal_below(t, g->key, depth + 1);
    }
}

static void journal_print(const struct journal *j) {
    struct journal_table t = {.j = j,
                              .rows = calloc(j->count + 1, sizeof(*t.rows)),
                              .cells = calloc(j->count + 1, sizeof(*t.cells)),
                              .done = calloc(j->count + 1, sizeof(*t.done)),
                              .count = 1};
    char head[32];
    size_t n = 0;
    for (; n < sizeof(head) - 1 && j->by[n] != '\0'; n++)
        head[n] = (char)toupper((unsigned char)j->by[n]);
    head[n] = '\0';
    if (t.rows != NULL && t.cells != NULL && t.done != NULL) {
        t.rows[0] = (struct table_row){{head, "REQUESTS", "INPUT", "CACHED", "OUTPUT", "USD"}};
        journal_below(&t, "", 0);
        for (size_t i = 0; i < j->count; i++)
            if (!t.done[i])
                journal_row(&t, i, 0);
        table_print(stdout, t.rows, t.count, 6);
    }
    free(t.rows);
    free(t.cells);
    free(t.done);
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
                 "price is named as such. By session, those that an agent started inside its own "
                 "stand below\n"
                 "it.\n\n"
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
