/* A workspace that changes: all or nothing, also when the process is killed at any system call. */
#include "undo.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

struct fixture {
    char base[64], ws[80], journal[80];
    int root;
};

static int drop(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int open_up(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)at;
    return type == FTW_D ? chmod(path, 0700) : 0;
}

static int drop_blob(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    return type == FTW_F && strstr(path, "/blobs/") != NULL && at->level > 1 ? remove(path) : 0;
}

static void wipe(const char *path) {
    nftw(path, open_up, 16, FTW_PHYS);
    nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const struct fixture *f, const char *name, const char *text, mode_t mode) {
    int fd = openat(f->root, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* The tree that every test begins with. */
static void fill(struct fixture *f) {
    struct timespec times[2] = {{.tv_sec = 1000000, .tv_nsec = 5},
                                {.tv_sec = 1000000, .tv_nsec = 5}};

    wipe(f->ws);
    assert_int_equal(mkdir(f->ws, 0755), 0);
    f->root = open(f->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(f->root, "dir", 0755);
    mkdirat(f->root, "dir/sub", 0750);
    mkdirat(f->root, "empty", 0700);
    put(f, "a", "old a", 0640);
    put(f, "b", "old b", 0755);
    put(f, "dir/c", "old c", 0600);
    put(f, "dir/sub/d", "old d", 0444);
    symlinkat("a", f->root, "link");
    utimensat(f->root, "a", times, 0);
}

static int setup(void **state) {
    static struct fixture f;

    snprintf(f.base, sizeof(f.base), "/tmp/unit-undo.XXXXXX");
    assert_non_null(mkdtemp(f.base));
    snprintf(f.ws, sizeof(f.ws), "%s/ws", f.base);
    snprintf(f.journal, sizeof(f.journal), "%s/journal", f.base);
    fill(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    close(f->root);
    wipe(f->base);
    return 0;
}

static struct undo *journal(const struct fixture *f, struct err *e) {
    struct undo_options o = {.root = f->root, .path = f->ws, .journal = f->journal};

    return undo_open(&o, e);
}

#define TREE_MAX 32768u

static void look_at(int dir, const char *path, char *text) {
    struct dirent **names = NULL;
    int n = scandirat(dir, ".", &names, NULL, alphasort);

    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        char full[300], inside[200] = "";
        struct stat st;
        int fd;

        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
            snprintf(full, sizeof(full), "%s/%s", path, name);
            fd = openat(dir, name, O_RDONLY | O_NOFOLLOW);
            if (S_ISREG(st.st_mode))
                assert_true(read(fd, inside, sizeof(inside) - 1) >= 0);
            if (S_ISLNK(st.st_mode))
                assert_true(readlinkat(dir, name, inside, sizeof(inside) - 1) > 0);
            snprintf(text + strlen(text), TREE_MAX - strlen(text), "%s %o %s\n", full,
                     (unsigned)st.st_mode, inside);
            if (S_ISDIR(st.st_mode))
                look_at(fd, full, text);
            if (fd >= 0)
                close(fd);
        }
        free(names[i]);
    }
    free(names);
}

/* Everything about the tree but times, as text. */
static char *look(const struct fixture *f) {
    char *text = calloc(1, TREE_MAX);

    look_at(f->root, ".", text);
    return text;
}

struct contents {
    int fd;
    size_t len;
    struct undo_change change[16];
    size_t count;
};

static void change(struct contents *c, const char *path, enum undo_type type, mode_t mode,
                   const char *text) {
    struct undo_change *one = &c->change[c->count++];

    *one = (struct undo_change){.path = path, .any_before = true, .fd = c->fd, .offset = c->len};
    one->after.type = type;
    one->after.mode = mode;
    if (type == UNDO_LINK)
        one->after.target = text;
    if (type != UNDO_FILE)
        return;
    one->after.size = strlen(text);
    crypto_hash_sha256(one->after.sha256, (const unsigned char *)text, strlen(text));
    assert_int_equal(write(c->fd, text, strlen(text)), strlen(text));
    c->len += strlen(text);
}

/* One of each kind. */
static void changes(struct contents *c, const struct fixture *f) {
    *c = (struct contents){.fd = open(f->base, O_TMPFILE | O_RDWR, 0600)};
    assert_true(c->fd >= 0);
    change(c, "a", UNDO_FILE, 0600, "new a");
    change(c, "b", UNDO_LINK, 0, "dir");
    change(c, "new/deep/file", UNDO_FILE, 0751, "created");
    change(c, "dir/sub/d", UNDO_ABSENT, 0, NULL);
    change(c, "dir/sub", UNDO_ABSENT, 0, NULL);
    change(c, "dir/c", UNDO_ABSENT, 0, NULL);
    change(c, "dir", UNDO_FILE, 0644, "was a directory");
    change(c, "empty", UNDO_DIR, 0755, NULL);
    change(c, "link", UNDO_DIR, 0700, NULL);
    change(c, "link/in", UNDO_FILE, 0644, "");
}

static int apply(struct undo *u, struct contents *c, struct undo_result *r, struct err *e) {
    struct undo_set set = {.label = "test", .by = "exec", .session = "s"};

    set.changes = c->change;
    set.count = c->count;
    return apply_changeset(u, &set, r, e);
}

static void expect(const struct fixture *f, const char *tree) {
    char *now = look(f);

    assert_string_equal(now, tree);
    free(now);
}

static void test_undo_and_redo_bring_everything_back(void **state) {
    struct fixture *f = *state;
    struct contents c;
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo_choice newest = {.id = NULL};
    struct undo *u = journal(f, &e);
    char *before = look(f), *after;
    struct stat st;

    if (u == NULL)
        fail_msg("%s", e.text);
    changes(&c, f);
    unit_works(apply(u, &c, &r, &e), e);
    assert_int_equal(r.applied, c.count);
    free(r.outcomes);
    after = look(f);
    assert_string_not_equal(before, after);
    assert_non_null(strstr(after, "./new/deep/file 100751 created"));
    assert_non_null(strstr(after, "./dir 100644 was a directory"));
    assert_non_null(strstr(after, "./b 120777 dir"));
    for (int round = 0; round < 3; round++) {
        unit_works(undo_undo(u, &newest, &r, &e), e);
        assert_int_equal(r.conflicts + r.refused, 0);
        free(r.outcomes);
        expect(f, before);
        fstatat(f->root, "a", &st, 0);
        assert_int_equal(st.st_mtim.tv_sec, 1000000);
        unit_works(undo_redo(u, &newest, &r, &e), e);
        assert_int_equal(r.conflicts + r.refused, 0);
        free(r.outcomes);
        expect(f, after);
    }
    unit_fails(undo_redo(u, &newest, &r, &e), e, ERR_STATE);
    undo_close(u);
    close(c.fd);
    free(before);
    free(after);
}

static void test_what_somebody_changed_meanwhile_is_not_overwritten(void **state) {
    struct fixture *f = *state;
    struct contents c;
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo_choice newest = {.id = NULL};
    struct undo *u = journal(f, &e);
    char *before, *now;

    changes(&c, f);
    unit_works(apply(u, &c, &r, &e), e);
    free(r.outcomes);
    put(f, "a", "mine", 0600);
    put(f, "new/mine", "mine", 0600);
    unit_works(undo_undo(u, &newest, &r, &e), e);
    assert_int_equal(r.conflicts, 1);
    assert_int_equal(r.refused, 1); /* new, which is not empty */
    free(r.outcomes);
    now = look(f);
    assert_non_null(strstr(now, "./a 100600 mine"));
    assert_non_null(strstr(now, "./new/mine 100600 mine"));
    assert_null(strstr(now, "./new/deep/file"));
    free(now);
    /* A caller who believes something else is there changes nothing at all. */
    c.count = 0;
    change(&c, "b", UNDO_FILE, 0600, "x");
    change(&c, "a", UNDO_FILE, 0600, "y");
    c.change[1].any_before = false;
    c.change[1].before.type = UNDO_ABSENT;
    before = look(f);
    unit_works(apply(u, &c, &r, &e), e);
    assert_int_equal(r.conflicts, 1);
    assert_int_equal(r.applied, 0);
    assert_string_equal(r.id, "");
    free(r.outcomes);
    expect(f, before);
    free(before);
    undo_close(u);
    close(c.fd);
}

static void test_nothing_leads_out(void **state) {
    static const char *const paths[] = {"../x", "/etc/x", "a/../../x", "", "a//b", "./a", "a/."};
    struct fixture *f = *state;
    struct contents c = {.fd = -1};
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo *u = journal(f, &e);

    for (size_t i = 0; i < UNIT_COUNT(paths); i++) {
        c.count = 0;
        change(&c, paths[i], UNDO_ABSENT, 0, NULL);
        unit_fails(apply(u, &c, &r, &e), e, ERR_INVALID);
    }
    symlinkat("/tmp", f->root, "out");
    c.count = 0;
    change(&c, "out/unit-undo-escaped", UNDO_DIR, 0700, NULL);
    unit_works(apply(u, &c, &r, &e), e);
    assert_int_equal(r.refused, 1);
    assert_int_equal(r.outcomes[0], UNDO_REFUSED);
    free(r.outcomes);
    assert_int_equal(access("/tmp/unit-undo-escaped", F_OK), -1);
    undo_close(u);
}

static void test_contents_that_are_not_what_was_promised_change_nothing(void **state) {
    struct fixture *f = *state;
    struct contents c;
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo *u = journal(f, &e);
    char *before = look(f);

    changes(&c, f);
    assert_int_equal(pwrite(c.fd, "X", 1, (off_t)c.change[2].offset), 1);
    unit_fails(apply(u, &c, &r, &e), e, ERR_INVALID);
    expect(f, before);
    free(before);
    undo_close(u);
    close(c.fd);
}

/* More than are made durable together, and one of the last is not what was promised: by then files
 * of the first batch have their new contents. */
#define MANY 300u

static void test_more_files_than_are_written_at_once(void **state) {
    struct fixture *f = *state;
    struct undo_change many[MANY];
    char names[MANY][16], text[MANY][16], *was, *is;
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo_choice newest = {.id = NULL};
    struct undo_set set = {
        .label = "many", .by = "exec", .session = "s", .changes = many, .count = MANY};
    struct undo *u = journal(f, &e);
    int fd = open(f->base, O_TMPFILE | O_RDWR, 0600);

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "dir/f%03u", i);
        snprintf(text[i], sizeof(text[i]), "new %04u", i);
        put(f, names[i], "old", 0644);
        many[i] = (struct undo_change){.path = names[i], .any_before = true, .fd = fd};
        many[i].offset = (uint64_t)i * 8;
        many[i].after = (struct undo_state){.type = UNDO_FILE, .mode = 0600, .size = 8};
        crypto_hash_sha256(many[i].after.sha256, (unsigned char *)text[i], 8);
        assert_int_equal(pwrite(fd, text[i], 8, (off_t)many[i].offset), 8);
    }
    was = look(f);
    assert_int_equal(pwrite(fd, "X", 1, 8 * (MANY - 1)), 1);
    unit_fails(apply_changeset(u, &set, &r, &e), e, ERR_INVALID);
    expect(f, was);
    assert_int_equal(pwrite(fd, "n", 1, 8 * (MANY - 1)), 1);
    unit_works(apply_changeset(u, &set, &r, &e), e);
    assert_int_equal(r.applied, MANY);
    free(r.outcomes);
    is = look(f);
    for (unsigned i = 0; i < MANY; i++)
        assert_non_null(strstr(is, text[i]));
    assert_null(strstr(is, ".pinfold-"));
    unit_works(undo_undo(u, &newest, &r, &e), e);
    free(r.outcomes);
    expect(f, was);
    free(was);
    free(is);
    undo_close(u);
    close(fd);
}

static bool no(void *arg, size_t n) {
    *(size_t *)arg = n;
    return false;
}

static void test_many_deletions_are_asked_for(void **state) {
    struct fixture *f = *state;
    size_t asked = 0;
    struct contents c = {.fd = -1};
    struct undo_set set = {.label = "", .deletions_max = 1, .confirm = no, .arg = &asked};
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo *u = journal(f, &e);

    change(&c, "a", UNDO_ABSENT, 0, NULL);
    change(&c, "b", UNDO_ABSENT, 0, NULL);
    set.changes = c.change;
    set.count = c.count;
    unit_fails(apply_changeset(u, &set, &r, &e), e, ERR_STATE);
    assert_int_equal(asked, 2);
    assert_int_equal(faccessat(f->root, "a", F_OK, 0), 0);
    undo_close(u);
}

static bool count_bad(void *arg, const char *id, const char *why) {
    (void)id;
    (void)why;
    (*(size_t *)arg)++;
    return true;
}

static void test_verify_and_collect(void **state) {
    struct fixture *f = *state;
    struct contents c;
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo *u = journal(f, &e);
    size_t bad = 0;
    uint64_t freed = 1;

    changes(&c, f);
    unit_works(apply(u, &c, &r, &e), e);
    free(r.outcomes);
    unit_works(undo_verify(u, count_bad, &bad, &e), e);
    assert_int_equal(bad, 0);
    unit_works(undo_collect(u, &freed, &e), e);
    assert_int_equal(freed, 0);
    unit_works(undo_verify(u, count_bad, &bad, &e), e);
    assert_int_equal(bad, 0);
    nftw(f->journal, drop_blob, 16, FTW_PHYS);
    unit_works(undo_verify(u, count_bad, &bad, &e), e);
    assert_int_equal(bad, 4);
    undo_close(u);
    close(c.fd);
}

static bool count_entries(void *arg, const struct undo_entry *entry) {
    (void)entry;
    (*(size_t *)arg)++;
    return true;
}

static void test_the_oldest_entries_go_first(void **state) {
    struct fixture *f = *state;
    struct undo_options o = {
        .root = f->root, .path = f->ws, .journal = f->journal, .bytes_max = 50};
    struct contents c = {.fd = open(f->base, O_TMPFILE | O_RDWR, 0600)};
    struct undo_choice newest = {.id = NULL};
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    struct undo *u = undo_open(&o, &e);
    char text[40];
    size_t entries = 0, bad = 0;
    uint64_t freed = 0;

    assert_non_null(u);
    /* Each replaces 20 bytes that are only in the journal then. */
    for (unsigned i = 0; i < 10; i++) {
        c.count = 0;
        snprintf(text, sizeof(text), "twenty bytes, no. %02u", i);
        change(&c, "a", UNDO_FILE, 0600, text);
        unit_works(apply(u, &c, &r, &e), e);
        free(r.outcomes);
    }
    unit_works(undo_collect(u, &freed, &e), e);
    assert_true(freed > 0);
    unit_works(undo_list(u, count_entries, &entries, &e), e);
    assert_int_equal(entries, 2);
    unit_works(undo_verify(u, count_bad, &bad, &e), e);
    assert_int_equal(bad, 0);
    unit_works(undo_undo(u, &newest, &r, &e), e);
    assert_int_equal(r.applied, 1);
    free(r.outcomes);
    undo_close(u);
    close(c.fd);
}

/* ---- killed ---- */

enum act { ACT_APPLY, ACT_UNDO };

static void child(const struct fixture *f, struct contents *c, enum act act) {
    struct undo_result r = {.applied = 0};
    struct undo_choice newest = {.id = NULL};
    struct undo *u;

    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    u = journal(f, NULL);
    if (u != NULL && act == ACT_APPLY)
        (void)apply(u, c, &r, NULL);
    else if (u != NULL)
        (void)undo_undo(u, &newest, &r, NULL);
    _exit(0);
}

/* Does the call that the child is about to make change anything on a disk? */
static bool changes_something(pid_t pid) {
    static const long calls[] = {SYS_write,     SYS_renameat, SYS_renameat2, SYS_unlinkat,
                                 SYS_mkdirat,   SYS_linkat,   SYS_symlinkat, SYS_fchmod,
                                 SYS_rename,    SYS_mkdir,    SYS_fsync,     SYS_fdatasync,
                                 SYS_utimensat, SYS_ftruncate};
    struct __ptrace_syscall_info info = {.op = 0};

    ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return false;
    if (info.entry.nr == SYS_openat)
        return (info.entry.args[2] & O_CREAT) != 0;
    for (size_t i = 0; i < UNIT_COUNT(calls); i++)
        if (info.entry.nr == (uint64_t)calls[i])
            return true;
    return false;
}

/* Runs it and kills it before the call number `at` of those that change something; true = it was
 * over before. */
static bool run_until(const struct fixture *f, struct contents *c, enum act act, unsigned at) {
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0)
        child(f, c, act);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    while (at > 0) {
        ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status))
            return true;
        at -= changes_something(pid);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return false;
}

static void killed(struct fixture *f, enum act act) {
    struct contents c;
    struct err e = {0};
    struct undo_result r = {.applied = 0};
    char *old = look(f), *new = NULL;
    size_t seen[2] = {0, 0};
    bool over = false;

    changes(&c, f);
    for (unsigned at = 1; !over; at++) {
        struct undo *u;
        char *now;

        close(f->root);
        wipe(f->journal);
        fill(f);
        if (act == ACT_UNDO) {
            u = journal(f, &e);
            unit_works(apply(u, &c, &r, &e), e);
            free(r.outcomes);
            undo_close(u);
            new = new != NULL ? new : look(f);
        }
        over = run_until(f, &c, act, at);
        u = journal(f, &e);
        if (u == NULL)
            fail_msg("stop %u: %s", at, e.text);
        undo_close(u);
        now = look(f);
        if (new == NULL && strcmp(now, old) != 0)
            new = strdup(now);
        seen[0] += strcmp(now, old) == 0;
        seen[1] += new != NULL &&strcmp(now, new) == 0;
        if (strcmp(now, old) != 0 && strcmp(now, new) != 0)
            fail_msg("stop %u: neither before nor after:\n%s", at, now);
        free(now);
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    close(c.fd);
    free(old);
    free(new);
}

static void test_killed_at_any_call_of_an_apply(void **state) {
    killed(*state, ACT_APPLY);
}

static void test_killed_at_any_call_of_an_undo(void **state) {
    killed(*state, ACT_UNDO);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_undo_and_redo_bring_everything_back),
        TEST(test_what_somebody_changed_meanwhile_is_not_overwritten),
        TEST(test_nothing_leads_out),
        TEST(test_contents_that_are_not_what_was_promised_change_nothing),
        TEST(test_more_files_than_are_written_at_once),
        TEST(test_many_deletions_are_asked_for),
        TEST(test_verify_and_collect),
        TEST(test_the_oldest_entries_go_first),
        TEST(test_killed_at_any_call_of_an_apply),
        TEST(test_killed_at_any_call_of_an_undo),
    };
    if (sodium_init() < 0)
        return 1;
    umask(022);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
