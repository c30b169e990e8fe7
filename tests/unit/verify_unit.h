/* Verifiers on files of a directory that is made for the test. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"
#include "verify.h"

struct verify_unit {
    char path[64];
    struct verify_args args;
    struct verify_report report;
};

static inline int verify_unit_begin(void **state) {
    struct verify_unit *u = calloc(1, sizeof(*u));
    assert_non_null(u);
    snprintf(u->path, sizeof(u->path), "/tmp/pinfold-verify-XXXXXX");
    assert_non_null(mkdtemp(u->path));
    u->args.root = open(u->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(u->args.root >= 0);
    *state = u;
    return 0;
}

static inline int verify_unit_remove(const char *path, const struct stat *st, int type,
                                     struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int verify_unit_end(void **state) {
    struct verify_unit *u = *state;
    assert_int_equal(nftw(u->path, verify_unit_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
    verify_report_done(&u->report);
    close(u->args.root);
    free(u);
    return 0;
}

static inline void verify_unit_file(struct verify_unit *u, const char *name, const char *text) {
    int fd = openat(u->args.root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* Runs a verifier with arguments "name=value", NULL at the end. */
static inline enum verify_verdict verify_unit_run(struct verify_unit *u, const char *verifier,
                                                  const char *const *arguments) {
    static char names[16][64];
    const struct verifier *v = verify_find(verifier);
    assert_non_null(v);
    verify_report_done(&u->report);
    u->args.count = 0;
    for (size_t i = 0; arguments[i] != NULL; i++) {
        const char *equals = strchr(arguments[i], '=');
        assert_true(i < UNIT_COUNT(names) && equals != NULL);
        snprintf(names[i], sizeof(names[i]), "%.*s", (int)(equals - arguments[i]), arguments[i]);
        u->args.items[u->args.count++] = (struct verify_arg){.name = names[i], .value = equals + 1};
    }
    verify_run(v, &u->args, &u->report);
    return u->report.verdict;
}

#define verify_unit(u, verifier, ...)                                                              \
    verify_unit_run((u), (verifier), (const char *const[]){__VA_ARGS__, NULL})

/* A failure "name|file|line|message", where file may be empty. */
static inline void verify_unit_failed(const struct verify_unit *u, size_t n, const char *want) {
    char have[VERIFY_TEXT_MAX + 1024];
    assert_true(n < u->report.count);
    const struct verify_failure *f = &u->report.failures[n];
    snprintf(have, sizeof(have), "%s|%s|%llu|%s", f->name, f->file != NULL ? f->file : "",
             (unsigned long long)f->line, f->message);
    assert_string_equal(have, want);
}
