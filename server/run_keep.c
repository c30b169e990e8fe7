#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env.h"
#include "fd.h"
#include "json_out.h"
#include "packet.h"
#include "run.h"
#include "runs.h"
#include "snapshots.h"
#include "spec.h"
#include "str.h"

enum run_keep_stage { RUN_KEEP_NONE, RUN_KEEP_FILES, RUN_KEEP_SNAPSHOT };

struct run_keep {
    enum run_keep_stage stage; /* what is waited for */
    char shard[LINK_NAME_MAX];
    uint32_t disk;                 /* enum wire_disk */
    char pending[SANDBOX_ID_SIZE]; /* the key that was asked for */
    char error[256];               /* the first thing that went wrong; "" = nothing did */
    size_t count;
    char (*keys)[SANDBOX_ID_SIZE]; /* one for each step; "" = none */
};

int run_keep_new(struct run *run) {
    struct run_keep *k = calloc(1, sizeof(*k));
    if (k == NULL)
        return -1;
    k->count = run->step_count;
    k->keys = calloc(k->count, sizeof(*k->keys));
    if (k->keys == NULL) {
        free(k);
        return -1;
    }
    run->keep = k;
    return 0;
}

/* The keys stay: a worker may be reading them. */
void run_keep_drop(struct run *run) {
    const struct run_keep *k = run->keep;
    struct snapshots *all = run->runs->snapshots;
    for (size_t i = 0; k != NULL && i < k->count && all != NULL; i++) {
        struct snapshot *snap = k->keys[i][0] != '\0' ? snapshots_find(all, k->keys[i]) : NULL;
        if (snap != NULL)
            snapshots_remove(all, snap);
    }
}

void run_keep_free(struct run *run) {
    struct run_keep *k = run->keep;
    if (k == NULL)
        return;
    run_keep_stop(run);
    free(k->keys);
    free(k);
    run->keep = NULL;
}

/* Comes after the numbers of the steps and of the collector. */
static uint32_t run_keep_number(const struct run *run) {
    return (uint32_t)run->step_count + 1;
}

static int run_keep_packet(struct packet *x, struct run *run, struct err *err) {
    static const char *const nothing[] = {":", NULL};
    const struct request_env none = {0};
    struct env_list env;
    x->exec.flags = WIRE_EXEC_SHELL | WIRE_EXEC_MORE;
    x->exec.limits = run->open;
    if (env_compose(&run->open, run->policy.writable, NULL, &none, &none, &env, err) < 0)
        return -1;
    int rc = spec_encode("/", nothing, 1, env.items, env.count, &x->spec, err);
    env_done(&env);
    if (rc < 0)
        return -1;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "making a pipe");
    fd_close(&ends[0]); /* it writes nothing */
    packet_attach(x, WIRE_FD_STDOUT, ends[1]);
    if (packet_attach_spec(x, err) < 0)
        return -1;
    return packet_attach_files(x, run_pack_parts(run), &run->request, err);
}

/* A command that does nothing: it carries the files. An image without a shell cannot start it, but
 * the files are there before that shows. */
int run_keep_first(struct run *run, const struct wire_open *open, struct err *err) {
    struct packet x;
    struct link_exec send;
    packet_init(&x, WIRE_EXEC_COMMAND);
    int rc = run_keep_packet(&x, run, err);
    if (rc == 0) {
        packet_link(&x, &send);
        send.open = open;
        send.number = run_keep_number(run);
        rc = link_exec(run->jail, &send, err);
    }
    packet_done(&x);
    if (rc < 0)
        return -1;
    str_copy(run->keep->shard, sizeof(run->keep->shard), link_of(run->jail)->name);
    run->keep->disk = open->disk;
    run->keep->stage = RUN_KEEP_FILES;
    return 0;
}

static void run_keep_failed(struct run_keep *k, size_t index, const char *why) {
    char text[200];
    if (k->error[0] != '\0')
        return;
    str_escape(text, sizeof(text), why, strlen(why));
    snprintf(k->error, sizeof(k->error), "The state before step %zu was not kept: %s", index, text);
}

static void run_keep_owner(const struct run *run, struct snapshot *info) {
    memset(info, 0, sizeof(*info));
    str_copy(info->owner, sizeof(info->owner), run->owner);
    if (run->token != NULL)
        str_copy(info->token, sizeof(info->token), run->token->id);
}

static void run_keep_begin(struct run *run, struct api_error *error) {
    struct snapshot info;
    run_keep_owner(run, &info);
    if (snapshots_begin(run->runs->snapshots, &info, error) == 0)
        memcpy(run->keep->pending, info.id, sizeof(info.id));
}

bool run_keep_before(struct run *run, size_t index) {
    struct run_keep *k = run->keep;
    struct api_error error = {0};
    if (run->runs->snapshots == NULL)
        api_error_set(&error, 500, "internal", NULL, "Snapshots are not kept.");
    else
        run_keep_begin(run, &error);
    if (error.status != 0) {
        run_keep_failed(k, index, error.message);
        return false;
    }
    link_snapshot(run->jail, k->pending);
    k->stage = RUN_KEEP_SNAPSHOT;
    return true;
}

bool run_keep_waits(const struct run *run) {
    return run->keep->stage != RUN_KEEP_NONE;
}

bool run_keep_prepared(struct run *run, const struct wire_end *end) {
    struct run_keep *k = run->keep;
    if (k->stage != RUN_KEEP_FILES || end->head.exec != run_keep_number(run))
        return false;
    k->stage = RUN_KEEP_NONE;
    return true;
}

static void run_keep_add(struct run *run, const struct wire_done *done) {
    struct run_keep *k = run->keep;
    struct snapshot info;
    run_keep_owner(run, &info);
    info.step = true;
    info.step_index = (uint32_t)run->current;
    memcpy(info.id, k->pending, sizeof(info.id));
    str_copy(info.shard, sizeof(info.shard), k->shard);
    info.disk = k->disk;
    str_copy(info.image, sizeof(info.image), run->image);
    str_copy(info.policy, sizeof(info.policy), run->policy.name);
    str_copy(info.source, sizeof(info.source), run->id);
    if (snapshots_add(run->runs->snapshots, &info, done) != NULL)
        memcpy(k->keys[run->current], info.id, sizeof(info.id));
    else
        run_keep_failed(k, run->current, "the server is out of memory.");
}

bool run_keep_done(struct run *run, const struct wire_done *done) {
    struct run_keep *k = run->keep;
    if (k->stage != RUN_KEEP_SNAPSHOT || done->what != WIRE_SNAPSHOT ||
        strcmp(done->key, k->pending) != 0)
        return false;
    k->stage = RUN_KEEP_NONE;
    if (done->code == 0) {
        run_keep_add(run, done);
        return true;
    }
    snapshots_give_up(run->runs->snapshots);
    run_keep_failed(k, run->current, done->text[0] != '\0' ? done->text : strerror(done->code));
    return true;
}

/* A snapshot takes milliseconds: it is waited for. */
void run_keep_cancel(struct run *run, enum cause cause) {
    if (run->keep->stage == RUN_KEEP_FILES)
        link_kill(run->jail, run_keep_number(run), cause);
}

void run_keep_stop(struct run *run) {
    struct run_keep *k = run->keep;
    if (k == NULL)
        return;
    if (k->stage == RUN_KEEP_SNAPSHOT) {
        struct link *l = links_find(run->runs->links, k->shard);
        if (l != NULL)
            link_drop_snapshot(l, k->pending);
        snapshots_give_up(run->runs->snapshots);
    }
    k->stage = RUN_KEEP_NONE;
}

const char *run_keep_key(const struct run *run, size_t index) {
    const struct run_keep *k = run->keep;
    return k != NULL && index < k->count && k->keys[index][0] != '\0' ? k->keys[index] : NULL;
}

const char *run_keep_shard(const struct run *run) {
    return run->keep->shard;
}

const char *run_keep_error(const struct run *run) {
    return run->keep->error;
}

void run_keep_restore(struct run *run, const char *shard, const char *error) {
    str_copy(run->keep->shard, sizeof(run->keep->shard), shard);
    str_copy(run->keep->error, sizeof(run->keep->error), error);
}

void run_keep_forget_gone(struct run *run) {
    struct run_keep *k = run->keep;
    const struct snapshots *all = run->runs->snapshots;
    for (size_t i = 0; k != NULL && i < k->count; i++)
        if (all == NULL || snapshots_find(all, k->keys[i]) == NULL)
            k->keys[i][0] = '\0';
}

void run_keep_restore_key(struct run *run, size_t index, const char *key) {
    str_copy(run->keep->keys[index], sizeof(run->keep->keys[index]), key);
}

void run_keep_write(struct json_out *j, const struct run *run) {
    const struct run_keep *k = run->keep;
    if (k == NULL)
        return;
    json_out_open(j, "kept_steps", '[');
    for (size_t i = 0; i < k->count; i++)
        if (k->keys[i][0] != '\0')
            json_out_u64(j, NULL, i);
    json_out_close(j, ']');
    if (k->error[0] != '\0')
        json_out_str(j, "keep_error", k->error);
}
