/* What the tests of file operations share: a directory that belongs to the user of a jail, and an
 * operation that is run by that user in a process of its own, as process 1 of a jail forks it. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "fileop.h"
#include "fileop_main.h"
#include "unit.h"

#define FT_USER 1000
#define FT_OUT_MAX (256u << 20)
#define FT __attribute__((unused)) static

struct ft {
    char root[64];
    int upper;
    const char *chroot; /* the operation's root directory; NULL = ours */
    char paths[8][8192];
    unsigned next;
};

struct ft_item {
    struct fileop_record rec;
    char *path, *target;
    const char *data; /* of all DATA records behind it, when they are one piece: else NULL */
    size_t data_len;
};

struct ft_answer {
    struct buf bytes;
    struct ft_item *items; /* without DATA */
    size_t count;
    size_t data_total;
    int exit_code;
};

FT int ft_setup(void **state) {
    struct ft *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->upper = -1;
    memcpy(f->root, "/tmp/pinfold-fileop-XXXXXX", sizeof "/tmp/pinfold-fileop-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    assert_int_equal(chown(f->root, FT_USER, FT_USER), 0);
    *state = f;
    return 0;
}

FT int ft_unlink(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path);
    return 0;
}

FT int ft_teardown(void **state) {
    struct ft *f = *state;
    (void)nftw(f->root, ft_unlink, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    assert_int_equal(access(f->root, F_OK), -1);
    free(f);
    return 0;
}

/* The absolute path; "" = the directory itself. Eight at a time. */
FT char *ft_path(struct ft *f, const char *rel) {
    char *out = f->paths[f->next++ % 8];
    size_t root = strlen(f->root), len = strlen(rel);
    assert_true(root + len + 2 <= sizeof f->paths[0]);
    memcpy(out, f->root, root + 1);
    if (len > 0) {
        out[root] = '/';
        memcpy(out + root + 1, rel, len + 1);
    }
    return out;
}

FT void ft_own(const char *path) {
    assert_int_equal(lchown(path, FT_USER, FT_USER), 0);
}

FT void ft_file(struct ft *f, const char *rel, const char *text, mode_t mode) {
    char *path = ft_path(f, rel);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchown(fd, FT_USER, FT_USER), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

FT void ft_dir(struct ft *f, const char *rel, mode_t mode) {
    char *path = ft_path(f, rel);
    assert_int_equal(mkdir(path, 0700), 0);
    ft_own(path);
    assert_int_equal(chmod(path, mode), 0);
}

FT void ft_link(struct ft *f, const char *target, const char *rel) {
    char *path = ft_path(f, rel);
    assert_int_equal(symlink(target, path), 0);
    ft_own(path);
}

FT bool ft_there(struct ft *f, const char *rel) {
    struct stat st;
    return lstat(ft_path(f, rel), &st) == 0;
}

FT mode_t ft_mode(struct ft *f, const char *rel) {
    struct stat st;
    assert_int_equal(lstat(ft_path(f, rel), &st), 0);
    return st.st_mode;
}

/* The contents of a small file are `text`. */
FT void ft_holds(struct ft *f, const char *rel, const char *text) {
    char got[4096] = "";
    int fd = open(ft_path(f, rel), O_RDONLY | O_NOFOLLOW);
    assert_true(fd >= 0);
    ssize_t n = read(fd, got, sizeof got - 1);
    assert_true(n >= 0);
    close(fd);
    assert_string_equal(got, text);
}

/* Entries of a directory, hidden ones too. */
FT size_t ft_count(struct ft *f, const char *rel) {
    DIR *dir = opendir(ft_path(f, rel));
    size_t n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

/* Records for an operation's stdin. */
FT void ft_put(struct buf *in, struct fileop_record rec, const char *path, const char *target,
               const char *data) {
    rec.magic = FILEOP_MAGIC;
    rec.path_len = (uint32_t)strlen(path);
    rec.target_len = (uint32_t)strlen(target);
    if (rec.type == FILEOP_DATA && rec.data_len == 0)
        rec.data_len = (uint32_t)strlen(data);
    assert_int_equal(buf_append(in, &rec, sizeof rec, NULL), 0);
    assert_int_equal(buf_append(in, path, rec.path_len, NULL), 0);
    assert_int_equal(buf_append(in, target, rec.target_len, NULL), 0);
    assert_int_equal(buf_append(in, data, rec.data_len, NULL), 0);
}

FT void ft_put_data(struct buf *in, const char *data) {
    ft_put(in, (struct fileop_record){.type = FILEOP_DATA}, "", "", data);
}

FT void ft_put_end(struct buf *in) {
    ft_put(in, (struct fileop_record){.type = FILEOP_END}, "", "", "");
}

FT void ft_put_name(struct buf *in, const char *path) {
    ft_put(in, (struct fileop_record){.type = FILEOP_NAME}, path, "", "");
}

FT void ft_put_remove(struct buf *in, const char *path) {
    ft_put(in, (struct fileop_record){.type = FILEOP_REMOVE}, path, "", "");
}

FT void ft_put_kind(struct buf *in, enum fileop_kind kind, mode_t mode, const char *path,
                    const char *target) {
    ft_put(in,
           (struct fileop_record){.type = FILEOP_ENTRY,
                                  .kind = (uint32_t)kind,
                                  .mode = mode,
                                  .mtime_ns = 1500000000123456789},
           path, target, "");
}

FT void ft_put_file(struct buf *in, mode_t mode, const char *path, const char *text) {
    ft_put(in,
           (struct fileop_record){.type = FILEOP_ENTRY,
                                  .kind = FILEOP_FILE,
                                  .flags = FILEOP_CONTENT,
                                  .mode = mode,
                                  .mtime_ns = 1500000000123456789},
           path, "", "");
    if (*text)
        ft_put_data(in, text);
    ft_put_data(in, "");
}

FT void ft_free(struct ft_answer *a) {
    for (size_t i = 0; i < a->count; i++) {
        free(a->items[i].path);
        free(a->items[i].target);
    }
    free(a->items);
    buf_done(&a->bytes);
    *a = (struct ft_answer){0};
}

/* Takes the answer apart: every byte of it must be a part of a good record. */
FT void ft_parse(struct ft_answer *a) {
    for (size_t at = 0; at < a->bytes.len;) {
        struct fileop_record rec;
        const char *path, *target;
        struct err err = {0};
        int rc = fileop_take(a->bytes.data + at, a->bytes.len - at, &rec, &path, &target, &err);
        if (rc != 1)
            fail_msg("record at %zu of %zu: %d %s", at, a->bytes.len, rc, err.text);
        at += fileop_size(&rec);
        if (rec.type == FILEOP_DATA) {
            assert_true(a->count > 0);
            assert_true(rec.data_len <= a->bytes.len - at);
            struct ft_item *last = &a->items[a->count - 1];
            if (rec.data_len > 0)
                last->data = last->data_len ? NULL : a->bytes.data + at;
            last->data_len += rec.data_len;
            a->data_total += rec.data_len;
            at += rec.data_len;
            continue;
        }
        if ((a->count & (a->count - 1)) == 0) {
            a->items = realloc(a->items, (a->count ? a->count * 2 : 1) * sizeof *a->items);
            assert_non_null(a->items);
        }
        a->items[a->count++] = (struct ft_item){.rec = rec,
                                                .path = strndup(path, rec.path_len),
                                                .target = strndup(target, rec.target_len)};
    }
}

struct ft_process {
    pid_t op;
    int in, out; /* our ends */
};

/* Starts the operation. */
FT struct ft_process ft_start(struct ft *f, char *const *argv) {
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static struct spec spec;
        for (; argv[spec.argc]; spec.argc++)
            spec.argv[spec.argc] = argv[spec.argc];
        if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0)
            _exit(99);
        for (int fd = 3; fd < 64; fd++) {
            if (fd != f->upper)
                close(fd);
        }
        if (f->chroot && (chroot(f->chroot) != 0 || chdir("/") != 0))
            _exit(97);
        if (setresgid(FT_USER, FT_USER, FT_USER) != 0 || setresuid(2, FT_USER, 2) != 0)
            _exit(98);
        _exit(fileop_run(&spec, f->upper));
    }
    close(in[0]);
    close(out[1]);
    return (struct ft_process){.op = pid, .in = in[1], .out = out[0]};
}

/* Reads the answer to its end. */
FT void ft_finish(struct ft_process *p, struct ft_answer *a) {
    char data[65536];
    ssize_t n;
    int status = 0;
    *a = (struct ft_answer){0};
    buf_init(&a->bytes, FT_OUT_MAX);
    while ((n = read(p->out, data, sizeof data)) > 0)
        assert_int_equal(buf_append(&a->bytes, data, (size_t)n, NULL), 0);
    close(p->out);
    if (p->in >= 0)
        close(p->in);
    assert_int_equal(waitpid(p->op, &status, 0), p->op);
    if (!WIFEXITED(status))
        fail_msg("the operation died of signal %d", WTERMSIG(status));
    a->exit_code = WEXITSTATUS(status);
    ft_parse(a);
}

/* Runs it with these bytes as its stdin (NULL: none), up to a NULL argument. */
FT void ft_run(struct ft *f, const struct buf *in, struct ft_answer *a, char *const *argv) {
    struct ft_process p = ft_start(f, argv);
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        (void)signal(SIGPIPE, SIG_IGN);
        close(p.out);
        for (size_t at = 0; in && at < in->len;) {
            ssize_t n = write(p.in, in->data + at, in->len - at);
            if (n < 0)
                break;
            at += (size_t)n;
        }
        _exit(0);
    }
    close(p.in);
    p.in = -1;
    ft_finish(&p, a);
    waitpid(writer, NULL, 0);
}
#define FT_RUN(f, in, a, ...) ft_run(f, in, a, (char *const[]){__VA_ARGS__, NULL})

/* It ended with END. */
FT void ft_ok(const struct ft_answer *a) {
    assert_int_equal(a->exit_code, 0);
    assert_true(a->count > 0);
    const struct ft_item *last = &a->items[a->count - 1];
    if (last->rec.type != FILEOP_END)
        fail_msg("%s %d %s", fileop_code_name(last->rec.code), last->rec.sys, last->path);
}

/* It failed as a whole, with this code. */
FT void ft_failed(const struct ft_answer *a, enum fileop_code code) {
    assert_int_equal(a->exit_code, 0);
    assert_true(a->count > 0);
    const struct ft_item *last = &a->items[a->count - 1];
    assert_int_equal(last->rec.type, FILEOP_ERROR);
    assert_int_equal(last->rec.path_len, 0);
    if (last->rec.code != code)
        fail_msg("%s instead of %s", fileop_code_name(last->rec.code), fileop_code_name(code));
}

/* Runs it and wants this code (FILEOP_OK: END). */
#define FT_EXPECT(f, in, code, ...)                                                                \
    do {                                                                                           \
        struct ft_answer answer_;                                                                  \
        FT_RUN(f, in, &answer_, __VA_ARGS__);                                                      \
        if ((code) == FILEOP_OK)                                                                   \
            ft_ok(&answer_);                                                                       \
        else                                                                                       \
            ft_failed(&answer_, code);                                                             \
        ft_free(&answer_);                                                                         \
    } while (0)

/* The item of this path, or NULL. */
FT const struct ft_item *ft_find(const struct ft_answer *a, const char *path) {
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->items[i].path, path) == 0 && a->items[i].rec.type != FILEOP_END)
            return &a->items[i];
    }
    return NULL;
}
