#include "run_options.h"

#include <string.h>

#include "body_parts.h"

#define RUN_FIXED_OPTIONS 16

struct run_table {
    struct opt rows[RUN_FIXED_OPTIONS + LIMIT_OPTIONS_MAX + 1];
};

static void run_table_init(struct run_table *t, struct run_options *o) {
    const struct opt fixed[RUN_FIXED_OPTIONS] = {
        {"sh", 'c', "LINE", OPT_STRING, &o->shell, 0, 0, "run LINE with a shell"},
        {"steps", 0, "FILE", OPT_STRING, &o->steps, 0, 0, "run the steps of a JSON file, in order"},
        {"policy", 0, "NAME", OPT_STRING, &o->policy, 0, 0, "what it may do (default: default)"},
        {"image", 0, "NAME", OPT_STRING, &o->image, 0, 0,
         "what it sees (default: host); NAME@sha256:HEX: that one only"},
        {"backend", 0, "NAME", OPT_STRING, &o->backend, 0, 0,
         "what its jail is made of: native or docker (default: the policy's first)"},
        {"env", 'e', "K=V", OPT_LIST, &o->env, 0, 0, "set a variable; yours are not passed on"},
        {"cwd", 0, "DIR", OPT_STRING, &o->cwd, 0, 0, "start there (default: /workspace)"},
        {"stdin", 0, "FILE", OPT_STRING, &o->input, 0, 0, "its input, - = ours (default: empty)"},
        {"file", 'f', "LOCAL[:PATH]", OPT_LIST, &o->files, 0, 0,
         "put a file into /workspace, as PATH or its own name"},
        {"collect", 0, "GLOB", OPT_LIST, &o->collect, 0, 0,
         "bring files back from /workspace, such as 'out/**'"},
        {"out", 0, "DIR", OPT_STRING, &o->out, 0, 0, "where collected files go (default: .)"},
        {"priority", 0, "WHICH", OPT_STRING, &o->priority, 0, 0,
         "low, normal or high: which of your waiting runs go first"},
        {"merge-stderr", 0, NULL, OPT_FLAG, &o->merge_stderr, 0, 0,
         "let stderr go where stdout goes, in order"},
        {"keep-steps", 0, NULL, OPT_FLAG, &o->keep_steps, 0, 0,
         "keep the files as they are before each step: pinfold sandbox create --from RUN@STEP"},
        {"json", 0, NULL, OPT_FLAG, &o->json, 0, 0, "print the answer as JSON, and no output"},
        {0},
    };

    memset(t->rows, 0, sizeof(t->rows));
    memcpy(t->rows, fixed, sizeof(fixed));
    limit_options_init(&o->limits);
    limit_options_rows(&o->limits, false, &t->rows[RUN_FIXED_OPTIONS - 1]);
}

static int run_options_check(struct run_options *o, struct err *err) {
    int ways = (o->shell != NULL) + (o->steps != NULL) + (o->argc > 0);

    if (ways == 0)
        return err_set(err, ERR_INVALID, 0, "what is to run? Give -- COMMAND, -c LINE or --steps");
    if (ways > 1)
        return err_set(err, ERR_INVALID, 0,
                       "only one of -- COMMAND, -c LINE and --steps is possible");
    if (body_parts_check_pairs(&o->env, "env", err) < 0)
        return -1;
    if (o->out != NULL && o->collect.count == 0)
        return err_set(err, ERR_INVALID, 0, "--out needs --collect");
    return limit_options_check(&o->limits, err);
}

int run_options_parse(int argc, char **argv, struct run_options *out, struct err *err) {
    struct run_options o = {0};
    struct run_table table;
    struct opt_result result;

    run_table_init(&table, &o);
    if (opt_parse(table.rows, argc, argv, &result, err) < 0)
        return -1;
    o.help = result.help;
    o.argv = argv + result.rest;
    o.argc = argc - result.rest;
    if (!o.help && run_options_check(&o, err) < 0)
        return -1;
    *out = o;
    return 0;
}

void run_options_help(FILE *out) {
    struct run_options o = {0};
    struct run_table table;

    run_table_init(&table, &o);
    opt_help(out,
             "pinfold run [options] -- COMMAND [ARG…]\n"
             "pinfold run [options] -c 'SHELL LINE'\n"
             "pinfold run [options] --steps FILE.json",
             "Runs a command in a fresh jail on the server: no network, nothing of this machine,\n"
             "every limit on. Its output appears here as it comes.",
             table.rows);
    fputs(
        "\nExamples:\n"
        "  pinfold run -- python3 -c 'print(6 * 7)'\n"
        "  pinfold run --file main.py --wall 10s --mem 128M -- python3 main.py\n"
        "  echo 3 4 | pinfold run --stdin - -c 'read a b; echo $((a + b))'\n"
        "  pinfold run -f data.csv:in/data.csv --collect 'out/**' --out results -c 'make report'\n"
        "  pinfold run --steps ci.json --json\n"
        "  pinfold run --steps ci.json --keep-steps     # and enter it before the step that "
        "failed\n"
        "\nA steps file holds [{\"name\": \"build\", \"argv\": [\"make\"]}, "
        "{\"name\": \"test\", \"sh\": \"make test\"}].\n"
        "\nExit status: the program's own; 128+N when signal N ended it; 124 when its time was "
        "up;\n"
        "137 when its memory was; 125 when it is not the program's doing (server away, a wish\n"
        "that the policy refuses, wrong usage); 130 after Ctrl-C, which ends the run.\n"
        "One sentence on stderr says why whenever the program did not simply return.\n"
        "\nEnvironment: PINFOLD_URL (default http://127.0.0.1:7070), PINFOLD_TOKEN.\n",
        out);
}
