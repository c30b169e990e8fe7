#include "run_options.h"

#include <string.h>

#include "str.h"

/* --NAME sets the limit `id`. */
static const struct run_limit_option {
    const char *name;
    const char *arg;
    enum opt_type type;
    enum limit_id id;
    const char *help;
} run_limit_options[] = {
    {"wall", "TIME", OPT_DURATION, LIMIT_WALL_MS, "wall-clock time of each step: 500ms, 30s, 5m"},
    {"cpu", "TIME", OPT_DURATION, LIMIT_CPU_MS, "CPU time of each step, all its processes"},
    {"mem", "SIZE", OPT_BYTES, LIMIT_MEM_BYTES, "memory, without swap: 256M, 1G"},
    {"pids", "N", OPT_U64, LIMIT_PIDS, "processes and threads at once"},
    {"disk", "SIZE", OPT_BYTES, LIMIT_DISK_BYTES, "all written files together"},
    {"inodes", "N", OPT_U64, LIMIT_INODES, "number of files and directories"},
    {"output", "SIZE", OPT_BYTES, LIMIT_OUTPUT_BYTES, "kept and shown of stdout and of stderr"},
    {"open-files", "N", OPT_U64, LIMIT_OPEN_FILES, "open files of one process"},
    {"file-size", "SIZE", OPT_BYTES, LIMIT_FILE_BYTES, "size of one file"},
    {"stack", "SIZE", OPT_BYTES, LIMIT_STACK_BYTES, "stack of the main thread"},
};

#define RUN_LIMIT_OPTIONS (sizeof(run_limit_options) / sizeof(run_limit_options[0]))
#define RUN_FIXED_OPTIONS 14

struct run_table {
    struct opt rows[RUN_FIXED_OPTIONS + RUN_LIMIT_OPTIONS + 1];
    const char *cpus;
};

static void run_table_init(struct run_table *t, struct run_options *o) {
    const struct opt fixed[RUN_FIXED_OPTIONS] = {
        {"sh", 'c', "LINE", OPT_STRING, &o->shell, 0, 0, "run LINE with a shell"},
        {"steps", 0, "FILE", OPT_STRING, &o->steps, 0, 0, "run the steps of a JSON file, in order"},
        {"policy", 0, "NAME", OPT_STRING, &o->policy, 0, 0, "what it may do (default: default)"},
        {"image", 0, "NAME", OPT_STRING, &o->image, 0, 0, "what it sees (default: host)"},
        {"env", 'e', "K=V", OPT_LIST, &o->env, 0, 0, "set a variable; yours are not passed on"},
        {"cwd", 0, "DIR", OPT_STRING, &o->cwd, 0, 0, "start there (default: /workspace)"},
        {"stdin", 0, "FILE", OPT_STRING, &o->input, 0, 0, "its input, - = ours (default: empty)"},
        {"file", 'f', "LOCAL[:PATH]", OPT_LIST, &o->files, 0, 0,
         "put a file into /workspace, as PATH or its own name"},
        {"collect", 0, "GLOB", OPT_LIST, &o->collect, 0, 0,
         "bring files back from /workspace, such as 'out/**'"},
        {"out", 0, "DIR", OPT_STRING, &o->out, 0, 0, "where collected files go (default: .)"},
        {"merge-stderr", 0, NULL, OPT_FLAG, &o->merge_stderr, 0, 0,
         "let stderr go where stdout goes, in order"},
        {"json", 0, NULL, OPT_FLAG, &o->json, 0, 0, "print the answer as JSON, and no output"},
        {"cpus", 0, "N", OPT_STRING, &t->cpus, 0, 0, "share of processors: 0.5, 2"},
        {0},
    };
    size_t n = RUN_FIXED_OPTIONS - 1;

    memset(t->rows, 0, sizeof(t->rows));
    t->cpus = NULL;
    memcpy(t->rows, fixed, sizeof(fixed));
    for (size_t i = 0; i < RUN_LIMIT_OPTIONS; i++) {
        const struct run_limit_option *l = &run_limit_options[i];

        t->rows[n++] = (struct opt){.name = l->name,
                                    .arg = l->arg,
                                    .type = l->type,
                                    .value = &o->limit[l->id],
                                    .min = limit_info(l->id)->min,
                                    .max = limit_info(l->id)->max,
                                    .help = l->help};
    }
}

/* "1.5" -> 1500. */
static int run_options_cpus(const char *text, uint64_t *milli, struct err *err) {
    const struct limit_info *info = limit_info(LIMIT_CPUS_MILLI);
    char whole[24];
    const char *dot = strchr(text, '.');
    size_t len = dot != NULL ? (size_t)(dot - text) : strlen(text);
    uint64_t value = 0, part = 0;

    if (len == 0 || len >= sizeof(whole) || (dot != NULL && strlen(dot + 1) > 3))
        goto wrong;
    memcpy(whole, text, len);
    whole[len] = '\0';
    if (str_u64(whole, 0, info->max / 1000, &value, NULL) < 0)
        goto wrong;
    if (dot != NULL) {
        if (str_u64(dot + 1, 0, 999, &part, NULL) < 0)
            goto wrong;
        for (size_t digits = strlen(dot + 1); digits < 3; digits++)
            part *= 10;
    }
    value = value * 1000 + part;
    if (value < info->min || value > info->max)
        goto wrong;
    *milli = value;
    return 0;
wrong:
    return err_set(err, ERR_INVALID, 0,
                   "option --cpus: expected a number of processors such as 0.5 or 2");
}

/* The bounds that hold for everybody: OPT_BYTES and OPT_DURATION rows do not check them. */
static int run_options_bounds(const struct run_options *o, struct err *err) {
    for (size_t i = 0; i < RUN_LIMIT_OPTIONS; i++) {
        const struct run_limit_option *l = &run_limit_options[i];
        const struct limit_info *info = limit_info(l->id);
        uint64_t value = o->limit[l->id];

        if (value != RUN_OPTIONS_UNSET && (value < info->min || value > info->max))
            return err_set(err, ERR_INVALID, 0, "option --%s: %s must be between %llu and %llu %s",
                           l->name, info->what, (unsigned long long)info->min,
                           (unsigned long long)info->max,
                           l->type == OPT_DURATION ? "ms"
                           : l->type == OPT_BYTES  ? "bytes"
                                                   : "");
    }
    return 0;
}

static int run_options_check(const struct run_options *o, struct err *err) {
    int ways = (o->shell != NULL) + (o->steps != NULL) + (o->argc > 0);

    if (ways == 0)
        return err_set(err, ERR_INVALID, 0, "what is to run? Give -- COMMAND, -c LINE or --steps");
    if (ways > 1)
        return err_set(err, ERR_INVALID, 0,
                       "only one of -- COMMAND, -c LINE and --steps is possible");
    for (size_t i = 0; i < o->env.count; i++) {
        const char *equals = strchr(o->env.item[i], '=');

        if (equals == NULL || equals == o->env.item[i])
            return err_set(err, ERR_INVALID, 0, "option --env: expected NAME=VALUE");
    }
    if (o->out != NULL && o->collect.count == 0)
        return err_set(err, ERR_INVALID, 0, "--out needs --collect");
    return run_options_bounds(o, err);
}

int run_options_parse(int argc, char **argv, struct run_options *out, struct err *err) {
    struct run_options o = {0};
    struct run_table table;
    struct opt_result result;

    for (int i = 0; i < LIMIT_COUNT; i++)
        o.limit[i] = RUN_OPTIONS_UNSET;
    run_table_init(&table, &o);
    if (opt_parse(table.rows, argc, argv, &result, err) < 0)
        return -1;
    o.help = result.help;
    o.argv = argv + result.rest;
    o.argc = argc - result.rest;
    if (!o.help && table.cpus != NULL &&
        run_options_cpus(table.cpus, &o.limit[LIMIT_CPUS_MILLI], err) < 0)
        return -1;
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
