#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "id.h"
#include "image_ref.h"
#include "json_memory.h"
#include "sandbox_internal.h"
#include "store_file.h"
#include "store_sandboxes.h"
#include "str.h"

#define SANDBOX_STORE_VERSION 1
#define SANDBOX_STORE_PATH_MAX (sizeof(SANDBOXES_DIR) + SANDBOX_ID_SIZE + 2)

/* Its directory, which its executions and syncs need. */

static void sandbox_store_path(const struct sandbox *sb, char path[SANDBOX_STORE_PATH_MAX]) {
    snprintf(path, SANDBOX_STORE_PATH_MAX, SANDBOXES_DIR "/%s", sb->id);
}

/* Opens its directory, making it when missing. */
static int sandbox_store_open(struct sandbox *sb, struct err *err) {
    char path[SANDBOX_STORE_PATH_MAX];
    if (sb->live->dir >= 0)
        return 0;
    sandbox_store_path(sb, path);
    bool spare = sb->state == SANDBOX_OPENING && sandbox_spare_take(&sb->all->spare, path);
    if (!spare && mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "making %s", path);
    sb->live->stored = true;
    sb->live->dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return sb->live->dir < 0 ? err_sys(err, "opening %s", path) : 0;
}

/* Writing. */

static json_t *sandbox_store_env(const struct request_env *env) {
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < env->count; i++) {
        if (json_array_append_new(list, json_string(env->items[i])) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* What one that is gone was made of is nobody's business any more, and may be large. */
static json_t *sandbox_store_encode(const struct sandbox *sb) {
    static const struct request_env none = {0};
    const struct sandbox_spec *spec = &sb->live->spec;
    bool gone = sb->state == SANDBOX_GONE;
    json_t *metadata = gone || spec->metadata == NULL ? json_object() : json_incref(spec->metadata);
    char sha[65], image[65], trace[TRACE_TEXT_SIZE];
    trace_write_text(&spec->trace, trace);
    store_file_hex(spec->policy.sha256, 32, sha);
    store_file_hex(spec->image_sha256, 32, image);
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "version",
                  SANDBOX_STORE_VERSION, "owner", spec->owner, "image", spec->image, "backend",
                  backend_name(spec->backend), "policy", spec->policy.name, "policy_sha256", sha,
                  "shard", sb->live->shard, "disk", (json_int_t)spec->disk, "ttl_ms",
                  (json_int_t)spec->ttl_ms, "idle_ms", (json_int_t)spec->idle_ms);
    json_t *more = json_pack(
        "{s:o, s:o, s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "limits",
        limits_json_encode(&spec->limits), "env", sandbox_store_env(gone ? &none : &spec->env),
        "metadata", metadata, "image_sha256", image, "from", spec->from, "trace", trace, "token",
        spec->token, "created_at", (json_int_t)sb->created_ms, "expires_at",
        (json_int_t)sb->live->expires_ms, "numbers", (json_int_t)sb->live->number_floor,
        "executions", (json_int_t)sb->live->executions);
    int rc = root != NULL && more != NULL ? json_object_update(root, more) : -1;
    if (rc == 0 && gone)
        rc = json_object_set_new(root, "gone",
                                 json_pack("{s:I, s:i, s:s}", "at", (json_int_t)sb->gone_ms, "why",
                                           (int)sb->why, "detail", sb->live->detail));
    json_decref(more);
    if (rc == 0)
        return root;
    json_decref(root);
    return NULL;
}

/* What is written in a round may turn out at its end not to be there. */
static void sandbox_store_committed(void *arg, int rc, const struct err *err) {
    struct sandbox *sb = arg;
    sb->live->unsaved = rc < 0;
    if (rc == 0)
        return;
    log_err(sb->all->log, LOG_ERROR, "sandbox_not_written", err);
    if (sb->state == SANDBOX_OPENING) {
        struct api_error why;
        sandboxes_not_written(err, &why);
        sandbox_life_fail(sb, &why);
    }
}

int sandbox_store_write(struct sandbox *sb, struct err *err) {
    struct store *store = sb->all->store;
    if (sb->state != SANDBOX_GONE && sandbox_store_open(sb, err) < 0)
        return -1;
    json_t *root = sandbox_store_encode(sb);
    char *text = root != NULL ? json_memory_dump(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "writing a sandbox down: out of memory");
    struct store_sandbox row = {.id = sb->id,
                                .user = sb->owner,
                                .gone = sb->state == SANDBOX_GONE,
                                .created_ms = sb->created_ms,
                                .record = text,
                                .record_len = strlen(text)};
    int rc = store_sandboxes_put(store, &row, err);
    free(text);
    sb->live->unsaved = rc < 0;
    if (rc < 0)
        return -1;
    sb->row = true;
    sb->live->written.fn = sandbox_store_committed;
    sb->live->written.arg = sb;
    store_then(store, &sb->live->written);
    return 0;
}

int sandbox_store_write_now(struct sandbox *sb, struct err *err) {
    return sandbox_store_write(sb, err) < 0 ? -1 : store_commit_now(sb->all->store, err);
}

/* Reading. What is there is ours, but an older version may have written it, or a power failure have
 * cut its file. */

static const char *sandbox_store_text(const json_t *root, const char *key, char *dst, size_t size) {
    const char *text = json_string_value(json_object_get(root, key));
    return text != NULL && str_copy(dst, size, text) ? NULL : key;
}

static const char *sandbox_store_number(const json_t *root, const char *key, uint64_t max,
                                        uint64_t *out) {
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
        return key;
    *out = (uint64_t)json_integer_value(v);
    return NULL;
}

static const char *sandbox_store_spec_env(const json_t *root, struct sandbox_spec *spec) {
    const json_t *list = json_object_get(root, "env");
    size_t n = json_array_size(list);
    const char *bad = "env";
    if (!json_is_array(list) || n > REQUEST_ENV_MAX)
        return bad;
    const char **items = calloc(n + 1, sizeof(*items));
    size_t i = 0;
    while (items != NULL && i < n &&
           (items[i] = json_string_value(json_array_get(list, i))) != NULL)
        i++;
    struct request_env env = {.items = items, .count = n};
    if (items != NULL && i == n && sandbox_spec_set_env(spec, &env, NULL) == 0)
        bad = NULL;
    free(items);
    return bad;
}

static const char *sandbox_store_spec(const json_t *root, struct sandbox_spec *spec) {
    const char *bad;
    char sha[65];
    uint64_t disk = 0;
    json_t *metadata = json_object_get(root, "metadata");
    if ((bad = sandbox_store_text(root, "owner", spec->owner, sizeof(spec->owner))) != NULL ||
        (bad = sandbox_store_text(root, "image", spec->image, sizeof(spec->image))) != NULL ||
        (bad = sandbox_store_text(root, "policy", spec->policy.name, sizeof(spec->policy.name))) !=
            NULL ||
        (bad = sandbox_store_text(root, "policy_sha256", sha, sizeof(sha))) != NULL ||
        (bad = sandbox_store_text(root, "from", spec->origin, sizeof(spec->origin))) != NULL ||
        (bad = sandbox_store_number(root, "disk", WIRE_DISK_FILE, &disk)) != NULL ||
        (bad = sandbox_store_number(root, "ttl_ms", SANDBOX_TTL_MAX_MS, &spec->ttl_ms)) != NULL ||
        (bad = sandbox_store_number(root, "idle_ms", SANDBOX_TTL_MAX_MS, &spec->idle_ms)) != NULL ||
        (bad = sandbox_store_spec_env(root, spec)) != NULL)
        return bad;
    const char *backend = json_string_value(json_object_get(root, "backend"));
    spec->backend = backend != NULL ? backend_by_name(backend) : BACKEND_NATIVE;
    if (spec->backend == BACKEND_NONE)
        return "backend";
    const char *image = json_string_value(json_object_get(root, "image_sha256"));
    if (image != NULL && !image_ref_hex(image, spec->image_sha256)) /* older ones have none */
        return "image_sha256";
    const char *token = json_string_value(json_object_get(root, "token"));
    if (token != NULL)
        str_copy(spec->token, sizeof(spec->token), token);
    const char *trace = json_string_value(json_object_get(root, "trace"));
    if (trace != NULL && !trace_read_text(trace, &spec->trace))
        return "trace";
    spec->disk = (uint32_t)disk;
    if (!str_is_name(spec->policy.name) || store_file_unhex(sha, spec->policy.sha256, 32) < 0)
        return "policy_sha256";
    if (!json_is_object(metadata))
        return "metadata";
    spec->metadata = json_incref(metadata);
    return limits_json_decode(json_object_get(root, "limits"), &spec->limits, NULL) < 0 ? "limits"
                                                                                        : NULL;
}

static const char *sandbox_store_gone(const json_t *gone, struct sandbox *sb) {
    uint64_t why = 0;
    const char *bad;
    if (gone == NULL)
        return NULL;
    if ((bad = sandbox_store_number(gone, "at", UINT64_MAX >> 1, &sb->gone_ms)) != NULL ||
        (bad = sandbox_store_number(gone, "why", SANDBOX_ENDS - 1, &why)) != NULL ||
        (bad = sandbox_store_text(gone, "detail", sb->live->detail, sizeof(sb->live->detail))) !=
            NULL)
        return bad;
    sb->why = (enum sandbox_end)why;
    sb->state = SANDBOX_GONE;
    return NULL;
}

static const char *sandbox_store_fields(const json_t *root, struct sandbox *sb) {
    const uint64_t big = UINT64_MAX >> 1;
    uint64_t floor = 0, version = 0;
    const char *bad;
    if ((bad = sandbox_store_number(root, "version", SANDBOX_STORE_VERSION, &version)) != NULL ||
        (bad = sandbox_store_spec(root, &sb->live->spec)) != NULL ||
        (bad = sandbox_store_text(root, "shard", sb->live->shard, sizeof(sb->live->shard))) !=
            NULL ||
        (bad = sandbox_store_number(root, "created_at", big, &sb->created_ms)) != NULL ||
        (bad = sandbox_store_number(root, "expires_at", big, &sb->live->expires_ms)) != NULL ||
        (bad = sandbox_store_number(root, "numbers", UINT32_MAX - SANDBOX_NUMBERS, &floor)) !=
            NULL ||
        (bad = sandbox_store_number(root, "executions", big, &sb->live->executions)) != NULL)
        return bad;
    sb->live->next_number = (uint32_t)floor;
    sb->live->number_floor = (uint32_t)floor; /* none is reserved yet */
    sb->state = SANDBOX_READY;
    return sandbox_store_gone(json_object_get(root, "gone"), sb);
}

/* The wall clock may have been set meanwhile: it is believed for what is left, within ttl_ms. */
static void sandbox_store_clocks(struct sandbox *sb) {
    uint64_t now = clock_real_ms();
    uint64_t left = sb->live->expires_ms > now ? sb->live->expires_ms - now : 0;
    if (left > SANDBOX_TTL_MAX_MS)
        left = SANDBOX_TTL_MAX_MS;
    sb->live->expires_ns = clock_mono_ns() + left * CLOCK_NS_PER_MS;
}

struct sandbox *sandbox_store_decode(struct sandboxes *all, const char *id,
                                     const struct json_t *root, struct err *err) {
    const char *owner = json_string_value(json_object_get(root, "owner"));
    bool fits = owner != NULL && strlen(owner) < SANDBOX_OWNER_SIZE; /* else it is found below */
    struct sandbox *sb = sandbox_new(all, fits ? owner : "", err);
    if (sb == NULL)
        return NULL;
    const char *bad = NULL;
    if (!id_is(id, "sb_") || !str_copy(sb->id, sizeof(sb->id), id))
        bad = "id";
    else
        bad = sandbox_store_fields(root, sb);
    if (bad != NULL) {
        err_set(err, ERR_INVALID, 0, "%s of sandbox %s is wrong or missing", bad, id);
        sandbox_free(sb);
        return NULL;
    }
    sb->trace = sb->live->spec.trace;
    sandbox_store_clocks(sb);
    return sb;
}

struct sandbox *sandbox_store_read(struct sandboxes *all, const struct store_sandbox *row,
                                   struct err *err) {
    json_t *root = json_memory_load(row->record, row->record_len, JSON_REJECT_DUPLICATES, NULL);
    struct sandbox *sb = sandbox_store_decode(all, row->id, root, err);
    json_decref(root);
    if (sb == NULL)
        return NULL;
    sb->row = true;
    if (sb->state != SANDBOX_GONE && sandbox_store_open(sb, err) < 0) {
        sandbox_free(sb);
        return NULL;
    }
    return sb;
}

/* Removing. */

void sandbox_store_drop(struct sandbox *sb) {
    struct err err;
    err_clear(&err);
    if (sb->live != NULL)
        store_then_stop(sb->all->store, &sb->live->written);
    if (sb->row && store_sandboxes_drop(sb->all->store, sb->id, &err) < 0)
        log_err(sb->all->log, LOG_WARN, "sandbox_not_forgotten", &err); /* the next start does */
    sb->row = false;
}

struct sandbox_store_job {
    struct work_job job;
    char id[SANDBOX_ID_SIZE];
};

static void sandbox_store_remove_run(struct work_job *job) {
    struct sandbox_store_job *j = (struct sandbox_store_job *)(void *)job;
    fd_cleanup int dir = open(SANDBOXES_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd_cleanup int sub = -1;
    if (dir < 0)
        return;
    sub = openat(dir, j->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0)
        return;
    store_file_empty(sub, NULL);
    (void)unlinkat(dir, j->id, AT_REMOVEDIR);
}

static void sandbox_store_removed(struct work_job *job) {
    free(job);
}

void sandbox_store_remove(struct sandboxes *s, const char *id) {
    struct sandbox_store_job *j = calloc(1, sizeof(*j));
    if (j == NULL) { /* then here and now */
        struct sandbox_store_job here;
        str_copy(here.id, sizeof(here.id), id);
        sandbox_store_remove_run(&here.job);
        return;
    }
    j->job = (struct work_job){.run = sandbox_store_remove_run, .done = sandbox_store_removed};
    str_copy(j->id, sizeof(j->id), id);
    work_add(s->work, &j->job);
}
