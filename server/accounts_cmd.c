#include "accounts_cmd.h"

#include <stdio.h>
#include <string.h>

#include "accounts_quota.h"
#include "str.h"

#define ACCOUNTS_CMD_JSON_MAX ((size_t)64 * 1024 * 1024)

/* Options on all sides of the operands. */
static int accounts_cmd_parse(const struct opt *table, int argc, char **argv,
                              struct accounts_args *args, bool *help, struct err *err) {
    struct opt_result result;
    for (;;) {
        if (opt_parse(table, argc, argv, &result, err) < 0)
            return -1;
        *help = result.help;
        if (result.help || result.rest >= argc)
            return 0;
        if (args->count == ACCOUNTS_CMD_WORDS)
            return err_set(err, ERR_INVALID, 0, "too many arguments, from %.60s on",
                           argv[result.rest]);
        args->word[args->count++] = argv[result.rest];
        argc -= result.rest;
        argv += result.rest;
    }
}

/* "add, list or delete" */
static void accounts_cmd_names(const struct accounts_cmd *cmd, char *dst, size_t size) {
    size_t len = 0;
    for (size_t i = 0; i < cmd->action_count && len < size; i++)
        len += (size_t)snprintf(dst + len, size - len, "%s%s",
                                i == 0                      ? ""
                                : i + 1 < cmd->action_count ? ", "
                                                            : " or ",
                                cmd->actions[i].name);
}

static const struct accounts_action *accounts_cmd_find(const struct accounts_cmd *cmd,
                                                       const struct accounts_args *args,
                                                       struct err *err) {
    char names[160];
    for (size_t i = 0; args->count > 0 && i < cmd->action_count; i++) {
        const struct accounts_action *a = &cmd->actions[i];
        if (strcmp(a->name, args->word[0]) != 0)
            continue;
        if (args->count - 1 >= a->min && args->count - 1 <= a->max)
            return a;
        err_set(err, ERR_INVALID, 0, "use it like this: pinfold-server %s %s %s", cmd->name,
                a->name, a->operands);
        return NULL;
    }
    accounts_cmd_names(cmd, names, sizeof(names));
    err_set(err, ERR_INVALID, 0, "expected %s; --help explains them", names);
    return NULL;
}

int accounts_cmd_run(const struct accounts_cmd *cmd, const struct opt *table,
                     struct accounts_args *args, int argc, char **argv) {
    struct err err = {0};
    struct accounts_tool tool;
    const struct accounts_action *action = NULL;
    bool help = false;
    int rc = accounts_cmd_parse(table, argc, argv, args, &help, &err);
    if (rc == 0 && help) {
        opt_help(stdout, cmd->usage, cmd->about, table);
        return 0;
    }
    if (rc == 0)
        action = accounts_cmd_find(cmd, args, &err);
    if (action == NULL) {
        fprintf(stderr, "pinfold-server %s: %s\n", cmd->name, err.text);
        return 2;
    }
    rc = accounts_tool_open(&tool, args->state, &err);
    if (rc == 0)
        rc = action->run(args, &tool, &err);
    if (rc < 0)
        fprintf(stderr, "pinfold-server %s %s: %s\n", cmd->name, action->name, err.text);
    accounts_tool_close(&tool);
    return rc < 0 ? 1 : 0;
}

struct accounts_user *accounts_cmd_user(struct accounts_tool *t, const char *name,
                                        struct err *err) {
    struct accounts_user *u = accounts_user_find(t->accounts, name);
    if (u != NULL && !u->deleted)
        return u;
    err_set(err, ERR_INVALID, 0,
            "there is no user %.63s; pinfold-server user list --state %s shows them, user add "
            "makes one",
            str_is_name(name) ? name : "of that name", t->state.path);
    return NULL;
}

int accounts_cmd_quotas(struct quota_limits *q, const char *const *words, size_t count,
                        struct err *err) {
    for (size_t i = 0; i < count; i++)
        if (accounts_quota_set(q, words[i], err) < 0)
            return -1;
    return 0;
}

void accounts_cmd_list_begin(struct json_out *j, struct buf *out, const char *key) {
    buf_init(out, ACCOUNTS_CMD_JSON_MAX);
    json_out_init(j, out);
    json_out_open(j, NULL, '{');
    json_out_open(j, key, '[');
}

int accounts_cmd_list_end(struct json_out *j, struct buf *out, struct err *err) {
    json_out_close(j, ']');
    json_out_close(j, '}');
    int rc = json_out_end(j, err);
    if (rc == 0)
        puts(out->data);
    buf_done(out);
    return rc;
}
