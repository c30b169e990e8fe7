/* The answer of an operation means the same however it is cut into pieces. The first byte says how
 * large these are. */
#include "fileop_parse.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static void fuzz_item(struct buf *told, const struct fileop_item *item) {
    const struct fileop_record *rec = &item->rec;
    if (rec->type == FILEOP_DATA && rec->data_len > 0) {
        fuzz_require(buf_append(told, item->data, rec->data_len, NULL) == 0);
        return;
    }
    fuzz_require(rec->path_len == 0 || bundle_path_ok(item->path, rec->path_len));
    fuzz_require(strlen(item->path) == rec->path_len && strlen(item->target) == rec->target_len);
    fuzz_require(buf_append(told, rec, sizeof(*rec), NULL) == 0);
}

/* 0, or -1 when it was refused. */
static int fuzz_feed(const uint8_t *data, size_t size, size_t piece, struct buf *told) {
    struct fileop_parse p;
    struct fileop_item item;
    int rc = 0;
    fileop_parse_init(&p);
    for (size_t at = 0; at < size && rc == 0;) {
        size_t room = 0, n = size - at < piece ? size - at : piece;
        char *space = fileop_parse_space(&p, &room);
        fuzz_require(space != NULL && (p.over || room > 0));
        n = n < room ? n : room;
        if (n == 0)
            break; /* what follows the end */
        memcpy(space, data + at, n);
        fileop_parse_add(&p, n);
        at += n;
        while ((rc = fileop_parse_next(&p, &item, NULL)) > 0)
            fuzz_item(told, &item);
    }
    fileop_parse_done(&p);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf whole, cut;
    if (size == 0)
        return 0;
    buf_init(&whole, 4 * size + 4096);
    buf_init(&cut, 4 * size + 4096);
    int rc = fuzz_feed(data + 1, size - 1, size, &whole);
    fuzz_require(fuzz_feed(data + 1, size - 1, (size_t)data[0] + 1, &cut) == rc);
    fuzz_require(whole.len == cut.len);
    fuzz_require(whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0);
    buf_done(&whole);
    buf_done(&cut);
    return 0;
}
