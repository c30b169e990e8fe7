/* Ignore files that come back from the sandbox. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "project.h"

/* `len` bytes from `at` on; fewer when it became shorter. */
static int project_ignore_text(int fd, uint64_t at, uint64_t len, struct buf *out,
                               struct err *err) {
    while (len > 0) {
        size_t room = len < 65536 ? (size_t)len : 65536;
        char *to = buf_reserve(out, room, err);
        ssize_t n = to != NULL ? pread(fd, to, room, (off_t)at) : -1;
        if (to == NULL || (n < 0 && errno != EINTR))
            return to == NULL ? -1 : err_sys(err, "reading an ignore file");
        if (n == 0)
            break;
        if (n > 0) {
            out->len += (size_t)n;
            at += (uint64_t)n;
            len -= (uint64_t)n;
        }
    }
    return 0;
}

int project_ignore_loosens(const struct project *p, const struct undo_change *c, bool *loosens,
                           struct err *err) {
    const struct ws_entry *was = ws_tree_find(&p->tree, c->path);
    struct buf old, now;
    fd_cleanup int fd = -1;
    buf_init(&old, WS_IGNORE_FILE_MAX);
    buf_init(&now, WS_IGNORE_FILE_MAX);
    int rc = 0;
    *loosens = c->after.type != UNDO_FILE || (was != NULL && was->type != WS_FILE) ||
               c->after.size > WS_IGNORE_FILE_MAX || (was != NULL && was->size > old.max);
    if (!*loosens && was != NULL) {
        fd = ws_tree_open(p->root, c->path, err);
        rc = fd < 0 ? -1 : project_ignore_text(fd, 0, was->size, &old, err);
    }
    if (!*loosens && rc == 0)
        rc = project_ignore_text(c->fd, c->offset, c->after.size, &now, err);
    if (!*loosens && rc == 0)
        *loosens = ws_ignore_loosens(old.data != NULL ? old.data : "", old.len,
                                     now.data != NULL ? now.data : "", now.len);
    buf_done(&old);
    buf_done(&now);
    return rc;
}
