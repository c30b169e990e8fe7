#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit_command.h"
#include "audit_tool.h"
#include "clock.h"
#include "fd.h"

#define AUDIT_PRUNE_DAY_MS ((uint64_t)24 * 60 * 60 * 1000)

static void audit_prune_problem(void *arg, const char *sentence) {
    (void)arg;
    fprintf(stderr, "pinfold-server audit: %s\n", sentence);
}

/* What is not sound is evidence. */
static int audit_prune_check(int server_dir, const struct receipt_key *key, struct err *err) {
    struct audit_verify *v = calloc(2, sizeof(*v));
    if (v == NULL)
        return err_set(err, ERR_SYSTEM, 0, "out of memory");
    v[0].key = &key->public;
    v[0].problem = audit_prune_problem;
    int rc = audit_tool_verify(v, server_dir, err);
    if (rc == 0 && v[0].problems + v[1].problems > 0)
        rc = err_set(err, ERR_STATE, 0,
                     "the audit log has problems, so nothing of it is removed (audit verify)");
    free(v);
    return rc;
}

/* The place and the time of a segment's last record. */
static int audit_prune_last(int dir, const char *name, struct buf *data, struct audit_line *last,
                            struct err *err) {
    buf_clear(data);
    if (fd_read_file(dir, name, data, err) < 0)
        return -1;
    size_t end = data->len > 0 ? data->len - 1 : 0, start = end;
    while (start > 0 && data->data[start - 1] != '\n')
        start--;
    if (data->len == 0 || audit_line_parse(data->data + start, end - start, last) < 0)
        return err_set(err, ERR_STATE, 0, "%s does not end with a record", name);
    return 0;
}

static int audit_prune_copy(const char *to, const char *name, const struct buf *data,
                            struct err *err) {
    if (to == NULL)
        return 0;
    fd_cleanup int dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "cannot open %s", to);
    return fd_write_atomic(dir, name, data->data, data->len, 0600, err);
}

/* How many of the segments may go; *through is the last of their records. */
static int audit_prune_choose(const struct audit_tool_lines *l, const struct audit_prune_options *o,
                              struct audit_mark *through, size_t *chosen, struct err *err) {
    uint64_t now = clock_real_ms(), age = o->days * AUDIT_PRUNE_DAY_MS;
    struct buf data;
    int rc = 0;
    *chosen = 0;
    buf_init(&data, AUDIT_LOG_SEGMENT_MAX);
    /* Never the newest: the server writes into it. */
    for (size_t i = 0; i + 1 < l->count && rc == 0; i++) {
        char name[AUDIT_LOG_NAME_SIZE];
        struct audit_line last;
        audit_log_segment_name(l->chain, l->first[i], name);
        rc = audit_prune_last(l->dir, name, &data, &last, err);
        if (rc < 0 || last.time_ms + age > now)
            break;
        rc = audit_prune_copy(o->to, name, &data, err);
        if (rc == 0) {
            *chosen = i + 1;
            through->seq = last.seq;
            memcpy(through->hash, last.hash, sizeof(through->hash));
        }
    }
    buf_done(&data);
    return rc;
}

static int audit_prune_remove(const struct audit_tool_lines *l, size_t chosen, struct err *err) {
    for (size_t i = 0; i < chosen; i++) {
        char name[AUDIT_LOG_NAME_SIZE];
        audit_log_segment_name(l->chain, l->first[i], name);
        if (unlinkat(l->dir, name, 0) < 0)
            return err_sys(err, "cannot remove server/" AUDIT_LOG_DIR "/%s", name);
    }
    return 0;
}

int audit_prune(int server_dir, const struct audit_prune_options *o, struct err *err) {
    struct audit_tool_lines l;
    struct audit_mark through;
    struct receipt_key key;
    size_t chosen = 0;
    if (receipt_key_load(server_dir, &key, err) < 0)
        return -1;
    int rc = audit_prune_check(server_dir, &key, err);
    receipt_key_wipe(&key);
    if (rc < 0 || audit_tool_lines_open(&l, server_dir, AUDIT_LOG_SERVER, err) < 0)
        return -1;
    rc = audit_prune_choose(&l, o, &through, &chosen, err);
    /* First the record: files that are missing without one are a problem, the other way round it is
     * none. */
    if (rc == 0 && chosen > 0)
        rc = audit_command_pruned(server_dir, &through, l.first[0], err);
    if (rc == 0)
        rc = audit_prune_remove(&l, chosen, err);
    if (rc == 0 && chosen > 0)
        printf("removed %zu of %zu segments, records %" PRIu64 " to %" PRIu64 "\n", chosen, l.count,
               l.first[0], through.seq);
    else if (rc == 0)
        printf("nothing is that old\n");
    audit_tool_lines_close(&l);
    return rc;
}
