/* pinfold permission test and check: the verdict on one command, with its reasons. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "opt.h"
#include "permission_cmd.h"
#include "say.h"
#include "text.h"

#define PERMISSION_COMMAND_MAX ((size_t)2 * 1024 * 1024)

struct permission_options {
    const char *rules, *workspace, *kind;
    bool json, headless, null;
};

/* Text for JSON: what is not UTF-8 came from a command that is opaque for that. */
static json_t *permission_string(const char *text) {
    char clean[2048];

    if (text == NULL)
        return json_null();
    if (text_is_utf8(text, strlen(text)))
        return json_string(text);
    return json_string(say_clean(clean, sizeof(clean), text));
}

static json_t *permission_where(const struct rule *rule) {
    char where[4400];

    if (rule == NULL)
        return json_null();
    snprintf(where, sizeof(where), "%s:%u", rule->file, rule->line);
    return permission_string(where);
}

static json_t *permission_part(const struct perm_part *part) {
    json_t *o = json_object();

    json_object_set_new(o, "command", permission_string(part->text));
    json_object_set_new(o, "verdict", json_string(rule_verdict_name(part->verdict)));
    json_object_set_new(o, "rule", permission_string(part->rule != NULL ? part->rule->text : NULL));
    json_object_set_new(o, "at", permission_where(part->rule));
    json_object_set_new(o, "why", permission_string(part->why));
    json_object_set_new(o, "opaque", json_boolean(part->opaque));
    if (part->always != NULL)
        json_object_set_new(o, "always", permission_string(part->always));
    return o;
}

static const char *permission_name(const struct perm_verdict *v) {
    return v->empty ? "error" : rule_verdict_name(v->verdict);
}

static int permission_print_json(const struct perm_verdict *v, const char *policy) {
    json_t *o = json_object(), *parts = json_array(), *argv = json_null();
    int rc;

    for (size_t i = 0; i < v->count; i++)
        json_array_append_new(parts, permission_part(&v->parts[i]));
    if (v->argv != NULL) {
        argv = json_array();
        for (size_t i = 0; v->argv[i] != NULL; i++)
            json_array_append_new(argv, permission_string(v->argv[i]));
    }
    json_object_set_new(o, "verdict", json_string(permission_name(v)));
    json_object_set_new(o, "rule", permission_string(v->rule != NULL ? v->rule->text : NULL));
    json_object_set_new(o, "at", permission_where(v->rule));
    json_object_set_new(o, "why", permission_string(v->why));
    json_object_set_new(o, "parts", parts);
    json_object_set_new(o, "argv", argv);
    json_object_set_new(o, "policy", json_string(policy));
    rc = json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
    return rc;
}

static void permission_print_reason(const struct rule *rule, const char *why) {
    say_put(stdout, why);
    if (rule != NULL) {
        fputs("\n         ", stdout);
        say_put(stdout, rule->file);
        printf(":%u: ", rule->line);
        say_put(stdout, rule->text);
    }
    putchar('\n');
}

static void permission_print(const struct perm_verdict *v) {
    printf("%s: ", permission_name(v));
    permission_print_reason(v->count == 1 ? NULL : v->rule, v->why);
    for (size_t i = 0; i < v->count; i++) {
        printf("  %-5s  ", rule_verdict_name(v->parts[i].verdict));
        say_put(stdout, v->parts[i].text);
        fputs(v->parts[i].opaque ? "  (opaque)\n         " : "\n         ", stdout);
        permission_print_reason(v->parts[i].rule, v->parts[i].why);
    }
    for (size_t i = 0; i < v->count; i++)
        if (v->parts[i].always != NULL) {
            fputs("To allow it always: ", stdout);
            say_put(stdout, v->parts[i].always);
            putchar('\n');
        }
}

static int permission_kind(const char *name) {
    static const char *const names[] = {"exec", "read", "write", "net", "model", "tool"};

    for (int i = 0; i < RULE_KINDS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* Operands joined by blanks, or stdin for "-". */
static int permission_text(struct buf *text, int argc, char **argv, struct err *err) {
    if (argc == 1 && strcmp(argv[0], "-") == 0) {
        char chunk[65536];
        ssize_t n;

        while ((n = read(STDIN_FILENO, chunk, sizeof(chunk))) > 0)
            if (buf_append(text, chunk, (size_t)n, err) < 0)
                return -1;
        return n < 0 ? err_sys(err, "cannot read stdin") : 0;
    }
    for (int i = 0; i < argc; i++)
        if (buf_printf(text, err, "%s%s", i > 0 ? " " : "", argv[i]) < 0)
            return -1;
    return 0;
}

static const struct perm_verdict *permission_judge(struct perm *p, int kind,
                                                   const struct buf *text) {
    const char *data = text->data != NULL ? text->data : "";

    if (kind == RULE_EXEC)
        return perm_judge(p, data, text->len);
    if (kind == RULE_READ || kind == RULE_WRITE)
        return perm_judge_path(p, (enum rule_kind)kind, data);
    return perm_judge_subject(p, (enum rule_kind)kind, data);
}

static int permission_status(const struct perm_verdict *v, bool check) {
    if (v->empty)
        return CLIENT_EXIT_USAGE;
    if (!check || v->verdict == RULE_ALLOW)
        return 0;
    return v->verdict == RULE_ASK ? PERMISSION_EXIT_ASK : PERMISSION_EXIT_DENY;
}

/* Each command of `text`, which ends with a NUL byte: one line of JSON. */
static void permission_each(struct permission_rules *r, int kind, const struct buf *text) {
    for (size_t pos = 0; pos < text->len;) {
        size_t n = strnlen(text->data + pos, text->len - pos);
        struct buf one = {.data = text->data + pos, .len = n};

        permission_print_json(permission_judge(&r->perm, kind, &one), r->files.policy);
        pos += n + 1;
    }
}

static int permission_do(const struct permission_options *o, int argc, char **argv, bool check) {
    struct permission_rules r;
    struct err err = {0};
    struct buf text;
    int kind = o->kind != NULL ? permission_kind(o->kind) : RULE_EXEC;
    int status = CLIENT_EXIT_USAGE;

    if (kind < 0) {
        say_line("permission: --kind is exec, read, write, net, model or tool, not %s", o->kind);
        return status;
    }
    if (permission_cmd_load(&r, o->rules, o->workspace, o->headless) < 0)
        return status;
    buf_init(&text, PERMISSION_COMMAND_MAX);
    if (permission_text(&text, argc, argv, &err) < 0) {
        say_line("permission: %s", err.text);
    } else if (o->null) {
        permission_each(&r, kind, &text);
        status = 0;
    } else {
        const struct perm_verdict *v = permission_judge(&r.perm, kind, &text);

        if (o->json)
            permission_print_json(v, r.files.policy);
        else
            permission_print(v);
        status = permission_status(v, check);
    }
    buf_done(&text);
    permission_cmd_done(&r);
    return status;
}

static int permission_test_or_check(int argc, char **argv, bool check) {
    struct permission_options o = {0};
    struct opt table[] = {
        {.name = "rules",
         .arg = "FILE",
         .type = OPT_STRING,
         .value = &o.rules,
         .help = "these rules in place of your own"},
        {.name = "workspace",
         .arg = "DIR",
         .type = OPT_STRING,
         .value = &o.workspace,
         .help = "the workspace (the current directory)"},
        {.name = "kind",
         .arg = "KIND",
         .type = OPT_STRING,
         .value = &o.kind,
         .help = "what the operand is: exec (a command), read, write, net, model or tool"},
        {.name = "json", .type = OPT_FLAG, .value = &o.json, .help = "one JSON object"},
        {.name = "null",
         .letter = '0',
         .type = OPT_FLAG,
         .value = &o.null,
         .help = "the operand is -, and each command there ends with a NUL byte; implies --json"},
        {.name = "headless",
         .type = OPT_FLAG,
         .value = &o.headless,
         .help = "nobody can be asked: ask is deny"},
        {0},
    };
    struct opt_result result;
    struct err err = {0};

    if (opt_parse(table, argc, argv, &result, &err) < 0) {
        say_line("permission %s: %s", argv[0], err.text);
        return CLIENT_EXIT_USAGE;
    }
    if (result.help && !check)
        opt_help(
            stdout, "pinfold permission test [options] COMMAND",
            "Prints what the rules say about a command, a part a line, with the rule that\n"
            "decided. COMMAND is one argument, as a shell would read it; - reads it from stdin.\n"
            "Nothing is run. The exit status is 0 whatever the verdict is, 2 when the rules\n"
            "have an error or there is no command.\n\n"
            "Example:\n"
            "  pinfold permission test 'find . -name x | xargs rm -rf'",
            table);
    else if (result.help)
        opt_help(stdout, "pinfold permission check [options] COMMAND",
                 "As test, for scripts: without a terminal an ask is a deny, and the exit status\n"
                 "tells: 0 allow, 3 deny, 4 somebody must be asked, 2 the rules have an error or\n"
                 "there is no command.",
                 table);
    if (result.help)
        return 0;
    if (result.rest >= argc) {
        say_line("permission %s: which command? It is one argument, in quotes", argv[0]);
        return CLIENT_EXIT_USAGE;
    }
    if (check && !isatty(STDIN_FILENO))
        o.headless = true;
    return permission_do(&o, argc - result.rest, argv + result.rest, check);
}

static int permission_test_run(int argc, char **argv) {
    return permission_test_or_check(argc, argv, false);
}

static int permission_check_run(int argc, char **argv) {
    return permission_test_or_check(argc, argv, true);
}

const struct client_cmd permission_test = {
    .name = "test",
    .about = "what the rules say about a command, and why",
    .run = permission_test_run,
};

const struct client_cmd permission_check = {
    .name = "check",
    .about = "the same for scripts: the exit status is the verdict",
    .run = permission_check_run,
};
