#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accounts_cmd.h"
#include "accounts_json.h"
#include "accounts_make.h"
#include "accounts_scope.h"
#include "clock.h"
#include "store_accounts.h"
#include "subcommand.h"

static int token_cmd_wish(const struct accounts_args *args, struct accounts_wish *w,
                          char **policies, struct err *err) {
    accounts_make_wish(w);
    w->label = args->label;
    w->cpu_budget_ms = args->cpu_ms;
    w->runs_budget = args->runs;
    if (args->scopes != NULL && accounts_scope_parse(args->scopes, &w->scopes, err) < 0)
        return -1;
    if (args->expires != NULL &&
        accounts_make_time(args->expires, clock_real_ms(), &w->expires_ms, err) < 0)
        return err_wrap(err, "--expires");
    if (accounts_cmd_quotas(&w->quota, args->quota.item, args->quota.count, err) < 0)
        return -1;
    if (args->policies == NULL)
        return 0;
    if (accounts_make_policies(args->policies, policies, err) < 0)
        return -1;
    w->policies = *policies;
    return 0;
}

static void token_cmd_when(uint64_t ms, char out[32]) {
    time_t t = (time_t)(ms / 1000);
    struct tm tm;
    if (ms == ACCOUNTS_NEVER || gmtime_r(&t, &tm) == NULL)
        snprintf(out, 32, "never");
    else
        strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int token_cmd_new(const struct accounts_args *args, struct accounts_tool *t,
                         struct err *err) {
    const struct accounts_user *u = accounts_cmd_user(t, args->word[1], err);
    struct accounts_wish wish;
    struct accounts_token row;
    char text[TOKEN_TEXT_LEN + 1] = "", scopes[ACCOUNTS_SCOPE_NAMES_SIZE], when[32];
    char *policies = NULL;
    if (u == NULL || accounts_tool_room(t, err) < 0)
        return -1;
    int rc = token_cmd_wish(args, &wish, &policies, err);
    if (rc == 0)
        rc = accounts_make_token(&wish, u, &row, text, err);
    if (rc == 0)
        rc = store_accounts_add_token(t->store, &row, u->name, NULL, err);
    if (rc == 0)
        rc = accounts_tool_changed(t, "token new", row.id, err);
    if (rc == 0) {
        accounts_scope_names(row.scopes, ",", scopes);
        token_cmd_when(row.expires_ms, when);
        fprintf(stderr, "token %s of %s, scopes %s, expires %s; it is shown only this once:\n",
                row.id, u->name, scopes, when);
        puts(text);
    }
    token_wipe(text, sizeof(text));
    free(policies);
    return rc;
}

static int token_cmd_list_json(const struct accounts_tool *t, const struct accounts_user *only,
                               struct err *err) {
    struct buf out;
    struct json_out j;
    accounts_cmd_list_begin(&j, &out, "tokens");
    for (const struct accounts_token *x = NULL; (x = accounts_token_next(t->accounts, x)) != NULL;)
        if (only == NULL || x->user == only)
            accounts_json_token(&j, NULL, x, clock_real_ms());
    return accounts_cmd_list_end(&j, &out, err);
}

static int token_cmd_list(const struct accounts_args *args, struct accounts_tool *t,
                          struct err *err) {
    const struct accounts_user *only = NULL;
    char scopes[ACCOUNTS_SCOPE_NAMES_SIZE], when[32];
    if (args->count > 1 && (only = accounts_cmd_user(t, args->word[1], err)) == NULL)
        return -1;
    if (args->json)
        return token_cmd_list_json(t, only, err);
    printf("%-28s %-16s %-8s %-20s %-32s %s\n", "TOKEN", "USER", "STATE", "EXPIRES", "SCOPES",
           "LABEL");
    for (const struct accounts_token *x = NULL;
         (x = accounts_token_next(t->accounts, x)) != NULL;) {
        if (only != NULL && x->user != only)
            continue;
        accounts_scope_names(x->scopes, ",", scopes);
        token_cmd_when(x->expires_ms, when);
        printf("%-28s %-16s %-8s %-20s %-32s %s%s\n", x->id, x->user->name,
               accounts_json_state(x, clock_real_ms()), when, scopes,
               x->parent != NULL ? "(child) " : "", x->label);
    }
    return 0;
}

static int token_cmd_revoke(const struct accounts_args *args, struct accounts_tool *t,
                            struct err *err) {
    const struct accounts_token *x = accounts_token_find(t->accounts, args->word[1]);
    if (x == NULL)
        return err_set(
            err, ERR_INVALID, 0,
            "there is no token of that id (tok_…); pinfold-server token list shows them");
    if (store_accounts_withdraw(t->store, x->id, args->cancel_running, err) < 0)
        return -1;
    return accounts_tool_changed(t, "token revoke", x->id, err);
}

static const struct accounts_action token_cmd_actions[] = {
    {"new", 1, 1, "NAME [OPTIONS]", token_cmd_new},
    {"list", 0, 1, "[NAME]", token_cmd_list},
    {"revoke", 1, 1, "tok_…", token_cmd_revoke},
};

static const struct accounts_cmd token_cmd_shape = {
    .name = "token",
    .usage = "pinfold-server token new NAME [OPTIONS]\n"
             "pinfold-server token list [NAME] [--json]\n"
             "pinfold-server token revoke tok_… [--cancel-running]",
    .about = "The tokens of users. A new one is printed alone on standard output and cannot be\n"
             "shown again: only its hash is kept. Revoking one revokes the tokens made with it;\n"
             "their open streams end, what waits in the queue is cancelled, and with\n"
             "--cancel-running what runs is, too. A running server knows of a change at once.\n"
             "Scopes: run, sandbox, files, read (these four unless something is said), metrics\n"
             "and admin (all six for an administrator).",
    .actions = token_cmd_actions,
    .action_count = sizeof(token_cmd_actions) / sizeof(token_cmd_actions[0]),
};

static int token_run(int argc, char **argv) {
    struct accounts_args args = {
        .state = "/var/lib/pinfold", .label = "", .cpu_ms = UINT64_MAX, .runs = UINT64_MAX};
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &args.state, 0, 0,
         "the state directory (/var/lib/pinfold)"},
        {"scopes", 0, "A,B", OPT_STRING, &args.scopes, 0, 0, "new: what it may be used for"},
        {"expires", 0, "TIME", OPT_STRING, &args.expires, 0, 0,
         "new: 12h, 30d, 2027-01-31 or never (never)"},
        {"policies", 0, "A,B", OPT_STRING, &args.policies, 0, 0,
         "new: the policies that it may name (all)"},
        {"quota", 0, "NAME=VALUE", OPT_LIST, &args.quota, 0, 0,
         "new: a limit of its own, as of pinfold-server user"},
        {"cpu", 0, "TIME", OPT_DURATION, &args.cpu_ms, 0, 0,
         "new: CPU time that it may use in its whole life"},
        {"runs", 0, "N", OPT_U64, &args.runs, 0, INT64_MAX,
         "new: runs and executions that it may start in its whole life"},
        {"label", 0, "TEXT", OPT_STRING, &args.label, 0, 0, "new: what it is for, for people"},
        {"cancel-running", 0, NULL, OPT_FLAG, &args.cancel_running, 0, 0, "revoke: end what runs"},
        {"json", 0, NULL, OPT_FLAG, &args.json, 0, 0, "list: as JSON"},
        {0},
    };
    return accounts_cmd_run(&token_cmd_shape, table, &args, argc, argv);
}

const struct subcommand token_cmd = {
    .name = "token",
    .about = "make, list and revoke tokens",
    .run = token_run,
};
