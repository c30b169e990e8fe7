#include "permission_cmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

static const struct client_cmd *const permission_cmd_table[] = {
    &permission_test, &permission_check, &permission_list, &permission_trust, &permission_allow,
};

#define PERMISSION_CMD_COUNT (sizeof(permission_cmd_table) / sizeof(permission_cmd_table[0]))

static void permission_cmd_overview(void) {
    puts("pinfold permission COMMAND [options]\n\n"
         "What an agent may do is written in rules, one a line, in files of yours. Nothing here\n"
         "runs a command: it tells what the rules say about one.\n\n"
         "Commands:");
    for (size_t i = 0; i < PERMISSION_CMD_COUNT; i++)
        printf("  %-6s  %s\n", permission_cmd_table[i]->name, permission_cmd_table[i]->about);
    puts(
        "\nRules:\n"
        "  deny  exec  git push **             \"people push\"\n"
        "  ? git push origin main\n"
        "  ! git status\n"
        "  ask   exec  npm install **\n"
        "  allow exec  npm run {test,lint} **\n"
        "  allow exec  cat <path>*\n"
        "  deny  read  **/.env\n"
        "  allow write src/** tests/**\n"
        "  allow net   registry.example.org:443\n"
        "  allow model local\n\n"
        "  deny, ask or allow; then exec, read, write, net, model or tool; then patterns. Words "
        "of\n"
        "  exec are compared one by one: * is one word, ** at the end any number, {a,b} a choice,\n"
        "  <path> a path in the workspace. In paths * is within a name, ** any directories. Lines\n"
        "  with ? and ! behind a rule are commands that it must and must not match.\n\n"
        "Order: guard > deny > ask > allow > ask. Every part of a command is judged (behind &&, "
        "in\n"
        "pipes, functions, $(…), sh -c, env, xargs, find -exec, and redirections), and the\n"
        "strictest counts. What cannot be read with certainty is never allowed.\n\n"
        "Files (each that is there counts; none can lift a deny of another):\n"
        "  /etc/pinfold/permissions.rules        the system's\n"
        "  ~/.config/pinfold/permissions.rules   yours\n"
        "  .pinfold/permissions.rules            the workspace's; its allow lines count once you\n"
        "                                        have run pinfold permission trust\n\n"
        "Example:\n"
        "  pinfold permission test 'git status && rm -rf /'\n\n"
        "pinfold permission COMMAND --help tells more about each.");
}

static int permission_cmd_run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        permission_cmd_overview();
        return 0;
    }
    for (size_t i = 0; i < PERMISSION_CMD_COUNT; i++)
        if (strcmp(permission_cmd_table[i]->name, name) == 0)
            return permission_cmd_table[i]->run(argc - 1, argv + 1);
    if (*name == '\0')
        say_line("permission: which command? Try pinfold permission --help");
    else
        say_line("there is no command permission %s; try pinfold permission --help", name);
    return CLIENT_EXIT_USAGE;
}

const struct client_cmd permission_cmd = {
    .name = "permission",
    .about = "what an agent may do here, and why",
    .run = permission_cmd_run,
};

int permission_cmd_load(struct permission_rules *r, const char *rules, const char *workspace,
                        bool headless) {
    struct perm_config config = {
        .resolve = perm_files_resolve, .arg = &r->files, .headless = headless};
    struct err err = {0};

    *r = (struct permission_rules){0};
    if (perm_files_find(&r->files, workspace, &err) == 0 &&
        perm_files_load(&r->files, rules, NULL, &config, &r->set, &r->perm, &err) == 0)
        return 0;
    say_line("permission: %s", err.text);
    return -1;
}

void permission_cmd_done(struct permission_rules *r) {
    perm_done(&r->perm);
    rule_set_done(&r->set);
}
