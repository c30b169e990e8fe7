#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bundle.h"
#include "run.h"

#define RUN_COLLECT_READ ((size_t)64 * 1024)
#define RUN_COLLECT_RECORDS (RUN_COLLECT_FILES + REQUEST_COLLECT_MAX + 1)
#define RUN_COLLECT_MAX                                                                            \
    ((size_t)RUN_COLLECT_BYTES +                                                                   \
     RUN_COLLECT_RECORDS * (sizeof(struct bundle_record) + BUNDLE_PATH_MAX))

/* The bundle is read into memory as it comes; it is looked at when it is whole. */
void run_collect_event(void *arg, uint32_t events) {
    struct run_stream *s = arg;
    struct run *run = s->run;
    (void)events;
    char *to = buf_reserve(&run->bundle, RUN_COLLECT_READ, NULL);
    if (to == NULL) {
        run->collect_error = "too_large";
        run_io_close(s);
        if (run->jail != NULL && !run->collect_ended)
            link_kill(run->jail, (uint32_t)run->step_count, CAUSE_CANCELLED);
        run_settle(run);
        return;
    }
    ssize_t n = read(s->fd, to, RUN_COLLECT_READ);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0) {
        run->bundle.len += (size_t)n;
        return;
    }
    run_io_close(s);
    run_settle(run);
}

int run_collect_room(struct run *run, const struct run_request *req) {
    size_t bytes = sizeof(struct bundle_record); /* the end */
    if (req->collect_count == 0)
        return 0;
    for (size_t i = 0; i < req->collect_count; i++)
        bytes += sizeof(struct bundle_record) + strlen(req->collect[i]);
    buf_init(&run->bundle, RUN_COLLECT_MAX);
    run->files = calloc(req->collect_count + 1, sizeof(*run->files));
    return run->files != NULL && buf_reserve(&run->bundle, bytes, NULL) != NULL ? 0 : -1;
}

/* When nothing could be collected, each pattern is answered with the reason. There is room for
 * that: memory may be short. */
static void run_collect_none(struct run *run) {
    const struct run_request *req = &run->request;
    buf_clear(&run->bundle);
    for (size_t i = 0; i < req->collect_count; i++)
        bundle_error(&run->bundle, BUNDLE_IO, req->collect[i], strlen(req->collect[i]), NULL);
    bundle_end(&run->bundle, NULL);
}

/* A file that shrank while it was read: zeros are in the place of what it lost, and this record
 * says so. It is answered as an error, not as a file. */
static bool run_collect_spoils(const struct bundle_record *rec, const char *path,
                               const struct run_file *last) {
    return rec->type != BUNDLE_FILE && rec->code == BUNDLE_CHANGED && last->code == BUNDLE_OK &&
           last->path != NULL && last->path_len == rec->path_len &&
           memcmp(last->path, path, rec->path_len) == 0;
}

/* Counts the files and errors, or fills files[] when it is not NULL. -1: it is not a bundle. */
static int run_collect_walk(const struct buf *bundle, struct run_file *files, size_t *count) {
    size_t pos = 0, n = 0;
    struct run_file last = {0};
    for (;;) {
        struct bundle_record rec;
        const char *path, *data;
        int rc = bundle_next(bundle->data, bundle->len, &pos, &rec, &path, &data, NULL);
        if (rc < 0)
            return -1;
        if (rc == 0)
            break;
        bool spoils = n > 0 && run_collect_spoils(&rec, path, &last);
        if (!spoils && n++ == RUN_COLLECT_RECORDS)
            return -1;
        last = (struct run_file){.path = path,
                                 .path_len = rec.path_len,
                                 .data = data,
                                 .size = (size_t)rec.size,
                                 .mode = rec.mode,
                                 .code = rec.type == BUNDLE_FILE ? BUNDLE_OK : rec.code};
        if (files != NULL)
            files[n - 1] = last;
    }
    *count = n;
    return 0;
}

/* Rows for so many; the first are there. */
static int run_collect_rows(struct run *run, size_t count) {
    if (count <= run->request.collect_count)
        return 0;
    struct run_file *rows = calloc(count, sizeof(*rows));
    if (rows == NULL)
        return -1;
    free(run->files);
    run->files = rows;
    return 0;
}

void run_collect_parse(struct run *run) {
    size_t count = 0;
    if (run->request.collect_count == 0)
        return;
    if (run->collect_error == NULL &&
        (run->bundle.len == 0 || run_collect_walk(&run->bundle, NULL, &count) < 0 ||
         run_collect_rows(run, count) < 0))
        run->collect_error = "internal"; /* cut short, not what a collector writes, no memory */
    if (run->collect_error != NULL)
        run_collect_none(run);
    if (run_collect_walk(&run->bundle, run->files, &count) == 0)
        run->file_count = count;
}

int run_collect_restore(struct run *run) {
    size_t count = 0;
    if (run_collect_walk(&run->bundle, NULL, &count) < 0)
        return -1;
    run->files = calloc(count + 1, sizeof(*run->files));
    if (run->files == NULL)
        return -1;
    run_collect_walk(&run->bundle, run->files, &count);
    run->file_count = count;
    return 0;
}
