/* Errors as values.
 *
 * Every fallible function takes `struct err *err` as its last argument and returns 0/-1 (or an
 * fd/-1, a pointer/NULL). The caller owns the struct; it has a fixed size, so there is nothing to
 * free and nothing that can fail while failing. `err` may be NULL: the caller does not care why. */
#pragma once

#include <stddef.h>

enum err_kind {
    ERR_NONE = 0,
    ERR_SYSTEM,   /* a system call failed; `code` is its errno */
    ERR_INVALID,  /* the input is wrong: the caller's fault, a 4xx over HTTP */
    ERR_LIMIT,    /* a bound of ours was met (buffer, table, queue) */
    ERR_STATE,    /* right request, wrong moment */
    ERR_PROTOCOL, /* the other side of a socket broke the protocol */
};

struct err {
    enum err_kind kind;
    int code;       /* errno value, 0 when none applies */
    char text[400]; /* one plain sentence: what was being done, to what, why it failed */
};

/* Fills `err` with kind, code and a printf-formatted sentence. Always returns -1. */
int err_set(struct err *err, enum err_kind kind, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* As err_set, with a text that is taken as it is. Formats nothing and allocates nothing, so it may
 * be used between clone and exec and in a signal handler. Returns -1. */
int err_plain(struct err *err, enum err_kind kind, int code, const char *text);

/* As err_set(ERR_SYSTEM, errno, …) and appends ": <strerror(errno)>". Keeps errno. Returns -1. */
int err_sys(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<context>: " before the text that is there. Returns -1. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Empties `err`. */
void err_clear(struct err *err);
