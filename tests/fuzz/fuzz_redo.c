/* What a killed server left of its redo log: whole entries come back, the rest is cut off, and what
 * is added then is read again. */
#include "redo.h"

#include "fuzz.h"

static int count(void *arg, const char *data, size_t len, struct err *err) {
    (void)err;
    fuzz_require(len <= REDO_ENTRY_MAX && (len == 0 || data != NULL));
    (*(size_t *)arg)++;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[sizeof(FUZZ_DIR)];
    struct err err = {0};
    struct redo r;
    size_t found = 0, again = 0;
    int dir = fuzz_dir(path);
    struct iovec part = {.iov_base = (void *)(uintptr_t) "entry", .iov_len = 5};
    fuzz_file(dir, "redo", data, size);
    fuzz_require(redo_open(&r, dir, "redo", &err) == 0);
    fuzz_require(redo_read(&r, count, &found, &err) == 0);
    fuzz_require(redo_add(&r, &part, 1, &err) == 0);
    redo_close(&r);
    fuzz_require(redo_open(&r, dir, "redo", &err) == 0);
    fuzz_require(redo_read(&r, count, &again, &err) == 0 && again == found + 1);
    redo_close(&r);
    fuzz_remove(dir, path);
    return 0;
}
