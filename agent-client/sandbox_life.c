#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body_parts.h"
#include "sandbox_api.h"
#include "sandbox_cmd.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"
#include "table.h"

struct sandbox_life_options {
    bool json;
    uint64_t limit;
    uint64_t ttl_ms;
};

static const char *sandbox_life_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* list */

struct sandbox_life_cells {
    char expires[32], created[32];
};

static int sandbox_life_print(const json_t *list) {
    size_t count = json_array_size(list), i;
    struct table_row *rows = calloc(count + 1, sizeof(*rows));
    struct sandbox_life_cells *made = calloc(count + 1, sizeof(*made));
    int rc = rows != NULL && made != NULL ? 0 : -1;
    json_t *sb;

    if (rc == 0) {
        rows[0] = (struct table_row){{"ID", "STATE", "POLICY", "IMAGE", "CREATED", "EXPIRES"}};
        json_array_foreach((json_t *)(uintptr_t)list, i, sb) {
            sandbox_api_time(json_object_get(sb, "created_at"), made[i].created,
                             sizeof(made[i].created));
            sandbox_api_time(json_object_get(sb, "expires_at"), made[i].expires,
                             sizeof(made[i].expires));
            rows[i + 1] =
                (struct table_row){{sandbox_life_text(sb, "id"), sandbox_life_text(sb, "state"),
                                    sandbox_api_policy(sb), sandbox_life_text(sb, "image"),
                                    made[i].created, made[i].expires}};
        }
        table_print(stdout, rows, count + 1, 6);
    }
    free(rows);
    free(made);
    return rc;
}

static int sandbox_life_do_list(struct rest *rest, int argc, char **argv, const void *options,
                                struct err *err) {
    const struct sandbox_life_options *o = options;
    char path[64];
    json_t *answer;
    int rc = 0;

    (void)argc;
    (void)argv;
    snprintf(path, sizeof(path), "/v1/sandboxes?limit=%" PRIu64, o->limit);
    answer = sandbox_api_call(rest, "GET", path, NULL, err);
    if (answer == NULL)
        return -1;
    if (o->json)
        sandbox_api_print(answer);
    else if (sandbox_life_print(json_object_get(answer, "sandboxes")) < 0)
        rc = body_parts_memory(err);
    json_decref(answer);
    return rc;
}

static int sandbox_life_run_list(int argc, char **argv) {
    struct sandbox_life_options o = {.limit = 100};
    const struct opt table[] = {
        {"limit", 0, "N", OPT_U64, &o.limit, 1, 1000, "how many, the newest first (100)"},
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print the answer as JSON"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox list",
        .usage = "pinfold sandbox list [--limit N] [--json]",
        .about = "Your sandboxes, the newest first.",
        .table = table,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_life_do_list, &o);
}

const struct client_cmd sandbox_life_list = {
    .name = "list",
    .about = "your sandboxes",
    .run = sandbox_life_run_list,
};

/* One request about one sandbox. */

static json_t *sandbox_life_one(struct rest *rest, const char *method, const char *id,
                                const char *more, json_t *body, struct err *err) {
    char path[160];

    if (sandbox_api_path(path, sizeof(path), id, more, err) < 0) {
        json_decref(body);
        return NULL;
    }
    return sandbox_api_call(rest, method, path, body, err);
}

/* get */

static int sandbox_life_do_get(struct rest *rest, int argc, char **argv, const void *options,
                               struct err *err) {
    const struct sandbox_life_options *o = options;
    json_t *sb = sandbox_life_one(rest, "GET", argv[0], "", NULL, err);
    struct table_row rows[7];
    char created[32], expires[32];
    char *metadata = NULL;

    (void)argc;
    if (sb == NULL)
        return -1;
    if (o->json) {
        sandbox_api_print(sb);
    } else {
        sandbox_api_time(json_object_get(sb, "created_at"), created, sizeof(created));
        sandbox_api_time(json_object_get(sb, "expires_at"), expires, sizeof(expires));
        metadata = json_dumps(json_object_get(sb, "metadata"), JSON_COMPACT);
        rows[0] = (struct table_row){{"id", sandbox_life_text(sb, "id")}};
        rows[1] = (struct table_row){{"state", sandbox_life_text(sb, "state")}};
        rows[2] = (struct table_row){{"policy", sandbox_api_policy(sb)}};
        rows[3] = (struct table_row){{"image", sandbox_life_text(sb, "image")}};
        rows[4] = (struct table_row){{"created", created}};
        rows[5] = (struct table_row){{"expires", expires}};
        rows[6] = (struct table_row){{"metadata", metadata}};
        table_print(stdout, rows, 7, 2);
        free(metadata);
    }
    json_decref(sb);
    return 0;
}

static int sandbox_life_run_get(int argc, char **argv) {
    struct sandbox_life_options o = {0};
    const struct opt table[] = {
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print all there is to know, as JSON"},
        {0},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox get",
        .usage = "pinfold sandbox get ID [--json]",
        .about = "State, age and end of a sandbox; with --json its limits and what it uses, too.",
        .table = table,
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_life_do_get, &o);
}

const struct client_cmd sandbox_life_get = {
    .name = "get",
    .about = "state, age and end of one",
    .run = sandbox_life_run_get,
};

/* delete */

static int sandbox_life_do_delete(struct rest *rest, int argc, char **argv, const void *options,
                                  struct err *err) {
    int failed = 0;

    (void)options;
    /* One that cannot be deleted does not save the others. */
    for (int i = 0; i < argc; i++) {
        struct err why = {0};
        json_t *answer = sandbox_life_one(rest, "DELETE", argv[i], "", NULL, &why);

        if (answer == NULL && failed++ > 0)
            say_line("%s", err->text);
        if (answer == NULL) {
            *err = why;
            if (argc > 1)
                err_wrap(err, "%s", argv[i]);
        }
        json_decref(answer);
    }
    return failed > 0 ? -1 : 0;
}

static int sandbox_life_run_delete(int argc, char **argv) {
    const struct simple_cmd cmd = {
        .name = "sandbox delete",
        .usage = "pinfold sandbox delete ID…",
        .about =
            "Ends sandboxes: everything that runs in them, and all their files. Snapshots stay.",
        .min_operands = 1,
        .max_operands = 4096,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_life_do_delete, NULL);
}

const struct client_cmd sandbox_life_delete = {
    .name = "delete",
    .about = "end some, with all that is in them",
    .run = sandbox_life_run_delete,
};

/* ttl */

static int sandbox_life_do_ttl(struct rest *rest, int argc, char **argv, const void *options,
                               struct err *err) {
    char expires[32];
    uint64_t ms = 0;
    json_t *answer, *body;

    (void)argc;
    (void)options;
    if (str_duration_ms(argv[1], &ms, err) < 0)
        return err_wrap(err, "sandbox ttl");
    body = json_pack("{s:I}", "ttl_ms", (json_int_t)ms);
    if (body == NULL)
        return body_parts_memory(err);
    answer = sandbox_life_one(rest, "POST", argv[0], "/ttl", body, err);
    if (answer == NULL)
        return -1;
    sandbox_api_time(json_object_get(answer, "expires_at"), expires, sizeof(expires));
    puts(expires);
    json_decref(answer);
    return 0;
}

static int sandbox_life_run_ttl(int argc, char **argv) {
    const struct simple_cmd cmd = {
        .name = "sandbox ttl",
        .usage = "pinfold sandbox ttl ID TIME",
        .about = "Lets a sandbox live for TIME (30m, 2h) from now, shorter or longer than it had,\n"
                 "and prints when that is.",
        .min_operands = 2,
        .max_operands = 2,
        .mixed = true,
    };

    return simple_cmd_main(&cmd, argc, argv, sandbox_life_do_ttl, NULL);
}

const struct client_cmd sandbox_life_ttl = {
    .name = "ttl",
    .about = "let one live longer, or shorter",
    .run = sandbox_life_run_ttl,
};

/* pause and resume */

static int sandbox_life_do_post(struct rest *rest, int argc, char **argv, const void *options,
                                struct err *err) {
    json_t *answer = sandbox_life_one(rest, "POST", argv[0], options, NULL, err);

    (void)argc;
    json_decref(answer);
    return answer != NULL ? 0 : -1;
}

static int sandbox_life_post(const struct simple_cmd *cmd, const char *what, int argc,
                             char **argv) {
    return simple_cmd_main(cmd, argc, argv, sandbox_life_do_post, what);
}

static int sandbox_life_run_pause(int argc, char **argv) {
    static const struct simple_cmd cmd = {
        .name = "sandbox pause",
        .usage = "pinfold sandbox pause ID",
        .about =
            "Freezes everything that runs in a sandbox: no CPU until `pinfold sandbox resume`.\n"
            "Its time to live goes on.",
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return sandbox_life_post(&cmd, "/pause", argc, argv);
}

const struct client_cmd sandbox_life_pause = {
    .name = "pause",
    .about = "freeze one",
    .run = sandbox_life_run_pause,
};

static int sandbox_life_run_resume(int argc, char **argv) {
    static const struct simple_cmd cmd = {
        .name = "sandbox resume",
        .usage = "pinfold sandbox resume ID",
        .about = "Lets a paused sandbox go on where it stood.",
        .min_operands = 1,
        .max_operands = 1,
        .mixed = true,
    };

    return sandbox_life_post(&cmd, "/resume", argc, argv);
}

const struct client_cmd sandbox_life_resume = {
    .name = "resume",
    .about = "let a paused one go on",
    .run = sandbox_life_run_resume,
};
