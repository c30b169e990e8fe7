#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client_cmd.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

#define TOKEN_ANSWER_MAX ((size_t)64 * 1024 * 1024)

struct token_options {
    const char *scopes, *policies, *label, *from_run;
    uint64_t cpu_ms, runs, for_ms; /* UINT64_MAX = not given */
    struct opt_list quota;
    bool cancel_running;
};

/* "a,b" as an array; NULL when memory is short. */
static json_t *token_words(const char *list) {
    json_t *words = json_array();

    for (const char *at = list;; at++) {
        size_t len = strcspn(at, ",");

        if (words == NULL || json_array_append_new(words, json_stringn(at, len)) < 0) {
            json_decref(words);
            return NULL;
        }
        at += len;
        if (*at == '\0')
            return words;
    }
}

/* "mem_bytes=4G": what kind of number it is, the name says. */
static int token_quota(json_t *quota, const char *word, struct err *err) {
    const char *value = strchr(word, '=');
    char name[64];
    size_t len = value != NULL ? (size_t)(value - word) : 0;
    uint64_t number;
    int rc;

    if (len == 0 || len >= sizeof(name))
        return err_set(err, ERR_INVALID, 0, "a quota is NAME=VALUE, such as runs=10, not %.60s",
                       word);
    memcpy(name, word, len);
    name[len] = '\0';
    value++;
    if (strstr(name, "_bytes") != NULL)
        rc = str_bytes(value, &number, err);
    else if (strstr(name, "_ms") != NULL)
        rc = str_duration_ms(value, &number, err);
    else
        rc = str_u64(value, 0, INT64_MAX, &number, err);
    if (rc < 0)
        return err_wrap(err, "--quota %s", name);
    return json_object_set_new(quota, name, json_integer((json_int_t)number));
}

static int token_put_bound(json_t *object, const char *key, uint64_t value) {
    if (value == UINT64_MAX)
        return 0;
    return json_object_set_new(object, key, json_integer((json_int_t)value));
}

static int token_put_text(json_t *body, const char *key, const char *text) {
    return text != NULL ? json_object_set_new(body, key, json_string(text)) : 0;
}

static int token_put_words(json_t *body, const char *key, const char *list) {
    return list != NULL ? json_object_set_new(body, key, token_words(list)) : 0;
}

/* The body of the request; NULL with *err. */
static json_t *token_body(const struct token_options *o, struct err *err) {
    json_t *body = json_object(), *budget = json_object(), *quota = json_object();
    int rc = 0;

    err_set(err, ERR_SYSTEM, 0, "no memory for the request");
    for (size_t i = 0; i < o->quota.count && rc == 0; i++)
        rc = token_quota(quota, o->quota.item[i], err);
    if (rc == 0 &&
        (token_put_words(body, "scopes", o->scopes) < 0 ||
         token_put_words(body, "policies", o->policies) < 0 ||
         token_put_text(body, "label", o->label) < 0 ||
         token_put_text(body, "from_run", o->from_run) < 0 ||
         token_put_bound(body, "ttl_ms", o->for_ms) < 0 ||
         token_put_bound(budget, "cpu_ms", o->cpu_ms) < 0 ||
         token_put_bound(budget, "runs", o->runs) < 0 ||
         json_object_set(body, "budget", budget) < 0 || json_object_set(body, "quota", quota) < 0))
        rc = -1;
    json_decref(budget);
    json_decref(quota);
    if (rc == 0)
        return body;
    json_decref(body);
    return NULL;
}

static int token_child(struct rest *rest, const struct token_options *o, struct err *err) {
    json_t *body = token_body(o, err);
    json_t *made = body != NULL
                       ? rest_json(rest, "POST", "/v1/tokens/children", body, TOKEN_ANSWER_MAX, err)
                       : NULL;
    const char *text = json_string_value(json_object_get(made, "token"));
    const char *id = json_string_value(json_object_get(made, "id"));
    int rc = -1;

    /* Both are printed as they are, and the token becomes part of somebody's environment. */
    if (text != NULL && id != NULL && str_is_name(text) && str_is_name(id)) {
        say_line("child token %s; it is shown only this once", id);
        puts(text);
        rc = 0;
    } else if (made != NULL) {
        err_set(err, ERR_PROTOCOL, 0, "the server's answer has no token");
    }
    json_decref(body);
    json_decref(made);
    return rc;
}

/* The cells that are made up for one row. */
struct token_cells {
    char scopes[64], runs[48], expires[32];
};

static void token_cells_of(const json_t *token, struct token_cells *c) {
    const json_t *expires = json_object_get(token, "expires_at"), *scope;
    const json_t *runs = json_object_get(json_object_get(token, "budget"), "runs");
    const json_t *spent = json_object_get(json_object_get(token, "spent"), "runs");
    time_t seconds = (time_t)(json_integer_value(expires) / 1000);
    size_t i, len = 0;
    struct tm tm;

    c->scopes[0] = '\0';
    json_array_foreach(json_object_get(token, "scopes"), i, scope) {
        if (len < sizeof(c->scopes))
            len += (size_t)snprintf(c->scopes + len, sizeof(c->scopes) - len, "%s%s",
                                    i > 0 ? "," : "", json_string_value(scope));
    }
    if (json_is_integer(runs))
        snprintf(c->runs, sizeof(c->runs), "%" PRId64 " of %" PRId64,
                 (int64_t)json_integer_value(spent), (int64_t)json_integer_value(runs));
    else
        snprintf(c->runs, sizeof(c->runs), "-");
    if (!json_is_integer(expires) || gmtime_r(&seconds, &tm) == NULL)
        snprintf(c->expires, sizeof(c->expires), "never");
    else
        strftime(c->expires, sizeof(c->expires), "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int token_list(struct rest *rest, struct err *err) {
    json_t *answer = rest_get_json(rest, "/v1/tokens?limit=1000", TOKEN_ANSWER_MAX, err);
    const json_t *list = json_object_get(answer, "tokens");
    size_t count = json_array_size(list);
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    struct token_cells *cells = calloc(count + 1, sizeof(*cells));
    int rc = -1;

    if (answer != NULL && rows != NULL && cells != NULL) {
        rows[0] = (struct table_row){{"ID", "STATE", "SCOPES", "RUNS", "EXPIRES", "LABEL"}};
        for (size_t i = 0; i < count; i++) {
            const json_t *t = json_array_get(list, i);

            token_cells_of(t, &cells[i]);
            rows[i + 1] = (struct table_row){{json_string_value(json_object_get(t, "id")),
                                              json_string_value(json_object_get(t, "state")),
                                              cells[i].scopes, cells[i].runs, cells[i].expires,
                                              json_string_value(json_object_get(t, "label"))}};
        }
        table_print(stdout, rows, count + 1, 6);
        rc = 0;
    } else if (answer != NULL) {
        err_set(err, ERR_SYSTEM, 0, "no memory for the list");
    }
    free(rows);
    free(cells);
    json_decref(answer);
    return rc;
}

static int token_revoke(struct rest *rest, const char *id, bool cancel_running, struct err *err) {
    char path[160];
    json_t *answer;

    if (!str_is_name(id))
        return err_set(err, ERR_INVALID, 0, "%s is not the id of a token (tok_…)", id);
    snprintf(path, sizeof(path), "/v1/tokens/%s%s", id,
             cancel_running ? "?cancel_running=true" : "");
    answer = rest_json(rest, "DELETE", path, NULL, TOKEN_ANSWER_MAX, err);
    if (answer == NULL)
        return -1;
    json_decref(answer);
    return 0;
}

static int token_do(struct rest *rest, int argc, char **argv, const void *options,
                    struct err *err) {
    const struct token_options *o = options;

    (void)argc;
    if (strcmp(argv[0], "child") == 0)
        return token_child(rest, o, err);
    if (strcmp(argv[0], "list") == 0)
        return token_list(rest, err);
    return token_revoke(rest, argv[1], o->cancel_running, err);
}

static bool token_is_right(const char *what, const char *id) {
    if (strcmp(what, "child") == 0 || strcmp(what, "list") == 0)
        return id == NULL;
    return strcmp(what, "revoke") == 0 && id != NULL;
}

static int token_run(int argc, char **argv) {
    struct token_options o = {.cpu_ms = UINT64_MAX, .runs = UINT64_MAX, .for_ms = UINT64_MAX};
    const struct opt table[] = {
        {"scopes", 0, "A,B", OPT_STRING, &o.scopes, 0, 0,
         "child: run, sandbox, files, read, metrics, admin (those of yours but the last two)"},
        {"cpu", 0, "TIME", OPT_DURATION, &o.cpu_ms, 0, 0,
         "child: CPU time that it may use in its whole life"},
        {"runs", 0, "N", OPT_U64, &o.runs, 0, INT64_MAX,
         "child: runs and executions that it may start"},
        {"for", 0, "TIME", OPT_DURATION, &o.for_ms, 0, 0, "child: it expires after this"},
        {"policies", 0, "A,B", OPT_STRING, &o.policies, 0, 0, "child: policies that it may name"},
        {"quota", 0, "NAME=VALUE", OPT_LIST, &o.quota, 0, 0,
         "child: a limit on what it holds at once, such as runs=2 or mem_bytes=1G"},
        {"label", 0, "TEXT", OPT_STRING, &o.label, 0, 0, "child: what it is for"},
        {"from-run", 0, "ID", OPT_STRING, &o.from_run, 0, 0,
         "child: the run inside which it is used; its runs hang under that one in a trace"},
        {"cancel-running", 0, NULL, OPT_FLAG, &o.cancel_running, 0, 0,
         "revoke: end what runs, too"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "token",
        .usage = "pinfold token child [OPTIONS]\n"
                 "pinfold token list\n"
                 "pinfold token revoke tok_… [--cancel-running]",
        .about = "Child tokens of yours, for an agent that you start: they can do less than your "
                 "token, never\nmore, and what they spend you spend, too. `child` prints the token "
                 "alone on standard output.\nRevoking one ends its streams and those of the tokens "
                 "that were made with it.\n\nExample:\n"
                 "  PINFOLD_TOKEN=$(pinfold token child --scopes run --cpu 60s --runs 10 --for 1h) "
                 "agent",
        .table = table,
        .min_operands = 1,
        .max_operands = 2,
        .mixed = true,
    };
    int first, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    if (!token_is_right(argv[first], first + 1 < argc ? argv[first + 1] : NULL)) {
        say_line("token: expected child, list or revoke ID");
        return CLIENT_EXIT_USAGE;
    }
    return simple_cmd_run(token_do, argc - first, argv + first, &o);
}

const struct client_cmd token_cmd = {
    .name = "token",
    .about = "make, list and revoke child tokens",
    .run = token_run,
};
