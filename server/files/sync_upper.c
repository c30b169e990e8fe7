#include "sync_upper.h"

#include "sync_request.h"

/* As the sync left it: nothing ran between the sync and the moment when the layer began. */
static int sync_upper_row(struct sync_tree *out, const struct sync_row *row, struct err *err) {
    struct fileop_record rec = {.type = FILEOP_ENTRY,
                                .kind = row->kind,
                                .mode = row->mode,
                                .size = row->stamp.size,
                                .inode = row->stamp.inode,
                                .ctime_ns = row->stamp.ctime_ns,
                                .path_len = row->path_len,
                                .target_len = row->target_len};
    if (sync_tree_add(out, &rec, row->path, row->target, err) < 0)
        return -1;
    out->items[out->count - 1].same = true;
    return 0;
}

static int sync_upper_seen(struct sync_tree *out, const struct sync_seen *seen, struct err *err) {
    struct fileop_record rec = {.type = FILEOP_ENTRY,
                                .kind = seen->kind,
                                .mode = seen->mode,
                                .size = seen->size,
                                .inode = seen->inode,
                                .ctime_ns = seen->ctime_ns,
                                .path_len = seen->path_len,
                                .target_len = seen->target_len};
    return seen->kind == FILEOP_WHITEOUT ? 0
                                         : sync_tree_add(out, &rec, seen->path, seen->target, err);
}

static bool sync_upper_below(const struct sync_row *row, const struct sync_seen *above) {
    return above != NULL && sync_path_below(row->path, row->path_len, above->path, above->path_len);
}

int sync_upper_tree(const struct sync_index *index, bool tight, const struct sync_tree *upper,
                    struct sync_tree *out, struct err *err) {
    const struct sync_row *row = index->rows, *row_end = row + index->count;
    const struct sync_seen *seen = upper->items, *seen_end = seen + upper->count;
    const struct sync_seen *over = NULL; /* hides what was below it */
    while (row < row_end || seen < seen_end) {
        int order = row == row_end ? 1
                    : seen == seen_end
                        ? -1
                        : sync_path_compare(row->path, row->path_len, seen->path, seen->path_len);
        if (order < 0) {
            /* A directory that is told whole may have been counted while it changed: what it would
             * hide is worth a look. A file that is gone takes nothing with it by mistake. */
            bool hidden = sync_upper_below(row, over);
            if (row->kind != FILEOP_NONE && hidden && over->kind == FILEOP_DIRECTORY)
                return 1;
            if (row->kind != FILEOP_NONE && !hidden && row->loose && !tight)
                return 1;
            if (row->kind != FILEOP_NONE && !hidden && sync_upper_row(out, row, err) < 0)
                return -1;
            row++;
            continue;
        }
        /* A directory keeps its number when something is written in it. One that is told with
         * little in it and has another number came from elsewhere with all that it had. */
        bool stayed = order == 0 && row->kind == FILEOP_DIRECTORY &&
                      row->stamp.inode == seen->inode && seen->inode != 0;
        if (seen->kind == FILEOP_DIRECTORY && !seen->opaque && !stayed)
            return 1;
        bool inside =
            over != NULL && sync_path_below(seen->path, seen->path_len, over->path, over->path_len);
        if (!inside && (seen->kind != FILEOP_DIRECTORY || seen->opaque))
            over = seen;
        if (sync_upper_seen(out, seen, err) < 0)
            return -1;
        row += order == 0;
        seen++;
    }
    return 0;
}
