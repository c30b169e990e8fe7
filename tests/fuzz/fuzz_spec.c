/* A spec that decodes must encode to the same bytes again. */
#include "spec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size ? size : 1);
    struct spec *spec = malloc(sizeof(*spec));
    struct err err = {0};
    fuzz_require(copy && spec);
    if (size)
        memcpy(copy, data, size);
    if (spec_decode(copy, size, spec, &err) < 0) {
        fuzz_require(err.kind == ERR_PROTOCOL && err.text[0]);
        goto out;
    }
    struct buf again;
    buf_init(&again, size);
    fuzz_require(spec_encode(spec->cwd, (const char *const *)spec->argv, spec->argc,
                             (const char *const *)spec->env, spec->envc, &again, &err) == 0);
    fuzz_require(again.len == size && memcmp(again.data, data, size) == 0);
    buf_done(&again);
    spec_getenv(spec, "PATH");
    spec_shell(spec, spec->argv[0]);
    fuzz_require(spec->argv[spec->argc] == NULL && strcmp(spec->argv[1], "-c") == 0);
out:
    free(spec);
    free(copy);
    return 0;
}
