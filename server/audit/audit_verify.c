#include "audit_verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fd.h"
#include "json_memory.h"
#include "str.h"

#define AUDIT_VERIFY_TRIES 5

__attribute__((format(printf, 2, 3))) static void audit_verify_say(struct audit_verify *v,
                                                                   const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    v->problems++;
    v->problem(v->arg, text);
}

void audit_verify_begin(struct audit_verify *v, const char *chain) {
    str_copy(v->chain, sizeof(v->chain), chain);
    audit_line_genesis(chain, &v->last);
    v->first = v->records = v->checkpoints = v->segments = 0;
    v->removed_count = 0;
    v->head_seen = v->head_differs = false;
    v->has_head = 0;
}

/* Did the server's key sign this? */
static bool audit_verify_signed(const struct audit_verify *v, const struct audit_mark *mark,
                                bool pruned, const uint8_t signature[RECEIPT_SIGNATURE_SIZE]) {
    char message[AUDIT_LINE_MESSAGE_MAX];
    const char *chain = pruned ? AUDIT_LOG_SERVER : v->chain;
    size_t len = audit_line_message(chain, mark, pruned, message);
    return crypto_sign_verify_detached(signature, (const unsigned char *)message, len,
                                       v->key->bytes) == 0;
}

/* The head that was read (rc of audit_log_head_read()). */
static void audit_verify_head(struct audit_verify *v, int rc, const struct audit_log_head *head) {
    v->has_head = rc;
    if (rc == 1)
        v->head = *head;
}

/* Where a record is, for people. */
struct audit_verify_at {
    const char *file;
    uint64_t line;
};

static void audit_verify_gap(struct audit_verify *v, const struct audit_line *l,
                             const struct audit_verify_at *at) {
    uint64_t from = v->last.seq + 1, to = l->seq - 1;
    if (from == to)
        audit_verify_say(v,
                         "record %" PRIu64 " is missing: %s, line %" PRIu64
                         " goes on with record %" PRIu64 ".",
                         from, at->file, at->line, l->seq);
    else
        audit_verify_say(v,
                         "records %" PRIu64 " to %" PRIu64 " are missing: %s, line %" PRIu64
                         " goes on with record %" PRIu64 ".",
                         from, to, at->file, at->line, l->seq);
}

static bool audit_verify_was_pruned(const struct audit_verify *v, const struct audit_line *l) {
    for (size_t i = 0; i < v->pruned_count; i++)
        if (v->pruned[i].seq + 1 == l->seq &&
            memcmp(v->pruned[i].hash, l->prev, sizeof(l->prev)) == 0)
            return true;
    return false;
}

/* Does the record follow the one before it? */
static void audit_verify_order(struct audit_verify *v, const struct audit_line *l,
                               const struct audit_verify_at *at) {
    if (v->records == 0 && l->seq > 1 && audit_verify_was_pruned(v, l))
        return;
    if (l->seq > v->last.seq + 1)
        audit_verify_gap(v, l, at);
    else if (l->seq <= v->last.seq)
        audit_verify_say(v,
                         "%s, line %" PRIu64 ": record %" PRIu64
                         " is there twice or not in its place (record %" PRIu64 " is before it).",
                         at->file, at->line, l->seq, v->last.seq);
    else if (memcmp(l->prev, v->last.hash, sizeof(l->prev)) != 0)
        audit_verify_say(v,
                         "%s, line %" PRIu64 ": record %" PRIu64
                         " does not continue record %" PRIu64 " as it is now: the one before it "
                         "was replaced, or this one was put in.",
                         at->file, at->line, l->seq, v->last.seq);
}

static void audit_verify_checkpoint(struct audit_verify *v, const json_t *object,
                                    const struct audit_line *l, const struct audit_verify_at *at) {
    uint8_t signature[RECEIPT_SIGNATURE_SIZE];
    struct audit_mark mark = {.seq = l->seq - 1};
    memcpy(mark.hash, l->prev, sizeof(mark.hash));
    const char *text = json_string_value(json_object_get(object, "signature"));
    if (receipt_unhex(text, signature, sizeof(signature)) < 0 ||
        !audit_verify_signed(v, &mark, false, signature))
        audit_verify_say(v,
                         "%s, line %" PRIu64 ": the signature of checkpoint %" PRIu64
                         " is not one of the server's key: the log was written anew, or the key "
                         "is another one.",
                         at->file, at->line, l->seq);
    else
        v->checkpoints++;
}

static void audit_verify_removed(struct audit_verify *v, const json_t *object,
                                 const struct audit_line *l, const struct audit_verify_at *at) {
    struct audit_mark mark = {0};
    uint8_t signature[RECEIPT_SIGNATURE_SIZE];
    json_int_t seq = json_integer_value(json_object_get(object, "through"));
    if (seq > 0)
        mark.seq = (uint64_t)seq;
    if (seq <= 0 ||
        receipt_unhex(json_string_value(json_object_get(object, "through_hash")), mark.hash,
                      sizeof(mark.hash)) < 0 ||
        receipt_unhex(json_string_value(json_object_get(object, "signature")), signature,
                      sizeof(signature)) < 0 ||
        (v->key != NULL && !audit_verify_signed(v, &mark, true, signature)))
        audit_verify_say(v,
                         "%s, line %" PRIu64 ": record %" PRIu64
                         " says that records were pruned, and is not signed by the server's key.",
                         at->file, at->line, l->seq);
    else if (v->removed_count < AUDIT_VERIFY_PRUNED_MAX)
        v->removed[v->removed_count++] = mark;
}

/* What some types of records say has to be looked at. */
static void audit_verify_content(struct audit_verify *v, const char *line, size_t len,
                                 const struct audit_line *l, const struct audit_verify_at *at) {
    static const char checkpoint[] = "\"type\":\"checkpoint\"", pruned[] = "\"type\":\"pruned\"";
    bool is_checkpoint = memmem(line, len < 128 ? len : 128, checkpoint, sizeof(checkpoint) - 1);
    bool is_pruned = memmem(line, len < 128 ? len : 128, pruned, sizeof(pruned) - 1);
    if (!(is_checkpoint && v->key != NULL) && !is_pruned)
        return;
    json_t *object = json_memory_load(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(object, "type"));
    if (type != NULL && strcmp(type, "checkpoint") == 0 && v->key != NULL)
        audit_verify_checkpoint(v, object, l, at);
    else if (type != NULL && strcmp(type, "pruned") == 0)
        audit_verify_removed(v, object, l, at);
    json_decref(object);
}

static void audit_verify_line(struct audit_verify *v, const char *line, size_t len,
                              const struct audit_verify_at *at) {
    struct audit_line l;
    if (audit_line_parse(line, len, &l) < 0) {
        audit_verify_say(v,
                         "%s, line %" PRIu64 ": this is not a record (after record %" PRIu64 ").",
                         at->file, at->line, v->last.seq);
        return;
    }
    if (!l.sound)
        audit_verify_say(v,
                         "%s, line %" PRIu64 ": record %" PRIu64
                         " was edited: its hash does not fit what it says.",
                         at->file, at->line, l.seq);
    audit_verify_order(v, &l, at);
    if (l.sound)
        audit_verify_content(v, line, len, &l, at);
    if (v->records++ == 0)
        v->first = l.seq;
    v->last.seq = l.seq;
    memcpy(v->last.hash, l.hash, sizeof(v->last.hash));
    for (size_t i = 0; i < v->expect_count; i++)
        if (l.sound && memcmp(v->expect[i].hash, l.hash, sizeof(l.hash)) == 0)
            v->expect[i].found = true;
    if (v->has_head == 1 && l.seq == v->head.mark.seq) {
        v->head_seen = true;
        v->head_differs = memcmp(v->head.mark.hash, l.hash, sizeof(l.hash)) != 0;
    }
}

void audit_verify_segment(struct audit_verify *v, const char *file, const char *data, size_t len) {
    struct audit_verify_at at = {.file = file, .line = 0};
    size_t pos = 0;
    v->segments++;
    while (pos < len) {
        const char *end = memchr(data + pos, '\n', len - pos);
        at.line++;
        if (end == NULL) {
            audit_verify_say(v,
                             "%s, line %" PRIu64 " ends in the middle of a record (after record "
                             "%" PRIu64 "): it was cut, or the server was killed while it wrote "
                             "and has not been started since.",
                             file, at.line, v->last.seq);
            return;
        }
        size_t n = (size_t)(end - (data + pos));
        audit_verify_line(v, data + pos, n, &at);
        pos += n + 1;
    }
}

static void audit_verify_end_head(struct audit_verify *v) {
    const char *name = audit_log_head_name(v->chain);
    const struct audit_log_head *h = &v->head;
    if (v->has_head == 0 && v->records > 0)
        audit_verify_say(v, "server/%s is missing, so a cut at the end would not show.", name);
    if (v->has_head < 0)
        audit_verify_say(v, "server/%s is not the head of an audit log.", name);
    if (v->has_head != 1)
        return;
    if (v->key != NULL && !audit_verify_signed(v, &h->mark, false, h->signature))
        audit_verify_say(v, "server/%s is not signed by the server's key.", name);
    if (h->mark.seq > v->last.seq)
        audit_verify_say(v,
                         "the end of the chain %s is missing: it ends with record %" PRIu64
                         ", and server/%s has seen record %" PRIu64 ".",
                         v->chain, v->last.seq, name, h->mark.seq);
    else if (v->head_seen && v->head_differs)
        audit_verify_say(v,
                         "record %" PRIu64 " of the chain %s is not the one that server/%s has "
                         "seen.",
                         h->mark.seq, v->chain, name);
    else if (!v->head_seen && h->mark.seq > 0 && h->mark.seq >= v->first)
        audit_verify_say(v,
                         "record %" PRIu64 ", which server/%s has seen, is missing from the "
                         "chain %s.",
                         h->mark.seq, name, v->chain);
}

void audit_verify_end(struct audit_verify *v) {
    audit_verify_end_head(v);
}

/* A server may be writing into the newest one: a record that is half there is given a moment. */
static int audit_verify_load(int dir, const char *name, bool newest, struct buf *data,
                             struct err *err) {
    static const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};
    for (int tries = 0; tries < AUDIT_VERIFY_TRIES; tries++) {
        buf_clear(data);
        if (fd_read_file(dir, name, data, err) < 0)
            return -1;
        if (!newest || data->len == 0 || data->data[data->len - 1] == '\n')
            break;
        nanosleep(&moment, NULL);
    }
    return 0;
}

static int audit_verify_read(struct audit_verify *v, int dir, uint64_t first, bool newest,
                             struct err *err) {
    char name[AUDIT_LOG_NAME_SIZE], path[AUDIT_LOG_NAME_SIZE + 16];
    struct buf data;
    audit_log_segment_name(v->chain, first, name);
    snprintf(path, sizeof(path), AUDIT_LOG_DIR "/%s", name);
    buf_init(&data, AUDIT_LOG_SEGMENT_MAX);
    int rc = audit_verify_load(dir, name, newest, &data, err);
    if (rc == 0)
        audit_verify_segment(v, path, data.data != NULL ? data.data : "", data.len);
    else if (err->kind == ERR_LIMIT)
        audit_verify_say(v, "%s is larger than a segment can be.", path);
    buf_done(&data);
    return rc < 0 && err->kind != ERR_LIMIT ? -1 : 0;
}

int audit_verify_chain(struct audit_verify *v, int server_dir, const char *chain, struct err *err) {
    struct audit_log_head head;
    uint64_t *first = NULL;
    size_t count = 0;
    audit_verify_begin(v, chain);
    /* Before the log: what the head has seen is there already. */
    int rc = audit_log_head_read(server_dir, chain, &head, NULL);
    audit_verify_head(v, rc, &head);
    fd_cleanup int dir =
        openat(server_dir, AUDIT_LOG_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 && errno != ENOENT)
        return err_sys(err, "cannot open server/" AUDIT_LOG_DIR);
    if (dir >= 0 && audit_log_segments(dir, chain, &first, &count, err) < 0)
        return -1;
    rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = audit_verify_read(v, dir, first[i], i + 1 == count, err);
    free(first);
    if (rc == 0)
        audit_verify_end(v);
    return rc;
}
