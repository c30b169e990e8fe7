#include "bench_sync.h"

#include <sodium.h>
#include <stdio.h>

#include "bench_box.h"

#define BENCH_SYNC_CONTENTS 500u
#define BENCH_SYNC_BODY_MAX (8u << 20)

/* Content number `i` and the hexadecimal SHA-256 of it. */
static size_t bench_sync_content(unsigned i, char data[32], char hex[65]) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    int n = snprintf(data, 32, "content number %u\n", i);
    crypto_hash_sha256(hash, (const unsigned char *)data, (unsigned long long)n);
    sodium_bin2hex(hex, 65, hash, sizeof(hash));
    return (size_t)n;
}

static int bench_sync_manifest(struct buf *out, struct err *err) {
    if (buf_puts(out, "{\"root\":\"/workspace\",\"delete\":true,\"entries\":[", err) < 0)
        return -1;
    for (unsigned i = 0; i < BENCH_SYNC_FILES; i++) {
        char data[32], hex[65];
        size_t len = bench_sync_content(i % BENCH_SYNC_CONTENTS, data, hex);
        if (buf_printf(out, err,
                       "%s{\"path\":\"dir%02u/file%05u.txt\",\"type\":\"file\",\"mode\":\"0644\","
                       "\"size\":%zu,\"sha256\":\"%s\"}",
                       i ? "," : "", i % 100, i, len, hex) < 0)
            return -1;
    }
    return buf_puts(out, "]}", err);
}

static int bench_sync_blobs(struct bench_box *b, struct err *err) {
    for (unsigned i = 0; i < BENCH_SYNC_CONTENTS; i++) {
        char data[32], hex[65], path[BENCH_BOX_PATH_SIZE];
        size_t len = bench_sync_content(i, data, hex);
        snprintf(path, sizeof(path), "/v1/blobs/%s", hex);
        const struct bench_box_ask ask = {.method = "PUT",
                                          .path = path,
                                          .type = "application/octet-stream",
                                          .body = data,
                                          .size = len};
        if (bench_box_ask(b, &ask, err) < 0)
            return -1;
    }
    return 0;
}

static int bench_sync_laps(struct bench_box *b, const char *id, const struct buf *manifest,
                           unsigned laps, struct bench_series *times, struct err *err) {
    char path[BENCH_BOX_PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/sandboxes/%s/sync", id);
    const struct bench_box_ask ask = {
        .method = "POST", .path = path, .body = manifest->data, .size = manifest->len};
    /* What is missing, then the files themselves, then nothing any more. */
    if (bench_box_ask(b, &ask, err) < 0 || bench_sync_blobs(b, err) < 0 ||
        bench_box_ask(b, &ask, err) < 0)
        return -1;
    for (unsigned i = 0; i < laps; i++)
        if (bench_box_ask(b, &ask, err) < 0 || bench_series_add(times, b->ns, err) < 0)
            return -1;
    return 0;
}

int bench_sync_run(const struct bench_target *target, unsigned laps, struct bench_series *times,
                   struct err *err) {
    struct bench_box b = {0};
    struct buf manifest;
    char id[BENCH_BOX_ID_SIZE] = "";
    buf_init(&manifest, BENCH_SYNC_BODY_MAX);
    int rc = bench_box_open(&b, target, err);
    if (rc == 0)
        rc = bench_sync_manifest(&manifest, err);
    if (rc == 0)
        rc = bench_box_make(&b, "{}", id, err);
    if (rc == 0)
        rc = bench_sync_laps(&b, id, &manifest, laps, times, err);
    if (id[0] && bench_box_delete(&b, id, rc == 0 ? err : NULL) < 0)
        rc = -1;
    buf_done(&manifest);
    bench_box_close(&b);
    return rc;
}
