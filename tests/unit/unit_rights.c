#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#define MIB ((size_t)1024 * 1024)

/* What a process without rights tries: 0 = it could. */
typedef bool attempt(int keep);

static bool open_a_file(int keep) {
    (void)keep;
    return open("/dev/null", O_RDONLY) >= 0;
}

static bool make_a_socket(int keep) {
    (void)keep;
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static bool copy_a_descriptor(int keep) {
    return dup(keep) >= 0 || fcntl(keep, F_DUPFD, 0) >= 0;
}

static bool make_a_process(int keep) {
    (void)keep;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

static bool become_a_program(int keep) {
    char *const argv[] = {"/bin/true", NULL};
    (void)keep;
    return execve(argv[0], argv, argv + 1) == 0; /* exits with 0 when it could */
}

static bool kill_its_parent(int keep) {
    (void)keep;
    return kill(getppid(), 0) == 0;
}

static bool look_into_its_parent(int keep) {
    char byte;
    struct iovec here = {&byte, 1}, there = {&byte, 1};
    (void)keep;
    return ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0 ||
           process_vm_readv(getppid(), &here, 1, &there, 1, 0) == 1;
}

static bool run_memory(int keep) {
    (void)keep;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED || mprotect(at, 4096, PROT_READ | PROT_EXEC) == 0 ||
           mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
               MAP_FAILED;
}

static bool send_a_signal_by_descriptor(int keep) {
    return fcntl(keep, F_SETOWN, getppid()) == 0;
}

static bool use_what_was_not_kept(int keep) {
    char byte;
    for (int fd = 0; fd < 256; fd++)
        if (fd != keep && (read(fd, &byte, 1) >= 0 || errno != EBADF))
            return true;
    return false;
}

static bool become_root(int keep) {
    (void)keep;
    return syscall(SYS_setuid, 0) == 0;
}

static bool take_more_memory(int keep) {
    (void)keep;
    return mmap(NULL, 600 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
}

/* -> the exit status of a child that tries it: 0 = it could, 1 = not, 2 = the rights stayed. */
static int tried(attempt *what, int keep) {
    pid_t pid = fork();
    int status = 0;
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(rights_drop(&keep, 1, 512 * MIB, 10) < 0 ? 2 : what(keep) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_nothing_is_left_to_do(void **state) {
    static const struct {
        const char *name;
        attempt *what;
    } rows[] = {
        {"open a file", open_a_file},
        {"make a socket", make_a_socket},
        {"copy a descriptor", copy_a_descriptor},
        {"make a process", make_a_process},
        {"become a program", become_a_program},
        {"kill its parent", kill_its_parent},
        {"look into its parent", look_into_its_parent},
        {"run memory", run_memory},
        {"send a signal by a descriptor", send_a_signal_by_descriptor},
        {"use what was not kept", use_what_was_not_kept},
        {"become root", become_root},
        {"take more memory", take_more_memory},
    };
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    for (size_t i = 0; i < UNIT_COUNT(rows); i++)
        if (tried(rows[i].what, ends[1]) != 1)
            fail_msg("it could %s", rows[i].name);
    close(ends[0]);
    close(ends[1]);
}

static void test_what_it_is_for_goes_on(void **state) {
    int ends[2];
    char text[8] = "";
    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *block = NULL;
        if (rights_drop(ends, 2, 512 * MIB, 10) < 0 || (block = malloc(8 * MIB)) == NULL)
            _exit(2);
        memset(block, 'x', 8 * MIB);
        free(block);
        _exit(write(ends[1], "good", 4) == 4 ? 0 : 3);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(read(ends[0], text, 4), 4);
    assert_string_equal(text, "good");
    close(ends[0]);
    close(ends[1]);
}

static void test_time_is_bounded(void **state) {
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (rights_drop(NULL, 0, 0, 1) < 0)
            _exit(2);
        for (;;)
            __asm__ volatile("" ::: "memory");
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_too_many_to_keep_are_refused(void **state) {
    const int keep[RIGHTS_KEEP_MAX + 1] = {0, 1, 2, 3, 4};
    (void)state;
    assert_int_equal(rights_drop(keep, RIGHTS_KEEP_MAX + 1, 0, 0), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_left_to_do),
        cmocka_unit_test(test_what_it_is_for_goes_on),
        cmocka_unit_test(test_time_is_bounded),
        cmocka_unit_test(test_too_many_to_keep_are_refused),
    };
    return cmocka_run_group_tests_name("rights", tests, NULL, NULL);
}
