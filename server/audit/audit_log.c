#include "audit_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit_file.h"
#include "clock.h"
#include "fd.h"
#include "json_memory.h"
#include "str.h"

void audit_log_segment_name(const char *chain, uint64_t first, char name[AUDIT_LOG_NAME_SIZE]) {
    snprintf(name, AUDIT_LOG_NAME_SIZE, "%s-%012" PRIu64 ".jsonl", chain, first);
}

/* The number in the name of a segment, 0 = it is none of this chain. */
static uint64_t audit_log_number(const char *chain, const char *name) {
    char again[AUDIT_LOG_NAME_SIZE];
    uint64_t first = 0;
    size_t len = strlen(chain);
    if (strncmp(name, chain, len) != 0 || name[len] != '-')
        return 0;
    for (const char *c = name + len + 1; *c >= '0' && *c <= '9'; c++) {
        if (first > UINT64_MAX / 100)
            return 0;
        first = first * 10 + (uint64_t)(*c - '0');
    }
    audit_log_segment_name(chain, first, again);
    return strcmp(name, again) == 0 ? first : 0;
}

static int audit_log_compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

int audit_log_segments(int dir, const char *chain, uint64_t **first, size_t *count,
                       struct err *err) {
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    uint64_t *list = NULL;
    size_t n = 0;
    const struct dirent *e;
    int rc = 0;
    if (d == NULL) {
        err_sys(err, "cannot list the audit log");
        fd_close(&copy);
        return -1;
    }
    while (rc == 0 && (e = readdir(d)) != NULL) {
        uint64_t number = audit_log_number(chain, e->d_name);
        if (number == 0)
            continue;
        uint64_t *more = n % 64 == 0 ? realloc(list, (n + 64) * sizeof(*list)) : list;
        if (more == NULL) {
            rc = err_set(err, ERR_SYSTEM, ENOMEM, "cannot list the audit log: out of memory");
        } else {
            list = more;
            list[n++] = number;
        }
    }
    closedir(d);
    if (rc < 0) {
        free(list);
        return -1;
    }
    if (n > 1)
        qsort(list, n, sizeof(*list), audit_log_compare);
    *first = list;
    *count = n;
    return 0;
}

static int audit_log_open_dir(struct audit_log *l, int server_dir, struct err *err) {
    bool made = mkdirat(server_dir, AUDIT_LOG_DIR, 0700) == 0;
    if (!made && errno != EEXIST)
        return err_sys(err, "cannot make server/" AUDIT_LOG_DIR);
    l->dir = openat(server_dir, AUDIT_LOG_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (l->dir < 0)
        return err_sys(err, "cannot open server/" AUDIT_LOG_DIR);
    return made ? audit_file_give(l->dir, server_dir, err) : 0;
}

/* The newest sound record in data[0, len), which ends with a newline. *whole: it is the last line.
 * False: there is none. */
static bool audit_log_newest(const char *data, size_t len, struct audit_mark *out, bool *whole) {
    *whole = true;
    while (len > 0) {
        size_t end = len - 1, start = end;
        struct audit_line line;
        while (start > 0 && data[start - 1] != '\n')
            start--;
        if (audit_line_parse(data + start, end - start, &line) == 0 && line.sound) {
            out->seq = line.seq;
            memcpy(out->hash, line.hash, sizeof(out->hash));
            return true;
        }
        *whole = false;
        len = start;
    }
    return false;
}

/* Looks into one segment, the newest first. 1 = the end of the chain was found, 0 = look into the
 * one before. */
static int audit_log_look(struct audit_log *l, uint64_t first, bool newest,
                          struct audit_log_found *found, struct err *err) {
    char name[AUDIT_LOG_NAME_SIZE];
    struct buf data;
    bool whole = true;
    audit_log_segment_name(l->chain, first, name);
    buf_init(&data, AUDIT_LOG_SEGMENT_MAX);
    int rc = fd_read_file(l->dir, name, &data, err);
    if (rc == 0 && newest) {
        size_t len = data.len;
        while (len > 0 && data.data[len - 1] != '\n')
            len--;
        found->partial = data.len - len;
        data.len = len;
        l->size = len;
        l->fd = openat(l->dir, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
        if (l->fd < 0 || (found->partial > 0 && ftruncate(l->fd, (off_t)len) < 0))
            rc = err_sys(err, "cannot repair server/" AUDIT_LOG_DIR "/%s", name);
    }
    if (rc == 0 && data.len > 0) {
        rc = audit_log_newest(data.data, data.len, &l->last, &whole) ? 1 : 0;
        found->unsound = found->unsound || rc == 0 || !whole;
    }
    buf_done(&data);
    return rc;
}

static int audit_log_find_end(struct audit_log *l, struct audit_log_found *found, struct err *err) {
    uint64_t *first = NULL;
    size_t count = 0;
    if (audit_log_segments(l->dir, l->chain, &first, &count, err) < 0)
        return -1;
    int rc = 0;
    bool lost = false; /* the newest has lines, and none of them is a record */
    for (size_t i = count; i > 0 && rc == 0; i--) {
        rc = audit_log_look(l, first[i - 1], i == count, found, err);
        lost = lost || (i == count && rc == 0 && l->size > 0);
    }
    /* Whatever the lines say, no number is given twice, and no name of a segment. */
    uint64_t least = rc >= 0 && count > 0 ? first[count - 1] - !lost : 0;
    if (l->last.seq < least)
        l->last.seq = least;
    free(first);
    return rc < 0 ? -1 : 0;
}

static int audit_log_check_head(struct audit_log *l, int server_dir,
                                struct audit_log_found *found) {
    struct audit_log_head head;
    if (audit_log_head_read(server_dir, l->chain, &head, NULL) != 1 || head.mark.seq <= l->last.seq)
        return 0;
    found->head_seq = head.mark.seq;
    found->cut_after = l->last.seq;
    l->last.seq = head.mark.seq; /* the gap stays to be seen */
    return 1;
}

int audit_log_open(struct audit_log *l, int server_dir, const char *chain,
                   struct audit_log_found *found, struct err *err) {
    memset(l, 0, sizeof(*l));
    memset(found, 0, sizeof(*found));
    l->dir = l->fd = l->full = -1;
    l->segment_bytes = AUDIT_LOG_SEGMENT_BYTES;
    str_copy(l->chain, sizeof(l->chain), chain);
    buf_init(&l->pending, AUDIT_LOG_PENDING_MAX);
    audit_line_genesis(chain, &l->last);
    if (audit_log_open_dir(l, server_dir, err) < 0 || audit_log_find_end(l, found, err) < 0) {
        audit_log_close(l);
        return -1;
    }
    if (audit_log_check_head(l, server_dir, found) || found->unsound)
        audit_log_begin_new(l);
    l->written = l->last;
    return 0;
}

void audit_log_close(struct audit_log *l) {
    if (l->chain[0] == '\0')
        return;
    fd_close(&l->fd);
    fd_close(&l->full);
    fd_close(&l->dir);
    buf_done(&l->pending);
    l->chain[0] = '\0';
}

/* Appending. */

int audit_log_add(struct audit_log *l, const struct buf *fields, struct err *err) {
    struct audit_mark before = l->last;
    size_t len = l->pending.len;
    if (audit_line_compose(&l->pending, &l->last, clock_real_ms(), fields, err) < 0)
        return -1;
    l->undo = before;
    l->undo_len = len;
    return 0;
}

void audit_log_undo(struct audit_log *l) {
    if (l->undo_len >= l->pending.len)
        return;
    l->last = l->undo;
    l->pending.len = l->undo_len;
    l->pending.data[l->pending.len] = '\0';
}

void audit_log_begin_new(struct audit_log *l) {
    if (l->full >= 0)
        (void)fdatasync(l->full);
    fd_close(&l->full);
    l->full = fd_steal(&l->fd);
    l->size = 0;
}

static int audit_log_next_segment(struct audit_log *l, struct err *err) {
    char name[AUDIT_LOG_NAME_SIZE];
    audit_log_segment_name(l->chain, l->written.seq + 1, name);
    int fd =
        openat(l->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    /* One that was begun and into which nothing could be written. */
    if (fd < 0 && errno == EEXIST) {
        struct stat st;
        fd = openat(l->dir, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_size > 0)) {
            fd_close(&fd);
            return err_set(err, ERR_STATE, EEXIST, "server/" AUDIT_LOG_DIR "/%s is in the way",
                           name);
        }
    }
    if (fd < 0)
        return err_sys(err, "cannot make server/" AUDIT_LOG_DIR "/%s", name);
    if (audit_file_give(fd, l->dir, err) < 0) {
        fd_close(&fd);
        return -1;
    }
    l->fd = fd;
    l->size = 0;
    return 0;
}

int audit_log_write(struct audit_log *l, struct err *err) {
    ssize_t n;
    if (l->pending.len == 0)
        return 0;
    if (l->fd >= 0 && l->size > 0 && l->size + l->pending.len > l->segment_bytes)
        audit_log_begin_new(l);
    if (l->fd < 0 && audit_log_next_segment(l, err) < 0)
        return -1;
    do
        n = write(l->fd, l->pending.data, l->pending.len);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)l->pending.len) {
        if (n >= 0)
            errno = ENOSPC;
        err_sys(err, "cannot write the audit log");
        /* Part of a record must not stay: what comes later would be glued to it. */
        if (n > 0 && ftruncate(l->fd, (off_t)l->size) < 0)
            audit_log_begin_new(l);
        return -1;
    }
    l->size += l->pending.len;
    l->written = l->last;
    buf_clear(&l->pending);
    l->undo_len = 0;
    return 0;
}

bool audit_log_intact(const struct audit_log *l) {
    struct stat st;
    return l->fd < 0 ||
           (fstat(l->fd, &st) == 0 && st.st_nlink > 0 && (uint64_t)st.st_size == l->size);
}

/* To the disk, and heads. */

int audit_log_sync(int fd, struct err *err) {
    return fdatasync(fd) < 0 ? err_sys(err, "cannot bring the audit log to the disk") : 0;
}

const char *audit_log_head_name(const char *chain) {
    return strcmp(chain, AUDIT_LOG_SERVER) == 0 ? "audit.head" : "audit.cmd.head";
}

void audit_log_head_text(const char *chain, const struct audit_mark *mark,
                         const struct receipt_key *key, char text[AUDIT_LOG_HEAD_SIZE]) {
    char message[AUDIT_LINE_MESSAGE_MAX], signature[2 * RECEIPT_SIGNATURE_SIZE + 1], hash[65];
    size_t len = audit_line_message(chain, mark, false, message);
    receipt_key_sign(key, message, len, signature);
    receipt_hex(mark->hash, sizeof(mark->hash), hash);
    snprintf(text, AUDIT_LOG_HEAD_SIZE,
             "{\"chain\":\"%s\",\"seq\":%" PRIu64 ",\"hash\":\"%s\",\"time\":%" PRIu64
             ",\"key\":\"%s\",\"signature\":\"%s\"}\n",
             chain, mark->seq, hash, clock_real_ms(), key->id, signature);
}

int audit_log_head_write(int server_dir, const char *chain, const char *text, struct err *err) {
    return audit_file_write(server_dir, audit_log_head_name(chain), text, strlen(text), err);
}

static int audit_log_head_decode(const json_t *object, struct audit_log_head *out) {
    const json_t *seq = json_object_get(object, "seq");
    const char *hash = json_string_value(json_object_get(object, "hash"));
    const char *key = json_string_value(json_object_get(object, "key"));
    const char *signature = json_string_value(json_object_get(object, "signature"));
    if (!json_is_integer(seq) || json_integer_value(seq) < 0 || key == NULL ||
        receipt_unhex(hash, out->mark.hash, sizeof(out->mark.hash)) < 0 ||
        receipt_unhex(signature, out->signature, sizeof(out->signature)) < 0 ||
        !str_copy(out->key, sizeof(out->key), key))
        return -1;
    out->mark.seq = (uint64_t)json_integer_value(seq);
    out->time_ms = (uint64_t)json_integer_value(json_object_get(object, "time"));
    return 0;
}

int audit_log_head_read(int server_dir, const char *chain, struct audit_log_head *out,
                        struct err *err) {
    const char *name = audit_log_head_name(chain);
    struct audit_log_head head = {0};
    struct stat st;
    struct buf text;
    if (fstatat(server_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    buf_init(&text, 4096);
    int rc = fd_read_file(server_dir, name, &text, err);
    if (rc == 0) {
        json_t *object = json_memory_load(text.data != NULL ? text.data : "", text.len, 0, NULL);
        rc = audit_log_head_decode(object, &head);
        json_decref(object);
        if (rc < 0)
            err_set(err, ERR_INVALID, 0, "server/%s is not the head of an audit log", name);
    }
    buf_done(&text);
    if (rc < 0)
        return -1;
    *out = head;
    return 1;
}
