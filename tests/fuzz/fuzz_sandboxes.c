/* A sandbox's record as an earlier server left it: it is read, told and forgotten again, or costs
 * itself and nothing else. The input is sandbox.json. */
#include "sandboxes.h"

#include <stdio.h>

#include "fuzz.h"
#include "json_out.h"
#include "links.h"
#include "metrics.h"
#include "work.h"

#define FUZZ_ID "sb_0123456789abcdefghijklmn"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)];
    struct err err = {0};
    struct log log = {.fd = -1};
    struct links links = {0};
    static struct metrics metrics;
    struct sandboxes all;
    struct sandboxes_options options = {.queue_count = 1, .live_max = 3};
    struct json_out out;
    struct buf text;
    int dir = fuzz_dir(path);
    struct loop *loop = loop_new(&err);
    struct work *work = loop != NULL ? work_new(loop, 1, &err) : NULL;
    fuzz_require(work != NULL && fchdir(dir) == 0);
    fuzz_require(mkdirat(dir, "server", 0700) == 0 && mkdirat(dir, "server/sandboxes", 0700) == 0);
    fuzz_require(mkdirat(dir, "server/sandboxes/" FUZZ_ID, 0700) == 0);
    fuzz_file(dir, "server/sandboxes/" FUZZ_ID "/sandbox.json", data, size);
    sandboxes_init(&all, loop, &log, &links, &metrics, work);
    fuzz_require(sandboxes_start(&all, &options, &err) == 0);
    struct sandbox *sb = sandboxes_find(&all, FUZZ_ID);
    if (sb != NULL) {
        buf_init(&text, 1u << 20);
        json_out_init(&out, &text);
        sandbox_json_write(&out, NULL, sb);
        buf_done(&text);
        sandboxes_dead(&all, "run/runner.0.sock");
        sandbox_life_end(sb, SANDBOX_END_DELETED, NULL);
    }
    work_free(work);
    sandboxes_done(&all);
    loop_free(loop);
    fuzz_require(chdir("/") == 0);
    fuzz_remove(dir, path);
    return 0;
}
