/* A file operation without a sandbox: what is put into it is kept as text, what it answers is what
 * the test says. Include in one source file only: it takes the place of fileop_run.c. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "fileop_run.h"
#include "unit.h"

struct fileop_run {
    const struct fileop_run_ops *ops;
    void *arg;
    struct buf sent; /* one line per record */
    bool finished, cancelled;
    unsigned room; /* records that are taken before "wait" is said */
};

static struct fileop_run fake_run;

struct fileop_run *fileop_run_start(struct sandbox *sb, const char *const *argv, size_t argc,
                                    bool upload, const struct fileop_run_ops *ops, void *arg,
                                    struct err *err) {
    (void)sb;
    (void)upload;
    (void)err;
    fake_run.ops = ops;
    fake_run.arg = arg;
    fake_run.finished = fake_run.cancelled = false;
    buf_init(&fake_run.sent, 1 << 20);
    for (size_t i = 0; i < argc; i++)
        buf_printf(&fake_run.sent, NULL, "%s%s", argv[i], i + 1 < argc ? " " : "\n");
    return &fake_run;
}

int fileop_run_put(struct fileop_run *r, const struct fileop_record *rec, const char *path,
                   const char *target, const void *data) {
    static const char *const types[] = {"?",      "entry", "data",  "name",
                                        "remove", "event", "error", "end"};
    assert_false(r->finished || r->cancelled);
    buf_printf(&r->sent, NULL, "%s", types[rec->type]);
    if (rec->type == FILEOP_ENTRY)
        buf_printf(&r->sent, NULL, " %s %o%s", fileop_kind_name(rec->kind), rec->mode,
                   rec->flags & FILEOP_CONTENT ? " with" : "");
    if (rec->path_len > 0)
        buf_printf(&r->sent, NULL, " %.*s", (int)rec->path_len, path);
    if (rec->target_len > 0)
        buf_printf(&r->sent, NULL, " -> %.*s", (int)rec->target_len, target);
    if (rec->data_len > 0)
        buf_printf(&r->sent, NULL, " %.*s", (int)rec->data_len, (const char *)data);
    buf_puts(&r->sent, "\n", NULL);
    return r->room > 0 && --r->room > 0;
}

void fileop_run_finish(struct fileop_run *r) {
    assert_false(r->finished || r->cancelled);
    r->finished = true;
}

void fileop_run_cancel(struct fileop_run *r) {
    r->cancelled = true;
}

/* Goes on writing until it is finished or cancelled, `room` records at a time. */
static inline void fake_write(unsigned room) {
    while (!fake_run.finished && !fake_run.cancelled) {
        fake_run.room = room;
        fake_run.ops->writable(fake_run.arg);
    }
}

static inline int fake_item(enum fileop_type type, const char *path, const char *data,
                            struct fileop_record rec) {
    rec.type = type;
    rec.path_len = (uint32_t)strlen(path);
    rec.data_len = (uint32_t)strlen(data);
    struct fileop_item item = {.rec = rec, .path = path, .target = "", .data = data};
    return fake_run.ops->item(fake_run.arg, &item);
}

static inline int fake_entry(const char *path, uint64_t size, uint64_t inode) {
    return fake_item(FILEOP_ENTRY, path, "",
                     (struct fileop_record){.kind = FILEOP_FILE,
                                            .flags = FILEOP_CONTENT,
                                            .size = size,
                                            .inode = inode,
                                            .ctime_ns = (int64_t)inode});
}

static inline int fake_data(const char *data) {
    return fake_item(FILEOP_DATA, "", data, (struct fileop_record){0});
}

static inline int fake_error(const char *path, enum fileop_code code) {
    return fake_item(FILEOP_ERROR, path, "", (struct fileop_record){.code = code});
}

static inline void fake_done(enum fileop_code code) {
    struct fileop_result result = {.code = code};
    buf_done(&fake_run.sent);
    fake_run.ops->done(fake_run.arg, &result);
}
