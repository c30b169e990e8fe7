/* Fills a scratch directory from this machine's /etc, whatever that holds. */
#include "etc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "unit.h"

struct scratch {
    char path[64];
    int fd;
};

static int scratch_remove(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int scratch_make(void **state) {
    struct scratch *s = calloc(1, sizeof *s);
    assert_non_null(s);
    (void)snprintf(s->path, sizeof s->path, "/tmp/unit-etc-XXXXXX");
    assert_non_null(mkdtemp(s->path));
    s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(s->fd >= 0);
    *state = s;
    return 0;
}

static int scratch_drop(void **state) {
    struct scratch *s = *state;
    fd_close(&s->fd);
    int rc = nftw(s->path, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(s);
    return rc;
}

static void build(struct scratch *s) {
    struct err e;
    unit_works(etc_build(s->fd, &e), e);
}

static void read_all(struct scratch *s, const char *name, struct buf *out) {
    struct err e;
    buf_init(out, 1 << 20);
    unit_works(fd_read_file(s->fd, name, out, &e), e);
}

static void test_texts(void **state) {
    static const struct {
        const char *name, *text;
    } holds[] = {
        {"hostname", "pinfold\n"},
        {"hosts", "127.0.0.1 localhost pinfold\n"},
        {"hosts", "::1 localhost"},
        {"nsswitch.conf", "hosts: files\n"},
        {"passwd", "root:x:0:0:"},
        {"passwd", "user:x:1000:1000:user:/home/user:"},
        {"passwd", "nobody:x:65534:65534:"},
        {"group", "user:x:1000:\n"},
        {"machine-id", "70696e666f6c6470696e666f6c647069\n"},
    };
    struct scratch *s = *state;
    struct buf text;
    build(s);
    for (size_t i = 0; i < UNIT_COUNT(holds); i++) {
        read_all(s, holds[i].name, &text);
        assert_non_null(strstr(text.data, holds[i].text));
        buf_done(&text);
    }
    read_all(s, "resolv.conf", &text);
    assert_null(strstr(text.data, "nameserver"));
    buf_done(&text);
    read_all(s, "passwd", &text);
    size_t lines = 0;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.data[i] == '\n';
    }
    assert_int_equal(lines, 3);
    buf_done(&text);
}

/* Names that must never be there, whatever the host has. */
static const char *const forbidden[] = {
    "shadow*", "gshadow*", "sudoers*",    "sub?id*",   "*.key",    "*password*", "private",
    "npmrc",   "pip.conf", "environment", "gitconfig", "ssh",      "apt",        "*.bak",
    "fstab",   "crontab*", "*.swp",       "wgetrc",    "profile.d"};

static size_t walked_bytes;
static size_t walked_entries;

static int walk(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    const char *name = path + ftw->base;
    (void)type;
    walked_entries++;
    if (ftw->level == 0) {
        return 0;
    }
    for (size_t i = 0; i < UNIT_COUNT(forbidden); i++) {
        if (fnmatch(forbidden[i], name, 0) == 0) {
            fail_msg("%s is there", path);
        }
    }
    if (S_ISREG(st->st_mode)) {
        walked_bytes += (size_t)st->st_size;
        assert_int_equal(st->st_mode & 07022, 0);
        assert_int_equal(st->st_mode & 0444, 0444);
    } else if (S_ISDIR(st->st_mode)) {
        assert_int_equal(st->st_mode & 07777, 0755);
    } else {
        assert_true(S_ISLNK(st->st_mode));
    }
    return 0;
}

static void test_nothing_else(void **state) {
    struct scratch *s = *state;
    build(s);
    walked_bytes = 0;
    walked_entries = 0;
    assert_int_equal(nftw(s->path, walk, 16, FTW_PHYS), 0);
    assert_in_range(walked_entries, 15, 8300);
    assert_in_range(walked_bytes, 500, 24 << 20);
}

/* Of the files in the host's certificate directory only the bundles of public ones are taken:
 * others are certificates that this host made for itself. */
static void test_certificates(void **state) {
    struct scratch *s = *state;
    build(s);
    int fd = openat(s->fd, "ssl/certs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        assert_int_equal(errno, ENOENT);
        assert_int_not_equal(access("/etc/ssl/certs/ca-certificates.crt", R_OK), 0);
        return;
    }
    DIR *d = fdopendir(fd);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        if (S_ISREG(st.st_mode)) {
            assert_string_equal(e->d_name, "ca-certificates.crt");
        }
    }
    (void)closedir(d);
}

static void test_links(void **state) {
    struct scratch *s = *state;
    char text[PATH_MAX];
    build(s);
    ssize_t n = readlinkat(s->fd, "mtab", text, sizeof text);
    assert_int_equal(n, strlen("/proc/self/mounts"));
    assert_memory_equal(text, "/proc/self/mounts", (size_t)n);
    n = readlinkat(s->fd, "localtime", text, sizeof text);
    assert_int_equal(n, strlen("/usr/share/zoneinfo/UTC"));
}

/* A directory that is not empty is refused: nothing in it may survive. */
static void test_not_empty(void **state) {
    struct scratch *s = *state;
    struct err e;
    assert_int_equal(symlinkat("/etc/passwd", s->fd, "passwd"), 0);
    unit_fails(etc_build(s->fd, &e), e, ERR_SYSTEM);
    assert_int_equal(e.code, EEXIST);
}

static void test_hosts(void **state) {
    struct scratch *s = *state;
    struct err e;
    struct buf text;
    unit_works(etc_build_hosts(s->fd, &e), e);
    read_all(s, "hosts", &text);
    assert_non_null(strstr(text.data, "::1 localhost"));
    buf_done(&text);
    unit_fails(etc_build_hosts(s->fd, &e), e, ERR_SYSTEM);
}

#define ETC_TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_make, scratch_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        ETC_TEST(test_texts), ETC_TEST(test_nothing_else), ETC_TEST(test_certificates),
        ETC_TEST(test_links), ETC_TEST(test_not_empty),    ETC_TEST(test_hosts),
    };
    (void)umask(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
