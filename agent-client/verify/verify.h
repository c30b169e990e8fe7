/* Verifiers: code that looks at what came out and says whether it is what was asked for.
 *
 * A verifier judges files (or the answer of a run) and nothing else: it starts no program and asks
 * no model. All of them have one interface: named arguments in, a report out. The same verifier is
 * used by `pinfold verify` and by whoever wants a verdict in the middle of something else.
 *
 * Never more than was seen: a verifier that found nothing to check does not pass, and one that
 * cannot read its input, or does not understand what it was asked, is `broken`, which is not
 * `fail`. What is read was written by a program that nobody vouches for: sizes are bounded,
 * paths are resolved beneath the root without following a link out of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define VERIFY_INPUT_MAX ((size_t)256 * 1024 * 1024) /* bytes of one file */
#define VERIFY_FAILURES_MAX 1000u                    /* kept; all are counted */
#define VERIFY_TEXT_MAX ((size_t)2000)               /* bytes of one message */
#define VERIFY_ARGS_MAX 512u

enum verify_verdict {
    VERIFY_BROKEN, /* could not judge: the summary says why */
    VERIFY_FAIL,
    VERIFY_PASS,
};

struct verify_failure {
    char *name;    /* of the test, rule, row or key; never NULL */
    char *file;    /* where; NULL = not known */
    uint64_t line; /* 0 = not known */
    char *message; /* what was expected and what was there; never NULL */
};

/* Owned by whoever declared it; verify_report_done(). */
struct verify_report {
    const char *verifier; /* static */
    const char *format;   /* of a log: "pytest", …; static; NULL = none was found */
    enum verify_verdict verdict;
    uint64_t passed, failed, skipped;
    struct verify_failure *failures; /* the first VERIFY_FAILURES_MAX */
    size_t count, alloc;
    char summary[400]; /* one sentence */
};

/* "name=value", several with one name allowed where the verifier's table says so. Borrowed. */
struct verify_arg {
    const char *name, *value;
};

struct verify_args {
    struct verify_arg items[VERIFY_ARGS_MAX];
    size_t count;
    int root; /* directory that paths are relative to */
};

struct verify_key {
    const char *name;
    bool required, many;
    const char *help;
};

struct verifier {
    const char *name;
    const char *about;             /* a sentence */
    const struct verify_key *keys; /* ends with a NULL name */
    /* 0: *report has counts and failures; -1: it cannot judge, *err says why. */
    int (*run)(const struct verify_args *args, struct verify_report *report, struct err *err);
};

/* All of them, NULL-terminated. */
const struct verifier *const *verify_table(void);
const struct verifier *verify_find(const char *name); /* NULL = there is none */

/* Checks the arguments against the verifier's table, runs it, and fills the verdict: pass only when
 * something was checked and nothing failed. Never fails otherwise: what went wrong is a report that
 * is broken. *report need not be initialised. */
void verify_run(const struct verifier *v, const struct verify_args *args,
                struct verify_report *report);
void verify_report_done(struct verify_report *report);        /* NULL and zeroed allowed */
const char *verify_verdict_name(enum verify_verdict verdict); /* "pass", "fail", "broken" */

/* For verifiers. */

/* The value of an argument, or NULL; the n-th (from 0) of a name that may be repeated. */
const char *verify_arg(const struct verify_args *args, const char *name);
const char *verify_arg_nth(const struct verify_args *args, const char *name, size_t n);
/* Adds a failure; texts are copied, cut, and made printable: control characters become '?'. `file`
 * may be NULL. */
void verify_fail(struct verify_report *report, const char *name, const char *file, uint64_t line,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The whole of a regular file beneath args->root ("-" = standard input): appended to `out`, whose
 * maximum is set to VERIFY_INPUT_MAX. Refuses links that lead out, devices and FIFOs. */
int verify_read(const struct verify_args *args, const char *path, struct buf *out, struct err *err);
/* The names of regular files beneath the root that match a pattern of shell(7) kind, sorted;
 * "**" stands for any number of directories. Links are not followed. NULL-terminated, one
 * allocation each; verify_names_done(). At most VERIFY_NAMES_MAX: more is an error. */
#define VERIFY_NAMES_MAX 100000u
int verify_glob(const struct verify_args *args, const char *pattern, char ***names, size_t *count,
                struct err *err);
void verify_names_done(char **names, size_t count);
