/* ending NONCE KIND [N]: a program that ends in one known way, for the test of mislabelling. It
 * writes its nonce first, so that an answer can be told from everybody else's. Static and small,
 * since it is sent along with every run. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ENDING_MIB (1u << 20)
#define ENDING_FILE "full"

static void ending_say(int fd, const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n <= 0) {
            _exit(99);
        }
        text += n;
        left -= (size_t)n;
    }
}

static void __attribute__((noreturn)) ending_wait(void) {
    for (;;) {
        (void)pause();
    }
}

static void __attribute__((noreturn)) ending_spin(void) {
    for (;;) {
        __asm__ volatile("" ::: "memory");
    }
}

/* libc's own raise() keeps some numbers to itself, and so does its sigaction(). */
static void ending_signal(int pid, int number) {
    (void)syscall(SYS_kill, pid, number);
}

static void __attribute__((noreturn)) ending_memory(void) {
    for (;;) {
        char *block =
            mmap(NULL, ENDING_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) {
            _exit(98);
        }
        memset(block, 1, ENDING_MIB);
    }
}

/* A child dies of what the parent survives. */
static int ending_survive(void (*die)(void), int code) {
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        die();
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) {
        return 97;
    }
    return code;
}

static void ending_die_memory(void) {
    ending_memory();
}

static void ending_die_killed(void) {
    ending_signal(getpid(), SIGKILL);
}

static int ending_pids(void) {
    for (;;) {
        pid_t pid = fork();
        if (pid < 0) {
            return errno == EAGAIN ? 11 : 96;
        }
        if (pid == 0) {
            ending_wait();
        }
    }
}

static int ending_disk(void) {
    static char block[65536];
    int fd = open(ENDING_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return 95;
    }
    while (write(fd, block, sizeof block) > 0) {
    }
    return errno == ENOSPC ? 28 : 94;
}

static void ending_output(long bytes) {
    static char block[4096];
    memset(block, 'x', sizeof block);
    while (bytes > 0) {
        ssize_t n = write(1, block, bytes < 4096 ? (size_t)bytes : sizeof block);
        if (n <= 0) {
            return;
        }
        bytes -= n;
    }
}

/* A call of the i386 table, which the filter ends a process for. */
static int ending_foreign(void) {
#if defined(__x86_64__)
    int result = 20;
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory");
    return result > 0 ? 93 : 38;
#else
    return 38;
#endif
}

static void ending_quiet(int number) {
    (void)number;
    _exit(0);
}

static void ending_sleep(long ms) {
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static int ending_run(const char *kind, long n) {
    if (strcmp(kind, "exit") == 0) {
        return (int)n;
    } else if (strcmp(kind, "signal") == 0) {
        ending_signal(getpid(), (int)n);
        return 92;
    } else if (strcmp(kind, "shot") == 0) { /* by its own child */
        if (fork() == 0) {
            ending_signal(getppid(), (int)n);
            _exit(0);
        }
        ending_wait();
    } else if (strcmp(kind, "memory") == 0) {
        ending_memory();
    } else if (strcmp(kind, "child-memory") == 0) {
        return ending_survive(ending_die_memory, (int)n);
    } else if (strcmp(kind, "child-killed") == 0) {
        return ending_survive(ending_die_killed, (int)n);
    } else if (strcmp(kind, "cpu") == 0) {
        ending_spin();
    } else if (strcmp(kind, "cpu-two") == 0) {
        (void)fork();
        ending_spin();
    } else if (strcmp(kind, "wait") == 0) {
        ending_wait();
    } else if (strcmp(kind, "polite") == 0) { /* tries to hide its end behind an exit code */
        for (int i = 1; i < 32; i++) {
            (void)signal(i, ending_quiet);
        }
        ending_wait();
    } else if (strcmp(kind, "stop") == 0) {
        ending_signal(getpid(), SIGSTOP);
        return 91;
    } else if (strcmp(kind, "pids") == 0) {
        return ending_pids();
    } else if (strcmp(kind, "disk") == 0) {
        return ending_disk();
    } else if (strcmp(kind, "output") == 0) {
        ending_output(n);
        return 0;
    } else if (strcmp(kind, "foreign") == 0) {
        return ending_foreign();
    } else if (strcmp(kind, "late") == 0) {
        ending_sleep(n);
        return 5;
    } else if (strcmp(kind, "orphan") == 0) { /* leaves somebody behind */
        if (fork() == 0) {
            ending_wait();
        }
        return (int)n;
    }
    return 90;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 89;
    }
    char line[128];
    (void)snprintf(line, sizeof line, "%s\n", argv[1]);
    ending_say(1, line); /* at once: whoever is killed in between has said nothing or all */
    return ending_run(argv[2], argc > 3 ? strtol(argv[3], NULL, 10) : 0);
}
