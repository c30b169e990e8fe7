/* A stream of records: what is taken is within its bounds, has names that are safe, and would be
 * taken again alone; what is cut short is never taken. */
#include "fileop.h"

#include <stdlib.h>
#include <string.h>

#include "bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static void fuzz_names(const struct fileop_record *rec, const char *path, const char *target) {
    if (rec->path_len)
        fuzz_require(bundle_path_ok(path, rec->path_len));
    if (rec->kind == FILEOP_HARDLINK)
        fuzz_require(bundle_path_ok(target, rec->target_len));
    for (uint32_t i = 0; i < rec->target_len; i++)
        fuzz_require(target[i] != '\0');
}

/* -> bytes of the record at the front, 0 = none. */
static size_t fuzz_one(const char *bytes, size_t len) {
    struct fileop_record rec, again;
    const char *path, *target, *p, *t;
    struct err err = {0};
    int rc = fileop_take(bytes, len, &rec, &path, &target, &err);
    if (rc < 0)
        fuzz_require(err.kind == ERR_PROTOCOL && err.text[0]);
    if (rc <= 0)
        return 0;
    size_t n = fileop_size(&rec);
    fuzz_require(n <= len && rec.data_len <= FILEOP_DATA_MAX);
    fuzz_require(path == bytes + sizeof(rec) && target == path + rec.path_len);
    fuzz_names(&rec, path, target);
    fuzz_require(fileop_take(bytes, n, &again, &p, &t, &err) == 1);
    fuzz_require(memcmp(&rec, &again, sizeof(rec)) == 0);
    fuzz_require(fileop_take(bytes, n - 1, &again, &p, &t, &err) == 0);
    if (rec.type == FILEOP_ERROR)
        fuzz_require(fileop_code_name(rec.code) != NULL);
    if (rec.type == FILEOP_ENTRY)
        fuzz_require(fileop_kind_name(rec.kind) != NULL);
    return n + rec.data_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    for (size_t at = 0, n; at < size && (n = fuzz_one(bytes + at, size - at)) > 0;)
        at += n;
    return 0;
}
