/* A sandbox's record as an earlier server left it: it is read, told and written again, or refused
 * with a sentence. The input is sandbox.json. */
#include "sandbox_internal.h"

#include "fuzz.h"
#include "json_out.h"
#include "links.h"
#include "metrics.h"

#define FUZZ_ID "sb_0123456789abcdefghijklmn"

/* The state directory, made once. */
static int fuzz_state(void) {
    static char path[sizeof(FUZZ_DIR)];
    static int dir = -1;
    if (dir >= 0)
        return dir;
    dir = fuzz_dir(path);
    fuzz_require(mkdirat(dir, "server", 0700) == 0 && mkdirat(dir, SANDBOXES_DIR, 0700) == 0);
    fuzz_require(mkdirat(dir, SANDBOXES_DIR "/" FUZZ_ID, 0700) == 0 && fchdir(dir) == 0);
    return dir;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct metrics metrics;
    struct err err = {0};
    struct log log = {.fd = -1};
    struct links links = {0};
    struct sandboxes all;
    struct json_out out;
    struct buf text;
    struct loop *loop = loop_new(&err);
    fuzz_require(loop != NULL);
    fuzz_file(fuzz_state(), SANDBOXES_DIR "/" FUZZ_ID "/sandbox.json", data, size);
    sandboxes_init(&all, loop, &log, &links, &metrics, NULL);
    struct sandbox *sb = sandbox_store_read(&all, FUZZ_ID, &err);
    if (sb != NULL) {
        buf_init(&text, 1u << 20);
        json_out_init(&out, &text);
        sandbox_json_write(&out, NULL, sb);
        fuzz_require(json_out_end(&out, &err) == 0);
        buf_done(&text);
        fuzz_require(sandbox_store_write(sb, &err) == 0);
        sandbox_free(sb);
        sb = sandbox_store_read(&all, FUZZ_ID, &err);
        fuzz_require(sb != NULL);
        sandbox_free(sb);
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    sandboxes_done(&all);
    loop_free(loop);
    return 0;
}
