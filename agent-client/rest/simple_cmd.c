#include "simple_cmd.h"

#include <stdio.h>
#include <string.h>

#include "client_exit.h"
#include "say.h"

/* Options on both sides of operands: the operands go to the end of argv. -> index of the first. */
static int simple_cmd_sort(const struct opt *table, int argc, char **argv,
                           struct opt_result *result, struct err *err) {
    int at = 0, count = 0;

    for (;;) {
        if (opt_parse(table, argc - at, argv + at, result, err) < 0)
            return -1;
        at += result->rest;
        if (result->help)
            return at;
        if (at == argc || result->dashes)
            break;
        /* Its place is behind us: nobody reads it any more. */
        argv[++count] = argv[at];
    }
    /* argv[1…count], then what followed "--": side by side at the end. */
    for (int i = 0; i < count; i++)
        argv[at - 1 - i] = argv[count - i];
    return at - count;
}

int simple_cmd_parse(const struct simple_cmd *cmd, int argc, char **argv, int *rest) {
    static const struct opt none[] = {{0}};
    const struct opt *table = cmd->table != NULL ? cmd->table : none;
    struct opt_result result;
    struct err err = {0};
    int rc = cmd->mixed ? simple_cmd_sort(table, argc, argv, &result, &err)
                        : opt_parse(table, argc, argv, &result, &err);

    if (rc < 0) {
        say_line("%s: %s (see pinfold %s --help)", cmd->name, err.text, cmd->name);
        return -1;
    }
    if (cmd->mixed)
        result.rest = rc;
    if (result.help) {
        opt_help(stdout, cmd->usage, cmd->about, table);
        return 0;
    }
    *rest = result.rest;
    if (argc - result.rest > cmd->max_operands) {
        say_line("%s: unexpected argument %s (see pinfold %s --help)", cmd->name,
                 argv[result.rest + cmd->max_operands], cmd->name);
        return -1;
    }
    if (argc - result.rest < cmd->min_operands) {
        size_t line = strcspn(cmd->usage, "\n");

        if (cmd->usage[line] == '\0')
            say_line("%s: too few arguments; use it like this: %s", cmd->name, cmd->usage);
        else
            say_line("%s: too few arguments (see pinfold %s --help)", cmd->name, cmd->name);
        return -1;
    }
    return 1;
}

struct rest *simple_cmd_connect(struct target *target) {
    struct err err = {0};
    struct rest *rest = NULL;

    if (target_from_env(target, &err) < 0 || (rest = rest_new(target, NULL, &err)) == NULL)
        say_line("%s", err.text);
    return rest;
}

int simple_cmd_run(simple_cmd_fn *fn, int argc, char **argv, const void *options) {
    struct target target = {0};
    struct rest *rest = simple_cmd_connect(&target);
    struct err err = {0};
    int rc = -1;

    if (rest != NULL) {
        rc = fn(rest, argc, argv, options, &err);
        if (rc >= 0 && (fflush(stdout) != 0 || ferror(stdout)))
            rc = err_sys(&err, "cannot write the output");
        if (rc < 0)
            say_line("%s", err.text);
    }
    rest_free(rest);
    target_done(&target);
    return rc < 0 ? CLIENT_EXIT_TROUBLE : rc;
}

int simple_cmd_main(const struct simple_cmd *cmd, int argc, char **argv, simple_cmd_fn *fn,
                    const void *options) {
    int first, rc = simple_cmd_parse(cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    return simple_cmd_run(fn, argc - first, argv + first, options);
}
