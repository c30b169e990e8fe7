/* pinfold permission list, trust and allow. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "buf.h"
#include "opt.h"
#include "permission_cmd.h"
#include "say.h"

struct permission_rules_options {
    const char *rules, *workspace;
    bool all, yes, revoke;
};

static int permission_rules_parse(struct permission_rules_options *o, const char *usage,
                                  const char *about, int argc, char **argv) {
    bool list = strcmp(argv[0], "list") == 0, trust = strcmp(argv[0], "trust") == 0;
    struct opt table[6] = {
        {.name = "workspace",
         .arg = "DIR",
         .type = OPT_STRING,
         .value = &o->workspace,
         .help = "the workspace (the current directory)"},
    };
    size_t n = 1;
    struct opt_result result;
    struct err err = {0};

    if (list) {
        table[n++] = (struct opt){.name = "rules",
                                  .arg = "FILE",
                                  .type = OPT_STRING,
                                  .value = &o->rules,
                                  .help = "these rules in place of your own"};
        table[n++] = (struct opt){.name = "all",
                                  .type = OPT_FLAG,
                                  .value = &o->all,
                                  .help = "also the guard and the defaults"};
    } else {
        table[n++] =
            (struct opt){.name = "yes", .type = OPT_FLAG, .value = &o->yes, .help = "do not ask"};
    }
    if (trust)
        table[n++] = (struct opt){.name = "revoke",
                                  .type = OPT_FLAG,
                                  .value = &o->revoke,
                                  .help = "trust the file no more"};
    if (opt_parse(table, argc, argv, &result, &err) < 0) {
        say_line("permission %s: %s", argv[0], err.text);
        return -1;
    }
    if (result.help) {
        opt_help(stdout, usage, about, table);
        return 0;
    }
    return result.rest;
}

static void permission_rules_file(const struct perm_file *file) {
    printf("%-14s  ", file->what);
    say_put(stdout, file->path);
    if (!file->there)
        puts("  (not there)");
    else if (!file->trusted)
        printf("  %zu rules, NOT TRUSTED: its allow lines do not count\n", file->rules);
    else
        printf("  %zu rules\n", file->rules);
}

static int permission_list_run(int argc, char **argv) {
    struct permission_rules_options o = {0};
    struct permission_rules r;
    const struct rule *last = NULL;
    int rest = permission_rules_parse(
        &o, "pinfold permission list [options]",
        "Shows the files of rules, the rules in them, and the hash over all of them, which\n"
        "names the policy of a session in the journal.",
        argc, argv);

    if (rest <= 0)
        return rest < 0 ? CLIENT_EXIT_USAGE : 0;
    if (permission_cmd_load(&r, o.rules, o.workspace, false) < 0)
        return CLIENT_EXIT_USAGE;
    for (size_t i = 0; i < r.files.count; i++)
        permission_rules_file(&r.files.file[i]);
    printf("policy          %s\n\n", r.files.policy);
    for (size_t i = 0; i < r.set.count; i++) {
        const struct rule *rule = &r.set.rules[i];
        bool own = rule->layer != RULE_GUARD && rule->layer != RULE_DEFAULT;

        if ((!own && !o.all) ||
            (last != NULL && last->file == rule->file && last->line == rule->line))
            continue;
        last = rule;
        say_put(stdout, rule->text);
        if (rule->untrusted)
            fputs("   (does not count: not trusted)", stdout);
        if (rule->reason != NULL) {
            fputs("   # ", stdout);
            say_put(stdout, rule->reason);
        }
        putchar('\n');
    }
    permission_cmd_done(&r);
    return 0;
}

static int permission_trust_run(int argc, char **argv) {
    struct permission_rules_options o = {0};
    struct permission_rules r;
    struct err err = {0};
    size_t loosens = 0;
    int rc, rest = permission_rules_parse(
                &o, "pinfold permission trust [options]",
                "Lets the allow lines of this workspace's own rules (.pinfold/permissions.rules)\n"
                "count. Whoever can change the workspace can change that file, so the trust is in\n"
                "its content: any change takes it away. The lines are shown first.",
                argc, argv);

    if (rest <= 0)
        return rest < 0 ? CLIENT_EXIT_USAGE : 0;
    if (permission_cmd_load(&r, NULL, o.workspace, false) < 0)
        return CLIENT_EXIT_USAGE;
    for (size_t i = 0; i < r.set.count && !o.revoke; i++)
        if (r.set.rules[i].layer == RULE_WORKSPACE && r.set.rules[i].verdict == RULE_ALLOW) {
            if (loosens++ == 0)
                puts("These lines would count:");
            fputs("  ", stdout);
            say_put(stdout, r.set.rules[i].text);
            putchar('\n');
        }
    fflush(stdout);
    if (!o.revoke && loosens == 0) {
        say_line("permission trust: there is nothing to trust: this workspace has no "
                 ".pinfold/permissions.rules with a line that allows something");
        permission_cmd_done(&r);
        return CLIENT_EXIT_USAGE;
    }
    if (!o.revoke && !o.yes && ask_person("Trust them?", "yn") != 'y') {
        say_line("permission trust: nothing was changed; --yes trusts without asking");
        permission_cmd_done(&r);
        return PERMISSION_EXIT_DENY;
    }
    rc = perm_files_trust(&r.files, !o.revoke, &err);
    if (rc < 0)
        say_line("permission trust: %s", err.text);
    else
        puts(o.revoke ? "not trusted" : "trusted");
    permission_cmd_done(&r);
    return rc < 0 ? CLIENT_EXIT_USAGE : 0;
}

/* Stores what `always` of each part offers. */
static int permission_allow_parts(const struct permission_rules *r, const struct perm_verdict *v,
                                  bool yes) {
    struct err err = {0};
    size_t offered = 0;

    for (size_t i = 0; i < v->count; i++) {
        char question[900], clean[700];
        int rc;

        if (v->parts[i].always == NULL) {
            if (v->parts[i].verdict != RULE_ALLOW) {
                say_clean(clean, sizeof(clean), v->parts[i].text);
                say_line("permission allow: \"%s\" cannot be allowed for always: %s", clean,
                         v->parts[i].rule != NULL || v->parts[i].opaque
                             ? v->parts[i].why
                             : "it needs two or more literal words, and no program that runs "
                               "others; what you want all the same goes into permissions.rules, by "
                               "hand");
                return PERMISSION_EXIT_DENY;
            }
            continue;
        }
        offered++;
        snprintf(question, sizeof(question), "Always allow in this workspace: %s ?",
                 say_clean(clean, sizeof(clean), v->parts[i].always));
        if (!yes && ask_person(question, "yn") != 'y') {
            say_line("permission allow: nothing was changed; --yes stores it without asking");
            return PERMISSION_EXIT_DENY;
        }
        rc = perm_files_allow(&r->files, v->parts[i].always, &err);
        if (rc < 0) {
            say_line("permission allow: %s", err.text);
            return CLIENT_EXIT_USAGE;
        }
        printf("%s%s\n", clean, rc == 1 ? "  (was there already)" : "");
    }
    if (offered == 0)
        puts("it is allowed already");
    return 0;
}

static int permission_allow_run(int argc, char **argv) {
    struct permission_rules_options o = {0};
    struct permission_rules r;
    const struct perm_verdict *v;
    int status,
        rest = permission_rules_parse(
            &o, "pinfold permission allow [options] COMMAND",
            "Stores a rule that allows this command, and others that begin with the same\n"
            "words, in this workspace: outside of it, in ~/.config/pinfold/grants. Two or\n"
            "more literal words are needed. Shells, interpreters, wrappers and what cannot\n"
            "be read with certainty are never stored; no stored rule lifts a deny or an ask.\n\n"
            "Example:\n"
            "  pinfold permission allow 'git diff --stat'",
            argc, argv);

    if (rest <= 0)
        return rest < 0 ? CLIENT_EXIT_USAGE : 0;
    if (rest + 1 != argc) {
        say_line("permission allow: one command, as one argument, in quotes");
        return CLIENT_EXIT_USAGE;
    }
    if (permission_cmd_load(&r, NULL, o.workspace, false) < 0)
        return CLIENT_EXIT_USAGE;
    v = perm_judge(&r.perm, argv[rest], strlen(argv[rest]));
    if (v->verdict == RULE_DENY) {
        say_line("permission allow: the command is denied: %s", v->why);
        status = PERMISSION_EXIT_DENY;
    } else {
        status = permission_allow_parts(&r, v, o.yes);
    }
    permission_cmd_done(&r);
    return status;
}

const struct client_cmd permission_list = {
    .name = "list",
    .about = "the files of rules, and what is in them",
    .run = permission_list_run,
};

const struct client_cmd permission_trust = {
    .name = "trust",
    .about = "let the allow lines of the workspace's own rules count",
    .run = permission_trust_run,
};

const struct client_cmd permission_allow = {
    .name = "allow",
    .about = "always allow a command in this workspace",
    .run = permission_allow_run,
};
