/* A bundle that reads to its end must be what writing its records gives. */
#include "bundle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static int put_again(struct buf *out, const struct bundle_record *rec, const char *path,
                     const char *content, struct err *err) {
    if (rec->type == BUNDLE_ERROR)
        return bundle_error(out, (enum bundle_code)rec->code, path, rec->path_len, err);
    return bundle_file(out, rec->mode, path, rec->path_len, content, rec->size, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    struct bundle_record rec;
    const char *path, *content;
    struct err err = {0};
    struct buf again;
    size_t pos = 0;
    int rc;
    buf_init(&again, size);
    while ((rc = bundle_next(bytes, size, &pos, &rec, &path, &content, &err)) > 0) {
        fuzz_require(rec.type == BUNDLE_ERROR ? bundle_code_name(rec.code) != NULL
                                              : bundle_path_ok(path, rec.path_len));
        fuzz_require(put_again(&again, &rec, path, content, &err) == 0);
        fuzz_require(pos == again.len);
    }
    if (rc == 0) {
        fuzz_require(bundle_end(&again, &err) == 0);
        fuzz_require(again.len == size && memcmp(again.data, data, size) == 0);
    } else {
        fuzz_require(err.kind == ERR_PROTOCOL && err.text[0]);
    }
    buf_done(&again);
    return 0;
}
