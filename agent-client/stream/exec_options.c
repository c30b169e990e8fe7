#include "exec_options.h"

#include <string.h>

#include "body_parts.h"
#include "str.h"

#define EXEC_FIXED_OPTIONS 15
#define EXEC_WORKSPACE_OPTIONS 4

struct exec_table {
    struct opt rows[EXEC_FIXED_OPTIONS + LIMIT_OPTIONS_MAX + 1];
};

static void exec_table_init(struct exec_table *t, bool operand, struct exec_options *o) {
    const struct opt fixed[EXEC_FIXED_OPTIONS] = {
        {"sandbox", 's', "ID", OPT_STRING, &o->sandbox, 0, 0,
         "run there, and leave the workspace alone (default: PINFOLD_SANDBOX)"},
        {"workspace", 'w', "DIR", OPT_STRING, &o->workspace, 0, 0,
         "the workspace (from here upwards, what holds .pinfold or .git; else this directory)"},
        {"rules", 0, "FILE", OPT_STRING, &o->rules, 0, 0, "permissions instead of your own"},
        {"policy", 0, "NAME", OPT_STRING, &o->policy, 0, 0, "of a sandbox that is made"},
        {"image", 0, "NAME", OPT_STRING, &o->image, 0, 0, "of a sandbox that is made"},
        {"sh", 'c', "LINE", OPT_STRING, &o->shell, 0, 0, "run LINE with a shell"},
        {"env", 'e', "K=V", OPT_LIST, &o->env, 0, 0, "set a variable; yours are not passed on"},
        {"cwd", 0, "DIR", OPT_STRING, &o->cwd, 0, 0, "start there (default: /workspace)"},
        {"stdin", 0, "FILE", OPT_STRING, &o->input, 0, 0, "its input, - = ours (default: empty)"},
        {"tty", 't', NULL, OPT_FLAG, &o->tty, 0, 0,
         "give it a terminal, and ours as its input if we have one"},
        {"background", 'b', NULL, OPT_FLAG, &o->background, 0, 0,
         "do not wait: print its id and go"},
        {"id", 0, "EX", OPT_STRING, &o->id, 0, 0,
         "its id, ex_ and 20 to 32 of a-z and 0-9: twice is once"},
        {"merge-stderr", 0, NULL, OPT_FLAG, &o->merge_stderr, 0, 0,
         "let stderr go where stdout goes, in order"},
        {"json", 0, NULL, OPT_FLAG, &o->json, 0, 0, "print the answer as JSON, and no output"},
        {0},
    };
    size_t skip = operand ? 1 + EXEC_WORKSPACE_OPTIONS : 0, n = EXEC_FIXED_OPTIONS - 1 - skip;

    memset(t->rows, 0, sizeof(t->rows));
    memcpy(t->rows, fixed + skip, n * sizeof(fixed[0]));
    limit_options_rows(&o->limits, true, &t->rows[n]);
}

static int exec_options_check(struct exec_options *o, struct err *err) {
    if (o->shell == NULL && o->argc == 0)
        return err_set(err, ERR_INVALID, 0, "what is to run? Give -- COMMAND or -c LINE");
    if (o->shell != NULL && o->argc > 0)
        return err_set(err, ERR_INVALID, 0, "only one of -- COMMAND and -c LINE is possible");
    if (o->sandbox != NULL && !str_is_name(o->sandbox))
        return err_set(err, ERR_INVALID, 0, "%s is not the id of a sandbox", o->sandbox);
    if (o->id != NULL && !str_is_name(o->id))
        return err_set(err, ERR_INVALID, 0,
                       "option --id: expected letters, digits, '_', '-' and '.'");
    if (o->sandbox != NULL &&
        (o->workspace != NULL || o->rules != NULL || o->policy != NULL || o->image != NULL))
        return err_set(err, ERR_INVALID, 0,
                       "--workspace, --rules, --policy and --image do not go with --sandbox");
    if (o->tty && o->background)
        return err_set(err, ERR_INVALID, 0, "only one of --tty and --background is possible");
    if (o->tty && o->json)
        return err_set(err, ERR_INVALID, 0, "only one of --tty and --json is possible");
    if (body_parts_check_pairs(&o->env, "env", err) < 0)
        return -1;
    return limit_options_check(&o->limits, err);
}

/* The sandbox, and the options behind it. */
static int exec_options_behind(struct exec_options *o, const struct exec_table *table,
                               struct opt_result *result, struct err *err) {
    char **argv = (char **)(uintptr_t)o->argv;
    int argc = o->argc;

    if (argc == 0 || result->dashes)
        return err_set(err, ERR_INVALID, 0, "in which sandbox? Give its id first");
    o->sandbox = argv[0];
    if (opt_parse(table->rows, argc, argv, result, err) < 0)
        return -1;
    o->argv = argv + result->rest;
    o->argc = argc - result->rest;
    return 0;
}

int exec_options_parse(bool operand, int argc, char **argv, struct exec_options *out,
                       struct err *err) {
    struct exec_options o = {0};
    struct exec_table table;
    struct opt_result result;

    limit_options_init(&o.limits);
    exec_table_init(&table, operand, &o);
    if (opt_parse(table.rows, argc, argv, &result, err) < 0)
        return -1;
    o.argv = argv + result.rest;
    o.argc = argc - result.rest;
    if (!result.help && operand && exec_options_behind(&o, &table, &result, err) < 0)
        return -1;
    o.help = result.help;
    if (!o.help && exec_options_check(&o, err) < 0)
        return -1;
    *out = o;
    return 0;
}

void exec_options_help(bool operand, FILE *out) {
    struct exec_options o = {0};
    struct exec_table table;

    exec_table_init(&table, operand, &o);
    opt_help(out,
             operand ? "pinfold sandbox exec ID [options] -- COMMAND [ARG…]\n"
                       "pinfold sandbox exec ID [options] -c 'SHELL LINE'"
                     : "pinfold exec [options] -- COMMAND [ARG…]\n"
                       "pinfold exec [options] -c 'SHELL LINE'",
             operand
                 ? "Runs a command in a sandbox, beside whatever runs there already. Its output\n"
                   "appears here as it comes, also across a lost connection or a restart of the\n"
                   "server."
                 : "Runs a command on the files of this workspace, but not on this machine: your\n"
                   "rules judge it (pinfold permission), the files go to the workspace's sandbox\n"
                   "(never what a rule keeps from reading, nor what .gitignore and\n"
                   ".pinfoldignore name), it runs there, and what it changed comes back as far as\n"
                   "your rules let it, through the undo journal (pinfold log, pinfold undo).\n"
                   "With --sandbox it runs in that sandbox, and no file moves.",
             table.rows);
    fprintf(
        out,
        "\nExamples:\n"
        "%3$s"
        "  id=$(pinfold sandbox create)\n"
        "  pinfold %1$s -c 'echo hi > note; ls'\n"
        "  tar c src | pinfold %1$s --stdin - -- tar x\n"
        "  pinfold %1$s --background --wall 5m -- python3 -m http.server 8000\n"
        "  pinfold %1$s -t -- top\n"
        "\nExit status: the program's own; 128+N when signal N ended it; 124 when its time was "
        "up;\n"
        "137 when its memory was; 125 when it is not the program's doing (server away, a wish\n"
        "that the policy refuses, wrong usage); 130 after Ctrl-C, which ends the command (with\n"
        "--tty it is a key like any other).\n"
        "One sentence on stderr says why whenever the program did not simply return.\n"
        "\nEnvironment: PINFOLD_URL (default http://127.0.0.1:7070), PINFOLD_TOKEN%2$s.\n",
        operand ? "sandbox exec $id" : "exec -s $id", operand ? "" : ", PINFOLD_SANDBOX",
        operand ? "" : "  pinfold exec -- make test\n  pinfold exec -c 'make lint && make test'\n");
    if (!operand)
        fputs(
            "In a workspace: 126 when the rules deny the command, or, though it ended well, what\n"
            "it changed.\n",
            out);
}
