/* pinfold diff: what an entry of the journal changed. The lines are compared by diff(1), which gets
 * the contents as descriptors; nothing of the workspace is run. */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_cmd.h"
#include "digest.h"
#include "fd.h"
#include "opt.h"
#include "say.h"
#include "undo.h"
#include "undo_cmd.h"
#include "ws_tree.h"

#define DIFF_CMD_FDS 10 /* descriptors of the two sides in diff(1), above those that are in use */

struct diff_cmd {
    struct undo *u;
    const char *id; /* NULL: the newest */
    int root;
    bool found, colour;
};

/* The file of the workspace, when it still is what the entry made of it; -1 when somebody changed
 * it since. */
static int diff_cmd_present(const struct diff_cmd *d, const char *path,
                            const struct undo_state *s) {
    uint8_t digest[UNDO_HASH_SIZE];
    fd_cleanup int fd = ws_tree_open(d->root, path, NULL);

    if (fd < 0 || digest_file(fd, 0, UINT64_MAX, -1, digest, NULL, NULL) < 0 ||
        memcmp(digest, s->sha256, sizeof(digest)) != 0)
        return -1;
    return fd_steal(&fd);
}

/* Contents of one side: of the journal, or of the workspace when they are still there. */
static int diff_cmd_side(const struct diff_cmd *d, const struct undo_change *c,
                         const struct undo_state *s) {
    int fd;

    if (s->type != UNDO_FILE)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    fd = undo_contents(d->u, s->sha256, NULL);
    return fd >= 0 ? fd : diff_cmd_present(d, c->path, s);
}

/* In the child. Copied upwards first: one of them may have the number that the other shall get. */
static void diff_cmd_exec(const struct diff_cmd *d, const int sides[2],
                          char label[2][UNDO_PATH_MAX + 16]) {
    char name[2][24];

    for (int i = 0; i < 2; i++) {
        int fd = fcntl(sides[i], F_DUPFD, DIFF_CMD_FDS);

        if (fd < 0)
            _exit(127);
        snprintf(name[i], sizeof(name[i]), "/dev/fd/%d", fd);
    }
    execlp("diff", "diff", d->colour ? "--color=always" : "--color=never", "-u", "--label",
           label[0], "--label", label[1], name[0], name[1], (char *)NULL);
    _exit(127);
}

static void diff_cmd_files(const struct diff_cmd *d, const struct undo_change *c) {
    fd_cleanup int old = diff_cmd_side(d, c, &c->before);
    fd_cleanup int new = diff_cmd_side(d, c, &c->after);
    char label[2][UNDO_PATH_MAX + 16], clean[UNDO_PATH_MAX];
    pid_t pid;
    int status = 0;

    if (old < 0 || new < 0) {
        puts(new < 0 ? "  (it was changed since by something else: the contents are gone)"
                     : "  (the contents are not in the journal any more)");
        return;
    }
    say_clean(clean, sizeof(clean), c->path);
    snprintf(label[0], sizeof(label[0]), "%s%s", c->before.type == UNDO_FILE ? "before/" : "",
             clean);
    snprintf(label[1], sizeof(label[1]), "%s%s", c->after.type == UNDO_FILE ? "after/" : "", clean);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        diff_cmd_exec(d, (const int[2]){old, new}, label);
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
        say_line("diff: the lines cannot be compared: is diff(1) installed?");
}

static void diff_cmd_change(const struct diff_cmd *d, const struct undo_change *c) {
    static const char *const types[] = {"nothing", "file", "directory", "link"};

    say_put(stdout, c->path);
    printf(": %s", types[c->before.type]);
    if (c->before.type == UNDO_FILE || c->before.type == UNDO_DIR)
        printf(" %04o", (unsigned)c->before.mode);
    printf(" -> %s", types[c->after.type]);
    if (c->after.type == UNDO_FILE || c->after.type == UNDO_DIR)
        printf(" %04o", (unsigned)c->after.mode);
    putchar('\n');
    if (c->before.type == UNDO_FILE || c->after.type == UNDO_FILE)
        diff_cmd_files(d, c);
}

static bool diff_cmd_entry(void *arg, const struct undo_entry *e) {
    struct diff_cmd *d = arg;

    if (d->id != NULL && strcmp(d->id, e->id) != 0)
        return true;
    d->found = true;
    for (size_t i = 0; i < e->count; i++)
        diff_cmd_change(d, &e->changes[i]);
    return false;
}

static int diff_cmd_run(int argc, char **argv) {
    const char *workspace = NULL;
    const struct opt table[] = {{.name = "workspace",
                                 .letter = 'w',
                                 .arg = "DIR",
                                 .type = OPT_STRING,
                                 .value = &workspace,
                                 .help = "as for pinfold exec"},
                                {0}};
    struct diff_cmd d = {.root = -1, .colour = isatty(STDOUT_FILENO) == 1};
    struct ws_place place;
    struct opt_result result;
    struct err err = {0};
    int rc = -1;

    if (opt_parse(table, argc, argv, &result, &err) < 0 || argc - result.rest > 1) {
        say_line("diff: %s", err.text[0] != '\0' ? err.text : "one entry at most");
        return CLIENT_EXIT_USAGE;
    }
    if (result.help) {
        opt_help(stdout, "pinfold diff [options] [ID]",
                 "What the newest entry of the journal, or the one with this ID, changed: in "
                 "colour on a\n"
                 "terminal.",
                 table);
        return 0;
    }
    d.id = result.rest < argc ? argv[result.rest] : NULL;
    d.u = undo_cmd_open(workspace, true, &place, &d.root);
    if (d.u == NULL)
        return CLIENT_EXIT_USAGE;
    rc = undo_list(d.u, diff_cmd_entry, &d, &err);
    if (rc < 0)
        say_line("diff: %s", err.text);
    else if (!d.found)
        say_line(d.id != NULL ? "diff: there is no entry %s; pinfold log shows them"
                              : "diff: nothing was changed in this workspace yet",
                 d.id);
    fd_close(&d.root);
    undo_close(d.u);
    return rc < 0 || !d.found ? CLIENT_EXIT_USAGE : 0;
}

const struct client_cmd diff_cmd = {
    .name = "diff",
    .about = "what one of those changes was, line by line",
    .run = diff_cmd_run,
};
