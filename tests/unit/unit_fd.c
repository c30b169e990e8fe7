#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

/* A directory of its own for each test. */
struct place {
    char path[64];
    int fd;
};

static int place_make(void **state) {
    struct place *p = calloc(1, sizeof(*p));
    if (!p)
        return -1;
    snprintf(p->path, sizeof(p->path), "/tmp/unit-fd-XXXXXX");
    if (!mkdtemp(p->path))
        return -1;
    p->fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return p->fd < 0 ? -1 : 0;
}

static int place_remove(void **state) {
    struct place *p = *state;
    static const char *const names[] = {"file", "link", "fifo", "other"};
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        unlinkat(p->fd, names[i], 0);
    int rc = rmdir(p->path);
    close(p->fd);
    free(p);
    return rc;
}

static void place_put(const struct place *p, const char *name, const char *text) {
    struct err err = {0};
    unit_works(fd_write_atomic(p->fd, name, text, strlen(text), 0644, &err), err);
}

static void test_close_and_steal(void **state) {
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int copy = fd;
    assert_int_equal(fd_steal(&fd), copy);
    assert_int_equal(fd, -1);
    fd_close(&fd);
    errno = 77;
    fd_close(&copy);
    assert_int_equal(errno, 77);
    assert_int_equal(copy, -1);
    int number;
    {
        fd_cleanup int scoped = open("/dev/null", O_RDONLY | O_CLOEXEC);
        number = scoped;
        assert_true(fcntl(number, F_GETFD) >= 0);
    }
    assert_int_equal(fcntl(number, F_GETFD), -1);
}

static void test_read_file(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct buf out;
    place_put(p, "file", "0123456789");
    buf_init(&out, 12);
    unit_works(buf_puts(&out, "a ", &err), err);
    unit_works(fd_read_file(p->fd, "file", &out, &err), err);
    assert_string_equal(out.data, "a 0123456789");
    unit_fails(fd_read_file(p->fd, "file", &out, &err), err, ERR_LIMIT);
    assert_string_equal(out.data, "a 0123456789");
    buf_done(&out);
    buf_init(&out, 9);
    unit_fails(fd_read_file(p->fd, "file", &out, &err), err, ERR_LIMIT);
    assert_int_equal(out.len, 0);
    buf_done(&out);
    buf_init(&out, 0);
    unit_fails(fd_read_file(p->fd, "file", &out, &err), err, ERR_LIMIT);
    unit_works(fd_read_file(AT_FDCWD, "/dev/null", &out, &err), err);
    buf_done(&out);
}

static void test_read_file_follows_no_link_and_waits_for_no_fifo(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct buf out;
    buf_init(&out, 100);
    place_put(p, "file", "x");
    assert_int_equal(symlinkat("file", p->fd, "link"), 0);
    unit_fails(fd_read_file(p->fd, "link", &out, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, ELOOP);
    assert_int_equal(mkfifoat(p->fd, "fifo", 0600), 0);
    unit_works(fd_read_file(p->fd, "fifo", &out, &err), err);
    unit_fails(fd_read_file(p->fd, "missing", &out, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, ENOENT);
    assert_non_null(strstr(err.text, "missing"));
    unit_fails(fd_read_file(p->fd, ".", &out, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, EISDIR);
    buf_done(&out);
}

static void test_write_atomic(void **state) {
    struct place *p = *state;
    struct err err = {0};
    struct stat st;
    mode_t mask = umask(077);
    place_put(p, "file", "first");
    unit_works(fd_write_atomic(p->fd, "file", "second", 6, 0640, &err), err);
    umask(mask);
    assert_int_equal(fstatat(p->fd, "file", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_size, 6);
    /* A link is replaced, not followed. */
    assert_int_equal(symlinkat("file", p->fd, "link"), 0);
    unit_works(fd_write_atomic(p->fd, "link", "x", 1, 0600, &err), err);
    assert_int_equal(fstatat(p->fd, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(fstatat(p->fd, "file", &st, 0), 0);
    assert_int_equal(st.st_size, 6);
    unit_fails(fd_write_atomic(p->fd, "no/such", "x", 1, 0600, &err), err, ERR_SYSTEM);
    /* Failing to rename leaves nothing behind: place_remove() expects an empty directory. */
    unit_fails(fd_write_atomic(p->fd, ".", "x", 1, 0600, &err), err, ERR_SYSTEM);
    char path[128];
    snprintf(path, sizeof(path), "%s/other", p->path);
    unit_works(fd_write_atomic(AT_FDCWD, path, "", 0, 0600, &err), err);
}

static void test_write_kernel(void **state) {
    struct place *p = *state;
    struct err err = {0};
    place_put(p, "file", "12345");
    unit_works(fd_write_kernel(p->fd, "file", "ab", 2, &err), err);
    struct buf out;
    buf_init(&out, 100);
    unit_works(fd_read_file(p->fd, "file", &out, &err), err);
    assert_string_equal(out.data, "ab345");
    buf_done(&out);
    unit_fails(fd_write_kernel(p->fd, "other", "x", 1, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, ENOENT);
    unit_fails(fd_write_kernel(AT_FDCWD, "/dev/full", "x", 1, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, ENOSPC);
}

static void test_counters(void **state) {
    struct place *p = *state;
    static const struct {
        const char *text;
        int rc;
        uint64_t value;
    } rows[] = {
        {"0\n", 0, 0},    {"18446744073709551615\n", 0, UINT64_MAX},
        {"12", 0, 12},    {"18446744073709551616\n", -1, 0},
        {"max\n", -1, 0}, {"", -1, 0},
        {"-1\n", -1, 0},  {"1 2\n", -1, 0},
        {"\n", -1, 0},    {"1x\n", -1, 0},
    };
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct err err = {0};
        uint64_t value = 5;
        place_put(p, "file", rows[i].text);
        fd_cleanup int fd = openat(p->fd, "file", O_RDONLY | O_CLOEXEC);
        assert_int_equal(fd_read_u64(fd, &value, &err), rows[i].rc);
        assert_true(value == (rows[i].rc ? 5 : rows[i].value));
        /* pread: a second look starts at the beginning again. */
        assert_int_equal(fd_read_u64(fd, &value, &err), rows[i].rc);
    }
}

static void test_keyed_counters(void **state) {
    struct place *p = *state;
    struct err err = {0};
    uint64_t value = 5;
    place_put(p, "file", "low 0\noom 3\noom_kill 7\nbad x\nlast 9");
    fd_cleanup int fd = openat(p->fd, "file", O_RDONLY | O_CLOEXEC);
    unit_works(fd_read_keyed_u64(fd, "oom_kill", &value, &err), err);
    assert_int_equal(value, 7);
    unit_works(fd_read_keyed_u64(fd, "oom", &value, &err), err);
    assert_int_equal(value, 3);
    unit_works(fd_read_keyed_u64(fd, "last", &value, &err), err);
    assert_int_equal(value, 9);
    unit_works(fd_read_keyed_u64(fd, "low", &value, &err), err);
    assert_int_equal(value, 0);
    unit_fails(fd_read_keyed_u64(fd, "kill", &value, &err), err, ERR_INVALID);
    unit_fails(fd_read_keyed_u64(fd, "oom_", &value, &err), err, ERR_INVALID);
    unit_fails(fd_read_keyed_u64(fd, "bad", &value, &err), err, ERR_INVALID);
    assert_int_equal(value, 0);
}

static void test_memfd(void **state) {
    (void)state;
    struct err err = {0};
    char text[8] = "";
    fd_cleanup int sealed = fd_memfd("sealed", "hello", 5, true, &err);
    assert_true(sealed >= 0);
    assert_int_equal(read(sealed, text, sizeof(text)), 5);
    assert_int_equal(write(sealed, "x", 1), -1);
    assert_int_equal(ftruncate(sealed, 0), -1);
    assert_int_equal(fcntl(sealed, F_GET_SEALS),
                     F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    assert_int_equal(fcntl(sealed, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    fd_cleanup int open = fd_memfd("open", NULL, 0, false, &err);
    assert_true(open >= 0);
    assert_int_equal(write(open, "x", 1), 1);
}

static void make_pair(int pair[2]) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                     0);
}

static size_t open_descriptors(void) {
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_pass_descriptors(void **state) {
    (void)state;
    struct err err = {0};
    int pair[2], got[FD_PASS_MAX];
    char data[64];
    size_t n = 99;
    make_pair(pair);
    size_t before = open_descriptors();
    int send[FD_PASS_MAX];
    for (int i = 0; i < FD_PASS_MAX; i++)
        send[i] = pair[0];
    unit_works(fd_send(pair[0], "many", 4, send, FD_PASS_MAX, &err), err);
    unit_works(fd_send(pair[0], "none", 4, NULL, 0, &err), err);
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), 4);
    assert_int_equal(n, FD_PASS_MAX);
    assert_int_equal(open_descriptors(), before + FD_PASS_MAX);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fcntl(got[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        fd_close(&got[i]);
    }
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), 4);
    assert_int_equal(n, 0);
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), -1);
    assert_int_equal(err.code, EAGAIN);
    fd_close(&pair[0]);
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), 0);
    unit_fails(fd_send(pair[1], "x", 1, NULL, 0, &err), err, ERR_SYSTEM);
    assert_int_equal(err.code, EPIPE);
    fd_close(&pair[1]);
}

static void test_send_refuses(void **state) {
    (void)state;
    struct err err = {0};
    int pair[2], fds[FD_PASS_MAX + 1] = {0};
    make_pair(pair);
    unit_fails(fd_send(pair[0], "x", 0, NULL, 0, &err), err, ERR_INVALID);
    unit_fails(fd_send(pair[0], "x", 1, fds, FD_PASS_MAX + 1, &err), err, ERR_INVALID);
    char data[1024] = {0};
    int rc = 0;
    for (int i = 0; i < 100000 && rc == 0; i++)
        rc = fd_send(pair[0], data, sizeof(data), NULL, 0, &err);
    assert_int_equal(rc, -1);
    assert_int_equal(err.kind, ERR_SYSTEM);
    assert_int_equal(err.code, EAGAIN);
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

/* Sends what fd_send() would not. */
static void send_raw(int sock, const void *data, size_t len, size_t nfds) {
    char control[CMSG_SPACE(64 * sizeof(int))];
    memset(control, 0, sizeof(control));
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = CMSG_SPACE(nfds * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
    for (size_t i = 0; i < nfds; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &sock, sizeof(int));
    assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

static void test_hostile_packets_leave_no_descriptor(void **state) {
    (void)state;
    struct err err = {0};
    int pair[2], got[FD_PASS_MAX];
    char data[8];
    size_t n = 99;
    make_pair(pair);
    size_t before = open_descriptors();
    static const size_t too_many[] = {FD_PASS_MAX + 1, 12, 16, 64};
    for (size_t i = 0; i < UNIT_COUNT(too_many); i++) {
        send_raw(pair[0], "x", 1, too_many[i]);
        unit_fails((int)fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), err,
                   ERR_PROTOCOL);
        assert_int_equal(open_descriptors(), before);
    }
    send_raw(pair[0], "123456789", 9, 3);
    unit_fails((int)fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), err, ERR_PROTOCOL);
    assert_int_equal(open_descriptors(), before);
    send_raw(pair[0], "", 0, 2);
    unit_fails((int)fd_recv(pair[1], data, sizeof(data), got, &n, NULL, &err), err, ERR_PROTOCOL);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(n, 99);
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

/* A TCP socket that cannot end: nobody reads, and its maker wants close() to wait for that. */
static int make_lingering(int *reader) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    const struct linger long_time = {.l_onoff = 1, .l_linger = 20};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
    *reader = accept(listener, NULL, NULL);
    close(listener);
    static const char data[65536];
    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_time, sizeof(long_time)), 0);
    return fd;
}

/* The same, in the queue of a socket that nobody has any more. */
static int make_nested(int *reader) {
    int pair[2];
    int fd = make_lingering(reader);
    make_pair(pair);
    send_raw(pair[0], "x", 1, 0);
    assert_int_equal(fd_send(pair[0], "y", 1, &fd, 1, NULL), 0);
    close(fd);
    close(pair[0]);
    return pair[1];
}

static void test_nobody_waits_for_what_a_stranger_has_sent(void **state) {
    (void)state;
    int got[FD_PASS_MAX], reader, pair[2];
    char data[1];
    size_t n = 0;
    for (int way = 0; way < 6; way++) {
        size_t before = open_descriptors();
        make_pair(pair);
        int fd = way % 2 ? make_nested(&reader) : make_lingering(&reader);
        /* In a packet that is well, in one that is too long, and behind an empty one, unread. */
        if (way / 2 == 2)
            send_raw(pair[0], "", 0, 0);
        assert_int_equal(fd_send(pair[0], "xy", way / 2 == 1 ? 2 : 1, &fd, 1, NULL), 0);
        close(fd);
        struct timespec begun, over;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        if (way / 2 < 2 && fd_recv(pair[1], data, 1, got, &n, NULL, NULL) > 0)
            fd_drop(got, n);
        fd_hang_up(&pair[1]);
        assert_int_equal(pair[1], -1);
        clock_gettime(CLOCK_MONOTONIC, &over);
        assert_true(over.tv_sec - begun.tv_sec < 10);
        close(reader);
        close(pair[0]);
        assert_int_equal(open_descriptors(), before);
    }
}

static void test_credentials(void **state) {
    (void)state;
    struct err err = {0};
    int pair[2], got[FD_PASS_MAX], on = 1;
    char data[8];
    size_t n = 0;
    struct ucred cred;
    make_pair(pair);
    unit_works(fd_send(pair[0], "a", 1, NULL, 0, &err), err);
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, &cred, &err), 1);
    unit_works(fd_send(pair[0], "b", 1, (int[]){0}, 1, &err), err);
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, &cred, &err), 1);
    assert_int_equal(cred.pid, getpid());
    assert_int_equal(cred.uid, getuid());
    assert_int_equal(n, 1);
    fd_close(&got[0]);
    int off = 0;
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
    unit_works(fd_send(pair[0], "c", 1, NULL, 0, &err), err);
    assert_int_equal(fd_recv(pair[1], data, sizeof(data), got, &n, &cred, &err), 1);
    assert_int_equal(cred.uid, (uid_t)-1);
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_and_steal),
        IN_PLACE(test_read_file),
        IN_PLACE(test_read_file_follows_no_link_and_waits_for_no_fifo),
        IN_PLACE(test_write_atomic),
        IN_PLACE(test_write_kernel),
        IN_PLACE(test_counters),
        IN_PLACE(test_keyed_counters),
        cmocka_unit_test(test_memfd),
        cmocka_unit_test(test_pass_descriptors),
        cmocka_unit_test(test_send_refuses),
        cmocka_unit_test(test_hostile_packets_leave_no_descriptor),
        cmocka_unit_test(test_nobody_waits_for_what_a_stranger_has_sent),
        cmocka_unit_test(test_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
