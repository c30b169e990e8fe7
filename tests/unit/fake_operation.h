/* A file operation under test: what its owner is told, and the side of the process that serves it.
 */
#pragma once

#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "fake_sandbox.h"
#include "fileop_run.h"
#include "unit.h"

/* What the operation's owner was told. */
struct told {
    struct fileop_run *run;
    struct buf text;
    int writable, readable, done;
    int give_up_after;
    bool pause;
    struct fileop_result result;
};

static inline int told_item(void *arg, const struct fileop_item *item) {
    struct told *t = arg;
    assert_int_equal(t->done, 0);
    if (item->rec.type == FILEOP_DATA)
        buf_append(&t->text, item->data, item->rec.data_len, NULL);
    else
        buf_printf(&t->text, NULL, "<%s>", item->path);
    if (t->pause)
        fileop_run_pause(t->run);
    return t->give_up_after > 0 && --t->give_up_after == 0 ? -1 : 0;
}

static inline void told_writable(void *arg) {
    ((struct told *)arg)->writable++;
}

static inline void told_readable(void *arg) {
    ((struct told *)arg)->readable++;
}

static inline void told_done(void *arg, const struct fileop_result *result) {
    struct told *t = arg;
    assert_int_equal(t->done, 0);
    t->done++;
    t->run = NULL;
    t->result = *result;
}

static const __attribute__((unused)) struct fileop_run_ops plain_ops = {
    .item = told_item, .writable = told_writable, .done = told_done};
static const __attribute__((unused)) struct fileop_run_ops hand_ops = {
    .item = told_item, .readable = told_readable, .done = told_done};

static inline struct fileop_run *start(struct sandbox *sb, const char *op, bool upload,
                                       const struct fileop_run_ops *ops, struct told *t) {
    const char *argv[] = {op, "/workspace/a", "1", "2"};
    struct err err = {0};
    memset(t, 0, sizeof(*t));
    buf_init(&t->text, 8u << 20);
    t->run = fileop_run_start(sb, argv, 4, upload, ops, t, &err);
    return t->run;
}

/* The operation's side. */

static inline void say(struct sandbox *sb, size_t i, const void *bytes, size_t len) {
    assert_int_equal(write(sb->tasks[i].out, bytes, len), len);
}

static inline void say_record(struct sandbox *sb, size_t i, struct fileop_record rec,
                              const char *path) {
    rec.magic = FILEOP_MAGIC;
    rec.path_len = (uint32_t)strlen(path);
    say(sb, i, &rec, sizeof(rec));
    say(sb, i, path, rec.path_len);
}

static const __attribute__((unused)) struct fileop_record entry = {
    .type = FILEOP_ENTRY, .kind = FILEOP_FILE, .flags = FILEOP_CONTENT, .mode = 0644};
static const __attribute__((unused)) struct fileop_record directory = {.type = FILEOP_ENTRY,
                                                                       .kind = FILEOP_DIRECTORY};
static const __attribute__((unused)) struct fileop_record the_end = {.type = FILEOP_END};

static inline struct fileop_record data_of(size_t len) {
    return (struct fileop_record){.type = FILEOP_DATA, .data_len = (uint32_t)len};
}

/* Its process is gone. */
static inline void over(struct sandbox *sb, size_t i, enum cause cause) {
    struct sandbox_task *t = sb->tasks[i].task;
    struct wire_end end = {.cause = cause};
    sb->tasks[i].task = NULL;
    fd_close(&sb->tasks[i].in);
    fd_close(&sb->tasks[i].out);
    t->ops->ended(t, &end);
}
