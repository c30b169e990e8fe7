/* Attempts to get out of a jail: one function each. It says what it is about to do (TRY) before it
 * does it, so that an attempt that never came so far cannot pass for one that was refused, and
 * returns -1 with errno when it was refused. What it needs first (NEED) is not the attempt: when
 * that fails, the attempt was not made. */
#pragma once

#include <errno.h>
#include <stddef.h>

/* The limits that every attempt runs under; run.py reads them from --list. */
#define ESCAPE_MEM (64L << 20)
#define ESCAPE_DISK (16L << 20)
#define ESCAPE_INODES 2000L
#define ESCAPE_PIDS 32L
#define ESCAPE_FILES 128L

struct attempt {
    const char *class;
    const char *name;
    const char *right; /* outcomes that are refusals: names of errors or signals; OK: harmless */
    const char *what;
    long most; /* how much escape_counted() may say at most; 0: it is not asked */
    long (*run)(void);
};

#define BOUNDED(class_, name_, right_, most_, what_)                                               \
    static long run_##name_(void);                                                                 \
    static const struct attempt attempt_##name_ = {class_, #name_, right_,                         \
                                                   what_,  most_,  run_##name_};                   \
    static const struct attempt *const entry_##name_ __attribute__((section("attempts"), used)) =  \
        &attempt_##name_;                                                                          \
    static long run_##name_(void)

#define ATTEMPT(class_, name_, right_, what_) BOUNDED(class_, name_, right_, 0, what_)

#define TRY(call) (escape_reached(#call), errno = 0, (long)(call))
#define NEED(condition) ((condition) ? (void)0 : escape_unfit(#condition))

/* Classes of refusals. */
#define CLOSED "EPERM ENOSYS SIGSYS"
#define REFUSED "EPERM EACCES ENOSYS EINVAL ENOENT ESRCH ENODEV ENOTTY ENXIO EROFS ENOTDIR SIGSYS"
#define FAMILY "EPERM EACCES EAFNOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT EPROTOTYPE ENOSYS SIGSYS"

/* Writes the line that says that `call` comes next. */
void escape_reached(const char *call);
/* The attempt cannot be made here: ends it. */
_Noreturn void escape_unfit(const char *what);
/* How much of something the attempt got. Returns -1 and leaves errno alone. */
long escape_counted(long count);
/* The value of an environment variable, which must be there. */
const char *escape_name(const char *variable);
/* Opens a file, writes a byte or two, closes it. -1 with errno when either was refused. */
long escape_write(const char *path, const char *text);
/* A child that does nothing; it ends with the attempt. Returns its pid. */
int escape_child(void);
/* What a neighbour does: it holds everything that another jail could reach by a name, says READY,
 * and then each second how often it was touched. */
int escape_neighbour(const char *mark);
