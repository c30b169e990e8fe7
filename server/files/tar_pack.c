#include "tar_pack.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "fileop_parse.h"
#include "tar_write.h"

/* What one item may become: the longest names as pax headers, and as much data as is parsed at
 * once. */
#define TAR_PACK_MAX (2 * FILEOP_PARSE_SIZE)

struct tar_pack {
    int in, out;
    struct fileop_parse parse;
    struct buf bytes;
    struct tar_write *tar;
    struct tar_pack_result *result;
};

static int tar_pack_fail(struct tar_pack *t, enum tar_pack_code code) {
    t->result->code = code;
    return -1;
}

/* What there is of the archive. */
static int tar_pack_flush(struct tar_pack *t) {
    if (t->bytes.len > 0 && fd_write_all(t->out, t->bytes.data, t->bytes.len, NULL) < 0)
        return tar_pack_fail(t, TAR_PACK_CLOSED);
    buf_clear(&t->bytes);
    return 0;
}

/* 1 = that was the last record, 0, -1. */
static int tar_pack_item(struct tar_pack *t, const struct fileop_item *item) {
    if (item->rec.type == FILEOP_END) {
        if (tar_write_end(t->tar, NULL) < 0)
            return tar_pack_fail(t, TAR_PACK_BROKEN);
        return tar_pack_flush(t) < 0 ? -1 : 1;
    }
    if (item->rec.type == FILEOP_ERROR && item->rec.path_len == 0) {
        t->result->fileop = item->rec.code;
        t->result->sys = item->rec.sys;
        return tar_pack_fail(t, TAR_PACK_REFUSED);
    }
    /* What nobody may read, or is gone meanwhile, is left out. An archive that lacks a file because
     * the disk or memory failed must not look like a whole one. */
    if ((item->rec.type == FILEOP_ERROR && item->rec.code == FILEOP_IO) ||
        tar_write_item(t->tar, item, NULL) < 0)
        return tar_pack_fail(t, TAR_PACK_BROKEN);
    return tar_pack_flush(t);
}

static int tar_pack_items(struct tar_pack *t) {
    struct fileop_item item;
    int rc;
    while ((rc = fileop_parse_next(&t->parse, &item, NULL)) > 0) {
        rc = tar_pack_item(t, &item);
        if (rc != 0)
            return rc;
    }
    return rc < 0 ? tar_pack_fail(t, TAR_PACK_CUT) : 0;
}

static void tar_pack_records(struct tar_pack *t) {
    for (;;) {
        size_t room = 0;
        char *space = fileop_parse_space(&t->parse, &room);
        if (space == NULL) {
            (void)tar_pack_fail(t, TAR_PACK_MEMORY);
            return;
        }
        ssize_t n = read(t->in, space, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            (void)tar_pack_fail(t, TAR_PACK_CUT);
            return;
        }
        fileop_parse_add(&t->parse, (size_t)n);
        if (tar_pack_items(t) != 0)
            return;
    }
}

void tar_pack_run(int in, int out, const char *name, struct tar_pack_result *result) {
    struct tar_pack t = {.in = in, .out = out, .result = result};
    memset(result, 0, sizeof(*result));
    fileop_parse_init(&t.parse);
    buf_init(&t.bytes, TAR_PACK_MAX);
    t.tar = tar_write_new(&t.bytes, name, NULL);
    if (t.tar == NULL)
        (void)tar_pack_fail(&t, TAR_PACK_MEMORY);
    else
        tar_pack_records(&t);
    tar_write_free(t.tar);
    buf_done(&t.bytes);
    fileop_parse_done(&t.parse);
}
