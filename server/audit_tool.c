#include "audit_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"
#include "state.h"

int audit_tool_open(const char *state, struct err *err) {
    struct state s = STATE_NONE;
    if (state_open(state, &s, err) < 0)
        return -1;
    int fd = state_open_dir(&s, STATE_SERVER, err);
    state_close(&s);
    return fd;
}

int audit_tool_verify(struct audit_verify v[2], int server_dir, struct err *err) {
    v[1].key = v[0].key;
    v[1].problem = v[0].problem;
    v[1].arg = v[0].arg;
    v[1].expect = v[0].expect;
    v[1].expect_count = v[0].expect_count;
    /* First the commands: they say what was removed of the other on purpose. */
    if (audit_verify_chain(&v[1], server_dir, AUDIT_LOG_COMMANDS, err) < 0)
        return -1;
    v[0].pruned = v[1].removed;
    v[0].pruned_count = v[1].removed_count;
    return audit_verify_chain(&v[0], server_dir, AUDIT_LOG_SERVER, err);
}

int audit_tool_lines_open(struct audit_tool_lines *l, int server_dir, const char *chain,
                          struct err *err) {
    memset(l, 0, sizeof(*l));
    l->chain = chain;
    buf_init(&l->data, AUDIT_LOG_SEGMENT_MAX);
    l->dir = openat(server_dir, AUDIT_LOG_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (l->dir < 0 && errno == ENOENT)
        return 0;
    if (l->dir < 0)
        return err_sys(err, "cannot open server/" AUDIT_LOG_DIR);
    return audit_log_segments(l->dir, chain, &l->first, &l->count, err);
}

void audit_tool_lines_close(struct audit_tool_lines *l) {
    if (l->chain == NULL)
        return;
    fd_close(&l->dir);
    free(l->first);
    buf_done(&l->data);
    l->chain = NULL;
}

int audit_tool_lines_next(struct audit_tool_lines *l, const char **line, size_t *len,
                          struct err *err) {
    while (l->pos >= l->data.len) {
        char name[AUDIT_LOG_NAME_SIZE];
        if (l->next == l->count)
            return 0;
        audit_log_segment_name(l->chain, l->first[l->next++], name);
        buf_clear(&l->data);
        l->pos = 0;
        if (fd_read_file(l->dir, name, &l->data, err) < 0)
            return -1;
    }
    const char *start = l->data.data + l->pos;
    const char *end = memchr(start, '\n', l->data.len - l->pos);
    *line = start;
    *len = end != NULL ? (size_t)(end - start) : l->data.len - l->pos;
    l->pos += *len + 1;
    return 1;
}
