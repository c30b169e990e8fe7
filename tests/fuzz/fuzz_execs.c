/* What an earlier server left of a sandbox's executions: the journal and the files of one with much
 * output, all of them any bytes. What is taken up can be asked for and told. Parts are separated by
 * 0xff 0xff: exec.log, exec.1.out, exec.1.err, exec.1.ev. */
#include "execs.h"

#include "clock.h"
#include "fuzz.h"
#include "json_out.h"
#include "sandbox.h"
#include "sandboxes.h"
#include "sync.h"

/* A sandbox in which nothing runs any more. */
struct sandbox {
    int dir;
    struct wire_policy policy;
    struct request_env env;
    void *part;
};

uint32_t sandbox_number(struct sandbox *sb) {
    (void)sb;
    return 1;
}

int sandbox_exec(struct sandbox *sb, struct sandbox_task *t, const struct link_exec *x,
                 struct err *err) {
    (void)sb;
    (void)t;
    (void)x;
    return err_set(err, ERR_STATE, 0, "it is a fake");
}

void sandbox_task_adopt(struct sandbox *sb, struct sandbox_task *t, uint32_t number) {
    fuzz_require(t->number == number);
    t->sandbox = sb;
}

void sandbox_task_kill(struct sandbox_task *t, enum cause cause) {
    (void)t;
    (void)cause;
}

void sandbox_task_signal(struct sandbox_task *t, int signal) {
    (void)t;
    (void)signal;
}

const struct sandbox_failure *sandbox_failure(const struct sandbox *sb) {
    static const struct sandbox_failure failure = {.stage = "sandbox"};
    (void)sb;
    return &failure;
}

const char *sandbox_id(const struct sandbox *sb) {
    (void)sb;
    return "sb_fake";
}

const char *sandbox_owner(const struct sandbox *sb) {
    (void)sb;
    return "somebody";
}

struct sandbox_activity sandbox_activity(const struct sandbox *sb) {
    (void)sb;
    return (struct sandbox_activity){.writes = 1};
}

const struct sandbox_spec *sandbox_spec(const struct sandbox *sb) {
    static const struct sandbox_spec spec = {.image = "host"};
    (void)sb;
    return &spec;
}

bool sync_manifest_of(const struct sandbox *sb, const char *path, struct sync_manifest *out,
                      const char **root) {
    (void)sb;
    (void)path;
    (void)out;
    (void)root;
    return false;
}

int sandbox_dir(const struct sandbox *sb) {
    return sb->dir;
}

const struct wire_policy *sandbox_policy(const struct sandbox *sb) {
    return &sb->policy;
}

const struct request_env *sandbox_env(const struct sandbox *sb) {
    return &sb->env;
}

void *sandbox_part(const struct sandbox *sb, enum sandbox_part which) {
    (void)which;
    return sb->part;
}

void sandbox_part_set(struct sandbox *sb, enum sandbox_part which,
                      const struct sandbox_part_ops *ops, void *part) {
    (void)which;
    (void)ops;
    sb->part = part;
}

static void fuzz_files(int dir, const uint8_t *data, size_t size) {
    static const char *const names[] = {"exec.log", "exec.1.out", "exec.1.err", "exec.1.ev"};
    for (size_t i = 0; i < 4; i++) {
        const uint8_t *end = size > 1 ? memmem(data, size, "\xff\xff", 2) : NULL;
        size_t len = end != NULL ? (size_t)(end - data) : size;
        if (i == 0 || len > 0)
            fuzz_file(dir, names[i], data, len);
        data += end != NULL ? len + 2 : len;
        size -= end != NULL ? len + 2 : len;
    }
}

static void fuzz_ask(struct execs *set) {
    char bytes[512];
    for (struct exec *x = set->newest; x != NULL; x = x->older) {
        fuzz_require(x->name != NULL && x->command != NULL && x->set == set);
        fuzz_require(strnlen(x->id, EXEC_ID_SIZE) < EXEC_ID_SIZE);
        for (int i = 0; i < SPOOL_STREAMS; i++) {
            uint64_t head = 0, tail = 0;
            struct spool *s = &x->out[i].spool;
            spool_kept(s, &head, &tail);
            if (spool_has(s, 0, sizeof(bytes)))
                (void)spool_read(s, 0, bytes, sizeof(bytes), NULL);
        }
        for (uint64_t k = 0; k < 20; k++) {
            struct spool_event event;
            uint64_t at = spool_events_find(&x->events, k);
            if (at != UINT64_MAX)
                (void)spool_events_get(&x->events, at, &event, NULL);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)];
    struct err err = {0};
    struct log log = {.fd = -1};
    static struct metrics metrics;
    struct sandbox sb = {.dir = fuzz_dir(path)};
    struct loop *loop = loop_new(&err);
    fuzz_require(loop != NULL);
    fuzz_files(sb.dir, data, size);
    struct exec_hub *hub = execs_hub_new(loop, &log, &metrics, &err);
    fuzz_require(hub != NULL);
    struct execs *set = execs_new(hub, &sb, &err);
    if (set != NULL) {
        fuzz_ask(set);
        execs_part_ops.adopted(set, NULL, NULL, 0);
        (void)loop_once(loop, 0, &err);
        fuzz_ask(set);
        execs_part_ops.free(set);
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    (void)loop_once(loop, 0, &err);
    execs_hub_free(hub);
    loop_free(loop);
    fuzz_remove(sb.dir, path);
    return 0;
}
