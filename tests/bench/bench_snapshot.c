#include "bench_snapshot.h"

#include <stdio.h>

#include "bench_box.h"

#define BENCH_SNAPSHOT_BOX                                                                         \
    "{\"policy\":\"ci\",\"limits\":{\"disk_bytes\":4294967296,\"mem_bytes\":6442450944}}"
#define BENCH_SNAPSHOT_CHANGE "{\"sh\":\"head -c 1048576 /dev/urandom > changing\"}"

void bench_snapshot_result_done(struct bench_snapshot_result *r) {
    bench_series_done(&r->snapshot);
    bench_series_done(&r->fork);
    bench_series_done(&r->restore);
}

static int bench_snapshot_lap(struct bench_box *b, const char *id, struct bench_snapshot_result *r,
                              struct err *err) {
    char path[BENCH_BOX_PATH_SIZE], json[BENCH_BOX_PATH_SIZE];
    char snapshot[BENCH_BOX_ID_SIZE], fork[BENCH_BOX_ID_SIZE];
    if (bench_box_exec(b, id, BENCH_SNAPSHOT_CHANGE, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/v1/sandboxes/%s/snapshots", id);
    if (bench_box_call(b, "POST", path, "{}", err) < 0 ||
        bench_box_id(&b->answer, snapshot, err) < 0 ||
        bench_series_add(&r->snapshot, b->ns, err) < 0)
        return -1;
    if (bench_box_exec(b, id, BENCH_SNAPSHOT_CHANGE, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/v1/sandboxes/%s/fork", id);
    if (bench_box_call(b, "POST", path, "{\"count\":1}", err) < 0 ||
        bench_box_id(&b->answer, fork, err) < 0 || bench_series_add(&r->fork, b->ns, err) < 0 ||
        bench_box_delete(b, fork, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/v1/sandboxes/%s/restore", id);
    snprintf(json, sizeof(json), "{\"snapshot\":\"%s\"}", snapshot);
    if (bench_box_call(b, "POST", path, json, err) < 0 ||
        bench_series_add(&r->restore, b->ns, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/v1/snapshots/%s", snapshot);
    return bench_box_call(b, "DELETE", path, NULL, err);
}

int bench_snapshot_run(const struct bench_target *target, unsigned mib, unsigned laps,
                       struct bench_snapshot_result *result, struct err *err) {
    struct bench_box b = {0};
    char id[BENCH_BOX_ID_SIZE] = "", fill[BENCH_BOX_PATH_SIZE];
    snprintf(fill, sizeof(fill),
             "{\"sh\":\"for i in {1..%u}; do head -c 1048576 /dev/zero > f$i; done\"}", mib);
    int rc = bench_box_open(&b, target, err);
    if (rc == 0)
        rc = bench_box_make(&b, BENCH_SNAPSHOT_BOX, id, err);
    if (rc == 0)
        rc = bench_box_exec(&b, id, fill, err);
    for (unsigned i = 0; rc == 0 && i < laps; i++)
        rc = bench_snapshot_lap(&b, id, result, err);
    if (id[0] && bench_box_delete(&b, id, rc == 0 ? err : NULL) < 0)
        rc = -1;
    bench_box_close(&b);
    return rc < 0 ? err_wrap(err, "a workspace of %u MiB", mib) : 0;
}
