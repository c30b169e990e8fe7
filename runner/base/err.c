#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void err_clear(struct err *err) {
    if (err)
        *err = (struct err){0};
}

int err_plain(struct err *err, enum err_kind kind, int code, const char *text) {
    if (!err)
        return -1;
    err->kind = kind;
    err->code = code;
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof(err->text); n++)
        err->text[n] = text[n];
    err->text[n] = '\0';
    return -1;
}

int err_set(struct err *err, enum err_kind kind, int code, const char *fmt, ...) {
    if (!err)
        return -1;
    int saved = errno;
    /* Arguments may point into err->text, so format aside and copy. */
    char text[sizeof(err->text)];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    err_plain(err, kind, code, text);
    errno = saved;
    return -1;
}

/* The C locale's text, from a constant table in either library. */
static const char *err_describe(int code) {
#ifdef __GLIBC__
    return strerrordesc_np(code);
#else
    return strerror(code);
#endif
}

int err_sys(struct err *err, const char *fmt, ...) {
    if (!err)
        return -1;
    int saved = errno;
    char text[sizeof(err->text)];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    const char *why = err_describe(saved);
    if (why)
        err_set(err, ERR_SYSTEM, saved, "%s: %s", text, why);
    else
        err_set(err, ERR_SYSTEM, saved, "%s: error %d", text, saved);
    errno = saved;
    return -1;
}

int err_wrap(struct err *err, const char *fmt, ...) {
    if (!err)
        return -1;
    int saved = errno;
    char context[sizeof(err->text)];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(context, sizeof(context), fmt, ap) < 0)
        context[0] = '\0';
    va_end(ap);
    err_set(err, err->kind, err->code, "%s: %s", context, err->text);
    errno = saved;
    return -1;
}
