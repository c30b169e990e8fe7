/* A record of a run: one that reads can be written, and what was written reads. */
#include "run_record.h"

#include "fuzz.h"
#include "runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct runs_options options = {.queue_count = 1, .keep_count = 1};
    static struct log log = {.fd = -1};
    struct err err = {0};
    struct runs runs;
    struct buf out;
    struct loop *loop = loop_new(&err);
    fuzz_require(loop != NULL);
    runs_init(&runs, loop, &log, NULL, NULL, &options);
    struct run *run = run_record_read(&runs, data, size, &err);
    if (run == NULL) {
        fuzz_require(err.text[0] != '\0');
    } else {
        buf_init(&out, (size_t)64 * 1024 * 1024);
        if (run->phase == RUN_DONE && run_record_write(run, &out, &err) == 0) {
            struct run *twin = run_record_read(&runs, out.data, out.len, &err);
            fuzz_require(twin != NULL && strcmp(twin->id, run->id) == 0);
            run_free(twin);
        }
        buf_done(&out);
        run_free(run);
    }
    runs_done(&runs);
    loop_free(loop);
    return 0;
}
