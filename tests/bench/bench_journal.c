#include "bench_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench_child.h"
#include "clock.h"
#include "fd.h"
#include "undo.h"

#define BENCH_JOURNAL_PATH 600

struct bench_journal {
    char base[512], tree[BENCH_JOURNAL_PATH], copy[BENCH_JOURNAL_PATH], undo[BENCH_JOURNAL_PATH];
    char names[BENCH_JOURNAL_FILES][16];
    struct undo_change changes[BENCH_JOURNAL_FILES];
    int root, spool;
    struct undo *journal;
};

/* New contents for every file, in one spool file, as the client has them from a sandbox. */
static int bench_journal_contents(struct bench_journal *j, unsigned lap, struct err *err) {
    unsigned char data[BENCH_JOURNAL_FILE_BYTES];
    if (ftruncate(j->spool, 0) < 0 || lseek(j->spool, 0, SEEK_SET) < 0)
        return err_sys(err, "empty the spool file");
    for (unsigned i = 0; i < BENCH_JOURNAL_FILES; i++) {
        struct undo_change *c = &j->changes[i];
        struct undo_state before = c->after;
        randombytes_buf_deterministic(
            data, sizeof(data),
            (const unsigned char[randombytes_SEEDBYTES]){(unsigned char)lap, (unsigned char)i, 1});
        *c = (struct undo_change){.path = j->names[i],
                                  .before = before,
                                  .any_before = lap == 0,
                                  .fd = j->spool,
                                  .offset = (uint64_t)i * sizeof(data),
                                  .after = {.type = UNDO_FILE, .mode = 0644, .size = sizeof(data)}};
        crypto_hash_sha256(c->after.sha256, data, sizeof(data));
        if (fd_write_all(j->spool, (const char *)data, sizeof(data), err) < 0)
            return -1;
    }
    return 0;
}

static int bench_journal_change(struct bench_journal *j, struct bench_series *times,
                                struct err *err) {
    const struct undo_set set = {.label = "bench",
                                 .by = "exec",
                                 .session = "",
                                 .changes = j->changes,
                                 .count = BENCH_JOURNAL_FILES};
    struct undo_result result = {0};
    uint64_t start = clock_mono_ns();
    if (apply_changeset(j->journal, &set, &result, err) < 0)
        return -1;
    uint64_t took = clock_mono_ns() - start;
    size_t applied = result.applied;
    free(result.outcomes);
    if (applied != BENCH_JOURNAL_FILES)
        return err_set(err, ERR_STATE, 0, "%zu of %u files were changed", applied,
                       BENCH_JOURNAL_FILES);
    return times == NULL ? 0 : bench_series_add(times, took, err);
}

static int bench_journal_sync(int dir, const char *name, struct err *err) {
    fd_cleanup int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? err_sys(err, "make %s durable", name) : 0;
}

static int bench_journal_copy(struct bench_journal *j, unsigned lap, struct bench_series *times,
                              struct err *err) {
    /* Copies stay: ext4 goes to some length not to use an inode again that was just removed. */
    snprintf(j->copy, sizeof(j->copy), "%s/copy%u", j->base, lap);
    char *argv[] = {"/bin/cp", "-a", j->tree, j->copy, NULL};
    uint64_t start = clock_mono_ns();
    if (bench_child_run(argv, NULL, err) < 0)
        return -1;
    fd_cleanup int dir = open(j->copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "open the copy");
    for (unsigned i = 0; i < BENCH_JOURNAL_FILES; i++)
        if (bench_journal_sync(dir, j->names[i], err) < 0)
            return -1;
    if (bench_journal_sync(dir, ".", err) < 0)
        return -1;
    return bench_series_add(times, clock_mono_ns() - start, err);
}

static int bench_journal_open(struct bench_journal *j, const char *scratch, struct err *err) {
    int n = snprintf(j->base, sizeof(j->base), "%s/journal", scratch);
    if (n < 0 || (size_t)n >= sizeof(j->base))
        return err_set(err, ERR_LIMIT, 0, "the path %s is too long", scratch);
    snprintf(j->tree, sizeof(j->tree), "%s/tree", j->base);
    snprintf(j->undo, sizeof(j->undo), "%s/undo", j->base);
    if (mkdir(j->base, 0700) < 0 || mkdir(j->tree, 0755) < 0)
        return err_sys(err, "make %s", j->base);
    for (unsigned i = 0; i < BENCH_JOURNAL_FILES; i++)
        snprintf(j->names[i], sizeof(j->names[i]), "file%03u.txt", i);
    j->root = open(j->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    j->spool = open(j->base, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (j->root < 0 || j->spool < 0)
        return err_sys(err, "open %s", j->base);
    const struct undo_options o = {.root = j->root, .path = j->tree, .journal = j->undo};
    j->journal = undo_open(&o, err);
    return j->journal == NULL ? -1 : 0;
}

int bench_journal_run(const char *scratch, unsigned laps, struct bench_journal_result *r,
                      struct err *err) {
    struct bench_journal *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    j->root = j->spool = -1;
    int rc = bench_journal_open(j, scratch, err);
    if (rc == 0) /* The first contents. */
        rc = bench_journal_contents(j, 0, err);
    if (rc == 0)
        rc = bench_journal_change(j, NULL, err);
    for (unsigned lap = 1; rc == 0 && lap <= laps; lap++) {
        rc = bench_journal_copy(j, lap, &r->copy, err);
        if (rc == 0)
            rc = bench_journal_contents(j, lap, err);
        if (rc == 0)
            rc = bench_journal_change(j, &r->change, err);
    }
    undo_close(j->journal);
    fd_close(&j->spool);
    fd_close(&j->root);
    free(j);
    return rc;
}
