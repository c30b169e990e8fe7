/* A sandbox's record as an earlier server left it: it is read and told, or refused with a sentence.
 * The input is the record of its row. */
#include "sandbox_internal.h"

#include "fuzz.h"
#include "json_out.h"
#include "links.h"
#include "metrics.h"
#include "store_sandboxes.h"

#define FUZZ_ID "sb_0123456789abcdefghijklmn"

/* The state directory, made once. */
static char fuzz_path[sizeof(FUZZ_DIR)];

static void fuzz_forget(void) {
    int dir = open(fuzz_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fuzz_remove(dir, fuzz_path);
}

static void fuzz_state(void) {
    if (fuzz_path[0] != '\0')
        return;
    int dir = fuzz_dir(fuzz_path);
    fuzz_require(mkdirat(dir, "server", 0700) == 0 && mkdirat(dir, SANDBOXES_DIR, 0700) == 0);
    fuzz_require(fchdir(dir) == 0 && close(dir) == 0 && atexit(fuzz_forget) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct metrics metrics;
    struct err err = {0};
    struct log log = {.fd = -1};
    struct links links = {0};
    struct sandboxes all;
    struct json_out out;
    struct buf text;
    const struct store_sandbox row = {
        .id = FUZZ_ID, .user = "agent", .record = (const char *)data, .record_len = size};
    struct loop *loop = loop_new(&err);
    fuzz_require(loop != NULL);
    fuzz_state();
    sandboxes_init(&all, loop, &log, &links, &metrics, NULL);
    struct sandbox *sb = sandbox_store_read(&all, &row, &err);
    if (sb != NULL) {
        buf_init(&text, 1u << 20);
        json_out_init(&out, &text);
        sandbox_json_write(&out, NULL, sb);
        fuzz_require(json_out_end(&out, &err) == 0);
        buf_done(&text);
        sandbox_free(sb);
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    sandboxes_done(&all);
    loop_free(loop);
    return 0;
}
