#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "accounts_cmd.h"
#include "accounts_json.h"
#include "accounts_quota.h"
#include "clock.h"
#include "store_accounts.h"
#include "str.h"
#include "subcommand.h"

static int user_cmd_change(struct accounts_tool *t, const struct accounts_user *u,
                           const char *command, struct err *err) {
    if (store_accounts_change_user(t->store, u, err) < 0)
        return -1;
    return accounts_tool_changed(t, command, u->name, err);
}

static int user_cmd_add(const struct accounts_args *args, struct accounts_tool *t,
                        struct err *err) {
    const char *name = args->word[1];
    const struct accounts_user *known = accounts_user_find(t->accounts, name);
    struct accounts_user u = {.admin = args->admin,
                              .weight = args->weight != 0 ? (uint32_t)args->weight
                                                          : ACCOUNTS_WEIGHT_DEFAULT,
                              .created_ms = clock_real_ms()};
    if (!str_is_name(name) || !str_copy(u.name, sizeof(u.name), name))
        return err_set(err, ERR_INVALID, 0,
                       "a user's name is up to 63 letters, digits, '_', '.' and '-', and begins "
                       "with a letter, a digit or '_'");
    if (known != NULL)
        return err_set(err, ERR_STATE, 0,
                       known->deleted ? "a user %s was deleted; its runs and the audit log carry "
                                        "the name, so choose another"
                                      : "there is a user %s already",
                       name);
    accounts_quota_unlimited(&u.quota);
    if (accounts_tool_room(t, err) < 0 ||
        accounts_cmd_quotas(&u.quota, args->quota.item, args->quota.count, err) < 0 ||
        store_accounts_add_user(t->store, &u, err) < 0 ||
        accounts_tool_changed(t, "user add", name, err) < 0)
        return -1;
    printf("added the %s %s; give it a token: pinfold-server token new %s --state %s\n",
           u.admin ? "administrator" : "user", name, name, args->state);
    return 0;
}

static size_t user_cmd_tokens(const struct accounts *a, const struct accounts_user *u) {
    size_t n = 0;
    for (const struct accounts_token *t = NULL; (t = accounts_token_next(a, t)) != NULL;)
        n += t->user == u && !t->revoked;
    return n;
}

static int user_cmd_list_json(const struct accounts_tool *t, struct err *err) {
    struct buf out;
    struct json_out j;
    accounts_cmd_list_begin(&j, &out, "users");
    for (const struct accounts_user *u = NULL; (u = accounts_user_next(t->accounts, u)) != NULL;)
        if (!u->deleted)
            accounts_json_user(&j, NULL, u);
    return accounts_cmd_list_end(&j, &out, err);
}

static int user_cmd_list(const struct accounts_args *args, struct accounts_tool *t,
                         struct err *err) {
    if (args->json)
        return user_cmd_list_json(t, err);
    printf("%-24s %-8s %-8s %7s %7s\n", "USER", "ROLE", "STATE", "WEIGHT", "TOKENS");
    for (const struct accounts_user *u = NULL; (u = accounts_user_next(t->accounts, u)) != NULL;)
        if (!u->deleted)
            printf("%-24s %-8s %-8s %7" PRIu32 " %7zu\n", u->name, u->admin ? "admin" : "user",
                   u->disabled ? "disabled" : "active", u->weight, user_cmd_tokens(t->accounts, u));
    return 0;
}

static int user_cmd_disable(const struct accounts_args *args, struct accounts_tool *t,
                            struct err *err) {
    struct accounts_user *u = accounts_cmd_user(t, args->word[1], err);
    if (u == NULL)
        return -1;
    u->disabled = true;
    u->cancel_running = args->cancel_running;
    return user_cmd_change(t, u, "user disable", err);
}

static int user_cmd_enable(const struct accounts_args *args, struct accounts_tool *t,
                           struct err *err) {
    struct accounts_user *u = accounts_cmd_user(t, args->word[1], err);
    if (u == NULL)
        return -1;
    u->disabled = u->cancel_running = false;
    return user_cmd_change(t, u, "user enable", err);
}

static int user_cmd_delete(const struct accounts_args *args, struct accounts_tool *t,
                           struct err *err) {
    struct accounts_user *u = accounts_cmd_user(t, args->word[1], err);
    if (u == NULL)
        return -1;
    u->disabled = u->deleted = true;
    return user_cmd_change(t, u, "user delete", err);
}

static int user_cmd_quota(const struct accounts_args *args, struct accounts_tool *t,
                          struct err *err) {
    struct accounts_user *u = accounts_cmd_user(t, args->word[1], err);
    if (u == NULL)
        return -1;
    if (args->count > 2 || args->quota.count > 0) {
        if (accounts_cmd_quotas(&u->quota, args->word + 2, args->count - 2, err) < 0 ||
            accounts_cmd_quotas(&u->quota, args->quota.item, args->quota.count, err) < 0 ||
            user_cmd_change(t, u, "user quota", err) < 0)
            return -1;
    }
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        if (u->quota.v[i] >= QUOTA_NONE)
            printf("%-16s %s\n", quota_name(i), u->quota.v[i] == QUOTA_NONE ? "none" : "default");
        else
            printf("%-16s %" PRIu64 "\n", quota_name(i), u->quota.v[i]);
    }
    return 0;
}

static int user_cmd_weight(const struct accounts_args *args, struct accounts_tool *t,
                           struct err *err) {
    struct accounts_user *u = accounts_cmd_user(t, args->word[1], err);
    uint64_t weight;
    if (u == NULL)
        return -1;
    if (str_u64(args->word[2], 1, ACCOUNTS_WEIGHT_MAX, &weight, err) < 0)
        return err_wrap(err, "the weight");
    u->weight = (uint32_t)weight;
    return user_cmd_change(t, u, "user weight", err);
}

static const struct accounts_action user_cmd_actions[] = {
    {"add", 1, 1, "NAME", user_cmd_add},
    {"list", 0, 0, "", user_cmd_list},
    {"disable", 1, 1, "NAME", user_cmd_disable},
    {"enable", 1, 1, "NAME", user_cmd_enable},
    {"delete", 1, 1, "NAME", user_cmd_delete},
    {"quota", 1, ACCOUNTS_CMD_WORDS - 1, "NAME [QUOTA=VALUE]…", user_cmd_quota},
    {"weight", 2, 2, "NAME N", user_cmd_weight},
};

static const struct accounts_cmd user_cmd_shape = {
    .name = "user",
    .usage = "pinfold-server user add NAME [--admin] [--weight N] [--quota NAME=VALUE]…\n"
             "pinfold-server user list [--json]\n"
             "pinfold-server user disable NAME [--cancel-running]\n"
             "pinfold-server user enable NAME\n"
             "pinfold-server user delete NAME\n"
             "pinfold-server user quota NAME [QUOTA=VALUE]…\n"
             "pinfold-server user weight NAME N",
    .about =
        "The users of a server. A running server knows of a change at once. Who is disabled\n"
        "or deleted is refused from then on: open streams end, what waits in the queue is\n"
        "cancelled, and with --cancel-running what runs is, too. Of a deleted user all of that\n"
        "ends, sandboxes and snapshots as well; the name is never used again.\n"
        "Quotas: runs, parallel_runs, sandboxes, mem_bytes (4G), disk_bytes, cpu_ms_per_day\n"
        "(2h), result_bytes, snapshot_bytes; \"none\" is no limit, \"default\" what the\n"
        "configuration says.",
    .actions = user_cmd_actions,
    .action_count = sizeof(user_cmd_actions) / sizeof(user_cmd_actions[0]),
};

static int user_run(int argc, char **argv) {
    struct accounts_args args = {.state = "/var/lib/pinfold"};
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &args.state, 0, 0,
         "the state directory (/var/lib/pinfold)"},
        {"admin", 0, NULL, OPT_FLAG, &args.admin, 0, 0, "add: its tokens have all scopes"},
        {"weight", 0, "N", OPT_U64, &args.weight, 1, ACCOUNTS_WEIGHT_MAX,
         "add: its share of the queue (100)"},
        {"quota", 0, "NAME=VALUE", OPT_LIST, &args.quota, 0, 0, "add, quota: a limit"},
        {"cancel-running", 0, NULL, OPT_FLAG, &args.cancel_running, 0, 0, "disable: end what runs"},
        {"json", 0, NULL, OPT_FLAG, &args.json, 0, 0, "list: as JSON"},
        {0},
    };
    return accounts_cmd_run(&user_cmd_shape, table, &args, argc, argv);
}

const struct subcommand user_cmd = {
    .name = "user",
    .about = "add, list, disable and delete users; their quotas",
    .run = user_run,
};
