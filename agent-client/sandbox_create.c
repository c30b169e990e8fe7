#include "sandbox_cmd.h"

#include <jansson.h>
#include <string.h>

#include "body_parts.h"
#include "sandbox_api.h"
#include "say.h"
#include "simple_cmd.h"
#include "str.h"

#define SANDBOX_FIXED_OPTIONS 12

struct sandbox_create_options {
    const char *policy, *image, *backend, *storage, *from;
    uint64_t ttl_ms, idle_ms; /* 0 = not given */
    struct opt_list env, metadata;
    struct limit_options limits;
    bool json;
};

/* --disk SIZE is a limit as in `run`; --disk memory and --disk file say where. */
static void sandbox_create_disk(struct opt *rows, size_t count, const char **disk) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, "disk") == 0) {
            rows[i].type = OPT_STRING;
            rows[i].value = disk;
            rows[i].arg = "SIZE|memory|file";
            rows[i].help = "all written files together, or where they are kept (memory)";
        }
}

static json_t *sandbox_create_body(const struct sandbox_create_options *o, struct err *err) {
    json_t *body = json_object();
    int rc = body != NULL ? 0 : body_parts_memory(err);
    const struct {
        const char *key, *text;
    } texts[] = {
        {"policy", o->policy}, {"backend", o->backend}, {"disk", o->storage}, {"from", o->from}};
    const struct {
        const char *key;
        uint64_t ms;
    } times[] = {{"ttl_ms", o->ttl_ms}, {"idle_ms", o->idle_ms}};

    for (size_t i = 0; rc == 0 && i < sizeof(texts) / sizeof(texts[0]); i++)
        rc = body_parts_set_text(body, texts[i].key, texts[i].text, err);
    if (rc == 0)
        rc = body_parts_set_image(body, o->image, err);
    for (size_t i = 0; rc == 0 && i < sizeof(times) / sizeof(times[0]); i++)
        if (times[i].ms > 0)
            rc = body_parts_set(body, times[i].key, json_integer((json_int_t)times[i].ms), err);
    if (rc == 0 && o->env.count > 0)
        rc = body_parts_set_pairs(body, "env", &o->env, err);
    if (rc == 0 && o->metadata.count > 0)
        rc = body_parts_set_pairs(body, "metadata", &o->metadata, err);
    if (rc == 0)
        rc = body_parts_set_limits(body, &o->limits, err);
    if (rc < 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}

static int sandbox_create_do(struct rest *rest, int argc, char **argv, const void *options,
                             struct err *err) {
    const struct sandbox_create_options *o = options;
    json_t *body = sandbox_create_body(o, err), *answer;
    int rc = 0;

    (void)argc;
    (void)argv;
    if (body == NULL)
        return -1;
    answer = sandbox_api_call(rest, "POST", "/v1/sandboxes", body, err);
    if (answer == NULL)
        return -1;
    if (o->json)
        sandbox_api_print(answer);
    else
        rc = sandbox_api_print_id(answer, err);
    json_decref(answer);
    return rc;
}

static int sandbox_create_check(struct sandbox_create_options *o, const char *disk,
                                struct err *err) {
    if (disk != NULL && (strcmp(disk, "memory") == 0 || strcmp(disk, "file") == 0))
        o->storage = disk;
    else if (disk != NULL && str_bytes(disk, &o->limits.value[LIMIT_DISK_BYTES], err) < 0)
        return err_wrap(err, "option --disk, which also takes memory and file");
    if (body_parts_check_pairs(&o->env, "env", err) < 0 ||
        body_parts_check_pairs(&o->metadata, "meta", err) < 0)
        return -1;
    return limit_options_check(&o->limits, err);
}

static int sandbox_create_run(int argc, char **argv) {
    struct sandbox_create_options o = {0};
    const char *disk = NULL;
    struct opt table[SANDBOX_FIXED_OPTIONS + LIMIT_OPTIONS_MAX] = {
        {"policy", 0, "NAME", OPT_STRING, &o.policy, 0, 0, "what it may do (default: default)"},
        {"image", 0, "NAME", OPT_STRING, &o.image, 0, 0,
         "what it sees (default: host); NAME@sha256:HEX: that one only"},
        {"backend", 0, "NAME", OPT_STRING, &o.backend, 0, 0,
         "what it is made of: native or docker (default: the policy's first)"},
        {"env", 'e', "K=V", OPT_LIST, &o.env, 0, 0, "a variable of everything that runs in it"},
        {"ttl", 0, "TIME", OPT_DURATION, &o.ttl_ms, 0, 0, "it ends after that long (1h)"},
        {"idle", 0, "TIME", OPT_DURATION, &o.idle_ms, 0, 0, "or unused for that long (15m)"},
        {"from", 0, "SNAP", OPT_STRING, &o.from, 0, 0,
         "start with the files of a snapshot, or from before a step of a run: run_…@2"},
        {"storage", 0, "WHERE", OPT_STRING, &o.storage, 0, 0,
         "keep its files in `memory` or in a `file`"},
        {"meta", 0, "K=V", OPT_LIST, &o.metadata, 0, 0, "a note of yours, shown again by get"},
        {"json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "print the answer as JSON, not only the id"},
    };
    const struct simple_cmd cmd = {
        .name = "sandbox create",
        .usage = "pinfold sandbox create [options]",
        .about = "Makes a sandbox and prints its id. Limits of memory, processes, disk and CPU\n"
                 "share hold for all that runs in it together, the others for each command.\n\n"
                 "Example:\n"
                 "  pinfold sandbox create --ttl 2h --mem 512M --disk file --meta task=42",
        .table = table,
    };
    struct err err = {0};
    int first, rc;

    limit_options_init(&o.limits);
    sandbox_create_disk(&table[10], limit_options_rows(&o.limits, false, &table[10]), &disk);
    rc = simple_cmd_parse(&cmd, argc, argv, &first);
    if (rc <= 0)
        return rc < 0 ? CLIENT_EXIT_USAGE : 0;
    if (sandbox_create_check(&o, disk, &err) < 0) {
        say_line("sandbox create: %s", err.text);
        return CLIENT_EXIT_USAGE;
    }
    return simple_cmd_run(sandbox_create_do, 0, NULL, &o);
}

const struct client_cmd sandbox_create = {
    .name = "create",
    .about = "make one and print its id",
    .run = sandbox_create_run,
};
