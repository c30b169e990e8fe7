/* What an earlier server left of a sandbox's executions: the journal and the files of one with much
 * output, all of them any bytes. What is taken up can be asked for and told. Parts are separated by
 * 0xff 0xff: exec.log, exec.1.out, exec.1.err, exec.1.ev. */
#include "execs.h"

#include "fake_exec_sandbox.h"
#include "fuzz.h"

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
    struct sandbox sb = {.dir = fuzz_dir(path), .next = 1, .refuse = true}; /* nothing runs */
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
