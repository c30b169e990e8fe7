/* A record of a run: one that reads can be written, and what was written reads. */
#include "run_record.h"

#include "fuzz.h"
#include "runs.h"

/* Made once. */
static struct runs *fuzz_runs(void) {
    static const struct runs_options options = {.queue_count = 1, .keep_count = 1};
    static struct log log = {.fd = -1};
    static struct runs runs;
    static struct loop *loop;
    if (loop == NULL) {
        loop = loop_new(NULL);
        fuzz_require(loop != NULL);
        runs_init(&runs, loop, &log, NULL, NULL, &options);
    }
    return &runs;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct buf out;
    struct run *run = run_record_read(fuzz_runs(), data, size, &err);
    if (run == NULL) {
        fuzz_require(err.text[0] != '\0');
        return 0;
    }
    buf_init(&out, (size_t)64 * 1024 * 1024);
    if (run->phase == RUN_DONE && run_record_write(run, &out, &err) == 0) {
        struct run *twin = run_record_read(fuzz_runs(), out.data, out.len, &err);
        fuzz_require(twin != NULL && strcmp(twin->id, run->id) == 0);
        run_free(twin);
    }
    buf_done(&out);
    run_free(run);
    return 0;
}
