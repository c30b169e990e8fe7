/* pinfold undo, redo, log, diff: what the journal of this workspace has. */
#include "undo_cmd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "client_cmd.h"
#include "fd.h"
#include "opt.h"
#include "print.h"
#include "say.h"
#include "undo.h"
#include "ws_find.h"

#define UNDO_CMD_NAMED 10u /* paths that are shown of many */

struct undo_cmd_options {
    const char *path, *workspace;
    bool yes, all, json;
    size_t told, going; /* paths shown so far */
};

static void undo_cmd_waits(void) {
    say_line("another pinfold works in this workspace; waiting until it is done");
}

struct undo *undo_cmd_open(const char *workspace, bool reads, struct ws_place *place, int *root) {
    struct err err = {0};
    struct undo *u = NULL;
    fd_cleanup int fd = -1;

    if (ws_find(workspace, place, &err) == 0) {
        fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            err_sys(&err, "opening the workspace %s", place->path);
        else
            u = undo_open(
                &(struct undo_options){
                    .root = fd, .path = place->path, .reads = reads, .waits = undo_cmd_waits},
                &err);
    }
    if (u == NULL)
        say_line("%s", err.text);
    else if (root != NULL)
        *root = fd_steal(&fd);
    return u;
}

static const char *undo_cmd_verb(const struct undo_change *c) {
    if (c->before.type == UNDO_ABSENT)
        return "created";
    if (c->after.type == UNDO_ABSENT)
        return "deleted";
    return "changed";
}

/* ---- undo and redo ---- */

static void undo_cmd_removes(void *arg, const char *path) {
    struct undo_cmd_options *o = arg;
    if (o->yes || ++o->going > UNDO_CMD_NAMED)
        return;
    say_line("would be removed: %s", path);
}

static bool undo_cmd_confirm(void *arg, size_t deletions) {
    struct undo_cmd_options *o = arg;
    char question[120];

    if (o->yes)
        return true;
    if (o->going > UNDO_CMD_NAMED)
        say_line("... and %zu more", o->going - UNDO_CMD_NAMED);
    o->going = 0;
    snprintf(question, sizeof(question), "This removes %zu files and directories. Go on?",
             deletions);
    return ask_person(question, "yn") == 'y';
}

/* What stays although it was to go back is named, always; what went, for the first few. */
static void undo_cmd_told(void *arg, const char *path, enum undo_outcome outcome) {
    struct undo_cmd_options *o = arg;
    if (outcome == UNDO_CONFLICT)
        say_line("%s was changed meanwhile, and stays as it is", path);
    else if (outcome == UNDO_REFUSED)
        say_line("%s stays: something is in its way, or in it", path);
    else if (outcome == UNDO_APPLIED && o->told++ < UNDO_CMD_NAMED) {
        fputs("  ", stdout);
        say_put(stdout, path);
        putchar('\n');
    }
}

static int undo_cmd_report(const struct undo_cmd_options *o, const struct undo_result *r,
                           bool redo) {
    if (o->told > UNDO_CMD_NAMED)
        printf("  ... and %zu more\n", o->told - UNDO_CMD_NAMED);
    printf("%s %zu path%s", redo ? "redone:" : "undone:", r->applied, r->applied == 1 ? "" : "s");
    if (r->same > 0)
        printf(", %zu were like that already", r->same);
    if (r->conflicts > 0)
        printf(", %zu were changed meanwhile and stay as they are", r->conflicts);
    if (r->refused > 0)
        printf(", %zu were in the way of something and stay", r->refused);
    if (r->shared > 0)
        printf(", %zu had other names (hard links), which keep what they were", r->shared);
    puts(r->id[0] != '\0' ? "" : " (nothing was changed)");
    return r->conflicts + r->refused > 0 ? 1 : 0;
}

static int undo_cmd_back(struct undo_cmd_options *o, const char *id, bool redo) {
    struct undo_choice choice = {.id = id,
                                 .until = o->all,
                                 .removes = undo_cmd_removes,
                                 .confirm = undo_cmd_confirm,
                                 .told = undo_cmd_told,
                                 .arg = o};
    struct ws_place place;
    struct undo *u = undo_cmd_open(o->workspace, false, &place, NULL);
    struct undo_result r = {.applied = 0};
    char path[PATH_MAX];
    struct err err = {0};
    int rc = 0, status = 2;

    if (u == NULL)
        return 2;
    if (o->path != NULL) {
        rc = ws_find_path(&place, o->path, path, &err);
        choice.path = path;
    }
    if (rc == 0)
        rc = redo ? undo_redo(u, &choice, &r, &err) : undo_undo(u, &choice, &r, &err);
    if (rc < 0)
        say_line("%s: %s", redo ? "redo" : "undo", err.text);
    else
        status = undo_cmd_report(o, &r, redo);
    free(r.outcomes);
    undo_close(u);
    return status;
}

static bool undo_cmd_bad(void *arg, const char *id, const char *why) {
    (*(size_t *)arg)++;
    say_line("%s: %s", id, why);
    return true;
}

static int undo_cmd_verify(const char *workspace) {
    struct ws_place place;
    struct undo *u = undo_cmd_open(workspace, false, &place, NULL);
    struct err err = {0};
    size_t bad = 0;
    int rc;

    if (u == NULL)
        return 2;
    rc = undo_verify(u, undo_cmd_bad, &bad, &err);
    if (rc < 0)
        say_line("undo verify: %s", err.text);
    else
        printf("%s\n", bad == 0 ? "every entry can be taken back" : "the journal is damaged");
    undo_close(u);
    return rc < 0 ? 2 : bad > 0;
}

static int undo_cmd_parse(struct undo_cmd_options *o, const char *usage, const char *about,
                          int argc, char **argv) {
    bool back = strcmp(argv[0], "undo") == 0 || strcmp(argv[0], "redo") == 0;
    struct opt table[6] = {
        {.name = "workspace",
         .letter = 'w',
         .arg = "DIR",
         .type = OPT_STRING,
         .value = &o->workspace,
         .help = "as for pinfold exec"},
    };
    size_t n = 1;
    struct opt_result result;
    struct err err = {0};

    if (back) {
        table[n++] = (struct opt){.name = "path",
                                  .arg = "PATH",
                                  .type = OPT_STRING,
                                  .value = &o->path,
                                  .help = "only this file, or what is below this directory"};
        table[n++] =
            (struct opt){.name = "all",
                         .type = OPT_FLAG,
                         .value = &o->all,
                         .help = "undo: also all that came later; redo: also all from before; "
                                 "without ID, everything"};
        table[n++] = (struct opt){.name = "yes",
                                  .type = OPT_FLAG,
                                  .value = &o->yes,
                                  .help = "do not ask before many files are removed"};
    } else {
        table[n++] = (struct opt){
            .name = "json", .type = OPT_FLAG, .value = &o->json, .help = "one JSON object a line"};
    }
    if (opt_parse(table, argc, argv, &result, &err) < 0) {
        say_line("%s: %s", argv[0], err.text);
        return -1;
    }
    if (result.help) {
        opt_help(stdout, usage, about, table);
        return 0;
    }
    if (argc - result.rest > 1) {
        say_line("%s: one entry at most", argv[0]);
        return -1;
    }
    return result.rest;
}

static int undo_cmd_run(int argc, char **argv) {
    struct undo_cmd_options o = {0};
    int rest = undo_cmd_parse(
        &o, "pinfold undo [options] [ID]\npinfold undo verify",
        "Takes back the newest change of this workspace that is not undone, or the one with this\n"
        "ID (pinfold log shows them). What somebody changed meanwhile is reported and stays. Undo\n"
        "is itself an entry: pinfold redo brings it back. Before more than 100 files are removed "
        "you\n"
        "are shown some of them and asked. undo verify checks that every entry can be taken "
        "back.\n\n"
        "Exit code: 0 done, 1 something stayed as it is, 2 nothing could be done.\n\n"
        "Examples:\n"
        "  pinfold undo                     the last change\n"
        "  pinfold undo --path src/main.c   the last change of this file\n"
        "  pinfold undo --all ch_0000000007 back to before that change\n"
        "  pinfold undo --all               back to the beginning",
        argc, argv);

    if (rest <= 0)
        return rest < 0 ? CLIENT_EXIT_USAGE : 0;
    if (rest < argc && strcmp(argv[rest], "verify") == 0)
        return undo_cmd_verify(o.workspace);
    return undo_cmd_back(&o, rest < argc ? argv[rest] : NULL, false);
}

static int undo_cmd_redo(int argc, char **argv) {
    struct undo_cmd_options o = {0};
    int rest = undo_cmd_parse(&o, "pinfold redo [options] [ID]",
                              "Makes the change again that was undone last, or the one with this "
                              "ID. With --all, what was\n"
                              "undone before it, too; without ID, everything that is undone.\n\n"
                              "Exit code: as for pinfold undo.",
                              argc, argv);

    if (rest <= 0)
        return rest < 0 ? CLIENT_EXIT_USAGE : 0;
    return undo_cmd_back(&o, rest < argc ? argv[rest] : NULL, true);
}

/* ---- log ---- */

static bool undo_cmd_log_json(const struct undo_entry *e) {
    json_t *o = json_object(), *paths = json_array();
    char label[UNDO_LABEL_MAX + 8];

    for (size_t i = 0; i < e->count; i++)
        json_array_append_new(paths, json_pack("{s:s%, s:s}", "path", e->changes[i].path,
                                               strlen(e->changes[i].path), "change",
                                               undo_cmd_verb(&e->changes[i])));
    json_object_set_new(o, "id", json_string(e->id));
    json_object_set_new(o, "when_ms", json_integer((json_int_t)e->when_ms));
    json_object_set_new(o, "by", json_string(e->by));
    /* It may have been cut within a character. */
    json_object_set_new(o, "label", json_string(say_clean(label, sizeof(label), e->label)));
    json_object_set_new(o, "session", json_string(e->session));
    if (e->rules[0] != '\0')
        json_object_set_new(o, "rules", json_string(e->rules));
    json_object_set_new(o, "undone", json_boolean(e->undone));
    json_object_set_new(o, "paths", paths);
    print_json(o, JSON_COMPACT);
    json_decref(o);
    return true;
}

static bool undo_cmd_log_entry(void *arg, const struct undo_entry *e) {
    const struct undo_cmd_options *o = arg;
    time_t t = (time_t)(e->when_ms / 1000);
    struct tm tm;
    char when[40] = "";

    if (o->json)
        return undo_cmd_log_json(e);
    if (localtime_r(&t, &tm) != NULL)
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
    printf("%s  %s  %-5s  %4zu paths%s  ", e->id, when, e->by, e->count,
           e->undone ? "  undone" : "");
    say_put(stdout, e->label);
    putchar('\n');
    return true;
}

static int undo_cmd_log(int argc, char **argv) {
    struct undo_cmd_options o = {0};
    struct err err = {0};
    struct ws_place place;
    struct undo *u;
    int rc,
        rest =
            undo_cmd_parse(&o, "pinfold log [options]",
                           "The changes that agents and commands made in this workspace, newest\n"
                           "first, with what made them (--json: also the paths, and the hash of "
                           "the rules\nthat allowed them). Also while an agent works here.",
                           argc, argv);

    if (rest <= 0)
        return rest < 0 ? CLIENT_EXIT_USAGE : 0;
    u = undo_cmd_open(o.workspace, true, &place, NULL);
    if (u == NULL)
        return CLIENT_EXIT_USAGE;
    rc = undo_list(u, undo_cmd_log_entry, &o, &err);
    if (rc < 0)
        say_line("log: %s", err.text);
    undo_close(u);
    return rc < 0 ? CLIENT_EXIT_USAGE : 0;
}

const struct client_cmd undo_cmd = {
    .name = "undo",
    .about = "take back what was changed in this workspace",
    .run = undo_cmd_run,
};

const struct client_cmd undo_cmd_redo_cmd = {
    .name = "redo",
    .about = "make an undone change again",
    .run = undo_cmd_redo,
};

const struct client_cmd undo_cmd_log_cmd = {
    .name = "log",
    .about = "what was changed in this workspace, and by what",
    .run = undo_cmd_log,
};
