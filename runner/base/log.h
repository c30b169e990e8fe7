/* One event, one line: `ts=… level=… event=… key=value …`. Only programs log; library code returns
 * errors. Values are escaped, so nothing that a user sends can forge a line or a terminal code. A
 * log that cannot be written never stops the program; the number of lost lines is in the next one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log {
    int fd; /* borrowed; -1 = silent */
    enum log_level min;
    const char *program; /* static string */
    uint64_t lost;       /* lines since the last one that was written … */
    uint64_t lost_ever;  /* … and since the start */
    bool torn;           /* the last one was written in part */
    bool may_block;      /* fd is no file: whoever reads it may have stopped */
};

struct log_line {
    struct log *log;
    size_t len;
    char text[1024]; /* longer lines are cut */
};

void log_init(struct log *log, int fd, enum log_level min, const char *program);
/* Begin, add fields, end (which writes once). `key` is a literal. */
void log_begin(struct log_line *l, struct log *log, enum log_level level, const char *event);
void log_str(struct log_line *l, const char *key, const char *value);
void log_u64(struct log_line *l, const char *key, uint64_t value);
void log_i64(struct log_line *l, const char *key, int64_t value);
void log_end(struct log_line *l);
/* The common case: an event and an error. */
void log_err(struct log *log, enum log_level level, const char *event, const struct err *err);
