/* The server's side of sandboxes with a fake shard on the other: what the tests of its parts share.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>

#include "fake_shard.h"
#include "links.h"
#include "sandboxes.h"
#include "store_file.h"
#include "store_internal.h"

/* A part that remembers what it was told. */
struct part {
    size_t adopted, kept, gone, freed;
    struct sandbox *sandbox;
    struct sandbox_task *take; /* adopts the first one with this */
};

struct side {
    struct fake_shard fake;
    struct log log;
    struct metrics metrics;
    struct links links;
    struct sandboxes sandboxes;
    struct work *work;
    struct store *store;
    struct part part; /* lives as long as the sandbox */
    uint64_t gone_ms; /* 0 = the default */
};

static inline void room(void *arg) {
    sandboxes_room(&((struct side *)arg)->sandboxes);
}

static inline void ready(void *arg, struct link *l) {
    sandboxes_ready(&((struct side *)arg)->sandboxes, l);
}

static inline void dead(void *arg, const char *name) {
    sandboxes_dead(&((struct side *)arg)->sandboxes, name);
}

static inline void part_free(void *arg) {
    ((struct part *)arg)->freed++;
}

static inline void part_adopted(void *arg, const struct wire_kept_exec *kept,
                                int fds[][LINK_KEEP_FDS], size_t count) {
    struct part *p = arg;
    p->adopted++;
    p->kept = count;
    if (count > 0 && p->take != NULL) {
        assert_true(fds[0][1] >= 0);
        sandbox_task_adopt(p->sandbox, p->take, kept[0].head.exec);
    }
}

static inline void part_gone(void *arg) {
    ((struct part *)arg)->gone++;
}

static const struct sandbox_part_ops part_ops = {
    .free = part_free, .adopted = part_adopted, .gone = part_gone};

static inline void loaded(void *arg, struct sandbox *sb) {
    struct part *p = arg;
    p->sandbox = sb;
    sandbox_part_set(sb, SANDBOX_EXECS, &part_ops, p);
}

static inline void begin(struct side *t, struct part *part) {
    struct err err = {0};
    struct links_watch watch = {.room = room, .ready = ready, .dead = dead, .arg = t};
    struct sandboxes_options options = {
        .queue_count = 4, .live_max = 3, .loaded = part != NULL ? loaded : NULL, .arg = part};
    fd_cleanup int dir = open("server", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store_options store = {.loop = t->fake.loop, .log = &t->log, .dir = dir};
    unit_works(store_open(&store, &t->store, &err), err);
    t->work = work_new(t->fake.loop, 1, &err);
    assert_non_null(t->work);
    sandboxes_init(&t->sandboxes, t->fake.loop, &t->log, &t->links, &t->metrics, t->work);
    t->sandboxes.store = t->store;
    if (t->gone_ms > 0)
        t->sandboxes.gone_ms = t->gone_ms;
    unit_works(sandboxes_start(&t->sandboxes, &options, &err), err);
    links_start(&t->links, t->fake.loop, &t->log, &watch);
}

static inline void end(struct side *t) {
    work_free(t->work);
    t->work = NULL;
    sandboxes_done(&t->sandboxes);
    links_stop(&t->links);
    store_close(t->store);
    fd_close(&t->fake.fd);
}

static inline int setup_with(void **state, uint32_t places) {
    struct side *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    fake_start(&t->fake);
    assert_int_equal(mkdir("server", 0700), 0);
    log_init(&t->log, -1, LOG_ERROR, "unit");
    begin(t, NULL);
    fake_greet(&t->fake, places);
    *state = t;
    return 0;
}

static inline int setup(void **state) {
    return setup_with(state, 2);
}

static inline int teardown(void **state) {
    struct side *t = *state;
    end(t);
    int dir = open("server", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    store_file_empty(dir, NULL);
    fd_close(&dir);
    rmdir("server");
    fake_stop(&t->fake);
    free(t);
    return 0;
}

/* Somebody who waits. */
struct waiter {
    struct sandbox_wait wait;
    int told;
    int status; /* 0 = well */
};

static inline void told(struct sandbox_wait *w, const struct api_error *why) {
    struct waiter *x = (struct waiter *)(void *)w;
    x->told++;
    x->status = why != NULL ? why->status : 0;
}

static inline struct sandbox *create(struct side *t, struct waiter *w, const char *from) {
    struct sandbox_spec spec = {.ttl_ms = 60000, .idle_ms = 60000, .backend = BACKEND_NATIVE};
    struct api_error error = {0};
    const struct link *l = links_first_ready(&t->links);
    assert_non_null(l);
    spec.policy = link_policy(l, "default")->head;
    spec.limits.values = spec.policy.preset;
    snprintf(spec.owner, sizeof(spec.owner), "ann");
    snprintf(spec.image, sizeof(spec.image), "host");
    if (from != NULL) {
        snprintf(spec.from, sizeof(spec.from), "%s", from);
        snprintf(spec.shard, sizeof(spec.shard), "%s", l->name);
    }
    spec.metadata = json_object();
    struct sandbox *sb = sandboxes_create(&t->sandboxes, &spec, &error);
    if (sb == NULL)
        fail_msg("%s", error.message);
    memset(w, 0, sizeof(*w));
    w->wait.fn = told;
    sandbox_wait_open(sb, &w->wait);
    return sb;
}

/* One that is ready: its jail. */
static inline struct sandbox *make(struct side *t, uint64_t *jail) {
    struct waiter w;
    struct sandbox *sb = create(t, &w, NULL);
    const struct wire_open *open =
        (const struct wire_open *)(const void *)fake_expect(&t->fake, WIRE_OPEN);
    assert_int_equal(open->flags, WIRE_OPEN_SANDBOX);
    assert_string_equal(open->key, sandbox_id(sb));
    *jail = open->head.jail;
    assert_int_equal(sandbox_state(sb), SANDBOX_OPENING);
    assert_int_equal(w.told, 0);
    fake_send_opened(&t->fake, *jail);
    assert_int_equal(w.told, 1);
    assert_int_equal(w.status, 0);
    assert_int_equal(sandbox_state(sb), SANDBOX_READY);
    return sb;
}

struct task {
    struct sandbox_task task;
    int started, ended, lost;
    enum cause cause;
};

static inline void on_started(struct sandbox_task *t, int master) {
    ((struct task *)(void *)t)->started++;
    fd_close(&master);
}

static inline void on_ended(struct sandbox_task *t, const struct wire_end *e) {
    assert_null(t->sandbox);
    ((struct task *)(void *)t)->ended++;
    ((struct task *)(void *)t)->cause = (enum cause)e->cause;
}

static inline void on_lost(struct sandbox_task *t, enum cause cause) {
    assert_null(t->sandbox);
    ((struct task *)(void *)t)->lost++;
    ((struct task *)(void *)t)->cause = cause;
}

static const struct sandbox_task_ops task_ops = {
    .started = on_started, .ended = on_ended, .lost = on_lost};

static inline int start(struct sandbox *sb, struct task *t, bool command, struct err *err) {
    struct wire_exec exec;
    char spec[40] = {0};
    int out = dup(0);
    memset(t, 0, sizeof(*t));
    memset(&exec, 0, sizeof(exec));
    t->task.ops = &task_ops;
    t->task.command = command;
    exec.limits = sandbox_limits(sb)->values;
    exec.kind = command ? WIRE_EXEC_COMMAND : WIRE_EXEC_FILES;
    exec.fds = WIRE_FD_STDOUT;
    exec.spec_size = sizeof(spec);
    struct link_exec x = {.exec = &exec, .spec = spec, .fds = &out, .fd_count = 1};
    int rc = sandbox_exec(sb, &t->task, &x, err);
    fd_close(&out);
    return rc;
}

static inline void run(struct side *s, struct sandbox *sb, struct task *t) {
    struct err err = {0};
    unit_works(start(sb, t, true, &err), err);
    assert_int_equal(fake_expect(&s->fake, WIRE_EXEC)->exec, t->task.number);
}

static inline void done(void *arg, struct sandbox *sb, const struct wire_done *d) {
    (void)sb;
    *(int *)arg = d != NULL ? d->code : -1;
}

static inline bool connected(const struct side *s) {
    return s->links.count == 1 && s->links.items[0]->state == LINK_READY;
}

static inline void wait_for(struct side *s, const int *value, int old) {
    uint64_t before = clock_mono_ms();
    while (*value == old && clock_mono_ms() - before < 3000)
        fake_turn(&s->fake);
}

static inline void restart(struct side *s, struct part *part) {
    end(s);
    begin(s, part);
    fake_accept(&s->fake);
    fake_expect(&s->fake, WIRE_HELLO);
    fake_send_welcome(&s->fake, 4, 1);
    fake_send_policy(&s->fake, "default");
}
