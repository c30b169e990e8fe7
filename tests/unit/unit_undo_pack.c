/* Contents that share a file of the journal: found, shared, checked, thrown away, and never half
 * there, whichever thread is at work when the process is killed. And who only reads need not wait.
 */
#include "undo.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#define FILES 12u
#define CONTENTS 6u /* of them, that differ */
#define TEXT_MAX 32

struct fixture {
    char base[64], ws[80], journal[80], blobs[200];
    int root, spool;
    char names[FILES][8], text[FILES][TEXT_MAX];
    struct undo_change changes[FILES];
};

static int drop(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void put(const struct fixture *f, const char *name, const void *data, size_t len) {
    int fd = openat(f->root, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

/* "old 03" and "new 03": each is there twice. */
static void fill(struct fixture *f) {
    nftw(f->ws, drop, 16, FTW_DEPTH | FTW_PHYS);
    nftw(f->journal, drop, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(f->ws, 0755), 0);
    f->root = open(f->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(f->names[i], sizeof(f->names[i]), "f%02u", i);
        snprintf(f->text[i], TEXT_MAX, "old %02u", i % CONTENTS);
        put(f, f->names[i], f->text[i], strlen(f->text[i]));
    }
}

/* What the files shall have, instead of "old NN". */
static void want(struct fixture *f, const char *word) {
    for (unsigned i = 0; i < FILES; i++) {
        struct undo_change *c = &f->changes[i];
        char text[TEXT_MAX];
        size_t len = (size_t)snprintf(text, sizeof(text), "%s %02u", word, i % CONTENTS);

        *c = (struct undo_change){.path = f->names[i], .any_before = true, .fd = f->spool};
        c->offset = (uint64_t)i * TEXT_MAX;
        c->after = (struct undo_state){.type = UNDO_FILE, .mode = 0644, .size = len};
        crypto_hash_sha256(c->after.sha256, (const unsigned char *)text, len);
        assert_int_equal(pwrite(f->spool, text, len, (off_t)c->offset), len);
    }
}

static bool all_are(const struct fixture *f, const char *word) {
    for (unsigned i = 0; i < FILES; i++) {
        char text[TEXT_MAX] = "", expected[TEXT_MAX];
        int fd = openat(f->root, f->names[i], O_RDONLY);

        snprintf(expected, sizeof(expected), "%s %02u", word, i % CONTENTS);
        assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
        close(fd);
        if (strcmp(text, expected) != 0)
            return false;
    }
    return true;
}

static int setup(void **state) {
    static struct fixture f;

    snprintf(f.base, sizeof(f.base), "/tmp/unit-pack.XXXXXX");
    assert_non_null(mkdtemp(f.base));
    snprintf(f.ws, sizeof(f.ws), "%s/ws", f.base);
    snprintf(f.journal, sizeof(f.journal), "%s/journal", f.base);
    f.spool = open(f.base, O_TMPFILE | O_RDWR, 0600);
    fill(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    close(f->root);
    close(f->spool);
    nftw(f->base, drop, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static struct undo *journal(const struct fixture *f, bool reads, struct err *e) {
    struct undo_options o = {.root = f->root, .path = f->ws, .journal = f->journal, .reads = reads};

    return undo_open(&o, e);
}

static int apply(struct fixture *f, struct undo *u, const char *word, struct err *e) {
    struct undo_set set = {
        .label = word, .by = "exec", .session = "s", .changes = f->changes, .count = FILES};
    struct undo_result r = {.outcomes = NULL};
    int rc;

    want(f, word);
    set.rules = "0123abcd";
    rc = apply_changeset(u, &set, &r, e);
    free(r.outcomes);
    return rc;
}

static int back(struct undo *u, struct err *e) {
    const struct undo_choice newest = {.id = NULL};
    struct undo_result r = {.outcomes = NULL};
    int rc = undo_undo(u, &newest, &r, e);

    free(r.outcomes);
    return rc;
}

/* The names in JOURNAL/WORKSPACE/blobs, and how many files they are. */
static size_t blobs(struct fixture *f, size_t *files) {
    struct dirent *d;
    ino_t seen[64];
    size_t names = 0;
    DIR *dir = opendir(f->journal);

    while ((d = readdir(dir)) != NULL)
        if (d->d_name[0] != '.')
            snprintf(f->blobs, sizeof(f->blobs), "%s/%.64s/blobs", f->journal, d->d_name);
    closedir(dir);
    dir = opendir(f->blobs);
    *files = 0;
    while ((d = readdir(dir)) != NULL) {
        size_t i = 0;

        if (d->d_name[0] == '.')
            continue;
        names++;
        while (i < *files && seen[i] != d->d_ino)
            i++;
        if (i == *files)
            seen[(*files)++] = d->d_ino;
    }
    closedir(dir);
    return names;
}

static bool count_bad(void *arg, const char *id, const char *why) {
    (void)id;
    assert_non_null(strstr(why, "missing or damaged"));
    (*(size_t *)arg)++;
    return true;
}

static size_t bad(struct undo *u) {
    struct err e = {0};
    size_t n = 0;

    unit_works(undo_verify(u, count_bad, &n, &e), e);
    return n;
}

static void test_contents_share_a_file_and_each_is_there_once(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    struct undo *u = journal(f, false, &e);
    size_t files;

    unit_works(apply(f, u, "new", &e), e);
    assert_true(all_are(f, "new"));
    assert_int_equal(blobs(f, &files), CONTENTS);
    assert_int_equal(files, 1);
    assert_int_equal(bad(u), 0);
    /* What is there already is not stored again. */
    unit_works(back(u, &e), e);
    assert_true(all_are(f, "old"));
    assert_int_equal(blobs(f, &files), 2 * CONTENTS);
    unit_works(apply(f, u, "more", &e), e);
    assert_int_equal(blobs(f, &files), 2 * CONTENTS);
    assert_int_equal(files, 2);
    unit_works(back(u, &e), e);
    assert_true(all_are(f, "old"));
    undo_close(u);
}

static void test_a_journal_with_a_file_for_each_content_is_read(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    struct undo *u = journal(f, false, &e);
    size_t files;

    unit_works(apply(f, u, "new", &e), e);
    blobs(f, &files);
    for (unsigned i = 0; i < CONTENTS; i++) {
        char path[300], hex[65];
        unsigned char hash[32];
        FILE *out;

        crypto_hash_sha256(hash, (unsigned char *)f->text[i], strlen(f->text[i]));
        sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
        snprintf(path, sizeof(path), "%s/%s.p", f->blobs, hex);
        assert_int_equal(unlink(path), 0);
        path[strlen(path) - 2] = '\0';
        out = fopen(path, "w");
        assert_non_null(out);
        fputs(f->text[i], out);
        fclose(out);
    }
    assert_int_equal(bad(u), 0);
    unit_works(back(u, &e), e);
    assert_true(all_are(f, "old"));
    undo_close(u);
}

static void test_a_damaged_pack_is_found_and_changes_nothing(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    struct undo *u = journal(f, false, &e);
    char path[600];
    struct dirent *d;
    size_t files;
    DIR *dir;
    int fd = -1;

    unit_works(apply(f, u, "new", &e), e);
    blobs(f, &files);
    dir = opendir(f->blobs);
    while (fd < 0 && (d = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", f->blobs, d->d_name);
        fd = d->d_name[0] != '.' ? open(path, O_RDWR) : -1;
    }
    closedir(dir);
    assert_int_equal(pwrite(fd, "X", 1, 2), 1); /* in the first content, which two files had */
    assert_int_equal(bad(u), 2);
    unit_fails(back(u, &e), e, ERR_INVALID);
    assert_true(all_are(f, "new"));
    /* A table that leads out of the file is none. */
    assert_int_equal(ftruncate(fd, 60), 0);
    assert_int_equal(bad(u), FILES);
    assert_int_equal(back(u, &e), -1);
    assert_true(all_are(f, "new"));
    close(fd);
    undo_close(u);
}

static void test_contents_around_the_size_of_what_is_packed(void **state) {
    static const size_t sizes[] = {0, 1, 131071, 131072, 131073, 300000};
    struct fixture *f = *state;
    struct err e = {0};
    struct undo *u = journal(f, false, &e);
    static char data[300000], now[300001];

    for (size_t i = 0; i < UNIT_COUNT(sizes); i++) {
        int fd;

        memset(data, 'a' + (int)i, sizes[i]);
        put(f, "f00", data, sizes[i]);
        unit_works(apply(f, u, "new", &e), e);
        assert_int_equal(bad(u), 0);
        unit_works(back(u, &e), e);
        fd = openat(f->root, "f00", O_RDONLY);
        assert_int_equal(read(fd, now, sizeof(now)), sizes[i]);
        assert_memory_equal(now, data, sizes[i]);
        close(fd);
    }
    undo_close(u);
}

/* Are all blocks of the file another's, too? */
static bool is_shared(int fd) {
    union {
        struct fiemap map;
        uint8_t room[sizeof(struct fiemap) + 16 * sizeof(struct fiemap_extent)];
    } x = {.map = {.fm_length = UINT64_MAX, .fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = 16}};
    bool all = ioctl(fd, FS_IOC_FIEMAP, &x.map) == 0 && x.map.fm_mapped_extents > 0;

    for (uint32_t i = 0; all && i < x.map.fm_mapped_extents; i++)
        all = (x.map.fm_extents[i].fe_flags & FIEMAP_EXTENT_SHARED) != 0;
    return all;
}

/* Does this file system share blocks? It is asked here once more, without the journal. */
static bool can_share(const struct fixture *f, int fd) {
    int other = open(f->base, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    bool can = other >= 0 && ioctl(other, FICLONE, fd) == 0;

    close(other);
    return can;
}

static void test_contents_above_a_block_are_shared_where_the_file_system_can(void **state) {
    static const size_t sizes[] = {4096, 4097, 60000, 200000};
    struct fixture *f = *state;
    struct err e = {0};
    struct undo *u = journal(f, false, &e);
    static char data[200000];

    for (size_t i = 0; i < UNIT_COUNT(sizes); i++) {
        char hex[2 * 32 + 1], name[300];
        uint8_t hash[32];
        size_t files;
        int old, kept;

        memset(data, 'a' + (int)i, sizes[i]);
        put(f, "f00", data, sizes[i]);
        crypto_hash_sha256(hash, (const unsigned char *)data, sizes[i]);
        sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
        old = openat(f->root, "f00", O_RDONLY | O_CLOEXEC);
        assert_int_equal(fsync(old), 0);
        bool own = sizes[i] > 131072 || (sizes[i] > 4096 && can_share(f, old));
        unit_works(apply(f, u, "new", &e), e);
        blobs(f, &files);
        snprintf(name, sizeof(name), "%s/%s%s", f->blobs, hex, own ? "" : ".p");
        kept = open(name, O_RDONLY | O_CLOEXEC);
        assert_true(kept >= 0);
        assert_int_equal(own && is_shared(kept), own && can_share(f, old));
        close(kept);
        close(old);
        assert_int_equal(bad(u), 0);
        unit_works(back(u, &e), e);
    }
    undo_close(u);
}

static void test_a_pack_goes_with_the_last_entry_that_needs_it(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    struct undo_options o = {.root = f->root, .path = f->ws, .journal = f->journal};
    size_t files, names;
    uint64_t freed = 0;
    struct undo *u;

    /* Each content has 6 bytes: one pack fits, two do not. */
    o.bytes_max = 6 * CONTENTS + 10;
    u = undo_open(&o, &e);
    assert_non_null(u);
    unit_works(apply(f, u, "no1", &e), e);
    unit_works(apply(f, u, "no2", &e), e);
    unit_works(apply(f, u, "no3", &e), e);
    unit_works(undo_collect(u, &freed, &e), e);
    assert_int_equal(freed, 2 * 6 * CONTENTS);
    names = blobs(f, &files);
    assert_int_equal(names, CONTENTS);
    assert_int_equal(files, 1);
    assert_int_equal(bad(u), 0);
    unit_works(back(u, &e), e);
    assert_true(all_are(f, "no2"));
    undo_close(u);
}

/* ---- readers ---- */

struct seen {
    char label[8][16], rules[16];
    size_t count;
};

static bool see(void *arg, const struct undo_entry *entry) {
    struct seen *s = arg;

    snprintf(s->label[s->count++], 16, "%s", entry->label);
    snprintf(s->rules, sizeof(s->rules), "%s", entry->rules);
    return true;
}

static void test_who_only_reads_does_not_wait_and_sees_what_is_committed(void **state) {
    struct fixture *f = *state;
    struct err e = {0};
    struct undo *writer = journal(f, false, &e), *reader;
    struct seen s = {.count = 0};
    char path[300], text[TEXT_MAX] = "";
    size_t files;
    int fd;

    unit_works(apply(f, writer, "new", &e), e);
    blobs(f, &files);
    /* One that the writer has begun. */
    snprintf(path, sizeof(path), "%.*s/entries/ch_0000000002.todo",
             (int)(strlen(f->blobs) - strlen("/blobs")), f->blobs);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    reader = journal(f, true, &e);
    assert_non_null(reader);
    unit_works(undo_list(reader, see, &s, &e), e);
    assert_int_equal(s.count, 1);
    assert_string_equal(s.label[0], "new");
    assert_string_equal(s.rules, "0123abcd");
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    unit_works(apply(f, writer, "more", &e), e);
    s.count = 0;
    unit_works(undo_list(reader, see, &s, &e), e);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.label[0], "more");
    /* Just the one content of those that are in the file. */
    fd = undo_contents(reader, f->changes[3].after.sha256, NULL);
    assert_int_equal(fd, -1);
    want(f, "new");
    fd = undo_contents(reader, f->changes[3].after.sha256, &e);
    assert_int_equal(read(fd, text, sizeof(text)), 6);
    assert_string_equal(text, "new 03");
    close(fd);
    undo_close(reader);
    undo_close(writer);
}

/* ---- killed ---- */

static void child(struct fixture *f, bool undo) {
    struct undo *u;

    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    u = journal(f, false, NULL);
    if (u != NULL)
        (void)(undo ? back(u, NULL) : apply(f, u, "new", NULL));
    _exit(0);
}

/* Does the call that the thread is about to make change anything on a disk? */
static bool changes_something(pid_t thread) {
    static const long calls[] = {SYS_write,  SYS_renameat, SYS_unlinkat,  SYS_mkdirat,  SYS_linkat,
                                 SYS_fchmod, SYS_fsync,    SYS_fdatasync, SYS_utimensat};
    struct __ptrace_syscall_info info = {.op = 0};

    ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return false;
    if (info.entry.nr == SYS_openat)
        return (info.entry.args[2] & O_CREAT) != 0;
    for (size_t i = 0; i < UNIT_COUNT(calls); i++)
        if (info.entry.nr == (uint64_t)calls[i])
            return true;
    return false;
}

/* Runs it and kills it when any of its threads is about to make the call number `at` of those that
 * change something; true = it was over before. *threads: how many it had. */
static bool run_until(struct fixture *f, bool undo, unsigned at, unsigned *threads) {
    pid_t pid = fork(), one;
    int status;

    assert_true(pid >= 0);
    if (pid == 0)
        child(f, undo);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ptrace(PTRACE_SETOPTIONS, pid, NULL,
           PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
    for (one = pid; at > 0;) {
        ptrace(PTRACE_SYSCALL, one, NULL, NULL);
        one = waitpid(-1, &status, __WALL);
        if (one == pid && WIFEXITED(status))
            return true;
        if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80))
            at -= changes_something(one);
        *threads += WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_CLONE;
    }
    kill(pid, SIGKILL);
    while (waitpid(-1, &status, __WALL) != pid || WIFSTOPPED(status))
        continue;
    return false;
}

static void killed(struct fixture *f, bool undo) {
    size_t seen[2] = {0, 0};
    unsigned threads = 0;
    bool over = false;

    for (unsigned at = 1; !over; at++) {
        struct err e = {0};
        struct undo *u;

        close(f->root);
        fill(f);
        u = journal(f, false, &e);
        if (undo)
            unit_works(apply(f, u, "new", &e), e);
        undo_close(u);
        over = run_until(f, undo, at, &threads);
        u = journal(f, false, &e);
        if (u == NULL)
            fail_msg("stop %u: %s", at, e.text);
        assert_int_equal(bad(u), 0);
        undo_close(u);
        if (!all_are(f, "old") && !all_are(f, "new"))
            fail_msg("stop %u: neither before nor after", at);
        seen[0] += all_are(f, "old");
        seen[1] += all_are(f, "new");
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    assert_true(threads > 0);
}

static void test_killed_in_any_thread_of_an_apply(void **state) {
    killed(*state, false);
}

static void test_killed_in_any_thread_of_an_undo(void **state) {
    killed(*state, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_contents_share_a_file_and_each_is_there_once),
        TEST(test_a_journal_with_a_file_for_each_content_is_read),
        TEST(test_a_damaged_pack_is_found_and_changes_nothing),
        TEST(test_contents_around_the_size_of_what_is_packed),
        TEST(test_contents_above_a_block_are_shared_where_the_file_system_can),
        TEST(test_a_pack_goes_with_the_last_entry_that_needs_it),
        TEST(test_who_only_reads_does_not_wait_and_sees_what_is_committed),
        TEST(test_killed_in_any_thread_of_an_apply),
        TEST(test_killed_in_any_thread_of_an_undo),
    };
    if (sodium_init() < 0)
        return 1;
    umask(022);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
