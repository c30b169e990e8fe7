/* What an earlier server left of a snapshot. The input is its file. */
#include "snapshots.h"

#include "fuzz.h"
#include "json_out.h"
#include "links.h"

#define FUZZ_ID "snap_0123456789abcdefghijklmn"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)];
    struct err err = {0};
    struct log log = {.fd = -1};
    struct links links = {0};
    struct snapshots all;
    const struct snapshots_options options = {.count = 3, .bytes = 2048};
    int dir = fuzz_dir(path);
    struct loop *loop = loop_new(&err);
    fuzz_require(loop != NULL && fchdir(dir) == 0);
    fuzz_require(mkdirat(dir, "server", 0700) == 0 && mkdirat(dir, "server/snapshots", 0700) == 0);
    fuzz_file(dir, "server/snapshots/" FUZZ_ID ".json", data, size);
    fuzz_file(dir, "server/snapshots/" FUZZ_ID, data, size);
    snapshots_init(&all, loop, &log, &links);
    if (snapshots_start(&all, &options, &err) == 0) {
        struct snapshot *snap = snapshots_find(&all, FUZZ_ID);
        if (snap != NULL) {
            struct json_out out;
            struct buf text;
            buf_init(&text, 1u << 20);
            json_out_init(&out, &text);
            snapshots_write_json(&out, NULL, snap);
            buf_done(&text);
            snapshots_dead(&all, snap->shard);
        }
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    snapshots_done(&all);
    loop_free(loop);
    fuzz_require(chdir("/") == 0);
    fuzz_remove(dir, path);
    return 0;
}
