#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client_cmd.h"
#include "cp_job.h"
#include "say.h"
#include "simple_cmd.h"

/* Whether the local path is a directory; links that the user named are followed. */
static bool cp_is_local_directory(const char *path) {
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A copy goes into a directory under its own name. */
static int cp_into(const struct cp_path *from, struct cp_path *to, struct err *err) {
    char name[256];

    if (*cp_path_base(from, name, sizeof(name)) == '\0')
        return err_set(err, ERR_INVALID, 0, "%s: it has no name that the copy could get",
                       from->std ? "-" : from->path);
    if (to->remote || to->path[strlen(to->path) - 1] != '/')
        return cp_path_append(to, name, err);
    if (strlen(to->path) + strlen(name) >= sizeof(to->path))
        return err_set(err, ERR_INVALID, 0, "the path is too long");
    memcpy(to->path + strlen(to->path), name, strlen(name) + 1);
    return 0;
}

static int cp_up(struct cp_job *j, const struct cp_path *from, struct cp_path *to,
                 struct err *err) {
    bool directory = to->into;

    if (!from->std && cp_is_local_directory(from->path)) {
        if (!j->recursive)
            return err_set(err, ERR_INVALID, 0, "%s is a directory; use -r", from->path);
        if (!directory && !from->contents && cp_job_is_directory(j, to, &directory, err) < 0)
            return -1;
        if (directory && !from->contents && cp_into(from, to, err) < 0)
            return -1;
        return cp_pack(j, from->path, to, err);
    }
    if (directory && cp_into(from, to, err) < 0)
        return -1;
    if (cp_send_file(j, from, to, &directory, err) == 0)
        return 0;
    /* The path is a directory: into it. Standard input is spent by now, and has no name. */
    if (!directory || from->std)
        return -1;
    err_clear(err);
    if (cp_into(from, to, err) < 0)
        return -1;
    return cp_send_file(j, from, to, &directory, err);
}

static int cp_down(struct cp_job *j, const struct cp_path *from, struct cp_path *to,
                   struct err *err) {
    bool tree = false;
    bool into = !to->std && (to->into || cp_is_local_directory(to->path));

    if (j->recursive && cp_job_is_directory(j, from, &tree, err) < 0)
        return -1;
    if (tree && to->std)
        return err_set(err, ERR_INVALID, 0, "%s is a directory and does not fit into a stream",
                       from->path);
    if (into && !(tree && from->contents) && cp_into(from, to, err) < 0)
        return -1;
    return tree ? cp_unpack(j, from, to->path, err) : cp_fetch_file(j, from, to, err);
}

static int cp_do(struct cp_job *j, const struct cp_path *from, struct cp_path *to) {
    struct err err = {0};
    int rc = cp_job_begin(j, &err);

    if (rc == 0)
        rc = to->remote ? cp_up(j, from, to, &err) : cp_down(j, from, to, &err);
    progress_end(&j->progress);
    if (j->signal != 0)
        return 128 + j->signal;
    if (rc < 0 && err.kind == ERR_SYSTEM && err.code == EPIPE && to->std)
        return 141;
    if (rc < 0)
        say_line("%s", err.text);
    else if (j->failed > 0)
        say_line("%zu %s could not be copied", j->failed, j->failed == 1 ? "entry" : "entries");
    return rc < 0 || j->failed > 0 ? CLIENT_EXIT_TROUBLE : 0;
}

static int cp_run(int argc, char **argv) {
    struct cp_job j = {.intr = INTR_NONE};
    const struct opt table[] = {
        {"recursive", 'r', NULL, OPT_FLAG, &j.recursive, 0, 0, "directories with all in them"},
        {"git", 0, NULL, OPT_FLAG, &j.git, 0, 0,
         "also write what is in a .git: it can run programs here"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "cp",
        .usage = "pinfold cp [-r] LOCAL ID:PATH\n"
                 "pinfold cp [-r] ID:PATH LOCAL",
        .about =
            "Copies a file, or with -r a directory, into a sandbox or out of it. A path that does\n"
            "not begin with / is below /workspace; - is standard input or output. As with cp: "
            "into\n"
            "a directory that is there the copy goes under its own name, but DIR/. is only what "
            "is\n"
            "in DIR. A file appears whole or not at all. From a sandbox no link is followed or\n"
            "made that leads out of the target, no set-uid bit is kept, and nothing is written\n"
            "into a .git.\n\n"
            "Examples:\n"
            "  pinfold cp main.c $id:\n"
            "  pinfold cp -r . $id:/workspace\n"
            "  pinfold cp $id:out/report.txt - | less\n"
            "  pinfold cp -r $id:out results",
        .table = table,
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };
    struct cp_path from, to;
    struct err err = {0};
    int first, code, rc = simple_cmd_parse(&cmd, argc, argv, &first);

    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    rc = cp_path_parse(argv[first], &from, &err);
    if (rc == 0)
        rc = cp_path_parse(argv[first + 1], &to, &err);
    if (rc == 0 && from.remote == to.remote)
        rc = err_set(&err, ERR_INVALID, 0,
                     "one of both must be in a sandbox, as ID:/path, and one here");
    if (rc != 0) {
        say_line("cp: %s", err.text);
        return CLIENT_EXIT_USAGE;
    }
    /* libarchive converts names of tars by the locale; in this one they stay as they are. */
    setlocale(LC_CTYPE, "C.UTF-8");
    code = cp_do(&j, &from, &to);
    cp_job_done(&j);
    return code;
}

const struct client_cmd cp_cmd = {
    .name = "cp",
    .about = "copy files into a sandbox and out of it",
    .run = cp_run,
};
