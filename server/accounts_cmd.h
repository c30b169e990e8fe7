/* What the commands `pinfold-server user` and `pinfold-server token` share: a table of actions, the
 * options of both, and how an action is found, run and told about. */
#pragma once

#include "accounts.h"
#include "accounts_tool.h"
#include "buf.h"
#include "json_out.h"
#include "opt.h"

#define ACCOUNTS_CMD_WORDS 32 /* operands, the name of the action included */

/* What stands on the command line. Everything is borrowed from argv. */
struct accounts_args {
    const char *state;
    bool json, cancel_running;
    struct opt_list quota; /* NAME=VALUE */
    /* user */
    bool admin;
    uint64_t weight; /* 0 = not given */
    /* token */
    const char *scopes, *expires, *policies, *label;
    uint64_t cpu_ms, runs; /* UINT64_MAX = no bound */

    unsigned count;
    const char *word[ACCOUNTS_CMD_WORDS]; /* word[0] names the action */
};

struct accounts_action {
    const char *name;
    unsigned min, max; /* operands behind it */
    const char *operands;
    int (*run)(const struct accounts_args *args, struct accounts_tool *t, struct err *err);
};

struct accounts_cmd {
    const char *name; /* "user" */
    const char *usage, *about;
    const struct accounts_action *actions;
    size_t action_count;
};

/* Parses argv with `table`, whose values are in `args` (options may stand between and behind the
 * operands), opens the state directory and does what was asked for. -> exit code: 0, 1 (it failed:
 * said on stderr), 2 (wrong usage: likewise). */
int accounts_cmd_run(const struct accounts_cmd *cmd, const struct opt *table,
                     struct accounts_args *args, int argc, char **argv);

/* The user of this name, who is not deleted; NULL: there is none. */
struct accounts_user *accounts_cmd_user(struct accounts_tool *t, const char *name, struct err *err);
/* Each word is a quota, NAME=VALUE. Those in front of a wrong one are set. */
int accounts_cmd_quotas(struct quota_limits *q, const char *const *words, size_t count,
                        struct err *err);

/* {"KEY":[…]} on stdout; the items are put into `j` between both calls. */
void accounts_cmd_list_begin(struct json_out *j, struct buf *out, const char *key);
/* Prints and releases `out`. */
int accounts_cmd_list_end(struct json_out *j, struct buf *out, struct err *err);
