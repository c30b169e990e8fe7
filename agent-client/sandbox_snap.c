#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body_parts.h"
#include "sandbox_api.h"
#include "sandbox_cmd.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

struct sandbox_snap_options {
    const char *name;
    uint64_t count;
    bool json;
};

/* snapshot */

static int sandbox_snap_do_take(struct rest *rest, int argc, char **argv, const void *options,
                                struct err *err) {
    const struct sandbox_snap_options *o = options;
    json_t *body = json_object(), *answer;
    char path[160];
    int rc;

    (void)argc;
    if (body == NULL)
        return body_parts_memory(err);
    if (sandbox_api_path(path, sizeof(path), argv[0], "/snapshots", err) < 0 ||
        body_parts_set_text(body, "name", o->name, err) < 0) {
        json_decref(body);
        return -1;
    }
    answer = sandbox_api_call(rest, "POST", path, body, err);
    if (answer == NULL)
        return -1;
    rc = 0;
    if (o->json)
        sandbox_api_print(answer);
    else
        rc = sandbox_api_print_id(answer, err);
    json_decref(answer);
    return rc;
}

static int sandbox_snap_run_take(int argc, char **argv) {
    struct sandbox_snap_options o = {0};
    const struct opt table[] = {
        {"name", 0, "NAME", OPT_STRING, &o.name, 0, 0, "what you call it"},
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print the answer as JSON, not only the id"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox snapshot",
        .usage = "pinfold sandbox snapshot ID [--name NAME] [--json]",
        .about = "Keeps the files of a sandbox as they are now (all but /tmp and /dev/shm)\n"
                 "and prints the id of the snapshot. What runs stands still meanwhile.\n\n"
                 "Example:\n"
                 "  snap=$(pinfold sandbox snapshot $id --name before)\n"
                 "  pinfold sandbox exec $id -c 'rm -rf *'; pinfold sandbox restore $id $snap",
        .table = table,
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_snap_do_take, &o);
}

const struct client_cmd sandbox_snap_take = {
    .name = "snapshot",
    .about = "keep its files as they are now",
    .run = sandbox_snap_run_take,
};

/* snapshots */

struct sandbox_snap_cells {
    char bytes[32], files[24], created[32];
};

static void sandbox_snap_row(const json_t *snap, struct sandbox_snap_cells *made,
                             struct table_row *row) {
    json_int_t bytes = json_integer_value(json_object_get(snap, "bytes"));
    json_int_t files = json_integer_value(json_object_get(snap, "files"));

    str_human_bytes(made->bytes, sizeof(made->bytes), bytes > 0 ? (uint64_t)bytes : 0);
    snprintf(made->files, sizeof(made->files), "%" PRId64, (int64_t)files);
    sandbox_api_time(json_object_get(snap, "created_at"), made->created, sizeof(made->created));
    *row = (struct table_row){{json_string_value(json_object_get(snap, "id")),
                               json_string_value(json_object_get(snap, "name")), made->bytes,
                               made->files, json_string_value(json_object_get(snap, "sandbox")),
                               made->created}};
}

static int sandbox_snap_print(const json_t *list) {
    size_t count = json_array_size(list), i;
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    struct sandbox_snap_cells *made = calloc(count + 1, sizeof(*made));
    int rc = rows != NULL && made != NULL ? 0 : -1;
    json_t *snap;

    if (rc == 0) {
        rows[0] = (struct table_row){{"ID", "NAME", "SIZE", "FILES", "SANDBOX", "CREATED"}};
        json_array_foreach((json_t *)(uintptr_t)list, i, snap)
            sandbox_snap_row(snap, &made[i], &rows[i + 1]);
        table_print(stdout, rows, count + 1, 6);
    }
    free(rows);
    free(made);
    return rc;
}

static int sandbox_snap_do_list(struct rest *rest, int argc, char **argv, const void *options,
                                struct err *err) {
    const struct sandbox_snap_options *o = options;
    json_t *answer = sandbox_api_call(rest, "GET", "/v1/snapshots", NULL, err);
    int rc = 0;

    (void)argc;
    (void)argv;
    if (answer == NULL)
        return -1;
    if (o->json)
        sandbox_api_print(answer);
    else if (sandbox_snap_print(json_object_get(answer, "snapshots")) < 0)
        rc = body_parts_memory(err);
    json_decref(answer);
    return rc;
}

static int sandbox_snap_run_list(int argc, char **argv) {
    struct sandbox_snap_options o = {0};
    const struct opt table[] = {
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print the answer as JSON"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox snapshots",
        .usage = "pinfold sandbox snapshots [--json]",
        .about = "Your snapshots. They outlive the sandboxes that they were taken of.",
        .table = table,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_snap_do_list, &o);
}

const struct client_cmd sandbox_snap_list = {
    .name = "snapshots",
    .about = "your snapshots",
    .run = sandbox_snap_run_list,
};

/* delete-snapshot */

static int sandbox_snap_do_delete(struct rest *rest, int argc, char **argv, const void *options,
                                  struct err *err) {
    (void)options;
    for (int i = 0; i < argc; i++) {
        char path[160];
        json_t *answer;

        if (sandbox_api_check(argv[i], "a snapshot", err) < 0)
            return -1;
        snprintf(path, sizeof(path), "/v1/snapshots/%s", argv[i]);
        answer = sandbox_api_call(rest, "DELETE", path, NULL, err);
        if (answer == NULL)
            return argc > 1 ? err_wrap(err, "%s", argv[i]) : -1;
        json_decref(answer);
    }
    return 0;
}

static int sandbox_snap_run_delete(int argc, char **argv) {
    const struct simple_cmd cmd = {
        .name = "sandbox delete-snapshot",
        .usage = "pinfold sandbox delete-snapshot SNAP…",
        .about = "Forgets snapshots. Sandboxes that were made from them keep their files.",
        .min_operands = 1,
        .max_operands = 4096,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_snap_do_delete, NULL);
}

const struct client_cmd sandbox_snap_delete = {
    .name = "delete-snapshot",
    .about = "forget snapshots",
    .run = sandbox_snap_run_delete,
};

/* restore */

static int sandbox_snap_do_restore(struct rest *rest, int argc, char **argv, const void *options,
                                   struct err *err) {
    char path[160];
    json_t *body, *answer;

    (void)argc;
    (void)options;
    if (sandbox_api_path(path, sizeof(path), argv[0], "/restore", err) < 0 ||
        sandbox_api_check(argv[1], "a snapshot", err) < 0)
        return -1;
    body = json_pack("{s:s}", "snapshot", argv[1]);
    if (body == NULL)
        return body_parts_memory(err);
    answer = sandbox_api_call(rest, "POST", path, body, err);
    json_decref(answer);
    return answer != NULL ? 0 : -1;
}

static int sandbox_snap_run_restore(int argc, char **argv) {
    const struct simple_cmd cmd = {
        .name = "sandbox restore",
        .usage = "pinfold sandbox restore ID SNAP",
        .about = "Gives a sandbox the files of a snapshot back. What it has now is lost.",
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_snap_do_restore, NULL);
}

const struct client_cmd sandbox_snap_restore = {
    .name = "restore",
    .about = "give one the files of a snapshot back",
    .run = sandbox_snap_run_restore,
};

/* fork */

static int sandbox_snap_do_fork(struct rest *rest, int argc, char **argv, const void *options,
                                struct err *err) {
    const struct sandbox_snap_options *o = options;
    char path[160];
    json_t *body, *answer, *one;
    size_t i;
    int rc = 0;

    (void)argc;
    if (sandbox_api_path(path, sizeof(path), argv[0], "/fork", err) < 0)
        return -1;
    body = json_pack("{s:I}", "count", (json_int_t)o->count);
    if (body == NULL)
        return body_parts_memory(err);
    answer = sandbox_api_call(rest, "POST", path, body, err);
    if (answer == NULL)
        return -1;
    if (o->json)
        sandbox_api_print(answer);
    else
        json_array_foreach(json_object_get(answer, "sandboxes"), i, one) if (rc == 0) rc =
            sandbox_api_print_id(one, err);
    json_decref(answer);
    return rc;
}

static int sandbox_snap_run_fork(int argc, char **argv) {
    struct sandbox_snap_options o = {.count = 1};
    const struct opt table[] = {
        {"count", 'n', "N", OPT_U64, &o.count, 1, 1000, "how many (1)"},
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print the answer as JSON, not only the ids"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox fork",
        .usage = "pinfold sandbox fork ID [--count N] [--json]",
        .about =
            "Makes new sandboxes with the files of one, for several attempts, and prints their\n"
            "ids, one on each line. What runs is not copied.\n\n"
            "Example:\n"
            "  for try in $(pinfold sandbox fork $id --count 3); do\n"
            "      pinfold sandbox exec $try -c \"./attempt $try\" && echo \"$try works\"\n"
            "  done",
        .table = table,
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_snap_do_fork, &o);
}

const struct client_cmd sandbox_snap_fork = {
    .name = "fork",
    .about = "make copies of one, with the same files",
    .run = sandbox_snap_run_fork,
};
