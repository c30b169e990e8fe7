/* For the tests of templates: a child inside one, and a process 1 of a jail that is copied from it.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "rootfs.h"
#include "unit.h"

#define ID_BASE 700000 /* outside id of user 0 in the test's jail */

/* Shared with child processes: what went wrong there. Made by template_init(). */
static char *shared_text;

static inline void __attribute__((format(printf, 3, 4)))
note(int line, const char *what, const char *fmt, ...) {
    int code = errno;
    va_list ap;
    int at = snprintf(shared_text, 400, "line %d: %s (%s): ", line, what, strerror(code));
    va_start(ap, fmt);
    (void)vsnprintf(shared_text + at, 400, fmt, ap);
    va_end(ap);
}

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            note(__LINE__, #cond, __VA_ARGS__);                                                    \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static inline bool is_root(void) {
    if (geteuid() == 0) {
        return true;
    }
    print_message("SKIP: mount namespaces can only be made by root\n");
    return false;
}

static inline void wait_for(pid_t pid) {
    int status = 0;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("status 0x%x: %s", (unsigned)status, shared_text);
    }
}

/* Runs `fn` in a child inside the template. */
static inline void in_template(const struct rootfs *r, int (*fn)(void)) {
    shared_text[0] = '\0';
    pid_t pid = fork();
    if (pid == 0) {
        _exit(setns(r->mnt_ns, CLONE_NEWNS) == 0 ? fn() : 99);
    }
    wait_for(pid);
}

static inline int write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int code = errno;
    fd_close(&fd);
    errno = code;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Runs `fn` as process 1 and user 0 of a jail that is copied from the template. */
static inline void in_jail(const struct rootfs *r, int (*fn)(void)) {
    shared_text[0] = '\0';
    int go[2];
    int home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                       CLONE_NEWIPC | CLONE_NEWUTS,
                              .exit_signal = SIGCHLD};
    char path[64], map[64], byte = 0;
    assert_true(home >= 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    assert_int_equal(setns(r->mnt_ns, CLONE_NEWNS), 0);
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        fd_close(&go[1]);
        if (read(go[0], &byte, 1) != 1 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
            _exit(98);
        }
        _exit(fn());
    }
    assert_int_equal(setns(home, CLONE_NEWNS), 0);
    assert_true(pid > 0);
    (void)snprintf(map, sizeof map, "0 %d 65536\n", ID_BASE);
    (void)snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
    assert_int_equal(write_text(path, map), 0);
    (void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
    assert_int_equal(write_text(path, map), 0);
    assert_int_equal(write(go[1], &byte, 1), 1);
    wait_for(pid);
    fd_close(&go[0]);
    fd_close(&go[1]);
    fd_close(&home);
}

static inline int count_entries(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    if (d == NULL) {
        return -1;
    }
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    (void)closedir(d);
    return n;
}

static inline int read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    fd_close(&fd);
    if (n < 0) {
        return -1;
    }
    text[n] = '\0';
    return 0;
}

/* 0 when a file could be made or opened for writing there. */
static inline int attempt_write(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -1 : 0;
    fd_close(&fd);
    return rc;
}

/* Before the first test. */
static inline bool template_init(void) {
    shared_text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared_text != MAP_FAILED;
}
