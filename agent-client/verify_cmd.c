#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_cmd.h"
#include "opt.h"
#include "print.h"
#include "say.h"
#include "verify.h"
#include "verify_checks.h"

#define VERIFY_CMD_SHOWN 50u /* failures that are printed for people */

struct verify_cmd {
    const char *root, *checks;
    bool json, list;
    json_t *reports; /* with --json */
};

static const char verify_cmd_usage[] = "pinfold verify [options] VERIFIER NAME=VALUE…\n"
                                       "pinfold verify [options] --checks FILE\n"
                                       "pinfold verify --list";
static const char verify_cmd_about[] =
    "Judges what came out, by code: tests, tables, sums, JSON. Runs nothing and asks nobody.\n"
    "Each failure is shown with its name, file, line and message.\n\n"
    "Exit code: 0 it holds, 1 it does not, 2 wrong usage, 3 it could not be judged (a file is\n"
    "missing, nothing was checked). Paths are beneath --root; a link that leads out is refused.\n\n"
    "Examples:\n"
    "  pinfold run --file test_a.py -- pytest test_a.py | pinfold verify log file=-\n"
    "  pinfold verify junit 'file=reports/**/*.xml'\n"
    "  pinfold verify csv file=out.csv rows=1.. not_null=id unique=id number=amount\n"
    "  pinfold verify reconcile left=ledger.csv:amount right=bank.csv:amount by=month";

static void verify_cmd_list(void) {
    for (const struct verifier *const *v = verify_table(); *v != NULL; v++) {
        printf("%s: %s\n", (*v)->name, (*v)->about);
        for (const struct verify_key *k = (*v)->keys; k->name != NULL; k++)
            printf("  %s=%s%s  %s\n", k->name, k->many ? "... (repeatable)" : "...",
                   k->required ? " (required)" : "", k->help);
    }
}

/* The first line of a message; all of it is in --json. */
static void verify_cmd_line(const char *message) {
    char line[400];
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(message, "\n"), message);
    say_put(stdout, line);
    putchar('\n');
}

static void verify_cmd_people(const char *name, const struct verify_report *report) {
    char text[600];
    snprintf(text, sizeof(text), "%s: %s: %s", name, verify_verdict_name(report->verdict),
             report->summary);
    say_put(stdout, text);
    putchar('\n');
    for (size_t i = 0; i < report->count && i < VERIFY_CMD_SHOWN; i++) {
        const struct verify_failure *f = &report->failures[i];
        fputs("  ", stdout);
        say_put(stdout, f->name);
        if (f->file != NULL) {
            fputs(" (", stdout);
            say_put(stdout, f->file);
            if (f->line > 0)
                printf(":%llu", (unsigned long long)f->line);
            putchar(')');
        }
        fputs(": ", stdout);
        verify_cmd_line(f->message);
    }
    if (report->failed > VERIFY_CMD_SHOWN)
        printf("  and %llu more\n", (unsigned long long)(report->failed - VERIFY_CMD_SHOWN));
}

static void verify_cmd_each(void *arg, const char *name, const struct verify_report *report) {
    struct verify_cmd *cmd = arg;
    if (cmd->json)
        json_array_append_new(cmd->reports, verify_checks_json(name, report));
    else
        verify_cmd_people(name, report);
}

static int verify_cmd_args(int argc, char **argv, struct verify_args *args) {
    if ((size_t)argc > VERIFY_ARGS_MAX) {
        say_line("at most %u arguments are possible", VERIFY_ARGS_MAX);
        return -1;
    }
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL || equals == argv[i]) {
            say_line("%s is not NAME=VALUE; pinfold verify --list shows which there are", argv[i]);
            return -1;
        }
        *equals = '\0';
        args->items[args->count++] = (struct verify_arg){.name = argv[i], .value = equals + 1};
    }
    return 0;
}

/* One verifier from the command line. */
static int verify_cmd_one(struct verify_cmd *cmd, int root, int argc, char **argv) {
    const struct verifier *v = verify_find(argv[0]);
    struct verify_report report;
    if (v == NULL) {
        say_line("there is no verifier %s; pinfold verify --list shows which there are", argv[0]);
        return CLIENT_EXIT_USAGE;
    }
    struct verify_args *args = calloc(1, sizeof(*args));
    if (args == NULL || verify_cmd_args(argc - 1, argv + 1, args) < 0) {
        free(args);
        return CLIENT_EXIT_USAGE;
    }
    args->root = root;
    verify_run(v, args, &report);
    verify_cmd_each(cmd, v->name, &report);
    int code = report.verdict == VERIFY_PASS ? 0 : report.verdict == VERIFY_FAIL ? 1 : 3;
    verify_report_done(&report);
    free(args);
    return code;
}

static int verify_cmd_checks(struct verify_cmd *cmd, int root) {
    struct err err = {0};
    enum verify_verdict verdict = verify_checks_run(root, cmd->checks, verify_cmd_each, cmd, &err);
    if (err.kind != ERR_NONE)
        say_line("%s", err.text);
    return verdict == VERIFY_PASS ? 0 : verdict == VERIFY_FAIL ? 1 : 3;
}

static int verify_cmd_do(struct verify_cmd *cmd, int argc, char **argv) {
    int root = open(cmd->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        say_line("opening the directory %s: %s", cmd->root, strerror(errno));
        return 3;
    }
    cmd->reports = cmd->json ? json_array() : NULL;
    int code =
        cmd->checks != NULL ? verify_cmd_checks(cmd, root) : verify_cmd_one(cmd, root, argc, argv);
    if (cmd->json && code != CLIENT_EXIT_USAGE) {
        json_t *out = json_pack("{s:s, s:O}", "verdict",
                                code == 0   ? "pass"
                                : code == 1 ? "fail"
                                            : "broken",
                                "checks", cmd->reports);
        print_json(out, JSON_COMPACT);
        json_decref(out);
    }
    json_decref(cmd->reports);
    close(root);
    return code;
}

static int verify_cmd_run(int argc, char **argv) {
    struct verify_cmd cmd = {.root = "."};
    const struct opt table[] = {
        {"root", 0, "DIR", OPT_STRING, &cmd.root, 0, 0, "where files are (the current directory)"},
        {"checks", 0, "FILE", OPT_STRING, &cmd.checks, 0, 0,
         "several checks: {\"checks\": [{\"verify\": \"csv\", \"file\": ...}]}"},
        {"json", 0, NULL, OPT_FLAG, &cmd.json, 0, 0, "print the reports as one JSON object"},
        {"list", 0, NULL, OPT_FLAG, &cmd.list, 0, 0, "print all verifiers with their arguments"},
        {0},
    };
    struct opt_result got;
    struct err err = {0};
    if (opt_parse(table, argc, argv, &got, &err) < 0) {
        say_line("%s", err.text);
        return CLIENT_EXIT_USAGE;
    }
    if (got.help) {
        opt_help(stdout, verify_cmd_usage, verify_cmd_about, table);
        return 0;
    }
    if (cmd.list) {
        verify_cmd_list();
        return 0;
    }
    if ((cmd.checks == NULL) == (got.rest >= argc)) {
        say_line("name a verifier, or --checks FILE; pinfold verify --help shows how");
        return CLIENT_EXIT_USAGE;
    }
    return verify_cmd_do(&cmd, argc - got.rest, argv + got.rest);
}

const struct client_cmd verify_cmd = {
    .name = "verify",
    .about = "judge what came out: tests, tables, sums, JSON",
    .run = verify_cmd_run,
};
