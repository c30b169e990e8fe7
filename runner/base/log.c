#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "str.h"

void log_init(struct log *log, int fd, enum log_level min, const char *program) {
    struct stat st;
    *log = (struct log){.fd = fd, .min = min, .program = program};
    log->may_block = fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

/* The newline always has room. */
static size_t log_room(const struct log_line *l) {
    return sizeof(l->text) - 1 - l->len;
}

/* Appends our own text; a piece that does not fit is left out whole. */
__attribute__((format(printf, 2, 3))) static void log_put(struct log_line *l, const char *fmt,
                                                          ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->len, log_room(l), fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < log_room(l))
        l->len += (size_t)n;
}

void log_begin(struct log_line *l, struct log *log, enum log_level level, const char *event) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    l->log = log->fd >= 0 && level >= log->min ? log : NULL;
    l->len = 0;
    if (!l->log)
        return;
    struct timespec now = {0};
    struct tm utc = {0};
    char date[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    log_put(l, "ts=%s.%03dZ level=%s program=%s event=%s", date, (int)(now.tv_nsec / 1000000),
            names[level], log->program, event);
    if (log->lost)
        log_u64(l, "lost", log->lost);
}

void log_str(struct log_line *l, const char *key, const char *value) {
    if (!l->log)
        return;
    size_t before = l->len;
    log_put(l, " %s=\"", key);
    /* Too little is left for a value that says something: leave the field out. */
    if (l->len == before || log_room(l) < 16) {
        l->len = before;
        return;
    }
    str_escape(l->text + l->len, log_room(l) - 1, value, strlen(value));
    l->len += strlen(l->text + l->len);
    l->text[l->len++] = '"';
}

void log_u64(struct log_line *l, const char *key, uint64_t value) {
    if (l->log)
        log_put(l, " %s=%" PRIu64, key, value);
}

void log_i64(struct log_line *l, const char *key, int64_t value) {
    if (l->log)
        log_put(l, " %s=%" PRIi64, key, value);
}

/* A pipe that nobody empties must not stop us. What poll(2) calls writable takes PIPE_BUF bytes at
 * once, and a line is shorter. */
static bool log_has_room(const struct log *log) {
    struct pollfd p = {.fd = log->fd, .events = POLLOUT};
    return !log->may_block || poll(&p, 1, 0) != 0;
}

void log_end(struct log_line *l) {
    if (!l->log)
        return;
    l->text[l->len++] = '\n';
    struct log *log = l->log;
    size_t torn = log->torn ? 1 : 0;
    struct iovec parts[2] = {{.iov_base = (char[]){'\n'}, .iov_len = torn},
                             {.iov_base = l->text, .iov_len = l->len}};
    ssize_t n = -1;
    if (log_has_room(log))
        do
            n = writev(log->fd, parts, 2);
        while (n < 0 && errno == EINTR);
    if (n == (ssize_t)(torn + l->len)) {
        log->lost = 0;
        log->torn = false;
        return;
    }
    log->lost++;
    log->lost_ever++;
    log->torn = log->torn ? n != 1 : n > 0;
}

void log_err(struct log *log, enum log_level level, const char *event, const struct err *err) {
    struct log_line l;
    log_begin(&l, log, level, event);
    log_str(&l, "error", err->text);
    if (err->code)
        log_i64(&l, "errno", err->code);
    log_end(&l);
}
